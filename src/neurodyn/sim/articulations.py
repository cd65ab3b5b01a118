# SPDX-License-Identifier: Apache-2.0
"""The robot as its simulator built it, with soft constraints; the parts of it that a declaration names.

Articulations take seconds to build and are cached on disk by the content they are built from (`kept_articulation`).
"""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from neurodyn.core.artifacts import atomic, cache_folder
from neurodyn.core.description.contacts import ChainJoint, SoftConstraints
from neurodyn.core.description.elements import ForceElement
from neurodyn.core.description.mechanism import Fingerprint, Link
from neurodyn.core.description.scene import Vector3
from neurodyn.core.errors import InputError, choices, count_notices
from neurodyn.multibody.link_kinematics import LinkKinematics
from neurodyn.robots import Robot, asset_path
from neurodyn.robots.assets import source_digest
from neurodyn.robots.sections import choose, matching
from neurodyn.sim.bodies import Pose

T = TypeVar("T")
K = TypeVar("K")

ShapeKind = Literal["sphere", "capsule", "box", "cylinder", "ellipsoid", "mesh", "cone", "heightfield", "plane"]

Springs = Mapping[str, tuple[float, float]]
"""Stiffness [N m/rad or N/m] and damping [N m s/rad or N s/m] of each joint's limits, by name."""


@dataclass(frozen=True, eq=False)
class BuiltShape:
    """A collision shape of a moving link.

    Attributes:
        label: Its label, with the prefix of the importer, if any.
        body: Label of its body.
        joint: Index of the joint whose child body carries it.
        place: Its pose in that link's frame.
        kind: Kind of shape.
        size: Sphere: radius. Capsule and cylinder, along z: radius, half length. Box: half edges. Ellipsoid: radii [m].
        vertices: Vertices of a mesh in its frame [m], shape [vertices, 3]; None for other shapes.
    """

    label: str
    body: str
    joint: int
    place: Pose
    kind: ShapeKind
    size: Vector3
    vertices: np.ndarray | None = None

    @property
    def labels(self) -> set[str]:
        """Labels that patterns may match: of the shape and of its body, with and without prefixes."""
        return with_short(self.label, self.body)


def with_short(*labels: str) -> set[str]:
    """Return labels with and without the prefixes of world and articulation."""
    return {name for label in labels for name in (label, short_label(label))}


def short_label(label: str) -> str:
    """Return the label of a joint, body or shape without the prefixes of world and articulation."""
    return label.rsplit("/", 1)[-1]


def require_joints(robot: Robot, built: Sequence[tuple[str, str]]) -> None:
    """Raise InputError unless moving joints (name, kind) are the declared ones; a free base may have any name."""
    declared = [(joint.name, joint.kind) for joint in robot.joints]
    if built and built[0][1] == "free" == declared[0][1]:
        built = [declared[0], *built[1:]]
    if list(built) != declared:
        words = [", ".join(f"{name} ({kind})" for name, kind in joints) for joints in (built, declared)]
        raise InputError(
            f"robot {robot.name!r}: {asset_path(robot).name} has the moving joints {words[0]} instead of the declared "
            f"{words[1]}; list all of them in this order, or under `locked`"
        )


def added_inertia(robot: Robot, links: Sequence[str]) -> list[float]:
    """Return the declared additional inertia of each link [kg m^2], 0 for none."""
    for pattern in robot.added_inertia:
        if not any(matching(link, [pattern]) for link in links):
            raise InputError(
                f"robot {robot.name!r}: added_inertia names {pattern!r}, which no link of {asset_path(robot).name} "
                f"matches; valid: patterns of {choices(links)}"
            )
    return [choose(link, robot.added_inertia) or 0.0 for link in links]


def declared_colliders(robot: Robot, labels: Mapping[K, set[str]]) -> list[K]:
    """Return the collision shapes among the declared colliders, given the labels of each shape and its body."""
    colliders = [shape for shape, names in labels.items() if any(matching(name, robot.colliders) for name in names)]
    if labels and not colliders:
        raise InputError(
            f"robot {robot.name!r}: colliders {list(robot.colliders)} match no collision shape; valid: patterns of "
            f"{choices({short_label(name) for names in labels.values() for name in names})}"
        )
    return colliders


def shapes_of_contacts(contacts: Mapping[str, Sequence[str]], labels: Mapping[K, set[str]]) -> dict[K, str]:
    """Return the declared contact of each collision shape that has one; the first that matches a label of the shape.

    `contacts` are patterns by name. A contact without any shape raises InputError.
    """
    owner = {
        shape: name
        for shape, own in labels.items()
        if (name := next((n for n, patterns in contacts.items() if any(matching(x, patterns) for x in own)), None))
    }
    for name, patterns in contacts.items():
        if name not in owner.values():
            raise InputError(
                f"contacts: {name!r} ({', '.join(patterns)}) matches no collision shape; valid: patterns of "
                f"{choices({short_label(label) for own in labels.values() for label in own})}"
            )
    return owner


@dataclass(frozen=True, eq=False)
class Articulation:
    """A robot as its simulator built it, bodies merged across fixed joints.

    Attributes:
        links: The links; limits have the springs of the simulator's model.
        shapes: The shapes that can touch something.
        gravity: Gravity in world axes [m/s^2].
        fingerprint: Its identity.
        find_constraints: Returns its soft constraints, and the equivalent springs of limits; may be costly.
        base_com: Point of a floating base, in its frame, whose velocity is the base's linear velocity [m].
        elements: Passive force elements of the asset.
        couplings: Further fields of the mechanism (`Mechanism`), such as tendons and equalities.
    """

    links: tuple[Link, ...]
    shapes: tuple[BuiltShape, ...]
    gravity: Vector3
    fingerprint: Fingerprint
    find_constraints: Callable[[], tuple[SoftConstraints, Springs]] = lambda: (SoftConstraints(), {})
    base_com: Vector3 = (0.0, 0.0, 0.0)
    elements: tuple[ForceElement, ...] = ()
    couplings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def joints(self) -> tuple[ChainJoint, ...]:
        """The moving joints."""
        return tuple(link.joint for link in self.links)

    @cached_property
    def mass(self) -> float:
        """Total mass [kg]."""
        return sum(link.mass for link in self.links)

    @property
    def centers_of_mass(self) -> dict[str, Vector3]:
        """Points of free joints' bodies, in their frames, whose velocities are those of the joints [m], by joint."""
        free = [link for link in self.links if link.joint.kind == "free"]
        return {link.joint.name: link.com if index else self.base_com for index, link in enumerate(free)}

    def kinematics(self, q: np.ndarray) -> LinkKinematics:
        """Return the poses of the links at positions, shape [n, nq]."""
        return LinkKinematics(self.links, q, self.base_com)

    @cached_property
    def constraints(self) -> SoftConstraints:
        """Softness of contacts, limits and joint friction."""
        return self._found[0]

    @cached_property
    def springs(self) -> Springs:
        """Springs equivalent to the limit constraints (`limit_spring`), by joint."""
        return self._found[1]

    @cached_property
    def sprung_links(self) -> tuple[Link, ...]:
        """The links, with these springs at their limits."""
        springs = self.springs
        return tuple(
            msgspec.structs.replace(link, limit_stiffness=springs[name][0], limit_damping=springs[name][1])
            if (name := link.joint.name) in springs
            else link
            for link in self.links
        )

    @cached_property
    def _found(self) -> tuple[SoftConstraints, Springs]:
        return self.find_constraints()


SHIPPED = Path(__file__).resolve().parent / "built"
"""Shipped robots as built; `scripts/built_robots.py` writes them."""
_KEPT = 64
"""Maximum number of robots cached on disk."""


class _BuiltRobot(msgspec.Struct, frozen=True, omit_defaults=True):
    """An articulation as plain data; constraints and springs are missing until first used."""

    links: tuple[Link, ...]
    shapes: tuple[BuiltShape, ...]
    gravity: Vector3
    fingerprint: Fingerprint
    base_com: Vector3
    elements: tuple[ForceElement, ...]
    constraints: SoftConstraints | None = None
    springs: dict[str, tuple[float, float]] | None = None

    @classmethod
    def of(cls, built: Articulation, soft: tuple[SoftConstraints, Springs] | None) -> "_BuiltRobot":
        constraints, springs = (None, None) if soft is None else (soft[0], dict(soft[1]))
        fields = {name: getattr(built, name) for name in cls.__struct_fields__[:6]}
        return cls(**fields, constraints=constraints, springs=springs)

    def articulation(self, find: Callable[[], tuple[SoftConstraints, Springs]]) -> Articulation:
        """Return the articulation; `find` computes the constraints if they are missing."""
        constraints, springs = self.constraints, self.springs
        find_constraints = find if constraints is None or springs is None else lambda: (constraints, springs)
        fields = {name: getattr(self, name) for name in self.__struct_fields__[:6]}
        return Articulation(**fields, find_constraints=find_constraints)


def kept_articulation(build: Callable[[Robot], Articulation], robot: Robot) -> Articulation:
    """Return a robot as `build` builds it, from the cache if declaration, files and code are unchanged.

    For builders without couplings only. A robot whose build gives a notice is not cached, so that the notice is
    repeated.
    """
    try:
        source = built_name(robot)
    except (InputError, OSError):  # the builder reports the cause
        return build(robot)
    kept = _read_built(SHIPPED / source)
    if kept is not None:
        return kept.articulation(lambda: build(robot).find_constraints())
    folder = cache_folder("robots")
    if folder is None:
        return build(robot)
    file = folder / f"{hashlib.sha256((source + _code()).encode()).hexdigest()[:32]}.json"
    kept = _read_built(file)

    def find() -> tuple[SoftConstraints, Springs]:
        built = build(robot)
        constraints, silent = _silently(built.find_constraints)
        if silent:
            _keep(file, _BuiltRobot.of(built, constraints))
        return constraints

    if kept is not None:
        return kept.articulation(find)
    built, silent = _silently(lambda: build(robot))
    if not silent:
        return built
    _keep(file, _BuiltRobot.of(built, None))
    return dataclasses.replace(built, find_constraints=find)


def built_name(robot: Robot) -> str:
    """Return the file name of a robot as built: a digest of what it is built from, drives excluded."""
    return f"{source_digest(robot.without_drives())}.json"


def encoded_robot(built: Articulation) -> bytes:
    """Return an articulation with its constraints as JSON."""
    return msgspec.json.encode(_BuiltRobot.of(built, (built.constraints, built.springs)), enc_hook=np.ndarray.tolist)


def _read_built(file: Path) -> _BuiltRobot | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_BuiltRobot, dec_hook=lambda kind, value: np.array(value))
    except (OSError, msgspec.DecodeError, InputError, ValueError):
        return None


def _keep(file: Path, built: _BuiltRobot) -> None:
    """Write a cache file, if possible, and delete the oldest ones."""
    with contextlib.suppress(InputError, OSError):
        with atomic(file) as partial:
            partial.write_bytes(msgspec.json.encode(built, enc_hook=np.ndarray.tolist))
        for old in sorted(file.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)[:-_KEPT]:
            old.unlink()


def _silently(call: Callable[[], T]) -> tuple[T, bool]:
    """Return the result of a call, and whether it gave no notice."""
    before = count_notices()
    return call(), count_notices() == before


@cache
def _code() -> str:
    package, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for folder in ("sim", "core/description", "robots"):
        for file in sorted((package / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()

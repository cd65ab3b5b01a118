# SPDX-License-Identifier: Apache-2.0
"""A robot with its mechanism and free quantities, as declared or with another structure.

Other structures have the floor's other friction cone, and last links that bend: a spring joint in each, which is
neither declared nor measured.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.description.contacts import ChainJoint, ContactPoint
from neurodyn.core.description.mechanism import Fingerprint, Inertia, Link, Mechanism
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.description.scene import Scene
from neurodyn.core.errors import InputError, nearest
from neurodyn.data.header import StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.training_range import training_range
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.identify.unknowns.quantities import carriers, free_space, in_air, is_single, matching
from neurodyn.identify.unknowns.search_space import PAYLOAD, Coordinate, CoordinateSpace, inertial_quantities
from neurodyn.multibody.engine import EngineConfig, nominal
from neurodyn.robots import Robot

SPRING = "spring"
"""Suffix of a hidden joint's name, after the joint of the bending link."""
SPRINGS = "springs in the links of"
"""Prefix of the name of a structure with hidden joints."""
_PAYLOAD = "payload."
"""Begin of the names of a payload's quantities."""
_LEAST_REACH = 1e-6
"""Longest delay of a motor without one [s], so that the delay stays a quantity."""
_RATE, _DAMPED = 60.0, 0.1
"""Prior natural frequency [rad/s] and damping ratio of a spring."""


def spring_of(joint: str) -> str:
    """Return the name of the spring joint in the link of a joint."""
    return f"{joint}.{SPRING}".replace(".", "_")


def bending(mechanism: Mechanism) -> tuple[str, ...]:
    """Return the joints whose links may bend: revolute, with contact points, and no child link.

    Links in tendons and equality constraints are excluded, too.
    """
    tied = {name for tendon in mechanism.tendons or () for name in tendon.links}
    tied |= {name for one in mechanism.equalities or () for name in (one.first, one.second)}
    parents = {link.joint.parent for link in mechanism.links}
    touching = {point.joint for point in mechanism.points}
    return tuple(
        link.joint.name
        for index, link in enumerate(mechanism.links)
        if index not in parents
        and index in touching
        and link.joint.kind == "revolute"
        and _length(link) > 1e-3
        and link.joint.name not in tied
    )


def with_springs(mechanism: Mechanism) -> Mechanism:
    """Return a mechanism whose last links (see `bending`) bend at their centre of mass, around their joint's axis.

    Each is split into halves of a rod; contact points beyond the centre move to the far half.
    """
    links, points = list(mechanism.links), list(mechanism.points)
    names = bending(mechanism)
    for name in names:
        index = mechanism.names.index(name)
        near, far, along = _halves(links[index], index)
        links[index] = near
        links.append(far)
        points = [_move_point(one, index, len(links) - 1, links[index], far, along) for one in points]
    reference = (*mechanism.reference, *[0.0] * len(names)) if mechanism.reference else UNSET
    return msgspec.structs.replace(
        mechanism, links=tuple(links), points=tuple(points), hidden=len(names), reference=reference
    )


def _length(link: Link) -> float:
    return math.dist(link.com, link.joint.child_frame[:3])


def _halves(link: Link, index: int) -> tuple[Link, Link, np.ndarray]:
    """Return the halves of a link, and the direction from its joint to its centre in the body frame."""
    com, origin = np.array(link.com), np.array(link.joint.child_frame[:3])
    arm = com - origin
    quarter = 0.5 * arm
    inertia = _halve(link, quarter)
    near = msgspec.structs.replace(link, mass=0.5 * link.mass, com=tuple((com - quarter).tolist()), inertia=inertia)
    place = (*com.tolist(), 0.0, 0.0, 0.0, 1.0)
    axis = np.array(quaternion_matrix(link.joint.child_frame[3:])) @ np.array(link.joint.axis)
    joint = ChainJoint(
        name=spring_of(link.joint.name), kind="revolute", parent=index, parent_frame=place,
        child_frame=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0), axis=(float(axis[0]), float(axis[1]), float(axis[2])),
    )  # fmt: skip
    x, y, z = quarter.tolist()
    swung = 0.5 * link.mass * float(quarter @ quarter) + sum(inertia[:3]) / 3.0
    far = Link(
        joint=joint, mass=0.5 * link.mass, com=(x, y, z), inertia=inertia, stiffness=swung * _RATE**2,
        damping=2.0 * _DAMPED * _RATE * swung,
    )  # fmt: skip
    return near, far, arm / np.linalg.norm(arm)


def _halve(link: Link, quarter: np.ndarray) -> Inertia:
    """Return the inertia of each half about its own centre, so that both together have the link's."""
    xx, yy, zz, xy, xz, yz = link.inertia
    whole = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    steiner = link.mass * (quarter @ quarter * np.eye(3) - np.outer(quarter, quarter))
    values, vectors = np.linalg.eigh(0.5 * (whole - steiner))
    least = 0.05 * max(float(np.trace(whole)) / 6.0, 1e-9)
    half = vectors @ np.diag(np.clip(values, least, None)) @ vectors.T
    return tuple(float(half[i, j]) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)))  # type: ignore[return-value]


def _move_point(one: ContactPoint, index: int, there: int, near: Link, far: Link, along: np.ndarray) -> ContactPoint:
    """Return a contact point on the half of the link that carries it."""
    if one.joint != index:
        return one
    centre = np.array(far.joint.parent_frame[:3])
    beyond = np.array(one.point) - centre
    if float(beyond @ along) <= 0.0:
        return one
    x, y, z = beyond.tolist()
    return msgspec.structs.replace(one, joint=there, point=(x, y, z))


@dataclass(frozen=True)
class FitModel:
    """A robot as described by one structure, and its free quantities.

    Attributes:
        robot: The robot, with the drives of its motors.
        name: Name or path of its declaration.
        mechanism: The mechanism.
        fingerprint: Fingerprint of its source articulation.
        scene: The ground; None for free space.
        engine: Configuration of the engine, without networks.
        free: Free quantities of the engine.
        space: Their coordinates in prior standard deviations; None for scaled values.
        structure: Structural difference from the declaration, in words; empty for none.
        asked: Free quantities that the user asks for beside the default ones.
        carrier: Joint of the link with a payload; empty for the floating base, if there is one.
        more: Further coordinates of the structure.
        recorded: Quantities that the log gives by run, which are free but not fitted.
        stated: Values that the log's map states exactly, which are held unless one asks for them by name.
    """

    robot: Robot
    name: str
    mechanism: Mechanism
    fingerprint: Fingerprint
    scene: Scene | None
    engine: EngineConfig
    free: tuple[Parameter, ...] = ()
    space: CoordinateSpace | None = None
    structure: str = ""
    asked: tuple[str, ...] = ()
    carrier: str = ""
    more: tuple[Coordinate, ...] = ()
    recorded: tuple[str, ...] = ()
    stated: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def declared(
        cls, robot: Robot, name: str, settings: IdentificationSettings, recorded: Sequence[str] = (), parts: int = 1
    ) -> "FitModel":
        """Return a robot as declared, without free quantities but those that its log gives by run.

        Frames have a multiple of `parts` steps of the engine unless the settings say how many: so many commands has the
        log for each.

        Raises:
            InputError: The log gives a quantity that the robot does not have.
        """
        engine = settings.engine(robot)
        if settings.substeps is UNSET:
            engine = msgspec.structs.replace(engine, substeps=-(-engine.substeps // parts) * parts)
        model = cls(robot, name, *declared_mechanism(robot, engine.contact), engine, recorded=tuple(recorded))
        values = model.nominal
        for one in recorded:
            if one not in values:
                raise InputError(
                    f"log of {robot.name!r}: gives {one!r} by run, which is no quantity of the robot; valid: "
                    f"{nearest(one, values)}"
                )
        return replace(model, free=tuple(Parameter(name=one, nominal=values[one]) for one in recorded))

    @property
    def nominal(self) -> dict[str, float]:
        """Declared values of all quantities."""
        return nominal(self.mechanism, self.engine.contact)

    @property
    def undelayed(self) -> "FitModel":
        """This robot as its declaration is simulated: without room for delays in drives that declare none.

        With it they average commands over half a step of the engine also at a delay of 0.
        """
        drives = {
            name: drive if drive.delay else msgspec.structs.replace(drive, longest_delay=None)
            for name, drive in self.mechanism.drives.items()
        }
        model = replace(self, mechanism=msgspec.structs.replace(self.mechanism, drives=drives), space=None)
        known = model.nominal
        return replace(model, free=tuple(one for one in self.free if one.name in known))

    def in_prior_deviations(
        self, settings: IdentificationSettings, asked: Sequence[str] = (), spare: Sequence[str] = ()
    ) -> "FitModel":
        """Return this robot with the free quantities of `quantities.free_space`, and `spare` ones beside them."""
        declared, asked = self.nominal, tuple(asked) or self.asked
        named = (*(one for one in settings.quantities if one != "*"), *settings.prior, *asked)
        known = {one: value for one, value in self.stated.items() if not any(matching(text, [one]) for text in named)}
        space = free_space(
            self.robot, self.mechanism, declared, settings.quantities, asked, settings.prior,
            known | settings.known,
            more=self.more, carrier=self.carrier, spare=spare, recorded=self.recorded,
        )  # fmt: skip
        return replace(self.with_space(space), asked=asked)

    @property
    def held(self) -> dict[str, float]:
        """The stated values that are held."""
        known = () if self.space is None else self.space.known
        return {one.name: value for one, value in known if one.name in self.stated}

    def with_stated(self, names: Collection[str], settings: IdentificationSettings) -> "FitModel":
        """Return this robot with only some of the stated values held, for the same compiled program."""
        assert self.space is not None
        stated = {name: value for name, value in self.stated.items() if name in names}
        kept = replace(self, stated=stated).in_prior_deviations(settings, spare=self.space.quantities)
        assert kept.space is not None
        return kept.with_space(kept.space.with_widths(self.space.widths))

    def touches(self, header: StoreHeader) -> bool:
        """Return whether the robot may touch a ground, its own or that of a log."""
        ground = self.scene is not None or header.scene is not None
        return ground and bool(self.mechanism.points)

    def walks(self, header: StoreHeader) -> bool:
        """Return whether the robot may, and its base floats on joints: not a single body, which carries no payload."""
        return self.mechanism.floating and not is_single(self.mechanism) and self.touches(header)

    def with_substeps(self, substeps: int) -> "FitModel":
        """Return this robot with so many steps of the engine in a frame."""
        return replace(self, engine=msgspec.structs.replace(self.engine, substeps=substeps))

    def with_space(self, space: CoordinateSpace) -> "FitModel":
        """Return this robot with other coordinates."""
        declared = self.nominal
        return replace(
            self, space=space, free=tuple(Parameter(name=name, nominal=declared[name]) for name in space.quantities)
        )

    def dynamics(
        self, store: Store | None, threads: int, *, blueprint: Blueprint | None = None, context: int = 0, seed: int = 0,
        device: str | None = None,
    ) -> HybridDynamics:  # fmt: skip
        """Return the model at its declared values, with the range of motion of a log."""
        engine = msgspec.structs.replace(self.engine, blueprint=blueprint or Blueprint(), context=context)
        model = HybridDynamics(
            self.robot.spec, self.mechanism, engine, self.free, self.fingerprint, self.scene, declaration=self.name,
            threads=threads, seed=seed,
        )  # fmt: skip
        model.training_range = None if store is None else training_range(store)
        model.compute_device = device
        return model

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the coordinates that the structure adds; the size of a payload is a detail."""
        return (*(PAYLOAD[:-1] if self.carrier else ()), *(one.name for one in self.more))

    @property
    def spare(self) -> tuple[str, ...]:
        """Quantities on which other structures act: a model that has them free is compiled once for all."""
        mechanism = self.mechanism
        links = mechanism.names[: len(mechanism.names) - (mechanism.hidden or 0)]
        declared = self.nominal
        return tuple(name for link in links for name in inertial_quantities(link) if name in declared)

    def trim(self, x: Tensor) -> "FitModel":
        """Return this robot with only what coordinates x need: no spare quantities, and past commands for its delay."""
        assert self.space is not None
        delay = float(self.space.value("motors.delay", x)) if self.space.has("motors.delay") else 0.0
        drives = {
            name: drive
            if drive.constrains
            else msgspec.structs.replace(drive, longest_delay=max(delay, drive.delay, _LEAST_REACH))
            for name, drive in self.mechanism.drives.items()
        }
        lean = self.with_space(self.space.lean)
        return replace(lean, mechanism=msgspec.structs.replace(self.mechanism, drives=drives))


def structures(model: FitModel, settings: IdentificationSettings, asked: Sequence[str] = ()) -> list[FitModel]:
    """Return the declared structure and its alternatives, if the settings try any, with their free quantities.

    A body that rotors push has drag. A payload that settings name is on the last link of a bolted chain; else one looks
    for it (`stages.structure_kinds`). The alternatives are a slow disturbance of it, the other friction cone of the
    floor and, in the second half of the list, springs in the last links.
    """
    model = replace(model, mechanism=in_air(model.mechanism, "drag"))
    if not model.carrier and _names_a_payload((*settings.known, *settings.prior, *settings.per_log, *asked)):
        model = replace(model, carrier=_tool(model.mechanism))
    models, mechanism = [model], model.mechanism
    if settings.structures and (disturbed := in_air(mechanism, "disturbance")) is not mechanism:
        models.append(replace(model, mechanism=disturbed, structure="a slow disturbance"))
    if settings.structures and model.engine.contact == "soft" and mechanism.points:
        cone = "elliptic" if mechanism.constraints.cone == "pyramidal" else "pyramidal"
        soft = msgspec.structs.replace(mechanism, constraints=msgspec.structs.replace(mechanism.constraints, cone=cone))
        models.append(replace(model, mechanism=soft, structure=f"{cone} cones of friction"))
        if names := bending(mechanism):
            springs = f"{SPRINGS} {', '.join(names)}"
            models += [
                replace(
                    one, mechanism=with_springs(one.mechanism),
                    structure=f"{one.structure} and {springs}" if one.structure else springs,
                )
                for one in models
            ]  # fmt: skip
    return [one.in_prior_deviations(settings, asked, one.spare if settings.structures else ()) for one in models]


def _names_a_payload(names: Iterable[str]) -> bool:
    return any(name.strip().startswith(_PAYLOAD) for name in names)


def _tool(mechanism: Mechanism) -> str:
    """Return the joint of a bolted chain's last link, which carries a payload that one names; empty for others."""
    links = carriers(mechanism)
    chain = len({link.joint.parent for link in mechanism.links}) == len(mechanism.links)
    return links[0] if chain and not mechanism.floating else ""

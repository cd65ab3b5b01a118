# SPDX-License-Identifier: Apache-2.0
"""A robot as its simulator built it, as plain data: links, the shapes that can touch something, and constraints."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np

from neurodyn.core.description.contacts import ChainJoint, SoftConstraints
from neurodyn.core.description.elements import ForceElement
from neurodyn.core.description.mechanism import Fingerprint, Link
from neurodyn.core.description.scene import Vector3
from neurodyn.sim.bodies import Pose

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
        """The labels that patterns may match: of the shape and of its body, with and without prefixes."""
        return with_short(self.label, self.body)


def with_short(*labels: str) -> set[str]:
    """Return labels with and without the prefixes of world and articulation."""
    return {name for label in labels for name in (label, short_label(label))}


def short_label(label: str) -> str:
    """Return the label of a joint, body or shape without the prefixes of world and articulation."""
    return label.rsplit("/", 1)[-1]


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

    @cached_property
    def constraints(self) -> SoftConstraints:
        """Softness of contacts, limits and joint friction."""
        return self._found[0]

    @cached_property
    def springs(self) -> Springs:
        """Springs that do what the constraints of limits do (`limit_spring`), by joint."""
        return self._found[1]

    @cached_property
    def sprung_links(self) -> tuple[Link, ...]:
        """The links with these springs in their limits."""
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


def limit_spring(
    solref: tuple[float, float], impedance: float, inertia: float, least: float = 0.0
) -> tuple[float, float]:
    r"""Return stiffness and damping of a spring that does what the constraint of a joint limit does.

    At a violation r, MuJoCo's reference acceleration is $-b\,v - k\,d\,r$, with $b = 2/(d\,t)$ and $k =
    1/(d\,t\,\zeta)^2$ from solref (t, zeta) and the impedance d from solimp, of which the share d is realised. A spring
    and damper on a body of the joint's effective inertia $m = 1/w$ (w: `dof_invweight0`) give the same without other
    forces:

    $$k_e = d\,k\,m, \qquad k_d = d\,b\,m$$

    The spring does not model that MuJoCo cancels the share d of other forces, so that a joint under torque rests closer
    to its limit in the simulator.

    Args:
        solref: Time constant [s] and damping ratio, or minus stiffness and damping.
        impedance: Impedance beyond the width of solimp.
        inertia: Effective inertia of the joint [kg m^2 or kg].
        least: Least time constant [s].
    """
    time, ratio = solref
    if time > 0:
        time = max(time, least)
        k, b = 1.0 / (impedance * time * ratio) ** 2, 2.0 / (impedance * time)
    else:
        k, b = -time / impedance**2, -ratio / impedance
    return impedance * k * inertia, impedance * b * inertia

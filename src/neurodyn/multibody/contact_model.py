# SPDX-License-Identifier: Apache-2.0
"""The interface of contact models, and contact as a force: Hunt and Crossley's spring-damper with smooth friction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from neurodyn.core.description.contacts import ContactPoint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.multibody.articulated import Quantity, RelativeMotion, Tree
from neurodyn.multibody.body_contacts import body_touches, contact_quantities
from neurodyn.multibody.points import LinkPose, PointContact, Wrenches, link_poses, touches, wrenches
from neurodyn.multibody.scope import Scope
from neurodyn.multibody.trace import Scalar, maximum, safe_sqrt, tanh
from neurodyn.multibody.vectors import Vector, array, dot

SIZE = "points.size"
"""Quantity: factor on the places and radii of the contact points."""


@dataclass
class ContactPush:
    """The force of one contact on the robot.

    Attributes:
        link: The link that it acts on.
        arm: Where, from the origin of the link's frame, world axes [m].
        force: The force, world axes [N].
    """

    link: int
    arm: Vector
    force: Vector


@dataclass
class Contacts:
    """A traced step as a contact model sees it.

    Attributes:
        scope: Quantities by name, those that networks act on included.
        tree: The mechanism.
        motions: Motions of its links at the beginning of the step.
        points: The points that can touch.
        grounds: A point on the ground and the normal there, of each.
        q: Positions.
        qd: Velocities.
        dt: Length of the step [s].
        flat: Whether one plane is the ground of all points.
        held: Contacts of shapes with a heightfield (`geometry.prisms`), in place of points; empty on other grounds.
        pushes: Where `ContactModel.accelerations` notes the forces of all contacts; None where nobody asks.
    """

    scope: Scope
    tree: Tree
    motions: list[RelativeMotion]
    points: Sequence[ContactPoint]
    grounds: list[tuple[Vector, Vector]]
    q: list[Scalar]
    qd: list[Scalar]
    dt: float
    flat: bool = True
    held: Sequence[Scalar] = ()
    pushes: list[ContactPush] | None = None

    @cached_property
    def poses(self) -> list[LinkPose]:
        """Where the links are."""
        return link_poses(self.tree, self.motions)

    @cached_property
    def touched(self) -> list[PointContact]:
        """The points beside the ground, and bodies beside each other."""
        touched = []
        if self.points:
            touched = touches(self.tree, self.motions, self.poses, self.points, self.grounds, self.scope(SIZE))
        for touch in touched:
            touch.depth = self.scope.define(f"contact.{touch.name}.depth", touch.depth)
        return touched + body_touches(self.tree, self.motions, self.poses, self.scope)


class ContactModel:
    """A contact model; overrides `forces` or `accelerations`.

    One that overrides `accelerations` notes the forces in `Contacts.pushes`, for sensors that measure them.

    Attributes:
        defaults: Nominal values of its quantities, by name ("contact.friction" ...).
        constrains_joints: Whether limits and friction of joints are constraints of the model, and not passive torques.
    """

    defaults: ClassVar[Mapping[str, float]] = {}
    constrains_joints: ClassVar[bool] = False

    def nominal(self, mechanism: Mechanism) -> Mapping[str, float]:
        """Return the nominal values of its quantities in a mechanism."""
        own = {SIZE: 1.0, **self.defaults} if mechanism.points else {}
        return own | contact_quantities(mechanism.body_contacts, self.defaults)

    def forces(self, contacts: Contacts) -> Wrenches:
        """Return the wrenches of contacts that are forces, which follow from the state."""
        return {}

    def accelerations(self, contacts: Contacts, free: list[Any]) -> list[Any]:
        """Return accelerations over the step, from those without contact."""
        return free


NAMES = ("contact.stiffness", "contact.damping", "contact.friction", "contact.slip_speed")
"""Quantities of the model: k [N/m^1.5], c [s/m], mu, v0 [m/s]."""

DEFAULTS = {"contact.stiffness": 1e5, "contact.damping": 1.0, "contact.friction": 0.8, "contact.slip_speed": 0.05}


def normal_force(quantity: Quantity, touch: PointContact) -> Any:
    """Return the size of the normal force [N]."""
    name = touch.constants
    depth = maximum(touch.depth, 0.0)
    rate = -dot(touch.normal, touch.velocity)
    spring = quantity(f"{name}.stiffness") * depth * safe_sqrt(depth)
    return maximum(spring * (1.0 + quantity(f"{name}.damping") * rate), 0.0)


def friction_force(quantity: Quantity, touch: PointContact, normal: Any) -> Vector:
    """Return the friction force on the point, world axes [N]."""
    slip = touch.velocity - dot(touch.normal, touch.velocity) * array(touch.normal)
    speed = safe_sqrt(dot(slip, slip))
    name = touch.constants
    size = quantity(f"{name}.friction") * normal * tanh(4.0 * speed / quantity(f"{name}.slip_speed"))
    return -1.0 * size / speed * slip


class ForceContactModel(ContactModel):
    """Contact as a force; networks may act on the normal force and the friction of each point."""

    defaults = DEFAULTS

    def forces(self, contacts: Contacts) -> Wrenches:
        """Return the wrenches on the links."""
        scope, forces = contacts.scope, []
        for touch in contacts.touched:
            normal = scope.define(f"contact.{touch.name}.normal", normal_force(scope, touch))
            friction = [
                scope.define(f"contact.{touch.name}.friction.{axis}", value)
                for axis, value in zip("xyz", friction_force(scope, touch, normal), strict=True)
            ]
            forces.append(array([normal * n + f for n, f in zip(touch.normal, friction, strict=True)]))
        return wrenches(contacts.poses, contacts.touched, forces)


FORCE = ForceContactModel()

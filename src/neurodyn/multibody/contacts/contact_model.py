# SPDX-License-Identifier: Apache-2.0
"""The interface of contact models, and contact as a force: Hunt-Crossley spring-damper with smooth friction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from msgspec import UNSET

from neurodyn.core.description.contacts import ContactPoint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.errors import InputError
from neurodyn.multibody.articulated import Quantity, Wrenches
from neurodyn.multibody.contacts.body_contacts import body_touches, contact_quantities
from neurodyn.multibody.drives.actuators import ImplicitRow
from neurodyn.multibody.points import Kinematics, PointContact, touches, wrenches
from neurodyn.multibody.scope import Scope
from neurodyn.multibody.tendons.lengths import TendonMotion
from neurodyn.multibody.trace import Scalar, maximum, safe_sqrt, tanh
from neurodyn.multibody.vectors import Vector, array, dot

POINTS_SIZE = "points.size"
"""Quantity: scale of the positions and radii of the contact points."""


@dataclass
class ContactPush:
    """The force of one contact on a link of the robot, in world axes."""

    link: int
    arm: Vector  # point of application relative to the origin of the link's frame [m]
    force: Vector


@dataclass
class Contacts(Kinematics):
    """The part of a traced step that contact models use.

    Attributes:
        tree: The mechanism.
        motions: Motions of its links at the start of the step.
        scope: Quantities by name, with the networks' effects.
        points: Contact points.
        grounds: A point on the ground and its normal for each contact point.
        q: Positions.
        qd: Velocities.
        dt: Length of the step [s].
        flat: Whether one plane is the ground of all points.
        prism_contacts: Those of shapes with a heightfield (`geometry.prisms`), instead of points; empty on other
            grounds.
        pushes: List that receives the forces of all contacts from `ContactModel.accelerations`; None if unused.
        tendons: Tendons by name.
        implicit: Damping along rows of a Jacobian that is implicit in the step; the model handles that of joints
            itself.
        adhesion: Adhesion force of a link at its contacts, by name of the link.
        dry: Dry friction of drives by velocity coordinate, beside that of joints.
    """

    scope: Scope
    points: Sequence[ContactPoint]
    grounds: list[tuple[Vector, Vector]]
    q: list[Scalar]
    qd: list[Scalar]
    dt: float
    flat: bool = True
    prism_contacts: Sequence[Scalar] = ()
    pushes: list[ContactPush] | None = None
    tendons: Mapping[str, TendonMotion] = field(default_factory=dict)
    implicit: Sequence[ImplicitRow] = ()
    adhesion: Mapping[str, Any] = field(default_factory=dict)
    dry: Mapping[int, Any] = field(default_factory=dict)

    @cached_property
    def touched(self) -> list[PointContact]:
        """Contacts of points with the ground, and of bodies with each other."""
        _ = self.poses  # before networks that act on the size, to keep the order of the program's code
        touched = touches(self, self.points, self.grounds, self.scope(POINTS_SIZE)) if self.points else []
        for touch in touched:
            touch.depth = self.scope.define(f"contact.{touch.name}.depth", touch.depth)
        return touched + body_touches(self, self.scope)


class ContactModel:
    """A contact model; subclasses override `forces` or `accelerations`.

    A model that overrides `accelerations` appends the forces to `Contacts.pushes`, for sensors.

    Attributes:
        defaults: Nominal values of its quantities by name ("contact.friction" ...).
        constrains_joints: Whether joint limits and friction are constraints of the model instead of passive torques.
        impulsive: Whether its accelerations are impulses over the step, no function of the state.
    """

    defaults: ClassVar[Mapping[str, float]] = {}
    constrains_joints: ClassVar[bool] = False
    impulsive: ClassVar[bool] = False

    @property
    def solves(self) -> bool:
        """Whether the model overrides `accelerations`, for which it needs the mass matrix."""
        return type(self).accelerations is not ContactModel.accelerations

    def nominal(self, mechanism: Mechanism) -> Mapping[str, float]:
        """Return the nominal values of the model's quantities for a mechanism."""
        own = {POINTS_SIZE: 1.0, **self.defaults} if mechanism.points else {}
        return own | contact_quantities(mechanism.body_contacts, self.defaults)

    def forces(self, contacts: Contacts) -> Wrenches:
        """Return the wrenches on links from contact forces that depend on the state alone."""
        return {}

    def accelerations(self, contacts: Contacts, free: list[Any]) -> list[Any]:
        """Return the accelerations with contact from those without it."""
        return free


DEFAULTS = {"contact.stiffness": 1e5, "contact.damping": 1.0, "contact.friction": 0.8, "contact.slip_speed": 0.05}
"""Nominal values of the force model's quantities: k [N/m^1.5], c [s/m], mu, v0 [m/s]."""


def normal_force(quantity: Quantity, touch: PointContact) -> Any:
    """Return the magnitude of the normal force [N]."""
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
    """Contact as a force; networks may act on the normal force and friction of each point."""

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


FORCE_MODEL = ForceContactModel()


def require_contacts(mechanism: Mechanism, contact: ContactModel | None, robot: str) -> None:
    """Raise an InputError for contacts that a model does not have, or without anything that touches."""
    if contact is None:
        return
    if contact.constrains_joints and mechanism.body_contacts:
        names = ", ".join(pair.name for pair in mechanism.body_contacts)
        raise InputError(
            f"robot {robot!r}: soft contacts are those with the ground, and {names} is one of two bodies; valid: "
            "contact: force or impulse"
        )
    if not (mechanism.points or mechanism.body_contacts or contact.constrains_joints):
        raise InputError(
            f"robot {robot!r}: has no points that could touch a ground; declare `contact_points`, or `body_contacts`"
        )


def require_constraining(mechanism: Mechanism, contact: str | None, model: ContactModel | None, robot: str) -> None:
    """Raise InputError for equalities and tendons that the contact model does not constrain."""
    if model is not None and model.constrains_joints:
        return
    names = [f"equality {one.name!r}" for one in mechanism.equalities or ()]
    for tendon in mechanism.tendons or ():
        parts = {"limits": tendon.limited, "friction": tendon.friction, "armature": tendon.armature}
        names += [f"{what} of tendon {tendon.name!r}" for what, there in parts.items() if there]
    names += [f"adhesion of {name!r}" for name, drive in mechanism.drives.items() if drive.adhesion is not UNSET]
    if names:
        raise InputError(
            f"robot {robot!r}: {', '.join(names)} are soft constraints, which contact: {contact or 'none'} does not "
            "solve; valid: contact: soft"
        )

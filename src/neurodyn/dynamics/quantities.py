# SPDX-License-Identifier: Apache-2.0
"""Named quantities of a state, in which tasks are written, independent of the kind of dynamics.

A task asks for "base_height" or "joint_velocity" and never for the third coordinate of a state. It therefore runs both
in a simulator, whose state is generalised coordinates, and in a model of logs, whose state is the measurements.
Quantities are computed on demand; missing ones are refused by name.

    joint_position [w, nj], joint_velocity [w, nj]     all joints that are not free, in order
    base_position [w, 3]                               origin of the base link [m], world
    base_height [w, 1]                                 its z [m]
    base_orientation [w, 4]                            base to world, scalar last
    base_rotation [w, 3, 3]                            its matrix
    base_linear_velocity [w, 3]                        of the *origin* of the base link [m/s], base axes
    base_angular_velocity [w, 3]                       [rad/s], base axes
    projected_gravity [w, 3]                           direction of gravity (unit), base axes
    joint_torque [w, nu]                               during the last frame [N m or N]
    end_effector_position, end_effector_velocity       of robots that declare one [m], [m/s], world; [w, 3] each
    contact [w, nc]                                    probability that each body of `contact_names` touches something
    OBJECT.position [w, 3], OBJECT.orientation [w, 4]  of each free joint but a base: origin [m], body to world
    OBJECT.linear_velocity, OBJECT.angular_velocity    of its centre of mass [m/s], [rad/s], world axes; [w, 3] each
    contact_height [w, nc]                             of the lowest point of these bodies above the ground [m]
    contact_speed [w, nc]                              horizontal speed of these bodies [m/s], of their points' mean

A free joint's linear velocity is that of the centre of mass c of the base, so the origin's is v - w x (R c).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.batch import State, Step
from neurodyn.geometry import base_frame, rotation
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.tensors import columns
from neurodyn.robots.declaration import Robot
from neurodyn.robots.sections import EndEffector, matching

if TYPE_CHECKING:
    from neurodyn.geometry.proximity import ProximityQuery, Readings

_DIRECTION = "projected_gravity"
_ROTATION = "base_rotation"
_TORQUE = "joint_torque"
_Derived = TypeVar("_Derived")

Maker = Callable[["Quantities"], Tensor]
"""Computes one quantity from the state of the given quantities; may read others."""

_NO_STATE = State.make_unchecked(q=torch.zeros(0, 0), qd=torch.zeros(0, 0), channels=None)


@dataclass(eq=False, repr=False)
class Quantities(Mapping[str, Tensor]):
    """Quantities of a batch of worlds by name, each computed once, on first access.

    Attributes:
        owner: Provider of the quantities, in words.
        makers: Functions that compute them.
        contact_names: Bodies in the columns of "contact".
        state: The state that makers read; empty if they read none.
        known: Given quantities, which take precedence over makers.
        judged: Quantities by which rewards and failures are computed; None for these.
    """

    owner: str
    makers: Mapping[str, Maker]
    contact_names: tuple[str, ...] = ()
    state: State = _NO_STATE
    known: Mapping[str, Tensor] = field(default_factory=dict)
    judged: "Quantities | None" = None
    _values: dict[str, Tensor] = field(default_factory=dict, init=False)
    _derived: dict[str, Any] = field(default_factory=dict, init=False)

    def __getitem__(self, name: str) -> Tensor:
        """Return a quantity, shape [worlds, ...]; an `InputError` names the known ones if it is unknown."""
        if name in self.known:
            return self.known[name]
        if name not in self._values:
            if name not in self.makers:
                self.require((name,))
            self._values[name] = self.makers[name](self)
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.makers or name in self.known

    def __iter__(self) -> Iterator[str]:
        return iter({**self.makers, **self.known})

    def __len__(self) -> int:
        return len({**self.makers, **self.known})

    def derive(self, name: str, make: Callable[["Quantities"], _Derived]) -> _Derived:
        """Return what `make` computes from these quantities, once for all callers with the same `name`."""
        if name not in self._derived:
            self._derived[name] = make(self)
        return self._derived[name]

    def replacing(self, makers: Mapping[str, Maker]) -> "Quantities":
        """Return the same quantities with some makers replaced."""
        known = {name: value for name, value in self.known.items() if name not in makers}
        return Quantities(self.owner, {**self.makers, **makers}, self.contact_names, self.state, known)

    @classmethod
    def concatenate(cls, parts: "Sequence[Quantities]") -> "Quantities":
        """Concatenate the worlds of several batches."""
        first = parts[0]
        return cls(first.owner, {name: partial(_join, name, parts) for name in first}, first.contact_names)

    @property
    def of_rewards(self) -> "Quantities":
        """Quantities by which rewards and failures are computed."""
        return self if self.judged is None else self.judged

    def require(self, names: Iterable[str]) -> None:
        """Raise an `InputError` if one of the names is not offered."""
        for name in names:
            if name not in self:
                raise InputError(f"{self.owner} does not offer {name!r}; it offers {choices(self)}")

    def contacts(self, names: Iterable[str]) -> Tensor:
        """Return the columns of "contact" for some bodies, shape [worlds, bodies]; an `InputError` for others."""
        which = []
        for name in names:
            if name not in self.contact_names:
                raise InputError(
                    f"{self.owner} does not offer the contact of {name!r}; it offers {choices(self.contact_names)}"
                )
            which.append(self.contact_names.index(name))
        return columns(self["contact"], tuple(which))


def _join(name: str, parts: Sequence[Quantities], _: Quantities) -> Tensor:
    return torch.cat([part[name] for part in parts])


class StateReader:
    """Reads the quantities of a robot from its states, with everything that is constant over frames prepared once.

    Attributes:
        measured: Quantities that kernels compute; all others are torch operations on the state.
    """

    def __init__(
        self,
        spec: StateSpec,
        *,
        owner: str,
        com: Tensor | None = None,
        down: Tensor | None = None,
        more: Mapping[str, Maker] | None = None,
        contact_names: tuple[str, ...] = (),
    ) -> None:
        """Prepare the quantities in generalised coordinates and channels.

        Args:
            spec: Names and order of the state.
            owner: Provider of the quantities, in words.
            com: Centre of mass of a floating base in the base frame [m], shape [3]; None for the origin.
            down: Direction of gravity (`gravity_direction`), world axes, shape [3] or [worlds, 3]; None for no gravity.
            more: Further quantities.
            contact_names: Bodies of the columns of "contact", if the spec names none.
        """
        self._owner, self._contact_names = owner, spec.contacts or contact_names
        makers = _joints(spec) | _objects(spec) | (_base(com, down) if spec.floating else {})
        self.measured = tuple(more or ())
        self._makers = {**makers, **(more or {})}
        self._makers_with_channels = {**makers, **_channels(spec), **(more or {})}

    def read(self, state: State, step: Step | None = None, torque: Tensor | None = None) -> Quantities:
        """Return the quantities of a state; arguments: see `Dynamics.quantities`."""
        makers = self._makers if state.channels is None else self._makers_with_channels
        known: dict[str, Tensor] = {}
        if torque is not None and _TORQUE not in makers:  # unless it is measured
            known[_TORQUE] = torque
        if step is not None and step.contacts is not None:
            known["contact"] = step.contacts
        return Quantities(self._owner, makers, self._contact_names, state, known)


def gravity_direction(gravity: Tensor) -> Tensor | None:
    """Return the direction of gravity (unit) in the given shape, [3] or [worlds, 3]; None without gravity.

    Worlds without gravity among others with it have the direction zero.
    """
    if not bool(gravity.any()):
        return None
    return torch.nn.functional.normalize(gravity, dim=-1)


def _joints(spec: StateSpec) -> dict[str, Maker]:
    q, qd = spec.joint_q, spec.joint_qd
    if not spec.objects:
        return {"joint_position": lambda of: of.state.q[:, q], "joint_velocity": lambda of: of.state.qd[:, qd]}
    held = [place for joint, place in zip(spec.joints, spec.places, strict=True) if joint.kind != "free"]
    rows = tuple(row for place in held for row in range(place.q.start, place.q.stop))
    dofs = tuple(dof for place in held for dof in range(place.qd.start, place.qd.stop))
    return {
        "joint_position": lambda of: columns(of.state.q, rows), "joint_velocity": lambda of: columns(of.state.qd, dofs)
    }  # fmt: skip


def _objects(spec: StateSpec) -> dict[str, Maker]:
    """Return the quantities of free bodies other than the robot."""
    made: dict[str, Maker] = {}
    for name, place in spec.objects.items():
        start = place.q.start
        made |= {
            f"{name}.position": lambda of, rows=slice(start, start + 3): of.state.q[:, rows],
            f"{name}.orientation": lambda of, rows=place.quaternion: of.state.q[:, rows],
            f"{name}.linear_velocity": lambda of, dofs=place.linear: of.state.qd[:, dofs],
            f"{name}.angular_velocity": lambda of, dofs=place.angular: of.state.qd[:, dofs],
        }
    return made


def _base(com: Tensor | None, down: Tensor | None) -> dict[str, Maker]:
    def seen(of: Quantities) -> base_frame.BaseView:
        return base_frame.view(of.state.q, of.state.qd, down, unit=True, com=com)

    makers: dict[str, Maker] = {
        "base_position": lambda of: of.state.q[:, :3],
        "base_height": lambda of: of.state.q[:, 2:3],
        "base_orientation": lambda of: of.derive("base", seen).orientation,
        "base_linear_velocity": lambda of: of.derive("base", seen).linear,
        "base_angular_velocity": lambda of: of.derive("base", seen).angular,
    }
    if down is not None:
        makers[_DIRECTION] = lambda of: cast(Tensor, of.derive("base", seen).down)
    makers[_ROTATION] = lambda of: of.derive("base", seen).rotation
    return makers


def base_rotation(quantities: Quantities) -> Tensor:
    """Return the rotation matrix of "base_orientation", base to world, shape [worlds, 3, 3]."""
    if _ROTATION in quantities:
        return quantities[_ROTATION]
    return quantities.derive(_ROTATION, lambda of: rotation.matrix(of["base_orientation"]))


def _channels(spec: StateSpec) -> dict[str, Maker]:
    where: dict[str, list[int]] = {}
    for index, channel in enumerate(spec.channels):
        where.setdefault(channel.quantity, []).append(index)
    makers = {name: _columns(tuple(indices)) for name, indices in where.items()}
    # Measured or predicted vectors are only roughly of unit length; those of a model far from its data, not even that.
    return makers | {name: _unit(makers[name]) for name in (_DIRECTION, "base_orientation") if name in makers}


def _unit(raw: Maker) -> Maker:
    return lambda quantities: torch.nn.functional.normalize(raw(quantities), dim=-1)


def _columns(which: tuple[int, ...]) -> Maker:
    return lambda of: columns(cast(Tensor, of.state.channels), which)


def declared_end_effector(robot: Robot | None, chain: Callable[[], Sequence[ChainJoint]] = tuple) -> dict[str, Maker]:
    """Return makers of the end effector's position [m] and velocity [m/s], world; none without an end effector.

    The chain of joints is that of the declaration, or else `chain`; empty if it is unknown.
    """
    end = None if robot is None else robot.end_effector
    joints = () if end is None else end.joints or tuple(chain())
    if end is None or not joints:
        return {}
    query = cache(partial(_end_effector, msgspec.structs.replace(end, joints=joints)))  # built at the first use

    def seen(of: Quantities) -> "Readings":
        return of.derive("end_effector", lambda given: query()(None, given.state.q, given.state.qd))

    return {
        "end_effector_position": lambda of: seen(of).position[:, 0],
        "end_effector_velocity": lambda of: seen(of).velocity[:, 0],
    }


def declared_contacts(
    robot: Robot | None, layout: ContactPointLayout | None, ground: Ground | None
) -> dict[str, Maker]:
    """Return a maker of the contact state: a declared contact touches if one of its contact points is in the ground."""
    if robot is None or layout is None or not robot.contacts:
        return {}
    patterns = tuple(robot.contacts.values())
    query, members = cache(partial(_proximity, layout)), cache(partial(_members, layout, patterns))
    own = cache(partial(_of_contacts, layout, patterns))
    own_query = cache(lambda: _proximity(own()))
    own_members = cache(lambda device: _members(own(), patterns, device))

    def touching(of: Quantities) -> Tensor:
        """Return 1 for bodies that touch the ground and 0 for others, shape [worlds, contacts]."""
        q, qd = of.state.q.detach(), of.state.qd.detach()
        readings = query()(ground, q, qd)
        radius, member = members(q.device)
        inside = (readings.distance < radius) & readings.valid
        return (inside.to(q) @ member.to(q)).clamp_max(1.0)

    def measure(of: Quantities) -> "Readings":
        return own_query()(ground, of.state.q, of.state.qd)

    def height(of: Quantities) -> Tensor:
        """Return the height of the lowest point of each body above the ground [m], shape [worlds, contacts]."""
        distance = of.derive("contact_readings", measure).distance
        radius, member = own_members(distance.device)
        apart = (distance - radius.to(distance))[:, :, None].masked_fill(member[None] == 0, math.inf)
        return apart.amin(1)

    def speed(of: Quantities) -> Tensor:
        """Return the horizontal speed of the mean of each body's points [m/s], shape [worlds, contacts]."""
        velocity = of.derive("contact_readings", measure).velocity[..., :2]
        _, member = own_members(velocity.device)
        share = (member / member.sum(0)).to(velocity)
        mean = (velocity.transpose(1, 2) @ share).square().sum(1)
        return (mean + STILL).sqrt() - math.sqrt(STILL)

    return {"contact": touching, "contact_height": height, "contact_speed": speed}


STILL = 1e-8
"""Added to a squared speed, whose root has no gradient at zero [m^2/s^2]."""


def contact_bodies(robot: Robot, layout: ContactPointLayout) -> list[list[ContactPoint]]:
    """Return the contact points of each declared contact."""
    return [
        [point for point in layout.contact_points if matching(point.name.rpartition("/")[0], patterns)]
        for patterns in robot.contacts.values()
    ]


def _of_contacts(layout: ContactPointLayout, contacts: tuple[tuple[str, ...], ...]) -> ContactPointLayout:
    """Return a layout with the contact points of declared contacts alone."""
    every = tuple(pattern for patterns in contacts for pattern in patterns)
    points = tuple(point for point in layout.contact_points if matching(point.name.rpartition("/")[0], every))
    return msgspec.structs.replace(layout, contact_points=points)


@lru_cache(maxsize=16)
def _end_effector(end: EndEffector) -> "ProximityQuery":
    index = [joint.name for joint in end.joints].index(end.joint)
    contact_point = ContactPoint(name="end_effector", joint=index, point=end.point, radius=0.0)
    return _proximity(ContactPointLayout(joints=end.joints, contact_points=(contact_point,)))


@lru_cache(maxsize=16)
def _proximity(layout: ContactPointLayout) -> "ProximityQuery":
    from neurodyn.geometry.proximity import ProximityQuery  # imports Warp, which robots without contacts do not need

    return ProximityQuery(layout)


@lru_cache(maxsize=16)
def _members(
    layout: ContactPointLayout, contacts: tuple[tuple[str, ...], ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the radius [m] of each contact point, and its membership, shape [contact points, contacts]."""
    shapes = [contact_point.name.rpartition("/")[0] for contact_point in layout.contact_points]
    with torch.inference_mode(False):
        radius = torch.tensor([contact_point.radius for contact_point in layout.contact_points], device=device)
        members = torch.tensor(
            [[float(matching(shape, patterns)) for patterns in contacts] for shape in shapes], device=device
        )
    return radius, members

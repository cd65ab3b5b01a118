# SPDX-License-Identifier: Apache-2.0
"""Named quantities of a state: what tasks are written in, whichever kind of dynamics offers them.

A task asks for "base_height" or "joint_velocity" and never for the third coordinate of a state, so it runs in a
simulator, whose state is generalised coordinates, and in a model of logs, whose state is what was measured. What
nobody asks for is not computed; what is not there is refused by name.

    joint_position [w, nj], joint_velocity [w, nj]     all joints but a free base, in order
    base_position [w, 3]                               origin of the base link [m], world
    base_height [w, 1]                                 its z [m]
    base_orientation [w, 4]                            base to world, scalar last
    base_rotation [w, 3, 3]                            its matrix
    base_linear_velocity [w, 3]                        of the *origin* of the base link [m/s], axes of the base
    base_angular_velocity [w, 3]                       [rad/s], axes of the base
    projected_gravity [w, 3]                           direction of gravity (unit), axes of the base
    joint_torque [w, nu]                               that acted during the frame that ended [N m or N]
    end_effector_position [w, 3]                       of robots that declare an end effector [m], world
    contact [w, nc]                                    probability that each body of `contact_names` touches something

A free joint's linear velocity is that of the centre of mass c of the base, so the origin's is v - w x (R c).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.batch import State, Step
from neurodyn.geometry import base_frame, rotation
from neurodyn.geometry.tensors import columns

_DIRECTION = "projected_gravity"
_ROTATION = "base_rotation"
_Derived = TypeVar("_Derived")

Maker = Callable[["Quantities"], Tensor]
"""Computes one quantity; may ask for others."""


class Quantities(Mapping[str, Tensor]):
    """Quantities of a batch of worlds by name, each computed once, when it is first asked for.

    Attributes:
        owner: What offers them, in words.
        contact_names: Bodies of the columns of "contact".
    """

    def __init__(self, owner: str, makers: Mapping[str, Maker], contact_names: tuple[str, ...] = ()) -> None:
        self.owner, self.contact_names = owner, contact_names
        self._makers = makers
        self._values: dict[str, Tensor] = {}
        self._derived: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Tensor:
        """Return a quantity, shape [worlds, ...].

        Raises:
            InputError: There is no such quantity; the message names those that there are.
        """
        if name not in self._values:
            self.require((name,))
            self._values[name] = self._makers[name](self)
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def derive(self, name: str, make: Callable[[], _Derived]) -> _Derived:
        """Return what somebody computes of quantities, made by `make` where nobody has asked for it under `name`."""
        if name not in self._derived:
            self._derived[name] = make()
        return self._derived[name]

    def replacing(self, makers: Mapping[str, Maker]) -> "Quantities":
        """Return the same quantities but for some, which are made in another way."""
        return Quantities(self.owner, {**self._makers, **makers}, self.contact_names)

    @classmethod
    def joined(cls, parts: "Sequence[Quantities]") -> "Quantities":
        """Return the worlds of several batches one after another, as `State.joined`."""
        first = parts[0]
        return cls(first.owner, {name: partial(_joined, name, parts) for name in first}, first.contact_names)

    def require(self, names: Iterable[str]) -> None:
        """Refuse names of which one is not offered.

        Raises:
            InputError: One is not.
        """
        for name in names:
            if name not in self._makers:
                raise InputError(f"{self.owner} does not offer {name!r}; it offers {choices(self._makers)}")

    def contacts(self, names: Iterable[str]) -> Tensor:
        """Return the columns of "contact" of some bodies, shape [worlds, bodies].

        Raises:
            InputError: It is not known of one of them whether it touches anything.
        """
        which = []
        for name in names:
            if name not in self.contact_names:
                raise InputError(
                    f"{self.owner} does not offer the contact of {name!r}; it offers {choices(self.contact_names)}"
                )
            which.append(self.contact_names.index(name))
        return columns(self["contact"], tuple(which))


def _joined(name: str, parts: Sequence[Quantities], _: Quantities) -> Tensor:
    return torch.cat([part[name] for part in parts])


def state_quantities(
    spec: StateSpec,
    state: State,
    *,
    owner: str,
    step: Step | None = None,
    torque: Tensor | None = None,
    com: Tensor | None = None,
    down: Tensor | None = None,
    more: Mapping[str, Maker] | None = None,
    contact_names: tuple[str, ...] = (),
) -> Quantities:
    """Return what generalised coordinates and channels say.

    Args:
        spec: Names and order of the state.
        state: The state.
        owner: What offers the quantities, in words.
        step: The prediction that ended in this state, for contacts.
        torque: Torques that acted during the frame that ended [N m or N], shape [worlds, nu]; None where unknown.
        com: Centre of mass of a floating base in its own frame [m], shape [3]; None for its origin.
        down: Direction of gravity (`gravity_direction`), world axes, shape [3] or [worlds, 3]; None for no gravity.
        more: Further quantities.
        contact_names: Bodies of the columns of "contact", where the spec names none.
    """
    makers: dict[str, Maker] = {}
    makers["joint_position"] = lambda _: state.q[:, spec.joint_q]
    makers["joint_velocity"] = lambda _: state.qd[:, spec.joint_qd]
    if spec.floating:
        makers |= _base(state, com, down)
    if torque is not None:
        makers["joint_torque"] = lambda _: torque
    makers |= _channels(spec, state.channels)
    makers |= more or {}
    if step is not None and step.contacts is not None:
        touching = step.contacts
        makers["contact"] = lambda _: touching
    return Quantities(owner, makers, spec.contacts or contact_names)


def gravity_direction(gravity: Tensor) -> Tensor | None:
    """Return the direction of gravity (unit), shape as given, [3] or [worlds, 3]; None where there is no gravity."""
    if not bool(gravity.any()):
        return None
    return gravity / torch.linalg.vector_norm(gravity, dim=-1, keepdim=True)


def _base(state: State, com: Tensor | None, down: Tensor | None) -> dict[str, Maker]:
    """Return the quantities of a floating base."""

    def seen(quantities: Quantities) -> base_frame.BaseView:
        return quantities.derive("base", lambda: base_frame.view(state.q, state.qd, down, unit=True))

    def linear(quantities: Quantities) -> Tensor:
        velocity = seen(quantities).linear
        if com is None:
            return velocity
        spin = quantities["base_angular_velocity"]
        return velocity - torch.linalg.cross(spin, com.to(spin).expand_as(spin))

    makers: dict[str, Maker] = {
        "base_position": lambda _: state.q[:, :3],
        "base_height": lambda _: state.q[:, 2:3],
        "base_orientation": lambda quantities: seen(quantities).orientation,
        "base_linear_velocity": linear,
        "base_angular_velocity": lambda quantities: seen(quantities).angular,
    }
    if down is not None:
        makers[_DIRECTION] = lambda quantities: cast(Tensor, seen(quantities).down)
    makers[_ROTATION] = lambda quantities: seen(quantities).rotation
    return makers


def base_rotation(quantities: Quantities) -> Tensor:
    """Return the rotation matrix of "base_orientation", base to world, shape [worlds, 3, 3]."""
    if _ROTATION in quantities:
        return quantities[_ROTATION]
    return quantities.derive(_ROTATION, lambda: rotation.matrix(quantities["base_orientation"]))


def _channels(spec: StateSpec, channels: Tensor | None) -> dict[str, Maker]:
    """Return each quantity of which channels are the components."""
    where: dict[str, list[int]] = {}
    for index, channel in enumerate(spec.channels):
        where.setdefault(channel.quantity, []).append(index)
    if channels is None:
        return {}
    makers = {name: _columns(channels, tuple(indices)) for name, indices in where.items()}
    # What is measured or predicted has not quite length one; a model far from its data, not at all.
    return makers | {name: _unit(makers[name]) for name in (_DIRECTION, "base_orientation") if name in makers}


def _unit(raw: Maker) -> Maker:
    return lambda quantities: torch.nn.functional.normalize(raw(quantities), dim=-1)


def _columns(measured: Tensor, which: tuple[int, ...]) -> Maker:
    return lambda _: columns(measured, which)

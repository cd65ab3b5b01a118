# SPDX-License-Identifier: Apache-2.0
"""Pushing a floating base: a sudden change of its velocity, in a simulator's state or in what a robot measures."""

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.interface import State
from neurodyn.geometry import rotation
from neurodyn.geometry.constants import index

_CHANNEL = "base_linear_velocity"


def pushed(spec: StateSpec, state: State, change: Float[Tensor, "worlds 3"]) -> State:
    """Return states whose base moves on with another velocity.

    Args:
        spec: Names and order of the state.
        state: The state.
        change: Change of the base's linear velocity [m/s], axes of the base, shape [worlds, 3].

    Raises:
        InputError: The state has neither a floating base nor a channel with its velocity.
    """
    if spec.floating:
        turned = rotation.rotate(rotation.normalise(state.q[:, 3:7]), change)
        return State(state.q, torch.cat([state.qd[:, :3] + turned, state.qd[:, 3:]], dim=-1), state.channels)
    columns = [number for number, channel in enumerate(spec.channels) if channel.quantity == _CHANNEL]
    if len(columns) != 3 or state.channels is None:
        raise InputError(f"{spec.robot!r} cannot be pushed: its state has neither a free base nor {_CHANNEL!r}")
    if columns == list(range(columns[0], columns[0] + 3)):  # neighbours, as any log has them
        channels = state.channels.clone()
        channels[:, columns[0] : columns[0] + 3].add_(change)
    else:
        channels = state.channels.index_add(1, index(tuple(columns), change), change)
    return State(state.q, state.qd, channels)

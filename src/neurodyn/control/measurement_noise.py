# SPDX-License-Identifier: Apache-2.0
"""What a robot measures of its state: the state, with noise."""

import math

import torch
from torch import Tensor

from neurodyn.core.config import Config
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import require
from neurodyn.dynamics.batch import State
from neurodyn.geometry import rotation


class MeasurementNoise(Config, frozen=True):
    """Standard deviations of what is measured.

    Attributes:
        position: Of positions and rotations [rad or m].
        velocity: Of velocities [rad/s or m/s].
    """

    position: float = 0.0
    velocity: float = 0.0

    def __post_init__(self) -> None:
        for name in ("position", "velocity"):
            require(0 <= getattr(self, name) < math.inf, f"noise of the {name}", getattr(self, name), "at least 0")


def measured(spec: StateSpec, state: State, noise: MeasurementNoise, generator: torch.Generator) -> State:
    """Return states as they are measured; quaternions are turned by a random vector, in world axes.

    Args:
        spec: Spec of the states.
        state: The states.
        noise: How far off measurements are.
        generator: Draws the noise.
    """
    if not noise.position and not noise.velocity:
        return state
    q = state.q.clone()

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=q.dtype, device=q.device)

    for joint, place in zip(spec.joints, spec.places, strict=True):
        if joint.scalar:
            q[:, place.q] += noise.position * drawn(len(q), place.q.stop - place.q.start)
            continue
        turn = slice(place.q.stop - 4, place.q.stop)
        q[:, turn] = rotation.multiply(rotation.exponential(noise.position * drawn(len(q), 3)), q[:, turn])
        shift = slice(place.q.start, place.q.stop - 4)
        q[:, shift] += noise.position * drawn(len(q), shift.stop - shift.start)
    qd = state.qd + noise.velocity * drawn(*state.qd.shape)
    return State.unchecked(q=q, qd=qd, channels=state.channels)

# SPDX-License-Identifier: Apache-2.0
r"""Shapes of motions that begin and end at rest: sums of sines in a window, and moves between random positions.

Moves follow a step of the fifth degree, $s^3 (10 - 15 s + 6 s^2)$, with zero velocity and acceleration at both ends, so
that motions are twice differentiable.
"""

import math

import numpy as np
import torch
from torch import Tensor

_SINES, _SLOW, _FAST, _SLOWEST_BAND = 4, 0.1, 3.0, 0.3
_RAMP, _HOLD = 1.0, 0.5
"""Rise of the window, and rest before and after [s]."""
_LEAST_REACH, _PAUSES = 0.1, (0.0, 0.0, 0.2, 0.5)
"""Smallest share of the range that moves use, and pauses between them [s]."""
_SHORTEST = 0.25
"""Shortest move [s]."""
_PEAK_SPEED, _PEAK_ACCELERATION = 1.875, 5.7735
"""Largest speed and acceleration of a move over 1 in 1 s."""


def rise(t: Tensor) -> Tensor:
    """Return a step from 0 at t = 0 to 1 at t = 1 with zero first and second derivatives at both ends."""
    s = t.clamp(0.0, 1.0)
    return s**3 * (10.0 - 15.0 * s + 6.0 * s * s)


def sines(rng: np.random.Generator, frames: int, dt: float, *, drifts: bool) -> Tensor:
    """Return a random sum of sines in a window, shape [frames].

    Without `drifts` it has neither mean nor trend: as a force, it leaves neither speed nor travel behind.
    """
    t = torch.arange(frames, dtype=torch.float64) * dt
    hold = _hold(frames, dt)
    ramp = max(1, min(round(_RAMP / dt), frames // 4))
    inside = torch.arange(frames, dtype=torch.float64) - hold
    window = rise(inside / ramp) * rise((frames - 2 * hold - 1 - inside) / ramp)
    fastest = rng.uniform(math.log(_SLOWEST_BAND), math.log(_FAST))  # slow sines are large ones
    rates = np.exp(rng.uniform(math.log(_SLOW), fastest, _SINES))
    phases, shares = rng.uniform(0, 2 * math.pi, _SINES), rng.dirichlet(np.ones(_SINES))
    wave = sum(s * torch.sin(2 * math.pi * f * t + p) for s, f, p in zip(shares, rates, phases, strict=True))
    inner = torch.as_tensor(wave) + 0.5 * rng.uniform(-1.0, 1.0)
    if drifts:
        return window * inner
    basis = torch.linalg.qr(torch.stack([window**0.5, window**0.5 * t], -1))[0]
    inner = window**0.5 * inner
    return window**0.5 * (inner - basis @ (basis.T @ inner))


def moves(
    rng: np.random.Generator, frames: int, dt: float, span: tuple[float, float], speed: float, acceleration: float
) -> Tensor:
    """Return moves between random positions in a `span` about 0, each as fast as the limits allow, shape [frames].

    They begin and end at 0, and use a random share of the span: small moves reach the largest acceleration, large ones
    the largest speed.
    """
    reach = math.exp(rng.uniform(math.log(_LEAST_REACH), 0.0))
    below, above = min(reach * span[0], 0.0), max(reach * span[1], 0.0)
    moved, now, frame, last = (
        torch.zeros(frames, dtype=torch.float64),
        0.0,
        _hold(frames, dt),
        frames - _hold(frames, dt),
    )

    def length(far: float) -> int:
        seconds = max(_PEAK_SPEED * far / max(speed, 1e-9), (_PEAK_ACCELERATION * far / max(acceleration, 1e-9)) ** 0.5)
        return max(2, math.ceil(max(seconds, _SHORTEST) / dt))

    while frame < last - 1:
        then = rng.uniform(below, above)
        spare = last - frame - length(abs(then - now)) - length(abs(then))
        if spare < 0:  # back to rest in time
            then = 0.0
        frames_of = length(abs(then - now))
        moved[frame:] = now + (then - now) * rise((torch.arange(frames - frame) + 1.0) / frames_of)
        if spare < 0:
            break
        now, frame = then, frame + frames_of + min(spare, int(rng.choice(_PAUSES) / dt))
    return moved


def _hold(frames: int, dt: float) -> int:
    """Return the frames of rest at either end."""
    return max(1, min(round(_HOLD / dt), frames // 10))

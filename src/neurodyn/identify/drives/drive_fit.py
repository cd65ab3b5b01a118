# SPDX-License-Identifier: Apache-2.0
r"""The parametric drive that explains measured torques best: least squares over a grid of delays, lags and limits.

With the delayed command c (of targets: less the position now) and the lag filter F of first order,

$$\tau = \mathrm{clip}_L\left(F_T\left[g\,c - k_d \dot q\right]\right) - f_c \tanh(\dot q/v_0) - f_v \dot q - f_s
e^{-(\dot q/v_s)^2} \tanh(\dot q/v_0)$$

is linear in all numbers but delay, T and L.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from scipy.signal import lfilter
from torch import Tensor

from neurodyn.multibody.passive import FRICTION_SPEED

Columns = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Command, command (of targets: position error), velocity, measured torque, rows of its run before each; shape [N]."""

_DELAYS = 16
"""Delays that are tried, in quarters of a period."""

_LAGS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Lags that are tried, in periods."""

_LIMITS = (1.0, 0.999, 0.99, 0.97, 0.9)
"""Limits that are tried, as quantiles of the measured torques' sizes; 1 is none."""

_STRIBECK_SPEED = 0.1

_ROWS = 20_000
"""Rows, at most, that delay, lag and limit are chosen on."""


@dataclass(frozen=True)
class FittedDrive:
    """A parametric drive.

    Attributes:
        numbers: Its numbers by name.
        error: Root mean square of its torque error on other runs [N m or N].
    """

    numbers: dict[str, float]
    error: float


def fit_drive(train: Columns, test: Columns, *, period: float, target: bool) -> FittedDrive:
    """Fit a drive.

    Args:
        train: Rows that it is fitted to.
        test: Rows that its error is measured on.
        period: Time between rows [s].
        target: Whether commands are targets.
    """
    best: tuple[float, tuple[float, float, float], Tensor] | None = None
    rows = torch.nonzero(torch.isfinite(train[3]))[:, 0]
    rows = rows[:: max(1, len(rows) // _ROWS)]
    torque = train[3][rows].double()
    limits = [float("inf") if q == 1.0 else float(torch.quantile(torque.abs(), q)) for q in _LIMITS]
    for quarter in range(_DELAYS + 1):
        for lag in _LAGS:
            features = _features(train, quarter / 4, lag)[rows]
            for limit in limits:
                free = torque.abs() <= limit
                weights = torch.linalg.lstsq(features[free], torque[free][:, None]).solution[:, 0]
                error = _error(features, weights, limit, torque)
                if best is None or error < best[0]:
                    best = error, (quarter / 4, lag, limit), weights
    assert best is not None
    (delay, lag, limit), weights = best[1], best[2]
    gain, damping, coulomb, viscous, stribeck = weights.tolist()
    numbers = {
        "delay": delay * period, "lag": lag * period, ("kp" if target else "gain"): gain, "kd": -damping,
        "coulomb": -coulomb, "viscous": -viscous, "stribeck": -stribeck,
    }  # fmt: skip
    if limit < float("inf"):
        numbers["effort_limit"] = limit
    return FittedDrive(numbers, _error(_features(test, delay, lag), weights, limit, test[3]))


def _features(columns: Columns, delay: float, lag: float) -> Tensor:
    """Return what torque is linear in, shape [N, 5]: filtered command and velocity, and three frictions."""
    command, error, velocity, _, since = columns
    v, whole = velocity.double(), int(delay)
    share, index = delay - whole, torch.arange(len(command))
    now, before = (command.double()[index - torch.clamp(since, max=age)] for age in (whole, whole + 1))
    dry = torch.tanh(v / FRICTION_SPEED)
    late = error.double() + (1.0 - share) * now + share * before - command.double()
    drives = [_lagged(x, since, lag) for x in (late, v)]
    return torch.stack([*drives, dry, v, torch.exp(-(v / _STRIBECK_SPEED).square()) * dry], -1)


def _lagged(x: Tensor, since: Tensor, lag: float) -> Tensor:
    """Return a signal after a lag of first order, in periods; in every run it begins settled."""
    if not lag:
        return x
    keep = math.exp(-1.0 / lag)
    begins = [*torch.nonzero(since == 0)[:, 0].tolist(), len(x)]
    parts = [
        lfilter([1.0 - keep], [1.0, -keep], x[a:b].numpy(), zi=[keep * float(x[a])])[0] for a, b in pairwise(begins)
    ]
    return torch.from_numpy(np.concatenate(parts))


def _error(features: Tensor, weights: Tensor, limit: float, torque: Tensor) -> float:
    motor = (features[:, :2] @ weights[:2]).clamp(-limit, limit)
    error = motor + features[:, 2:] @ weights[2:] - torque.double()
    return float(error[torch.isfinite(error)].square().mean().sqrt())

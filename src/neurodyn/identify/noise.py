# SPDX-License-Identifier: Apache-2.0
r"""The noise of a log's sensors, from the log itself.

The fourth difference of a smooth motion is small, and that of white noise of standard deviation $\sigma$ has the
standard deviation $\sqrt{70}\,\sigma$ (1 + 16 + 36 + 16 + 1). Medians make the estimate blind to the few frames in
which much happens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.tangent import position_difference
from neurodyn.learn.hybrid.windows import FitWindows

LEAST = 1e-6
"""Least standard deviation that is believed; logs are kept in single precision."""

_MEDIAN = 0.6745
"""Median of |x| of a standard normal x."""


@dataclass(frozen=True)
class Noise:
    """Standard deviations of a log's noise, by degree of freedom.

    Attributes:
        q: Of the positions [rad or m], shape [nv].
        qd: Of the velocities [rad/s or m/s], shape [nv].
    """

    q: Tensor
    qd: Tensor

    @property
    def joined(self) -> Tensor:
        """Positions, then velocities, shape [2 nv]."""
        return torch.cat([self.q, self.qd])


def estimate_noise(spec: StateSpec, windows: FitWindows) -> Noise:
    """Return the noise of windows of at least four frames; at least 1e-6."""
    if windows.frames < 4:
        least = torch.full((spec.nv,), 1e-3, dtype=torch.float64)
        return Noise(least, least)
    steps = position_difference(spec, windows.q[:, 1:], windows.q[:, :-1])
    return Noise(_sized(steps.diff(n=3, dim=1)), _sized(windows.qd.diff(n=4, dim=1)))


def given_noise(spec: StateSpec, q: tuple[float, ...], qd: tuple[float, ...], windows: FitWindows) -> Noise:
    """Return the noise that is given, or estimated where it is not.

    Raises:
        InputError: There are not as many numbers as degrees of freedom.
    """
    estimated = estimate_noise(spec, windows)
    noise = []
    for name, numbers, other in (("noise_q", q, estimated.q), ("noise_qd", qd, estimated.qd)):
        if numbers and len(numbers) not in (1, spec.nv):
            raise InputError(f"{name}: {len(numbers)} numbers; valid: one, or {spec.nv}, by degree of freedom")
        noise.append(torch.tensor(numbers, dtype=torch.float64).expand(spec.nv).clone() if numbers else other)
    return Noise(*noise)


def _sized(differences: Tensor) -> Tensor:
    return (differences.abs().flatten(0, 1).median(0).values / (_MEDIAN * 70.0**0.5)).clamp_min(LEAST)

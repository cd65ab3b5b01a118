# SPDX-License-Identifier: Apache-2.0
"""Samples of the posterior of identified quantities: what a robot may be, given its logs.

Laplace's approximation: normal about the optimum, with the covariance of the fit.
"""

from typing import Protocol

import torch
from torch import Tensor

from neurodyn.identify.identifiability import Identifiability
from neurodyn.sim.draws import SAMPLES, posterior_generator


class QuantitySpace(Protocol):
    """Coordinates that stand for quantities, as `adaptation.coordinates.CoordinateSpace`."""

    lower: Tensor
    upper: Tensor
    quantities: tuple[str, ...]

    def values(self, x: Tensor) -> Tensor:
        """Return the values of the quantities, shape [..., quantities], from coordinates [..., n]."""
        ...


def posterior_sample(
    space: QuantitySpace, x: Tensor, analysis: Identifiability, count: int = SAMPLES, seed: int = 0
) -> dict[str, Tensor]:
    """Return samples of the quantities that coordinates stand for.

    Args:
        space: The coordinates, each in standard deviations of what is known beforehand.
        x: The optimum, shape [coordinates].
        analysis: Identifiability there.
        count: Number of samples.
        seed: Seed of the samples.

    Returns:
        Values by name of the quantity, shape [samples], float32. What the logs do not tell is as wide as what is known
        beforehand, and coordinates at a bound stay there.
    """
    deviations = torch.where(analysis.bound, 0.0, analysis.deviations.clamp(max=1.0))
    powers, axes = torch.linalg.eigh(0.5 * (analysis.correlation + analysis.correlation.mT))
    root = axes * powers.clamp_min(0.0).sqrt()
    noise = torch.randn(count, len(x), generator=posterior_generator(seed), dtype=x.dtype)
    rows = (x + deviations * (noise @ root.mT)).clamp(space.lower, space.upper)
    return {name: column.float() for name, column in zip(space.quantities, space.values(rows).unbind(-1), strict=True)}

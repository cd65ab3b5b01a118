# SPDX-License-Identifier: Apache-2.0
"""Samples of the posterior of identified quantities: what a robot may be, given its logs.

Laplace's approximation: normal about the optimum, with the covariance of the fit.
"""

import math
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import read_plain
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.identify.identifiability import CONFIDENCE, Identifiability

FILE = "posterior.safetensors"
"""Sample that an adaptation writes into its run, a tensor of shape [samples] for each quantity."""


SAMPLES = 1024
"""Samples of a posterior."""


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
    noise = torch.randn(count, len(x), generator=_generator(seed), dtype=x.dtype)
    rows = (x + deviations * (noise @ root.mT)).clamp(space.lower, space.upper)
    return {name: column.float() for name, column in zip(space.quantities, space.values(rows).unbind(-1), strict=True)}


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(seed, "posterior"))


def read_posterior(run: Path, count: int = SAMPLES, seed: int = 0) -> tuple[tuple[str, ...], Tensor]:
    """Return a sample of the quantities that a run found.

    An adaptation has a sample of the joint distribution (Laplace: normal in its coordinates about the optimum, cut off
    at bounds). Of an identification each quantity is normal with the width of its interval, independent of the others.

    Args:
        run: Folder of a run of `neurodyn adapt` or `neurodyn identify`.
        count: Number of samples of an identification.
        seed: Seed of these.

    Returns:
        Names of the quantities, and values, shape [samples, names], float32.

    Raises:
        InputError: The folder is none of such a run, or none of its quantities has an interval.
    """
    if (run / FILE).is_file():
        tensors = artifacts.read_tensors(run / FILE)
        return tuple(tensors), torch.stack([tensors[name].float() for name in tensors], 1)
    if not (run / "identification.json").is_file():
        raise InputError(
            f"{run}: holds no posterior ({FILE} or identification.json); valid: a run of `neurodyn adapt` or `neurodyn "
            "identify`, or NAME=LOWER:UPPER"
        )
    found = [one for one in read_plain(run / "identification.json")["parameters"] if one.get("interval")]
    if not found:
        raise InputError(
            f"{run}: none of its quantities has an interval, as its logs do not tell them; valid: another run"
        )
    reach = math.sqrt(2.0) * float(torch.erfinv(torch.tensor(CONFIDENCE, dtype=torch.float64)))
    noise = torch.randn(count, len(found), generator=_generator(seed), dtype=torch.float64)
    values = torch.tensor([one["value"] for one in found], dtype=torch.float64)
    low, high = torch.tensor([one["interval"] for one in found], dtype=torch.float64).unbind(1)
    rows = values + 0.5 * (high - low) / reach * noise
    # A bound cuts an interval off on one side; samples stay within twice the interval on either side.
    rows = torch.maximum(torch.minimum(rows, values + 2.0 * (high - values)), values - 2.0 * (values - low))
    return tuple(one["name"] for one in found), rows.float()

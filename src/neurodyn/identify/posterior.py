# SPDX-License-Identifier: Apache-2.0
"""Samples of the posterior of identified quantities: what a robot may be, given its logs."""

import math
from pathlib import Path

import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import read_plain
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.identify.identifiability import CONFIDENCE

FILE = "posterior.safetensors"
"""Sample that an adaptation writes into its run, a tensor of shape [samples] for each quantity."""


def read_posterior(run: Path, count: int, seed: int = 0) -> tuple[tuple[str, ...], Tensor]:
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
    noise = torch.randn(
        count, len(found), generator=torch.Generator().manual_seed(derive_seed(seed, "posterior")), dtype=torch.float64
    )
    values = torch.tensor([one["value"] for one in found], dtype=torch.float64)
    low, high = torch.tensor([one["interval"] for one in found], dtype=torch.float64).unbind(1)
    rows = values + 0.5 * (high - low) / reach * noise
    # A bound cuts an interval off on one side; samples stay within twice the interval on either side.
    rows = torch.maximum(torch.minimum(rows, values + 2.0 * (high - values)), values - 2.0 * (values - low))
    return tuple(one["name"] for one in found), rows.float()

# SPDX-License-Identifier: Apache-2.0
"""Calibration of predicted standard deviations: how often truth lies within them, and by what to multiply them.

They are calibrated if truth lies within one of them 68 % of the time, and within two 95 % of the time. What a
network predicts is so at best on the horizons that it was trained on; a factor for each coordinate and horizon, fitted
on held-out episodes after the training, mends the rest.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neurodyn.dynamics.uncertainty import MARKS

if TYPE_CHECKING:
    from neurodyn.dynamics.neural.model import NeuralDynamics
    from neurodyn.dynamics.world_model.model import WorldModel

WITHIN_TWO = 0.9545
"""Share of a normal distribution within two standard deviations."""

_LEAST, _MOST = 1e-2, 1e3


def coverage(error: Tensor, deviation: Tensor, sigmas: float) -> Tensor:
    """Return the share of errors within so many standard deviations, shape [T, size].

    Args:
        error: Errors of roll-outs, shape [worlds, T, size].
        deviation: Predicted standard deviations, likewise.
        sigmas: Half width of the band.
    """
    return (error.abs() <= sigmas * deviation).double().mean(0)


def fit_scales(error: Tensor, deviation: Tensor) -> Tensor:
    """Return factors with which the band of two standard deviations covers as much as a normal one, at `MARKS`.

    Args:
        error: Errors of held-out roll-outs, shape [worlds, T, size].
        deviation: Predicted standard deviations without any factor, likewise.

    Returns:
        Shape [marks, size]. Marks beyond T have the factor of the last one within.
    """
    frames, rows = error.shape[1], []
    for mark in MARKS:
        frame = min(mark, frames) - 1
        ratio = (error[:, frame].abs() / deviation[:, frame].clamp_min(1e-12)).double().nan_to_num(_MOST, _MOST)
        rows.append(torch.quantile(ratio, WITHIN_TWO, dim=0) / 2.0)
    return torch.stack(rows).clamp(_LEAST, _MOST).to(error.dtype)


@torch.no_grad()
def calibrate(model: "WorldModel | NeuralDynamics", error: Tensor, deviation: Tensor) -> None:
    """Store factors in a model; arguments as of `fit_scales`."""
    model.calibration_scales.copy_(fit_scales(error, deviation))

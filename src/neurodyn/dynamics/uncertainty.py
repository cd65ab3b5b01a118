# SPDX-License-Identifier: Apache-2.0
"""Spreads of predictions: bounds, disagreement, and calibration along a forecast."""

import torch
from torch import Tensor
from torch.nn import functional

MARKS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Frames into a forecast at which a spread is calibrated."""

_LOG_STD = (-8.0, 8.0)


def softly_bounded(log_std: Tensor, bounds: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Return what lies within bounds, and approaches them smoothly (Chua et al., arXiv 1805.12114).

    Args:
        log_std: Logarithms of standard deviations.
        bounds: Least and greatest, as they broadcast; None for -8 and 8.
    """
    least, most = _LOG_STD if bounds is None else bounds
    below = most - functional.softplus(most - log_std)
    return least + functional.softplus(below - least)


def deviation(values: Tensor) -> Tensor:
    """Return the standard deviation over the first axis; zero where it has length 1."""
    if len(values) == 1:
        return torch.zeros_like(values[0])
    # torch.std along a short first axis takes as long as the trunk of a network.
    return ((values - values.mean(0)).square().sum(0) / (len(values) - 1)).sqrt()


def between_marks(scales: Tensor, frames: int) -> Tensor:
    """Return factors for each frame of a forecast from those at `MARKS`: a power law in between, the last beyond.

    Args:
        scales: Factors at the marks, shape [marks, size].
        frames: Number of frames.

    Returns:
        Shape [frames, size].
    """
    marks = torch.tensor(MARKS, device=scales.device, dtype=scales.dtype).log()
    at = torch.arange(1, frames + 1, device=marks.device, dtype=marks.dtype).log().clamp_max(marks[-1])
    right = torch.searchsorted(marks, at).clamp(1, len(marks) - 1)
    share = ((at - marks[right - 1]) / (marks[right] - marks[right - 1]))[:, None]
    return torch.lerp(scales[right - 1].log(), scales[right].log(), share).exp()

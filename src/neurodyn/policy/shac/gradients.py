# SPDX-License-Identifier: Apache-2.0
"""Gradients that reach the policy, by how many frames of the window lie ahead: how far a return can be followed.

What reaches the policy are the gradients of each world's return by its actions. Those that are not finite, as where a
model broke down, are set to zero, and those far beyond the others may be scaled down.
"""

import math

import torch
from torch import Tensor

LARGE = 0.95
"""Quantile of the worlds that stands for large gradients."""


class GradientWatch:
    """Sees the gradients of one window's actions.

    Attributes:
        norms: Norm of the gradient of each world's return by its actions [1/action], frame by frame, shape
            [frames, worlds]; 0 where it was not finite. Complete after the backward pass.
        lost: Gradients that were not finite.
    """

    def __init__(self, frames: int, worlds: int, most: float | None = None) -> None:
        """Prepare for a window.

        Args:
            frames: Its frames.
            worlds: Its worlds.
            most: Norm above which a gradient is scaled down; None for none.
        """
        self.norms = torch.zeros(frames, worlds)
        self.lost = 0
        self._most, self._frame = most, 0
        self._scale = float(frames * worlds)  # the loss is the mean over frames and worlds

    def __call__(self, action: Tensor) -> Tensor:
        """Return the actions of the next frame, whose gradients will be seen."""
        frame, seen = self._frame, action.view_as(action)
        self._frame += 1
        if seen.requires_grad:
            seen.register_hook(lambda gradient: self._see(frame, gradient))
        return seen

    def _see(self, frame: int, gradient: Tensor) -> Tensor:
        norm = self._scale * gradient.norm(dim=-1)
        if not math.isfinite(float(norm.sum())):
            finite = gradient.isfinite().all(-1)
            self.lost += int((~finite).sum())
            gradient = torch.where(finite[:, None], gradient, 0.0)
            norm = self._scale * gradient.norm(dim=-1)
        self.norms[frame] = norm
        if self._most is None:
            return gradient
        return gradient * (self._most / norm.clamp_min(self._most))[:, None]

    @property
    def median(self) -> float:
        """Median norm over frames and worlds."""
        return float(self.norms.median())

    def by_horizon(self) -> dict[str, list[float]]:
        """Return median and `LARGE` quantile of the norms by the frames ahead: 1, 2, 4 ... and all of the window."""
        frames = len(self.norms)
        ahead = sorted({*(2**n for n in range(frames.bit_length()) if 2**n <= frames), frames})
        levels = torch.tensor([0.5, LARGE])
        return {str(n): self.norms[frames - n].quantile(levels).tolist() for n in ahead}

    def explosion(self) -> float:
        """Return how much larger the mean norm of the window's first frame is than its median.

        Where gradients grow alike in all worlds that is about 1; where contact multiplies them in some, these few
        decide the mean, and with it the policy's step.
        """
        first = self.norms[0]
        median = float(first.median())
        return float(first.mean()) / median if median > 0 else 1.0

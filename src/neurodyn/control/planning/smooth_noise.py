# SPDX-License-Identifier: Apache-2.0
"""Noise of candidates that changes slowly over the frames of a plan.

White noise hardly moves a heavy robot, since its pushes cancel out. Noise that is drawn at knots some frames apart, and
linear between them, tries longer pushes with the same standard deviation at the knots.
"""

import torch
from torch import Tensor


def smooth_noise(shape: tuple[int, ...], knot: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Return standard normal noise.

    Args:
        shape: Shape, whose last two axes are frames and actions.
        knot: Frames between two knots; 1 for white noise.
        generator: Draws it.
        like: Tensor of its dtype and on its device.
    """
    frames = shape[-2]
    if knot == 1:
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
    count = -(-(frames - 1) // knot) + 1
    knots = torch.randn(*shape[:-2], count, shape[-1], generator=generator, dtype=like.dtype, device=like.device)
    place = torch.arange(frames, dtype=like.dtype, device=like.device) / knot
    before = place.floor().long().clamp_max(max(0, count - 2))
    share = (place - before)[:, None]
    return torch.lerp(knots[..., before, :], knots[..., before + (count > 1), :], share)

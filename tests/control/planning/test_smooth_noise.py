# SPDX-License-Identifier: Apache-2.0
"""Noise between knots."""

import pytest
import torch

from neurodyn.control.planning.sampling import smooth_noise

LIKE = torch.zeros(1, dtype=torch.float64)


@pytest.mark.parametrize(("frames", "knot"), [(9, 4), (10, 4), (7, 1), (2, 5), (3, 2)])
def test_it_is_normal_at_knots_and_linear_between(frames, knot):
    drawn = smooth_noise((4000, frames, 2), knot, torch.Generator().manual_seed(0), LIKE)
    assert drawn.shape == (4000, frames, 2)
    torch.testing.assert_close(drawn[:, ::knot].std(0), torch.ones_like(drawn[0, ::knot]), rtol=0.05, atol=0)
    for first in range(0, frames - 1, knot):
        piece = drawn[:, first : first + knot + 1]
        if piece.shape[1] > 2:
            torch.testing.assert_close(piece.diff(n=2, dim=1), torch.zeros_like(piece[:, 2:]), rtol=0, atol=1e-9)


def test_knots_are_independent():
    drawn = smooth_noise((20_000, 9, 1), 4, torch.Generator().manual_seed(0), LIKE)[..., 0]
    assert float((drawn[:, 0] * drawn[:, 4]).mean().abs()) < 0.03
    assert float((drawn[:, 0] * drawn[:, 1]).mean()) == pytest.approx(0.75, abs=0.03)

# SPDX-License-Identifier: Apache-2.0
"""Student's t: outliers weigh little, and scatter is that of the sound residuals."""

import pytest
import torch

from neurodyn.estimate.robust import TAIL, persistence, scatter_of, student_loss, student_weights

F64 = torch.float64


def test_the_gradient_of_the_loss_has_the_weights():
    residuals = torch.linspace(0.1, 9.0, 12, dtype=F64).reshape(4, 3).requires_grad_()
    squared = residuals.square().sum(1)
    (gradient,) = torch.autograd.grad(student_loss(squared, 3).sum(), residuals)
    torch.testing.assert_close(gradient, student_weights(squared, 3)[:, None] * residuals)


def test_the_scatter_is_that_of_the_tail_and_outliers_hardly_change_it():
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(40_000, 2, generator=generator, dtype=F64)
    scale = (TAIL / torch.distributions.Chi2(torch.tensor(TAIL, dtype=F64)).sample((40_000, 1))).sqrt()
    factor = torch.tensor([[0.5, 0.0], [0.3, 0.2]], dtype=F64)
    residuals = normal * scale @ factor.mT
    found = scatter_of(residuals, torch.full((2,), 1e-6, dtype=F64))
    torch.testing.assert_close(found @ found.mT, factor @ factor.mT, rtol=0.05, atol=0.005)
    residuals[:400] = 100.0
    spoilt = scatter_of(residuals, torch.full((2,), 1e-6, dtype=F64))
    torch.testing.assert_close(spoilt @ spoilt.mT, factor @ factor.mT, rtol=0.2, atol=0.01)


@pytest.mark.parametrize("share", [0.0, 0.8])
def test_persistence_is_the_correlation_of_neighbouring_frames_that_count(share: float):
    generator = torch.Generator().manual_seed(1)
    frames = [torch.randn(300, 2, generator=generator, dtype=F64)]
    for _ in range(60):
        frames.append(share * frames[-1] + (1 - share**2) ** 0.5 * torch.randn(300, 2, generator=generator, dtype=F64))
    residuals, valid = torch.stack(frames, 1), torch.ones(300, 61, dtype=torch.bool)
    residuals[:, 30], valid[:, 30] = 1e6, False
    assert persistence(residuals, valid) == pytest.approx(share, abs=0.05)

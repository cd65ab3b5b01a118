# SPDX-License-Identifier: Apache-2.0
r"""Weights and scales of residuals with heavy tails: a Student t distribution of several correlated components.

For residuals with k components, scatter $S$ and $\nu$ degrees of freedom, the weight of a residual r is
$(\nu + k) / (\nu + r^T S^{-1} r)$, and the scatter is the weighted mean of $r r^T$ (Lange, Little, Taylor 1989).
"""

import torch
from torch import Tensor

TAIL = 4.0
"""Degrees of freedom."""


def student_weights(squared: Tensor, components: int, tail: float = TAIL) -> Tensor:
    """Return the weights of residuals with given squared Mahalanobis lengths."""
    return (tail + components) / (tail + squared)


def student_loss(squared: Tensor, components: int, tail: float = TAIL) -> Tensor:
    """Return minus the log likelihood of such residuals, up to a constant; its gradient has the weights above."""
    return 0.5 * (tail + components) * torch.log1p(squared / tail)


def persistence(residuals: Tensor, valid: Tensor) -> float:
    """Return the correlation of residuals with the next frame's, shape [runs, frames, k], between 0 and .95."""
    both = (valid[:, 1:] & valid[:, :-1])[..., None]
    squared = residuals.square().sum(-1, keepdim=True)
    tame = residuals * student_weights(squared, residuals.shape[-1]).sqrt()
    shared = (tame[:, 1:] * tame[:, :-1] * both).sum() / (tame[:, 1:].square() * both).sum().clamp_min(1e-12)
    return float(shared.clamp(0.0, 0.95))


def scatter_of(residuals: Tensor, floor: Tensor, rounds: int = 10, tail: float = TAIL) -> Tensor:
    """Return the scatter of residuals around zero, shape [n, k], as a Cholesky factor, shape [k, k].

    `floor` holds the least standard deviations of the components, shape [k].
    """
    components = residuals.shape[1]
    spread = torch.maximum(1.48 * residuals.abs().median(0).values, floor)
    scatter = torch.diag(spread.square())
    for _ in range(rounds):
        factor = torch.linalg.cholesky(scatter)
        squared = torch.linalg.solve_triangular(factor, residuals.mT, upper=False).square().sum(0)
        weights = student_weights(squared, components, tail)
        scatter = (residuals.mT * weights) @ residuals / len(residuals) + torch.diag(floor.square())
    return torch.linalg.cholesky(scatter)

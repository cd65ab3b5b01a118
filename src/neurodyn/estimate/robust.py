# SPDX-License-Identifier: Apache-2.0
r"""Weights and scales of residuals with heavy tails: a Student t distribution of several correlated components.

For residuals with k components, scatter $S$ and $\nu$ degrees of freedom, the weight of a residual r is
$(\nu + k) / (\nu + r^T S^{-1} r)$, and the scatter is the weighted mean of $r r^T$ (Lange, Little, Taylor 1989).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

TAIL = 4.0
"""Degrees of freedom."""
_ROUNDS = 10
"""Iterations of a scatter."""


def student_weights(squared: Tensor, components: int) -> Tensor:
    """Return the weights of residuals with given squared Mahalanobis lengths."""
    return (TAIL + components) / (TAIL + squared)


def student_loss(squared: Tensor, components: int) -> Tensor:
    """Return minus the log likelihood of such residuals, up to a constant; its gradient has the weights above."""
    return 0.5 * (TAIL + components) * torch.log1p(squared / TAIL)


def persistence(residuals: Tensor, valid: Tensor) -> float:
    """Return the correlation of residuals with the next frame's, shape [runs, frames, k], between 0 and .95."""
    both = (valid[:, 1:] & valid[:, :-1])[..., None]
    squared = residuals.square().sum(-1, keepdim=True)
    tame = residuals * student_weights(squared, residuals.shape[-1]).sqrt()
    shared = (tame[:, 1:] * tame[:, :-1] * both).sum() / (tame[:, 1:].square() * both).sum().clamp_min(1e-12)
    return float(shared.clamp(0.0, 0.95))


def scatter_of(residuals: Tensor, floor: Tensor) -> Tensor:
    """Return the scatter of residuals around zero, shape [n, k], as a Cholesky factor, shape [k, k].

    `floor` holds the least standard deviations of the components, shape [k].
    """
    components = residuals.shape[1]
    spread = torch.maximum(1.48 * residuals.abs().median(0).values, floor)
    scatter = torch.diag(spread.square())
    for _ in range(_ROUNDS):
        factor = torch.linalg.cholesky(scatter)
        squared = torch.linalg.solve_triangular(factor, residuals.mT, upper=False).square().sum(0)
        weights = student_weights(squared, components)
        scatter = (residuals.mT * weights) @ residuals / len(residuals) + torch.diag(floor.square())
    return torch.linalg.cholesky(scatter)


FORCE = 5.0
"""Specific force at which a model's errors are twice those in free flight [m/s^2]."""


def share_of_flight(felt: Tensor) -> Tensor:
    """Return the errors of a model in free flight over those under a specific force [m/s^2]."""
    return 1.0 / (1.0 + felt / FORCE)


@dataclass(frozen=True)
class ModelScatter:
    """How far a model is trusted.

    Attributes:
        factor: Cholesky factor of the scatter of its residuals in free flight, shape [nv, nv].
        share: Weight of a frame, less than 1 as far as residuals persist.
    """

    factor: Tensor
    share: float

    @classmethod
    def of(cls, noises: tuple[float, float, float], size: int) -> "ModelScatter":
        """Return independent errors of given standard deviations: velocity, angular velocity, joint velocities."""
        linear, angular, joints = noises
        return cls(torch.diag(torch.tensor([linear] * 3 + [angular] * 3 + [joints] * (size - 6)).double()), 1.0)

    def whiten(self, residual: Tensor, jacobian: Tensor) -> tuple[Tensor, Tensor]:
        """Return residuals and derivatives in units of the noise."""
        both = torch.cat([residual[..., None], jacobian], -1)
        both = self.share**0.5 * torch.linalg.solve_triangular(self.factor, both, upper=False)
        return both[..., 0], both[..., 1:]

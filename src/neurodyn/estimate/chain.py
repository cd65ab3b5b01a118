# SPDX-License-Identifier: Apache-2.0
r"""Least squares over the states of a run, in which residuals couple neighbouring frames only: a smoother.

With errors $\delta_t$ of n coordinates, residuals $r$ linear in them and the normal equations' blocks
$D_t = \sum J_t^T J_t$, $U_t = \sum J_t^T J_{t+1}$, $g_t = \sum J_t^T r$, elimination from the first frame to the last,

$$S_t = D_t - U_{t-1}^T S_{t-1}^{-1} U_{t-1}, \quad b_t = g_t - U_{t-1}^T S_{t-1}^{-1} b_{t-1},$$

and substitution back give the errors and the diagonal blocks of the inverse, their covariances:

$$\delta_t = -S_t^{-1}(b_t + U_t \delta_{t+1}), \quad
\Sigma_t = S_t^{-1} + K_t \Sigma_{t+1} K_t^T, \quad K_t = S_t^{-1} U_t.$$

It is the Rauch-Tung-Striebel smoother in information form (Bell 1994, SIAM J. Optim. 4: the iterated smoother is a
Gauss-Newton method).
"""

from copy import copy

import torch
from torch import Tensor

from neurodyn.estimate.robust import student_loss, student_weights


class ChainEquations:
    """Normal equations of a batch of runs of equal length.

    Attributes:
        cost: Half the sum of squared residuals, or minus the log likelihood of robust ones, shape [runs].
    """

    def __init__(self, runs: int, frames: int, size: int) -> None:
        """Begin without residuals, with `size` coordinates in a frame."""
        self._diagonal = torch.zeros(runs, frames, size, size, dtype=torch.float64)
        self._beside = torch.zeros(runs, frames - 1, size, size, dtype=torch.float64)
        self._gradient = torch.zeros(runs, frames, size, dtype=torch.float64)
        self.cost = torch.zeros(runs, dtype=torch.float64)

    def add(self, residual: Tensor, jacobian: Tensor, valid: Tensor | None = None, *, robust: bool = False) -> None:
        """Add residuals of each frame, in units of their noise.

        Args:
            residual: Residuals, shape [runs, frames, k].
            jacobian: Derivatives by the errors, shape [runs, frames, k, size].
            valid: Whether there are any in a frame, shape [runs, frames]; None for everywhere.
            robust: Whether their noise has heavy tails (`estimate.robust`), not a normal distribution's.
        """
        squared = residual.square().sum(-1)
        loss = student_loss(squared, residual.shape[-1]) if robust else 0.5 * squared
        weight = weights_of(residual, valid, robust=robust)
        loss = loss if valid is None else loss * valid
        self.cost += loss.sum(1)
        weighted = jacobian * weight[..., None, None]
        self._gradient += (weighted * residual[..., None]).sum(-2)
        self._diagonal += weighted.mT @ jacobian

    def couple(self, residual: Tensor, here: Tensor, following: Tensor) -> None:
        """Add residuals between frames, shape [runs, frames - 1, k], with derivatives in this and the next frame."""
        self.cost += 0.5 * residual.square().sum((1, 2))
        for frames, jacobian in ((slice(0, -1), here), (slice(1, None), following)):
            self._gradient[:, frames] += (jacobian * residual[..., None]).sum(-2)
            self._diagonal[:, frames] += jacobian.mT @ jacobian
        self._beside += here.mT @ following

    def where(self, mask: Tensor, other: "ChainEquations") -> "ChainEquations":
        """Return these equations for the runs in `mask`, shape [runs], and other ones elsewhere."""
        chosen = copy(self)
        for name, value in vars(self).items():
            rows = mask.view(-1, *[1] * (value.ndim - 1))
            setattr(chosen, name, torch.where(rows, value, getattr(other, name)))
        return chosen

    def solve(self) -> Tensor:
        """Return the errors that minimise the sum of squares, shape [runs, frames, size]."""
        return -self.solve_for(self._gradient[..., None])[..., 0]

    def solve_for(self, right: Tensor) -> Tensor:
        """Return what the equations' matrix takes to some right sides, shape [runs, frames, size, k]."""
        factors, gains = self._eliminate()
        rest = [right[:, 0]]
        for t, gain in enumerate(gains, 1):
            rest.append(right[:, t] - gain.mT @ rest[-1])
        step = torch.cholesky_solve(rest[-1], factors[-1])
        steps = [step]
        for t in range(len(gains) - 1, -1, -1):
            step = torch.cholesky_solve(rest[t], factors[t]) - gains[t] @ step
            steps.append(step)
        return torch.stack(steps[::-1], 1)

    def covariance(self) -> Tensor:
        """Return the covariance of each frame's errors, shape [runs, frames, size, size]."""
        factors, gains = self._eliminate()
        inverse = [torch.cholesky_inverse(factor) for factor in factors]
        total = inverse[-1]
        blocks = [total]
        for t in range(len(gains) - 1, -1, -1):
            total = inverse[t] + gains[t] @ total @ gains[t].mT
            blocks.append(total)
        return torch.stack(blocks[::-1], 1)

    def _eliminate(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the Cholesky factors of S_t, and K_t."""
        diagonal = self._diagonal
        factor = torch.linalg.cholesky(diagonal[:, 0])
        factors, gains = [factor], []
        for t in range(1, diagonal.shape[1]):
            beside = self._beside[:, t - 1]
            gains.append(torch.cholesky_solve(beside, factor))
            factor = torch.linalg.cholesky(diagonal[:, t] - beside.mT @ gains[-1])
            factors.append(factor)
        return factors, gains


def weights_of(residual: Tensor, valid: Tensor | None, *, robust: bool) -> Tensor:
    """Return the weights of residuals [runs, frames, k] in least squares, shape [runs, frames]."""
    squared = residual.square().sum(-1)
    weight = student_weights(squared, residual.shape[-1]) if robust else torch.ones_like(squared)
    return weight if valid is None else weight * valid

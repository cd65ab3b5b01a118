# SPDX-License-Identifier: Apache-2.0
r"""Unknowns that all frames of all runs share, beside the states of a chain: how an IMU is mounted.

With the chain's equations H of a run, its gradient g, and derivatives M of the residuals by the shared unknowns m,

$$C = \sum_{runs} M^T M - B^T H^{-1} B, \quad d = \sum_{runs} M^T r - B^T H^{-1} g, \quad B = J^T M,$$

so that $m \leftarrow m - C^{-1} d$ with states eliminated (Schur complement), and states follow with $H^{-1} B$.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.estimate.chain import ChainEquations, weights_of


class ResidualRows:
    """Residuals of an estimation in their order, without equations; what `ChainEquations` takes, it takes, too."""

    def __init__(self) -> None:
        self.residuals: list[Tensor] = []

    def add(self, residual: Tensor, jacobian: Tensor, valid: Tensor | None = None, *, robust: bool = False) -> None:
        """Keep residuals of each frame."""
        self.residuals.append(residual)

    def couple(self, residual: Tensor, here: Tensor, following: Tensor) -> None:
        """Keep residuals between frames."""
        self.residuals.append(residual)


@dataclass(frozen=True)
class SharedStep:
    """A Gauss-Newton step of shared unknowns, and of the states with them.

    Attributes:
        shared: Change of the shared unknowns, shape [m].
        states: Change of the states, shape [runs, frames, size].
        covariance: Of the shared unknowns, shape [m, m].
    """

    shared: Tensor
    states: Tensor
    covariance: Tensor


class SharedEquations(ChainEquations):
    """Equations of a chain that keep their residuals, for unknowns that all frames share."""

    def __init__(self, runs: int, frames: int, size: int) -> None:
        super().__init__(runs, frames, size)
        self._rows: list[tuple[Tensor, Tensor, Tensor, Tensor | None]] = []

    def add(self, residual: Tensor, jacobian: Tensor, valid: Tensor | None = None, *, robust: bool = False) -> None:
        """See `ChainEquations.add`."""
        super().add(residual, jacobian, valid, robust=robust)
        self._rows.append((residual, weights_of(residual, valid, robust=robust), jacobian, None))

    def couple(self, residual: Tensor, here: Tensor, following: Tensor) -> None:
        """See `ChainEquations.couple`."""
        super().couple(residual, here, following)
        self._rows.append((residual, torch.ones_like(residual[..., 0]), here, following))

    def step(self, slopes: Sequence[Sequence[Tensor]], off: Tensor, deviations: Tensor) -> SharedStep:
        """Return the step of shared unknowns.

        Args:
            slopes: Derivatives of the residuals by each unknown, in the order of the residuals.
            off: Unknowns minus what is known of them before, shape [m].
            deviations: Standard deviations of that, shape [m].
        """
        runs, frames, size = self._gradient.shape
        count = len(slopes)
        border = torch.zeros(runs, frames, size, count, dtype=torch.float64)
        block = torch.zeros(runs, count, count, dtype=torch.float64)
        gradient = torch.zeros(runs, count, dtype=torch.float64)
        for index, (residual, weight, here, following) in enumerate(self._rows):
            by = torch.stack([one[index] for one in slopes], -1)
            weighted = by * weight[..., None, None]
            block += torch.einsum("rtkm,rtkn->rmn", weighted, by)
            gradient += torch.einsum("rtkm,rtk->rm", weighted, residual)
            border[:, : by.shape[1]] += here.mT @ weighted
            if following is not None:
                border[:, 1:] += following.mT @ weighted
        solved = self.solve_for(torch.cat([self._gradient[..., None], border], -1))
        forced, free = solved[..., 0], solved[..., 1:]
        scores = gradient - torch.einsum("rtim,rti->rm", border, forced)
        whole = block - torch.einsum("rtim,rtin->rmn", border, free)
        inverse = torch.linalg.inv(whole.sum(0) + torch.diag(deviations.square().reciprocal()))
        shared = -inverse @ (scores.sum(0) + off / deviations.square())
        # What runs say differs by more than noise would if the model is wrong (White 1982).
        apart = scores + whole @ shared
        return SharedStep(shared, -(forced + free @ shared), inverse + inverse @ apart.mT @ apart @ inverse)

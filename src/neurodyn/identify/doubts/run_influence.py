# SPDX-License-Identifier: Apache-2.0
r"""Quantities that one run of a log decides alone.

With the information $H_r$ of run r and the prior's P, a quantity's standard deviation without that run is that of

$$(H - H_r + P)^{-1}$$

A quantity whose deviation grows by a large factor rests on what happened in one run, which may have been special.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from neurodyn.core.verdict import Finding
from neurodyn.identify.fit.intervals import Identifiability
from neurodyn.identify.fit.least_squares import reduce
from neurodyn.identify.fit.residuals import Normal, Residuals

_LEAST = 3
"""Fewest runs of which one can stand out."""
_WIDER = 3.0
"""Factor by which an interval grows without the run that decides it."""
_TOLD = 3


@dataclass(frozen=True)
class Influence:
    """A quantity, the run that decides it, and how many times as wide its interval is without that run."""

    quantity: str
    run: str
    wider: float


@torch.no_grad()
def decided_by_one_run(residuals: Residuals, normal: Normal, analysis: Identifiability) -> list[Influence]:
    """Return the quantities that one run decides alone, the widest without it first.

    Args:
        residuals: Residuals of a fit over coordinates in prior standard deviations.
        normal: Their normal equations at the solution, of one set.
        analysis: Identifiability there.
    """
    windows, n = residuals.windows, residuals.parameters
    by_log = len(windows.logs) >= _LEAST
    run = windows.log if by_log else torch.unique(windows.episode, return_inverse=True)[1]
    count = int(run.max()) + 1
    free = torch.nonzero(~analysis.bound)[:, 0]
    if count < _LEAST or not len(free):
        return []
    matrix = reduce(residuals, normal)[0][0, :, :n, :n][:, free][:, :, free] / max(analysis.variance, 1e-12)
    of_run = matrix.new_zeros(count, len(free), len(free)).index_add(0, run, matrix)
    whole, prior = of_run.sum(0), torch.eye(len(free), dtype=matrix.dtype)
    known = torch.linalg.inv(whole + prior).diagonal().sqrt()
    without = torch.linalg.inv(whole - of_run + prior).diagonal(dim1=1, dim2=2).clamp_min(0.0).sqrt()
    wider, which = (without / known).max(0)
    names = windows.logs if by_log else [f"episode {k}" for k in torch.unique(windows.episode).tolist()]
    found = [
        Influence(residuals.space.names[int(free[k])], names[r], w)
        for k, (w, r) in enumerate(zip(wider.tolist(), which.tolist(), strict=True))
        if w > _WIDER
    ]
    return sorted(found, key=lambda one: -one.wider)


def of_influences(influences: Sequence[Influence]) -> list[Finding]:
    """Judge quantities that one run decides alone."""
    if not influences:
        return []
    told = ", ".join(f"{one.quantity} ({one.run}: {one.wider:.2g} times)" for one in influences[:_TOLD])
    more = f" and {len(influences) - _TOLD} more" if len(influences) > _TOLD else ""
    return [
        Finding(
            "one-run", "warning", f"one run alone decides {told}{more}: without it the interval is that much wider",
            "log more motion like that run's, and see whether the value holds",
        )
    ]  # fmt: skip

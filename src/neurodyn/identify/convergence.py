# SPDX-License-Identifier: Apache-2.0
r"""Whether a search has ended at a minimum, and why it is believed or not.

Where a search ends, the next Gauss-Newton step must be short beside the standard deviation with which each parameter is
known: then a further search would move no digit that counts. Costs that fall no more do not show that: at impacts and
stops of joints derivatives are large and of either sign, and no step along them lowers the cost anywhere.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.identify.identifiability import Identifiability

SHORT = 0.25
"""Longest next step of a search that has converged, in standard deviations."""


@dataclass(frozen=True)
class Convergence:
    """Whether a search has converged, and why.

    Attributes:
        converged: Whether it has.
        reason: Why, in a line.
    """

    converged: bool
    reason: str


@dataclass(frozen=True)
class End:
    """How a search by local optimisers ended.

    Attributes:
        settled: Whether the optimiser ended by itself, because no step gained anything more.
        moved: Whether it accepted any step.
        iterations: Iterations of its last call.
        late: Whether the time was up.
        derivatives: Whether it follows derivatives.
    """

    settled: bool
    moved: bool
    iterations: int
    late: bool = False
    derivatives: bool = True


def judge(end: End, analysis: Identifiability, deviations: Tensor | None = None) -> Convergence:
    """Say whether a search has converged.

    Args:
        end: How it ended.
        analysis: The analysis of its end.
        deviations: Standard deviations, shape [n], where others are known than those of the analysis.
    """
    if end.late:
        return Convergence(False, f"the time was up after {end.iterations} iterations")
    if not end.settled:
        return Convergence(False, f"costs still fell after {end.iterations} iterations")
    if not end.derivatives:
        return Convergence(True, f"the population has settled after {end.iterations} generations")
    steps = analysis.newton
    if deviations is not None:
        steps = steps * analysis.deviations / torch.maximum(deviations, analysis.deviations)
    steps = torch.nan_to_num(steps, nan=torch.inf)
    worst = int(steps.argmax()) if len(steps) else 0
    length = float(steps[worst]) if len(steps) else 0.0
    if length <= SHORT:
        return Convergence(True, f"the next step is {length:.2g} standard deviations long at most")
    name = analysis.names[worst]
    if not end.moved:
        return Convergence(
            False,
            f"no step was accepted: the gradient asks to move {name} by {length:.2g} standard deviations, and no step "
            "along it lowers the cost",
        )
    return Convergence(
        False,
        f"the gradient is not small: it asks to move {name} by {length:.2g} more standard deviations, and no step "
        "along it lowers the cost",
    )

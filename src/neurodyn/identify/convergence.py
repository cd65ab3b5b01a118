# SPDX-License-Identifier: Apache-2.0
"""Convergence of a search for parameters.

At a minimum the next Gauss-Newton step is short relative to the standard deviation of each parameter, so that further
iterations change no significant digit. A cost that no longer falls is not sufficient: at impacts and joint stops,
derivatives are large and of either sign, and no step along them lowers the cost.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.identify.identifiability import Identifiability, pseudo_inverse
from neurodyn.identify.least_squares import assemble, reduce
from neurodyn.identify.residuals import Point, Residuals

SHORT = 0.25
"""Longest next step of a converged search, in standard deviations."""
ROUGH = 5.0
"""Largest factor between the measured and the predicted rise of the cost around the solution."""
AS_GOOD = 0.01
"""Relative difference of the cost below which two minima are equally good."""
FAR = 2.0
"""Largest distance between equally good minima, in standard deviations."""


@dataclass(frozen=True)
class Convergence:
    """Convergence of a search.

    Attributes:
        converged: Whether it converged.
        reason: Explanation in one line.
    """

    converged: bool
    reason: str


@dataclass(frozen=True)
class SearchEnd:
    """State of a search when it stopped.

    Attributes:
        settled: Whether the optimiser stopped because no step reduced the cost further.
        moved: Whether it accepted any step.
        iterations: Iterations of its last call.
        late: Whether the time budget was exhausted.
        derivatives: Whether it uses derivatives.
    """

    settled: bool
    moved: bool
    iterations: int
    late: bool = False
    derivatives: bool = True


def judge(end: SearchEnd, analysis: Identifiability, curvature: Tensor | None = None) -> Convergence:
    """Decide whether a search converged, from its end, its identifiability, and `curvature` if measured."""
    if not end.derivatives:
        after = f"after {end.iterations} generations"
        if end.late or not end.settled:
            return Convergence(False, f"the population had not settled {after}")
        return Convergence(True, f"the population settled {after}")
    steps = torch.nan_to_num(analysis.newton, nan=torch.inf)
    worst = int(steps.argmax()) if len(steps) else 0
    length = float(steps[worst]) if len(steps) else 0.0
    if length > SHORT:
        name = analysis.names[worst]
        asks = f"the gradient asks to move {name} by {length:.2g}{'' if not end.moved else ' more'} standard deviations"
        if end.late:
            return Convergence(False, f"the time was up after {end.iterations} iterations: {asks}")
        if not end.moved:
            return Convergence(False, f"no step was accepted: {asks}, and no step along it lowers the cost")
        if not end.settled:
            return Convergence(False, f"costs still fell after {end.iterations} iterations: {asks}")
        return Convergence(
            False,
            f"the gradient is not small: it{asks.removeprefix('the gradient')}, and no step along it lowers the cost",
        )
    if curvature is not None:
        rough = torch.nonzero((curvature > ROUGH) | (curvature < 1.0 / ROUGH) | torch.isinf(curvature))[:, 0].tolist()
        if rough:
            k = max(rough, key=lambda k: abs(float(curvature[k]) - 1.0))
            return Convergence(
                False,
                f"costs are rough about the end: two standard deviations of {analysis.names[k]} to either side raise "
                f"them by {float(curvature[k]):.2g} times what derivatives say",
            )
    return Convergence(True, f"the next step would be {length:.1g} standard deviations long")


def elsewhere(ends: Tensor, costs: Tensor, analysis: Identifiability) -> Convergence | None:
    """Return a failure to converge if equally good minima lie far apart, else None.

    `ends` are the values at the minima from several starts, best first, shape [K, n], with `costs` of shape [K].
    """
    if len(ends) < 2:
        return None
    same = costs <= (1.0 + AS_GOOD) * costs[0]
    spread = ends[same].amax(0) - ends[same].amin(0)
    far = torch.where(torch.isfinite(analysis.deviations), spread / analysis.deviations.clamp_min(1e-300), 0.0)
    worst = int(far.argmax())
    if float(far[worst]) <= FAR:
        return None
    low, high = float(ends[same][:, worst].min()), float(ends[same][:, worst].max())
    return Convergence(
        False,
        f"{int(same.sum())} of {len(ends)} searches fit equally well (costs within {AS_GOOD:.0%}) with "
        f"{analysis.names[worst]} from {low:.4g} to {high:.4g}",
    )


@torch.no_grad()
def curvature(residuals: Residuals, point: Point, analysis: Identifiability) -> Tensor:
    """Return the measured over the predicted rise of the cost along each parameter, shape [n]; NaN if not measurable.

    Each parameter is moved by two standard deviations to either side along the valley: all others, initial states
    included, move as the normal equations predict. A ratio of 1 means that the cost is quadratic, as the intervals
    assume.
    """
    point = point.pick(torch.tensor([0]))
    found = torch.full((len(analysis.names),), torch.nan, dtype=torch.float64)
    if not residuals.physical:
        return found
    n = residuals.parameters
    normal = residuals.normal(point)
    matrix, gradient, back = reduce(residuals, normal)
    full, right = assemble(residuals, matrix, gradient, point)
    chain = residuals.chain(point.x)[0]
    across = (chain - torch.diag(chain.diagonal())) != 0.0
    single = ~(across.any(0) | across.any(1))
    held = torch.zeros(full.shape[-1], dtype=torch.bool)
    held[:n] = residuals.space.held(point.x[0], right[0, :n])
    inverse = pseudo_inverse(full[0], held)
    free = torch.nonzero(single & ~held[:n] & torch.isfinite(analysis.deviations) & (analysis.deviations > 0.0))[:, 0]
    if not len(free):
        return found
    length = 2.0 * analysis.deviations[free] / chain.diagonal()[free]
    moves = inverse[free] / inverse[free, free][:, None] * length[:, None]
    moves = torch.cat([moves, -moves])
    x, local = moves[:, :n], moves[:, n:].reshape(len(moves), len(residuals.windows.logs), residuals.locals)
    shared = torch.cat([x[:, None].expand(-1, residuals.windows.count, n), local[:, residuals.windows.log]], -1)
    initial = back(shared) - back(torch.zeros_like(shared))
    there = Point(point.x + x, point.local + local, point.initial + initial)
    rise = (residuals.cost(there) - residuals.cost(point)).view(2, -1).mean(0)
    inside = (residuals.space.clipped(there.x) == there.x).all(1).view(2, -1).all(0)
    predicted = 0.5 * length.square() / inverse[free, free]
    found[free] = torch.where(inside, rise / predicted, torch.nan)
    return found

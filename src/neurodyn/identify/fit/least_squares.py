# SPDX-License-Identifier: Apache-2.0
r"""Levenberg-Marquardt for many starts at once, with the initial states of windows eliminated.

A step solves

$$(H + \lambda\,\mathrm{diag}\,H)\,d = -g, \qquad H = J^T J, \quad g = J^T r$$

H couples the initial state of a window only with the parameters. Each such block is therefore eliminated first (Schur
complement), and the time of a step is linear in the number of windows. Several lambdas are tried at once as further
worlds: a roll-out costs far less than a Jacobian, and parameters on a bound need a different order of lambda.

Costs have narrow curved valleys: a payload and the gains of servos, say, hardly change motion if they grow together.
Each step is therefore also tried with its geodesic acceleration (Transtrum and Sethna 2012), the second-order term of a
path along the valley,

$$-\tfrac12 (H + \lambda\,\mathrm{diag}\,H)^{-1} J^T r'', \qquad
J^T r'' \approx \frac{2}{h} \left(\frac{J^T r(x + h d) - g}{h} - H d\right)$$
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neurodyn.identify.fit.readings import MEDIAN, Noise
from neurodyn.identify.fit.residuals import Normal, Point, Residuals
from neurodyn.identify.fit.window_starts import search_starts, settle_starts

_FACTORS = (1e-3, 1e-1, 10.0, 1e3)
_LEAST, _MOST = 1e-8, 1e12
_SETTLED, _STARTS = 2, 1
"""Candidates whose starts of windows are settled where the base is unmeasured, and iterations before more are drawn."""
_TRIMMED = 0.1
"""Share of windows at each end of the changes of their costs that does not count."""
_RANKED, _LEAST_RANKED = 3, 40
"""Of so many windows one ranks these candidates, and the least that do."""
_STRETCHES = (3.0, 10.0, 30.0)
"""Multiples of a step that are tried where windows begin with unknown states of the base: their contacts come and go
with it, and a few windows with the steepest derivatives would make all steps short."""
_SHARE = 0.7
"""Share h of a step after which its acceleration is measured: long enough to see past dry friction's kinks."""
_REACH = 2.0
"""Longest step of a coordinate, in standard deviations of its prior: a quantity that hardly matters is not flung away,
which would spoil the steps of all others."""
_REPEATS, _TINY = 10, 1e-12
"""Solutions for a step within bounds, and the excess that does not count."""

Stop = Callable[[int, Tensor], bool]
"""Called after each iteration with its number and the costs; returns true to stop all searches."""


@dataclass(frozen=True)
class Weights:
    """Weights of the parts of a problem for S sets, for example bootstrap resamples.

    Attributes:
        windows: Weight of each window, shape [S, W].
        logs: Weight of the prior on each log's free quantities, shape [S, logs].
        prior: Shift of the mean of each prior on a quantity, in standard deviations, shape [S, p].
    """

    windows: Tensor
    logs: Tensor
    prior: Tensor

    def pick(self, rows: Tensor) -> "Weights":
        """Return the weights of some sets."""
        return Weights(self.windows[rows], self.logs[rows], self.prior[rows])

    def cost(self, residuals: Residuals, point: Point, errors: Tensor | None = None) -> Tensor:
        """Return the weighted cost of each set, shape [S]; `errors` are those at the point if they are known."""
        windows = torch.where(self.windows > 0.0, residuals.window_costs(point, errors) * self.windows, 0.0).sum(1)
        priors = (self.logs * point.local.square().sum(2)).sum(1)
        if residuals.prior is not None:
            distance = residuals.off_prior(point.x) - self.prior
            priors = priors + distance.square().sum(-1)
        return windows + 0.5 * priors

    def normal(self, normal: Normal) -> Normal:
        """Return the weighted normal equations; a small weight of omitted windows keeps them solvable."""
        w = self.windows.clamp_min(1e-9)
        return Normal(normal.matrix * w[..., None, None], normal.gradient * w[..., None], normal.cost)


@dataclass
class Solution:
    """Result of a search from S starts.

    Attributes:
        point: Final points.
        cost: Their costs, shape [S].
        damping: Last lambdas, shape [S].
        iterations: Iterations of the longest search.
        converged: Which searches stopped because no step reduced the cost further, shape [S].
    """

    point: Point
    cost: Tensor
    damping: Tensor
    iterations: int
    converged: Tensor

    @classmethod
    def concatenate(cls, parts: Sequence["Solution"]) -> "Solution":
        """Return the searches of several solutions, one after another."""
        return cls(
            Point.concatenate([part.point for part in parts]),
            torch.cat([part.cost for part in parts]),
            torch.cat([part.damping for part in parts]),
            max(part.iterations for part in parts),
            torch.cat([part.converged for part in parts]),
        )

    @property
    def best(self) -> int:
        """Index of the lowest cost."""
        return int(torch.argmin(self.cost))


def levenberg_marquardt(
    residuals: Residuals,
    start: Point,
    iterations: int,
    *,
    tolerance: float = 3e-8,
    stop: Stop | None = None,
    weights: Weights | None = None,
) -> Solution:
    """Minimise the cost of residuals from S starts.

    Args:
        residuals: The residuals to minimise.
        start: The starts.
        iterations: Iteration limit.
        tolerance: Relative decrease of the cost below which a search has converged.
        stop: See `Stop`.
        weights: Weights of windows and priors for each start; None for equal weights.
    """
    cost = residuals.cost(start) if weights is None else weights.cost(residuals, start)
    solution = Solution(start, cost, torch.full_like(cost, 1e-2), 0, torch.zeros_like(cost, dtype=torch.bool))
    generator = torch.Generator().manual_seed(0)
    for iteration in range(iterations):
        active = torch.nonzero(~solution.converged)[:, 0]
        if not len(active):
            break
        some = None if weights is None else weights.pick(active)
        _advance(residuals, solution, active, tolerance, some, generator)
        solution.iterations = iteration + 1
        if stop is not None and stop(iteration + 1, solution.cost):
            break
    return solution


def _advance(
    residuals: Residuals, solution: Solution, active: Tensor, tolerance: float, weights: Weights | None,
    generator: torch.Generator,
) -> None:  # fmt: skip
    """Take one step of the searches `active`, in place."""
    if not residuals.options.base and weights is None:
        found, cost = search_starts(residuals, solution.point.pick(active), generator)
        solution.point = solution.point.put(active, found)
        solution.cost[active] = cost
    point, damping, before = solution.point.pick(active), solution.damping[active], solution.cost[active]
    raw, gradient_at = residuals.chord(point)
    normal = raw if weights is None else weights.normal(raw)
    tried = [(damping * factor).clamp(_LEAST, _MOST) for factor in _FACTORS]
    steps: list[Point] = []
    for value in tried:
        change = step(residuals, normal, point, value, weights)
        bent = _bent(residuals, raw, gradient_at, point, change)
        bent = bent if weights is None else weights.normal(bent)
        steps += [change, step(residuals, bent, point, value, weights)]
    tried = [value for value in tried for _ in range(2)]
    if not residuals.options.base:
        steps, tried = [*steps, *(longer(steps[2], k) for k in _STRETCHES)], [*tried, *[damping] * len(_STRETCHES)]
    candidates = [move(residuals, point, change) for change in steps]
    count, sets = len(tried), len(active)
    stacked = Point.concatenate(candidates)
    if not residuals.options.base and weights is None:
        stacked, gains = _settle(residuals, point, stacked, generator)
        costs = before + gains.nan_to_num(nan=torch.inf)
    elif weights is None:
        costs = residuals.cost(stacked).view(count, sets)
    else:
        costs = weights.pick(torch.arange(sets).repeat(count)).cost(residuals, stacked).view(count, sets)
    cost, which = costs.min(0)
    better = cost < before
    chosen = stacked.pick(which * sets + torch.arange(sets))
    rows = active[better]
    solution.point = solution.point.put(rows, chosen.pick(torch.nonzero(better)[:, 0]))
    solution.cost[rows] = cost[better]
    lambdas = torch.stack(tried).gather(0, which[None])[0]
    solution.damping[active] = torch.where(better, lambdas, (damping * 1e4).clamp_max(_MOST))
    gain = torch.where(better, before - cost, 0.0)
    hopeless = ~better & (damping * _FACTORS[-1] >= _MOST)
    solution.converged[active] = (better & (gain <= tolerance * before)) | hopeless | ~torch.isfinite(before)


def _settle(residuals: Residuals, point: Point, stacked: Point, generator: torch.Generator) -> tuple[Point, Tensor]:
    """Return candidates [count * S], the best with starts that fit, and how costs of these change, [count, S].

    Before starts fit, costs favour the shortest steps. A part of the windows says which candidates are the best.
    """
    windows, sets = residuals.windows.count, len(point.x)
    few = torch.arange(0, windows, max(1, min(_RANKED, windows // _LEAST_RANKED)))
    part, here = residuals.of_windows(few), replace(point, initial=point.initial[:, few])
    ranked = settle_starts(part, replace(stacked, initial=stacked.initial[:, few]), 1)[0]
    best = _gains(part, here, ranked).argsort(0)[:_SETTLED].flatten()
    rows = best * sets + torch.arange(sets).repeat(_SETTLED)
    better = search_starts(residuals, settle_starts(residuals, stacked.pick(rows), _STARTS)[0], generator)[0]
    gains = torch.full((len(stacked.x),), torch.inf, dtype=torch.float64)
    gains = gains.index_copy(0, rows, _gains(residuals, point, better).flatten())
    return stacked.put(rows, better), gains.view(-1, sets)


def _gains(residuals: Residuals, point: Point, tried: Point) -> Tensor:
    """Return by how much costs of candidates [count * S] exceed those of a point [S], shape [count, S].

    Windows whose costs change most to either side do not count: their starts are in other minima now.
    """
    sets = len(point.x)
    change = residuals.window_costs(tried).view(-1, sets, residuals.windows.count) - residuals.window_costs(point)
    out = int(_TRIMMED * residuals.windows.count)
    kept = change.sort(-1).values[..., out : residuals.windows.count - out]
    priors = residuals.prior_cost(tried).view(-1, sets) - residuals.prior_cost(point)
    return kept.mean(-1) * residuals.windows.count + priors


def longer(change: Point, times: float) -> Point:
    """Return a multiple of a step in the quantities; initial states follow by their own."""
    return Point(times * change.x, times * change.local, change.initial)


def _bent(
    residuals: Residuals, normal: Normal, gradient_at: Callable[[Point], Tensor], point: Point, change: Point
) -> Normal:
    """Return normal equations whose step is a step with its acceleration; `gradient_at` as in `Residuals.chord`."""
    part = move(residuals, point, Point(*(_SHARE * each for each in vars(change).values())))
    windows = residuals.windows
    shared = change.x[:, None].expand(-1, windows.count, -1)
    whole = torch.cat([shared, change.local[:, windows.log], change.initial], -1)
    slope = (gradient_at(part) - normal.gradient) / _SHARE
    bend = (slope - (normal.matrix @ whole[..., None])[..., 0]) / _SHARE
    return replace(normal, gradient=normal.gradient + bend)


def move(residuals: Residuals, point: Point, change: Point) -> Point:
    """Return a point after a step, within the bounds."""
    x = residuals.space.moved(point.x, change.x)
    return Point(x, point.local + change.local, point.initial + change.initial)


def step(residuals: Residuals, normal: Normal, point: Point, damping: Tensor, weights: Weights | None = None) -> Point:
    """Return the Levenberg-Marquardt step with a damping for each set, shape [S]."""
    reduced, gradient, back = reduce(residuals, normal, damping)
    full, right = assemble(residuals, reduced, gradient, point, weights=weights)
    if not right.shape[-1]:
        return Point(point.x, point.local, back(gradient))
    # `reduce` has already damped the eliminated states.
    size = torch.diagonal(full, dim1=-2, dim2=-1)
    floor = 1e-12 * size.amax(-1, keepdim=True).clamp_min(1e-30)
    damped = full + torch.diag_embed(damping[:, None] * size.clamp_min(floor) + floor)
    n = residuals.parameters
    held = torch.zeros_like(right, dtype=torch.bool)
    held[:, :n] = residuals.space.at_active_bound(point.x, right[:, :n])
    solved = _within_reach(residuals, point.x, damped, right, held)
    logs = len(residuals.windows.logs)
    x, local = solved[:, :n], solved[:, n:].reshape(len(solved), logs, residuals.locals)
    shared = torch.cat([x[:, None].expand(-1, residuals.windows.count, n), local[:, residuals.windows.log]], -1)
    return Point(x, local, back(shared))


def _within_reach(residuals: Residuals, x: Tensor, matrix: Tensor, right: Tensor, held: Tensor) -> Tensor:
    """Return the step of normal equations [S, size, size] and [S, size] within bounds and the reach of a step.

    Coordinates that would move too far end there, and the others are solved for again: cut off afterwards, they would
    have moved for nothing.

    Args:
        residuals: The residuals.
        x: Coordinates, shape [S, n].
        matrix: Damped matrix.
        right: Gradient.
        held: Which unknowns do not move, bool, shape [S, size].
    """
    n, target, solved = x.shape[-1], torch.zeros_like(right), torch.zeros_like(right)
    least, most = residuals.space.reach(x, torch.inf if residuals.physical else _REACH)
    for _ in range(_REPEATS):
        pull = right + (matrix @ target[..., None])[..., 0]
        free = torch.where(held[:, None] | held[..., None], torch.diag_embed(torch.ones_like(right)), matrix)
        solved = torch.linalg.solve_ex(free, torch.where(held, target, -pull)[..., None])[0][..., 0]
        solved = torch.nan_to_num(solved, nan=0.0, posinf=0.0, neginf=0.0)
        within = solved[:, :n].clamp(least, most)
        out = ((within - solved[:, :n]).abs() > _TINY) & ~held[:, :n]
        if not bool(out.any()):
            break
        held[:, :n] |= out
        target[:, :n] = torch.where(out, within, target[:, :n])
    return solved


def reduce(
    residuals: Residuals, normal: Normal, damping: Tensor | None = None
) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Eliminate the initial states.

    Returns:
        Matrix [S, W, k, k] and gradient [S, W, k] over the parameters and locals of each window, and a function that
        maps a change [S, W, k] of these to the change of the initial states.
    """
    first = normal.matrix.shape[-1] - residuals.initials
    a, b, d = normal.matrix[..., :first, :first], normal.matrix[..., :first, first:], normal.matrix[..., first:, first:]
    if not residuals.initials:
        return a, normal.gradient, lambda shared: shared[..., :0]
    if damping is not None:
        d = d + torch.diag_embed(damping[:, None, None] * torch.diagonal(d, dim1=-2, dim2=-1))
    g, h = normal.gradient[..., :first], normal.gradient[..., first:, None]
    factor = torch.linalg.cholesky_ex(d)[0]
    right = torch.cholesky_solve(torch.cat([b.mT, h], -1), factor)
    across, offset = right[..., :-1], right[..., -1]

    def back(shared: Tensor) -> Tensor:
        return -offset - (across @ shared[..., None])[..., 0]

    return a - b @ across, g - (b @ offset[..., None])[..., 0], back


def assemble(
    residuals: Residuals,
    matrix: Tensor,
    gradient: Tensor,
    point: Point,
    *,
    physical: bool = False,
    weights: Weights | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum the normal equations of windows, [S, W, k, k] and [S, W, k], over parameters and all locals, and add priors.

    With `physical` the first columns are with respect to values instead of coordinates.
    """
    nl, logs = residuals.locals, len(residuals.windows.logs)
    n = matrix.shape[-1] - nl
    size = n + logs * nl
    full, right = matrix.new_zeros(len(matrix), size, size), matrix.new_zeros(len(matrix), size)
    full[:, :n, :n], right[:, :n] = matrix[..., :n, :n].sum(1), gradient[..., :n].sum(1)
    if not nl and not physical and (unseen := residuals.space.unseen(point.x)) is not None:
        only = forgetting(full, unseen)
        full, right = only @ full @ only.mT, (only @ right[..., None])[..., 0]
    if residuals.prior is not None:
        slope = residuals.prior_slope(point.x, physical=physical)
        distance = residuals.off_prior(point.x) - (0.0 if weights is None else weights.prior)
        full[:, :n, :n] += slope.mT @ slope
        right[:, :n] += (slope.mT @ distance[..., None])[..., 0]
    if nl:
        each = torch.ones_like(point.local) if weights is None else weights.logs[..., None].expand_as(point.local)
        full[:, n:, n:] += torch.diag_embed(each.flatten(1))
        right[:, n:] += (each * point.local).flatten(1)
    for log in range(logs if nl else 0):
        rows, block = residuals.windows.log == log, slice(n + log * nl, n + (log + 1) * nl)
        cross = matrix[:, rows, :n, n:].sum(1)
        full[:, :n, block] += cross
        full[:, block, :n] += cross.mT
        full[:, block, block] += matrix[:, rows, n:, n:].sum(1)
        right[:, block] += gradient[:, rows, n:].sum(1)
    return full, right


def forgetting(information: Tensor, direction: Tensor) -> Tensor:
    """Return what removes from information [..., n, n], and from scores [n], what they say along a direction [..., n].

    It is a projection Q, so that Q I Q^T s = 0 and s^T Q g = 0; directions that are not seen at all stay as they are.
    """
    seen = (information @ direction[..., None])[..., 0]
    power = (seen * direction).sum(-1)[..., None, None].clamp_min(1e-300)
    return torch.eye(direction.shape[-1], dtype=seen.dtype) - seen[..., :, None] * direction[..., None, :] / power


def rescale(residuals: Residuals, solution: Solution) -> tuple[Residuals, Solution]:
    """Return residuals rescaled by their robust size at the best set of a solution, and that set.

    The joint sensor noise, which bounds the initial-state offsets, is reduced to at most that size: where torques jump,
    velocities jump too, and the noise estimated from the log is too large.
    """
    best = solution.point.pick(torch.tensor([solution.best]))
    scale, joints = residuals.robust(best), residuals.noise.joined
    smaller = torch.minimum(joints, scale[: len(joints)])
    changed = residuals.with_scale(scale, Noise(*smaller.chunk(2)))
    # Initial-state offsets keep their physical size.
    if residuals.initials:
        best = replace(best, initial=best.initial * joints / smaller)
    cost = changed.cost(best)
    return changed, replace(solution, point=best, cost=cost, damping=torch.full_like(cost, 1e-2))


def redraw_starts(residuals: Residuals, solution: Solution, *, draws: int = 64, seed: int = 0) -> bool:
    """Redraw the initial states of windows that fit far worse than the others; keep a draw where it fits better.

    A roll-out that hits a stop, or may or may not tip over, can trap its initial state in a local minimum. For each
    such
    window `draws` initial states are tried, the logged one first. Modifies `solution`, of one start, in place. Returns
    whether any initial state was replaced.
    """
    costs = residuals.window_costs(solution.point)[0]
    middle = costs.median()
    deviation = (costs - middle).abs().median() / MEDIAN
    rows = torch.nonzero(costs > middle + 8.0 * deviation)[:, 0]
    if not residuals.initials or not len(rows):
        return False
    point = solution.point
    shape, fixed = (draws, len(rows), residuals.initials), torch.Generator().manual_seed(seed)
    noise = torch.randn(shape, generator=fixed, dtype=torch.float64)
    noise[0] = 0.0
    x, local = (part.expand(draws, *part.shape[1:]) for part in (point.x, point.local))
    least, which = residuals.of_windows(rows).window_costs(Point(x, local, noise)).min(0)
    better = least < costs[rows]
    point.initial[0, rows[better]] = noise[which, torch.arange(len(rows))][better]
    if not bool(better.any()):
        return False
    solution.cost = residuals.cost(point)
    solution.converged[:] = False
    return True


Solver = Callable[..., Solution]
"""Local optimiser with the arguments of `levenberg_marquardt`."""


def fitted(
    residuals: Residuals,
    start: Point,
    iterations: int,
    *,
    rescalings: int = 2,
    stop: Stop | None = None,
    solve: Solver = levenberg_marquardt,
    seed: int = 0,
) -> tuple[Residuals, Solution]:
    """Minimise from one start, alternating with restarts of badly fitting windows and rescaling of channels.

    Args:
        residuals: The residuals to minimise.
        start: The start, of one set.
        iterations: Iteration limit of each search.
        rescalings: Number of rescalings; see `rescale`.
        stop: See `Stop`.
        solve: The local optimiser.
        seed: Seed of the redrawn initial states.

    Returns:
        The residuals in their final scaling, and the solution.
    """
    solution = solve(residuals, start, iterations, stop=stop)
    for round_number in range(rescalings + 1):
        for _ in range(2):
            if not redraw_starts(residuals, solution, seed=seed):
                break
            solution = solve(residuals, solution.point, iterations, stop=stop)
        if round_number < rescalings:
            residuals, solution = rescale(residuals, solution)
            solution = solve(residuals, solution.point, iterations, stop=stop)
    return residuals, solution

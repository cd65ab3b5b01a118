# SPDX-License-Identifier: Apache-2.0
"""Search for the parameters: optional global search, growing horizons, then a local optimiser."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core.progress import stage
from neurodyn.core.seeds import derive_seed
from neurodyn.core.workers import Executor
from neurodyn.identify.choices import Optimiser
from neurodyn.identify.fit.intervals import Identifiability, pseudo_inverse
from neurodyn.identify.fit.least_squares import Solution, Solver, Stop, assemble, fitted, levenberg_marquardt, reduce
from neurodyn.identify.fit.population_search import SEARCHES, cma_es
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.fit.residuals import Point, Residuals
from neurodyn.identify.result import SearchMinima
from neurodyn.identify.settings import IdentificationSettings

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
        out_of_time: Whether the time budget was exhausted.
        derivatives: Whether it uses derivatives.
    """

    settled: bool
    moved: bool
    iterations: int
    out_of_time: bool = False
    derivatives: bool = True


def judge(end: SearchEnd, analysis: Identifiability, curvature: Tensor | None = None) -> Convergence:
    """Decide whether a search converged, from its end, its identifiability, and `curvature` if measured."""
    if not end.derivatives:
        after = f"after {end.iterations} generations"
        if end.out_of_time or not end.settled:
            return Convergence(False, f"the population had not settled {after}")
        return Convergence(True, f"the population settled {after}")
    steps = torch.nan_to_num(analysis.newton, nan=torch.inf)
    worst = int(steps.argmax()) if len(steps) else 0
    length = float(steps[worst]) if len(steps) else 0.0
    if length > SHORT:
        name = analysis.names[worst]
        asks = f"the gradient asks to move {name} by {length:.2g}{'' if not end.moved else ' more'} standard deviations"
        if end.out_of_time:
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


def far_minima(ends: Tensor, costs: Tensor, analysis: Identifiability) -> Convergence | None:
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
    ratios = torch.full((len(analysis.names),), torch.nan, dtype=torch.float64)
    if not residuals.physical:
        return ratios
    n = residuals.parameters
    normal = residuals.normal(point)
    matrix, gradient, back = reduce(residuals, normal)
    full, right = assemble(residuals, matrix, gradient, point)
    chain = residuals.chain(point.x)[0]
    across = (chain - torch.diag(chain.diagonal())) != 0.0
    single = ~(across.any(0) | across.any(1))
    fixed = torch.zeros(full.shape[-1], dtype=torch.bool)
    fixed[:n] = residuals.space.at_active_bound(point.x[0], right[0, :n])
    inverse = pseudo_inverse(full[0], fixed)
    free = torch.nonzero(single & ~fixed[:n] & torch.isfinite(analysis.deviations) & (analysis.deviations > 0.0))[:, 0]
    if not len(free):
        return ratios
    length = 2.0 * analysis.deviations[free] / chain.diagonal()[free]
    moves = inverse[free] / inverse[free, free][:, None] * length[:, None]
    moves = torch.cat([moves, -moves])
    x, local = moves[:, :n], moves[:, n:].reshape(len(moves), len(residuals.windows.logs), residuals.locals)
    shared = torch.cat([x[:, None].expand(-1, residuals.windows.count, n), local[:, residuals.windows.log]], -1)
    initial = back(shared) - back(torch.zeros_like(shared))
    moved_point = Point(point.x + x, point.local + local, point.initial + initial)
    rise = (residuals.cost(moved_point) - residuals.cost(point)).view(2, -1).mean(0)
    inside = (residuals.space.clip(moved_point.x) == moved_point.x).all(1).view(2, -1).all(0)
    predicted = 0.5 * length.square() / inverse[free, free]
    ratios[free] = torch.where(inside, rise / predicted, torch.nan)
    return ratios


_WINDOWS = 48
"""Number of windows in a search from many starts."""
_ENDS = 4
"""Number of solutions, the nominal values included, that are refined on all windows."""
_ABOVE = 3.0
"""Size of a channel's errors, in standard deviations of its noise, above which a fit from one start is not trusted."""


def lbfgs(
    residuals: Residuals,
    start: Point,
    iterations: int,
    *,
    tolerance: float = 1e-9,
    stop: Stop | None = None,
) -> Solution:
    """Minimise the cost of residuals from S starts, one after another, within bounds (L-BFGS-B of SciPy).

    Arguments: see `least_squares.levenberg_marquardt`.
    """
    starts = (start.pick(torch.tensor([k])) for k in range(len(start.x)))
    return Solution.concatenate([_single(residuals, one, iterations, tolerance, stop) for one in starts])


def _single(residuals: Residuals, start: Point, iterations: int, tolerance: float, stop: Stop | None) -> Solution:
    from scipy.optimize import minimize

    shapes = [part.shape for part in (start.x, start.local, start.initial)]
    cuts = np.cumsum([shape.numel() for shape in shapes])[:-1]
    done = 0

    def unpack(vector: np.ndarray) -> Point:
        pieces = np.split(vector, cuts)
        x, local, initial = (torch.from_numpy(p.copy()).view(shape) for p, shape in zip(pieces, shapes, strict=True))
        return Point(x, local, initial)

    def pack(point: Point) -> np.ndarray:
        return torch.cat([part.flatten() for part in (point.x, point.local, point.initial)]).numpy()

    def value(vector: np.ndarray) -> tuple[float, np.ndarray]:
        cost, gradient = residuals.gradients(unpack(vector))
        finite = bool(torch.isfinite(cost).all())
        return (float(cost), np.nan_to_num(pack(gradient))) if finite else (1e300, np.zeros_like(vector))

    def after(intermediate_result: object) -> None:
        nonlocal done
        done += 1
        cost = torch.tensor([float(intermediate_result.fun)], dtype=torch.float64)  # type: ignore[attr-defined]
        if stop is not None and stop(done, cost):
            raise StopIteration

    infinite = np.full(len(pack(start)) - residuals.parameters, np.inf)
    lower = np.concatenate([residuals.space.lower.numpy(), -infinite])
    upper = np.concatenate([residuals.space.upper.numpy(), infinite])
    bounds = list(zip(lower.tolist(), upper.tolist(), strict=True))
    options = {"maxiter": iterations, "ftol": tolerance, "gtol": 1e-9, "maxcor": 30}
    result = minimize(value, pack(start), jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=after)
    cost = torch.tensor([float(result.fun)], dtype=torch.float64)
    settled = torch.tensor([bool(result.success)])
    return Solution(unpack(result.x), cost, torch.full_like(cost, 1e-2), int(result.nit), settled)


_SOLVERS: dict[Optimiser, Solver] = {"levenberg-marquardt": levenberg_marquardt, "l-bfgs": lbfgs, "cma-es": cma_es}

_RESCALINGS = 2
_FIRST_SHARE, _LAST_SHARE = 0.4, 0.2
"""Shares of a search, for its progress: of a first fit that others may follow, and of the fit after many starts."""
Progress = Callable[[str, float, float, float], bool]
"""Called with stage, its share that is done, lowest and highest cost; returns true to stop the search."""


@dataclass(frozen=True)
class Searched:
    """Result of the parameter search.

    Attributes:
        residuals: The residuals in their final scaling.
        point: The solution.
        end: How the search ended.
        ends: Values of the best solutions of a search from several starts, on all windows, best first, shape [K, n].
        costs: Their costs, shape [K].
        stages: Cost of each stage's end on a held-out window, by stage; empty for a search without stages.
        shifts: Moves of the solution for other reasons than noise, shape [moves, n]; None for none.
    """

    residuals: Residuals
    point: Point
    end: SearchEnd
    ends: Tensor
    costs: Tensor
    stages: Mapping[str, float] = field(default_factory=dict)
    shifts: Tensor | None = None

    @classmethod
    def restore(cls, residuals: Residuals, saved: Mapping[str, Tensor]) -> "Searched":
        """Return the result that `state` described, of a search over the same residuals."""
        flags = [bool(flag) for flag in saved["flags"]]
        return cls(
            residuals.with_scale(saved["scale"], Noise(*saved["noise"].chunk(2))),
            Point(saved["x"], saved["local"], saved["initial"]),
            SearchEnd(flags[0], flags[1], int(saved["iterations"]), flags[2], flags[3]), saved["ends"], saved["costs"],
        )  # fmt: skip

    def state(self) -> dict[str, Tensor | int]:
        """Return the result as tensors and numbers for a file."""
        end, residuals = self.end, self.residuals
        flags = torch.tensor([end.settled, end.moved, end.out_of_time, end.derivatives], dtype=torch.uint8)
        return {
            **vars(self.point), "scale": residuals.scale, "noise": residuals.noise.joined, "ends": self.ends,
            "costs": self.costs, "flags": flags, "iterations": end.iterations,
        }  # fmt: skip

    def minima(self, starts: int, names: Sequence[str]) -> SearchMinima | UnsetType:
        """Return the minima of a search from several starts, with the names of the quantities; UNSET for one start."""
        if not len(self.ends):
            return UNSET
        values = {name: self.ends[:, k].tolist() for k, name in enumerate(names)}
        return SearchMinima(starts=starts, costs=self.costs.tolist(), values=values)

    @property
    def stage(self) -> str:
        """Name of the stage whose end is kept."""
        return kept_stage(self.stages) if self.stages else ""


Stage = TypeVar("Stage")
_ALIKE = 1.03
"""Ratio of the costs of held-out windows up to which stages predict them alike."""


def kept_stage(costs: Mapping[Stage, float]) -> Stage:
    """Return the last stage that predicts held-out windows as well as the best one: longer windows tell more."""
    least = min(costs.values())
    return [stage for stage, cost in costs.items() if cost <= _ALIKE * least][-1]


def search(
    residuals: Residuals,
    settings: IdentificationSettings,
    starts: int,
    progress: Progress,
    *,
    run: Path | None = None,
    resume: bool = False,
    executor: Executor | None = None,
) -> Searched:
    """Search the parameters from the nominal values, and from several `starts` if needed.

    Several starts are used if the settings ask for them, or the first fit looks bad (`needs_more_starts`).

    The state of a search from many starts is stored in the folder `run`, and read from there with `resume`. An executor
    distributes candidates over its workers; the result does not depend on it.
    """
    out_of_time = False

    def stop(name: str, most: int) -> Callable[[int, Tensor], bool]:
        left = most

        def called(_: int, cost: Tensor) -> bool:
            nonlocal out_of_time, left
            left = max(0, left - 1)
            done = 1.0 - (left / most) ** 2  # most searches end after half of their iterations
            out_of_time = progress(name, done, float(cost.min()), float(cost.max()))
            return out_of_time

        return called

    def fit(x: Tensor, ends: Tensor, costs: Tensor) -> Searched:
        last, solution = _fit_from(residuals, x, settings, stop, executor)
        best = solution.point.pick(torch.tensor([solution.best]))
        end = SearchEnd(
            settled=bool(solution.converged[solution.best]),
            moved=not torch.equal(best.x[0], residuals.space.nominal),
            iterations=solution.iterations,
            out_of_time=out_of_time,
            derivatives=settings.optimiser != "cma-es",
        )
        return Searched(last, best, end, ends, costs)

    x, begin = residuals.space.nominal[None], 0.0
    if starts == 1 or settings.starts is UNSET:
        begin = 1.0 if starts == 1 else _FIRST_SHARE
        with stage(0.0, begin):
            searched = fit(x, residuals.values(x)[:0], x.new_zeros(0))
        if starts == 1 or out_of_time or not needs_more_starts(searched.residuals, searched.point):
            return searched
        x = searched.point.x
    with stage(begin, 1.0 - _LAST_SHARE):
        x, costs = _from_many_starts(residuals, x, settings, starts, stop, run, resume, executor)
    with stage(1.0 - _LAST_SHARE, 1.0):
        return fit(x[:1], residuals.values(x), costs)


def needs_more_starts(residuals: Residuals, point: Point) -> bool:
    """Return whether a fit may be stuck far from the best one.

    True if a quantity ends at a bound that it did not start at, or the errors of a channel are well above the noise.
    """
    space, x = residuals.space, point.x[0]
    bound = ((x <= space.lower) | (x >= space.upper)) & (x != space.nominal)
    return bool(bound.any()) or bool((residuals.excess(point) > _ABOVE).any())


def _fit_from(
    residuals: Residuals,
    x: Tensor,
    settings: IdentificationSettings,
    stop: Callable[[str, int], Callable[[int, Tensor], bool]],
    executor: Executor | None,
) -> tuple[Residuals, Solution]:
    """Return the solution of the local optimiser from x, after growing horizons, and residuals in its scaling."""
    horizons, passes = len(settings.horizons), 1 + (_RESCALINGS if settings.reweigh else 0)
    grown = horizons / (horizons + passes)
    if horizons:
        with stage(0.0, grown):
            x = _grown(residuals, x, settings, stop("growing horizons", horizons * settings.iterations))
    solve = _SOLVERS[settings.optimiser]
    seed = derive_seed(settings.seed, "search")
    if settings.optimiser == "cma-es":
        solve = partial(cma_es, seed=seed, executor=executor)
    with stage(grown, 1.0):
        return fitted(
            residuals, residuals.start(x), settings.iterations, rescalings=passes - 1,
            stop=stop("parameters", passes * settings.iterations), solve=solve, seed=seed,
        )  # fmt: skip


def _from_many_starts(
    residuals: Residuals,
    first: Tensor,
    settings: IdentificationSettings,
    starts: int,
    stop: Callable[[str, int], Callable[[int, Tensor], bool]],
    run: Path | None,
    resume: bool,
    executor: Executor | None,
) -> tuple[Tensor, Tensor]:
    """Return coordinates and costs of the best solutions, including that from `first`, in ascending order of cost."""
    count = residuals.windows.count
    rows = torch.linspace(0, count - 1, min(count, _WINDOWS)).round().long()
    called = stop(settings.search, settings.rounds)
    members = SEARCHES[settings.search](
        residuals.of_windows(rows), starts, settings.rounds, settings.round_iterations, seed=settings.seed, run=run,
        resume=resume, report=lambda rounds, members: called(rounds, members.cost), executor=executor,
    )  # fmt: skip
    # The first start is included, so that many starts are never worse than one.
    best = torch.cat([members.x[: _ENDS - 1], first])
    solution = levenberg_marquardt(residuals, residuals.start(best), 2 * settings.round_iterations)
    order = solution.cost.argsort()
    return solution.point.x[order], solution.cost[order]


def _grown(
    residuals: Residuals, x: Tensor, settings: IdentificationSettings, stop: Callable[[int, Tensor], bool]
) -> Tensor:
    """Return the solution over successively longer horizons, each search starting from the last solution."""
    dt = residuals.dynamics.spec.dt
    for seconds in settings.horizons:
        short = residuals.within(max(1, round(seconds / dt)))
        x = levenberg_marquardt(short, short.start(x), settings.iterations, stop=stop).point.x
    return x

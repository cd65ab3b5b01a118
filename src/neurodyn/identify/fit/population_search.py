# SPDX-License-Identifier: Apache-2.0
"""Searches with many candidates: parallel basin hopping, and CMA-ES (Hansen 2016, arXiv 1604.00772)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.registry import Registry
from neurodyn.core.seeds import derive_seed
from neurodyn.core.workers import Executor
from neurodyn.identify.fit.least_squares import Solution, Stop, levenberg_marquardt
from neurodyn.identify.fit.residuals import Point, Residuals
from neurodyn.identify.unknowns.search_space import BoxedSpace
from neurodyn.learn.devices import threads

Rows = Callable[[Tensor], tuple[Tensor, ...]]
"""Maps coordinates of shape [S, n] to tensors with S rows."""

_STATE = "basin-hopping"
_SAME = 1e-3
_STEP = 0.2
"""Initial standard deviation of CMA-ES, in units of the coordinates, which are about 1."""


def _local_searches(residuals: Residuals, iterations: int, x: Tensor) -> tuple[Tensor, ...]:
    """Search from starts x, shape [S, n]; return coordinates, costs and which searches converged."""
    solution = levenberg_marquardt(residuals, residuals.start(x), iterations)
    return solution.point.x, solution.cost, solution.converged


def _costs(residuals: Residuals, start: Point, x: Tensor) -> tuple[Tensor, ...]:
    """Return the costs of candidates x, shape [S, n], with everything else from one point."""
    return (residuals.cost(start.at(x)),)


@contextmanager
def share_out(function: Rows, executor: Executor | None) -> Iterator[Rows]:
    """Yield a function whose rows are computed by an executor's workers; without an executor the function itself."""
    if executor is None:
        yield function
        return
    with executor.workers(partial(_on_one_thread, function)) as calls:

        def join(x: Tensor) -> tuple[Tensor, ...]:
            parts = list(calls.map([part.clone() for part in x.tensor_split(min(len(x), calls.count))]))
            return tuple(torch.cat(column) for column in zip(*parts, strict=True))

        yield join


def _on_one_thread(function: Rows, x: Tensor) -> tuple[Tensor, ...]:
    """Call a function in a worker, with sums in the same order as on one machine."""
    with threads(1):
        return function(x)


@dataclass
class Population:
    """State of a population search.

    Attributes:
        x: Coordinates of the members, best first, shape [N, n].
        cost: Costs, shape [N].
        settled: Which local searches converged, shape [N].
        rounds: Completed rounds.
    """

    x: Tensor
    cost: Tensor
    settled: Tensor
    rounds: int = 0


Report = Callable[[int, Population], bool]
"""Called after each round with the number of rounds and the population; returns true to stop the search."""


def basin_hopping(
    residuals: Residuals,
    starts: int | Tensor,
    rounds: int,
    iterations: int,
    *,
    seed: int = 0,
    run: Path | None = None,
    resume: bool = False,
    report: Report | None = None,
    executor: Executor | None = None,
) -> Population:
    """Search for the minimum from many starts by parallel basin hopping.

    Args:
        residuals: The residuals to minimise, with their bounds.
        starts: Number N of starts (the first nominal, the others random), or the starts themselves, shape [N, n].
        rounds: Number of rounds; the first optimises the starts.
        iterations: Iterations of each local search in a round.
        seed: Seed of all random draws.
        run: Run directory, to which the state is written after every round; None to write none.
        resume: Whether to continue from the state in `run`, if there is one.
        report: See `Report`.
        executor: Distributes the local searches of a round over workers; the result does not depend on it.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "basin hopping"))
    if isinstance(starts, int):
        starts = draw_starts(residuals.space, starts, generator)
    infinite = torch.full((len(starts),), torch.inf, dtype=torch.float64)
    members = Population(starts, infinite, torch.zeros(len(starts), dtype=torch.bool))
    if resume and run is not None and has_population(run):
        saved = artifacts.read_tree(run / "state", _STATE)
        generator.set_state(saved["generator"])
        members = Population(saved["x"], saved["cost"], saved["settled"].bool(), int(saved["rounds"]))
    with share_out(partial(_local_searches, residuals, iterations), executor) as searched:
        while members.rounds < rounds:
            members = _round(residuals.space, members, searched, generator)
            if run is not None:
                tree = {**vars(members), "settled": members.settled.to(torch.uint8), "generator": generator.get_state()}
                artifacts.write_tree(run / "state", _STATE, tree)
            if report is not None and report(members.rounds, members):
                break
    return members


def draw_starts(space: BoxedSpace, count: int, generator: torch.Generator) -> Tensor:
    """Draw starts, shape [count, n]: nominal values first, then uniform within bounds, or around nominal without."""
    nominal, shape = space.nominal, (count, len(space.nominal))
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    bounded = torch.isfinite(space.lower) & torch.isfinite(space.upper)
    inside = torch.where(bounded, space.lower, 0.0) + uniform * torch.where(bounded, space.upper - space.lower, 0.0)
    positive = (space.lower == 0.0) & (nominal > 0.0)
    drawn = torch.where(positive, nominal * torch.exp(0.7 * normal), nominal + normal)
    starts = space.clip(torch.where(bounded, inside, drawn))
    starts[0] = nominal
    return starts


def has_population(run: Path) -> bool:
    """Return whether a run directory holds the state of a search."""
    return (run / "state" / f"{_STATE}.json").is_file()


def rounds_done(run: Path) -> int:
    """Return the number of rounds that a run's search has completed."""
    return int(artifacts.read_tree(run / "state", _STATE)["rounds"]) if has_population(run) else 0


def _round(space: BoxedSpace, members: Population, searched: Rows, generator: torch.Generator) -> Population:
    count = len(members.x)
    if members.rounds:
        children = _children(space, members, count - max(1, count // 4), generator)
        going_on = torch.nonzero(~members.settled[: max(1, count // 4)])[:, 0]
        x = torch.cat([members.x[going_on], children])
    else:
        x = members.x
    pool_x, pool_cost, settled = searched(x)
    if members.rounds:
        pool_x, pool_cost = torch.cat([members.x, pool_x]), torch.cat([members.cost, pool_cost])
        settled = torch.cat([members.settled, settled])
    best = _select(pool_x, pool_cost, count)
    return Population(pool_x[best], pool_cost[best], settled[best], members.rounds + 1)


def _select(x: Tensor, cost: Tensor, count: int) -> Tensor:
    """Return the best members that differ from each other, filled up with the best of the rest."""
    order = torch.argsort(cost, stable=True).tolist()
    kept: list[int] = []
    for index in order:
        known = x[kept]
        same = (known - x[index]).abs() <= _SAME * torch.maximum(known.abs(), x[index].abs()).clamp_min(1e-3)
        if not len(kept) or not bool(same.all(1).any()):
            kept.append(index)
    kept += [index for index in order if index not in kept]
    return torch.tensor(kept[:count])


def _children(space: BoxedSpace, members: Population, count: int, generator: torch.Generator) -> Tensor:
    better = max(2, len(members.x) // 2) if len(members.x) > 1 else 1
    n = members.x.shape[1]
    parents = torch.randint(better, (2, count), generator=generator)
    first, second = members.x[parents[0]], members.x[parents[1]]
    share = torch.rand((count, n), generator=generator, dtype=torch.float64) * 1.5 - 0.25
    mixed = first + share * (second - first)
    scale = 10.0 ** (-2.0 * torch.rand((count, 1), generator=generator, dtype=torch.float64))
    chosen = torch.rand((count, n), generator=generator, dtype=torch.float64) < 0.5
    width = space.upper - space.lower
    width = torch.where(torch.isfinite(width), width, mixed.abs().clamp_min(1.0))
    change = scale * width * torch.randn((count, n), generator=generator, dtype=torch.float64)
    return space.clip(mixed + torch.where(chosen, change, 0.0))


def cma_es(
    residuals: Residuals,
    start: Point,
    iterations: int,
    *,
    tolerance: float = 1e-9,
    stop: Stop | None = None,
    seed: int = 0,
    executor: Executor | None = None,
) -> Solution:
    """Minimise the cost of residuals by CMA-ES from S starts, one after another, over the parameters alone.

    Arguments: see `least_squares.levenberg_marquardt`; an iteration is a generation. Initial states and per-log
    quantities stay fixed. All draws come from `seed`. An executor distributes the candidates of a generation over its
    workers; the result does not depend on it.
    """
    parts = []
    for k in range(len(start.x)):
        first = start.pick(torch.tensor([k]))
        with share_out(partial(_costs, residuals, first), executor) as costs:
            parts.append(_evolve(residuals, first, costs, iterations, tolerance, stop, derive_seed(seed, "cma-es", k)))
    return Solution.concatenate(parts)


def _evolve(
    residuals: Residuals, start: Point, costs: Rows, iterations: int, tolerance: float, stop: Stop | None, seed: int
) -> Solution:
    from cmaes import CMA

    space, n = residuals.space, start.x.shape[1]
    size = max(n, 2)  # the library needs two dimensions: a single coordinate gets one without effect
    bounds = np.full((size, 2), (-np.inf, np.inf))
    bounds[:n] = torch.stack([space.lower, space.upper], -1).numpy()
    mean = np.zeros(size)
    mean[:n] = start.x[0].numpy()
    optimiser = CMA(mean=mean, sigma=_STEP, bounds=bounds, seed=seed % (1 << 32))
    best, least = start.x, residuals.cost(start)
    done, settled = 0, False
    while done < iterations and not settled:
        asked = [optimiser.ask() for _ in range(optimiser.population_size)]
        x = torch.from_numpy(np.stack(asked))[:, :n]
        (cost,) = costs(x)
        optimiser.tell(list(zip(asked, cost.tolist(), strict=True)))
        better = cost.sort().values[: len(cost) // 2]
        if better[:1] < least:
            best, least = x[cost.argmin()][None], better[:1]
        settled = optimiser.should_stop() or bool(better[-1] - better[0] <= tolerance * least)
        done += 1
        if stop is not None and stop(done, least):
            break
    return Solution(replace(start, x=best), least, torch.full_like(least, 1e-2), done, torch.tensor([settled]))


SEARCHES: Registry[Callable[..., Population]] = Registry("search")
"""Global searches by name, each with the arguments of `basin_hopping`."""

SEARCHES.add("basin-hopping", basin_hopping)

# SPDX-License-Identifier: Apache-2.0
"""Parallel basin hopping: many local searches at once, as worlds; the best are combined and mutated.

Landscapes of mechanisms are full of local minima (NeuralSim, arXiv 2011.04217, section III-E). Every round each member
of a population is optimised locally for a few iterations; the best quarter survives unchanged, and children of the
better half replace the worse members: coordinates of two parents, mixed and mutated on a scale that is drawn for each
child. The same seed gives the same result, resumed or not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.seeds import derive_seed
from neurodyn.core.workers import Executor
from neurodyn.identify.optimisers.candidates import LocalSearches, Rows, shared_out
from neurodyn.identify.residuals import Residuals, Space

_STATE = "basin-hopping"
_SAME = 1e-3


@dataclass
class Population:
    """The state of a search.

    Attributes:
        x: Coordinates of the members, best first, shape [N, n].
        cost: Their costs, shape [N].
        settled: Members whose local search has converged, shape [N].
        rounds: Rounds that are done.
    """

    x: Tensor
    cost: Tensor
    settled: Tensor
    rounds: int = 0


Report = Callable[[int, Population], bool]
"""Called after each round with the rounds done and the population; ends the search where it returns true."""


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
    """Search from many starts.

    Args:
        residuals: The residuals that are minimised, and the bounds.
        starts: Number N of starts, of which the first is nominal and the others are drawn, or starts, shape [N, n].
        rounds: Rounds; the first optimises the starts.
        iterations: Iterations of the local searches in a round.
        seed: Seed of all draws.
        run: Run directory whose state is written after every round; None to write none.
        resume: Whether to continue from the run's state, where there is one.
        report: See `Report`.
        executor: Whose workers share the local searches of a round; the result does not depend on it.
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
    with shared_out(LocalSearches(residuals, iterations), executor) as searched:
        while members.rounds < rounds:
            members = _round(residuals.space, members, searched, generator)
            if run is not None:
                tree = {**vars(members), "settled": members.settled.to(torch.uint8), "generator": generator.get_state()}
                artifacts.write_tree(run / "state", _STATE, tree)
            if report is not None and report(members.rounds, members):
                break
    return members


def draw_starts(space: Space, count: int, generator: torch.Generator) -> Tensor:
    """Return starts, shape [count, n]: nominal, then uniform in bounds, or about nominal where there are none."""
    nominal, shape = space.nominal, (count, len(space.nominal))
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    bounded = torch.isfinite(space.lower) & torch.isfinite(space.upper)
    inside = torch.where(bounded, space.lower, 0.0) + uniform * torch.where(bounded, space.upper - space.lower, 0.0)
    positive = (space.lower == 0.0) & (nominal > 0.0)
    drawn = torch.where(positive, nominal * torch.exp(0.7 * normal), nominal + normal)
    starts = space.clipped(torch.where(bounded, inside, drawn))
    starts[0] = nominal
    return starts


def has_population(run: Path) -> bool:
    """Return whether a run directory holds the state of a search."""
    return (run / "state" / f"{_STATE}.json").is_file()


def rounds_done(run: Path) -> int:
    """Return the rounds that a run's search has done."""
    return int(artifacts.read_tree(run / "state", _STATE)["rounds"]) if has_population(run) else 0


def _round(space: Space, members: Population, searched: Rows, generator: torch.Generator) -> Population:
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
    best = _selected(pool_x, pool_cost, count)
    return Population(pool_x[best], pool_cost[best], settled[best], members.rounds + 1)


def _selected(x: Tensor, cost: Tensor, count: int) -> Tensor:
    """Return the best members that differ from each other, then the best of the rest."""
    order = torch.argsort(cost, stable=True).tolist()
    kept: list[int] = []
    for index in order:
        known = x[kept]
        same = (known - x[index]).abs() <= _SAME * torch.maximum(known.abs(), x[index].abs()).clamp_min(1e-3)
        if not len(kept) or not bool(same.all(1).any()):
            kept.append(index)
    kept += [index for index in order if index not in kept]
    return torch.tensor(kept[:count])


def _children(space: Space, members: Population, count: int, generator: torch.Generator) -> Tensor:
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
    return space.clipped(mixed + torch.where(chosen, change, 0.0))

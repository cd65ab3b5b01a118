# SPDX-License-Identifier: Apache-2.0
"""Islands of pygmo: populations that evolve by algorithms of their own and send their best around a ring.

Each island has another algorithm (self-adaptive differential evolution, CMA-ES, a swarm ...), none of which takes
derivatives. After every round the best member of an island replaces the worst of the next (Izzo, Rucinski and Biscani
2012, "The generalized island model"). Islands evolve one after the other, so that the same seed gives the same result;
their champions are polished by least squares. Needs pygmo (`neurodyn[search]`).
"""

from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.identify.optimisers.basin_hopping import Population, Report, draw_starts
from neurodyn.identify.optimisers.least_squares import levenberg_marquardt
from neurodyn.identify.optimisers.searches import Search
from neurodyn.identify.residuals import Residuals, Space

ALGORITHMS = ("sade", "cmaes", "de1220", "pso")
"""Algorithms of the islands, in turn."""
_LEAST = 8
"""Fewest members of an island: self-adaptive differential evolution takes seven."""
_STATE = "islands"


def islands(
    residuals: Residuals,
    starts: int | Tensor,
    rounds: int,
    iterations: int,
    *,
    seed: int = 0,
    run: Path | None = None,
    resume: bool = False,
    report: Report | None = None,
) -> Population:
    """Search from many starts; arguments as of `basin_hopping`, an iteration is a generation of each island.

    Raises:
        InputError: pygmo is not installed, or a free quantity has no bounds on both sides.
    """
    pygmo = require(residuals)
    generator = torch.Generator().manual_seed(derive_seed(seed, "islands"))
    first = draw_starts(residuals.space, starts, generator) if isinstance(starts, int) else starts
    found = _Archipelago(pygmo, residuals, first, iterations, seed)
    done = 0
    if resume and run is not None and (run / "state" / f"{_STATE}.json").is_file():
        saved = artifacts.read_tree(run / "state", _STATE)
        done = int(saved["rounds"])
        found.put(saved["x"], saved["cost"])
    while done < rounds:
        found.evolve(done)
        done += 1
        if run is not None:
            x, cost = found.members()
            artifacts.write_tree(run / "state", _STATE, {"x": x, "cost": cost, "rounds": done})
        if report is not None and report(done, found.champions(done)):
            break
    champions = found.champions(done)
    solution = levenberg_marquardt(residuals, residuals.start(champions.x), iterations)
    order = solution.cost.argsort()
    return Population(solution.point.x[order], solution.cost[order], solution.converged[order], done)


def require(residuals: Residuals) -> ModuleType:
    """Return pygmo, or refuse residuals that populations cannot search; errors as of `islands`."""
    pygmo = _pygmo()
    _require_bounds(residuals.space)
    return pygmo


def _pygmo() -> ModuleType:
    try:
        import pygmo
    except ModuleNotFoundError:
        raise InputError(
            "search: islands needs the package pygmo; install neurodyn[search], or search: basin-hopping"
        ) from None
    return pygmo


def _require_bounds(space: Space) -> None:
    bounded = torch.isfinite(space.lower) & torch.isfinite(space.upper)
    without = [name for name, both in zip(space.names, bounded.tolist(), strict=True) if not both]
    if without:
        raise InputError(
            f"search: islands draws between bounds, which {', '.join(without)} lacks; valid: NAME=LOWER:UPPER for "
            "each, or search: basin-hopping"
        )


class _Problem:
    """The cost as pygmo calls it, over the parameters alone."""

    def __init__(self, residuals: Residuals) -> None:
        self._residuals = residuals

    def fitness(self, x: Any) -> list[float]:
        """Return the cost; what is not finite is very large."""
        point = self._residuals.start(torch.from_numpy(x.copy())[None])
        cost = float(self._residuals.cost(point)[0])
        return [cost if cost < 1e300 else 1e300]

    def get_bounds(self) -> tuple[list[float], list[float]]:
        """Return the bounds."""
        space = self._residuals.space
        return space.lower.tolist(), space.upper.tolist()

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Problem":
        return self  # compiled programs are shared


class _Archipelago:
    def __init__(self, pygmo: ModuleType, residuals: Residuals, starts: Tensor, generations: int, seed: int) -> None:
        self._pygmo, self._generations, self._seed = pygmo, generations, seed
        self._problem = pygmo.problem(_Problem(residuals))
        count = min(len(ALGORITHMS), max(1, len(starts) // _LEAST))
        generator = torch.Generator().manual_seed(derive_seed(seed, "islands", "fill"))
        more = draw_starts(residuals.space, max(1, _LEAST * count - len(starts) + 1), generator)[1:]
        starts = torch.cat([starts, more])
        self._islands = [starts[k::count] for k in range(count)]
        self._costs = [residuals.cost(residuals.start(x)).clamp_max(1e300) for x in self._islands]

    def members(self) -> tuple[Tensor, Tensor]:
        """Return all members, island by island, and their costs."""
        return torch.cat(self._islands), torch.cat(self._costs)

    def put(self, x: Tensor, cost: Tensor) -> None:
        """Set all members, as `members` returned them."""
        sizes = [len(part) for part in self._islands]
        self._islands, self._costs = list(x.split(sizes)), list(cost.split(sizes))

    def evolve(self, number: int) -> None:
        """Evolve each island, then send its best to the next one."""
        for k in range(len(self._islands)):
            self._evolve(k, derive_seed(self._seed, "islands", number, k) % 2**32)
        best = [(x[c.argmin()].clone(), c.min().clone()) for x, c in zip(self._islands, self._costs, strict=True)]
        for k, (x, cost) in enumerate(best if len(best) > 1 else []):
            following = (k + 1) % len(best)
            worst = int(self._costs[following].argmax())
            self._islands[following][worst], self._costs[following][worst] = x, cost

    def champions(self, rounds: int) -> Population:
        """Return the best of each island, the best island first."""
        x = torch.stack([x[c.argmin()] for x, c in zip(self._islands, self._costs, strict=True)])
        cost = torch.stack([c.min() for c in self._costs])
        order = cost.argsort()
        return Population(x[order], cost[order], torch.zeros(len(x), dtype=torch.bool), rounds)

    def _evolve(self, k: int, seed: int) -> None:
        name = ALGORITHMS[k % len(ALGORITHMS)]
        options = {"force_bounds": True} if name == "cmaes" else {}
        algorithm = self._pygmo.algorithm(getattr(self._pygmo, name)(gen=self._generations, seed=seed, **options))
        population = self._pygmo.population(self._problem, seed=seed)
        for x, cost in zip(self._islands[k].numpy(), self._costs[k].tolist(), strict=True):
            population.push_back(x, [cost])
        population = algorithm.evolve(population)
        self._islands[k] = torch.from_numpy(population.get_x().copy())
        self._costs[k] = torch.from_numpy(population.get_f()[:, 0].copy())


ISLANDS = Search(islands, require)

# SPDX-License-Identifier: Apache-2.0
"""Islands of pygmo: populations that evolve by algorithms of their own and send their best around a ring.

Each island has another algorithm (self-adaptive differential evolution, CMA-ES, a swarm ...), none of which takes
derivatives. After every round the best member of an island replaces the worst of the next (Izzo, Rucinski and Biscani
2012, "The generalized island model"). Within a round islands know nothing of each other, and each has a seed of its
own, so that the same seed gives the same result, one island after the other or each on a worker of a cluster; their
champions are polished by least squares. Needs pygmo (`neurodyn[search]`).
"""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.core.workers import Calls, Executor, Workers
from neurodyn.identify.optimisers.basin_hopping import Population, Report, draw_starts
from neurodyn.identify.optimisers.least_squares import levenberg_marquardt
from neurodyn.identify.optimisers.searches import Search
from neurodyn.identify.residuals import Residuals, Space
from neurodyn.learn.devices import threads

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
    executor: Executor | None = None,
) -> Population:
    """Search from many starts; arguments as of `basin_hopping`, an iteration is a generation of each island.

    Raises:
        InputError: pygmo is not installed, or a free quantity has no bounds on both sides.
    """
    require(residuals)
    generator = torch.Generator().manual_seed(derive_seed(seed, "islands"))
    first = draw_starts(residuals.space, starts, generator) if isinstance(starts, int) else starts
    found = _Archipelago(residuals, first, seed)
    done = 0
    if resume and run is not None and (run / "state" / f"{_STATE}.json").is_file():
        saved = artifacts.read_tree(run / "state", _STATE)
        done = int(saved["rounds"])
        found.put(saved["x"], saved["cost"])
    evolution = Evolution(residuals, iterations)
    with Workers(evolution, 1) if executor is None else executor.workers(evolution) as calls:
        while done < rounds:
            found.evolve(done, calls)
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


def require(residuals: Residuals) -> None:
    """Refuse residuals that populations cannot search, and to go on without pygmo; errors as of `islands`."""
    _pygmo()
    _require_bounds(residuals.space)


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


@dataclass(frozen=True)
class Island:
    """One island at the start of a round.

    Attributes:
        algorithm: Name of the algorithm by which it evolves.
        seed: Seed of the round.
        x: Coordinates of its members, shape [N, n].
        cost: Their costs, shape [N].
    """

    algorithm: str
    seed: int
    x: Tensor
    cost: Tensor


@dataclass(frozen=True)
class Evolution:
    """A round of one island, whichever process it is on.

    Attributes:
        residuals: What is minimised.
        generations: Generations of a round.
    """

    residuals: Residuals
    generations: int

    def __call__(self, island: Island) -> tuple[Tensor, Tensor]:
        """Return the members of an island after a round, shape [N, n], and their costs, shape [N]."""
        pygmo = _pygmo()
        options = {"force_bounds": True} if island.algorithm == "cmaes" else {}
        make = getattr(pygmo, island.algorithm)
        algorithm = pygmo.algorithm(make(gen=self.generations, seed=island.seed, **options))
        population = pygmo.population(pygmo.problem(_Problem(self.residuals)), seed=island.seed)
        for x, cost in zip(island.x.numpy(), island.cost.tolist(), strict=True):
            population.push_back(x, [cost])
        with threads(1):
            population = algorithm.evolve(population)
        return torch.from_numpy(population.get_x().copy()), torch.from_numpy(population.get_f()[:, 0].copy())


class _Archipelago:
    def __init__(self, residuals: Residuals, starts: Tensor, seed: int) -> None:
        self._seed = seed
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

    def evolve(self, number: int, calls: Calls[Island, tuple[Tensor, Tensor]]) -> None:
        """Evolve each island, then send its best to the next one."""
        asked = [
            Island(ALGORITHMS[k % len(ALGORITHMS)], derive_seed(self._seed, "islands", number, k) % 2**32, x, cost)
            for k, (x, cost) in enumerate(zip(self._islands, self._costs, strict=True))
        ]
        evolved = list(calls.map(asked))
        self._islands, self._costs = [x for x, _ in evolved], [cost for _, cost in evolved]
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


ISLANDS = Search(islands, require)

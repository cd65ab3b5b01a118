# SPDX-License-Identifier: Apache-2.0
r"""CMA-ES: covariance matrix adaptation, a search without derivatives (Hansen 2016, arXiv 1604.00772).

Over several impacts a roll-out's derivatives say nothing of where the cost is lower: they are large and of either sign.
A population sees the cost on the scale on which it is a valley at all. The mean of the better half of

$$x_i = m + \sigma\,B D z_i, \qquad z_i \sim N(0, 1), \qquad C = B D^2 B^T$$

becomes the next m; step size and covariance follow the paths that m takes (his equations 41-49). A generation is one
batch of roll-outs. Candidates beyond a bound are moved onto it.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.seeds import derive_seed
from neurodyn.core.workers import Executor
from neurodyn.identify.optimisers.candidates import Costs, Rows, shared_out
from neurodyn.identify.optimisers.least_squares import Solution, Stop
from neurodyn.identify.residuals import Point, Residuals

_STEP = 0.2
"""First standard deviation, in units of the coordinates, which are about 1."""


@dataclass(frozen=True)
class _Rates:
    """Constants of a search in n dimensions (Hansen's table 1)."""

    weights: Tensor
    mass: float
    path: float
    damping: float
    covariance_path: float
    one: float
    many: float
    length: float

    @classmethod
    def of(cls, n: int, population: int) -> "_Rates":
        better = population // 2
        weights = math.log((population + 1) / 2) - torch.log(torch.arange(1, better + 1, dtype=torch.float64))
        weights = weights / weights.sum()
        mass = 1.0 / float(weights.square().sum())
        path = (mass + 2) / (n + mass + 5)
        one = 2 / ((n + 1.3) ** 2 + mass)
        return cls(
            weights=weights,
            mass=mass,
            path=path,
            damping=1 + 2 * max(0.0, math.sqrt((mass - 1) / (n + 1)) - 1) + path,
            covariance_path=(4 + mass / n) / (n + 4 + 2 * mass / n),
            one=one,
            many=min(1 - one, 2 * (mass - 2 + 1 / mass) / ((n + 2) ** 2 + mass)),
            length=math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n)),
        )


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
    """Minimise the cost of residuals from S starts, one after the other, over the parameters alone.

    Arguments as of `least_squares.levenberg_marquardt`; an iteration is a generation. The starting states of windows
    and what is free for single logs stay as they are. All draws come from `seed`.
    The workers of an executor share the candidates of a generation; the result does not depend on them.
    """
    found = []
    for k in range(len(start.x)):
        first = start.pick(torch.tensor([k]))
        with shared_out(Costs(residuals, first), executor) as costs:
            found.append(_search(residuals, first, costs, iterations, tolerance, stop, derive_seed(seed, "cma-es", k)))
    x, cost = (torch.stack(parts) for parts in zip(*((x, cost) for x, cost, _, _ in found), strict=True))
    return Solution(
        Point(x, start.local, start.initial),
        cost,
        torch.full_like(cost, 1e-2),
        max(done for _, _, done, _ in found),
        torch.tensor([settled for _, _, _, settled in found]),
    )


def _search(
    residuals: Residuals, start: Point, costs: Rows, iterations: int, tolerance: float, stop: Stop | None, seed: int
) -> tuple[Tensor, Tensor, int, bool]:
    """Return the best coordinates, their cost, the generations, and whether the search has settled."""
    n = start.x.shape[1]
    population = 4 + int(3 * math.log(n))
    rates, eye = _Rates.of(n, population), torch.eye(n, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    mean, sigma, covariance = start.x[0], _STEP, eye
    path = covariance_path = torch.zeros(n, dtype=torch.float64)
    best, least = mean, residuals.cost(start)[0]

    for generation in range(1, iterations + 1):
        lengths, axes = torch.linalg.eigh(covariance)
        lengths = lengths.clamp_min(1e-20).sqrt()
        drawn = torch.randn(population, n, generator=generator, dtype=torch.float64)
        x = residuals.space.clipped(mean + sigma * (drawn * lengths) @ axes.T)
        (cost,) = costs(x)
        order = torch.argsort(cost, stable=True)[: len(rates.weights)]
        if cost[order[0]] < least:
            best, least = x[order[0]], cost[order[0]]
        steps = (x[order] - mean) / sigma
        step = rates.weights @ steps
        mean = mean + sigma * step
        whitened = axes @ ((axes.T @ step) / lengths)
        path = (1 - rates.path) * path + math.sqrt(rates.path * (2 - rates.path) * rates.mass) * whitened
        grown = float(path.norm()) / math.sqrt(1 - (1 - rates.path) ** (2 * generation))
        steady = grown < (1.4 + 2 / (n + 1)) * rates.length
        own = rates.covariance_path
        covariance_path = (1 - own) * covariance_path + steady * math.sqrt(own * (2 - own) * rates.mass) * step
        covariance = (
            (1 - rates.one - rates.many) * covariance
            + rates.one * torch.outer(covariance_path, covariance_path)
            + rates.many * (steps.T * rates.weights) @ steps
        )
        sigma *= math.exp(rates.path / rates.damping * (float(path.norm()) / rates.length - 1))
        spread = float(cost[order[-1]] - cost[order[0]])
        settled = sigma * float(lengths.max()) < 1e-6 or spread <= tolerance * float(least)
        if settled or (stop is not None and stop(generation, least[None])):
            return best, least, generation, settled
    return best, least, iterations, False

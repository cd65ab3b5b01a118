# SPDX-License-Identifier: Apache-2.0
"""By how much the return of policies in a model is off that in a reference, and how well that is known.

As the paper compares dynamics (NeRD, arXiv 2508.15755): $|R_{model} - R_{ref}| / |R_{ref}|$ of the mean returns. Its
interval is of the signed ratio, from policies and episodes drawn with replacement (Efron, "Bootstrap methods: another
look at the jackknife", The Annals of Statistics 7, 1979).
"""

from collections.abc import Collection, Sequence
from itertools import combinations

import numpy as np
from torch import Tensor

from neurodyn.control.resolve import ANALYTIC
from neurodyn.core.records import Record

LEVEL = 0.95
"""Share of the draws within the interval."""
_DRAWS = 2000
_TINY = 1e-12


class RewardError(Record, frozen=True):
    """How far the returns in dynamics `b` are from those in `a`.

    Attributes:
        a: The reference: the simulator where it is one of the two, else the first.
        b: The other dynamics.
        difference: Mean return in b less that in a.
        relative: Its size, as a share of that in a.
        by_episode: Mean size of the difference between episodes of the same policy and start; None unless `paired`.
        interval: Lower and upper bound of `difference` as a share of the return in a, at the level of 95 %; None where
            there is nothing to draw from, a single episode.
        paired: Whether episodes start in the same states, those of the task. After windows of a log they do not, and
            the difference is also one between starts.
    """

    a: str
    b: str
    difference: float
    relative: float
    by_episode: float | None
    interval: tuple[float, float] | None = None
    paired: bool = True


def reward_errors(
    returns: dict[str, Sequence[Tensor]], logged: Collection[str] = (), seed: int = 0
) -> list[RewardError]:
    """Return the differences of returns between pairs of dynamics.

    Args:
        returns: By dynamics, the returns of the episodes of each policy, shape [episodes]; policies and starts are in
            the same order everywhere.
        logged: Dynamics in which episodes start after windows of a log.
        seed: Seed of the intervals' draws.
    """
    values = {name: np.stack([one.double().numpy() for one in policies]) for name, policies in returns.items()}
    names = sorted(values, key=lambda name: name != ANALYTIC)
    return [
        _between(a, b, values[a], values[b], seed, paired=a not in logged and b not in logged)
        for a, b in combinations(names, 2)
    ]


def _between(a: str, b: str, one: np.ndarray, other: np.ndarray, seed: int, *, paired: bool) -> RewardError:
    difference = float(other.mean() - one.mean())
    return RewardError(
        a=a,
        b=b,
        difference=difference,
        relative=abs(difference) / max(abs(float(one.mean())), _TINY),
        by_episode=float(np.abs(other - one).mean()) if paired else None,
        interval=_interval(one, other, np.random.default_rng(seed), paired=paired) if one.size > 1 else None,
        paired=paired,
    )


def _interval(one: np.ndarray, other: np.ndarray, rng: np.random.Generator, *, paired: bool) -> tuple[float, float]:
    """Draw policies, and of each its episodes, in both dynamics the same if paired; shapes [policies, episodes]."""
    policies, episodes = one.shape
    found = np.empty(_DRAWS)
    for draw in range(_DRAWS):
        rows = rng.integers(policies, size=(policies, 1))
        columns = rng.integers(episodes, size=(policies, episodes))
        first = one[rows, columns].mean()
        others = columns if paired else rng.integers(episodes, size=(policies, episodes))
        found[draw] = (other[rows, others].mean() - first) / max(abs(first), _TINY)
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)

# SPDX-License-Identifier: Apache-2.0
"""The space of a sweep: values or ranges by name, and who chooses from them: a grid, chance, or Optuna."""

import math
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from typing import Any, Protocol

import numpy as np

from neurodyn.core.config import Config
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry
from neurodyn.core.seeds import generator

MOST = 10_000
"""Most settings of a sweep."""

Values = dict[str, Any]
"""What one setting of a sweep gives to each name."""


class Range(Config, frozen=True):
    """Numbers between two bounds.

    Attributes:
        lower: Least.
        upper: Greatest.
        log: Whether their logarithm is spread evenly.
        whole: Whether they are whole numbers.
    """

    lower: float
    upper: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lower) and math.isfinite(self.upper) and self.lower < self.upper):
            raise ValueError(f"bounds are {self.lower:g} and {self.upper:g}; valid: finite, the lower one first")
        if self.log and self.lower <= 0:
            raise ValueError(f"lower is {self.lower:g}; valid with log: above 0")
        if self.whole and (self.lower % 1 or self.upper % 1):
            raise ValueError(f"bounds are {self.lower:g} and {self.upper:g}; valid with whole: whole numbers")

    def at(self, share: float) -> float | int:
        """Return the number at a share of the range, between 0 and 1."""
        if self.whole:
            low, high = self.lower - 0.5, self.upper + 0.5
            found = low * (high / low) ** share if self.log else low + share * (high - low)
            return int(min(max(round(found), self.lower), self.upper))
        return self.lower * (self.upper / self.lower) ** share if self.log else (
            self.lower + share * (self.upper - self.lower)
        )  # fmt: skip


Space = Mapping[str, tuple[Any, ...] | Range]
"""Values, or a range of numbers, by name."""


class Chooser(Protocol):
    """Chooses one setting after another.

    Attributes:
        count: How many it chooses.
    """

    count: int

    def choose(self, number: int) -> Values:
        """Return a setting; numbers are asked for in their order."""
        ...

    def replay(self, number: int, values: Values) -> None:
        """Take note of a setting that was chosen before the sweep was resumed, in place of `choose`."""
        ...

    def tell(self, number: int, score: float | None) -> None:
        """Take note of the mean figure of a setting, of which less is better; None where it failed."""
        ...


class Grid:
    """Every combination of the values; see `Chooser`."""

    def __init__(self, space: Space, samples: int | None, seed: int) -> None:
        if samples is not None:
            raise InputError("samples is for search random and optuna; a grid has as many as it has combinations")
        ranges = [name for name, entry in space.items() if isinstance(entry, Range)]
        if ranges:
            raise InputError(f"search grid takes values, and {', '.join(ranges)} is a range; valid: a list, or random")
        self.count = math.prod(len(_listed(entry)) for entry in space.values())
        require_count(self.count)
        self._all = [dict(zip(space, row, strict=True)) for row in product(*(_listed(e) for e in space.values()))]

    def choose(self, number: int) -> Values:
        """See `Chooser`."""
        return self._all[number]

    def replay(self, number: int, values: Values) -> None:
        """See `Chooser`."""

    def tell(self, number: int, score: float | None) -> None:
        """See `Chooser`."""


class Chance(Grid):
    """Independent draws; setting k depends on (seed, k) alone; see `Chooser`."""

    def __init__(self, space: Space, samples: int | None, seed: int) -> None:
        self.count = required_samples(samples, "random")
        self._all = [_drawn(space, generator(seed, "sweep", number)) for number in range(self.count)]


class Optuna:
    """Optuna's tree-structured Parzen estimator: settings near those that were good before; see `Chooser`.

    Which settings it chooses depends on the order in which trials end, unless there is one worker.
    """

    def __init__(self, space: Space, samples: int | None, seed: int) -> None:
        if find_spec("optuna") is None:
            raise InputError(
                "search optuna needs a package that is not installed (optuna); install it with: pip install optuna, or "
                "take search: random"
            )
        import optuna

        optuna.logging.set_verbosity(optuna.logging.CRITICAL)
        self.count = required_samples(samples, "optuna")
        self._optuna, self._space = optuna, space
        self._distributions = {name: self._distribution(entry) for name, entry in space.items()}
        sampler = optuna.samplers.TPESampler(seed=seed % 2**32)
        self._study = optuna.create_study(sampler=sampler, direction="minimize")
        self._asked: dict[int, Any] = {}

    def choose(self, number: int) -> Values:
        """See `Chooser`."""
        self._asked[number] = asked = self._study.ask(self._distributions)
        return {
            name: entry[asked.params[name]] if isinstance(entry, tuple) else asked.params[name]
            for name, entry in self._space.items()
        }

    def replay(self, number: int, values: Values) -> None:
        """See `Chooser`."""
        known = {
            name: entry.index(values[name]) if isinstance(entry, tuple) else values[name]
            for name, entry in self._space.items()
        }
        self._study.enqueue_trial(known)
        self._asked[number] = self._study.ask(self._distributions)

    def tell(self, number: int, score: float | None) -> None:
        """See `Chooser`."""
        if score is None:
            self._study.tell(self._asked[number], state=self._optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(self._asked[number], score)

    def _distribution(self, entry: tuple[Any, ...] | Range) -> Any:
        kinds = self._optuna.distributions
        if isinstance(entry, tuple):
            return kinds.CategoricalDistribution(range(len(entry)))
        if entry.whole:
            return kinds.IntDistribution(int(entry.lower), int(entry.upper), log=entry.log)
        return kinds.FloatDistribution(entry.lower, entry.upper, log=entry.log)


SEARCHES: Registry[Callable[[Space, int | None, int], Chooser]] = Registry("search")
"""Who chooses the settings of a sweep, by name; called with the space, the number of samples and the seed."""
SEARCHES.add("grid", Grid)
SEARCHES.add("random", Chance)
SEARCHES.add("optuna", Optuna)


def require_count(count: int) -> None:
    """Refuse sweeps of no settings, or of more than anybody would wait for, with an InputError."""
    if not 1 <= count <= MOST:
        raise InputError(f"the sweep has {count:,} settings; valid: 1 to {MOST:,}")


def required_samples(samples: int | None, search: str) -> int:
    """Return the number of settings that are drawn; for errors see `require_count`."""
    if samples is None:
        raise InputError(f"search {search} needs a number of samples; valid: samples: 20, say")
    require_count(samples)
    return samples


def corners(space: Space) -> list[Values]:
    """Return settings that hold each value, and both ends of each range, at least once."""
    ends = {
        name: [entry.at(0.0), entry.at(1.0)] if isinstance(entry, Range) else list(entry)
        for name, entry in space.items()
    }
    first = {name: values[0] for name, values in ends.items()}
    return [first, *({**first, name: value} for name, values in ends.items() for value in values[1:])]


def _listed(entry: tuple[Any, ...] | Range) -> Sequence[Any]:
    assert isinstance(entry, tuple)
    return entry


def _drawn(space: Space, rng: np.random.Generator) -> Values:
    return {
        name: entry.at(float(rng.random())) if isinstance(entry, Range) else entry[int(rng.integers(len(entry)))]
        for name, entry in space.items()
    }

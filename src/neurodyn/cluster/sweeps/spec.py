# SPDX-License-Identifier: Apache-2.0
"""The file of a sweep: training, settings to vary and search; checked before any work."""

import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from neurodyn.cluster.sweeps.trainings import TRAININGS, Training
from neurodyn.core.config import Config, from_dict, read_plain, to_dict
from neurodyn.core.config import plain as as_lists
from neurodyn.core.errors import InputError, unknown
from neurodyn.core.registry import Registry
from neurodyn.core.seeds import generator, require_seed
from neurodyn.evaluate.run_comparison import flat_settings

MOST = 10_000
"""Maximum number of settings in a sweep."""

Values = dict[str, Any]
"""Values of one setting of a sweep, by name."""


class Range(Config, frozen=True):
    """A range of numbers.

    Attributes:
        lower: Lower bound.
        upper: Upper bound.
        log: Whether to sample uniformly in the logarithm.
        whole: Whether to use integers only.
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
        """Return the number at a fraction of the range, between 0 and 1."""
        if self.whole:
            low, high = self.lower - 0.5, self.upper + 0.5
            found = low * (high / low) ** share if self.log else low + share * (high - low)
            return int(min(max(round(found), self.lower), self.upper))
        return self.lower * (self.upper / self.lower) ** share if self.log else (
            self.lower + share * (self.upper - self.lower)
        )  # fmt: skip


Space = Mapping[str, tuple[Any, ...] | Range]
"""Values or a range of numbers, by name."""


class Chooser(Protocol):
    """Interface of a search: chooses one setting after another.

    Attributes:
        count: Number of settings to choose.
    """

    count: int

    def choose(self, number: int) -> Values:
        """Return a setting; numbers are requested in order."""
        ...

    def restore(self, number: int, values: Values) -> None:
        """Record a setting chosen before the sweep was resumed, instead of `choose`."""
        ...

    def record_score(self, number: int, score: float | None) -> None:
        """Record the mean figure of a setting, lower is better; None if it failed."""
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

    def restore(self, number: int, values: Values) -> None:
        """See `Chooser`."""

    def record_score(self, number: int, score: float | None) -> None:
        """See `Chooser`."""


class RandomSearch(Grid):
    """Independent draws; setting k depends only on (seed, k); see `Chooser`."""

    def __init__(self, space: Space, samples: int | None, seed: int) -> None:
        self.count = required_samples(samples, "random")
        self._all = [_drawn(space, generator(seed, "sweep", number)) for number in range(self.count)]


class Optuna:
    """Optuna's tree-structured Parzen estimator: settings near earlier good ones; see `Chooser`.

    With several workers, its choices depend on the order in which trials end.
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

    def restore(self, number: int, values: Values) -> None:
        """See `Chooser`."""
        known = {
            name: entry.index(values[name]) if isinstance(entry, tuple) else values[name]
            for name, entry in self._space.items()
        }
        self._study.enqueue_trial(known)
        self._asked[number] = self._study.ask(self._distributions)

    def record_score(self, number: int, score: float | None) -> None:
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
"""Searches by name, called with the space, the number of samples and the seed."""
SEARCHES.add("grid", Grid)
SEARCHES.add("random", RandomSearch)
SEARCHES.add("optuna", Optuna)


def require_count(count: int) -> None:
    """Raise an InputError for a sweep of no settings, or of too many."""
    if not 1 <= count <= MOST:
        raise InputError(f"the sweep has {count:,} settings; valid: 1 to {MOST:,}")


def required_samples(samples: int | None, search: str) -> int:
    """Return the number of settings to draw; errors: see `require_count`."""
    if samples is None:
        raise InputError(f"search {search} needs a number of samples; valid: samples: 20, say")
    require_count(samples)
    return samples


def corners(space: Space) -> list[Values]:
    """Return settings that contain each value, and both ends of each range, at least once."""
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


_FOR_ALL = ("settings", "space", "search", "samples", "seeds", "seed", "cores")


class Sweep(Config, frozen=True):
    """A sweep, as declared in its file.

    Attributes:
        training: Verb of the training, the file's key for its arguments.
        arguments: Arguments of the training.
        settings: Settings changed in all trials, by dotted names ("phases.0.rate").
        space: Settings or arguments to vary: a list of values, or a range (`space.Range`), by dotted names.
        search: Search method: "grid", "random" or "optuna".
        samples: Number of settings to try; None for a grid.
        seeds: Training seeds of each setting.
        seed: Seed of the search.
        cores: Cores per trial.
    """

    training: str
    arguments: dict[str, Any]
    space: dict[str, Any]
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    search: str = "grid"
    samples: int | None = None
    seeds: tuple[int, ...] = (0,)
    seed: int = 0
    cores: int = 1


@dataclass(frozen=True)
class SweepTrial:
    """One training of a sweep.

    Attributes:
        number: Index of its setting.
        seed: Seed of the training.
        values: Values of the varied settings.
        training: Verb.
        arguments: Arguments, as plain data.
        settings: Resolved settings.
    """

    number: int
    seed: int
    values: Values
    training: str
    arguments: dict[str, Any]
    settings: Config

    @property
    def name(self) -> str:
        """Name of its run folder."""
        return f"{self.number:04d}-seed-{self.seed}"


def read_sweep(path: Path) -> Sweep:
    """Read the file of a sweep.

    Raises:
        InputError: The file is missing or malformed, or has an unknown key.
    """
    plain = read_plain(path)
    if not isinstance(plain, dict):
        raise InputError(f"{path}: is no table; valid: a training ({', '.join(TRAININGS)}), and space")
    _require_known(plain, (*TRAININGS, *_FOR_ALL), "key", path)
    verbs = [name for name in TRAININGS if name in plain]
    if len(verbs) != 1:
        said = " and ".join(verbs) or "no training"
        raise InputError(f"{path}: has {said}; valid: one of {', '.join(TRAININGS)}, with its arguments")
    verb = verbs[0]
    arguments = plain.pop(verb)
    if not isinstance(arguments, dict):
        raise InputError(f"{path}: {verb} is no table; valid: its arguments, as robot: cartpole")
    _require_known(arguments, TRAININGS[verb].arguments.__struct_fields__, f"argument of {verb}", path)
    if not isinstance(plain.get("space"), dict) or not plain["space"]:
        raise InputError(f"{path}: space is empty; valid: at least one NAME: [VALUE, VALUE ...]")
    return from_dict({"training": verb, "arguments": _absolute(arguments), **plain}, Sweep, str(path))


class SweepPlan:
    """A validated sweep: its space, its search, and trials with valid settings.

    Attributes:
        sweep: The sweep.
        training: Its training.
        space: Its space.
    """

    def __init__(self, sweep: Sweep, where: str) -> None:
        """Check a sweep completely.

        Args:
            sweep: The sweep.
            where: Its file, for messages.

        Raises:
            InputError: A setting is unknown or out of range, a list is empty, or the training cannot start.
        """
        self.sweep, self._where = sweep, where
        self.training: Training = TRAININGS[sweep.training]
        self._bases: dict[str, Config] = {}
        self.space: Space = {name: self._entry(name, entry) for name, entry in sweep.space.items()}
        if not sweep.seeds or len(set(sweep.seeds)) < len(sweep.seeds):
            raise InputError(f"{where}: seeds is {list(sweep.seeds)}; valid: one or several different numbers")
        for seed in (*sweep.seeds, sweep.seed):
            require_seed(seed)
        if sweep.cores < 1:
            raise InputError(f"{where}: cores is {sweep.cores}; valid: at least 1")
        try:
            self.chooser: Chooser = SEARCHES[sweep.search](self.space, sweep.samples, sweep.seed)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        known = isinstance(self.chooser, Grid | RandomSearch)
        tried = [self.chooser.choose(k) for k in range(self.chooser.count)] if known else corners(self.space)
        for number, values in enumerate(tried):
            self.trial(number, sweep.seeds[0], values)

    @cached_property
    def count(self) -> int:
        """Number of trials."""
        return self.chooser.count * len(self.sweep.seeds)

    def trial(self, number: int, seed: int, values: Values) -> SweepTrial:
        """Return a trial.

        Raises:
            InputError: Its settings are unknown or out of range.
        """
        fields = self.training.arguments.__struct_fields__
        own = {name: value for name, value in values.items() if name in fields}
        arguments = {**self.sweep.arguments, **_absolute(own)}
        base = self._base(arguments)
        plain = as_lists(to_dict(base))
        changes = {**self.sweep.settings, **{name: value for name, value in values.items() if name not in fields}}
        for name, value in changes.items():
            self._put(plain, base, name, value)
        plain["seed"] = seed
        said = ", ".join(f"{name} {_shown(value)}" for name, value in values.items())
        settings = from_dict(plain, type(base), f"{self._where}: with {said}")
        return SweepTrial(number, seed, values, self.sweep.training, arguments, settings)

    def _entry(self, name: str, entry: Any) -> tuple[Any, ...] | Range:
        where = f"{self._where}: space: {name}"
        if name == "seed":
            raise InputError(f"{where}: seeds are not of the space; valid: seeds: [0, 1, 2]")
        if isinstance(entry, dict):
            _require_known(entry, Range.__struct_fields__, "key of a range", where)
            return from_dict(entry, Range, where)
        if not isinstance(entry, list):
            raise InputError(f"{where} is {entry!r}; valid: a list of values, or {{lower: A, upper: B}}")
        if not entry:
            raise InputError(f"{where} has no values; valid: at least one")
        if len({json.dumps(value) for value in entry}) < len(entry):
            raise InputError(f"{where} has a value twice; valid: different ones")
        return tuple(entry)

    def _base(self, arguments: dict[str, Any]) -> Config:
        key = json.dumps(arguments, sort_keys=True)
        if key not in self._bases:
            given = from_dict(arguments, self.training.arguments, f"{self._where}: {self.sweep.training}")
            try:
                self._bases[key] = self.training.settings(given)
            except InputError as error:
                raise InputError(f"{self._where}: {error}") from None
        return self._bases[key]

    def _put(self, plain: dict[str, Any], base: Config, name: str, value: Any) -> None:
        known = {*flat_settings(plain), *base.__struct_fields__, *_inner(plain)} - {"seed"}
        if name not in known:
            more = self.training.arguments.__struct_fields__ if name in self.sweep.space else ()
            raise InputError(f"{self._where}: {unknown('setting', name, {*known, *more})}")
        *path, last = name.split(".")
        place: Any = plain
        for step in path:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if isinstance(place, list):
            place[int(last)] = copy.deepcopy(value)
        else:
            place[last] = copy.deepcopy(value)
        if name == "steps" and plain.get("minutes") is not None and value is not None:
            plain["minutes"] = None  # a budget in steps replaces one in minutes, as with --steps
        if name == "minutes" and plain.get("steps") is not None and value is not None:
            plain["steps"] = None


def _inner(plain: Any, prefix: str = "") -> Iterable[str]:
    """Yield the names of nested settings: a whole network, a whole phase."""
    items = plain.items() if isinstance(plain, Mapping) else enumerate(plain) if isinstance(plain, list) else ()
    for key, value in items:
        if isinstance(value, Mapping | list):
            yield f"{prefix}{key}"
            yield from _inner(value, f"{prefix}{key}.")


def _require_known(given: Iterable[Any], valid: Iterable[str], what: str, where: Path | str) -> None:
    valid = tuple(valid)
    for name in given:
        if name not in valid:
            raise InputError(f"{where}: {unknown(what, str(name), valid)}")


def _absolute(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with absolute paths: workers need not run in this folder."""
    return {name: _full(value) for name, value in arguments.items()}


def _full(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_full(one) for one in value]
    if isinstance(value, str) and value and (Path(value).is_file() or ("/" in value and Path(value).exists())):
        return str(Path(value).resolve())
    return value


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

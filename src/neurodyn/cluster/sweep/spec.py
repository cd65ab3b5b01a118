# SPDX-License-Identifier: Apache-2.0
"""The file of a sweep: which training, which settings are tried, by whom they are chosen; checked before any work."""

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from neurodyn.cluster.sweep.space import SEARCHES, Chance, Chooser, Grid, Range, Space, Values, corners
from neurodyn.cluster.sweep.trainings import TRAININGS, Training
from neurodyn.core.config import Config, from_dict, read_plain, to_dict
from neurodyn.core.config import plain as as_lists
from neurodyn.core.errors import InputError, unknown
from neurodyn.core.seeds import require_seed
from neurodyn.evaluate.run_comparison import flat_settings

_FOR_ALL = ("settings", "space", "search", "samples", "seeds", "seed", "cores")


class Sweep(Config, frozen=True):
    """A sweep, as its file says.

    Attributes:
        training: Verb of the training, the key under which the file has its arguments.
        arguments: Arguments of the training.
        settings: Settings that all trials change, by dotted names ("phases.0.rate").
        space: Settings or arguments that differ: a list of values, or a range (`space.Range`), by dotted names.
        search: Who chooses: "grid", "random" or "optuna".
        samples: How many settings are tried; None for a grid.
        seeds: Seeds with which each is trained.
        seed: Seed of whoever chooses.
        cores: Cores of a trial.
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
        number: Number of its setting.
        seed: Seed of the training.
        values: What is its own.
        training: Verb.
        arguments: Arguments, as plain data.
        settings: Resolved settings, as plain data.
    """

    number: int
    seed: int
    values: Values
    training: str
    arguments: dict[str, Any]
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of its run folder."""
        return f"{self.number:04d}-seed-{self.seed}"


def read_sweep(path: Path) -> Sweep:
    """Read the file of a sweep.

    Raises:
        InputError: It is missing or malformed, or has an unknown key.
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
    """What a sweep comes to: its space, who chooses from it, and trials whose settings are known to be valid.

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
            InputError: A setting is unknown or out of range, a list is empty, or the training cannot begin.
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
        known = isinstance(self.chooser, Grid | Chance)
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
        return SweepTrial(number, seed, values, self.sweep.training, arguments, as_lists(to_dict(settings)))

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
            plain["minutes"] = None  # one budget in place of the other, as by --steps and --minutes
        if name == "minutes" and plain.get("steps") is not None and value is not None:
            plain["steps"] = None


def _inner(plain: Any, prefix: str = "") -> Iterable[str]:
    """Yield the names of settings that hold others: a whole network, a whole phase."""
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
    """Return arguments with the full paths of files and folders: workers need not be in this folder."""
    return {name: _full(value) for name, value in arguments.items()}


def _full(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_full(one) for one in value]
    if isinstance(value, str) and value and (Path(value).is_file() or ("/" in value and Path(value).exists())):
        return str(Path(value).resolve())
    return value


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

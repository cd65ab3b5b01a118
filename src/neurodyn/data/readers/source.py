# SPDX-License-Identifier: Apache-2.0
"""A log's contents before a column map gives them a meaning: columns with their names, units and clocks."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, suggestion
from neurodyn.data.header import Split

MOST_VALUES = 1 << 23
"""Maximum number of values in one part of a log; a longer run is read in several parts, which become separate episodes.
"""

_MOST_NAMED = 40


class ColumnSeries(NamedTuple):
    """Times since the start of the run [s] and values of a column, NaN for none, shape [N]; streams share times."""

    time: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class Topic:
    """One stream of a log: row type, names of its numeric columns, and source of its times.

    The name is empty in a log with a single stream. `rows` is None if unknown before they are read. `trouble` says why
    the stream is unreadable; empty if it is not. `not_numbers` are further columns, each with a cell.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    clock: str
    rows: int | None = None
    trouble: str = ""
    not_numbers: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunRows:
    """One run, or a part of one (`partial`), within a part of a log: labels (see `RawRun`) and row range."""

    name: str
    group: str = ""
    split: Split | None = None
    together: str | None = None
    rows: slice = field(default_factory=lambda: slice(None))
    partial: bool = False


@dataclass(frozen=True)
class LogPart:
    """A part of a log: runs, and columns by name; a part whose streams have different clocks holds one run.

    `first` is the number of the first row in the file, for error messages; None if rows are not numbered.
    """

    runs: Sequence[RunRows]
    series: Mapping[str, ColumnSeries]
    first: int | None = None


class Source(ABC):
    """An open log, a file or folder; `delimiter` and `decimal` separate columns and decimals of a text file."""

    path: Path
    delimiter: str = ","
    decimal: str = "."

    @abstractmethod
    def topics(self) -> list[Topic]:
        """Return the streams, in the order of the file."""

    @abstractmethod
    def parts(self, names: Sequence[str]) -> Iterator[LogPart]:
        """Yield all rows of the named columns, run by run; an InputError if one is missing, or the file is damaged."""

    @property
    def step(self) -> float | None:
        """Constant time step [s]; 0 for formats with time stamps or a clock, None if unknown."""
        return 0.0

    def stamp(self) -> str | None:
        """Return the column of time stamps; None for formats with built-in clocks, or if there is none."""
        return None

    def runs(self) -> dict[str, str]:
        """Return the keys of a column map that say where runs begin, how they are called and split, if the log does."""
        return {}

    def seconds(self, stamps: np.ndarray, name: str, first: int, unit: str) -> np.ndarray:
        """Return the time stamps of rows from `first` on in seconds, or raise an InputError if one is not finite."""
        bad = ~np.isfinite(stamps)
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(
                f"{self.path}: column {name!r} holds {stamps[row]} in row {first + row} ({int(bad.sum())} such rows); "
                "expected finite numbers: remove those rows, a gap in time begins a new episode"
            )
        return stamps * factor(unit, "s", f"{self.path}: time_unit")

    def missing(self, names: Sequence[str], there: Iterable[str], what: str = "column") -> InputError:
        """Return an error that lists the missing columns and the existing ones."""
        listed = list(there)
        more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
        shown = ", ".join(listed[:_MOST_NAMED]) + more
        wanted = ", ".join(map(repr, dict.fromkeys(names)))
        near = suggestion(next(iter(dict.fromkeys(names))), listed)
        return InputError(f"{self.path}: has no {what} {wanted}{near}; {what}s there: {shown or '(none)'}")


def pieces_of(rows: int, columns: int) -> list[slice]:
    """Cut the rows of a run into the fewest equal parts of at most `MOST_VALUES` numbers each."""
    count = max(1, -(-rows * max(1, columns) // MOST_VALUES))
    bounds = np.linspace(0, rows, count + 1).round().astype(int)
    return [slice(int(a), int(b)) for a, b in pairwise(bounds)]


_STAMPS = ("time", "t", "timestamp", "timestamps", "stamp", "tick")
_REFERENCE = re.compile(r"(.+?)(?:\[([^\[\]]+)\])?")


def split_reference(reference: str) -> tuple[str, str | None]:
    """Split "array[column]" into array and column; the column is None for a one-column array."""
    match = _REFERENCE.fullmatch(reference.strip())
    return (reference, None) if match is None else (match[1], match[2])


def column_index(key: str | None, width: int, names: tuple[str, ...] = ()) -> int | None:
    """Return the index of a column by number or name; None if there is no such column."""
    if key is None:
        return 0 if width == 1 else None
    if key in names:
        return names.index(key)
    return int(key) if key.isdecimal() and int(key) < width else None


def usual_stamp(names: Sequence[str]) -> str | None:
    """Return the first name that is common for times, alone or with a unit or prefix ("t_ms", "t [s]", "ur10_time")."""
    for fits in (
        lambda name, wanted: name == wanted,
        lambda name, wanted: re.fullmatch(rf"{wanted}[ _]?[\[(]?(s|ms|us|ns|sec)[\])]?", name),
        lambda name, wanted: len(wanted) > 1 and wanted in name.split("_"),
    ):
        for wanted in _STAMPS:
            for name in names:
                if fits(name.lower(), wanted):
                    return name
    return None


Place = tuple[str, int | None]
"""Array and column; the column is None for an array with one value per row."""


def arrays_of(places: Mapping[str, Place]) -> list[str]:
    """Return the arrays that the columns are taken from."""
    return list(dict.fromkeys(array for array, _ in places.values()))


def series_of(places: Mapping[str, Place], blocks: Mapping[str, ColumnSeries]) -> dict[str, ColumnSeries]:
    """Extract columns from arrays, shape [N] or [N, columns], as float64."""
    series = {}
    for name, (array, index) in places.items():
        time, value = blocks[array]
        series[name] = ColumnSeries(time, np.asarray(value if index is None else value[:, index], np.float64))
    return series


def equal_runs(values: np.ndarray) -> list[tuple[int, int]]:
    """Return first row and end row of each run of equal values."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return [(a, b) for a, b in pairwise([0, *changes.tolist(), len(values)]) if b > a]


_TURN = 2.0 * math.pi
_UNITS: dict[str, dict[str, float]] = {
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0},
    "rad": {"rad": 1.0, "mrad": 1e-3, "deg": _TURN / 360, "rev": _TURN},
    "m": {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "in": 0.0254},
    "rad/s": {"rad/s": 1.0, "mrad/s": 1e-3, "deg/s": _TURN / 360, "rev/s": _TURN, "rpm": _TURN / 60},
    "m/s": {"m/s": 1.0, "cm/s": 1e-2, "mm/s": 1e-3},
    "m/s^2": {"m/s^2": 1.0, "g": 9.80665, "mg": 9.80665e-3},
    "N m": {"N m": 1.0, "Nm": 1.0, "mN m": 1e-3, "mNm": 1e-3, "N cm": 1e-2, "N mm": 1e-3, "kgf cm": 0.0980665},
    "N": {"N": 1.0, "mN": 1e-3, "kN": 1e3, "kgf": 9.80665},
    "1": {"1": 1.0, "%": 1e-2},
}


def factor(unit: str, quantity: str, where: str) -> float:
    """Return the size of `unit` (empty: the SI unit) in the SI unit `quantity` of `_UNITS`, or raise an InputError."""
    known = _UNITS[quantity]
    if unit and unit not in known:
        raise InputError(
            f"{where}: unknown unit {unit!r}{suggestion(unit, known)}; valid for this quantity: {', '.join(known)}"
        )
    return known[unit or quantity]


def state_units(spec: StateSpec) -> dict[str, dict[str, str]]:
    """Return the SI unit of each coordinate of "q", "qd" and "control", by name."""
    return {
        "q": dict(zip(spec.q_names, spec.q_units, strict=True)),
        "qd": dict(zip(spec.qd_names, spec.qd_units, strict=True)),
        "control": dict(zip(spec.controls, spec.control_units, strict=True)),
    }

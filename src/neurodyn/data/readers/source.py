# SPDX-License-Identifier: Apache-2.0
"""Contents of a log before a column map gives them a meaning: columns with their names, units and clocks."""

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
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split

MOST_VALUES = 1 << 23
"""Numbers in one part of a log; a run with more is read in several parts, which become several episodes."""

_MOST_NAMED = 40


class ColumnSeries(NamedTuple):
    """Values of one column. Columns of one stream share the same array of times.

    Attributes:
        time: Time of each value since the start of the run [s], shape [N].
        value: Values, NaN for none, shape [N].
    """

    time: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class Topic:
    """One stream of a log.

    Attributes:
        name: Its name; empty in a log with a single stream.
        kind: Type of its messages or rows, in the terms of the format.
        columns: Names of its numeric columns, as column maps write them.
        clock: Source of its times, in words.
        rows: Number of rows; None if unknown before they are read.
        trouble: Why it cannot be read, in words; empty if it can.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    clock: str
    rows: int | None = None
    trouble: str = ""


@dataclass(frozen=True)
class RunRows:
    """One run, or a part of one, within a part of a log.

    Attributes:
        name: Name of the run.
        group: Name of its group; empty for none.
        split: Its split; None if the log does not say.
        together: Equal for runs that a random split must not divide; None for the run alone.
        rows: Its rows in each of the series.
        partial: Whether the run has more rows in other parts.
    """

    name: str
    group: str = ""
    split: Split | None = None
    together: str | None = None
    rows: slice = field(default_factory=lambda: slice(None))
    partial: bool = False


@dataclass(frozen=True)
class LogPart:
    """Rows of some runs; a part whose streams have different clocks holds one run.

    Attributes:
        runs: The runs.
        series: Columns by name.
        first: Number of the first row in the file, for error messages; None if rows are not numbered.
    """

    runs: Sequence[RunRows]
    series: Mapping[str, ColumnSeries]
    first: int | None = None


class Source(ABC):
    """An open log.

    Attributes:
        path: The file or folder.
        delimiter: Separator of the columns of a text file.
    """

    path: Path
    delimiter: str = ","

    @abstractmethod
    def topics(self) -> list[Topic]:
        """Return the streams, in the order of the file."""

    @abstractmethod
    def parts(self, names: Sequence[str]) -> Iterator[LogPart]:
        """Yield all rows of the named columns, run by run, in order.

        Raises:
            InputError: A column is missing, or the file is damaged.
        """

    @property
    def step(self) -> float | None:
        """Constant time of a step [s]; 0 for formats with time stamps or a clock, None if unknown."""
        return 0.0

    def stamp(self) -> str | None:
        """Return the column of time stamps; None for formats with built-in clocks, and if there is none."""
        return None

    def seconds(self, stamps: np.ndarray, name: str, first: int, unit: str) -> np.ndarray:
        """Return time stamps of the rows from `first` on in seconds, or raise an InputError if one is not finite."""
        bad = ~np.isfinite(stamps)
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(
                f"{self.path}: column {name!r} holds {stamps[row]} in row {first + row} ({int(bad.sum())} such rows); "
                "expected finite numbers: remove those rows, a gap in time begins a new episode"
            )
        return stamps * factor(unit, "s", f"{self.path}: time_unit")

    def missing(self, names: Iterable[str], there: Iterable[str], what: str = "column") -> InputError:
        """Return an error that names missing columns, and those that exist."""
        listed = list(there)
        shown = ", ".join(listed[:_MOST_NAMED]) + (
            f" and {len(listed) - _MOST_NAMED} more" * (len(listed) > _MOST_NAMED)
        )
        wanted = ", ".join(map(repr, dict.fromkeys(names)))
        return InputError(f"{self.path}: has no {what} {wanted}; {what}s there: {shown or '(none)'}")


def pieces_of(rows: int, columns: int) -> list[slice]:
    """Cut the rows of a run into the fewest equal parts of at most `MOST_VALUES` numbers each."""
    count = max(1, -(-rows * max(1, columns) // MOST_VALUES))
    bounds = np.linspace(0, rows, count + 1).round().astype(int)
    return [slice(int(a), int(b)) for a, b in pairwise(bounds)]


_STAMPS = ("time", "t", "timestamp", "timestamps", "stamp")
_REFERENCE = re.compile(r"(.+?)(?:\[([^\[\]]+)\])?")


def split_reference(reference: str) -> tuple[str, str | None]:
    """Split "array[column]" into array and column; the column is None for an array of one column."""
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
    """Return the first name that is common for times, alone or with a unit or a prefix ("t_ms", "ur10_time")."""
    for fits in (
        lambda name, wanted: name == wanted,
        lambda name, wanted: re.fullmatch(rf"{wanted}_?(s|ms|us|ns|sec)", name),
        lambda name, wanted: len(wanted) > 1 and wanted in name.split("_"),
    ):
        for wanted in _STAMPS:
            for name in names:
                if fits(name.lower(), wanted):
                    return name
    return None


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
    """Return the size of `unit` in the SI unit `quantity`.

    Args:
        unit: Unit as written in a column map; empty for the SI unit.
        quantity: SI unit of the quantity: "s", "rad", "m", "rad/s", "m/s", "m/s^2", "N m", "N" or "1".
        where: What has the unit, for the error message.

    Raises:
        InputError: The unit is unknown or measures something else.
    """
    known = _UNITS[quantity]
    if unit and unit not in known:
        raise InputError(f"{where}: unknown unit {unit!r}; valid for this quantity: {', '.join(known)}")
    return known[unit or quantity]


def state_units(spec: StateSpec) -> dict[str, dict[str, str]]:
    """Return the SI unit of each coordinate of "q", "qd" and "control" by its name."""
    return {
        "q": dict(zip(spec.q_names, spec.q_units, strict=True)),
        "qd": dict(zip(spec.qd_names, spec.qd_units, strict=True)),
        "control": dict(zip(spec.controls, spec.control_units, strict=True)),
    }

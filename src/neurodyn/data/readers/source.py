# SPDX-License-Identifier: Apache-2.0
"""What a log holds before a column map says what it means: columns, each with the clock of its stream.

A long log does not fit in memory. A source hands it out in parts: some runs, or a part of one run, with the columns
that are asked for.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split

MOST_VALUES = 1 << 24
"""Numbers that one part holds; a run with more comes in several parts, and becomes several episodes."""

_MOST_NAMED = 40


class Series(NamedTuple):
    """Values of one column. Columns of one stream share the very same array of times.

    Attributes:
        time: Time of each value since the run began [s], shape [N].
        value: Values, NaN where the log has none, shape [N].
    """

    time: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class Topic:
    """One stream of a log.

    Attributes:
        name: Its name; empty where a log has one stream alone.
        kind: Type of its messages or rows, in the words of the format.
        columns: Names of its columns of numbers, as column maps write them.
        clock: Where its times come from, in words.
        rows: Number of rows; None where that is not known before they are read.
        trouble: Why it cannot be read, in words; empty where it can.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    clock: str
    rows: int | None = None
    trouble: str = ""


@dataclass(frozen=True)
class RunRows:
    """One run, or a part of one, among the rows of a part.

    Attributes:
        name: Name of the run.
        group: Name of its group; empty where there is none.
        split: Its split; None where the log does not say.
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
class Part:
    """Rows of some runs; a part whose streams have different clocks holds one run.

    Attributes:
        runs: The runs.
        series: Columns by name.
        first: Number of the first row in the file, for error messages; None where rows are not numbered.
    """

    runs: Sequence[RunRows]
    series: Mapping[str, Series]
    first: int | None = None


class Source(ABC):
    """An open log.

    Attributes:
        path: The file or folder.
    """

    path: Path

    @abstractmethod
    def topics(self) -> list[Topic]:
        """Return the streams, in the order of the file."""

    @abstractmethod
    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """Yield all rows of some columns, run by run, in order.

        Raises:
            InputError: A column is missing, or the file is damaged.
        """

    def stamp(self) -> str | None:
        """Return the column that holds the times, where rows of one stream have one; None where clocks are built in."""
        return None

    def missing(self, names: Iterable[str], there: Iterable[str], what: str = "column") -> InputError:
        """Return the error that names columns which are not there, and those that are."""
        listed = list(there)
        shown = ", ".join(listed[:_MOST_NAMED]) + (
            f" and {len(listed) - _MOST_NAMED} more" * (len(listed) > _MOST_NAMED)
        )
        wanted = ", ".join(map(repr, dict.fromkeys(names)))
        return InputError(f"{self.path}: has no {what} {wanted}; {what}s there: {shown or '(none)'}")


def pieces_of(rows: int, columns: int) -> list[slice]:
    """Cut the rows of a run into as few equal parts as hold at most `MOST_VALUES` numbers each."""
    count = max(1, -(-rows * max(1, columns) // MOST_VALUES))
    bounds = np.linspace(0, rows, count + 1).round().astype(int)
    return [slice(int(a), int(b)) for a, b in pairwise(bounds)]

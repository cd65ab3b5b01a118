# SPDX-License-Identifier: Apache-2.0
"""Checksums of a store: one CRC-32 of each array in each piece of rows, verified when the piece is first read.

Pieces are those in which the writer committed them, cut at `PIECE_ROWS`. Stores of older versions have none.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import h5py
import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.data.header import dataset

CHECKSUMS = "checksums"
"""Dataset of one record for each piece."""

PIECE_ROWS = 4096
"""Rows of a piece, unless fewer were committed at once."""

_PLACE = (("batch", "<i8"), ("rows_end", "<i8"), ("episodes_end", "<i8"))


def record_type(arrays: Sequence[str]) -> np.dtype:
    """Return the type of a record: batch, end in rows and in episodes, and the CRC of each array that the store has."""
    return np.dtype([*_PLACE, *((name, "<u4") for name in arrays)])


def crc(values: np.ndarray) -> int:
    """Return the CRC-32 of the bytes of an array."""
    return zlib.crc32(np.ascontiguousarray(values).view(np.uint8).data) if values.size else 0


def pieces(count: int) -> list[int]:
    """Return where the pieces of so many new rows end; one piece where there are none."""
    return [*range(PIECE_ROWS, count, PIECE_ROWS), count]


def records(
    kind: np.dtype, batch: int, rows: int, episodes: int, arrays: Mapping[str, np.ndarray], per_episode: frozenset[str]
) -> np.ndarray:
    """Return the records of what is appended to a store.

    Args:
        kind: Type of a record.
        batch: Number of the batch.
        rows: Rows before it.
        episodes: Episodes before it.
        arrays: The new values of each array.
        per_episode: Arrays that have a record for each episode instead of each row: all in the last piece.
    """
    count = max((len(values) for name, values in arrays.items() if name not in per_episode), default=0)
    new = max((len(values) for name, values in arrays.items() if name in per_episode), default=0)
    ends = pieces(count)
    found = np.zeros(len(ends), kind)
    found["batch"], found["rows_end"], found["episodes_end"] = batch, rows + np.array(ends), episodes
    found["episodes_end"][-1] += new
    for name in kind.names or ():
        if name in arrays and name in per_episode:
            found[name][-1] = crc(arrays[name])
        elif name in arrays:
            found[name] = [crc(arrays[name][begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]
    return found


@dataclass
class Checksums:
    """The records of a store, up to what was committed.

    Attributes:
        where: The file, for messages.
        table: The records.
        read: Which pieces of rows were read, and found right, as a whole.
    """

    where: str
    table: np.ndarray
    read: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.read = np.zeros(len(self.table), bool)

    @classmethod
    def of(cls, file: h5py.File, where: str) -> Self | None:
        """Return the records of an open store; None of an older one, which has none.

        Raises:
            InputError: They do not say what was committed.
        """
        if CHECKSUMS not in file:
            return None
        batches, rows, episodes = (int(n) for n in dataset(file, "committed")[()])
        table = dataset(file, CHECKSUMS)[()]
        last = np.flatnonzero(table["batch"] == batches - 1) if batches else np.empty(0, int)
        count = int(last[-1]) + 1 if len(last) else 0
        end = (int(table["rows_end"][count - 1]), int(table["episodes_end"][count - 1])) if count else (0, 0)
        if (batches and not count) or end != (rows, episodes) or (np.diff(table["rows_end"][:count]) < 0).any():
            raise InputError(f"{where}: damaged store: its counters and checksums disagree; {_MEND}")
        return cls(where, table[:count])

    @property
    def ends(self) -> np.ndarray:
        """Where pieces of rows end."""
        return self.table["rows_end"]

    def around(self, begin: int, end: int) -> tuple[int, int]:
        """Return the rows of the pieces that hold some rows."""
        first = int(np.searchsorted(self.ends, begin, side="right"))
        last = int(np.searchsorted(self.ends, end, side="left"))
        return (int(self.ends[first - 1]) if first else 0), (int(self.ends[last]) if last < len(self.ends) else end)

    def known(self, begin: int, end: int) -> bool:
        """Return whether all rows from `begin` to `end` were read and found right."""
        first = int(np.searchsorted(self.ends, begin, side="right"))
        last = int(np.searchsorted(self.ends, end, side="left"))
        return bool(self.read[first : last + 1].all())

    def verify(self, name: str, begin: int, values: np.ndarray) -> None:
        """Compare the rows of whole pieces with their checksums.

        Args:
            name: The array.
            begin: Number of the first row, at which a piece begins.
            values: Its rows, to the end of a piece.

        Raises:
            InputError: They are not what was written; names the rows.
        """
        for piece, (first, last) in self._within(begin, begin + len(values)):
            if crc(values[first - begin : last - begin]) != self.table[name][piece]:
                raise InputError(f"{self.where}: damaged store: {name} of rows {first} to {last - 1} changed; {_MEND}")

    def note(self, begin: int, end: int) -> None:
        """Remember that the pieces from row `begin` to row `end` were found right in all arrays."""
        for piece, _ in self._within(begin, end):
            self.read[piece] = True

    def verify_episodes(self, name: str, values: np.ndarray) -> None:
        """Compare all of an array of one record for each episode with its checksums; errors as of `verify`."""
        begin = 0
        for piece, end in enumerate(self.table["episodes_end"].tolist()):
            if end > begin and crc(values[begin:end]) != self.table[name][piece]:
                raise InputError(f"{self.where}: damaged store: {name} {begin} to {end - 1} changed; {_MEND}")
            begin = max(begin, end)

    def _within(self, begin: int, end: int) -> Iterator[tuple[int, tuple[int, int]]]:
        first = int(np.searchsorted(self.ends, begin, side="right"))
        while first < len(self.ends) and begin < end:
            last = int(self.ends[first])
            yield first, (begin, last)
            begin, first = last, first + 1


_MEND = "copy it again from where it is whole, or write it again"

# SPDX-License-Identifier: Apache-2.0
"""Rows of a store that stay in its file, and are read as they are asked for."""

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.checksums import Checksums
from neurodyn.data.header import dataset
from neurodyn.data.writer import open_store_file, widths

IN_MEMORY = 512 << 20
"""Bytes of rows up to which a store is read into memory as a whole."""

_BLOCK_BYTES = 4 << 20
_FEW = 16
"""Pieces of a block up to which they are read one by one."""


class StoredRows:
    """The rows of a store as an array of shape [rows, width], float32, of which slices are read from the file.

    `numpy.asarray` reads all of them, once, and keeps them.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, path: Path, spec: StateSpec, rows: int) -> None:
        self._path, self._spec = path, spec
        self.shape = (rows, sum(widths(spec).values()))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return 4 * self.shape[0] * self.shape[1]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Return some rows, which lie side by side in the file, shape [n, width].

        Raises:
            InputError: The file is damaged.
        """
        begin, end, _ = rows.indices(len(self))
        try:
            return self._read(begin, max(begin, end))
        except (OSError, RuntimeError) as error:
            raise InputError(f"{self._path}: cannot be read any more ({error}); write it again") from None

    def _read(self, begin: int, end: int) -> np.ndarray:
        """Read some rows; what has not been read yet is verified, piece by piece."""
        sums = self._checksums
        if sums is None or begin == end or sums.known(begin, end):
            return read_rows(self._file, self._spec, begin, end)
        first, last = sums.around(begin, end)
        found = read_rows(self._file, self._spec, first, last, sums)
        sums.note(first, last)
        return found[begin - first : end - first]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = self._whole
        return whole.astype(dtype) if dtype is not None and np.dtype(dtype) != whole.dtype else whole

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredRows, (self._path, self._spec, len(self))

    @cached_property
    def _whole(self) -> np.ndarray:
        return self[:]

    @cached_property
    def _file(self) -> h5py.File:
        return open_store_file(self._path)

    @cached_property
    def _checksums(self) -> Checksums | None:
        return Checksums.of(self._file, str(self._path))


Rows = np.ndarray | StoredRows
"""Rows of a store, in memory or in its file."""


def blocks(rows: Rows) -> Iterator[tuple[int, np.ndarray]]:
    """Yield all rows in blocks of bounded size, each with the number of its first row."""
    size = max(1, _BLOCK_BYTES // (4 * max(1, rows.shape[1])))
    for begin in range(0, len(rows), size):
        yield begin, rows[begin : begin + size]


def take(rows: Rows, starts: np.ndarray, count: int = 1) -> np.ndarray:
    """Return `count` rows in sequence from each start.

    Args:
        rows: All rows.
        starts: Numbers of the first rows, shape [n].
        count: How many rows from each.

    Returns:
        Shape [n, count, width].
    """
    steps = np.arange(count)
    if isinstance(rows, np.ndarray):
        return rows[starts[:, None] + steps]
    found = np.empty((len(starts), count, rows.shape[1]), np.float32)
    order = np.argsort(starts, kind="stable")
    ordered = starts[order]
    size = max(1, _BLOCK_BYTES // (4 * rows.shape[1]))
    edges = np.searchsorted(ordered, np.arange(0, len(rows) + size, size))
    for first, last in pairwise(edges):
        if last - first <= _FEW:
            for place in order[first:last]:
                found[place] = rows[int(starts[place]) : int(starts[place]) + count]
        else:
            begin = int(ordered[first])
            block = rows[begin : int(ordered[last - 1]) + count]
            found[order[first:last]] = block[(ordered[first:last] - begin)[:, None] + steps]
    return found


def read_rows(file: h5py.File, spec: StateSpec, begin: int, end: int, checksums: Checksums | None = None) -> np.ndarray:
    """Read rows of an open file, positions, velocities, controls, channels and contacts side by side.

    Args:
        file: The file.
        spec: Its columns.
        begin: Number of the first row.
        end: Number of the row after the last.
        checksums: What they are verified by; rows must then be those of whole pieces. None to verify nothing.

    Raises:
        InputError: They are missing, of another shape, or not what was written.
    """
    wide, column = widths(spec), 0
    found = np.empty((end - begin, sum(wide.values())), np.float32)
    for name, width in wide.items():
        if width:
            values = rows_dataset(file, name, end, width)[begin:end]
            if checksums is not None:
                checksums.verify(name, begin, values)
            found[:, column : column + width] = values
        column += width
    return found


def rows_dataset(file: h5py.File, name: str, rows: int, *width: int) -> h5py.Dataset:
    """Return a dataset of at least so many rows.

    Raises:
        InputError: It is missing, or of another shape.
    """
    array = dataset(file, name)
    if array.shape[1:] != width or array.shape[0] < rows or array.dtype != np.float32:
        raise InputError(
            f"{file.filename}: damaged store: {name} is {array.dtype} {array.shape}, but the header asks for "
            f"float32 {[rows, *width]}"
        )
    return array

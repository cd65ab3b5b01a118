# SPDX-License-Identifier: Apache-2.0
"""Reading runs from an npz file: arrays of equal length, cut into runs by an array of offsets."""

import re
from pathlib import Path

import numpy as np

from neurodyn.core.errors import InputError, choices
from neurodyn.core.spec import StateSpec
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.data.readers.raw import RawRun, check_velocities, convert, cut, parse_split, selected

_REFERENCE = re.compile(r"([^\[\]]+?)(?:\[(\d+)\])?")


def read_npz(path: Path, columns: ColumnMap, spec: StateSpec) -> list[RawRun]:
    """Read the selected runs of an npz file.

    Raises:
        InputError: The file cannot be read, an array is missing or has the wrong shape, or values are bad.
    """
    arrays = _Arrays(path)
    rows = arrays.rows(columns.time or next(iter(columns.positions.values())).columns[0])
    arrays.check_widths(columns)
    period = _period(arrays, columns)
    converted = convert(columns, spec, lambda name: arrays.column(name, rows), rows, str(path), period)
    offsets = _offsets(arrays, columns, rows)
    check_velocities(columns, spec, converted, offsets.tolist(), str(path))
    count = len(offsets) - 1
    stems = [f"{path.stem}/{index}" if count > 1 else path.stem for index in range(count)]
    names = arrays.texts(columns.run_names, count) or stems
    groups, splits = _groups(arrays, columns, count), _splits(arrays, columns, count)
    events = arrays.texts(columns.together, count)
    runs = []
    for index in range(count):
        if selected(columns, groups[index], names[index]):
            part = slice(int(offsets[index]), int(offsets[index + 1]))
            together = None if events is None else events[index]
            labels = {"name": names[index], "group": groups[index], "split": splits[index], "together": together}
            runs.append(cut(columns, spec, converted, part, **labels, where=str(path)))
    if not runs:
        raise InputError(
            f"{path}: no run is selected by {', '.join((*columns.select_groups, *columns.select_runs))}; groups there: "
            f"{choices(set(groups))}"
        )
    return runs


class _Arrays:
    """The arrays of an npz file, read when asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise InputError(f"{path}: no such file; expected an npz file")
        self._loaded: dict[str, np.ndarray] = {}
        try:
            file = np.load(path, allow_pickle=False)
        except Exception as error:  # zip and npy damage come as many kinds of exception
            # numpy takes what it does not know for a pickle, which says nothing to a reader.
            reason = "it is of another kind" if "pickle" in str(error) else error
            raise InputError(f"{path}: not a readable npz file ({reason}); write it with numpy.savez") from None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise InputError(f"{path}: holds one array without a name; expected an npz file (numpy.savez)")
        self._file = file
        self.names = list(file.files)

    def array(self, name: str) -> np.ndarray:
        """Return an array by name."""
        if name not in self.names:
            raise InputError(f"{self.path}: has no array {name!r}; there: {choices(self.names)}")
        if name not in self._loaded:
            try:
                self._loaded[name] = self._file[name]
            except Exception as error:  # see above
                raise InputError(
                    f"{self.path}: array {name!r} cannot be read ({error}); write the file again"
                ) from None
        return self._loaded[name]

    def rows(self, reference: str) -> int:
        """Return the number of rows of the array that `reference` ("array[index]") names."""
        array = self.array(self._split(reference)[0])
        if not array.ndim or not len(array):
            raise InputError(f"{self.path}: array {reference!r} is empty; expected one value a row")
        return len(array)

    def column(self, reference: str, rows: int) -> np.ndarray:
        """Return the column that `reference` ("array[index]" or "array") names as float64, shape [rows]."""
        name, index = self._split(reference)
        array = self.array(name)
        if array.dtype.kind not in "fiub":
            raise InputError(f"{self.path}: array {name!r} holds {array.dtype}; expected numbers")
        wanted = 1 if index is None else 2
        if array.ndim != wanted or len(array) != rows or (index is not None and index >= array.shape[1]):
            raise InputError(
                f"{self.path}: array {name!r} has shape {list(array.shape)}; expected [{rows}] for {name!r}, or "
                f"[{rows}, columns] for {name + '[index]'!r} (asked for {reference!r})"
            )
        return np.asarray(array if index is None else array[:, index], np.float64)

    def check_widths(self, columns: ColumnMap) -> None:
        """Check that arrays which a floating joint names as a whole have as many columns as it needs."""
        for joint in columns.floating.values():
            for name, width in joint.arrays.items():
                array = self.array(name)
                if array.ndim != 2 or array.shape[1] != width:
                    raise InputError(
                        f"{self.path}: array {name!r} has shape {list(array.shape)}; expected [rows, {width}]"
                    )

    def texts(self, name: str | None, count: int) -> list[str] | None:
        """Return an optional array of `count` names."""
        if name is None or name not in self.names:
            return None
        return [str(value) for value in self.per_run(name, count)]

    def per_run(self, name: str, count: int) -> np.ndarray:
        """Return an array with one value for each of `count` runs."""
        array = self.array(name)
        if array.shape != (count,):
            raise InputError(
                f"{self.path}: array {name!r} has shape {list(array.shape)}; expected [{count}], one a run"
            )
        return array

    def _split(self, reference: str) -> tuple[str, int | None]:
        match = _REFERENCE.fullmatch(reference.strip())
        if match is None:
            raise InputError(f"{self.path}: column {reference!r} is malformed; valid: 'array' or 'array[index]'")
        return match[1], None if match[2] is None else int(match[2])


def _period(arrays: _Arrays, columns: ColumnMap) -> float | None:
    """Return the time between two rows [s] that the file itself says; None where the column map says it."""
    if not isinstance(columns.period, str):
        return None
    array = arrays.array(columns.period)
    if array.shape != () or array.dtype.kind not in "fiu" or not 0 < float(array) < float("inf"):
        raise InputError(f"{arrays.path}: array {columns.period!r} is no time step; expected one number above 0 [s]")
    return float(array)


def _offsets(arrays: _Arrays, columns: ColumnMap, rows: int) -> np.ndarray:
    if columns.episodes is None:
        return np.array([0, rows])
    offsets = arrays.array(columns.episodes)
    good = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) > 1
    if not good or offsets[0] != 0 or offsets[-1] != rows or (np.diff(offsets.astype(np.int64)) < 0).any():
        raise InputError(
            f"{arrays.path}: array {columns.episodes!r} ({offsets.dtype}, shape {list(offsets.shape)}) does not cut "
            f"{rows} rows into runs; expected integers that rise from 0 to {rows}"
        )
    return offsets


def _groups(arrays: _Arrays, columns: ColumnMap, count: int) -> list[str]:
    if columns.group is None or columns.group not in arrays.names:
        return [""] * count
    values = arrays.per_run(columns.group, count)
    if columns.group_names is None or columns.group_names not in arrays.names:
        return [str(value) for value in values]
    names = arrays.array(columns.group_names)
    if names.ndim != 1 or values.dtype.kind not in "iu" or values.min() < 0 or values.max() >= len(names):
        raise InputError(
            f"{arrays.path}: array {columns.group!r} ({values.dtype}) does not index the {names.size} names in "
            f"{columns.group_names!r}; expected integers from 0 to {names.size - 1}"
        )
    return [str(names[int(value)]) for value in values]


def _splits(arrays: _Arrays, columns: ColumnMap, count: int) -> list:
    if columns.split is None or columns.split not in arrays.names:
        return [None] * count
    return [parse_split(v, f"{arrays.path}: array {columns.split!r}") for v in arrays.per_run(columns.split, count)]

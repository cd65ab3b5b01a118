# SPDX-License-Identifier: Apache-2.0
"""Reader of npz files: arrays of equal length, cut into runs by offsets; large ones are read in pieces."""

import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np

from neurodyn.core.errors import InputError, choices, suggested_file, suggestion
from neurodyn.data.header import Split
from neurodyn.data.readers.column_map import ColumnMap, LogFormat, permissive_map, zip_names
from neurodyn.data.readers.raw import parse_split
from neurodyn.data.readers.source import (
    MOST_VALUES,
    ColumnSeries,
    LogPart,
    Place,
    RunRows,
    Source,
    Topic,
    arrays_of,
    column_index,
    pieces_of,
    series_of,
    split_reference,
    usual_stamp,
)

_WHOLE = 64 << 20
"""Size up to which an array is read at once and cached [bytes]."""


class NpzArrays:
    """Arrays of an npz file by name, read on demand."""

    def __init__(self, path: Path) -> None:
        """Open an npz file, or raise an InputError."""
        self.path = path
        if not path.is_file():
            raise InputError(f"{path}: no such file{suggested_file(path)}; expected an npz file")
        try:
            file = np.load(path, allow_pickle=False)
        except Exception as error:  # damaged zip and npy files raise many kinds of exceptions
            # numpy reports unknown contents as a pickle, which would mislead the user.
            reason = "it is of another kind" if "pickle" in str(error) else error
            raise InputError(f"{path}: not a readable npz file ({reason}); write it with numpy.savez") from None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise InputError(f"{path}: holds one array without a name; expected an npz file (numpy.savez)")
        self._file = file
        self.names = list(file.files)
        self._whole: dict[str, np.ndarray] = {}
        self._headers: dict[str, tuple[tuple[int, ...], bool, np.dtype]] = {}
        self._streams: dict[str, tuple[IO[bytes], int]] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array without reading it."""
        return self._header(name)[0]

    def dtype(self, name: str) -> np.dtype:
        """Return the data type of an array without reading it."""
        return self._header(name)[2]

    def array(self, name: str) -> np.ndarray:
        """Return a whole array, or raise an InputError if it is missing or damaged."""
        self._require(name)
        if name not in self._whole:
            try:
                self._whole[name] = self._file[name]
            except Exception as error:  # see above
                raise self._damage_error(name, error) from None
        return self._whole[name]

    def step(self, name: str) -> float:
        """Return the number in an array as a time step [s], or raise an InputError."""
        array = self.array(name)
        if array.size != 1 or array.dtype.kind not in "fiu" or not 0 < array.item() < float("inf"):
            raise InputError(f"{self.path}: array {name!r} is no time step; expected one number above 0 [s]")
        return float(array.item())

    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Return consecutive rows of an array, errors as in `array`; a large array is read sequentially."""
        shape, by_columns, dtype = self._header(name)
        width = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        if by_columns or dtype.hasobject or shape[0] * width <= _WHOLE:
            return self.array(name)[begin:end]
        try:
            stream, row = self._streams.pop(name, (None, 0))
            if stream is None or row > begin:
                stream, row = zipfile.ZipFile(self.path).open(f"{name}.npy"), 0  # noqa: SIM115 (kept for the rows that follow)
                _read_header(stream)
            _skip(stream, (begin - row) * width)
            content = stream.read((end - begin) * width)
            rows = np.frombuffer(content, dtype).reshape(end - begin, *shape[1:])
        except Exception as error:  # see above
            raise self._damage_error(name, error) from None
        self._streams[name] = (stream, end)
        return rows

    def _header(self, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
        """Return shape, whether the order is Fortran, and dtype of an array."""
        self._require(name)
        if name not in self._headers:
            try:
                with zipfile.ZipFile(self.path).open(f"{name}.npy") as stream:
                    self._headers[name] = _read_header(stream)
            except KeyError:  # a member that is not an array
                raise self._damage_error(name, "it is no array") from None
            except Exception as error:  # see above
                raise self._damage_error(name, error) from None
        return self._headers[name]

    def _require(self, name: str) -> None:
        if name not in self.names:
            raise InputError(
                f"{self.path}: has no array {name!r}{suggestion(name, self.names)}; arrays there: {choices(self.names)}"
            )

    def _damage_error(self, name: str, reason: object) -> InputError:
        return InputError(f"{self.path}: array {name!r} cannot be read ({reason}); write the file again")


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(stream)


def _skip(stream: IO[bytes], count: int) -> None:
    while count > 0:
        count -= len(stream.read(min(count, 1 << 20))) or count


class NpzSource(Source):
    """An npz file whose arrays have one value, or one row of values, per row of the log."""

    form = "npz"
    open_arrays: Callable[[Path], NpzArrays] = NpzArrays

    def __init__(self, path: Path, columns: ColumnMap | None) -> None:
        """Open a file; raise an InputError if a floating joint's array has the wrong width."""
        self.path, self._map, self._arrays = path, columns or permissive_map(self.form), self.open_arrays(path)
        self._stamp = self.stamp() if columns is None else columns.time
        for joint in self._map.poses.values():
            for name, width in joint.arrays.items():
                shape = self._arrays.shape(name)
                if len(shape) != 2 or shape[1] != width:
                    raise InputError(f"{path}: array {name!r} has shape {list(shape)}; expected [rows, {width}]")

    def topics(self) -> list[Topic]:
        """Return the numeric arrays grouped by length, longest first."""
        by_rows: dict[int, list[str]] = {}
        for name in self._arrays.names:
            shape = self._arrays.shape(name)
            if self._arrays.dtype(name).kind in "fiub" and len(shape) in (1, 2):
                columns = [name] if len(shape) == 1 else [f"{name}[{index}]" for index in range(shape[1])]
                by_rows.setdefault(shape[0], []).extend(columns)
        ordered = sorted(by_rows.items(), reverse=True)
        clock = "an array" if self.stamp() else "none"
        return [Topic(f"{rows} rows", "arrays", tuple(names), clock, rows) for rows, names in ordered]

    def stamp(self) -> str | None:
        """Return the array whose name looks like a time stamp, among the longest arrays."""
        shapes = {name: self._arrays.shape(name) for name in self._arrays.names}
        most = max((shape[0] for shape in shapes.values() if shape), default=0)
        return usual_stamp([name for name, shape in shapes.items() if shape == (most,)])

    def runs(self) -> dict[str, str]:
        """Return an array of integers that rise from 0 to the number of rows, and what has an entry for each run."""
        short = {name: self._arrays.shape(name)[0] for name in self._arrays.names if len(self._arrays.shape(name)) == 1}
        rows = max((self._arrays.shape(name)[0] for name in self._arrays.names if self._arrays.shape(name)), default=0)

        def cuts(name: str) -> bool:
            if self._arrays.dtype(name).kind not in "iu" or not 2 < short[name] < rows:
                return False
            offsets = self._arrays.array(name).astype(np.int64)
            return offsets[0] == 0 and offsets[-1] == rows and bool((np.diff(offsets) > 0).all())

        episodes = next(filter(cuts, short), None)
        if episodes is None:
            return {}
        each = [name for name, count in short.items() if count == short[episodes] - 1]
        names = next((name for name in each if self._arrays.dtype(name).kind == "U" and "name" in name.lower()), None)
        found = {"episodes": episodes, "run_names": names, "split": "split" if "split" in each else None}
        return {key: name for key, name in found.items() if name is not None}

    def parts(self, names: Sequence[str]) -> Iterator[LogPart]:
        """Yield the rows in parts of bounded size, whole runs where possible."""
        rows = self._rows(self._stamp or self._map.coordinates[0].columns[0] or names[0])
        offsets = self._offsets(rows)
        by_run = {name: np.repeat(values, np.diff(offsets)) for name, values in self._of_runs(offsets).items()}
        wanted = [name for name in (*names, *([self._stamp] if self._stamp else [])) if name not in by_run]
        places = {name: self._place(name, rows) for name in wanted}
        period = self._period()
        for group in _batches(self._runs(offsets), len(places)):
            begin, end = group[0].rows.start, group[-1].rows.stop
            time = (begin + np.arange(end - begin)) * period
            blocks = {name: ColumnSeries(time, self._arrays.rows(name, begin, end)) for name in arrays_of(places)}
            series = series_of(places, blocks)
            if self._stamp is not None:
                time = self.seconds(series[self._stamp].value, self._stamp, begin, self._map.time_unit)
                series = {name: ColumnSeries(time, values) for name, (_, values) in series.items()}
            series |= {name: ColumnSeries(time, values[begin:end]) for name, values in by_run.items()}
            moved = [replace(r, rows=slice(r.rows.start - begin, r.rows.stop - begin)) for r in group]
            yield LogPart(moved, series, begin)

    def _split(self, reference: str) -> tuple[str, str | None]:
        """Split a reference as `split_reference` does, unless an array has it as its name, such as "time [ms]"."""
        return (reference, None) if reference in self._arrays.names else split_reference(reference)

    def _rows(self, reference: str) -> int:
        name, _ = self._split(reference)
        shape = self._arrays.shape(name)
        if not shape or not shape[0]:
            raise InputError(f"{self.path}: array {reference!r} is empty; expected one value per row")
        return shape[0]

    def _place(self, reference: str, rows: int) -> Place:
        """Split a reference, "array[index]" or "array", into array and column."""
        name, key = self._split(reference)
        shape, kind = self._arrays.shape(name), self._arrays.dtype(name)
        if kind.kind not in "fiub":
            raise InputError(f"{self.path}: array {name!r} holds {kind}; expected numbers")
        index = column_index(key, shape[1]) if len(shape) == 2 else None
        if shape[:1] != (rows,) or (index is None and (len(shape) != 1 or key is not None)):
            raise InputError(
                f"{self.path}: array {name!r} has shape {list(shape)}; expected [{rows}] for {name!r}, or "
                f"[{rows}, columns] for {name + '[index]'!r} (asked for {reference!r})"
            )
        return name, index

    def _period(self) -> float:
        """Return the time between two rows [s], from the column map or the array it names."""
        period = self._map.period
        if not isinstance(period, str):
            return float(period or 0.0)
        return self._arrays.step(period)

    def _offsets(self, rows: int) -> np.ndarray:
        name = self._map.episodes
        if name is None:
            return np.array([0, rows])
        offsets = self._arrays.array(name)
        good = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) > 1
        if not good or offsets[0] != 0 or offsets[-1] != rows or (np.diff(offsets.astype(np.int64)) < 0).any():
            raise InputError(
                f"{self.path}: array {name!r} ({offsets.dtype}, shape {list(offsets.shape)}) does not cut "
                f"{rows} rows into runs; expected integers that rise from 0 to {rows}"
            )
        return offsets

    def _runs(self, offsets: np.ndarray) -> list[RunRows]:
        count = len(offsets) - 1
        numbered = [f"{self.path.stem}/{index}" if count > 1 else self.path.stem for index in range(count)]
        names = self._texts(self._map.run_names, count) or numbered
        groups, splits = self._groups(count), self._splits(count)
        events = self._texts(self._map.together, count) or [None] * count
        rows = [slice(begin, end) for begin, end in pairwise(map(int, offsets))]
        return list(map(RunRows, names, groups, splits, events, rows))

    def _texts(self, name: str | None, count: int) -> list[str] | None:
        """Return an optional array of `count` names."""
        if name is None or name not in self._arrays.names:
            return None
        return [str(value) for value in self._per_run(name, count)]

    def _per_run(self, name: str, count: int) -> np.ndarray:
        array = self._arrays.array(name)
        if array.shape != (count,):
            raise InputError(
                f"{self.path}: array {name!r} has shape {list(array.shape)}; expected [{count}], one per run"
            )
        return array

    def _of_runs(self, offsets: np.ndarray) -> dict[str, np.ndarray]:
        """Return the arrays of parameters that have one number per run."""
        names = {name for column in self._map.parameters.values() for name in column.names} & set(self._arrays.names)
        count, rows = len(offsets) - 1, int(offsets[-1])
        return {
            name: self._arrays.array(name).astype(np.float64)
            for name in names
            if self._arrays.shape(name) == (count,) != (rows,) and self._arrays.dtype(name).kind in "fiub"
        }

    def _groups(self, count: int) -> list[str]:
        columns = self._map
        if columns.group is None or columns.group not in self._arrays.names:
            return [""] * count
        values = self._per_run(columns.group, count)
        if columns.group_names is None or columns.group_names not in self._arrays.names:
            return [str(value) for value in values]
        names = self._arrays.array(columns.group_names)
        if names.ndim != 1 or values.dtype.kind not in "iu" or values.min() < 0 or values.max() >= len(names):
            raise InputError(
                f"{self.path}: array {columns.group!r} ({values.dtype}) does not index the {names.size} names in "
                f"{columns.group_names!r}; expected integers from 0 to {names.size - 1}"
            )
        return [str(names[int(value)]) for value in values]

    def _splits(self, count: int) -> list[Split | None]:
        name = self._map.split
        if name is None or name not in self._arrays.names:
            return [None] * count
        return [parse_split(v, f"{self.path}: array {name!r}") for v in self._per_run(name, count)]


def _batches(runs: Sequence[RunRows], columns: int) -> Iterator[list[RunRows]]:
    """Yield consecutive runs in batches of bounded size; longer runs are split."""
    batch: list[RunRows] = []
    for run in runs:
        pieces = pieces_of(run.rows.stop - run.rows.start, columns)
        for piece in pieces:
            rows = slice(run.rows.start + piece.start, run.rows.start + piece.stop)
            size = (rows.stop - (batch[0].rows.start if batch else rows.start)) * columns
            if batch and size > MOST_VALUES:
                yield batch
                batch = []
            batch.append(replace(run, rows=rows, partial=len(pieces) > 1))
    if batch:
        yield batch


def _recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is an npz file without MuJoCo's names, by its contents or its suffix."""
    names = zip_names(path, head)
    return ("qpos" not in names and bool(names)) or (path.suffix.lower() == ".npz" and not names)


KEYS = frozenset({"episodes", "group", "group_names", "run_names", "split", "time_unit", "together"})
NPZ = LogFormat("an npz file (numpy.savez)", _recognises, NpzSource, keys=KEYS)
"""npz files."""

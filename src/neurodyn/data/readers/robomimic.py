# SPDX-License-Identifier: Apache-2.0
"""Reader of robomimic and Isaac Lab demonstrations in HDF5: groups /data/demo_N.

Observations and actions are recorded before a step, Isaac Lab's `states` after it; `initial_state` is the state before
the first step. There are no time stamps: the time step is in the environment's settings or the column map.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.readers.column_map import HDF5, ColumnMap, LogFormat
from neurodyn.data.readers.source import (
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
)

_AFTER = ("states/", "next_obs/")
_INITIAL = "initial_state/"
_MASKS = {"train": Split.TRAIN, "valid": Split.VALIDATION, "validation": Split.VALIDATION, "test": Split.TEST}


class RobomimicSource(Source):
    """A file of demonstrations."""

    def __init__(self, path: Path, columns: ColumnMap | None) -> None:
        """Open a file; raise an InputError if it is damaged, or a demonstration is missing or empty."""
        self.path, self._map = path, columns
        with _reporting_damage(self.path):
            self._file: Any = h5py.File(path, "r")
            self._data: Any = self._file.get("data")
            if not isinstance(self._data, h5py.Group):
                raise InputError(f"{path}: has no group 'data'; expected demonstrations data/demo_0, data/demo_1 ...")
            groups = [str(name) for name, item in self._data.items() if isinstance(item, h5py.Group)]
            self.demos = sorted(groups, key=_number)
            if not self.demos:
                raise InputError(f"{path}: holds no demonstration; expected groups data/demo_0, data/demo_1 ...")
            self._rows = {name: self._length(name) for name in self.demos}
        empty = [name for name, rows in self._rows.items() if not rows]
        if empty:
            raise InputError(f"{path}: {', '.join(empty[:5])} {'are' if len(empty) > 1 else 'is'} empty; remove them")

    def topics(self) -> list[Topic]:
        """Return the arrays of the first demonstration."""
        topics: list[Topic] = []
        rows = sum(self._rows.values())
        with _reporting_damage(self.path):
            arrays = self._arrays(self.demos[0])
            for name, array in arrays.items():
                width = int(np.prod(array.shape[1:]))
                trouble = "" if array.dtype.kind in "fiub" and array.ndim <= 2 else "is no table of numbers"
                columns = [name] if array.ndim == 1 else [f"{name}[{index}]" for index in range(width)]
                clock = "after the step" if name.startswith(_AFTER) else "before the step"
                kind = f"{array.dtype} {list(array.shape[1:])}"
                topics.append(Topic(name, kind, () if trouble else tuple(columns), clock, rows, trouble))
        return topics

    @property
    def step(self) -> float | None:
        """Time step [s], from the column map or the environment's settings; None if neither has it."""
        if self._map is not None and self._map.period is not None:
            return float(self._map.period)
        return self._declared_step()

    def parts(self, names: Sequence[str]) -> Iterator[LogPart]:
        """Yield the demonstrations."""
        step = self.step
        if step is None:
            if self._map is not None:
                raise InputError(
                    f"{self.path}: does not say how long a step is (env_args: sim_args.dt and decimation, or "
                    "env_kwargs.control_freq); give `period` [s] in the column map"
                )
            step = 1.0
        splits = self._splits()
        for demo in self.demos:
            with _reporting_damage(self.path):
                places = {name: self._place(demo, name) for name in names}
                group = self._group(demo)
                pieces = pieces_of(self._rows[demo], len(names))
                for piece in pieces:
                    run = RunRows(f"{self.path.stem}/{demo}", group, splits.get(demo), partial=len(pieces) > 1)
                    yield LogPart([run], self._series(demo, places, piece, step))

    def _series(self, demo: str, places: dict[str, Place], piece: slice, step: float) -> dict[str, ColumnSeries]:
        before = step * np.arange(piece.start, piece.stop)
        after = step * np.arange(piece.start + 1, piece.stop + 1)
        blocks: dict[str, ColumnSeries] = {}
        whole = np.concatenate(([step * piece.start], after))
        for array in arrays_of(places):
            values = self._data[demo][array][piece]
            time = after if array.startswith(_AFTER) else before
            initial = self._initial(demo, array) if time is after else None
            if initial is not None:
                first = initial if piece.start == 0 else self._data[demo][array][piece.start - 1 : piece.start]
                values, time = np.concatenate((first, values)), whole
            blocks[array] = ColumnSeries(time, values)
        return series_of(places, blocks)

    def _initial(self, demo: str, array: str) -> np.ndarray | None:
        """Return the value of a state before the first step, shape [1, columns]; None if not recorded."""
        initial = (
            self._data[demo].get(_INITIAL + array.removeprefix(_AFTER[0])) if array.startswith(_AFTER[0]) else None
        )
        wanted = self._data[demo][array].shape[1:]
        return initial[()] if isinstance(initial, h5py.Dataset) and initial.shape == (1, *wanted) else None

    def _place(self, demo: str, name: str) -> Place:
        """Split a name such as "obs/joint_pos[3]" into array and column."""
        array, key = split_reference(name)
        dataset = self._data[demo].get(array)
        if not isinstance(dataset, h5py.Dataset) or array.startswith(_INITIAL):
            raise self.missing([name], self._arrays(demo), f"array in {demo!r}")
        rows = self._rows[demo]
        where = f"{self.path}: data/{demo}/{array}"
        if dataset.dtype.kind not in "fiub" or dataset.ndim not in (1, 2):
            raise InputError(
                f"{where} holds {dataset.dtype} of shape {list(dataset.shape)}; expected a table of numbers"
            )
        if dataset.shape[0] != rows:
            raise InputError(f"{where} has {dataset.shape[0]} rows; expected {rows}, as actions or num_samples say")
        if dataset.ndim == 1:
            if key is None:
                return array, None
            raise InputError(f"{where} has one column; valid: {array!r} (asked for {name!r})")
        index = column_index(key, dataset.shape[1])
        if index is None:
            last = dataset.shape[1] - 1
            raise InputError(
                f"{where} has {last + 1} columns; valid: {array}[0] to {array}[{last}] (asked for {name!r})"
            )
        return array, index

    def _arrays(self, demo: str) -> dict[str, h5py.Dataset]:
        """Return a demonstration's arrays with one row per step, by path within it."""
        arrays: dict[str, h5py.Dataset] = {}

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.ndim and not name.startswith(_INITIAL):
                arrays[name] = item

        self._data[demo].visititems(visit)
        return arrays

    def _length(self, demo: str) -> int:
        actions = self._data[demo].get("actions")
        if isinstance(actions, h5py.Dataset) and actions.ndim:
            return int(actions.shape[0])
        rows = self._data[demo].attrs.get("num_samples")
        if isinstance(rows, int | np.integer) and rows >= 0:
            return int(rows)
        raise InputError(f"{self.path}: data/{demo} has neither 'actions' nor the attribute num_samples; expected one")

    def _group(self, demo: str) -> str:
        success = self._data[demo].attrs.get("success")
        return "" if success is None else ("success" if bool(success) else "failure")

    def _splits(self) -> dict[str, Split]:
        """Return the split of each demonstration listed in robomimic's filter keys."""
        mask: Any = self._file.get("mask")
        if not isinstance(mask, h5py.Group):
            return {}
        splits: dict[str, Split] = {}
        for key, split in _MASKS.items():
            names: Any = mask.get(key)
            if isinstance(names, h5py.Dataset):
                listed = np.atleast_1d(names[()]).tolist()
                splits |= {name.decode() if isinstance(name, bytes) else str(name): split for name in listed}
        return splits

    def _declared_step(self) -> float | None:
        text = self._data.attrs.get("env_args")
        try:
            settings = json.loads(text) if isinstance(text, str | bytes) else {}
            simulation = settings.get("sim_args") or {}
            if "dt" in simulation:
                step = float(simulation["dt"]) * float(simulation.get("decimation", 1))
            else:
                step = 1 / float((settings.get("env_kwargs") or {})["control_freq"])
        except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
            return None
        return step if 0 < step < float("inf") else None


@contextmanager
def _reporting_damage(path: Path) -> Iterator[None]:
    """Turn the many exceptions that HDF5 raises on damaged files into an InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise InputError(f"{path}: is damaged or cut off ({reason}); record or copy it again") from None


def _number(name: str) -> tuple[int, str]:
    digits = re.findall(r"\d+", name)
    return (int(digits[-1]) if digits else -1, name)


def _recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is HDF5 with a group `data`."""
    if not head.startswith(HDF5):
        return False
    try:
        with h5py.File(path, "r") as file:
            return isinstance(file.get("data"), h5py.Group) and "format" not in file.attrs
    except Exception:  # a damaged file has no known format
        return False


ROBOMIMIC = LogFormat("HDF5 of robomimic or Isaac Lab (data/demo_0 ...)", _recognises, RobomimicSource, times="steps")
"""robomimic and Isaac Lab demonstrations."""

# SPDX-License-Identifier: Apache-2.0
"""Reader of npz files with MuJoCo's array names: qpos, qvel, ctrl, and time or a time step.

Arrays have shape [T, columns] or [episodes, T, columns]. Controls may have one row fewer than states, because no
control follows the last state.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.data.readers.column_map import ColumnMap, LogFormat, zip_names
from neurodyn.data.readers.npz import NpzArrays
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

_TIMES, _STEPS = ("time", "t"), ("timestep", "dt")


class MujocoSource(Source):
    """An npz file of MuJoCo states."""

    def __init__(self, path: Path, columns: ColumnMap | None) -> None:
        """Open a file; raise an InputError if it is damaged or qpos has an invalid shape."""
        self.path, self._map, self._arrays = path, columns, NpzArrays(path)
        shape = self._arrays.shape("qpos")
        if len(shape) not in (2, 3) or 0 in shape:
            raise InputError(
                f"{path}: array 'qpos' has shape {list(shape)}; expected [rows, nq] or [episodes, rows, nq], not empty"
            )
        self._lead = shape[:-1]

    def topics(self) -> list[Topic]:
        """Return the arrays with as many rows as qpos."""
        streams = []
        for name in self._arrays.names:
            shape = self._arrays.shape(name)
            if name in _TIMES or len(shape) not in (len(self._lead), len(self._lead) + 1) or not self._fits(shape):
                continue
            flat = len(shape) == len(self._lead)
            columns = [name] if flat else [f"{name}[{index}]" for index in range(shape[-1])]
            numbers = self._arrays.dtype(name).kind in "fiub"
            rows = int(np.prod(shape[: len(self._lead)]))
            kind = f"{self._arrays.dtype(name)} {list(shape[len(self._lead) :])}"
            trouble = "" if numbers else "is no array of numbers"
            streams.append(Topic(name, kind, tuple(columns) if numbers else (), self._clock(), rows, trouble))
        return streams

    def _clock(self) -> str:
        if any(name in self._arrays.names for name in _TIMES):
            return "time"
        return "steps" if self.step is not None else "none"

    @property
    def step(self) -> float | None:
        """Time step [s], from the column map or the file; 0 with an array of times, None if neither has it."""
        if self._map is not None and self._map.period is not None:
            return float(self._map.period)
        if any(name in self._arrays.names for name in _TIMES):
            return 0.0
        name = next((name for name in _STEPS if name in self._arrays.names), None)
        return None if name is None else self._arrays.step(name)

    def parts(self, names: Sequence[str]) -> Iterator[LogPart]:
        """Yield the episodes."""
        places = {name: self._place(name) for name in names}
        clock = next((name for name in _TIMES if name in self._arrays.names), None)
        if self._map is not None and self._map.period is not None:
            clock = None
        step = self.step
        if clock is None and step is None:
            if self._map is not None:
                raise InputError(
                    f"{self.path}: has neither an array 'time' nor 'timestep'; give `period` [s] in the column map"
                )
            step = 1.0
        if clock is not None:
            shape = self._arrays.shape(clock)
            if (
                shape not in (self._lead, (*self._lead, 1), self._lead[-1:])
                or self._arrays.dtype(clock).kind not in "fiu"
            ):
                raise InputError(f"{self.path}: array {clock!r} has shape {list(shape)}; expected {list(self._lead)}")
        episodes = self._lead[0] if len(self._lead) == 2 else 1
        for episode in range(episodes):
            name = self.path.stem if len(self._lead) == 1 else f"{self.path.stem}/{episode}"
            pieces = pieces_of(self._lead[-1], len(names))
            for piece in pieces:
                time = self._times(clock, episode, piece, step)
                yield LogPart(
                    [RunRows(name, partial=len(pieces) > 1)], self._series(places, episode, piece, time), piece.start
                )

    def _times(self, clock: str | None, episode: int, piece: slice, step: float | None) -> np.ndarray:
        if clock is None:
            return (step or 1.0) * np.arange(piece.start, piece.stop)
        values = self._block(clock, episode, piece).reshape(-1).astype(np.float64)
        if not np.isfinite(values).all():
            row = piece.start + int(np.argmin(np.isfinite(values)))
            raise InputError(f"{self.path}: array {clock!r} holds {values[row - piece.start]} in row {row}; expected "
                             "finite numbers")  # fmt: skip
        return values

    def _series(
        self, places: dict[str, Place], episode: int, piece: slice, time: np.ndarray
    ) -> dict[str, ColumnSeries]:
        blocks, shorter = {}, time[:-1]
        for array in arrays_of(places):
            values = self._block(array, episode, piece)
            blocks[array] = ColumnSeries(time if len(values) == len(time) else shorter, values)
        return series_of(places, blocks)

    def _block(self, array: str, episode: int, piece: slice) -> np.ndarray:
        """Return rows of an array; an array with one row fewer ends early."""
        shape = self._arrays.shape(array)
        if len(self._lead) == 2 and shape[: len(self._lead)] != self._lead[-1:] and len(shape) > 1:
            return self._arrays.rows(array, episode, episode + 1)[0][piece]
        return self._arrays.rows(array, piece.start, min(piece.stop, *shape[:1]))

    def _place(self, reference: str) -> Place:
        """Split a reference such as "qpos[3]" into array and column."""
        name, key = split_reference(reference)
        if name not in self._arrays.names:
            raise self.missing([name], self._arrays.names, "array")
        shape, kind = self._arrays.shape(name), self._arrays.dtype(name)
        if kind.kind not in "fiub":
            raise InputError(f"{self.path}: array {name!r} holds {kind}; expected numbers")
        if not self._fits(shape):
            raise InputError(
                f"{self.path}: array {name!r} has shape {list(shape)}; expected {[*self._lead, 'columns']}, as qpos has"
            )
        if len(shape) == len(self._lead) and key is None:
            return name, None
        index = column_index(key, shape[-1]) if len(shape) == len(self._lead) + 1 else None
        if index is None:
            valid = f"{name}[0] to {name}[{shape[-1] - 1}]" if len(shape) > len(self._lead) else name
            raise InputError(
                f"{self.path}: has no column {reference!r}; array {name!r} has shape {list(shape)}; valid: {valid}"
            )
        return name, index

    def _fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether an array has as many rows as qpos, or one fewer."""
        lead = shape[: len(self._lead)]
        return lead == self._lead or lead == (*self._lead[:-1], self._lead[-1] - 1)


def _recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is an npz file with an array qpos."""
    return "qpos" in zip_names(path, head)


MUJOCO = LogFormat("an npz file with MuJoCo's qpos, qvel and ctrl", _recognises, MujocoSource, times="steps")
"""MuJoCo states in npz files."""

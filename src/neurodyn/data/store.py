# SPDX-License-Identifier: Apache-2.0
"""Trajectories: the rows of all episodes, in memory or read from the file on demand, and the episode table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import h5py
import msgspec
import numpy as np

from neurodyn.core.description.sensors import stream_columns
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, choices
from neurodyn.data.header import EPISODE, Checksums, Split, Status, StoreHeader, dataset, read_header
from neurodyn.data.writer import (
    GROUND,
    MEASURED,
    PARAMETERS,
    REWARD,
    StoreWriter,
    check_ground,
    check_parameters,
    open_store_file,
    widths,
)

IN_MEMORY = 512 << 20
"""Size up to which a whole store is read into memory [bytes]."""

_BLOCK_BYTES = 4 << 20
_FEW = 16
"""Starts within a block up to which rows are read one by one."""


class StoredRows:
    """Rows of a store as a float32 array of shape [rows, width] whose slices are read from the file.

    `numpy.asarray` reads all rows once and keeps them.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, path: Path, spec: StateSpec, rows: int) -> None:
        self._path, self._spec = path, spec
        self.shape = (rows, sum(widths(spec).values()))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Size in memory [bytes]."""
        return 4 * self.shape[0] * self.shape[1]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Return consecutive rows, shape [n, width], or raise an InputError if the file is damaged."""
        begin, end, _ = rows.indices(len(self))
        try:
            return self._read(begin, max(begin, end))
        except (OSError, RuntimeError) as error:
            raise InputError(f"{self._path}: cannot be read any more ({error}); write it again") from None

    def _read(self, begin: int, end: int) -> np.ndarray:
        """Read rows; whole pieces are verified when first read."""
        sums = self._checksums
        if sums is None or begin == end or sums.known(begin, end):
            return read_rows(self._file, self._spec, begin, end)
        first, last = sums.around(begin, end)
        rows_read = read_rows(self._file, self._spec, first, last, sums)
        sums.note(first, last)
        return rows_read[begin - first : end - first]

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
    """Yield all rows in blocks of bounded size, each with the index of its first row."""
    size = max(1, _BLOCK_BYTES // (4 * max(1, rows.shape[1])))
    for begin in range(0, len(rows), size):
        yield begin, rows[begin : begin + size]


def take(rows: Rows, starts: np.ndarray, count: int = 1) -> np.ndarray:
    """Return `count` consecutive rows from each of `starts` [n], shape [n, count, width]."""
    steps = np.arange(count)
    if isinstance(rows, np.ndarray):
        return rows[starts[:, None] + steps]
    rows_read = np.empty((len(starts), count, rows.shape[1]), np.float32)
    order = np.argsort(starts, kind="stable")
    ordered = starts[order]
    size = max(1, _BLOCK_BYTES // (4 * rows.shape[1]))
    edges = np.searchsorted(ordered, np.arange(0, len(rows) + size, size))
    for first, last in pairwise(edges):
        if last - first <= _FEW:
            for place in order[first:last]:
                rows_read[place] = rows[int(starts[place]) : int(starts[place]) + count]
        else:
            begin = int(ordered[first])
            block = rows[begin : int(ordered[last - 1]) + count]
            rows_read[order[first:last]] = block[(ordered[first:last] - begin)[:, None] + steps]
    return rows_read


def read_rows(file: h5py.File, spec: StateSpec, begin: int, end: int, checksums: Checksums | None = None) -> np.ndarray:
    """Read rows of an open file: positions, velocities, controls, channels and contacts side by side.

    Rows are verified against `checksums`, if given; they must then be whole pieces. An InputError names missing or
    changed data.
    """
    wide, column = widths(spec), 0
    rows_read = np.empty((end - begin, sum(wide.values())), np.float32)
    for name, width in wide.items():
        if width:
            values = rows_dataset(file, name, end, width)[begin:end]
            if checksums is not None:
                checksums.verify(name, begin, values)
            rows_read[:, column : column + width] = values
        column += width
    return rows_read


def rows_dataset(file: h5py.File, name: str, rows: int, *width: int) -> h5py.Dataset:
    """Return a float32 dataset of at least `rows` rows, or raise an InputError if its shape or type differs."""
    array = dataset(file, name)
    if array.shape[1:] != width or array.shape[0] < rows or array.dtype != np.float32:
        raise InputError(
            f"{file.filename}: damaged store: {name} is {array.dtype} {array.shape}, but the header asks for "
            f"float32 {[rows, *width]}"
        )
    return array


@dataclass(frozen=True)
class Store:
    """All trajectories of a store.

    Attributes:
        header: Origin and layout.
        frames: Positions, velocities, controls, channels and contacts side by side, one row per state, float32, shape
            [N, nq + nv + nu + nx + nc]. The control of a row acts during the frame that starts there; in the last row
            of an episode it is unused. Rows of a large file are read on demand.
        table: One EPISODE record per episode, shape [E].
        ground: Pose of the header's scene in each episode (scene to world; position [m], quaternion xyzw), float32,
            shape [E, 7]; None without a scene.
        reward: Reward of the frame that starts at each row, unused in the last row of an episode, float32, shape [N];
            None if no policy collected the data.
        measured: Columns of the header's streams (`core.description.sensors.stream_columns`), NaN without a reading,
            float32, shape [N, columns]; None without streams.
        parameters: Values of the header's parameters in each episode, float32, shape [E, parameters]; None without any.
        spread: Of an estimated base: square root of the covariance of its errors in position, rotation, linear and
            angular velocity (world axes, as in `position_difference`), float32, shape [N, 12, k]; None for none. Files
            do not hold it.
    """

    header: StoreHeader
    frames: Rows
    table: np.ndarray
    ground: np.ndarray | None = None
    reward: np.ndarray | None = None
    measured: np.ndarray | None = None
    parameters: np.ndarray | None = None
    spread: np.ndarray | None = None

    @classmethod
    def open(cls, path: str | Path, *, memory: int = IN_MEMORY) -> Self:
        """Read a store from a file, or the committed part from the PATH.part of an interrupted writer.

        Up to `memory` bytes of rows are read into memory; the rows of a larger file are read on demand.

        Raises:
            InputError: The file is missing, truncated, damaged, not a store, or of another schema version.
        """
        path = Path(path)
        try:
            with open_store_file(path) as file:
                header = read_header(file, str(path))
                _, rows, episodes = (int(n) for n in dataset(file, "committed")[()])
                sums = Checksums.of(file, str(path))
                table = dataset(file, "episodes")[:episodes]
                stored = StoredRows(path, header.spec, rows)
                fits = stored.nbytes <= memory
                frames = read_rows(file, header.spec, 0, rows, sums) if fits else stored
                ground = None if header.scene is None else rows_dataset(file, GROUND, episodes, 7)[:episodes]
                reward = rows_dataset(file, REWARD, rows)[:rows] if REWARD in file else None
                numbers = len(header.parameters)
                own = rows_dataset(file, PARAMETERS, episodes, numbers)[:episodes] if numbers else None
                columns = len(stream_columns(header.streams))
                measured = rows_dataset(file, MEASURED, rows, columns)[:rows] if columns else None
                for name, values in (("episodes", table), (GROUND, ground), (PARAMETERS, own)):
                    if sums is not None and values is not None:
                        sums.verify_episodes(name, values)
                for name, values in ((REWARD, reward), (MEASURED, measured)):
                    if sums is not None and values is not None:
                        sums.verify(name, 0, values)
        except InputError:
            raise
        except Exception as error:  # HDF5 raises many kinds of exceptions on damaged files
            raise InputError(
                f"{path}: damaged store ({type(error).__name__}: {error}); write it again with `neurodyn generate` "
                "or `neurodyn import`"
            ) from None
        store = cls(header, frames, table, ground, reward, measured, own)
        store.check(str(path))
        return store

    def write(self, path: str | Path) -> None:
        """Write the trajectories to a file, atomically."""
        with StoreWriter(path, self.header, rewarded=self.reward is not None) as writer:
            writer.append_rows(
                self.q, self.qd, self.control, self.table, self.ground, channel=self.channel, contact=self.contact,
                reward=self.reward, measured=self.measured, parameters=self.parameters,
            )  # fmt: skip

    def check(self, where: str) -> None:
        """Raise an InputError if tables do not fit the rows or values are not finite; `where` starts the message."""
        rows, table = len(self.frames), self.table
        lengths = table["length"].astype(np.int64)
        if not len(table):
            raise InputError(f"{where}: holds no episode; expected at least one")
        ends = np.cumsum(lengths + 1)
        misplaced = (table["start"] != ends - lengths - 1).any()
        if table.dtype != EPISODE or lengths.min() < 0 or ends[-1] != rows or misplaced:
            raise InputError(f"{where}: damaged store: its table of episodes does not fit its {rows} rows")
        if not np.isin(table["split"], list(Split)).all() or not np.isin(table["status"], list(Status)).all():
            raise InputError(f"{where}: damaged store: unknown split or status in its table of episodes")
        for name, names in (("group", self.header.groups), ("run", self.header.runs)):
            if table[name].max() >= len(names) and table[name].max() > -1:
                raise InputError(f"{where}: damaged store: {name} {table[name].max()} has no name")
        check_ground(self.ground, self.header, len(table), where)
        check_parameters(self.parameters, self.header, len(table), where)
        wanted = (rows, len(stream_columns(self.header.streams)))
        if (self.measured is None) != (not wanted[1]) or (self.measured is not None and self.measured.shape != wanted):
            raise InputError(f"{where}: damaged store: its readings of sensors do not fit its streams and rows")
        if self.measured is not None and np.isinf(self.measured).any():
            raise InputError(f"{where}: a reading of a sensor is infinite; expected finite numbers, or NaN for none")
        if self.reward is not None and not np.isfinite(self.reward).all():
            raise InputError(f"{where}: a reward is not finite; expected finite numbers")
        kept = np.ones(self.frames.shape[1], bool)
        kept[: len(self.header.absent)] = ~self.header.absent
        for begin, block in blocks(self.frames):
            block = block if kept.all() else block[:, kept]
            if not np.isfinite(block).all():
                row = begin + int(np.argmin(np.isfinite(block).all(axis=1)))
                episode = int(np.searchsorted(ends, row, side="right"))
                raise InputError(
                    f"{where}: a value that is not finite in episode {episode}, row {row}; expected finite numbers"
                )

    def require_base(self, where: str) -> None:
        """Raise an InputError if the pose and velocity of a floating base are neither measured nor estimated."""
        if self.header.base == "unmeasured":
            raise InputError(
                f"{where}: the pose and velocity of the base {self.header.spec.joints[0].name!r} are not measured, and "
                "this needs them; valid: a log with motion capture (`floating` in its column map); `neurodyn adapt` "
                "estimates them"
            )

    @property
    def q(self) -> np.ndarray:
        """Positions [rad or m], a view of shape [N, nq]."""
        return self.columns("q")

    @property
    def qd(self) -> np.ndarray:
        """Velocities [rad/s or m/s], a view of shape [N, nv]."""
        return self.columns("qd")

    @property
    def control(self) -> np.ndarray:
        """Controls in the unit of the spec's control_kind, a view of shape [N, nu]."""
        return self.columns("control")

    @property
    def channel(self) -> np.ndarray:
        """Channels of the spec, a view of shape [N, nx]."""
        return self.columns("channel")

    @property
    def contact(self) -> np.ndarray:
        """Whether each contact of the spec is closed (1 or 0), a view of shape [N, nc]."""
        return self.columns("contact")

    def columns(self, name: str, rows: np.ndarray | None = None) -> np.ndarray:
        """Return "q", "qd", "control", "channel" or "contact" of some or all rows, shape [..., width], as a view."""
        rows = np.asarray(self.frames) if rows is None else rows
        wide = widths(self.header.spec)
        begin = sum(list(wide.values())[: list(wide).index(name)])
        return rows[..., begin : begin + wide[name]]

    @cached_property
    def offsets(self) -> np.ndarray:
        """First row of each episode, and finally the number of rows, shape [E + 1]; int64."""
        return np.concatenate((self.table["start"], [len(self.frames)])).astype(np.int64)

    @property
    def lengths(self) -> np.ndarray:
        """Transitions of each episode, shape [E]; int64."""
        return self.table["length"].astype(np.int64)

    @property
    def split(self) -> np.ndarray:
        """Purpose of each episode, shape [E]; values of `Split`."""
        return self.table["split"]

    @property
    def status(self) -> np.ndarray:
        """How each episode ended, shape [E]; values of `Status`."""
        return self.table["status"]

    @property
    def group(self) -> np.ndarray:
        """Group of each episode, shape [E]; indices into the header's groups, or -1."""
        return self.table["group"]

    @property
    def run(self) -> np.ndarray:
        """Run of each episode, shape [E]; indices into the header's runs, or -1."""
        return self.table["run"]

    @property
    def returns(self) -> np.ndarray | None:
        """Sum of the rewards of each episode, shape [E], float64; None without rewards."""
        if self.reward is None:
            return None
        earned = self.reward.astype(np.float64)
        earned[self.offsets[1:] - 1] = 0.0
        return np.add.reduceat(earned, self.offsets[:-1])

    @property
    def transitions(self) -> int:
        """Number of transitions in all episodes."""
        return int(self.lengths.sum())

    def episodes(self, split: int | None = None) -> np.ndarray:
        """Return the indices of a split's episodes, or of all."""
        return np.arange(len(self.table)) if split is None else np.flatnonzero(self.split == split)

    def run_name(self, episode: int) -> str:
        """Return the name of the recorded run that an episode is from; without runs, its group is one."""
        run, group = int(self.run[episode]), int(self.group[episode])
        if run < 0 and group >= 0:
            return self.header.groups[group]
        return self.header.runs[run] if run >= 0 else f"episode {episode}"

    def select(
        self, episodes: np.ndarray | list[int], frames: int | np.ndarray | None = None, first: int | np.ndarray = 0
    ) -> "Store":
        """Return a store of some episodes, in the given order, or of `frames` transitions of each from `first` on."""
        episodes = np.asarray(episodes, np.int64)
        table = self.table[episodes]
        if frames is not None:
            table["length"] = frames
        lengths, begins = table["length"].astype(np.int64) + 1, self.offsets[episodes] + first
        parts = [slice(begin, begin + length) for begin, length in zip(begins, lengths, strict=True)]
        table["start"] = np.cumsum(lengths) - lengths

        def select(rows: Rows) -> np.ndarray:
            return np.concatenate([rows[part] for part in parts])

        ground, own = (None if one is None else one[episodes] for one in (self.ground, self.parameters))
        per_row = (None if rows is None else select(rows) for rows in (self.reward, self.measured, self.spread))
        reward, measured, spread = per_row
        return Store(self.header, select(self.frames), table, ground, reward, measured, own, spread)

    def differing_in(self, names: Sequence[str]) -> "Store":
        """Return the store with only these parameters, in this order; an InputError names one that it lacks."""
        known = list(self.header.parameters)
        for name in names:
            if name not in known:
                raise InputError(
                    f"data of {self.header.robot!r}: have no parameter {name!r}; valid: {choices(known) or 'none'}"
                )
        chosen = {name: self.header.parameters[name] for name in names}
        values = None if self.parameters is None or not names else self.parameters[:, [known.index(n) for n in names]]
        return replace(self, header=msgspec.structs.replace(self.header, parameters=chosen), parameters=values)

    def episode(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return q [T + 1, nq], qd [T + 1, nv] and control [T, nu] of one episode, as views."""
        begin, length = int(self.table["start"][index]), int(self.table["length"][index])
        rows = slice(begin, begin + length + 1)
        return self.q[rows], self.qd[rows], self.control[begin : begin + length]

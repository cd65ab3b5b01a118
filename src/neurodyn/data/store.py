# SPDX-License-Identifier: Apache-2.0
"""Trajectories: the rows of all episodes in one array, and a table of where each begins.

The rows of large files stay there (`data.stored_rows`); what looks at all of them goes block by block.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import h5py
import numpy as np

from neurodyn.core.description.sensors import stream_columns
from neurodyn.core.errors import InputError
from neurodyn.data.checksums import Checksums
from neurodyn.data.header import EPISODE, Split, Status, StoreHeader, dataset, read_header
from neurodyn.data.stored_rows import IN_MEMORY, Rows, StoredRows, blocks, read_rows, rows_dataset
from neurodyn.data.writer import GROUND, MEASURED, REWARD, StoreWriter, check_ground, open_store_file, widths

__all__ = ["Split", "Status", "Store", "StoreHeader", "StoreWriter"]


@dataclass(frozen=True)
class Store:
    """All trajectories of a store.

    Attributes:
        header: Origin and layout.
        frames: Positions, velocities, controls, channels and contacts side by side, float32, shape
            [N, nq + nv + nu + nx + nc]; one row for each state; the control of a row acts during the frame that begins
            there; the control in the last row of an episode is unused. Of a large file rows that are read as they are
            asked for, by slices.
        table: One EPISODE record for each episode, shape [E].
        ground: Pose of the header's scene in each episode (scene to world; position [m], quaternion with the
            scalar last), float32, shape [E, 7]; None where the header has no scene.
        reward: Reward of the frame that begins in each row, unused in the last row of an episode, float32, shape [N];
            None where no policy earned one.
        measured: Columns of the header's streams (`core.description.sensors.stream_columns`), NaN where there is no
            reading, float32, shape [N, columns]; None where the header has none.
    """

    header: StoreHeader
    frames: Rows
    table: np.ndarray
    ground: np.ndarray | None = None
    reward: np.ndarray | None = None
    measured: np.ndarray | None = None

    @classmethod
    def open(cls, path: str | Path, *, memory: int = IN_MEMORY) -> Self:
        """Read a store from a file; of the PATH.part of an interrupted writer, what was committed.

        Args:
            path: The file.
            memory: Bytes of rows up to which they are read into memory; those of a larger file stay in it.

        Raises:
            InputError: The file is missing, truncated, damaged, no store, or of another schema version.
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
                ground = None if header.scene is None else _read_rows(file, GROUND, episodes, 7)
                reward = _read_rows(file, REWARD, rows) if REWARD in file else None
                columns = len(stream_columns(header.streams))
                measured = _read_rows(file, MEASURED, rows, columns) if columns else None
                if sums is not None:
                    _verify(sums, {"episodes": table, GROUND: ground}, {REWARD: reward, MEASURED: measured})
        except InputError:
            raise
        except Exception as error:  # HDF5 reports damage as whatever kind of exception it meets first
            raise InputError(
                f"{path}: damaged store ({type(error).__name__}: {error}); write it again with `neurodyn generate` "
                "or `neurodyn import`"
            ) from None
        store = cls(header, frames, table, ground, reward, measured)
        store.check(str(path))
        return store

    def write(self, path: str | Path) -> None:
        """Write the trajectories to a file, atomically.

        Raises:
            InputError: The file cannot be written.
        """
        with StoreWriter(path, self.header, rewarded=self.reward is not None) as writer:
            writer.append_rows(
                self.q, self.qd, self.control, self.table, self.ground, channel=self.channel, contact=self.contact,
                reward=self.reward, measured=self.measured,
            )  # fmt: skip

    def check(self, where: str) -> None:
        """Refuse tables that do not fit the rows, and values that are not finite, with an InputError."""
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
        wanted = (rows, len(stream_columns(self.header.streams)))
        if (self.measured is None) != (not wanted[1]) or (self.measured is not None and self.measured.shape != wanted):
            raise InputError(f"{where}: damaged store: its readings of sensors do not fit its streams and rows")
        if self.measured is not None and np.isinf(self.measured).any():
            raise InputError(f"{where}: a reading of a sensor is infinite; expected finite numbers, or NaN for none")
        if self.reward is not None and not np.isfinite(self.reward).all():
            raise InputError(f"{where}: a reward is not finite; expected finite numbers")
        for begin, block in blocks(self.frames):
            if not np.isfinite(block).all():
                row = begin + int(np.argmin(np.isfinite(block).all(axis=1)))
                episode = int(np.searchsorted(ends, row, side="right"))
                raise InputError(
                    f"{where}: a value that is not finite in episode {episode}, row {row}; expected finite numbers"
                )

    @property
    def q(self) -> np.ndarray:
        """Positions [rad or m], a view of shape [N, nq]."""
        return self._columns("q")

    @property
    def qd(self) -> np.ndarray:
        """Velocities [rad/s or m/s], a view of shape [N, nv]."""
        return self._columns("qd")

    @property
    def control(self) -> np.ndarray:
        """Torques [N m or N], or what the spec's control_kind says, a view of shape [N, nu]."""
        return self._columns("control")

    @property
    def channel(self) -> np.ndarray:
        """The spec's channels, a view of shape [N, nx]."""
        return self._columns("channel")

    @property
    def contact(self) -> np.ndarray:
        """Whether the spec's contacts are closed (1 or 0), a view of shape [N, nc]."""
        return self._columns("contact")

    def _columns(self, name: str) -> np.ndarray:
        return self.columns(name, np.asarray(self.frames))

    def columns(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Return one kind of columns ("q", "qd", "control", "channel" or "contact") of some rows, as they are stored.

        Args:
            name: The kind.
            rows: Rows of all columns, shape [..., nq + nv + nu + nx + nc].
        """
        wide = widths(self.header.spec)
        begin = sum(list(wide.values())[: list(wide).index(name)])
        return rows[..., begin : begin + wide[name]]

    @cached_property
    def offsets(self) -> np.ndarray:
        """Rows at which episodes begin, and the end, shape [E + 1]; int64."""
        return np.concatenate((self.table["start"], [len(self.frames)])).astype(np.int64)

    @property
    def lengths(self) -> np.ndarray:
        """Transitions of each episode, shape [E]; int64."""
        return self.table["length"].astype(np.int64)

    @property
    def split(self) -> np.ndarray:
        """What each episode is for, shape [E]; values of `Split`."""
        return self.table["split"]

    @property
    def status(self) -> np.ndarray:
        """How each episode ended, shape [E]; values of `Status`."""
        return self.table["status"]

    @property
    def group(self) -> np.ndarray:
        """Group of each episode, shape [E]; indexes of the header's groups, or -1."""
        return self.table["group"]

    @property
    def run(self) -> np.ndarray:
        """Run of each episode, shape [E]; indexes of the header's runs, or -1."""
        return self.table["run"]

    @property
    def returns(self) -> np.ndarray | None:
        """Sum of the rewards of each episode, shape [E], float64; None where there are no rewards."""
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
        """Return the indexes of the episodes of a split, or of all."""
        return np.arange(len(self.table)) if split is None else np.flatnonzero(self.split == split)

    def select(self, episodes: np.ndarray | list[int]) -> "Store":
        """Return some episodes with their rows alone, one behind the other in the order in which they are given.

        Args:
            episodes: Their indexes, shape [n].
        """
        episodes = np.asarray(episodes, np.int64)
        table, lengths = self.table[episodes], self.lengths[episodes] + 1
        parts = [slice(begin, begin + length) for begin, length in zip(self.offsets[episodes], lengths, strict=True)]
        table["start"] = np.cumsum(lengths) - lengths

        def kept(rows: Rows | None) -> np.ndarray | None:
            return None if rows is None else np.concatenate([rows[part] for part in parts])

        ground = None if self.ground is None else self.ground[episodes]
        frames = kept(self.frames)
        assert frames is not None
        return Store(self.header, frames, table, ground, kept(self.reward), kept(self.measured))

    def episode(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return q [T + 1, nq], qd [T + 1, nv] and control [T, nu] of one episode, as views."""
        begin, length = int(self.table["start"][index]), int(self.table["length"][index])
        rows = slice(begin, begin + length + 1)
        return self.q[rows], self.qd[rows], self.control[begin : begin + length]


def _read_rows(file: h5py.File, name: str, rows: int, *width: int) -> np.ndarray:
    return rows_dataset(file, name, rows, *width)[:rows]


def _verify(sums: Checksums, per_episode: dict[str, np.ndarray | None], per_row: dict[str, np.ndarray | None]) -> None:
    for name, values in per_episode.items():
        if values is not None:
            sums.verify_episodes(name, values)
    for name, values in per_row.items():
        if values is not None:
            sums.verify(name, 0, values)

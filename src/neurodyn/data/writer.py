# SPDX-License-Identifier: Apache-2.0
"""Writer of trajectory stores. Episodes are committed in batches, so a killed process loses no committed batch.

The file is written as PATH.part in HDF5's single-writer-multiple-readers mode, which keeps it readable at any moment;
the commit counter is updated last. Closing the writer renames the file to PATH.
"""

import contextlib
import os
import re
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import h5py
import numpy as np
from numpy.typing import ArrayLike

from neurodyn.core.artifacts import make_folder, regular_file, synchronise
from neurodyn.core.description.scene import IDENTITY
from neurodyn.core.description.sensors import stream_columns
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, describe_os_error, suggested_file, unwritable
from neurodyn.core.locks import exclusive
from neurodyn.data.header import (
    CHECKSUMS,
    EPISODE,
    Checksums,
    Split,
    Status,
    StoreHeader,
    dataset,
    read_header,
    record_type,
    records,
    write_header,
)

_CHUNK_BYTES = 1 << 17
_COPY_ROWS = 1 << 20
_SLACK_BYTES = 6 * _CHUNK_BYTES  # a partial chunk in each dataset, and the chunk index
_ARRAYS: tuple[str, ...] = ("q", "qd", "control", "channel", "contact")
GROUND = "ground"
"""Dataset of the scene's pose per episode; present if the header has a scene."""
REWARD = "reward"
"""Dataset of the reward of the frame that starts at each row; present if a policy collected the data."""
MEASURED = "measured"
"""Dataset of the columns of the header's streams, NaN without a reading; present if there are streams."""
PARAMETERS = "parameters"
"""Dataset of the header's parameters per episode; present if there are any."""

_DATASETS: tuple[str, ...] = (*_ARRAYS, REWARD, MEASURED, "episodes", GROUND, PARAMETERS)
_PER_EPISODE = frozenset({"episodes", GROUND, PARAMETERS})

STORE_SUFFIXES = (".h5", ".hdf5")
"""File suffixes of a store."""


class StoreWriter:
    """Appends batches of episodes to a store; a context manager that holds the store's lock.

    Leaving the context without an error finishes the file. An interruption (Ctrl-C, a kill) leaves PATH.part behind,
    from which `resume` continues. An error, such as a full disk, discards the file unless `keep` is set.

    Attributes:
        batches: Number of committed batches.
        rewarded: Whether the store has rewards.
    """

    def __init__(
        self, path: str | Path, header: StoreHeader, *, resume: bool = False, rewarded: bool = False, keep: bool = False
    ) -> None:
        """Start a store; an existing file at `path` stays untouched until the writer finishes.

        `resume` continues after the batches that an interrupted writer committed. `keep` leaves PATH.part on an error,
        so that another call can resume. A `rewarded` store has rewards.

        Raises:
            InputError: The file cannot be written, another process is writing it, or `resume` finds another header.
        """
        self.path = regular_file(Path(path))
        self.header = header
        self.rewarded = rewarded
        self.batches = 0
        self._keep, self._discarded = keep, False
        self._part = self.path.with_name(self.path.name + ".part")
        self._lock = contextlib.ExitStack()
        self._lock.enter_context(exclusive(self.path))
        try:
            self._begin(resume)
        except BaseException:
            self._lock.close()
            raise

    def _begin(self, resume: bool) -> None:
        previous = next((p for p in (self._part, self.path) if p.exists()), None) if resume else None
        fresh = self._part.with_name(self._part.name + ".new") if previous else self._part
        self._create(fresh)
        if previous:
            try:
                self._copy(previous)
            except BaseException:
                self._close()
                fresh.unlink(missing_ok=True)
                raise
            os.replace(fresh, self._part)
            self._creating = self._part

    def append(
        self,
        q: ArrayLike,
        qd: ArrayLike,
        control: ArrayLike,
        *,
        lengths: ArrayLike | None = None,
        status: ArrayLike = Status.COMPLETE,
        split: ArrayLike = Split.TRAIN,
        group: ArrayLike = -1,
        run: ArrayLike = -1,
        world: ArrayLike = -1,
        ground: ArrayLike | None = None,
        channel: ArrayLike | None = None,
        contact: ArrayLike | None = None,
        reward: ArrayLike | None = None,
        measured: ArrayLike | None = None,
        parameters: ArrayLike | None = None,
    ) -> None:
        """Append and commit E episodes of at most T transitions.

        Args:
            q: Positions [rad or m], shape [E, T + 1, nq].
            qd: Velocities [rad/s or m/s], shape [E, T + 1, nv].
            control: Torques (or what the spec's control_kind says) during frame k -> k + 1, shape [E, T, nu].
            lengths: Valid transitions of each episode, shape [E]; None for T.
            status: How each episode ended; this and the next four have shape [E] or are one value for all.
            split: Purpose of each episode.
            group: Index into the header's groups.
            run: Index into the header's runs.
            world: World that each episode was simulated in.
            ground: Pose of the header's scene in each episode (position [m], quaternion xyzw), shape [E, 7] or [7] for
                all; None for the identity, or without a scene.
            channel: Channels of the spec, shape [E, T + 1, nx]; None without any.
            contact: Whether each contact of the spec is closed (1 or 0), shape [E, T + 1, nc]; None without any.
            reward: Reward of frame k -> k + 1, shape [E, T]; None without rewards.
            measured: Columns of the header's streams, NaN without a reading, shape [E, T + 1, columns]; None without
                streams.
            parameters: Values of the header's parameters in each episode, shape [E, parameters]; None for the declared
                ones.

        Raises:
            InputError: A valid value is not finite, a shape is wrong, or the file cannot be written.
        """
        control = np.asarray(control, dtype=np.float32)
        count, frames = control.shape[:2]
        none = np.empty((count, frames + 1, 0), np.float32)
        given = [q, qd, control, none if channel is None else channel, none if contact is None else contact]
        arrays = [np.asarray(x, dtype=np.float32) for x in given]
        wanted = [(count, frames + (name != "control"), width) for name, width in widths(self.header.spec).items()]
        shapes = [x.shape for x in arrays]
        if shapes != wanted:
            raise InputError(f"{self.path}: {', '.join(_ARRAYS)} have shapes {shapes}; valid: {wanted}")
        table = np.empty(count, EPISODE)
        table["length"] = frames if lengths is None else np.asarray(lengths)
        if count and not (table["length"].min() >= 0 and table["length"].max() <= frames):
            raise InputError(f"{self.path}: lengths of episodes are outside 0..{frames}")
        for name, value in (("status", status), ("split", split), ("group", group), ("run", run), ("world", world)):
            table[name] = np.asarray(value)
        if reward is not None:
            reward = np.asarray(reward, np.float32)
            if reward.shape != (count, frames):
                raise InputError(f"{self.path}: reward has shape {list(reward.shape)}; valid: [{count}, {frames}]")
            reward = _rows(reward[..., None], table["length"], frames + 1)[:, 0]
        if measured is not None:
            measured = np.asarray(measured, np.float32)
            if measured.shape[:2] != (count, frames + 1) or measured.ndim != 3:
                raise InputError(
                    f"{self.path}: measured has shape {list(measured.shape)}; valid: [{count}, {frames + 1}, columns]"
                )
            measured = _rows(measured, table["length"], frames + 1)
        q, qd, control, channel, contact = (_rows(values, table["length"], frames + 1) for values in arrays)
        self.append_rows(
            q, qd, control, table, ground, channel=channel, contact=contact, reward=reward, measured=measured,
            parameters=parameters,
        )  # fmt: skip

    def append_rows(
        self,
        q: np.ndarray,
        qd: np.ndarray,
        control: np.ndarray,
        table: np.ndarray,
        ground: ArrayLike | None = None,
        *,
        channel: np.ndarray | None = None,
        contact: np.ndarray | None = None,
        reward: np.ndarray | None = None,
        measured: np.ndarray | None = None,
        parameters: ArrayLike | None = None,
    ) -> None:
        """Append and commit episodes with concatenated rows; columns and errors: see `append`.

        Columns have shape [rows, width], rewards [rows]. The control and reward in the last row of an episode are
        unused. `start` of the EPISODE records in `table` is filled in here.
        """
        given = {"q": q, "qd": qd, "control": control, "channel": channel, "contact": contact, MEASURED: measured}
        none = np.empty((len(q), 0), np.float32)
        spec = self.header.spec
        absent = dict(zip(("q", "qd"), np.split(self.header.absent, [spec.nq]), strict=True))
        columns = {name: none if values is None else values for name, values in given.items()}
        for name, width in _all_widths(self.header).items():
            values = columns[name]
            if values.shape != (len(q), width):
                raise InputError(f"{self.path}: {name} has shape {list(values.shape)}; valid: [{len(q)}, {width}]")
            if name == MEASURED and np.isinf(values).any():
                raise InputError(f"{self.path}: a reading is infinite; valid: finite numbers, NaN for none")
            if name in absent:
                values = values[:, ~absent[name]]
            if name != MEASURED and not np.isfinite(values).all():
                raise InputError(f"{self.path}: {name} has a value that is not finite within an episode's length")
        columns[REWARD] = self._rewards(reward, len(q))
        columns[GROUND] = _poses(ground, self.header, len(table), str(self.path))
        columns[PARAMETERS] = _values(parameters, self.header, len(table), str(self.path))
        columns["episodes"] = table = table.copy()
        lengths = table["length"].astype(np.int64) + 1
        table["start"] = self._rows + np.cumsum(lengths) - lengths
        try:
            arrays = {name: columns[name] for name in _DATASETS}
            self._reserve(sum(rows.nbytes for rows in arrays.values()))
            for name, rows in arrays.items():
                if rows.size:
                    _extend(dataset(self._file, name), rows)
            sums = dataset(self._file, CHECKSUMS)
            _extend(sums, records(sums.dtype, self.batches, self._rows, self._episodes, arrays, _PER_EPISODE))
            self._synchronise()
            self._rows += len(q)
            self._episodes += len(table)
            self._commit(self.batches + 1)
        except (OSError, RuntimeError) as error:
            self._fail(error)

    def table(self) -> np.ndarray:
        """Return the EPISODE records committed so far, shape [episodes]."""
        return dataset(self._file, "episodes")[: self._episodes]

    def rewards(self) -> np.ndarray:
        """Return the rewards committed so far, one per row, shape [rows]; empty without rewards."""
        return dataset(self._file, REWARD)[: self._rows] if self.rewarded else np.empty(0, np.float32)

    def close(self) -> None:
        """Finish the file and rename it to its final path, or raise an InputError."""
        try:
            self._file.flush()
            self._file.close()
            with h5py.File(self._part, "r+"):
                pass  # HDF5 truncates reserved space that was not used
            synchronise(self._part)
            os.replace(self._part, self.path)
            synchronise(self.path.parent)
        except (OSError, RuntimeError) as error:
            self._fail(error)
        self._lock.close()

    def discard(self) -> None:
        """Delete the file when the context exits with an error."""
        self._discarded = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        self._close()
        if self._discarded or (issubclass(kind, Exception) and not self._kept):
            self._part.unlink(missing_ok=True)
        self._lock.close()

    def _rewards(self, reward: np.ndarray | None, rows: int) -> np.ndarray:
        """Check the rewards and return them; an empty array without any."""
        if (reward is not None) != self.rewarded:
            raise InputError(f"{self.path}: rewards are {'missing' if self.rewarded else 'not part of this store'}")
        if reward is None:
            return np.empty(0, np.float32)
        if reward.shape != (rows,) or not np.isfinite(reward).all():
            raise InputError(f"{self.path}: rewards have shape {list(reward.shape)}; valid: [{rows}], finite numbers")
        return reward

    def _create(self, path: Path) -> None:
        image = _empty_file(self.header, self.rewarded)
        self._rows, self._episodes, self._reserved, self._creating = 0, 0, 0, path
        try:
            make_folder(path.parent)
            path.write_bytes(image)
            self._file = h5py.File(path, "r+", libver="latest")
            self._file.swmr_mode = True
        except (OSError, RuntimeError) as error:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            raise _unwritable(self.path, error) from None

    def _copy(self, previous: Path) -> None:
        with open_store_file(previous) as old:
            different = read_header(old, str(previous)).differences(self.header)
            if different:
                raise InputError(
                    f"{previous}: cannot be continued: {'; '.join(different[:3])}; repeat the settings of the first "
                    "call, or write to another file"
                )
            if (REWARD in old) != self.rewarded:
                raise InputError(f"{previous}: cannot be continued: it has {'' if REWARD in old else 'no '}rewards")
            checks = Checksums.of(old, str(previous))
            if checks is None:
                raise InputError(f"{previous}: cannot be continued: it has no checksums; write to another file")
            batches, rows, episodes = (int(n) for n in dataset(old, "committed")[()])
            try:
                for name in (name for name in (*_ARRAYS, REWARD, MEASURED) if name in old):
                    begin = 0
                    while begin < rows:
                        end = checks.around(begin, min(rows, begin + _COPY_ROWS))[1]
                        part = dataset(old, name)[begin:end]
                        checks.verify(name, begin, part)
                        self._reserve(part.nbytes)
                        _extend(dataset(self._file, name), part)
                        begin = end
                for name in (name for name in ("episodes", GROUND, PARAMETERS) if name in old):
                    part = dataset(old, name)[:episodes]
                    checks.verify_episodes(name, part)
                    _extend(dataset(self._file, name), part)
                _extend(dataset(self._file, CHECKSUMS), checks.table)
                self._synchronise()
                self._rows, self._episodes = rows, episodes
                self._commit(batches)
            except (OSError, RuntimeError) as error:
                self._fail(error)

    def _reserve(self, size: int) -> None:
        """Reserve disk space for `size` more bytes of rows and their chunks."""
        # HDF5 does not survive a failed write, but does survive a failed reservation.
        names = [name for name in (*_DATASETS, CHECKSUMS) if name in self._file]
        used = sum(dataset(self._file, name).id.get_storage_size() for name in names)
        end = _SLACK_BYTES + (used + size) * 65 // 64
        if end > self._reserved and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file.id.get_vfd_handle(), 0, end)
            self._reserved = end

    def _synchronise(self) -> None:
        """Sync written data to disk, before the commit counter is updated."""
        self._file.flush()
        with contextlib.suppress(OSError):  # some file systems cannot; on others the space is reserved
            os.fsync(self._file.id.get_vfd_handle())

    def _commit(self, batches: int) -> None:
        dataset(self._file, "committed")[...] = (batches, self._rows, self._episodes)
        self._file.flush()
        self.batches = batches

    def _close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._file.close()

    @property
    def _kept(self) -> bool:
        """Whether an error leaves the committed batches in PATH.part."""
        return self._keep and self._creating == self._part and self.batches > 0

    def _fail(self, error: Exception) -> NoReturn:
        """Close the file after a failed write and raise; remove it unless its batches are kept."""
        # HDF5 writes its caches on close and may crash if that fails too, so its descriptor is first redirected to the
        # null device.
        if self._file:
            sink = os.open(os.devnull, os.O_RDWR)
            os.dup2(sink, self._file.id.get_vfd_handle())
            os.close(sink)
        self._close()
        if not self._kept:
            self._creating.unlink(missing_ok=True)
        self._lock.close()
        raise _unwritable(self.path, error, self._kept_words()) from None

    def _kept_words(self) -> str:
        if self._kept:
            return f"; {self.batches} batches are kept in {self._part}: free space, and go on with --resume"
        if self._keep and self._creating != self._part:
            return f"; what there was is as it was, and a copy of it needs as much space again ({self._part.name})"
        return ""


def require_store_name(path: Path) -> None:
    """Raise an InputError for a path without a store's suffix: it might be one of the logs."""
    if path.suffix.lower() not in STORE_SUFFIXES:
        raise InputError(f"{path}: a data set is an HDF5 file; valid: a name ending in .h5 or .hdf5")


def require_replaceable(path: Path) -> None:
    """Raise an InputError for a file that no import wrote: simulated data, or the log about to be read."""
    if not path.exists():
        return
    try:
        with open_store_file(path) as file:
            holds = read_header(file, str(path)).source
    except InputError:
        holds = "no store"
    if holds != "log":
        what = "no imported log" if holds == "no store" else "simulated data"
        raise InputError(f"{path}: already exists and holds {what}; valid: another --out, or remove it")


def widths(spec: StateSpec) -> dict[str, int]:
    """Return the width of each array of a store, in column order."""
    return dict(zip(_ARRAYS, (spec.nq, spec.nv, spec.nu, spec.nx, spec.nc), strict=True))


def _all_widths(header: StoreHeader) -> dict[str, int]:
    """Return the width of each array, sensor readings included."""
    return widths(header.spec) | {MEASURED: len(stream_columns(header.streams))}


def open_store_file(path: Path) -> h5py.File:
    """Open a finished store, or the PATH.part of an interrupted one, for reading, or raise an InputError."""
    if not path.is_file():
        raise InputError(
            f"{path}: no such file{suggested_file(path)}; expected a store written by `neurodyn generate`, "
            "`neurodyn import` or `neurodyn policy log`"
        )
    try:
        try:
            return h5py.File(path, "r")
        except OSError:
            if ".part" not in path.suffixes:
                raise
            return h5py.File(path, "r", swmr=True)
    except OSError as error:
        kind = "cut off" if "truncated" in str(error) else "damaged, unfinished or no HDF5 file"
        raise InputError(f"{path}: cannot be read, it is {kind}; expected a store written by neurodyn") from None


def check_ground(ground: np.ndarray | None, header: StoreHeader, episodes: int, where: str) -> None:
    """Raise an InputError unless each episode has a valid scene pose; without a scene, there must be none."""
    if (ground is None) != (header.scene is None):
        trouble = "poses of a ground, but no scene" if header.scene is None else "a scene, but no pose of it"
        raise InputError(f"{where}: has {trouble}; valid: both or neither")
    if ground is None:
        return
    if ground.shape != (episodes, 7):
        raise InputError(
            f"{where}: ground has shape {list(ground.shape)}; valid: [{episodes}, 7], one pose per episode"
        )
    bad = ~(np.abs(np.linalg.norm(ground[:, 3:], axis=1) - 1.0) < 1e-3) | ~np.isfinite(ground).all(axis=1)
    if bad.any():
        episode = int(np.argmax(bad))
        raise InputError(
            f"{where}: ground of episode {episode} is {ground[episode].tolist()}; valid: a position [m] and a unit "
            "quaternion [x, y, z, w]"
        )


def check_parameters(values: np.ndarray | None, header: StoreHeader, episodes: int, where: str) -> None:
    """Raise an InputError unless each episode has finite values of exactly the header's parameters."""
    shape, wanted = None if values is None else list(values.shape), [episodes, len(header.parameters)]
    if shape != (wanted if header.parameters else None):
        raise InputError(
            f"{where}: parameters have shape {shape}; valid: {wanted if header.parameters else 'none'}, as the header "
            f"names {len(header.parameters)}"
        )
    if values is not None and not np.isfinite(values).all():
        raise InputError(f"{where}: a parameter of an episode is not finite; expected finite numbers")


def _values(parameters: ArrayLike | None, header: StoreHeader, episodes: int, where: str) -> np.ndarray:
    """Return the checked parameter values, shape [episodes, parameters]; an empty array without any."""
    if parameters is None and not header.parameters:
        return np.empty((0, 0), np.float32)
    given = np.asarray(list(header.parameters.values()) if parameters is None else parameters, np.float32)
    values = np.ascontiguousarray(np.broadcast_to(given, (episodes, len(given))) if given.ndim == 1 else given)
    check_parameters(values, header, episodes, where)
    return values


def _poses(ground: ArrayLike | None, header: StoreHeader, episodes: int, where: str) -> np.ndarray:
    """Return the checked scene poses, shape [episodes, 7]; an empty array without a scene."""
    if header.scene is None and ground is None:
        return np.empty((0, 7), np.float32)
    poses = np.asarray(IDENTITY if ground is None else ground, np.float32)
    poses = np.ascontiguousarray(np.broadcast_to(poses, (episodes, 7)) if poses.ndim == 1 else poses)
    check_ground(poses, header, episodes, where)
    return poses


def _empty_file(header: StoreHeader, rewarded: bool) -> bytes:
    """Return the bytes of a store without rows; built in memory, so that a full disk is a plain error."""
    with h5py.File("store", "w", libver="latest", driver="core", backing_store=False) as file:
        write_header(file, header)
        for name, width in _all_widths(header).items():
            if width:  # a robot without controls, for example, has no such dataset
                chunks = (max(1, _CHUNK_BYTES // (4 * width)), width)
                file.create_dataset(name, (0, width), "<f4", maxshape=(None, width), chunks=chunks)
        if rewarded:
            file.create_dataset(REWARD, (0,), "<f4", maxshape=(None,), chunks=(_CHUNK_BYTES // 4,))
        file.create_dataset("episodes", (0,), EPISODE, maxshape=(None,), chunks=(1024,))
        if header.scene is not None:
            file.create_dataset(GROUND, (0, 7), "<f4", maxshape=(None, 7), chunks=(1024, 7))
        if width := len(header.parameters):
            file.create_dataset(PARAMETERS, (0, width), "<f4", maxshape=(None, width), chunks=(1024, width))
        kind = record_type([name for name in _DATASETS if name in file])
        file.create_dataset(CHECKSUMS, (0,), kind, maxshape=(None,), chunks=(256,))
        committed = file.create_dataset("committed", data=np.zeros(3, np.int64))
        committed.attrs["meaning"] = "batches, rows, episodes"
        file.flush()
        return file.id.get_file_image()


def _rows(values: np.ndarray, lengths: np.ndarray, states: int) -> np.ndarray:
    """Concatenate the valid rows of episodes of at most `states` states, shape [E, states, width].

    Frame values, shape [E, states - 1, width], go to the row where the frame starts; the last row is 0.
    """
    row = np.arange(states)
    if values.shape[1] < states:
        values = np.pad(values, ((0, 0), (0, 1), (0, 0)))
        values[row >= lengths[:, None]] = 0.0
    valid = row <= lengths[:, None]
    return values.reshape(valid.size, values.shape[2]) if valid.all() else values[valid]


def _extend(target: h5py.Dataset, rows: np.ndarray) -> None:
    begin = target.shape[0]
    target.resize(begin + len(rows), axis=0)
    target[begin:] = rows


def _unwritable(path: Path, error: Exception, more: str = "") -> InputError:
    quoted = re.search(r"error message = '([^']*)'", str(error))
    reason = quoted.group(1) if quoted else describe_os_error(error).split("\n")[0]
    return unwritable(path, reason, more)

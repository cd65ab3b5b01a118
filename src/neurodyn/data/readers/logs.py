# SPDX-License-Identifier: Apache-2.0
"""Conversion of log files to trajectories: read, check the rate, split at gaps, measure delays, resample."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET

from neurodyn.core.artifacts import require_writable
from neurodyn.core.config import expand_keys, to_dict
from neurodyn.core.description.drive import ACTUATOR
from neurodyn.core.description.scene import IDENTITY
from neurodyn.core.description.sensors import stream_columns
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, choices, describe_os_error, nearest, notice
from neurodyn.core.locks import exclusive
from neurodyn.core.progress import tell, tracked
from neurodyn.core.provenance import package_versions
from neurodyn.core.verdict import Finding
from neurodyn.data.command_parts import differ, part_streams, parts_of_frames
from neurodyn.data.commands import DeclaredCommands
from neurodyn.data.header import CONTROL, SITTING, Delay, Split, Status, StoreHeader, episode_table
from neurodyn.data.held_points import HeldPoints, intervals
from neurodyn.data.log_checks import check_log
from neurodyn.data.readers.alignment import Alignment, measure, velocity_delay
from neurodyn.data.readers.column_map import PAYLOAD, READERS, ColumnMap, LogFormat, is_log, read_column_map, recognise
from neurodyn.data.readers.patterns import expand, has_patterns
from neurodyn.data.readers.raw import RawRun, Survey, mirror
from neurodyn.data.readers.resample import check_rate, control_in_parts, frame_times, resample, segments
from neurodyn.data.readers.sensor_columns import measured_streams
from neurodyn.data.readers.streams import read_source
from neurodyn.data.split import assign_splits
from neurodyn.data.store import IN_MEMORY, Store
from neurodyn.data.writer import StoreWriter, require_replaceable, require_store_name, widths

SplitChoice = Literal["declared", "train", "validation", "test", "random"]
"""Source of the split: declared by the log (else random), one split for all, or random by run."""

_TEST_FRACTION = 0.2
_MOST_LISTED = 20
_TOPICS = {"mcap", "rosbag1", "rosbag2"}
"""Formats whose columns are named in the same way."""

_PAUSE = 0.5
"""Pause in a run after which something may have changed on the robot [s]."""
_HELD = 96 << 20
"""Size of the runs used to measure delays [bytes]; the delays apply to the rest of a longer log."""

_ROWS = 1 << 19
"""Rows written to the store at once."""
_CHECKED = 1 << 17
"""Rows that are checked."""


def read_logs(
    files: Sequence[Path],
    columns: ColumnMap,
    spec: StateSpec,
    *,
    split: SplitChoice = "declared",
    without_split: Split | None = None,
    seed: int = 0,
) -> Store:
    """Read log files of a column map's format into trajectories at the robot's frame rate, in memory.

    With split="declared", runs without a split in the log get `without_split`, or, if None, a random split by run (7 :
    1 : 2). Fewer than three runs are cut in time instead, in the same proportion.

    Raises:
        InputError: Files are missing, malformed, or do not fit the column map, the rate or dt; the message names all of
            them.
    """
    with TemporaryFile() as rows:
        choice = split, without_split, seed
        files_ = [Path(file) for file in files]
        header, table, parameters = _collect(files_, columns, spec, rows, choice, DeclaredCommands())
        rows.seek(0)
        width = sum(widths(spec).values())
        both = np.frombuffer(rows.read(), np.float32).reshape(-1, width + len(stream_columns(header.streams)))
    ground = None if header.scene is None else np.tile(np.array(IDENTITY, np.float32), (len(table), 1))
    measured = both[:, width:].copy() if header.streams else None
    store = Store(header, both[:, :width].copy(), table, ground, measured=measured, parameters=parameters)
    store.check("log")
    for one in header.findings:
        notice(f"{files[0]}: {one}")
    return store


def import_logs(
    files: Sequence[Path],
    columns: ColumnMap,
    spec: StateSpec,
    out: Path,
    *,
    split: SplitChoice = "declared",
    seed: int = 0,
    declared: DeclaredCommands = DeclaredCommands(),
) -> Store:
    """Read log files, write them as a store, and return it; see `read_logs`. Long logs need not fit in memory.

    `declared` says what the robot's declaration says about commands: what the gains of servos explain is no delay.
    """
    require_store_name(out)
    require_writable(out)
    with exclusive(out):
        require_replaceable(out)
        try:
            with TemporaryFile(dir=out.parent if out.parent.is_dir() else None) as rows:
                choice = split, None, seed
                files_ = [Path(file) for file in files]
                header, table, parameters = _collect(files_, columns, spec, rows, choice, declared)
                rows.seek(0)
                with StoreWriter(out, header) as writer:
                    for part in _episodes(table):
                        known = None if parameters is None else parameters[part]
                        _append(writer, header, rows, table[part], known)
        except OSError as error:
            raise InputError(
                f"{out}: cannot be written ({describe_os_error(error)}); give a path with space for twice the data"
            ) from None
        return Store.open(out, memory=_HELD)


def _episodes(table: np.ndarray) -> Iterator[slice]:
    """Yield the episodes in groups of bounded size."""
    begin, size = 0, 0
    for index, length in enumerate(table["length"].tolist()):
        if index > begin and size + length + 1 > _ROWS:
            yield slice(begin, index)
            begin, size = index, 0
        size += length + 1
    yield slice(begin, len(table))


def _append(
    writer: StoreWriter, header: StoreHeader, rows: IO[bytes], table: np.ndarray, parameters: np.ndarray | None
) -> None:
    """Move the rows of some episodes from the temporary file into a store."""
    wide, more = widths(header.spec), len(stream_columns(header.streams))
    count = int((table["length"] + 1).sum())
    frames = np.frombuffer(rows.read(4 * count * (sum(wide.values()) + more)), np.float32).reshape(count, -1)
    ends = [wide["q"], wide["q"] + wide["qd"], sum(wide.values())]
    q, qd, control, measured = np.split(frames, ends, axis=1)
    writer.append_rows(q, qd, control, table, measured=measured if more else None, parameters=parameters)


def open_data(
    path: str | Path,
    spec: StateSpec,
    column_map: Path | None = None,
    *,
    memory: int = IN_MEMORY,
    targets: bool = False,
) -> Store:
    """Open a store (.h5, .hdf5), or read a log with a column map into memory.

    Runs of a log without a split are all test data, to be scored whole. Rows of a store beyond `memory` bytes stay in
    its file. With `targets`, controls may be controller targets even if the robot's are torques.

    Raises:
        InputError: The file is missing, malformed, or of another robot.
    """
    path = Path(path)
    if not is_log(path):
        store = Store.open(path, memory=memory)
        kind = store.header.spec.control_kind if targets else spec.control_kind
        different = msgspec.structs.replace(spec, control_kind=kind).differences(store.header.spec)
        if different:
            name = store.header.robot
            whose = f"data of {name!r}, not of {spec.robot!r}" if name != spec.robot else f"other data of {name!r}"
            raise InputError(f"{path}: holds {whose}: {different[0]}")
        return store
    if column_map is None:
        raise InputError(
            f"{path}: robot {spec.robot!r} declares no column map for logs; valid: a store written by "
            "`neurodyn import`, or `log:` in the robot's declaration"
        )
    columns = read_column_map(column_map)
    if path.exists() and recognise(path) != columns.format and path.suffix.lower() != f".{columns.format}":
        raise InputError(
            f"{path}: the column map {column_map} reads .{columns.format} files; give one, or a store (.h5)"
        )
    return read_logs([path], columns, spec, without_split=Split.TEST)


def read_runs(file: Path, columns: ColumnMap, spec: StateSpec) -> Iterator[RawRun]:
    """Yield the runs of a file that a column map selects, long ones in parts; an InputError if it does not fit."""
    reader = READERS[_format(file, columns)]
    if isinstance(reader, LogFormat):
        runs = read_source(reader.source(file, columns), columns, spec)
    else:
        runs = reader(file, columns, spec)
    for run in runs:
        check_rate(run, columns, spec.dt, str(file))
        yield mirror(run, columns)


def _with_all_columns(columns: ColumnMap, spec: StateSpec, file: Path) -> ColumnMap:
    """Return a map without patterns, as far as a log says which columns these mean."""
    reader = READERS[_format(file, columns)]
    if not has_patterns(columns) or not isinstance(reader, LogFormat):
        return columns
    return expand(columns, spec, reader.source(file, columns))


def _format(file: Path, columns: ColumnMap) -> str:
    """Return a file's format: the column map's, or the other message format; raise an InputError for any other."""
    name = recognise(file) if file.exists() else None
    if name == columns.format or name is None or file.suffix.lower() == f".{columns.format}":
        return columns.format
    if {name, columns.format} <= _TOPICS:
        return name
    reader = READERS[name]
    what = reader.what if isinstance(reader, LogFormat) else f"a {name} file"
    raise InputError(f"{file}: is {what}, but the column map reads {columns.format!r}; give `format: {name}`")


def _collect(
    files: list[Path],
    columns: ColumnMap,
    spec: StateSpec,
    rows: IO[bytes],
    choice: tuple[SplitChoice, Split | None, int],
    declared: DeclaredCommands,
) -> tuple[StoreHeader, np.ndarray, np.ndarray | None]:
    """Write the frames of all logs to a file (float32 q, qd, control, readings).

    Returns:
        The header, the episodes, and the values of the map's parameters, shape [episodes, parameters]; None without.
    """
    if not files:
        raise InputError("no log file given; expected at least one path")
    spec, where = columns.stored_spec(spec), f"column map of {files[0].name}"
    logged = columns.logged_spec(spec, where)
    columns = _with_all_columns(columns, logged, files[0])
    columns.factors(logged, where)
    _require_declared(columns, declared, where)
    survey, conversion = Survey(columns.max_gap), _Conversion(columns, spec, logged, rows, declared)
    troubles: list[str] = []
    for file in tracked(files):
        tell(0.0, Path(file).name)
        try:
            for run in read_runs(file, columns, logged):
                survey.add(run)
                for piece in segments(run, columns.max_gap):
                    if not troubles:
                        conversion.add(piece)
        except InputError as error:
            troubles.append(str(error))
    if troubles:
        several = f"{len(troubles)} of {len(files)} logs cannot be read: " if len(files) > 1 else ""
        raise InputError(several + "; ".join(troubles))
    if not survey.runs:
        raise InputError(f"{files[0]}: no run is selected; check select_groups and select_runs of the column map")
    unknown = [one for one in columns.mirrored_runs if not any(fnmatchcase(name, one) for name in survey.runs)]
    if unknown:
        near = nearest(unknown[0], survey.runs)
        raise InputError(f"{where}: mirrored_runs {unknown[0]!r} fits no run; valid: {near}")
    conversion.finish()
    if not conversion.episodes:
        raise InputError(
            f"{files[0]}: every piece of the log is shorter than one frame of {spec.dt:g} s; log longer runs, or check "
            "`time_unit` or `period`, and what is missing (`max_gap`, `missing`)"
        )
    labels, splits = _splits(_in_sittings(conversion.episodes, survey), survey, *choice)
    table = episode_table([label.length for label in labels], status=Status.LOG, split=splits)
    usual, parameters = _quantities(columns, [label.parameters for label in labels], conversion.declared)
    header = StoreHeader(
        spec=spec,
        source="log",
        scene=columns.scene,
        contact_points=columns.contact_points,
        versions=package_versions(),
        notes=_notes(files, columns, survey, conversion, spec),
        groups=tuple(dict.fromkeys(one.group for one in (*survey.runs.values(), *labels) if one.group)),
        runs=tuple(survey.runs),
        streams=(*measured_streams(columns.measured), *part_streams(conversion.parts, spec.controls)),
        drives=columns.drives,
        delays=conversion.delays,
        base="unmeasured" if columns.unmeasured else "measured",
        parameters=usual,
    )
    for name, names in (("run", header.runs), ("group", header.groups)):
        table[name] = [names.index(getattr(label, name)) if getattr(label, name) else -1 for label in labels]
    return header.with_findings(_findings(header, table, rows, conversion.declared)), table, parameters


def _require_declared(columns: ColumnMap, declared: DeclaredCommands, where: str) -> None:
    """Refuse controls that nothing finds, and payloads on links that are not known."""
    if declared.loads is None and any(one.place is not UNSET for one in columns.parameters.values()):
        raise InputError(
            f"{where}: a payload needs the links of a robot; valid: the file that `neurodyn import` writes"
        )
    if columns.found and declared.places is None:
        raise InputError(
            f"{where}: control: found needs the links of a robot with pivots; valid: columns, or for such a robot the "
            "file that `neurodyn import` writes"
        )
    pivots = [name for name, drive in declared.drives.items() if drive.kind == "pivot"]
    for name in columns.found:
        if name not in pivots:
            raise InputError(
                f"{where}: control: {name!r} is to be found, but is no pivot; valid: a column, or found for "
                f"{choices(pivots)}"
            )


def _quantities(
    columns: ColumnMap, values: Sequence[tuple[float, ...]], declared: DeclaredCommands
) -> tuple[dict[str, float], np.ndarray | None]:
    """Return the robot's quantities that the log knows, from the values of the map's parameters in each episode.

    Returns:
        The value of each for worlds without their own: as declared, or else the mean over episodes; and the values,
        shape [episodes, quantities], None without any.
    """
    known: dict[str, Any] = {
        f"{ACTUATOR}{joint}.{what}": value
        for joint, drive in declared.drives.items()
        for what, value in drive.quantities().items()
    }
    by_name: dict[str, np.ndarray] = {}
    for (name, column), own in zip(columns.parameters.items(), np.array(values, float).T, strict=True):
        if column.place is UNSET:
            by_name[name] = own
            continue
        if (own < 0.0).any():
            raise InputError(f"parameters: {name} is {own.min():g} kg in an episode; valid: 0 or more")
        assert declared.loads is not None  # see `_require_declared`
        load = declared.loads, name.removesuffix(PAYLOAD), column.place, column.radius
        by_name |= load[0](*load[1:], own)
        known |= {link: float(alone[0]) for link, alone in load[0](*load[1:], np.zeros(1)).items()}
    usual = {name: float(own.mean() if known.get(name) is None else known[name]) for name, own in by_name.items()}
    return usual, np.stack(list(by_name.values()), 1).astype(np.float32) if by_name else None


def _findings(header: StoreHeader, table: np.ndarray, rows: IO[bytes], declared: DeclaredCommands) -> list[Finding]:
    """Return what the checks doubt in the first of the rows that were written."""
    width, end = sum(widths(header.spec).values()) + len(stream_columns(header.streams)), rows.tell()
    rows.seek(0)
    frames = np.frombuffer(rows.read(4 * width * _CHECKED), np.float32).reshape(-1, width)
    rows.seek(end)
    ends = np.cumsum(table["length"] + 1)
    kept = table[: max(1, int((ends <= len(frames)).sum()))]
    kept = kept[np.cumsum(kept["length"] + 1) <= len(frames)]
    return check_log(Store(header, frames[: int((kept["length"] + 1).sum())], kept), declared) if len(kept) else []


@dataclass(frozen=True)
class _WrittenEpisode:
    """One episode of the rows written so far."""

    run: str
    group: str
    split: Split | None
    length: int
    parameters: tuple[float, ...] = ()
    sitting: int = 0


def _in_sittings(episodes: list[_WrittenEpisode], survey: Survey) -> list[_WrittenEpisode]:
    """Return the episodes of a single run with its sittings as groups, if pauses cut it into several."""
    if len(survey.runs) != 1 or episodes[-1].sitting == 0 or any(one.group for one in episodes):
        return episodes
    return [replace(one, group=f"{one.run}{SITTING}{one.sitting + 1}") for one in episodes]


class _Conversion:
    """Converts gap-free pieces of runs to frames: holds them until the delays are measured, then writes them."""

    def __init__(
        self, columns: ColumnMap, spec: StateSpec, logged: StateSpec, rows: IO[bytes], declared: DeclaredCommands
    ) -> None:
        """Prepare a conversion to rows of a `spec` from runs of the `logged` one, which may lack the base."""
        self.episodes: list[_WrittenEpisode] = []
        self.pieces = self.dropped = 0
        self.alignment: Alignment | None = None
        self.velocity_delay: float | None = None
        self.parts = 1
        self._columns, self._spec, self._file = columns, logged, rows
        self._header_spec = spec
        self._held_points: HeldPoints | None = None
        self.held: dict[str, list[float]] = {name: [] for name in columns.found}
        drives = expand_keys(columns.drives, spec.controls, "drives of the log") or declared.drives
        self.declared = replace(declared, drives=drives, limits={} if columns.drives else declared.limits)
        self._held: list[RawRun] = []
        self._size = 0
        self._sitting, self._end = 0, np.inf

    def add(self, piece: RawRun) -> None:
        self.pieces += 1
        if self.alignment is not None:
            self._write(self._with_found(piece))
            return
        self._held.append(piece)
        self._size += piece.nbytes
        if self._size > _HELD:
            self.finish()

    def finish(self) -> None:
        """Measure the delays and write the pieces still held."""
        if self.alignment is None and self._held:
            self._measure()
        for piece in self._held:
            self._write(piece)
        self._held.clear()

    def _measure(self) -> None:
        columns = self._columns
        # Test data must not influence what is measured if there are other data.
        chosen = [k for k, piece in enumerate(self._held) if piece.split != Split.TEST] or range(len(self._held))
        if columns.found:
            assert self.declared.places is not None
            known = ((self._held[k].time, self._held[k].q) for k in chosen)
            self._held_points = HeldPoints.fit(self.declared.places, known)
            self._held = [self._with_found(piece) for piece in self._held]
        measured = [self._held[k] for k in chosen]
        self.velocity_delay = velocity_delay(measured)
        if self.velocity_delay:
            measured = [self._on_time(piece) for piece in measured]
        declared = None if columns.alignment == "auto" else columns.alignment
        averaged, drives = columns.velocity == "averaged", self.declared.drives
        self.alignment = measure(measured, self._spec, averaged=averaged, declared=declared, drives=drives)
        self.parts = self._parts(measured)

    def _parts(self, pieces: Sequence[RawRun]) -> int:
        """Return the parts of frames for which commands are kept: 1 if none of `pieces` has any that move within."""
        dt, nu = self._spec.dt, self._spec.nu
        periods = [float(np.median(np.diff(one.clocks["control"]))) for one in pieces if one.control.size]
        parts = parts_of_frames(float(np.median(periods)), dt) if periods else 1
        if parts == 1:
            return 1
        for piece in pieces:
            grid = frame_times(piece, dt, delay=0.0, averaged=False)
            if grid is not None and differ(control_in_parts(piece, grid, dt, parts).reshape(-1, parts, nu)):
                return parts
        return 1

    @property
    def delays(self) -> dict[str, Delay]:
        late = self.velocity_delay
        found = {} if self.alignment is None else {CONTROL: self.alignment.delay}
        if late is not None:
            reason = "velocities have a clock of their own, and come at the time of the positions"
            found["qd"] = Delay(seconds=late, applied=late, reason=reason)
        return found

    def _with_found(self, piece: RawRun) -> RawRun:
        """Return a piece with the controls that are found from its motion."""
        if self._held_points is None:
            return piece
        control, found = piece.control.copy(), self._held_points(piece.time, piece.q)
        rows = np.searchsorted(piece.time, piece.clocks["control"], side="right") - 1
        for name in self._columns.found:
            control[:, self._spec.controls.index(name)] = found[name][np.clip(rows, 0, None)]
        return replace(piece, control=control)

    def _note_held(self, control: np.ndarray) -> None:
        for name, times in self.held.items():
            held = control[:, self._spec.controls.index(name)] > 0.5
            times += [self._spec.dt * (end - first) for first, end in intervals(held)]

    def _on_time(self, piece: RawRun) -> RawRun:
        """Return a piece with the measured delay of its velocities removed."""
        if not self.velocity_delay or piece.velocity_time is None:
            return piece
        return replace(piece, velocity_time=piece.velocity_time - self.velocity_delay)

    def _write(self, piece: RawRun) -> None:
        averaged, past = self._columns.velocity == "averaged", self._columns.velocity == "past"
        assert self.alignment is not None
        delay = self.alignment.chosen
        frames = resample(self._on_time(piece), self._spec, delay=delay, averaged=averaged, past=past, parts=self.parts)
        if frames is None:
            self.dropped += 1
            return
        self._note_held(frames.control)
        length = len(frames.control)
        spec = self._header_spec
        wide = sum(widths(spec).values())
        rows = np.zeros((length + 1, wide + frames.measured.shape[1]), np.float32)
        rows[:, : spec.nq + spec.nv] = np.nan  # an unmeasured base
        rows[:, spec.nq - self._spec.nq : spec.nq] = frames.q
        rows[:, spec.nq + spec.nv - self._spec.nv : spec.nq + spec.nv] = frames.qd
        rows[:length, spec.nq + spec.nv : wide] = frames.control
        rows[:, wide:] = frames.measured
        self._file.write(rows.data)
        known = () if piece.parameters is None else tuple(piece.parameters.mean(0).tolist())
        self._sitting += bool(piece.time[0] - self._end > _PAUSE)
        self._end = float(piece.time[-1])
        self.episodes.append(_WrittenEpisode(piece.name, piece.group, piece.split, length, known, self._sitting))


def _splits(
    episodes: list[_WrittenEpisode], survey: Survey, choice: SplitChoice, without_split: Split | None, seed: int
) -> tuple[list[_WrittenEpisode], list[Split]]:
    """Return the episodes and the split of each, cut in time if there are too few runs for a random split."""
    if choice not in {"declared", "random"}:
        return episodes, [Split[choice.upper()]] * len(episodes)
    runs = survey.runs
    undecided = {name: run for name, run in runs.items() if choice == "random" or run.split is None}
    events = list(dict.fromkeys(run.together for run in undecided.values()))
    if events and (choice == "random" or without_split is None):
        if len(events) < 3 and len(undecided) == len(runs):
            return _cut_in_time(episodes)
        by_event = dict(zip(events, assign_splits(len(events), seed, test=_TEST_FRACTION), strict=True))
    else:
        by_event = dict.fromkeys(events, without_split)
    drawn = {name: by_event[run.together] for name, run in undecided.items()}
    return episodes, [Split(int(drawn.get(one.run, one.split))) for one in episodes]  # type: ignore[arg-type]


def _cut_in_time(episodes: list[_WrittenEpisode]) -> tuple[list[_WrittenEpisode], list[Split]]:
    """Cut each episode in time: seven tenths for training, one for validation, two for test.

    The state at a cut belongs to the earlier part only, so no row is in two parts. An empty part cedes its row to the
    part before.
    """
    cut: list[_WrittenEpisode] = []
    splits: list[Split] = []
    for episode in episodes:
        length, begin = episode.length, 0
        bounds = {Split.TRAIN: round(0.7 * length), Split.VALIDATION: round(0.8 * length), Split.TEST: length}
        for split, end in bounds.items():
            if end > begin or (split == Split.TRAIN and length == 0):
                cut.append(replace(episode, length=end - begin))
                splits.append(split)
            elif end == begin and cut:
                cut[-1] = replace(cut[-1], length=cut[-1].length + 1)
            begin = max(begin, end + 1)
    return cut, splits


def _notes(
    files: Sequence[Path], columns: ColumnMap, survey: Survey, conversion: _Conversion, spec: StateSpec
) -> dict[str, Any]:
    return {
        "files": [str(file) for file in files],
        "column_map": _finite(to_dict(columns)),
        "rates_hz": survey.rates(),
        "interpolated_groups": survey.slower_than(spec.dt * 1.01),
        "velocity": _velocity_note(columns, spec),
        "velocity_delay_s": conversion.velocity_delay,
        "gaps": {"count": survey.gap_count, "longest": survey.longest(_MOST_LISTED)},
        "missing_values": survey.missing,
        "held_s": conversion.held,
        "pieces": conversion.pieces,
        "pieces_shorter_than_a_frame": conversion.dropped,
        "rows": survey.rows,
        "alignment": to_dict(conversion.alignment),
    }


def _finite(tree: Any) -> Any:
    """Return plain data without infinite numbers, which JSON cannot hold, such as an unlimited torque."""
    if not isinstance(tree, dict):
        return tree
    kept = {name: _finite(value) for name, value in tree.items()}
    return {name: value for name, value in kept.items() if not (isinstance(value, float) and math.isinf(value))}


def _velocity_note(columns: ColumnMap, spec: StateSpec) -> str:
    around = f"over the frame around each sample (+-{500 * spec.dt:g} ms)"
    if columns.velocity == "past":
        return "slope of the positions before each sample"
    if columns.qd == "differentiate":
        return f"differences of the positions {around}"
    return f"logged velocity, mean {around}" if columns.velocity == "averaged" else "logged velocity, interpolated"

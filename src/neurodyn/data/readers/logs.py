# SPDX-License-Identifier: Apache-2.0
"""From log files to trajectories: read, check the rate, split at gaps, measure the alignment, resample."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from neurodyn.core.config import to_dict
from neurodyn.core.errors import InputError
from neurodyn.core.scene import IDENTITY
from neurodyn.core.spec import StateSpec
from neurodyn.core.versions import package_versions
from neurodyn.data.header import Split, Status, StoreHeader, episode_table
from neurodyn.data.readers.alignment import Alignment, measure
from neurodyn.data.readers.column_map import READERS, ColumnMap, is_log, read_column_map
from neurodyn.data.readers.raw import RawRun
from neurodyn.data.readers.resample import Frames, check_rate, resample, segments
from neurodyn.data.split import assign_splits
from neurodyn.data.store import Store
from neurodyn.data.stored_rows import IN_MEMORY
from neurodyn.data.writer import require_store_name

SplitChoice = Literal["declared", "train", "validation", "test", "random"]
"""Where the split comes from: the log itself (else random), one split for all, or random by run."""

_TEST_FRACTION = 0.2
_MOST_LISTED = 20


def read_logs(
    files: Sequence[Path],
    columns: ColumnMap,
    spec: StateSpec,
    *,
    split: SplitChoice = "declared",
    without_split: Split | None = None,
    seed: int = 0,
) -> Store:
    """Read log files into trajectories at the robot's frames, in memory.

    Args:
        files: Files, all of the column map's format.
        columns: Meaning of their columns.
        spec: Coordinates and dt of the robot.
        split: Where the split of training, validation and test comes from.
        without_split: With split="declared", the split of runs whose log does not name one; None for a random split
            by run (7 : 1 : 2). Fewer than three runs are cut in time instead, in the same proportion.
        seed: Seed of the random split.

    Raises:
        InputError: A file is missing or malformed, or does not fit the column map, the rate or dt.
    """
    if not files:
        raise InputError("no log file given; expected at least one path")
    runs, pieces = _read_runs([Path(file) for file in files], columns, spec)
    averaged, past = columns.velocity == "averaged", columns.velocity == "past"
    # No test data decide on the alignment, where there are others.
    measured = [piece for piece in pieces if piece.split != Split.TEST] or pieces
    declared = None if columns.alignment == "auto" else columns.alignment
    alignment = measure(measured, spec, averaged=averaged, declared=declared)
    episodes = [
        (piece, frames)
        for piece in pieces
        if (frames := resample(piece, spec, delay=alignment.chosen, averaged=averaged, past=past)) is not None
    ]
    if not episodes:
        raise InputError(
            f"{files[0]}: every piece of the log is shorter than one frame of {spec.dt:g} s; log longer runs"
        )
    notes = _notes(files, columns, runs, pieces, len(pieces) - len(episodes), spec, alignment)
    splits = _splits(episodes, runs, split, without_split, seed)
    if splits is None:
        episodes, splits = _cut_in_time(episodes)
    header = StoreHeader(
        spec=spec,
        source="log",
        scene=columns.scene,
        contact_points=columns.contact_points,
        versions=package_versions(),
        notes=notes,
        groups=tuple(dict.fromkeys(run.group for run in runs if run.group)),
        runs=tuple(dict.fromkeys(run.name for run in runs)),
    )
    return _build(header, episodes, splits)


def import_logs(
    files: Sequence[Path],
    columns: ColumnMap,
    spec: StateSpec,
    out: Path,
    *,
    split: SplitChoice = "declared",
    seed: int = 0,
) -> Store:
    """Read log files, write them as a store, and return it; see `read_logs`.

    Raises:
        InputError: As `read_logs`; or `out` is not named as a store is, or cannot be written.
    """
    require_store_name(out)
    store = read_logs(files, columns, spec, split=split, seed=seed)
    store.write(out)
    return store


def open_data(path: str | Path, spec: StateSpec, column_map: Path | None = None, *, memory: int = IN_MEMORY) -> Store:
    """Open data of either kind: a store, or a log in the layout of a column map, which is read in memory.

    Runs of a log that does not say what they are for are all taken as test data, to be scored whole.

    Args:
        path: A store (.h5, .hdf5), or a log (.npz, .csv).
        spec: Coordinates and dt of the robot that the data must be of.
        column_map: Column map of the robot's logs; None where it declares none.
        memory: Bytes of rows up to which a store is read into memory; those of a larger one stay in its file.

    Raises:
        InputError: The file is missing or malformed, or of another robot.
    """
    path = Path(path)
    if not is_log(path):
        store = Store.open(path, memory=memory)
        different = spec.differences(store.header.spec)
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
    if f".{columns.format}" != path.suffix.lower():
        raise InputError(
            f"{path}: the column map {column_map} reads .{columns.format} files; give one, or a store (.h5)"
        )
    return read_logs([path], columns, spec, without_split=Split.TEST)


def _read_runs(files: list[Path], columns: ColumnMap, spec: StateSpec) -> tuple[list[RawRun], list[RawRun]]:
    """Return all runs, and the pieces without gaps that they fall into."""
    columns.factors(spec, "column map")
    runs, pieces = [], []
    for file in files:
        read = READERS[columns.format](file, columns, spec)
        for run in read:
            check_rate(run, columns, spec.dt, str(file))
            pieces += segments(run, columns.max_gap)
        runs += read
    if not runs:
        raise InputError(f"{files[0]}: no run is selected; check select_groups and select_runs of the column map")
    return runs, pieces


def _splits(
    episodes: list[tuple[RawRun, Frames]],
    runs: list[RawRun],
    choice: SplitChoice,
    without_split: Split | None,
    seed: int,
) -> list[Split] | None:
    """Return the split of each episode; None where there are too few runs for a random one."""
    if choice not in {"declared", "random"}:
        return [Split[choice.upper()]] * len(episodes)
    undecided = [run for run in runs if choice == "random" or run.split is None]
    events = list(dict.fromkeys(run.together for run in undecided))
    if events and (choice == "random" or without_split is None):
        if len(events) < 3 and len(undecided) == len(runs):
            return None
        by_event = dict(zip(events, assign_splits(len(events), seed, test=_TEST_FRACTION), strict=True))
    else:
        by_event = dict.fromkeys(events, without_split)
    drawn = {run.name: by_event[run.together] for run in undecided}
    return [Split(int(drawn.get(piece.name, piece.split))) for piece, _ in episodes]  # type: ignore[arg-type]


def _cut_in_time(episodes: list[tuple[RawRun, Frames]]) -> tuple[list[tuple[RawRun, Frames]], list[Split]]:
    """Cut each episode in time: the first seven tenths for training, one for validation, two for testing."""
    cut, splits = [], []
    for piece, frames in episodes:
        length = len(frames.control)
        bounds = [0, round(0.7 * length), round(0.8 * length), length]
        for split, begin, end in zip(Split, bounds[:-1], bounds[1:], strict=True):
            # The state at a seam belongs to the earlier part alone.
            begin += split != Split.TRAIN
            if end > begin:
                part = Frames(frames.q[begin : end + 1], frames.qd[begin : end + 1], frames.control[begin:end])
                cut.append((piece, part))
                splits.append(split)
    return cut, splits


def _build(header: StoreHeader, episodes: list[tuple[RawRun, Frames]], splits: list[Split]) -> Store:
    spec = header.spec
    table = episode_table(
        [len(frames.control) for _, frames in episodes],
        status=Status.LOG,
        split=splits,
        run=[header.runs.index(piece.name) for piece, _ in episodes],
        group=[header.groups.index(piece.group) if piece.group else -1 for piece, _ in episodes],
    )
    rows = np.zeros((int((table["length"] + 1).sum()), spec.nq + spec.nv + spec.nu), np.float32)
    for record, (_, frames) in zip(table, episodes, strict=True):
        begin, end = int(record["start"]), int(record["start"] + record["length"])
        rows[begin : end + 1, : spec.nq] = frames.q
        rows[begin : end + 1, spec.nq : spec.nq + spec.nv] = frames.qd
        rows[begin:end, spec.nq + spec.nv :] = frames.control
    ground = None if header.scene is None else np.tile(np.array(IDENTITY, np.float32), (len(episodes), 1))
    store = Store(header, rows, table, ground)
    store.check("log")
    return store


def _notes(
    files: Sequence[Path],
    columns: ColumnMap,
    runs: list[RawRun],
    pieces: list[RawRun],
    dropped: int,
    spec: StateSpec,
    alignment: Alignment,
) -> dict[str, Any]:
    by_group: dict[str, list[np.ndarray]] = {}
    for run in runs:
        by_group.setdefault(run.group or "all", []).append(np.diff(run.time))
    gaps = [
        {"run": run.name, "at_s": float(run.time[row]), "length_s": float(step)}
        for run in runs
        for row, step in enumerate(np.diff(run.time))
        if step > columns.max_gap
    ]
    return {
        "files": [str(file) for file in files],
        "column_map": to_dict(columns),
        "rates_hz": {name: _rates(steps) for name, steps in by_group.items()},
        "interpolated_groups": sorted(n for n, s in by_group.items() if np.median(np.concatenate(s)) > spec.dt * 1.01),
        "velocity": _velocity_note(columns, spec),
        "gaps": {"count": len(gaps), "longest": sorted(gaps, key=lambda gap: -gap["length_s"])[:_MOST_LISTED]},
        "pieces": len(pieces),
        "pieces_shorter_than_a_frame": dropped,
        "rows": int(sum(len(run.time) for run in runs)),
        "alignment": to_dict(alignment),
    }


def _velocity_note(columns: ColumnMap, spec: StateSpec) -> str:
    around = f"over the frame around each sample (+-{500 * spec.dt:g} ms)"
    if columns.velocity == "past":
        return "slope of the positions before each sample"
    if columns.qd == "differentiate":
        return f"differences of the positions {around}"
    return f"logged velocity, mean {around}" if columns.velocity == "averaged" else "logged velocity, interpolated"


def _rates(steps: list[np.ndarray]) -> dict[str, float]:
    joined = np.concatenate(steps)
    return {"median": float(1 / np.median(joined)), "slowest": float(1 / joined.max()), "runs": len(steps)}

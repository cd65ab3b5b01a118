# SPDX-License-Identifier: Apache-2.0
"""Reader and writer of headerless rows of legged robots (`data.row_layout`), aligned and cut into episodes.

Row t of such a file holds the action that *produced* its state. In a store, a row's control acts during the frame that
starts there, so actions move up by one row. The action in an episode's first row belongs to an unknown state and is
dropped.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from neurodyn.core.artifacts import atomic, require_writable
from neurodyn.core.config import to_dict
from neurodyn.core.errors import InputError, unreadable
from neurodyn.core.locks import exclusive
from neurodyn.core.provenance import package_versions
from neurodyn.data.header import Split, Status, StoreHeader, episode_table
from neurodyn.data.row_layout import RowLayout
from neurodyn.data.split import assign_splits
from neurodyn.data.store import Store
from neurodyn.data.writer import require_replaceable, require_store_name

_TEST_FRACTION = 0.1


def read_rows(files: Sequence[Path], layout: RowLayout, *, split: Split | None = None, seed: int = 0) -> Store:
    """Read CSV files of rows into trajectories, in memory; episodes do not span files.

    Without a common `split`, episodes are split at random.

    Raises:
        InputError: A file is missing or malformed, has another number of columns or a value that is not finite, no flag
            marks the end of an episode, or no episode has two rows.
    """
    if not files:
        raise InputError("no log file given; expected at least one path")
    tables = [_numbers(Path(file), layout) for file in files]
    pieces, statuses, runs = [], [], []
    for run, (path, rows) in enumerate(zip(files, tables, strict=True)):
        for begin, end, status in _episodes(rows, layout, str(path)):
            pieces.append(rows[begin:end])
            statuses.append(status)
            runs.append(run)
    if not pieces:
        raise InputError(f"{files[0]}: no episode has two rows; a transition needs a row before and one after it")
    splits = assign_splits(len(pieces), seed, test=_TEST_FRACTION) if split is None else split
    table = episode_table([len(piece) - 1 for piece in pieces], run=runs, status=statuses, split=splits)
    header = StoreHeader(
        spec=layout.spec,
        source="log",
        versions=package_versions(),
        notes={"files": [str(file) for file in files], "layout": to_dict(layout)},
        runs=tuple(Path(file).stem for file in files),
    )
    store = Store(header, np.concatenate([_convert(piece, layout) for piece in pieces]), table)
    store.check(str(files[0]))
    return store


def import_rows(
    files: Sequence[Path], layout: RowLayout, out: Path, *, split: Split | None = None, seed: int = 0
) -> Store:
    """Read files of rows, write them as a store, and return it; see `read_rows`."""
    require_store_name(out)
    require_writable(out)
    with exclusive(out):
        require_replaceable(out)
        store = read_rows(files, layout, split=split, seed=seed)
        store.write(out)
    return store


def write_rows(store: Store, path: str | Path, layout: RowLayout) -> None:
    """Write the trajectories of a store as rows, atomically; the action of an episode's first row is zero.

    Raises:
        InputError: The store does not fit the layout, the layout cannot mark how episodes ended, or the file cannot be
            written.
    """
    different = layout.spec.differences(store.header.spec)
    if different:
        raise InputError(f"{path}: the store does not fit the layout: {different[0]}")
    table = store.table
    timed = table["status"] != Status.TERMINATED
    fits = table["length"][timed] + 1 == layout.episode_length
    if not layout.time_out and not fits.all():
        raise InputError(
            f"{path}: {int(timed.sum())} episodes end without a failure, which these rows cannot say; valid: a layout "
            "with time_out, or with an episode_length that all of them have"
        )
    parts, nominal = layout.slices, np.array(layout.nominal, np.float32)
    n, rows = len(layout.joints), np.zeros((len(store.frames), len(layout.names)), np.float32)
    channel, state = store.channel, rows[:, parts["state"]]
    state[:, :9], state[:, 9 + 2 * n :] = channel[:, :9], channel[:, 9:]
    state[:, 9 : 9 + n], state[:, 9 + n : 9 + 2 * n] = store.q - nominal, store.qd
    rows[1:, parts["action"]] = (store.control[:-1] - nominal) / layout.action_scale
    rows[table["start"], parts["action"]] = 0.0
    rows[:, parts["contacts"]] = store.contact
    last = table["start"] + table["length"]
    rows[last[~timed], parts["termination"]] = 1.0
    if layout.time_out:
        rows[last[timed], parts["time_out"]] = 1.0
    with atomic(Path(path)) as temporary:
        np.savetxt(temporary, rows, fmt="%.9g", delimiter=",")


def _convert(rows: np.ndarray, layout: RowLayout) -> np.ndarray:
    """Return an episode's rows in the order of a store: q, qd, control, channels, contacts."""
    parts, nominal, n = layout.slices, np.array(layout.nominal, np.float32), len(layout.joints)
    state = rows[:, parts["state"]]
    control = np.zeros((len(rows), n), np.float32)
    control[:-1] = nominal + layout.action_scale * rows[1:, parts["action"]]
    channels = np.concatenate([state[:, :9], state[:, 9 + 2 * n :]], 1)
    contacts = rows[:, parts["contacts"]]
    return np.concatenate([state[:, 9 : 9 + n] + nominal, state[:, 9 + n : 9 + 2 * n], control, channels, contacts], 1)


def _numbers(path: Path, layout: RowLayout) -> np.ndarray:
    """Return the checked values of a file, float32, shape [rows, columns]."""
    names = layout.names
    try:
        with path.open(encoding="utf-8") as file:
            first = file.readline()
            width = first.count(",") + 1
            if not first.strip():
                raise InputError(f"{path}: is empty; expected rows of {len(names)} numbers")
            if width != len(names):
                parts = ", ".join(f"{name} {count}" for name, count in layout.widths.items())
                raise InputError(f"{path}: row 0 has {width} columns; valid: {len(names)} ({parts})")
            file.seek(0)
            rows = np.loadtxt(file, dtype=np.float32, delimiter=",", ndmin=2, comments=None)
    except OSError as error:
        raise unreadable(path, error, "a CSV file") from None
    except ValueError as error:
        raise InputError(
            f"{path}: is no table of numbers ({str(error).rstrip('.')}); expected {len(names)} numbers in each row, "
            "without a header line"
        ) from None
    if not np.isfinite(rows).all():
        row, column = (int(x[0]) for x in np.nonzero(~np.isfinite(rows)))
        raise InputError(f"{path}: row {row} has {rows[row, column]} as {names[column]}; expected a finite number")
    for name in ("contacts", "termination", "time_out"):
        values = rows[:, layout.slices[name]] if name in layout.slices else np.zeros(0)
        if not np.isin(values, (0.0, 1.0)).all():
            row = int(np.argmax(~np.isin(values, (0.0, 1.0)).all(1)))
            raise InputError(f"{path}: row {row} has {name} other than 0 and 1; check the order of the columns")
    return rows


def _episodes(rows: np.ndarray, layout: RowLayout, where: str) -> list[tuple[int, int, Status]]:
    """Return first row, end row and status of each episode of at least two rows."""
    failed = rows[:, layout.slices["termination"]][:, 0] > 0
    timed = rows[:, layout.slices["time_out"]][:, 0] > 0 if layout.time_out else np.zeros(len(rows), bool)
    limit = layout.episode_length or len(rows)
    if not (failed.any() or timed.any() or layout.episode_length or layout.continuous):
        raise InputError(
            f"{where}: no row says where an episode ends; declare episode_length, time_out: true (a further column), "
            "or continuous: true (one recording)"
        )
    episodes, begin = [], 0
    while begin < len(rows):
        flags = np.flatnonzero((failed | timed)[begin : begin + limit])
        end = begin + (int(flags[0]) + 1 if len(flags) else min(limit, len(rows) - begin))
        if failed[end - 1]:
            status = Status.TERMINATED
        else:
            status = Status.COMPLETE if timed[end - 1] or end - begin == layout.episode_length else Status.LOG
        if end - begin > 1:
            episodes.append((begin, end, status))
        begin = end
    return episodes

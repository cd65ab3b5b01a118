# SPDX-License-Identifier: Apache-2.0
"""Runs as they were logged, in SI units but at their own times; what every reader returns."""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.data.header import Split
from neurodyn.data.readers.column_map import Column, ColumnMap
from neurodyn.data.readers.units import factor


@dataclass(frozen=True)
class RawRun:
    """One run.

    Attributes:
        name: Name of the run.
        group: Name of its group; empty where there is none.
        split: What it is for; None where the log does not say.
        time: Time of each row [s], increasing, shape [N].
        q: Positions [rad or m], shape [N, nq].
        qd: Velocities [rad/s or m/s], shape [N, nv]; None where they follow from the positions.
        control: Torques, held from row to row [N m or N], shape [N, nu].
    """

    name: str
    group: str
    split: Split | None
    time: np.ndarray
    q: np.ndarray
    qd: np.ndarray | None
    control: np.ndarray


def convert(
    columns: ColumnMap, spec: StateSpec, raw: Callable[[str], np.ndarray], rows: int, where: str
) -> dict[str, np.ndarray]:
    """Return time [N], q [N, nq], qd [N, nv] and control [N, nu] in SI units.

    Args:
        columns: The column map.
        spec: Order of the coordinates.
        raw: Returns a column by name as float64 numbers, shape [N].
        rows: Rows N.
        where: The file, for error messages.

    Raises:
        InputError: A column is missing, or a number in it is not finite.
    """
    factors = columns.factors(spec, where)
    given = {"q": columns.q, "qd": columns.velocities, "control": columns.control}
    found = {}
    for what, coordinates in factors.items():
        array = np.empty((rows, len(coordinates)))
        for index, (name, size) in enumerate(coordinates.items()):
            array[:, index] = _value(given[what][name], raw, size, rows, where)
        found[what] = array
    if columns.time is None:
        found["time"] = np.arange(rows) * float(columns.period or 0.0)
    else:
        time = raw(columns.time)
        _check_finite(time, columns.time, where)
        found["time"] = time * factor(columns.time_unit, "s", f"{where}: time_unit")
    return found


def cut(
    columns: ColumnMap,
    spec: StateSpec,
    arrays: dict[str, np.ndarray],
    rows: slice,
    *,
    name: str,
    group: str,
    split: Split | None,
    where: str,
) -> RawRun:
    """Cut one run out of converted columns: check its time, drop repeated time stamps, unwrap its angles.

    Raises:
        InputError: Time goes backwards, or there are fewer than two rows.
    """
    time = arrays["time"][rows]
    steps = np.diff(time)
    if (steps < 0).any():
        row = int(np.argmin(steps)) + rows.start + 1
        raise InputError(
            f"{where}: time goes backwards in run {name!r} at row {row} ({arrays['time'][row - 1]:.6g} s to "
            f"{arrays['time'][row]:.6g} s); sort the rows, or declare where runs begin (`episodes`)"
        )
    keep = np.concatenate(([True], steps > 0)) if len(time) else np.zeros(0, bool)
    if keep.sum() < 2:
        raise InputError(f"{where}: run {name!r} has {int(keep.sum())} rows with different times; expected at least 2")
    q = arrays["q"][rows][keep].copy()
    for index, coordinate in enumerate(spec.q_names):
        if columns.q[coordinate].wrapped:
            q[:, index] = np.unwrap(q[:, index])
    qd = arrays["qd"][rows][keep] if columns.velocities else None
    return RawRun(name, group, split, time[keep], q, qd, arrays["control"][rows][keep])


def selected(columns: ColumnMap, group: str, name: str) -> bool:
    """Return whether a run is to be read; a run without a group passes the selection of groups."""
    by_group = not group or _matches(columns.select_groups, group)
    return by_group and _matches(columns.select_runs, name)


def parse_split(value: object, where: str) -> Split:
    """Return the split that a number or word stands for.

    Raises:
        InputError: It stands for none.
    """
    text = str(value).strip().lower()
    for split in Split:
        if text in {str(int(split)), f"{int(split)}.0", split.name.lower()}:
            return split
    raise InputError(f"{where}: unknown split {value!r}; valid: 0 or train, 1 or validation, 2 or test")


def _value(column: Column, raw: Callable[[str], np.ndarray], size: float, rows: int, where: str) -> np.ndarray:
    total = np.full(rows, column.offset)
    for name in column.columns:
        values = raw(name)
        _check_finite(values, name, where)
        total = total + values
    return size * total


def _check_finite(values: np.ndarray, name: str, where: str) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{where}: column {name!r} holds {values[row]} in row {row} ({int(bad.sum())} such rows); expected finite "
            "numbers: remove those rows, a gap in time begins a new episode"
        )


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

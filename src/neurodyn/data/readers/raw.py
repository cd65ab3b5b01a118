# SPDX-License-Identifier: Apache-2.0
"""Runs as they were logged, in SI units but at their own times; what every reader returns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.data.header import Split
from neurodyn.data.readers.column_map import Column, ColumnMap
from neurodyn.data.readers.floating import check_quaternions, check_readings, continuous_signs, to_newton
from neurodyn.data.readers.units import factor


@dataclass(frozen=True)
class RawRun:
    """One run.

    Attributes:
        name: Name of the run.
        group: Name of its group; empty where there is none.
        split: Its split; None where the log does not say.
        time: Time of each row [s], increasing, shape [N].
        q: Positions [rad or m], shape [N, nq].
        qd: Velocities [rad/s or m/s], shape [N, nv]; None where they follow from the positions.
        control: Torques, held from row to row [N m or N], shape [N, nu].
        together: Equal for runs that a random split must not divide.
    """

    name: str
    group: str
    split: Split | None
    time: np.ndarray
    q: np.ndarray
    qd: np.ndarray | None
    control: np.ndarray
    together: str = ""


def convert(
    columns: ColumnMap,
    spec: StateSpec,
    raw: Callable[[str], np.ndarray],
    rows: int,
    where: str,
    period: float | None = None,
) -> dict[str, np.ndarray]:
    """Return time [N], q [N, nq], qd [N, nv] and control [N, nu] in SI units.

    Args:
        columns: The column map.
        spec: Order of the coordinates.
        raw: Returns a column by name as float64 numbers, shape [N].
        rows: Rows N.
        where: The file, for error messages.
        period: Time between two rows [s], where the file gives it.

    Raises:
        InputError: A column is missing, a number in it is not finite, or a quaternion not unit.
    """
    factors = columns.factors(spec, where)
    given = {"q": columns.positions, "qd": columns.velocities, "control": columns.control}
    arrays = {}
    for what, coordinates in factors.items():
        arrays[what] = np.empty((rows, len(coordinates)))
        for index, (name, size) in enumerate(coordinates.items()):
            arrays[what][:, index] = _value(given[what][name], raw, size, rows, where)
    check_quaternions(columns.floating, spec, arrays["q"], where)
    if columns.time is None:
        arrays["time"] = np.arange(rows) * (period if period is not None else float(columns.period or 0.0))
    else:
        time = raw(columns.time)
        _check_finite(time, columns.time, where)
        arrays["time"] = time * factor(columns.time_unit, "s", f"{where}: time_unit")
    return arrays


def check_velocities(
    columns: ColumnMap, spec: StateSpec, arrays: dict[str, np.ndarray], bounds: Sequence[int], where: str
) -> None:
    """Check the declared order and axes of floating joints against the motion; run k is rows bounds[k]:bounds[k + 1].

    Raises:
        InputError: Another reading fits the motion, or none does.
    """
    if not columns.floating or len(arrays["time"]) < 2:
        return
    steps = np.diff(arrays["time"])
    seams = np.asarray([b for b in bounds if 0 < b < len(arrays["time"])], int) - 1
    steps[seams] = np.nan
    steps[steps > columns.max_gap] = np.nan
    check_readings(columns.floating, spec, arrays["q"], arrays["qd"], steps, where)


def cut(
    columns: ColumnMap,
    spec: StateSpec,
    arrays: dict[str, np.ndarray],
    rows: slice,
    *,
    name: str,
    group: str,
    split: Split | None,
    together: str | None,
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
        if coordinate in columns.q and columns.q[coordinate].wrapped:
            q[:, index] = np.unwrap(q[:, index])
    continuous_signs(spec, q)
    qd = arrays["qd"][rows][keep].copy() if columns.velocities else None
    if qd is not None:
        to_newton(columns.floating, spec, q, qd)
    return RawRun(name, group, split, time[keep], q, qd, arrays["control"][rows][keep], together or name)


def selected(columns: ColumnMap, group: str, name: str) -> bool:
    """Return whether a run is to be read; a run without a group passes the selection of groups."""

    def matches(patterns: tuple[str, ...], label: str) -> bool:
        return not patterns or any(fnmatchcase(label, pattern) for pattern in patterns)

    return (not group or matches(columns.select_groups, group)) and matches(columns.select_runs, name)


def parse_split(value: object, where: str) -> Split:
    """Return the split that a number or word stands for, or raise an InputError."""
    text = str(value).strip().lower()
    for split in Split:
        if text in {str(int(split)), f"{int(split)}.0", split.name.lower()}:
            return split
    raise InputError(f"{where}: unknown split {value!r}; valid: 0 or train, 1 or validation, 2 or test")


def _value(column: Column, raw: Callable[[str], np.ndarray], size: float, rows: int, where: str) -> np.ndarray:
    total = np.full(rows, column.offset)
    for sign, names in ((1.0, column.columns), (-1.0, column.subtracted)):
        for name in names:
            values = raw(name)
            _check_finite(values, name, where)
            total = total + sign * values
    return size * total


def _check_finite(values: np.ndarray, name: str, where: str) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{where}: column {name!r} holds {values[row]} in row {row} ({int(bad.sum())} such rows); expected finite "
            "numbers: remove those rows, a gap in time begins a new episode"
        )

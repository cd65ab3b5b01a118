# SPDX-License-Identifier: Apache-2.0
"""Conversion of log columns to runs in SI units with a column map; each stream keeps its clock."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError, choices, notice
from neurodyn.data.readers.column_map import READERS, Column, ColumnMap, LogFormat
from neurodyn.data.readers.floating import (
    check_quaternions,
    check_readings,
    continuous_signs,
    make_continuous,
    normalise,
    quaternions_of,
    to_body,
    to_newton,
    velocities_of,
)
from neurodyn.data.readers.raw import RawRun, is_selected
from neurodyn.data.readers.resample import hermite, slopes_of
from neurodyn.data.readers.sensor_columns import measured_names, read_measured
from neurodyn.data.readers.source import ColumnSeries, LogPart, RunRows, Source, factor

_KINDS = ("q", "qd", "control")


@dataclass(frozen=True)
class _Signals:
    """Coordinates of one kind on one clock: times [s], shape [N], and values in SI units, shape [N, coordinates].

    `missing` holds times at which a stream lacks a value; NaN stands where it cannot be interpolated.
    """

    time: np.ndarray
    value: np.ndarray
    missing: np.ndarray


def read_source(source: Source, columns: ColumnMap, spec: StateSpec) -> Iterator[RawRun]:
    """Yield the runs of a log that a column map selects, long ones in parts.

    Raises:
        InputError: A column is missing, a value is not finite (unless the map says `missing: gap`), time goes
            backwards, or a quaternion is not unit.
    """
    where = str(source.path)
    factors = columns.factors(spec, where)
    joints = [name for column in columns.coordinates for name in column.names]
    quantities = [name for column in columns.parameters.values() for name in column.names]
    names = tuple(dict.fromkeys([*joints, *quantities, *measured_names(columns.measured)]))
    count, groups, empty = 0, set(), set(names)
    for part in source.parts(names):
        empty -= {name for name in empty if np.isfinite(part.series[name].value).any()}
        signals = {what: _signals(what, factors[what], columns, part, where) for what in _KINDS}
        _check_motion(columns, spec, signals, part, where)
        for run in part.runs:
            groups.add(run.group)
            if not is_selected(columns, run.group, run.name):
                continue
            cut = _cut(columns, spec, signals, run, part.first or 0, where)
            if cut is not None:
                count += 1
                known = _parameters(columns, part, run.rows, cut, where)
                yield replace(cut, readings=read_measured(columns.measured, part, run, where), **known)
    if not count and (columns.select_groups or columns.select_runs):
        patterns = ", ".join((*columns.select_groups, *columns.select_runs))
        raise InputError(
            f"{where}: no run is selected by {patterns}; groups there: {', '.join(sorted(groups)) or '(none)'}"
        )
    if not count and empty:
        raise InputError(f"{where}: {choices(sorted(empty))} never {'hold' if len(empty) > 1 else 'holds'} a number; "
                         "leave out what is not measured, or name other columns")  # fmt: skip
    if not count:
        raise InputError(f"{where}: holds no run; expected at least one with two rows")


def _signals(what: str, sizes: Mapping[str, float], columns: ColumnMap, part: LogPart, where: str) -> _Signals:
    """Return the coordinates of "q", "qd" or "control" on one clock; for q and qd, that of the densest stream.

    Controls are held between rows, so merging the times of their streams loses nothing.
    """
    given = {"q": columns.positions, "qd": columns.velocities, "control": columns.controls}[what]
    values = [_value(given[name], part, size, columns, where) for name, size in sizes.items()]
    if what == "q":
        _turn_angles(columns, sizes, values, where)
    clocks = list({id(series.time): series.time for series in values}.values())
    for clock in clocks if len(clocks) > 1 else ():
        _require_forward(clock, what, columns, where)
    if what == "q" and len(clocks) > 1:
        _join_signs(columns, dict(zip(sizes, values, strict=True)))
    if not clocks:
        time = next(iter(part.series.values())).time if part.series else np.zeros(0)
        return _Signals(time, np.zeros((len(time), 0)), np.zeros(0))
    if len(clocks) == 1:
        return _Signals(clocks[0], np.stack([series.value for series in values], axis=1), np.zeros(0))
    if what == "control":
        time = np.unique(np.concatenate(clocks))
        time = time[time >= max(clock[0] if len(clock) else np.inf for clock in clocks)]
    else:
        time = max(clocks, key=len)
        begin, end = (pick(clock[i] if len(clock) else np.nan for clock in clocks) for pick, i in ((max, 0), (min, -1)))
        time = time[(time >= begin) & (time <= end)]
    if not len(time):
        names = ", ".join(repr(name) for column in given.values() for name in column.names[:1])
        raise InputError(
            f"{where}: the streams of {what} ({names}) have no time in common; valid: streams that run together, or "
            "`clock: log` where their headers have different clocks"
        )
    resampled = np.stack([_resample(series, time, what, columns.max_gap) for series in values], axis=1)
    for series in values:
        resampled[_in_hole(series, time, columns.max_gap)] = np.nan
    lost = [series.time[~np.isfinite(series.value)] for series in values]
    return _Signals(time, resampled, np.unique(np.concatenate(lost)))


def _turn_angles(columns: ColumnMap, names: Iterable[str], series: list[ColumnSeries], where: str) -> None:
    """Replace the angles of floating joints by quaternions, in place."""
    at = {name: index for index, name in enumerate(names)}
    for name, joint in columns.poses.items():
        if not joint.angles:
            continue
        places = [at[one] for one in JointSpec(name=name, kind="free" if joint.position else "ball").q_names[-4:]]
        first, *others = (series[place] for place in places)
        if any(one.time is not first.time for one in others):
            raise InputError(f"{where}: the angles of {name!r} have several clocks; valid: columns of one stream")
        angles = np.stack([series[place].value for place in places[:3]], axis=1)
        turns = quaternions_of(joint, angles * factor(joint.angles_unit, "rad", f"{where}: angles of {name!r}"))
        make_continuous(turns)
        for place, value in zip(places, turns.T, strict=True):
            series[place] = ColumnSeries(first.time, value.copy())


def _join_signs(columns: ColumnMap, series: Mapping[str, ColumnSeries]) -> None:
    """Make the signs of quaternions continuous, in place, before they are interpolated."""
    for name, joint in columns.poses.items():
        names = JointSpec(name=name, kind="free" if joint.position else "ball").q_names[-4:]
        four = [series[one].value for one in names]
        good = np.isfinite(four).all(axis=0) if len({len(value) for value in four}) == 1 else np.zeros(0, bool)
        turns = np.stack([value[good] for value in four], axis=1) if good.any() else np.zeros((0, 4))
        make_continuous(turns)
        for value, turn in zip(four, turns.T, strict=True) if len(turns) else ():
            value[good] = turn


def _resample(series: ColumnSeries, time: np.ndarray, what: str, max_gap: float) -> np.ndarray:
    """Return a series at other times: held (control), linearly (qd) or cubically (q) interpolated."""
    good = np.isfinite(series.value)
    own, value = series.time[good], series.value[good]
    own, first = np.unique(own, return_index=True)
    value = value[first]
    if what == "control":
        return value[np.clip(np.searchsorted(own, time, side="right") - 1, 0, len(own) - 1)]
    if what == "qd" or len(own) < 3:
        return np.interp(time, own, value)
    pieces = np.split(np.arange(len(own)), np.flatnonzero(np.diff(own) > max_gap) + 1)
    slopes = np.concatenate([slopes_of(value[rows], own[rows]) for rows in pieces])
    return hermite(own, value[:, None], slopes[:, None], time)[:, 0]


def _in_hole(series: ColumnSeries, time: np.ndarray, max_gap: float) -> np.ndarray:
    """Return a mask of the times between two values of a series that are too far apart, or miss one between them."""
    good = np.isfinite(series.value)
    own, lost = series.time[good], np.sort(series.time[~good])
    if len(own) < 2:
        return np.ones(len(time), bool)
    after = np.clip(np.searchsorted(own, time), 1, len(own) - 1)
    begin, end = own[after - 1], own[after]
    broken = (end - begin > max_gap) | (np.searchsorted(lost, end) > np.searchsorted(lost, begin, side="right"))
    return broken & (time > begin) & (time < end)


def _value(column: Column, part: LogPart, size: float, columns: ColumnMap, where: str) -> ColumnSeries:
    """Return one coordinate in SI units, on the clock of its first column; NaN where another column has a gap."""
    parts = column.weights
    time = part.series[parts[0][1]].time
    total = np.full(len(time), column.shift)
    for weight, name in parts:
        series = part.series[name]
        if columns.missing != "gap":
            _check_finite(series, name, part.first, where)
        value = series.value
        if series.time is not time:
            _require_forward(series.time, name, columns, where)
            one = _Signals(series.time, value[:, None], np.zeros(0))
            value = _on_clock(one, time, columns.max_gap)[:, 0]
        total = total + weight * value
    return ColumnSeries(time, size * total)


def _parameters(columns: ColumnMap, part: LogPart, own: slice, run: RawRun, where: str) -> dict[str, Any]:
    """Return the values of the map's parameters in the rows of a run, and which of them are constant in an episode."""
    given = columns.parameters
    if not given:
        return {}
    values = []
    for name, column in given.items():
        series = _value(column, part, column.factor, columns, where)
        time, value = series.time[own], series.value[own]
        held = value[np.clip(np.searchsorted(time, run.time, side="right") - 1, 0, len(time) - 1)]
        if not np.isfinite(held).all():
            raise InputError(f"{where}: run {run.name!r} has no {name} in some rows; valid: a number in each")
        values.append(held)
    return {"parameters": np.stack(values, 1), "steps": tuple(not column.averaged for column in given.values())}


def _check_motion(
    columns: ColumnMap, spec: StateSpec, signals: Mapping[str, _Signals], part: LogPart, where: str
) -> None:
    """Check quaternions, and the declared order and axes of floating joints against the motion."""
    if not columns.poses:
        return
    q, qd = signals["q"], signals["qd"]
    check_quaternions(columns.poses, spec, q.value, where)
    if len(q.time) < 2 or not columns.velocities:
        return
    velocity = _on_clock(qd, q.time, columns.max_gap)
    steps = np.diff(q.time)
    starts = np.asarray([run.rows.start or 0 for run in part.runs], int)
    steps[starts[starts > 0] - 1] = np.nan
    steps[steps > columns.max_gap] = np.nan
    whole = np.asarray(np.isfinite(np.concatenate((q.value, velocity), axis=1)).all(axis=1))
    steps[~(whole[1:] & whole[:-1])] = np.nan
    check_readings(columns.poses, spec, q.value, velocity, steps, where)


def _on_clock(signals: _Signals, time: np.ndarray, max_gap: float) -> np.ndarray:
    """Return signals linearly interpolated at other times, shape [N, coordinates]; NaN where they have a gap."""
    if signals.time is time:
        return signals.value
    if not len(signals.time):
        return np.full((len(time), signals.value.shape[1]), np.nan)
    values = np.stack([np.interp(time, signals.time, column) for column in signals.value.T], axis=1)
    outside = (time < signals.time[0]) | (time > signals.time[-1])
    values[outside | _in_hole(ColumnSeries(signals.time, signals.value.sum(axis=1)), time, max_gap)] = np.nan
    return values


def _cut(
    columns: ColumnMap, spec: StateSpec, signals: Mapping[str, _Signals], run: RunRows, first: int, where: str
) -> RawRun | None:
    """Cut one run out of converted columns; None for a part with fewer than two rows.

    Times are checked (an InputError if they go backwards), repeated and missing rows dropped, and angles unwrapped.
    """
    q, control = signals["q"], signals["control"] if columns.controls else None
    velocities = signals["qd"] if columns.velocities else None
    if columns.poses and velocities is not None and velocities.time is not q.time:
        _require_forward(velocities.time, "qd", columns, where)
        moved = _on_clock(velocities, q.time, columns.max_gap)  # poses rotate them
        velocities = _Signals(q.time, moved, velocities.missing)
    shared = [other for other in (velocities, control) if other is not None and other.time is q.time]
    kept = {
        id(s): _keep_rows(s, shared if s is q else [], run, first, where, _cure_of_times(columns))
        for s in (q, velocities, control)
        if s is not None and (s is q or s.time is not q.time)
    }
    rows, missing = kept[id(q)]
    if len(rows) < 2:
        if run.partial or len(missing):
            return None
        raise InputError(f"{where}: run {run.name!r} has {len(rows)} rows with different times; expected at least 2")

    def take(s: _Signals | None) -> tuple[np.ndarray | None, np.ndarray | None]:
        if s is None:
            return None, None
        if s.time is q.time:
            return s.value[rows], None
        own = kept[id(s)][0]
        return s.value[own], s.time[own]

    _require_overlap({"q": q.time[rows], "qd": take(velocities)[1], "control": take(control)[1]}, run, where)
    positions, (qd, velocity_time), (values, control_time) = q.value[rows], take(velocities), take(control)
    for index, coordinate in enumerate(spec.q_names):
        if coordinate in columns.q and columns.q[coordinate].wrapped:
            positions[:, index] = np.unwrap(positions[:, index])
        if not run.partial and np.ptp(positions[:, index]) == 0.0:
            notice(f"{where}: {coordinate} never changes; look whether its column and unit are right")
    continuous_signs(spec, positions)
    if qd is not None:
        to_newton(columns.poses, spec, positions, qd)
    else:
        normalise(spec, positions)
    to_body(columns.poses, spec, positions, qd)
    if qd is not None:
        _differentiate(columns, spec, q.time[rows], positions, velocity_time, qd)
    lost = np.unique(np.concatenate([m for _, m in kept.values()] + [s.missing for s in signals.values()]))
    return RawRun(
        run.name, run.group, run.split, q.time[rows], positions, qd,
        np.zeros((len(rows), 0)) if values is None else values, run.together or run.name,
        velocity_time=velocity_time, control_time=control_time, missing=lost if len(lost) else None,
        centers={name: joint.center for name, joint in columns.poses.items()},
    )  # fmt: skip


def _require_overlap(clocks: Mapping[str, np.ndarray | None], run: RunRows, where: str) -> None:
    """Raise an InputError if the streams of a run never run at the same time."""
    spans = {name: (float(time[0]), float(time[-1])) for name, time in clocks.items() if time is not None and len(time)}
    late, early = max(spans, key=lambda name: spans[name][0]), min(spans, key=lambda name: spans[name][1])
    if not run.partial and spans[late][0] > spans[early][1]:
        raise InputError(
            f"{where}: the streams of {early} and {late} have no time in common: one ends at {spans[early][1]:.6g} s, "
            f"the other begins at {spans[late][0]:.6g} s; valid: streams that run together, or `clock: log` where "
            "their headers have different clocks"
        )


def _require_forward(time: np.ndarray, what: str, columns: ColumnMap, where: str) -> None:
    """Raise an InputError if the clock of a stream, of "q", "qd", "control" or a column, goes backwards."""
    row = int(np.argmin(np.diff(time))) + 1 if len(time) > 1 else 0
    if row and time[row] < time[row - 1]:
        raise InputError(
            f"{where}: time of a stream of {what} goes backwards ({time[row - 1]:.6g} s to {time[row]:.6g} s); "
            f"{_cure_of_times(columns)}"
        )


def _differentiate(
    columns: ColumnMap, spec: StateSpec, time: np.ndarray, q: np.ndarray, at: np.ndarray | None, qd: np.ndarray
) -> None:
    """Write the velocities of joints that have none in the log, at other times than positions if given, in place."""
    still = {*columns.differentiated, *(name for name, joint in columns.poses.items() if not joint.angular_velocity)}
    if not still:
        return
    rates = velocities_of(spec, q, slopes_of(q, time), {name: joint.center for name, joint in columns.poses.items()})
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if joint.name in still:
            for k in range(place.qd.start, place.qd.stop):
                qd[:, k] = rates[:, k] if at is None else np.interp(at, time, rates[:, k])


def _cure_of_times(columns: ColumnMap) -> str:
    """Return what to do about times that go backwards in a log of a format."""
    reader = READERS[columns.format]
    keys = reader.keys if isinstance(reader, LogFormat) else ()
    if "clock" in keys and columns.clock == "header":
        return "`clock: log` takes the recorder's times in place of those of the messages"
    return "sort the rows, or declare where runs begin (`episodes`)" if "episodes" in keys else "write it in order"


def _keep_rows(
    signals: _Signals, others: Sequence[_Signals], run: RunRows, first: int, where: str, cure: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return a run's rows with new times and all values, and the times of rows that lack a value.

    `cure` says what to do about times that go backwards.
    """
    rows = np.arange(*run.rows.indices(len(signals.time)))
    time = signals.time[rows]
    steps = np.diff(time)
    if (steps < 0).any():
        row = int(np.argmin(steps)) + 1
        raise InputError(
            f"{where}: time goes backwards in run {run.name!r} at row {first + int(rows[row])} ({time[row - 1]:.6g} s "
            f"to {time[row]:.6g} s); {cure}"
        )
    doubled = int((steps == 0).sum())
    if doubled:
        notice(f"{where}: {doubled} rows of run {run.name!r} have the time of the row before them, and are left out")
    fresh = np.concatenate(([True], steps > 0)) if len(rows) else np.zeros(0, bool)
    good = np.ones(len(rows), bool)
    for s in (signals, *others):
        if not np.isfinite(np.sum(s.value)):  # one pass without a copy is enough for most logs
            good &= np.isfinite(s.value[rows]).all(axis=1)
    return rows[fresh & good], time[~good]


def _check_finite(series: ColumnSeries, name: str, first: int | None, where: str) -> None:
    if np.isfinite(np.sum(series.value)):
        return
    bad = ~np.isfinite(series.value)
    if not bad.any():
        return
    row = int(np.argmax(bad))
    place = f"at {series.time[row]:.6g} s" if first is None else f"in row {first + row}"
    raise InputError(
        f"{where}: column {name!r} holds {series.value[row]} {place} ({int(bad.sum())} such rows); expected finite "
        "numbers: remove those rows, a gap in time begins a new episode, or declare `missing: gap`"
    )

# SPDX-License-Identifier: Apache-2.0
r"""Resampling of unevenly timed logs to the robot's frames.

Positions are interpolated by cubic Hermite polynomials with slopes from the positions, because logged velocities are
noisier and often late. Velocities are sampled or averaged. The control of a frame is the mean of the held signal during
it, $\frac1{dt} \int u\,dt$, because that is the impulse the robot received.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.data.readers.floating import normalise, velocities_of
from neurodyn.data.readers.raw import RawRun
from neurodyn.data.smoothing import linear_integral

_PAST = 0.02
"""Time window of past positions for a velocity [s]."""

_TOUCH = 1e-4
"""Fraction of a frame within which a row counts as on the frame and is used without interpolation."""

_BLOCK = 1 << 15

SLOWEST = 5.0
"""Longest log step, in frames; interpolating longer steps would invent the motion."""


@dataclass(frozen=True)
class Frames:
    """Consecutive frames: positions [T + 1, nq], velocities [T + 1, nv], mean controls [T, nu] and sensor readings.

    Readings have shape [T + 1, columns], NaN for none.
    """

    q: np.ndarray
    qd: np.ndarray
    control: np.ndarray
    measured: np.ndarray


def check_rate(run: RawRun, columns: ColumnMap, dt: float, where: str) -> None:
    """Raise an InputError unless a run is fast enough for frames of `dt`, and as fast as declared."""
    step = float(np.median(np.diff(run.time)))
    if columns.rate is not None and not 0.8 <= step * columns.rate <= 1.25:
        raise InputError(
            f"{where}: run {run.name!r} is logged at {1 / step:.4g} Hz, but the column map declares "
            f"{columns.rate:g} Hz; correct `rate`, `time_unit` or `period`"
        )
    limit = min(SLOWEST * dt, columns.max_gap)
    if step > limit:
        raise InputError(
            f"{where}: run {run.name!r} is logged at {1 / step:.4g} Hz, too slow for frames of {dt:g} s; valid: at "
            f"least {1 / limit:.4g} Hz (check `time_unit` and `max_gap`)"
        )


def segments(run: RawRun, max_gap: float) -> list[RawRun]:
    """Split a run where a clock pauses for more than `max_gap` [s] or a value is missing; drop single rows."""
    clocks = list({id(time): time for time in run.clocks.values()}.values())
    if any(len(time) < 2 for time in clocks):
        return []
    held = run.control_time
    # A control with its own clock is held for one more step after its last row.
    reach = {id(time): (1 + _TOUCH) * float(np.median(np.diff(time))) if time is held else 0.0 for time in clocks}
    holes = [(begin + reach[id(time)], end) for time in clocks for begin, end in _holes(time, run.missing, max_gap)]
    begin = max(time[0] for time in clocks)
    end = min(time[-1] + reach[id(time)] for time in clocks)
    holes += _changes(run)
    pieces = []
    for hole_begin, hole_end in [*sorted(holes), (end, np.inf)]:
        piece = _between(run, begin, min(hole_begin, end)) if min(hole_begin, end) > begin else None
        if piece is not None:
            pieces.append(piece)
        begin = max(begin, hole_end)
    return pieces


def _changes(run: RawRun) -> list[tuple[float, float]]:
    """Return the last time before and the first after each change of a parameter."""
    if run.parameters is None:
        return []
    rows = np.flatnonzero((np.diff(run.parameters, axis=0) != 0.0)[:, list(run.steps)].any(1))
    return list(zip(run.time[rows].tolist(), run.time[rows + 1].tolist(), strict=True))


def _holes(time: np.ndarray, missing: np.ndarray | None, max_gap: float) -> list[tuple[float, float]]:
    """Return the last time before and the first after each gap of one clock."""
    broken = np.diff(time) > max_gap
    if missing is not None and len(missing):
        broken |= np.diff(np.searchsorted(missing, time)) > 0
    rows = np.flatnonzero(broken)
    return list(zip(time[rows].tolist(), time[rows + 1].tolist(), strict=True))


def _between(run: RawRun, begin: float, end: float) -> RawRun | None:
    """Return the part of a run between two times; None if it has fewer than two positions."""

    def rows(time: np.ndarray, reach: bool) -> slice:
        # On a separate clock, take one more row on either side of the interval.
        if reach:
            first = max(0, int(np.searchsorted(time, begin, side="right")) - 1)
            return slice(first, int(np.searchsorted(time, end, side="left")) + 1)
        return slice(int(np.searchsorted(time, begin)), int(np.searchsorted(time, end, side="right")))

    own = rows(run.time, reach=False)
    if own.stop - own.start < 2:
        return None
    changes: dict[str, Any] = {"time": run.time[own], "q": run.q[own], "missing": None}
    if run.parameters is not None:
        changes["parameters"] = run.parameters[own]
    for name, clock in (("qd", "velocity_time"), ("control", "control_time")):
        values, time = getattr(run, name), getattr(run, clock)
        part = own if time is None else rows(time, reach=True)
        changes |= {name: None if values is None else values[part], clock: None if time is None else time[part]}
    return replace(run, **changes)


def resample(
    run: RawRun, spec: StateSpec, *, delay: float, averaged: bool, past: bool = False, parts: int = 1
) -> Frames | None:
    """Return the frames of a run without gaps; None if it is too short for one.

    Frames that coincide with rows use their values without interpolation. A logged control takes effect after `delay`
    [s]. With `averaged`, logged velocities are averaged over the frame around each sample; with `past`, differentiated
    velocities use past positions only (`past_slopes`). Means of the control over `parts` of each frame, if there are
    several, follow the readings (`data.command_parts`).
    """
    grid = frame_times(run, spec.dt, delay=delay, averaged=averaged, past=past)
    if grid is None:
        return None
    q, qd = states(run, spec, grid, averaged=averaged, past=past)
    readings = [one.at(run.time[0] + grid, spec.dt) for one in run.readings]
    if parts > 1:
        readings.append(np.pad(control_in_parts(run, grid - delay, spec.dt, parts), ((0, 1), (0, 0))))
    measured = np.concatenate(readings, axis=1) if readings else np.zeros((len(grid), 0))
    return Frames(q, qd, mean_control(run, grid - delay, spec.dt) if run.control.size else _rates(q, spec), measured)


def _rates(q: np.ndarray, spec: StateSpec) -> np.ndarray:
    """Return the mean velocities of the controlled joints over the frames [rad/s or m/s], shape [T, nu]."""
    driven = [spec.q_names.index(name) for name in spec.controls]
    return np.diff(q[:, driven], axis=0) / spec.dt


def frame_times(
    run: RawRun, dt: float, *, delay: float, averaged: bool, margin: float | None = None, past: bool = False
) -> np.ndarray | None:
    """Return the frame times of a run since its first row [s], shape [T + 1]; other arguments: see `resample`.

    `margin` [s] is cut at both ends; None for the minimum that the delay requires.
    """
    half = dt / 2 if averaged or (run.qd is None and not past) else 0.0
    before, after = max(half, delay, 0.0), max(half, -delay, 0.0)
    if margin is not None:
        before, after = max(before, margin), max(after, margin)
    count = int(np.floor((run.time[-1] - run.time[0] - before - after) / dt + _TOUCH))
    return None if count < 1 else before + dt * np.arange(count + 1)


def states(
    run: RawRun, spec: StateSpec, grid: np.ndarray, *, averaged: bool, past: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions [T, nq] and velocities [T, nv] at times since the first row; arguments: see `resample`."""
    time, dt = run.time - run.time[0], spec.dt
    own = time if run.velocity_time is None else run.velocity_time - run.time[0]
    rows = _rows_at(time, grid, dt)
    slopes = slopes_of(run.q, time) if rows is None or (run.qd is None and not past) else np.empty(0)
    if rows is not None:
        q = run.q[rows]
    else:
        q = _in_blocks(lambda at: normalise(spec, hermite(time, run.q, slopes, at)), grid)
    if run.qd is None:

        def central_difference(at: np.ndarray) -> np.ndarray:
            return (hermite(time, run.q, slopes, at + dt / 2) - hermite(time, run.q, slopes, at - dt / 2)) / dt

        rates = _in_blocks((lambda at: past_slopes(time, run.q, at)) if past else central_difference, grid)
        return q, velocities_of(spec, q, rates, run.centers)
    logged = run.qd
    if averaged:
        return q, (linear_integral(own, logged, grid + dt / 2) - linear_integral(own, logged, grid - dt / 2)) / dt
    rows = _rows_at(own, grid, dt)
    if rows is not None:
        return q, logged[rows]
    return q, np.stack([np.interp(grid, own, column) for column in logged.T], axis=1)


def mean_control(run: RawRun, at: np.ndarray, dt: float) -> np.ndarray:
    """Return the mean of the held control between consecutive times `at`, one frame apart, shape [T, nu]."""
    time = run.clocks["control"] - run.time[0]
    rows = _rows_at(time, at[:-1], dt)
    if rows is not None and (np.diff(rows) == 1).all():
        after = time[rows[-1] + 1] if rows[-1] + 1 < len(time) else np.inf
        if after >= at[-1] - _TOUCH * dt:
            return run.control[rows]
    return np.diff(held_integral(time, run.control, at), axis=0) / dt


def control_in_parts(run: RawRun, at: np.ndarray, dt: float, parts: int) -> np.ndarray:
    """Return `mean_control` over equal parts of the frames between times `at`, shape [T, parts * nu]."""
    finer = np.append((at[:-1, None] + dt / parts * np.arange(parts)).ravel(), at[-1])
    return mean_control(run, finer, dt / parts).reshape(len(at) - 1, -1)


def _rows_at(time: np.ndarray, at: np.ndarray, dt: float) -> np.ndarray | None:
    """Return the row at each time; None if a time misses all rows by more than a ten-thousandth of a frame."""
    rows = np.minimum(np.searchsorted(time, at - _TOUCH * dt), len(time) - 1)
    return rows if (np.abs(time[rows] - at) <= _TOUCH * dt).all() else None


def _in_blocks(compute: Callable[[np.ndarray], np.ndarray], at: np.ndarray) -> np.ndarray:
    """Evaluate `compute` at times `at` in blocks, to bound the memory of intermediate results."""
    return np.concatenate([compute(at[begin : begin + _BLOCK]) for begin in range(0, len(at), _BLOCK)])


def held_integral(time: np.ndarray, signal: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Integrate a zero-order-hold signal from time[0] to each of `at`; shape [at, columns].

    The signal keeps its first value before the first row, and its last value after the last one.
    """
    total = np.concatenate((np.zeros((1, signal.shape[1])), np.cumsum(signal[:-1] * np.diff(time)[:, None], axis=0)))
    row = np.clip(np.searchsorted(time, at, side="right") - 1, 0, len(time) - 1)
    return total[row] + signal[row] * (at - time[row])[:, None]


def hermite(time: np.ndarray, value: np.ndarray, slope: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Interpolate columns by cubic Hermite polynomials; shape [at, columns]."""
    row = np.clip(np.searchsorted(time, at, side="right") - 1, 0, len(time) - 2)
    h = (time[row + 1] - time[row])[:, None]
    s = (at - time[row])[:, None] / h
    return (
        (1 + 2 * s) * (1 - s) ** 2 * value[row]
        + s * (1 - s) ** 2 * h * slope[row]
        + s**2 * (3 - 2 * s) * value[row + 1]
        + s**2 * (s - 1) * h * slope[row + 1]
    )


def past_slopes(time: np.ndarray, value: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the slope at each of `at` of a parabola fitted to the rows of the last 20 ms; shape [at, columns].

    At least three rows are used; at the first frames these include later rows.
    """
    count = min(len(time), max(3, round(_PAST / float(np.median(np.diff(time)))) + 1))
    if count < 3:
        return np.repeat((value[1:] - value[:-1]) / (time[1] - time[0]), len(at), axis=0)
    # A frame on a row must not miss it through rounding.
    last = np.searchsorted(time, at + 1e-9, side="right") - 1
    rows = np.clip(last, count - 1, len(time) - 1)[:, None] + np.arange(1 - count, 1)
    s = (time[rows] - at[:, None]) / _PAST
    powers = np.stack((np.ones_like(s), s, s**2), axis=-1)
    # Positions relative to the last row: after many turns, absolute angles would lose precision.
    relative = value[rows] - value[rows[:, -1:]]
    fitted = np.linalg.solve(powers.mT @ powers, powers.mT @ relative)
    return fitted[:, 1] / _PAST


def slopes_of(value: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Return time derivatives by differences along the first axis, second order also at uneven steps and both ends."""
    return np.gradient(value, time, axis=0, edge_order=2) if len(time) > 2 else _chord(value, time)


def _chord(value: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Return the slope between two rows, or zero for one, in each row."""
    step = time[-1] - time[0]
    return np.zeros_like(value) + (0.0 if step == 0.0 else (value[-1:] - value[:1]) / step)

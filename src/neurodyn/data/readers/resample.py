# SPDX-License-Identifier: Apache-2.0
r"""From uneven time stamps to the frames of a robot.

Positions are interpolated by cubic Hermite polynomials whose slopes come from the positions, because logged velocities
are noisier and often late; velocities are sampled or averaged; and the control of a frame is the mean of the held
signal during it, $\frac1{dt} \int u\,dt$, because that is the impulse that the robot received.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.data.readers.raw import RawRun

_PAST = 0.02
"""Time over which past positions give a velocity [s]."""

SLOWEST = 5.0
"""Most frames that one step of a log may span; beyond, interpolation would invent the motion."""


@dataclass(frozen=True)
class Frames:
    """Consecutive frames of one run.

    Attributes:
        q: Positions [rad or m], shape [T + 1, nq].
        qd: Velocities [rad/s or m/s], shape [T + 1, nv].
        control: Mean torques during the frames [N m or N], shape [T, nu].
    """

    q: np.ndarray
    qd: np.ndarray
    control: np.ndarray


def check_rate(run: RawRun, columns: ColumnMap, dt: float, where: str) -> None:
    """Check that a run is fast enough for frames of `dt`, and as fast as declared.

    Raises:
        InputError: It is not.
    """
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
    """Split a run where two rows are more than `max_gap` [s] apart; pieces of one row are dropped."""
    breaks = np.flatnonzero(np.diff(run.time) > max_gap) + 1
    pieces = [slice(a, b) for a, b in pairwise([0, *breaks.tolist(), len(run.time)]) if b - a > 1]
    return [
        replace(run, time=run.time[s], q=run.q[s], qd=None if run.qd is None else run.qd[s], control=run.control[s])
        for s in pieces
    ]


def resample(
    run: RawRun, spec: StateSpec, *, delay: float, averaged: bool, margin: float | None = None, past: bool = False
) -> Frames | None:
    """Return the frames of a run without gaps; None where it is too short for one.

    Args:
        run: The run.
        spec: Coordinates and dt of the robot.
        delay: Time from a logged control to its effect [s].
        averaged: Whether logged velocities are averaged over the frame around each sample.
        margin: Time that is left out at both ends [s]; None for as little as the delay requires.
        past: Whether velocities that are not logged come from past positions alone, see `past_slopes`; positions do
            where frames fall on rows.
    """
    time, dt = run.time - run.time[0], spec.dt
    centred = averaged or (run.qd is None and not past)
    half = dt / 2 if centred else 0.0
    before, after = max(half, delay, 0.0), max(half, -delay, 0.0)
    if margin is not None:
        before, after = max(before, margin), max(after, margin)
    count = int(np.floor((time[-1] - before - after) / dt + 1e-6))
    if count < 1:
        return None
    grid = before + dt * np.arange(count + 1)
    slopes = _slopes(run.q, time)
    q = _normalised(hermite(time, run.q, slopes, grid), spec)
    if run.qd is None and past:
        qd = past_slopes(time, run.q, grid)
    elif run.qd is None:
        # Over all positions the velocity coordinates are those of single-axis joints: same columns.
        qd = (hermite(time, run.q, slopes, grid + half) - hermite(time, run.q, slopes, grid - half)) / dt
    elif averaged:
        pieces = 0.5 * (run.qd[1:] + run.qd[:-1]) * np.diff(time)[:, None]
        area = np.concatenate((np.zeros((1, run.qd.shape[1])), np.cumsum(pieces, axis=0)))
        qd = (_trapezoid_at(time, run.qd, area, grid + half) - _trapezoid_at(time, run.qd, area, grid - half)) / dt
    else:
        qd = np.stack([np.interp(grid, time, column) for column in run.qd.T], axis=1)
    impulse = held_integral(time, run.control, grid - delay)
    return Frames(q, qd, np.diff(impulse, axis=0) / dt)


def held_integral(time: np.ndarray, signal: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Integrate a signal that is held from row to row, from time[0] to each of `at`; shape [at, columns].

    Before the first row the signal has its first value, after the last row its last one.
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
    """Return the slope at each of `at` of the parabola through the rows of the last 20 ms; shape [at, columns].

    Rows are as many as that time holds at their median step, at least three; the first frames also see later ones.
    """
    count = min(len(time), max(3, round(_PAST / float(np.median(np.diff(time)))) + 1))
    if count < 3:
        return np.repeat((value[1:] - value[:-1]) / (time[1] - time[0]), len(at), axis=0)
    # A frame on a row must not miss it for rounding.
    last = np.searchsorted(time, at + 1e-9, side="right") - 1
    rows = np.clip(last, count - 1, len(time) - 1)[:, None] + np.arange(1 - count, 1)
    s = (time[rows] - at[:, None]) / _PAST
    powers = np.stack((np.ones_like(s), s, s**2), axis=-1)
    # The angle of many turns would drown its own noise.
    relative = value[rows] - value[rows[:, -1:]]
    fitted = np.linalg.solve(powers.mT @ powers, powers.mT @ relative)
    return fitted[:, 1] / _PAST


def _slopes(q: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Time derivatives of the positions by central differences (second order at uneven steps)."""
    if len(time) < 3:
        return np.repeat((q[1:] - q[:-1]) / (time[1] - time[0]), 2, axis=0)
    return np.gradient(q, time, axis=0)


def _normalised(q: np.ndarray, spec: StateSpec) -> np.ndarray:
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if not joint.scalar:
            quaternion = q[:, place.quaternion]
            quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
    return q


def _trapezoid_at(time: np.ndarray, value: np.ndarray, area: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Integrate the straight lines between rows from time[0] to each of `at`."""
    row = np.clip(np.searchsorted(time, at, side="right") - 1, 0, len(time) - 2)
    s = (at - time[row])[:, None]
    rate = (value[row + 1] - value[row]) / (time[row + 1] - time[row])[:, None]
    return area[row] + s * value[row] + 0.5 * s**2 * rate

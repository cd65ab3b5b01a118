# SPDX-License-Identifier: Apache-2.0
"""Measuring how late the velocities of a stream of their own are, against the slopes of the positions."""

import numpy as np

from neurodyn.data.readers.raw import RawRun

_MOST = 0.1
"""Longest delay that is looked for [s]."""

_ROWS = 20_000
_BETTER = 0.9
_FINEST = 5e-5


def velocity_delay(runs: list[RawRun]) -> float | None:
    """Return the delay d [s] at which velocities fit the motion best: qd(t) = q'(t - d), in the least squares.

    Zero where the best delay leaves more than nine tenths of the misfit; None where velocities share the clock of the
    positions, have none of their own, or their coordinates are not those of the positions (quaternions).
    """
    run = max((r for r in runs if r.velocity_time is not None), key=lambda r: len(r.time), default=None)
    if run is None or run.qd is None or run.velocity_time is None or run.qd.shape[1] != run.q.shape[1]:
        return None
    rows = slice(0, _ROWS)
    time, own = run.time[rows] - run.time[0], run.velocity_time - run.time[0]
    slopes = np.gradient(run.q[rows], time, axis=0)
    inside = (own > time[0] + _MOST) & (own < time[-1] - _MOST)
    logged, at = run.qd[inside], own[inside]
    if len(at) < 50:
        return None
    scale = logged.std(axis=0) + 1e-12

    def misfit(delay: float) -> float:
        moved = np.stack([np.interp(at - delay, time, column) for column in slopes.T], axis=1)
        return float((((moved - logged) / scale) ** 2).mean())

    step = max(float(np.median(np.diff(time))), _MOST / 50)
    best = min(np.arange(-_MOST, _MOST + step / 2, step), key=misfit)
    best = refined(misfit, float(best), step, _FINEST)
    return best if misfit(best) < _BETTER * misfit(0.0) else 0.0


def refined(misfit, start: float, step: float, finest: float) -> float:  # noqa: ANN001
    """Return a least place of a smooth function near one of a grid, by halving steps, then a parabola."""
    values = {start: misfit(start)}

    def value(place: float) -> float:
        if place not in values:
            values[place] = misfit(place)
        return values[place]

    best = start
    while step > finest:
        step /= 2
        best = min((best - step, best, best + step), key=value)
    left, middle, right = value(best - step), value(best), value(best + step)
    curvature = left - 2 * middle + right
    return best + (0.5 * step * (left - right) / curvature if curvature > 0 else 0.0)

# SPDX-License-Identifier: Apache-2.0
r"""The time after which joints follow their target commands.

A servo with stiffness kp and damping kd follows a slow command after kd / kp, and a late one by its delay later:

$$q(t) \approx u(t - \tau) + b, \qquad \tau = delay + lag + kd / kp$$

This is measured because the noise of velocities outweighs the little that a stiff servo's acceleration tells.
"""

import math
from dataclasses import dataclass

import numpy as np

from neurodyn.core.description.spec import StateSpec
from neurodyn.data.commands import targets_among
from neurodyn.data.readers.raw import RawRun
from neurodyn.data.readers.resample import frame_times, mean_control, states

_EARLIEST, _LATEST, _STEP = -0.15, 0.6, 0.01
"""Candidate times, and their least step [s]."""
_BLOCK, _MOST_FRAMES = 50, 30_000
_GAIN_SHARE = 0.3
"""Uncertainty of declared kd / kp."""
_FRICTION = 0.002
"""Uncertainty through friction, which holds a joint back as a delay does [s]."""


@dataclass(frozen=True)
class Following:
    """How positions follow their commands.

    Attributes:
        time: Time after which they do [s].
        deviation: Its standard error [s].
        times: Candidates [s].
        left: Share of the positions' variance that each candidate leaves, shape [candidates].
        blocks: Its logarithm relative to no delay by block of frames, shape [candidates, blocks].
    """

    time: float
    deviation: float
    times: np.ndarray
    left: np.ndarray
    blocks: np.ndarray


def targets(runs: list[RawRun], spec: StateSpec) -> list[str]:
    """Return the joints whose commands are like their positions; empty unless that is so for most."""
    run = max(runs, key=lambda r: len(r.time))
    pairs = {}
    for name in spec.controls:
        if name in spec.q_names:
            u = run.control[:, spec.controls.index(name)]
            u = u if run.control_time is None else np.interp(run.time, run.control_time, u)
            pairs[name] = run.q[:, spec.q_names.index(name)], u
    return targets_among(pairs)


def measure_following(runs: list[RawRun], spec: StateSpec, joints: list[str], *, averaged: bool) -> Following | None:
    """Measure the time after which joints follow their commands; None with too few frames."""
    rows = [spec.q_names.index(name) for name in joints]
    columns = [spec.controls.index(name) for name in joints]
    pieces, count = [], 0
    for run in runs:
        grid = frame_times(run, spec.dt, delay=0.0, averaged=averaged, margin=_LATEST + spec.dt)
        if grid is None or count > _MOST_FRAMES or len(grid) < 2 * _BLOCK:
            continue
        q = states(run, spec, grid, averaged=averaged, past=False)[0][:-1, rows]
        pieces.append((run, grid, q))
        count += len(q)
    if count < 4 * _BLOCK:
        return None
    q = np.concatenate([piece[2] for piece in pieces])
    scale, block = q.std(axis=0) + 1e-12, np.arange(len(q)) // _BLOCK

    def misfit(time: float) -> np.ndarray:
        # The mean control of a frame is that at its middle.
        moved = [mean_control(run, grid - time - 0.5 * spec.dt, spec.dt)[:, columns] for run, grid, _ in pieces]
        error = (q - np.concatenate(moved)) / scale
        return np.bincount(block, weights=((error - np.median(error, axis=0)) ** 2).sum(axis=1)) + 1e-9

    times = np.arange(_EARLIEST, _LATEST + 1e-9, max(_STEP, spec.dt))
    table = np.stack([misfit(time) for time in times])
    left = table.sum(axis=1) / q.size
    place = int(left.argmin())
    best, deviation = float(times[place]), _LATEST
    if 0 < place < len(times) - 1:
        step = float(times[1] - times[0])
        for _ in range(3):
            early, here, late = (misfit(best + move) for move in (-step, 0.0, step))
            slope, curvature = (late - early) / (2 * step), float((early - 2 * here + late).mean()) / step**2
            if curvature <= 0.0:
                break
            best -= float(np.clip(slope.mean() / curvature, -step, step))
            deviation = float(slope.std()) / math.sqrt(len(slope)) / curvature
            step *= 0.5
    none = np.log(misfit(0.0))
    return Following(best, deviation, times, left, np.log(table) - none)


def delay_of(time: Following, expected: float | None) -> tuple[float, float]:
    """Return the delay that a time to follow leaves beside a servo's own, and its standard error [s].

    Without known gains the delay is anything up to the whole time.
    """
    if expected is None:
        return 0.5 * time.time, math.hypot(time.deviation, 0.5 * abs(time.time))
    return time.time - expected, math.hypot(math.hypot(time.deviation, _GAIN_SHARE * expected), _FRICTION)

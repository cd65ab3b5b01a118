# SPDX-License-Identifier: Apache-2.0
"""Delays in a log: of motion after controls, and of velocities after the slopes of positions."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from neurodyn.core.config import Config
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.spec import StateSpec
from neurodyn.data.commands import servo_time
from neurodyn.data.header import Delay
from neurodyn.data.readers.following import Following, delay_of, measure_following, targets
from neurodyn.data.readers.raw import RawRun
from neurodyn.data.readers.resample import frame_times, mean_control, states
from neurodyn.data.smoothing import smooth, smoothing_window

_MOST = 0.1
"""Longest delay searched [s]."""

_ROWS = 20_000
_BETTER = 0.9
_FINEST_VELOCITY = 5e-5


def velocity_delay(runs: list[RawRun]) -> float | None:
    """Return the delay d [s] at which velocities best fit the motion in least squares: qd(t) = q'(t - d).

    Zero if the best delay leaves more than nine tenths of the misfit. None if velocities share the positions' clock,
    are not logged, or have other coordinates than positions (quaternions).
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
    best = refine_minimum(misfit, float(best), step, _FINEST_VELOCITY)
    return best if misfit(best) < _BETTER * misfit(0.0) else 0.0


def refine_minimum(misfit, start: float, step: float, finest: float) -> float:  # noqa: ANN001
    """Return the minimiser of a smooth function near a grid point, by step halving and a final parabola."""
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


_SHIFTS = range(-3, 7)
"""Candidate delays, in steps of the log."""

_FARTHER = (8, 10, 12, 15, 18, 22, 27, 33, 40, 50, 60, 75, 100)
_FARTHEST = 0.1
"""Longest candidate delay [s]."""

_FINEST = 1e-4
"""Resolution to which a delay between candidates is refined [s]."""

_FEWEST = 5
"""Fewest frames of the window that states, controls and changes of velocities are smoothed with, all alike: what is
linear stays true, and noise of the sensors no longer outweighs the motion."""

_FOLDS = 5
_BLOCK = 50
_MOST_FRAMES = 30_000
_MOST_FEATURES = 400
_RIDGE = 1e-3
_CLIP = 4.0
_SIGNIFICANT = 3.0
_LEAST_GAIN = 5e-3
_FRAME_SHARE, _DELAY_SHARE = 0.05, 0.15
"""Systematic error of a delay, as shares of a frame and of the delay: a motor's lag counts for less than its length."""

_AS_IT_IS = 0.8
"""Share of what commands explain that they explain without a delay, from which on no other clock is suspected."""

Doubt = Literal["", "unmeasured", "flat", "negative", "end", "senseless", "rough"]
"""Why a measured delay is not to be used; empty if it is. "senseless": the commands explain nothing of the motion;
"rough": a plain regression does not predict it, which says nothing about the commands (impacts, short logs)."""


class Alignment(Config, frozen=True):
    """Measured delay from logged control to motion.

    Attributes:
        delays: Candidates [s]: multiples of the log's median step, and the best delay if it lies between two.
        r2: Held-out coefficient of determination of each candidate, mean over groups of runs.
        error: Held-out error of each candidate relative to no delay, geometric mean over blocks of frames.
        groups: Relative error by group of runs.
        best: Delay with the smallest error [s].
        chosen: Applied delay [s]: the declared one, or 0.
        significance: Mean log gain of the best candidate over no delay, in standard errors over blocks.
        reason: What was measured, in words.
        deviation: Standard error of `best` [s]; None if it was not measured.
        doubt: Why `best` is not to be used.
        followed: Time after which joints follow their commands [s], to which `delays` then refer; None for commands
            that they do not follow.
    """

    delays: tuple[float, ...]
    r2: tuple[float, ...]
    error: tuple[float, ...]
    groups: dict[str, tuple[float, ...]]
    best: float
    chosen: float
    significance: float
    reason: str
    deviation: float | None = None
    doubt: Doubt = ""
    followed: float | None = None

    @property
    def delay(self) -> Delay:
        """The delay as a header keeps it."""
        return Delay(
            seconds=self.best, error=self.deviation, applied=self.chosen, usable=not self.doubt, reason=self.reason
        )


def measure(
    runs: list[RawRun], spec: StateSpec, *, averaged: bool, declared: float | None,
    drives: Mapping[str, Drive] = MappingProxyType({}),
) -> Alignment:  # fmt: skip
    """Measure the delay that fits best; a `declared` delay [s] is noted as the one that is applied.

    Commands that joints follow, as servos do, are measured by the time after which they do (`following`), less that
    which the servos take by the gains of their `drives`. Runs slower than the frame rate carry little information on
    delays shorter than their step; they are left out if there are faster ones.
    """
    if spec.nu and runs[0].control.size and (joints := targets(runs, spec)):
        followed = measure_following(runs, spec, joints, averaged=averaged)
        if followed is not None:
            return _of_following(followed, servo_time(drives, joints), declared)
    chosen_runs = [run for run in runs if np.median(np.diff(run.time)) <= spec.dt * (1 + 1e-6)] or runs
    every = [np.concatenate([np.diff(run.clocks[name]) for run in chosen_runs]) for name in ("q", "control")]
    step = min(float(np.median(steps)) for steps in every if len(steps))
    by_group: dict[str, list[RawRun]] = {}
    for run in chosen_runs:
        by_group.setdefault(run.group, []).append(run)
    delays = tuple(step * shift for shift in _SHIFTS)
    compared = _Compared(by_group if spec.nu and chosen_runs[0].control.size else {}, spec, delays, averaged)
    if not compared.problems:
        reason = "not measured: " + ("the robot has no control" if not spec.nu else "too few frames, or no control")
        return Alignment(
            delays=(), r2=(), error=(), groups={}, best=0.0, chosen=declared or 0.0, significance=0.0, reason=reason,
            doubt="unmeasured",
        )  # fmt: skip
    best = compared.best(delays)
    if best == delays[-1]:
        farther = tuple(step * shift for shift in _FARTHER if step * shift <= _FARTHEST)
        wider = _Compared(by_group, spec, (*delays, *farther), averaged)
        if farther and wider.problems:
            compared, delays = wider, (*delays, *farther)
            best = compared.best(delays)
            # Multiples of the step around the best candidate so far.
            between = [step * n for n in range(round(best / step) - 15, round(best / step) + 16)]
            near = [d for d in between if delays[-len(farther) - 1] < d < delays[-1] and d not in delays]
            best = compared.best((best, *near))
            delays = tuple(sorted({*delays, best}))
    table, at_end = delays, best in (delays[0], delays[-1])
    if not at_end:
        best = refine_minimum(compared.mean, best, step, _FINEST)
        delays = tuple(sorted({*delays, best}))
    deviation = compared.deviation(best, 0.25 * min(step, spec.dt))
    if step > spec.dt * (1 + 1e-6):  # between the rows of a slower log, interpolation says what moved when
        deviation = math.hypot(deviation, step / math.sqrt(12.0))
    significance, clear = _gain(compared.error(best))
    r2 = {delay: compared.r2(delay) for delay in delays}
    ends = [compared.error(best) - compared.error(end) for end in (table[0], table[-1])]
    gains = compared.gain_of_commands(best), compared.gain_of_commands(0.0)
    doubt = _doubt(best, r2[best], deviation, gains, at_end=at_end, told=all(_gain(one)[1] for one in ends))
    return Alignment(
        delays=delays,
        r2=tuple(r2.values()),
        error=tuple(float(np.exp(compared.error(delay).mean())) for delay in delays),
        groups={
            name or "all": tuple(float(np.exp(compared.relative(name, delay).mean())) for delay in delays)
            for name in compared.problems
        },
        best=best,
        chosen=declared or 0.0,
        significance=significance,
        reason=_reason(best, deviation, doubt, significance if clear else 0.0, declared),
        deviation=deviation,
        doubt=doubt,
    )


def _of_following(followed: Following, expected: float | None, declared: float | None) -> Alignment:
    """Return the delay of commands that joints follow; `expected` is the servos' own time to follow [s]."""
    delay, deviation = delay_of(followed, expected)
    significance, _ = _gain(followed.blocks[followed.left.argmin()])
    at_end = followed.left.argmin() in (0, len(followed.times) - 1)
    doubt: Doubt = "end" if at_end else "unmeasured" if expected is None else ""
    if min(delay + _SIGNIFICANT * deviation, followed.time) < 0.0 and not at_end:
        doubt = "negative"
    whole = f"{1e3 * followed.time:.3g} ms"
    told = _DOUBTS[doubt].format(f"{1e3 * delay:.3g} ms") if doubt in _DOUBTS else f"positions follow after {whole}"
    if doubt == "unmeasured":
        told += "; how much of it is delay, the servos' gains would tell"
    elif expected is not None and not doubt:
        told += (
            f", of which the servos' gains explain {1e3 * expected:.3g}: {1e3 * delay:.3g} +- {1e3 * deviation:.2g} ms"
        )
    return Alignment(
        delays=tuple(followed.times.tolist()), r2=tuple((1.0 - followed.left).tolist()),
        error=tuple(np.exp(followed.blocks.mean(axis=1)).tolist()), groups={}, best=delay, chosen=declared or 0.0,
        significance=significance, reason=f"{'measured' if declared is None else 'declared; measured'}: {told}",
        deviation=deviation, doubt=doubt, followed=followed.time,
    )  # fmt: skip


def _doubt(best: float, r2: float, deviation: float, gains: tuple[float, float], *, at_end: bool, told: bool) -> Doubt:
    """Return why a delay is not to be used.

    Args:
        best: The delay [s].
        r2: Held-out coefficient of determination there.
        deviation: Its standard error [s].
        gains: By how much commands lower the log error, with this delay and with none.
        at_end: Whether it is at an end of the table.
        told: Whether it is significantly better than both ends.
    """
    if r2 <= 0.0:
        return "rough"
    if gains[0] <= 0.0:
        return "senseless"
    negative = best < -_SIGNIFICANT * deviation
    if (at_end or negative or not told) and gains[1] > _AS_IT_IS * gains[0]:
        return "flat"
    return "end" if at_end else "flat" if not told else "negative" if negative else ""


_DOUBTS: dict[str, str] = {
    "senseless": "the commands explain nothing of the motion, at any delay",
    "rough": "no delay explains the motion (held-out R^2 is not above 0)",
    "end": "the best delay, {}, is the last one of the table",
    "flat": "all delays explain the motion about equally well",
    "negative": "the best delay, {}, would have motion before its commands",
}


def _reason(best: float, deviation: float, doubt: Doubt, significance: float, declared: float | None) -> str:
    size = f"{1e3 * best:.3g} ms"
    over = f", {significance:.1f} standard errors better than none" if significance else ""
    told = _DOUBTS[doubt].format(size) if doubt else f"{size} +- {1e3 * deviation:.2g} ms{over}"
    return f"measured: {told}" if declared is None else f"declared; measured: {told}"


class _Compared:
    """Errors of delays by group of runs with enough frames, computed on demand."""

    def __init__(
        self, by_group: dict[str, list[RawRun]], spec: StateSpec, delays: tuple[float, ...], averaged: bool
    ) -> None:
        margin = max(abs(delay) for delay in delays) + spec.dt
        made = {name: _Regression.of(runs, spec, margin, averaged) for name, runs in by_group.items()}
        self.problems = {name: problem for name, problem in made.items() if problem is not None}
        self._errors: dict[tuple[str, float], np.ndarray] = {}
        self._dt = spec.dt

    def error(self, delay: float) -> np.ndarray:
        """Return the log error relative to no delay, by block, shape [blocks]."""
        return np.concatenate([self.relative(name, delay) for name in self.problems])

    def r2(self, delay: float) -> float:
        """Return the held-out coefficient of determination, mean over groups."""
        left = [self._error(name, delay).sum() / problem.total for name, problem in self.problems.items()]
        return float(1 - np.mean(left))

    def gain_of_commands(self, delay: float) -> float:
        """Return by how much smaller the log error is than without commands, mean over blocks."""
        pairs = [(self._error(name, delay), problem.errors(None)) for name, problem in self.problems.items()]
        return float(np.concatenate([np.log(without + 1e-300) - np.log(own + 1e-300) for own, without in pairs]).mean())

    def best(self, delays: Iterable[float]) -> float:
        return min(delays, key=self.mean)

    def mean(self, delay: float) -> float:
        """Return the log error relative to no delay, mean over blocks."""
        return float(self.error(delay).mean())

    def deviation(self, delay: float, step: float) -> float:
        """Return the standard error of the best delay [s]: of its slope's zero over blocks, and a systematic part.

        `step` [s] is that of the differences.
        """
        left, middle, right = (self.error(delay + move) for move in (-step, 0.0, step))
        slope, curvature = (right - left) / (2 * step), float((left - 2 * middle + right).mean()) / step**2
        random = float(slope.std()) / math.sqrt(len(slope)) / curvature if curvature > 0.0 else _FARTHEST
        return math.hypot(min(random, _FARTHEST), _FRAME_SHARE * self._dt, _DELAY_SHARE * delay)

    def relative(self, name: str, delay: float) -> np.ndarray:
        """Return a group's log error relative to no delay, by block, shape [blocks]."""
        floor = 1e-9 * self.problems[name].total / self.problems[name].blocks
        return np.log(self._error(name, delay) + floor) - np.log(self._error(name, 0.0) + floor)

    def _error(self, name: str, delay: float) -> np.ndarray:
        if (name, delay) not in self._errors:
            self._errors[name, delay] = self.problems[name].errors(delay)
        return self._errors[name, delay]


def _gain(error: np.ndarray) -> tuple[float, bool]:
    """Return the gain (negative log error) in standard errors over blocks, and whether it is significant."""
    gain = -error
    significance = float(gain.mean() / (gain.std() / math.sqrt(len(gain)) + 1e-12))
    return significance, bool(significance >= _SIGNIFICANT and gain.mean() >= _LEAST_GAIN)


@dataclass(frozen=True)
class _Regression:
    """Regression of velocity changes over frames on state and control.

    Each run comes with its frame times [s]. `base` holds each run's state features, shape [frames, features],
    `smoothed` those of all runs, smoothed, `target` the smoothed and scaled velocity changes, shape [frames,
    velocities], and `total` their squared deviation.
    """

    spec: StateSpec
    runs: list[tuple[RawRun, np.ndarray]]
    base: list[np.ndarray]
    smoothed: np.ndarray
    target: np.ndarray
    total: float

    @classmethod
    def of(cls, runs: list[RawRun], spec: StateSpec, margin: float, averaged: bool) -> "_Regression | None":
        """Return the regression for a group of runs; None with too few frames or a constant control."""
        used, features, targets, frames, moves = [], [], [], 0, False
        window = smoothing_window(spec.dt, _FEWEST)
        for run in runs:
            grid = frame_times(run, spec.dt, delay=0.0, averaged=averaged, margin=margin)
            if grid is None or frames > _MOST_FRAMES:
                continue
            grid = grid[: _MOST_FRAMES + 2]
            q, qd = states(run, spec, grid, averaged=averaged, past=False)
            used.append((run, grid))
            features.append(_state_features(q[:-1], qd[:-1], spec))
            targets.append(smooth(np.diff(qd, axis=0), window))
            frames += len(targets[-1])
            moves = moves or bool(np.ptp(run.control))
        if frames < 4 * _BLOCK or not moves:
            return None
        target = np.concatenate(targets)
        scale = target.std(axis=0)
        target = target[:, scale > 0] / scale[scale > 0]
        if not target.shape[1]:
            return None
        smoothed = np.concatenate([smooth(base, window) for base in features])
        return cls(spec, used, features, smoothed, target, float(((target - target.mean(axis=0)) ** 2).sum()))

    @property
    def blocks(self) -> int:
        return -(-len(self.target) // _BLOCK)

    def errors(self, delay: float | None) -> np.ndarray:
        """Return each block's held-out squared error for a delay [s], or without controls, shape [blocks]."""
        parts, window = [], smoothing_window(self.spec.dt, _FEWEST)
        for (run, grid), base in zip(self.runs, self.base, strict=True) if delay is not None else ():
            control = mean_control(run, grid - delay, self.spec.dt)
            parts.append(smooth(_control_features(control, base[:, 1:]), window))
        features = np.concatenate((self.smoothed, np.concatenate(parts)), axis=1) if parts else self.smoothed
        block = np.arange(len(self.target)) // _BLOCK
        return np.bincount(block, weights=_held_out_errors(features, self.target, block % _FOLDS))


def _held_out_errors(features: np.ndarray, target: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Return each row's squared error under a ridge regression on the other folds, shape [rows]."""
    mean, scale = features.mean(axis=0), features.std(axis=0)
    x = np.where(scale > 0, (features - mean) / np.where(scale > 0, scale, 1.0), 0.0).clip(-_CLIP, _CLIP)
    x[:, 0] = 1.0
    gram = [x[fold == k].T @ x[fold == k] for k in range(_FOLDS)]
    moment = [x[fold == k].T @ target[fold == k] for k in range(_FOLDS)]
    squared = np.empty(len(x))
    for k in range(_FOLDS):
        rows = fold == k
        left = sum(gram) - gram[k] + _RIDGE * len(x) * np.eye(x.shape[1])
        weights = np.linalg.solve(left, sum(moment) - moment[k])
        squared[rows] = ((target[rows] - x[rows] @ weights) ** 2).sum(axis=1)
    return squared


def _state_features(q: np.ndarray, qd: np.ndarray, spec: StateSpec) -> np.ndarray:
    """Return 1, sines and cosines of angles (single and summed along the chain), velocities, signs and products."""
    revolute = [spec.q_names.index(joint.name) for joint in spec.joints if joint.kind == "revolute"]
    other = [index for index in range(q.shape[1]) if index not in revolute]
    angle = q[:, revolute]
    if len(revolute) > 1:
        angle = np.concatenate((angle, np.cumsum(angle, axis=1)[:, 1:]), axis=1)
    shape = np.concatenate((np.sin(angle), np.cos(angle), q[:, other]), axis=1)
    typical = 0.1 * qd.std(axis=0) + 1e-9
    motion = np.concatenate((qd, np.tanh(qd / typical)), axis=1)
    plain = np.concatenate((np.ones((len(q), 1)), shape, motion), axis=1)
    rows, cols = np.triu_indices(qd.shape[1])
    products = qd[:, rows] * qd[:, cols]
    wanted = products.shape[1] * shape.shape[1]
    if wanted > _MOST_FEATURES:
        return plain
    return np.concatenate((plain, (products[:, :, None] * shape[:, None, :]).reshape(len(q), wanted)), axis=1)


def _control_features(control: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Return the control and its products with the first state features (inertia depends on the pose)."""
    few = state[:, : max(1, _MOST_FEATURES // (8 * control.shape[1]))][:, :8]
    products = (control[:, :, None] * few[:, None, :]).reshape(len(control), -1)
    return np.concatenate((control, products), axis=1)

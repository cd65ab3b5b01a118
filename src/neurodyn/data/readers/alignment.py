# SPDX-License-Identifier: Apache-2.0
"""Measuring the delay between a logged control and the motion that it causes.

For each candidate delay, the change of velocity over a frame is regressed on generic features of the state and on the
control of that frame, shifted by the candidate; the best candidate has the least held-out error. Candidates are
compared by the geometric mean of the error over short blocks of frames, which a few blocks with impacts or glitches do
not decide. Nothing about the robot is assumed but the kinds of its joints.
"""

import math

import numpy as np

from neurodyn.core.config import Config
from neurodyn.core.spec import StateSpec
from neurodyn.data.readers.raw import RawRun
from neurodyn.data.readers.resample import resample

SHIFTS = range(-3, 7)
_FOLDS = 5
_BLOCK = 50
_MOST_FRAMES = 30_000
_MOST_FEATURES = 400
_RIDGE = 1e-3
_CLIP = 4.0
_SIGNIFICANT = 3.0
_LEAST_GAIN = 5e-3


class Alignment(Config, frozen=True):
    """Measured delays from logged control to motion.

    Attributes:
        delays: Candidates [s]: multiples of the log's median step.
        r2: Held-out coefficient of determination of each candidate, mean over groups of runs.
        error: Held-out error of each candidate relative to no delay, geometric mean over blocks of frames.
        groups: The relative error by group of runs.
        best: Candidate of the least error [s].
        chosen: Delay that is applied [s].
        significance: Mean logarithmic gain of the best candidate over no delay, in standard errors over blocks.
        reason: Why `chosen` was chosen, in words.
    """

    delays: tuple[float, ...]
    r2: tuple[float, ...]
    error: tuple[float, ...]
    groups: dict[str, tuple[float, ...]]
    best: float
    chosen: float
    significance: float
    reason: str


def measure(runs: list[RawRun], spec: StateSpec, *, averaged: bool, declared: float | None) -> Alignment:
    """Measure which delay fits best.

    Runs slower than the frames say little about a delay shorter than their step, and are left out where there
    are faster ones.

    Args:
        runs: Runs without gaps.
        spec: Coordinates and dt of the robot.
        averaged: Whether velocities are averaged over the frame, see `resample`.
        declared: Delay that the column map declares [s], which is then applied; None to apply the best one.
    """
    chosen_runs = [run for run in runs if np.median(np.diff(run.time)) <= spec.dt * (1 + 1e-6)] or runs
    step = float(np.median(np.concatenate([np.diff(run.time) for run in chosen_runs])))
    delays = tuple(step * shift for shift in SHIFTS)
    margin = max(abs(delay) for delay in delays) + spec.dt
    by_group: dict[str, list[RawRun]] = {}
    for run in chosen_runs:
        by_group.setdefault(run.group, []).append(run)
    measured = by_group if spec.nu else {}
    candidates = {name: _residuals(group, spec, delays, margin, averaged) for name, group in measured.items()}
    results = {name: result for name, result in candidates.items() if result is not None}
    if not results:
        reason = "not measured: " + ("the robot has no control" if not spec.nu else "too few frames, or no control")
        applied = declared or 0.0
        return Alignment(
            delays=(), r2=(), error=(), groups={}, best=applied, chosen=applied, significance=0.0, reason=reason
        )
    zero = list(SHIFTS).index(0)
    by_block = {name: _relative(errors, total, zero) for name, (errors, total) in results.items()}
    error = np.concatenate(list(by_block.values()))
    best = int(np.argmin(error.mean(axis=0)))
    gain = -error[:, best]
    significance = float(gain.mean() / (gain.std() / math.sqrt(len(gain)) + 1e-12))
    clear = significance >= _SIGNIFICANT and gain.mean() >= _LEAST_GAIN
    chosen, reason = _choose(delays[best], clear, significance, declared)
    return Alignment(
        delays=delays,
        r2=_floats(1 - np.mean([errors.sum(axis=0) / total for errors, total in results.values()], axis=0)),
        error=_floats(np.exp(error.mean(axis=0))),
        groups={name or "all": _floats(np.exp(errors.mean(axis=0))) for name, errors in by_block.items()},
        best=delays[best],
        chosen=chosen,
        significance=significance,
        reason=reason,
    )


def _relative(errors: np.ndarray, total: float, zero: int) -> np.ndarray:
    """Logarithm of the error of each block and delay over that without delay."""
    floor = 1e-9 * total / len(errors)
    logarithm = np.log(errors + floor)
    return logarithm - logarithm[:, zero : zero + 1]


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _choose(best: float, clear: bool, significance: float, declared: float | None) -> tuple[float, str]:
    measured = f"{1e3 * best:.3g} ms fits best ({significance:.1f} standard errors over none)"
    if declared is not None:
        return declared, f"declared; measured: {measured}"
    if best == 0.0:
        return 0.0, "measured: no delay fits best"
    if clear:
        return best, f"measured: {measured}"
    return 0.0, f"measured: {measured}, which is not significant; none is applied"


def _residuals(
    runs: list[RawRun], spec: StateSpec, delays: tuple[float, ...], margin: float, averaged: bool
) -> tuple[np.ndarray, float] | None:
    """Return held-out squared errors by block and delay [blocks, delays], and the total squared deviation."""
    columns: list[list[np.ndarray]] = [[] for _ in delays]
    states, targets, frames = [], [], 0
    for run in runs:
        shifted = [resample(run, spec, delay=d, averaged=averaged, margin=margin) for d in delays]
        if any(s is None for s in shifted) or frames > _MOST_FRAMES:
            continue
        pieces = [s for s in shifted if s is not None]
        states.append(_state_features(pieces[0].q[:-1], pieces[0].qd[:-1], spec))
        targets.append(np.diff(pieces[0].qd, axis=0))
        frames += len(targets[-1])
        for column, piece in zip(columns, pieces, strict=True):
            column.append(piece.control)
    if frames < 4 * _BLOCK or not any(np.ptp(u) for u in columns[0]):
        return None
    base, target = np.concatenate(states), np.concatenate(targets)
    scale = target.std(axis=0)
    target = target[:, scale > 0] / scale[scale > 0]
    if not target.shape[1]:
        return None
    block = np.arange(len(target)) // _BLOCK
    errors = []
    for column in columns:
        control = np.concatenate(column)
        features = np.concatenate((base, _control_features(control, base[:, 1:])), axis=1)
        squared = _held_out(features, target, block % _FOLDS)
        errors.append(np.bincount(block, weights=squared))
    return np.stack(errors, axis=1), float(((target - target.mean(axis=0)) ** 2).sum())


def _held_out(features: np.ndarray, target: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Squared error of each row under a ridge regression on the other folds; shape [rows]."""
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
    """A one, angles as sine and cosine (single and added up along the chain), velocities, signs, products."""
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
    """The control, and its products with the first features of the state (an inertia depends on the shape)."""
    few = state[:, : max(1, _MOST_FEATURES // (8 * control.shape[1]))][:, :8]
    products = (control[:, :, None] * few[:, None, :]).reshape(len(control), -1)
    return np.concatenate((control, products), axis=1)

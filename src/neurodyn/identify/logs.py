# SPDX-License-Identifier: Apache-2.0
"""The check of the logs of an identification before the fit: rates, noise, saturation, joints that move too little."""

from itertools import pairwise

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.identify.fit.readings import estimate_noise
from neurodyn.identify.result import JointLog, LogCheck
from neurodyn.robots import Robot

_WINDOW, _MOST = 20, 500
_SATURATED, _REPEATED, _STILL, _LARGEST = 0.3, 0.05, 2.0, 0.98
"""Thresholds of warnings: shares of saturated and of repeated frames, motion of a joint in units of its noise; and the
share of the largest command that counts as saturated."""
_SLOWEST = 5
"""Most frames in a row that a slow reading repeats."""
_SLOPES = (0.8, 1.25)
_SHORT = 0.25
"""Length below which a log is called short [min]."""


def check_log(robot: Robot, store: Store) -> LogCheck:
    """Check the logs of a robot.

    Raises:
        InputError: Nothing moves, or no episode is as long as a window.
    """
    spec = store.header.spec
    windows = select_windows(store, Split.TRAIN, min(_WINDOW, int(store.lengths.max())), most=_MOST)
    noise = estimate_noise(spec, windows)
    counts = tuple(
        len(episodes_of(store, split)) if split is not Split.TEST else len(store.episodes(split))
        for split in (Split.TRAIN, Split.VALIDATION, Split.TEST)
    )
    joints = [
        _joint(robot, windows, joint.name, float(noise.q[spec.tangent_names.index(joint.name)]))
        for joint in spec.joints
        if joint.scalar
    ]
    minutes = float(store.lengths.sum()) * spec.dt / 60.0
    check = LogCheck(
        rate=1.0 / spec.dt, minutes=minutes, episodes=(counts[0], counts[1], counts[2]), control=spec.control_kind,
        repeated=repeated_in_motion(windows.q.numpy()), joints=joints, warnings=[],
    )  # fmt: skip
    if joints and all(joint.motion < _STILL * joint.noise for joint in joints):
        raise InputError(
            f"log of {spec.robot!r}: no joint moves by more than its noise; valid: a log in which the robot moves, "
            "with its rows in order"
        )
    check.warnings.extend(_warnings(check))
    return check


def repeated_in_motion(q: np.ndarray) -> float:
    """Return the share of frames in motion that repeat the one before, from windows of positions [W, T, nq].

    A reading that stands between two steps of motion is slower than the rate. One of a robot at rest is not, nor is one
    of an encoder whose smallest step is larger than the motion of a frame.
    """
    change = np.abs(np.diff(q, axis=1))
    steps = [column[column > 0.0].min(initial=np.inf) for column in change.reshape(-1, q.shape[-1]).T]
    moved, stood = np.asarray((change > 1.5 * np.array(steps)).any(-1)), np.asarray((change == 0.0).all(-1))
    repeated = 0
    for moving, standing in zip(moved, stood, strict=True):
        ends = np.flatnonzero(moving)
        for first, last in pairwise(ends.tolist()):
            between = last - first - 1
            if 0 < between <= _SLOWEST and standing[first + 1 : last].all():
                repeated += between
    return repeated / max(1, repeated + int(moved.sum()))


def _joint(robot: Robot, windows: Windows, name: str, noise: float) -> JointLog:
    spec = robot.spec
    row, dof = spec.q_names.index(name), spec.qd_names.index(name)
    q, qd = windows.q[..., row], windows.qd[..., dof]
    change = q[:, 1:] - q[:, :-1]
    change = wrap_angle(change) if spec.continuous[row] else change
    middle, rate = 0.5 * (qd[:, 1:] + qd[:, :-1]), change / spec.dt
    power = float(middle.square().sum())
    slope = float((rate * middle).sum()) / power if power > 0 else None
    saturated = 0.0
    if name in spec.controls:
        command = windows.control[..., spec.controls.index(name)].abs()
        most = float(command.max())
        saturated = float((command >= _LARGEST * most).double().mean()) if most > 0 else 0.0
    span = float(np.ptp(q.numpy()))
    motion = float((q - q.mean(1, keepdim=True)).square().mean().sqrt())
    return JointLog(name, span, motion, float(qd.square().mean().sqrt()), noise, saturated, slope)


def _warnings(log: LogCheck) -> list[str]:
    warnings = []
    if log.minutes < _SHORT:
        warnings.append(f"only {60 * log.minutes:.0f} s long: intervals will be wide")
    if log.repeated > _REPEATED:
        warnings.append(f"{log.repeated:.0%} of the frames repeat the one before: readings are slower than the rate")
    for joint in log.joints:
        if joint.motion < _STILL * joint.noise:
            warnings.append(f"{joint.name} hardly moves ({joint.motion:.2g}): nothing can be said of it")
        if joint.saturated > _SATURATED:
            warnings.append(f"{joint.name} has its largest command in {joint.saturated:.0%} of the frames")
        if joint.slope is not None and joint.speed > 0 and not _SLOPES[0] < joint.slope < _SLOPES[1]:
            warnings.append(
                f"{joint.name}: positions change {joint.slope:.2f} times as fast as the logged velocity says "
                "(units, or a filter?)"
            )
    return warnings

# SPDX-License-Identifier: Apache-2.0
r"""The logs of an identification: their check before the fit, and the next motion to log.

The check is of rates, noise, saturation, and joints that move too little. The next motion is the one whose log would
most reduce the remaining uncertainty.

Candidates are sums of sines within the limits of commands, played in the fitted model. With the information H of the
logs (priors included) and that of a candidate C, the best has the largest gain (D-optimality)

$$\log\det(H + C) - \log\det H$$
"""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.artifacts import write_text
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.identify.quantities import effort
from neurodyn.identify.readings import estimate_noise
from neurodyn.identify.result import JointLog, LogCheck, NextMotion
from neurodyn.identify.stages import Fitting
from neurodyn.robots import Robot
from neurodyn.robots.plausible import declared_bounds

_WINDOW, _MOST = 20, 500
_SATURATED, _REPEATED, _STILL, _LARGEST = 0.3, 0.05, 2.0, 0.98
"""Thresholds of warnings: shares of saturated and of repeated frames, motion of a joint in units of its noise; and the
share of the largest command that counts as saturated."""
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
    still = ((windows.q[:, 1:] == windows.q[:, :-1]).all(-1)).double().mean()
    minutes = float(store.lengths.sum()) * spec.dt / 60.0
    check = LogCheck(
        rate=1.0 / spec.dt, minutes=minutes, episodes=(counts[0], counts[1], counts[2]), control=spec.control_kind,
        repeated=float(still), joints=joints, warnings=[],
    )  # fmt: skip
    if joints and all(joint.motion < _STILL * joint.noise for joint in joints):
        raise InputError(
            f"log of {spec.robot!r}: no joint moves by more than its noise; valid: a log in which the robot moves"
        )
    check.warnings.extend(_warnings(check))
    return check


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


_AMPLITUDES = (0.15, 0.3, 0.6)
_SINES, _SLOW, _FAST = 4, 0.3, 3.0
_PIECE = 0.25
"""Length of the windows of a motion [s]: beyond it, contacts make derivatives meaningless."""
_FLAT = 0.5
"""Cosine of the tilt beyond which a floating robot counts as fallen."""
_NAMED = 6
FILE = "next-motion.csv"


@torch.no_grad()
def next_motion(fitting: Fitting, x: Tensor, information: Tensor, out: Path) -> NextMotion | None:
    """Choose the next motion, and write its commands to a folder.

    Args:
        fitting: The fit, with its dynamics at the fitted values.
        x: Fitted coordinates, shape [n].
        information: Information of the logs on them, without priors, shape [n, n].
        out: The folder.

    Returns:
        The motion; None if no candidate stays within limits.
    """
    settings, robot, dynamics = fitting.settings, fitting.model.robot, fitting.dynamics
    frames = max(4, round(settings.proposal_seconds / robot.spec.dt))
    rng = generator(settings.seed, "next motion")
    information = information + torch.eye(len(x), dtype=torch.float64)
    start = _start(fitting)
    best: tuple[float, Tensor, float, Tensor] | None = None
    for number in range(settings.proposals):
        amplitude = _AMPLITUDES[number % len(_AMPLITUDES)]
        commands = sines(robot, fitting.model.mechanism, frames, amplitude, rng)
        path = dynamics.simulate(
            start, commands[None], dynamics.physical().detach(), dynamics.weights.detach(),
            fitting.environments.at(None),
        )  # fmt: skip
        if not _within(robot, path.q[0], path.qd[0]):
            continue
        gained = _information(fitting, _pieces(fitting, path.q[0], path.qd[0], commands), x)
        gain = float(torch.logdet(information + gained) - torch.logdet(information))
        if best is None or gain > best[0]:
            best = gain, commands, amplitude, gained
    if best is None:
        return None
    _, commands, amplitude, gained = best
    write_text(out / FILE, _table(robot, commands))
    before, after = (torch.linalg.inv(h).diagonal().clamp_min(0.0).sqrt() for h in (information, information + gained))
    names = fitting.space.names
    order = (before - after).argsort(descending=True)[:_NAMED].tolist()
    return NextMotion(
        FILE, frames * robot.spec.dt, amplitude, {names[k]: (float(before[k]), float(after[k])) for k in order}
    )


def sines(robot: Robot, mechanism: Mechanism, frames: int, amplitude: float, rng: np.random.Generator) -> Tensor:
    """Return commands of sums of sines, shape [T, nu]: torques, or targets around the nominal pose."""
    spec = robot.spec
    t = torch.arange(frames, dtype=torch.float64) * spec.dt
    columns = []
    for name, nominal in zip(spec.controls, robot.nominal_q(), strict=True):
        if spec.control_kind == "command":
            low, high = robot.sampling_interval("control", name)
            middle, size = nominal, max(0.0, min(high - nominal, nominal - low)) or 0.5 * (high - low)
            middle = min(max(middle, low + size), high - size)
        else:
            middle, size = _joint_wave(robot, mechanism, name, targets=spec.control_kind == "target")
        rates = np.exp(rng.uniform(math.log(_SLOW), math.log(_FAST), _SINES))
        phases, shares = rng.uniform(0, 2 * math.pi, _SINES), rng.dirichlet(np.ones(_SINES))
        wave = sum(s * torch.sin(2 * math.pi * f * t + p) for s, f, p in zip(shares, rates, phases, strict=True))
        columns.append(middle + amplitude * size * torch.as_tensor(wave))
    return torch.stack(columns, -1) if columns else torch.zeros(frames, 0, dtype=torch.float64)


def _joint_wave(robot: Robot, mechanism: Mechanism, name: str, *, targets: bool) -> tuple[float, float]:
    """Return centre and greatest amplitude of a joint's torques or targets."""
    index = mechanism.names.index(name)
    if not targets:
        return 0.0, effort(robot, mechanism, index)
    link = mechanism.links[index]
    low, high = (-math.pi if link.lower is None else link.lower), math.pi if link.upper is None else link.upper
    middle = float(robot.nominal.get(name, 0.5 * (low + high)))
    return middle, max(0.0, min(high - middle, middle - low))


def _start(fitting: Fitting) -> State:
    """Return the logged state with the least motion, which the robot can reach."""
    windows = fitting.windows(Split.TRAIN, fitting.settings.stages[0])
    row = int(windows.qd[:, 0].abs().sum(-1).argmin())
    return State(windows.q[row : row + 1, 0], windows.qd[row : row + 1, 0])


def _within(robot: Robot, q: Tensor, qd: Tensor) -> bool:
    """Return whether a path is plausible and the robot does not fall."""
    if bool(declared_bounds(robot).outside(q, qd).any()):
        return False
    if not robot.spec.floating:
        return True
    x, y = q[:, 3], q[:, 4]
    return bool((1.0 - 2.0 * (x * x + y * y) > _FLAT).all())


def _pieces(fitting: Fitting, q: Tensor, qd: Tensor, commands: Tensor) -> Windows:
    past, size = fitting.past, max(3, round(_PIECE / fitting.spec.dt))
    length = past + size
    starts = range(0, max(1, len(commands) - length + 1), size)
    rows = [slice(first, first + length + 1) for first in starts]
    controls = torch.stack([commands[first : first + length] for first in starts])
    windows = Windows(torch.stack([q[r] for r in rows]), torch.stack([qd[r] for r in rows]), controls)
    return windows.after(past)


def _information(fitting: Fitting, windows: Windows, x: Tensor) -> Tensor:
    """Return the information of windows on the coordinates, shape [n, n], without priors."""
    residuals = fitting.residuals(replace(windows, readings=None))
    return residuals.normal(residuals.start(x[None])).matrix[0].sum(0)


def _table(robot: Robot, commands: Tensor) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", *robot.spec.controls])
    for k, row in enumerate(commands.tolist()):
        writer.writerow([f"{k * robot.spec.dt:.6g}", *(f"{value:.6g}" for value in row)])
    return text.getvalue()

# SPDX-License-Identifier: Apache-2.0
"""Plays the motion that an adaptation proposes on a user's robot, or in the identified model, and logs it."""

import csv
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.control.robot.in_loop import RobotDynamics, RobotLog, log_file
from neurodyn.core.errors import InputError
from neurodyn.core.registry import is_file
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.identification import finished_fit
from neurodyn.identify.run import open_adaptation
from neurodyn.robots import Robot

MODEL = "model"
"""Plays in the identified model."""
_NEAR = 0.1
"""Distance of a joint from the start of a motion beyond which it is not played [rad or m]."""
_SETTLE = 1.5
"""Time for which a model holds the first command before [s]."""


def read_motion(path: Path, robot: Robot) -> tuple[Tensor, float]:
    """Return the commands of a motion, shape [T, nu], and its frame time [s].

    Args:
        path: CSV with a column `time` [s], and one for each command of the robot.
        robot: The robot.

    Raises:
        InputError: The file is missing or malformed, or lacks a command.
    """
    values = read_columns(path, ["time", *robot.spec.controls])
    steps = torch.diff(values[:, 0])
    if not len(steps) or float(steps.min()) <= 0.0 or float(steps.max() - steps.min()) > 0.01 * float(steps.mean()):
        raise InputError(f"{path}: its times are not evenly spaced; valid: one row per frame")
    return values[:, 1:], float(steps.mean())


def read_columns(path: Path, names: Sequence[str]) -> Tensor:
    """Return columns of a CSV with a header, shape [rows, names]; an InputError names what is wrong."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
        values = torch.from_numpy(np.array(rows, float).reshape(len(rows), len(head)))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a motion ({error}); valid: a CSV of numbers with names") from None
    lacking = [name for name in names if name not in head]
    if lacking or not bool(values.isfinite().all()):
        what = f"lacks the column {lacking[0]!r}" if lacking else "has numbers that are not finite"
        raise InputError(f"{path}: {what}; valid: columns {', '.join(names)}")
    return values[:, [head.index(name) for name in names]]


def _scalar(robot: Robot) -> list[str]:
    return [joint.name for joint in robot.joints if joint.scalar]


def play_next_motion(run: Path, plant: str, out: Path | None = None) -> Path:
    """Play the motion that an adaptation proposes, once, and return its log, with a column map for `neurodyn import`.

    Args:
        run: Run directory of `neurodyn adapt`, with next-motion.csv.
        plant: FILE.py:CLASS (`RobotInterface`) for a robot, or "model" for the identified model.
        out: Folder for the log, which becomes robot.csv; None for a file named after the time.

    Raises:
        InputError: The run proposes no motion, the robot's class is invalid, or the robot is not where it begins.
    """
    problem, settings, figures = open_adaptation(run)
    if figures.next is UNSET or not figures.next.file:
        why = "none was asked for" if figures.next is UNSET else figures.next.why_not
        raise InputError(
            f"{run}: proposes no motion: {why}; valid: neurodyn next-motion {shlex.quote(str(run))} with other limits"
        )
    commands, dt = read_motion(run / figures.next.file, problem.robot)
    begin = read_columns(run / figures.next.expected, [f"q.{name}" for name in _scalar(problem.robot)])[0]
    follows = figures.next.kind == "target" and problem.robot.command == "torque"
    if plant == MODEL:
        if follows:
            raise InputError(f"{run}: the motion is followed by a controller, which the model lacks; valid: a robot")
        fitting, fit = finished_fit(problem, run, settings)
        return _in_model(fit.dynamics, fitting.model.robot, commands, begin, log_file(out))
    if not is_file(plant):
        raise InputError(f"robot is {plant!r}; valid: FILE.py:CLASS, or {MODEL} for the identified model")
    dynamics = RobotDynamics(msgspec.structs.replace(problem.robot, dt=dt), plant, log_file(out))
    try:
        if follows and dynamics.spec.control_kind != "target":
            raise InputError(f"{plant}: takes torques, and the motion is one of positions; valid: control = 'target'")
        _along(dynamics, commands, begin, plant)
        return dynamics.log
    finally:
        dynamics.close()


def _along(dynamics: RobotDynamics, commands: Tensor, begin: Tensor, name: str) -> None:
    """Send the commands, frame by frame, to a robot that is where they begin."""
    spec, state = dynamics.spec, dynamics.start()
    assert dynamics.robot is not None
    places = [spec.q_names.index(joint) for joint in _scalar(dynamics.robot)]
    away = (state.q[0, places].double() - begin).abs()
    if len(places) and float(away.max()) > _NEAR:
        worst = int(away.argmax())
        at = float(state.q[0, places[worst]])
        raise InputError(
            f"{name}: {spec.q_names[places[worst]]} is at {at:.3g} after reset(), and the motion begins at "
            f"{float(begin[worst]):.3g}; valid: a reset() that moves there"
        )
    carry, torques = dynamics.begin(state), spec.control_kind == "torque"
    for frame, command in enumerate(commands.float()):
        control = Control(torque=command[None]) if torques else Control(target=command[None])
        carry, step = dynamics.step(carry, state, control)
        state = step.state
        if bool(dynamics.limits.bounds.outside(state.q, state.qd)):
            raise InputError(f"{name}: stopped after {frame + 1} frames, beyond its limits; the log is kept")


def _in_model(dynamics: HybridDynamics, robot: Robot, commands: Tensor, begin: Tensor, log: Path) -> Path:
    """Play a motion in a model, from rest under the first command, and log it as a robot's."""
    spec, settle = dynamics.spec, round(_SETTLE / dynamics.spec.dt)
    q = torch.zeros(1, spec.nq, dtype=torch.float64)
    q[0, [spec.q_names.index(name) for name in _scalar(robot)]] = begin
    held = torch.cat([commands[:1].expand(settle, -1), commands])
    path = dynamics.simulate(
        State(q, torch.zeros(1, spec.nv, dtype=torch.float64)), held[None], dynamics.physical().detach(),
        dynamics.weights.detach(),
    )  # fmt: skip
    written = RobotLog(log, spec)
    written.begin(())
    try:
        for frame, command in enumerate(commands.tolist()):
            q_now, qd_now = (x[0, settle + frame].tolist() for x in (path.q, path.qd))
            written.write(frame * spec.dt, q_now, qd_now, command, ())
    finally:
        written.close()
    return log

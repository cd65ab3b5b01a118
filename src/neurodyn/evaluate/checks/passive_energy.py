# SPDX-License-Identifier: Apache-2.0
"""Whether passive motion gains energy: friction and damping only ever remove it.

In free space, from random states, until a joint comes near a limit: what a limit's spring holds is not counted. A
floating base is without gravity, whose work over a long fall would hide everything else.
"""

import torch
from torch import Tensor

from neurodyn.dynamics.interface import Environment, State
from neurodyn.evaluate.checks.records import CheckResult, Figures, finite, judged
from neurodyn.evaluate.checks.subject import Subject, more_substeps, rolled_out
from neurodyn.robots import Robot

FRAMES = 100
WARNS, FAILS = 0.05, 0.3
"""Energy gained over the greatest kinetic energy, in the median world."""

_CROSSING = 0.25  # time in which a joint may cross a quarter of its range [s]
_NEAR = 0.02  # share of its range within which a joint is near a limit


class PassiveEnergy(Figures, frozen=True):
    """Energy of passive motion, in shares of the greatest kinetic energy; None of what is not finite.

    Attributes:
        gain: Greatest gain, median over worlds.
        gain_p90: Greatest gain, 90th percentile over worlds.
        change: Change at the end, median over worlds.
        frames: Frames until a joint comes near a limit, median over worlds.
    """

    gain: float | None
    gain_p90: float | None
    change: float | None
    frames: float


def check_passive_energy(subject: Subject) -> CheckResult:
    """Follow the energy of passive motion."""
    from neurodyn.sim.build import build
    from neurodyn.sim.energy import EnergyMeter

    robot, worlds = subject.robot, subject.few
    start = inside(robot, subject.draw("energy", worlds))
    gravity = (0.0, 0.0, 0.0) if robot.spec.floating else robot.gravity
    environment = Environment(gravity=torch.tensor(gravity))
    path = rolled_out(subject.free, start, torch.zeros(worlds, FRAMES, robot.spec.nu), environment)
    meter = EnergyMeter(build(robot, worlds, gravity=gravity))
    parts = [meter.measure(path.q[:, frame], path.qd[:, frame]) for frame in range(FRAMES + 1)]
    kinetic, potential = (torch.stack(column, 1) for column in zip(*parts, strict=True))
    free = _free(robot, path.q)
    gained = torch.where(free, kinetic + potential - (kinetic + potential)[:, :1], 0.0)
    scale = torch.where(free, kinetic, 0.0).amax(1).clamp_min(1e-12)
    gain = gained.amax(1) / scale
    last = (free.sum(1) - 1)[:, None]
    figures = PassiveEnergy(
        gain=finite(float(gain.median())), gain_p90=finite(float(gain.quantile(0.9))),
        change=finite(float((gained.gather(1, last)[:, 0] / scale).median())), frames=float(last.double().median()),
    )  # fmt: skip
    finding = judged(
        "energy gained by passive motion",
        figures.gain,
        (WARNS, FAILS),
        unit="%",
        scale=100.0,
        note=f"of the kinetic energy, over {figures.frames:.0f} frames",
        advice=more_substeps(robot),
    )
    return CheckResult(findings=[finding], figures=figures)


def limited(robot: Robot) -> list[tuple[int, float, float]]:
    """Return column, lower and upper limit of each joint with limits."""
    columns = {name: column for column, name in enumerate(robot.spec.q_names)}
    return [
        (columns[joint.name], joint.lower, joint.upper)
        for joint in robot.joints
        if joint.lower is not None and joint.upper is not None
    ]


def inside(robot: Robot, state: State) -> State:
    """Return the states with limited joints in the middle half of their range, slow enough to stay."""
    spec, q, qd = robot.spec, state.q.clone(), state.qd.clone()
    for column, lower, upper in limited(robot):
        quarter, dof = 0.25 * (upper - lower), spec.qd_names.index(spec.q_names[column])
        q[:, column] = q[:, column].clamp(lower + quarter, upper - quarter)
        qd[:, dof] = qd[:, dof].clamp(-quarter / _CROSSING, quarter / _CROSSING)
    return State(q, qd)


def _free(robot: Robot, q: Tensor) -> Tensor:
    """Return which frames come before any joint is near a limit, shape [worlds, frames]."""
    near = torch.zeros(q.shape[:2], dtype=torch.bool)
    for column, lower, upper in limited(robot):
        slack = _NEAR * (upper - lower)
        near |= (q[..., column] < lower + slack) | (q[..., column] > upper - slack)
    return near.cumsum(1) == 0

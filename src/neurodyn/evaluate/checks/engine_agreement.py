# SPDX-License-Identifier: Apache-2.0
"""Whether the hybrid engine moves the robot's mechanism as the simulator does: one frame from the same states.

Networks are given the mechanism's free motion, and identification starts from it, so that it must be the simulator's.
Limits are MuJoCo's soft constraints where it is the simulator; springs of other simulators are fitted by
identification.
"""

import math

import msgspec
import torch
from torch import Tensor

from neurodyn.core.seeds import generator
from neurodyn.dynamics.hybrid.declared import simulated_contact
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import State
from neurodyn.evaluate.checks.passive_energy import inside, limited
from neurodyn.evaluate.checks.records import CheckResult, Figures, Finding, finite, judged
from neurodyn.evaluate.checks.subject import Subject, more_substeps, rolled_out
from neurodyn.multibody.engine import EngineConfig

FREE = (0.05, 0.3)
"""Difference of the change of velocity, over that change, away from limits: what warns, and what fails."""

AT_LIMITS = 0.5
"""The same at limits: what warns."""

_SPEED = 1.0  # with which joints run into limits [rad/s or m/s]


class EngineAgreement(Figures, frozen=True):
    """Differences over one frame, medians over worlds; None of what is not finite or not there.

    Attributes:
        free: Away from limits.
        at_limits: Of joints that run into a limit.
    """

    free: float | None
    at_limits: float | None


def check_engine_agreement(subject: Subject) -> CheckResult:
    """Compare one frame of the hybrid engine with one of the simulator, in free space."""
    robot = subject.robot
    if robot.simulator.fluid is not None:
        return CheckResult(findings=[Finding(what="hybrid engine: it has no fluid, the simulator has", verdict="ok")])
    tree = msgspec.structs.replace(subject.mechanism, points=())  # in free space nothing touches
    config = EngineConfig(substeps=robot.simulator.substeps, contact=simulated_contact(robot))
    engine = HybridDynamics(robot.spec, tree, config)
    state = inside(robot, subject.draw("engine", subject.few))
    torque = _torques(subject)
    free, where = _difference(subject, engine, state, torque)
    advice = f"{more_substeps(robot)}: their integrators differ by the step"
    findings = [judged("hybrid engine, one free frame", free, FREE, unit="%", scale=100.0, note=where, advice=advice)]
    pressed, touching = _against_limits(subject, state), None
    if pressed is not None:
        touching, where = _difference(subject, engine, pressed, torch.zeros_like(torque))
        advice = "identify the limits before a hybrid model is used at them"
        what, bounds = "hybrid engine, one frame at limits", (AT_LIMITS, math.inf)
        findings.append(judged(what, touching, bounds, unit="%", scale=100.0, note=where, advice=advice))
    return CheckResult(findings=findings, figures=EngineAgreement(free=free, at_limits=touching))


def _torques(subject: Subject) -> Tensor:
    from neurodyn.sim.sampling import sample_torques

    return sample_torques(subject.robot, subject.few, 1, generator(subject.seed, "check", "engine torques"))


def _difference(subject: Subject, engine: HybridDynamics, state: State, torque: Tensor) -> tuple[float | None, str]:
    """Return the difference of the velocity changes over their size, and the velocity that differs most."""
    simulated = rolled_out(subject.free, state, torque).qd[:, 1].double()
    double = State(state.q.double(), state.qd.double())
    with torch.no_grad():
        computed = engine.rollout(double, torque.double()).qd[:, 1]
    change, error = simulated - double.qd, (computed - simulated).abs()
    share = error.norm(dim=1) / change.norm(dim=1).clamp_min(1e-9)
    column = int(error.median(0).values.nan_to_num(nan=math.inf).argmax())
    return finite(float(share.median())), subject.robot.spec.qd_names[column]


def _against_limits(subject: Subject, state: State) -> State | None:
    """Return states of which one joint runs into one of its limits; None of a robot without any."""
    bounds = limited(subject.robot)
    if not bounds:
        return None
    spec, q, qd = subject.robot.spec, state.q.clone(), torch.zeros_like(state.qd)
    for world in range(len(q)):
        column, lower, upper = bounds[world // 2 % len(bounds)]
        side = 1.0 if world % 2 else -1.0
        q[world, column] = upper if world % 2 else lower
        qd[world, spec.qd_names.index(spec.q_names[column])] = side * _SPEED
    return State(q, qd)

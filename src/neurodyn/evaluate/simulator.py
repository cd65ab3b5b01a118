# SPDX-License-Identifier: Apache-2.0
"""A neural model beside its simulator: passive and driven roll-outs from the same states."""

import time
from dataclasses import dataclass
from typing import Any

import torch

from neurodyn.core.config import to_dict
from neurodyn.core.seeds import generator
from neurodyn.dynamics.analytic.model import AnalyticDynamics
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.interface import Dynamics, Environment, State, Trajectory
from neurodyn.evaluate import motion
from neurodyn.evaluate.comparison import compare
from neurodyn.evaluate.energy_drift import energy_drift
from neurodyn.evaluate.motion import Drive, follow
from neurodyn.evaluate.reference_errors import Reference, measure_reference_errors
from neurodyn.evaluate.scenario import Scenario, scenario
from neurodyn.learn.devices import threads
from neurodyn.robots import Robot

SEED = 500
_WORLDS = 512
_FLOORS = 256
_SLOWER = 4
"""The simulator of a floating robot is slower by more than this, so that it gets so many fewer roll-outs."""


@dataclass(frozen=True)
class Rollouts:
    """Model and simulator from the same states, driven alike.

    Attributes:
        start: First states.
        environment: What the worlds are in.
        drive: What drives the robot.
        truth: What the simulator did.
        predicted: What the model predicted.
        model_seconds: Wall time of the model [s].
        model_cpu_seconds: Processor time of the model [s].
        teacher_cpu_seconds: Processor time of the simulator [s].
    """

    start: State
    environment: Environment
    drive: Drive
    truth: Trajectory
    predicted: Trajectory
    model_seconds: float
    model_cpu_seconds: float
    simulator_cpu_seconds: float


def evaluate(
    model: LearnedDynamics,
    robot: Robot,
    *,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = SEED,
    where: Scenario | None = None,
    driven: bool = True,
    floors: int | None = None,
) -> dict[str, Any]:
    """Measure a model beside its simulator.

    Passive motion is without torque; a robot with `gains` is held at its nominal pose by a PD controller, which
    acts on each one's own state.

    Args:
        model: The model.
        robot: The robot that it was trained on.
        horizon: Frames of a roll-out; None for the robot's own.
        rollouts: Number of roll-outs; None for 2048, of a floating robot 512.
        seed: Seed of initial states and torques; not that of any training data.
        where: Ground, starts and controller; None for the robot's default ground.
        driven: Whether motion under random torques (of a robot with gains: random targets) is measured too.
        floors: Roll-outs by which the simulator's own uncertainty is measured; None for 256, of a floating robot 64.

    Returns:
        A report of plain data: passive motion at the top level, driven motion under "driven" (None where there is
        none), baselines, floors, energy drift (None with contacts or a controller) and throughput.
    """
    where = scenario(robot) if where is None else where
    horizon, rollouts = horizon or robot.evaluation_horizon, rollouts or default_rollouts(robot)
    quiet = roll_out(model, robot, horizon, rollouts, seed, driven=False, where=where)
    steps = rollouts * horizon
    return {
        "robot": robot.name,
        "kind": model.kind,
        "network": model.network,
        "parameters": sum(p.numel() for p in model.parameters()),
        "horizon": horizon,
        "rollouts": rollouts,
        "seed": seed,
        "dt": robot.dt,
        "ground": where.name,
        "starts": where.starts,
        "hold": None if quiet.drive.kp is None or quiet.drive.kd is None else _hold(quiet.drive),
        **compare(robot, quiet.predicted, quiet.truth, horizon),
        "floors": _floors(robot, quiet, seed, floors),
        "energy": energy_drift(robot, quiet.predicted, quiet.truth) if _conserves(robot, quiet, where) else None,
        "driven": _driven(model, robot, horizon, rollouts, seed + 1, where) if driven and robot.spec.nu else None,
        "env_steps_per_second": steps / quiet.model_seconds,
        "env_steps_per_cpu_second": steps / quiet.model_cpu_seconds,
        "teacher_env_steps_per_cpu_second": steps / quiet.simulator_cpu_seconds,
        "worlds": min(rollouts, _WORLDS),
        "teacher": to_dict(robot.simulator),
    }


def default_rollouts(robot: Robot) -> int:
    """Return the number of roll-outs where none is asked for: fewer where contacts make the simulator slow."""
    return 2048 if robot.fixed_base else 2048 // _SLOWER


def roll_out(
    model: LearnedDynamics,
    robot: Robot,
    horizon: int,
    rollouts: int,
    seed: int,
    *,
    driven: bool,
    where: Scenario | None = None,
) -> Rollouts:
    """Roll model and simulator out from the same starts, passively or driven at random.

    Args:
        model: The model.
        robot: The robot that it was trained on.
        horizon: Frames of a roll-out.
        rollouts: Number of roll-outs.
        seed: Seed of initial states and torques.
        driven: Whether random torques or targets drive the robot.
        where: Ground, starts and controller; None for the robot's default ground.
    """
    rng = generator(seed, "evaluate")
    where = scenario(robot) if where is None else where
    start, environment = where.begin(robot, rollouts, rng)
    drive = motion.passive(robot, rollouts, horizon, where.hold)
    if driven:
        drive = motion.random(robot, rollouts, horizon, rng)
    simulator = AnalyticDynamics(robot)
    _warm_up(model, simulator, start, drive, environment)
    with torch.no_grad(), threads(1):
        truth, _, simulator_cpu = _in_batches(simulator, start, drive, environment)
        predicted, wall, cpu = _in_batches(model, start, drive, environment)
    return Rollouts(start, environment, drive, truth, predicted, wall, cpu, simulator_cpu)


def _driven(
    model: LearnedDynamics, robot: Robot, horizon: int, rollouts: int, seed: int, where: Scenario
) -> dict[str, Any]:
    count = min(rollouts, _WORLDS if robot.fixed_base else _WORLDS // _SLOWER)
    wild = roll_out(model, robot, horizon, count, seed, driven=True, where=where)
    return {"rollouts": count, "seed": seed, **compare(robot, wild.predicted, wild.truth, horizon)}


def _floors(robot: Robot, done: Rollouts, seed: int, asked: int | None) -> dict[str, Any] | None:
    usual = _FLOORS if robot.fixed_base else _FLOORS // _SLOWER
    count = min(done.start.worlds, _WORLDS, usual if asked is None else asked)
    if not count:
        return None
    rows = slice(0, count)
    start = done.start.rows(rows)
    reference = Reference(start, done.drive.worlds(rows), done.environment.rows(rows))
    return measure_reference_errors(robot, reference, done.truth.rows(rows), seed)


def _hold(drive: Drive) -> list[float]:
    return [float(x[0, 0]) for x in (drive.kp, drive.kd) if x is not None]


def _conserves(robot: Robot, rollouts: Rollouts, where: Scenario) -> bool:
    """Whether a change of energy is an error: contacts and controllers take and give some of their own."""
    return robot.fixed_base and not where.grounded and rollouts.drive.target is None


def _in_batches(
    dynamics: Dynamics, start: State, drive: Drive, environment: Environment
) -> tuple[Trajectory, float, float]:
    """Roll out in batches of worlds, so that memory stays bounded; return wall and processor time too."""
    parts = []
    wall, cpu = time.perf_counter(), time.process_time()
    for begin in range(0, start.worlds, _WORLDS):
        rows = slice(begin, begin + _WORLDS)
        first = start.rows(rows)
        parts.append(follow(dynamics, first, drive.worlds(rows), environment.rows(rows)))
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    return Trajectory.joined(parts), *seconds


def _warm_up(
    model: LearnedDynamics, simulator: AnalyticDynamics, start: State, drive: Drive, environment: Environment
) -> None:
    """Compile kernels and fill caches before anything is timed; sizes as they will be."""
    for begin in {0, (start.worlds - 1) // _WORLDS * _WORLDS}:
        rows = slice(begin, begin + _WORLDS)
        first, there = start.rows(rows), environment.rows(rows)
        for dynamics in (simulator, model):
            with torch.no_grad():
                follow(dynamics, first, drive.worlds(rows).until(2), there)

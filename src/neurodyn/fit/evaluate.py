# SPDX-License-Identifier: Apache-2.0
"""A neural model beside its teacher: passive and driven roll-outs from the same states."""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.config import to_dict
from neurodyn.core.seeds import generator
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.interface import State, Trajectory
from neurodyn.dynamics.neural import NeuralDynamics
from neurodyn.fit.devices import threads
from neurodyn.fit.errors import (
    Columns,
    constant_velocity,
    finite_worlds,
    hold_last,
    horizons_up_to,
    percentiles,
    position_errors,
    summarise,
)
from neurodyn.robots import Robot

SEED = 500
_WORLDS = 512


@dataclass(frozen=True)
class Rollouts:
    """Model and teacher from the same states under the same torques.

    Attributes:
        truth: What the teacher did.
        predicted: What the model predicted.
        model_seconds: Wall time of the model [s].
        model_cpu_seconds: Processor time of the model [s].
        teacher_cpu_seconds: Processor time of the teacher [s].
    """

    truth: Trajectory
    predicted: Trajectory
    model_seconds: float
    model_cpu_seconds: float
    teacher_cpu_seconds: float


def evaluate(
    model: NeuralDynamics, robot: Robot, *, horizon: int = 1000, rollouts: int = 2048, seed: int = SEED
) -> dict[str, Any]:
    """Measure a model beside its teacher.

    Args:
        model: The model.
        robot: The robot that it was trained on.
        horizon: Frames of a roll-out.
        rollouts: Number of roll-outs.
        seed: Seed of initial states and torques; not that of any training data.

    Returns:
        A report of plain data: passive motion at the top level, driven motion under "driven", baselines,
        energy drift and throughput.
    """
    passive = roll_out(model, robot, horizon, rollouts, seed, driven=False)
    driven = roll_out(model, robot, horizon, min(rollouts, _WORLDS), seed + 1, driven=True)
    steps = rollouts * horizon
    return {
        "robot": robot.name,
        "kind": "neural",
        "network": model.predictor.net.__class__.__name__.lower(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "horizon": horizon,
        "rollouts": rollouts,
        "seed": seed,
        "dt": robot.dt,
        **_compare(passive, robot, horizon),
        "energy": energy_drift(robot, passive),
        "driven": {"rollouts": min(rollouts, _WORLDS), "seed": seed + 1, **_compare(driven, robot, horizon)},
        "env_steps_per_second": steps / passive.model_seconds,
        "env_steps_per_cpu_second": steps / passive.model_cpu_seconds,
        "teacher_env_steps_per_cpu_second": steps / passive.teacher_cpu_seconds,
        "worlds": min(rollouts, _WORLDS),
        "teacher": to_dict(robot.teacher),
    }


def roll_out(model: NeuralDynamics, robot: Robot, horizon: int, rollouts: int, seed: int, *, driven: bool) -> Rollouts:
    """Roll model and teacher out from the robot's resets, without torque or under random torques."""
    from neurodyn.sim.sampling import sample_resets, sample_torques

    rng = generator(seed, "evaluate")
    q, qd = sample_resets(robot, rollouts, rng)
    torque = torch.zeros(rollouts, horizon, robot.spec.nu)
    if driven:
        torque = sample_torques(robot, rollouts, horizon, rng)
    teacher = AnalyticDynamics(robot)
    _warm_up(model, teacher, State(q, qd), torque)
    with torch.no_grad(), threads(1):
        truth, _, teacher_cpu = _in_batches(teacher, q, qd, torque)
        predicted, wall, cpu = _in_batches(model, q, qd, torque)
    return Rollouts(truth, predicted, wall, cpu, teacher_cpu)


def touches_limit(robot: Robot, truth: Trajectory, horizon: int) -> Tensor:
    """Return which roll-outs of the teacher reach a joint limit within a horizon, shape [worlds]."""
    q = truth.q[:, : horizon + 1]
    touched = torch.zeros(q.shape[0], dtype=torch.bool)
    for i, joint in enumerate(robot.spec.joints):
        if joint.upper is not None:
            touched |= (q[..., i] >= joint.upper).any(1)
        if joint.lower is not None:
            touched |= (q[..., i] <= joint.lower).any(1)
    return touched


def energy_drift(robot: Robot, rollouts: Rollouts, samples: int = 101, worlds: int = 256) -> dict[str, Any]:
    """Return how far the energy of passive roll-outs moves from its start [J], of model and teacher.

    Energies are taken at `samples` frames of at most `worlds` roll-outs.
    """
    from neurodyn.sim.energy import energy

    frames = torch.linspace(0, rollouts.truth.q.shape[1] - 1, samples).long().unique()
    result: dict[str, Any] = {"frames": frames.tolist()}
    for name, trajectory in (("model", rollouts.predicted), ("teacher", rollouts.truth)):
        kept = finite_worlds(trajectory)
        q, qd = trajectory.q[kept][:worlds, frames], trajectory.qd[kept][:worlds, frames]
        if not len(q):
            result[name] = None
            continue
        kinetic, potential = energy(robot, q, qd)
        total = kinetic + potential
        drift = (total - total[:, :1]).abs()
        result[name] = {
            "drift_J": float(drift[:, 1:].mean()),
            "final_percentiles_J": percentiles(drift[:, -1]),
            "curve_J": drift.mean(0).tolist(),
            "scale_J": float((total.max() - total.min()).abs()),
        }
    return result


def _compare(rollouts: Rollouts, robot: Robot, horizon: int) -> dict[str, Any]:
    columns, spec = Columns.of(robot), robot.spec
    finite = finite_worlds(rollouts.predicted)
    errors = position_errors(spec, rollouts.predicted, rollouts.truth)
    baselines = {
        "hold_last": position_errors(spec, hold_last(rollouts.truth), rollouts.truth),
        "constant_velocity": position_errors(spec, constant_velocity(rollouts.truth, spec.dt), rollouts.truth),
    }
    marks = horizons_up_to(horizon)
    return {
        **summarise(errors[finite], columns, horizon),
        "by_horizon": {str(h): summarise(errors[finite], columns, h) for h in marks},
        "finite_fraction": float(finite.double().mean()),
        "baselines": {name: {str(h): summarise(e, columns, h) for h in marks} for name, e in baselines.items()},
        "limits": {str(h): _split_by_limits(robot, rollouts.truth, errors, finite, columns, h) for h in marks},
        "curve": _curve(errors[finite], columns),
    }


def _split_by_limits(
    robot: Robot, truth: Trajectory, errors: Tensor, finite: Tensor, columns: Columns, horizon: int
) -> dict[str, Any]:
    touched = touches_limit(robot, truth, horizon)
    return {
        "touching_fraction": float(touched.double().mean()),
        "touching": summarise(errors[finite & touched], columns, horizon),
        "not_touching": summarise(errors[finite & ~touched], columns, horizon),
    }


def _curve(errors: Tensor, columns: Columns, points: int = 200) -> dict[str, Any]:
    """Return mean and percentiles of the error at single frames, for plots."""
    frames = torch.linspace(1, errors.shape[1], min(points, errors.shape[1])).long().unique()
    result: dict[str, Any] = {"frame": frames.tolist()}
    for name, picked in columns.groups().items():
        at = errors[:, frames - 1][..., list(picked)].double().mean(-1)
        result[name] = {
            "mean": at.mean(0).tolist() if len(at) else [],
            "median": at.median(0).values.tolist() if len(at) else [],
            "p90": torch.quantile(at, 0.9, dim=0).tolist() if len(at) else [],
        }
    return result


def _in_batches(
    dynamics: NeuralDynamics | AnalyticDynamics, q: Tensor, qd: Tensor, torque: Tensor
) -> tuple[Trajectory, float, float]:
    """Roll out in batches of worlds, so that memory stays bounded; return wall and processor time too."""
    parts = []
    wall, cpu = time.perf_counter(), time.process_time()
    for begin in range(0, len(q), _WORLDS):
        rows = slice(begin, begin + _WORLDS)
        parts.append(dynamics.rollout(State(q[rows], qd[rows]), torque[rows]))
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    return Trajectory(torch.cat([p.q for p in parts]), torch.cat([p.qd for p in parts])), *seconds


def _warm_up(model: NeuralDynamics, teacher: AnalyticDynamics, state: State, torque: Tensor) -> None:
    """Compile kernels and fill caches before anything is timed; sizes as they will be."""
    for begin in {0, (len(state.q) - 1) // _WORLDS * _WORLDS}:
        rows = slice(begin, begin + _WORLDS)
        first = State(state.q[rows], state.qd[rows])
        teacher.rollout(first, torque[rows, :2])
        with torch.no_grad():
            model.rollout(first, torque[rows, :2])

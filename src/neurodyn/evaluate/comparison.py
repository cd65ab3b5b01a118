# SPDX-License-Identifier: Apache-2.0
"""Roll-outs of a model beside those of its simulator, as plain data: errors, baselines, joint limits."""

from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.interface import Trajectory
from neurodyn.dynamics.measures import (
    Columns,
    constant_velocity,
    finite_worlds,
    hold_last,
    horizons_up_to,
    position_errors,
    summarise,
)
from neurodyn.robots import Robot


def compare(robot: Robot, predicted: Trajectory, truth: Trajectory, horizon: int) -> dict[str, Any]:
    """Return errors by horizon beside the baselines, split by joint limits, and as curves over time.

    Args:
        robot: The robot.
        predicted: Roll-outs of a model.
        truth: Roll-outs of the simulator from the same starts.
        horizon: Number of frames.
    """
    columns, spec = Columns.of(robot), robot.spec
    finite = finite_worlds(predicted) & finite_worlds(truth)
    errors = position_errors(spec, predicted, truth)
    # Baselines over the same roll-outs as the simulator's own: those that it brings to their end.
    baselines = {
        "hold_last": position_errors(spec, hold_last(truth), truth),
        "constant_velocity": position_errors(spec, constant_velocity(truth, spec.dt, spec), truth),
    }
    marks = horizons_up_to(horizon)
    return {
        **summarise(errors[finite], columns, horizon),
        "by_horizon": {str(h): summarise(errors[finite], columns, h) for h in marks},
        "finite_fraction": float(finite_worlds(predicted).double().mean()),
        "teacher_finite_fraction": float(finite_worlds(truth).double().mean()),
        "baselines": {
            name: {str(h): summarise(e[finite_worlds(truth)], columns, h) for h in marks}
            for name, e in baselines.items()
        },
        "limits": {str(h): _split_by_limits(robot, truth, errors, finite, columns, h) for h in marks},
        "curve": _curve(errors[finite], columns),
    }


def touches_limit(robot: Robot, truth: Trajectory, horizon: int) -> Tensor:
    """Return which roll-outs of the simulator reach a joint limit within a horizon, shape [worlds]."""
    q = truth.q[:, : horizon + 1]
    touched = torch.zeros(q.shape[0], dtype=torch.bool)
    for joint in robot.spec.joints:
        values = q[..., robot.spec.q_names.index(joint.q_names[0])]
        if joint.upper is not None:
            touched |= (values >= joint.upper).any(1)
        if joint.lower is not None:
            touched |= (values <= joint.lower).any(1)
    return touched


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

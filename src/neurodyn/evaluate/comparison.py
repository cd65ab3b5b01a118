# SPDX-License-Identifier: Apache-2.0
"""Roll-outs of a model beside the truth: errors by horizon and over time, trivial baselines, joint limits."""

import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.dynamics.interface import Trajectory
from neurodyn.dynamics.measures import constant_velocity, finite_worlds, persistence
from neurodyn.evaluate.metrics import Compared, horizons_up_to
from neurodyn.evaluate.records import Baselines, Comparison, LimitSplit
from neurodyn.robots import Robot


def compare(robot: Robot, predicted: Trajectory, truth: Trajectory, *, simulated: bool) -> Comparison:
    """Return errors of roll-outs beside those of the baselines.

    Args:
        robot: The robot.
        predicted: Roll-outs of a model.
        truth: What happened from the same starts.
        simulated: Whether the truth is a simulator's: its own blow-ups and joint limits are counted too.
    """
    compared = Compared(robot, predicted, truth)
    end = truth.q.shape[1] - 1
    marks, sound = horizons_up_to(end), finite_worlds(truth)
    # Baselines over the same roll-outs as the simulator's own: those that it brings to their end.
    held, moving = (
        Compared(robot, path, truth).by_horizon(marks, sound)
        for path in (persistence(truth), constant_velocity(truth, robot.dt, robot.spec))
    )
    return Comparison(
        summary=compared.summary(end),
        by_horizon=compared.by_horizon(marks),
        finite_fraction=float(finite_worlds(predicted).double().mean()),
        simulator_finite_fraction=float(sound.double().mean()) if simulated else UNSET,
        baselines=Baselines(persistence=held, constant_velocity=moving),
        limits={str(mark): _split_by_limits(compared, mark) for mark in marks} if simulated else UNSET,
        curve=compared.curves(),
    )


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


def _split_by_limits(compared: Compared, horizon: int) -> LimitSplit:
    touched = touches_limit(compared.robot, compared.truth, horizon)
    return LimitSplit(
        touching_fraction=float(touched.double().mean()),
        touching=compared.summary(horizon, compared.finite & touched),
        not_touching=compared.summary(horizon, compared.finite & ~touched),
    )

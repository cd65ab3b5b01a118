# SPDX-License-Identifier: Apache-2.0
"""Random states and torques of a declared robot, uniform in its ranges; float32 torch tensors."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.robots import Robot
from neurodyn.robots.declaration import Interval


def sample_states(robot: Robot, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Draw states for data from the sampling ranges.

    Returns:
        Positions [rad or m], shape [count, nq], and velocities [rad/s or m/s], shape [count, nv].

    Raises:
        InputError: A range is neither declared nor implied, or the robot has a ball or free joint.
    """
    names = _scalar_joints(robot)
    q = _uniform([robot.sampling_interval("q", name) for name in names], (count,), rng)
    qd = _uniform([robot.sampling_interval("qd", name) for name in names], (count,), rng)
    return q, qd


def sample_resets(robot: Robot, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Draw initial states for evaluation from the reset ranges; shapes and errors as of `sample_states`."""
    names = _scalar_joints(robot)
    q = _uniform([robot.reset_interval("q", name) for name in names], (count,), rng)
    qd = _uniform([robot.reset_interval("qd", name) for name in names], (count,), rng)
    return q, qd


def sample_torques(robot: Robot, count: int, frames: int, rng: np.random.Generator) -> Tensor:
    """Draw torques or forces, independent in every frame [N m or N], shape [count, frames, nu]."""
    intervals = [robot.sampling_interval("control", name) for name in robot.actuated]
    return _uniform(intervals, (count, frames), rng)


def _scalar_joints(robot: Robot) -> list[str]:
    for joint in robot.joints:
        if joint.kind not in {"revolute", "prismatic"}:
            raise InputError(
                f"robot {robot.name!r}: no random states for {joint.kind} joint {joint.name!r}; valid: robots of "
                "revolute and prismatic joints"
            )
    return [joint.name for joint in robot.joints]


def _uniform(intervals: Sequence[Interval], shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    low = np.array([lower for lower, _ in intervals], dtype=np.float32)
    width = np.array([upper - lower for lower, upper in intervals], dtype=np.float32)
    unit = rng.random((*shape, len(intervals)), dtype=np.float32)
    return torch.from_numpy(low + width * unit)

# SPDX-License-Identifier: Apache-2.0
"""Random states and torques of a declared robot, uniform in its ranges; float32 torch tensors.

Heights count from the ground below the base, and states that penetrate the ground are drawn again.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from neurodyn.core.description.contact_points import ContactPointLayout
from neurodyn.core.description.spec import JointSpec
from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.rotation import exponential
from neurodyn.robots import Robot
from neurodyn.robots.sections import Interval
from neurodyn.sim.build import build
from neurodyn.sim.clearance import Clearance, ground_height
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.ground_sampling import tilted_rotation

TOUCH = 0.005
"""Depth to which a first state may lie in the ground [m]: about that of a robot that stands."""

_DRAWS = 200
_LIFTS = 20

_Draw = Callable[[int, Tensor], tuple[Tensor, Tensor]]


def sample_states(
    robot: Robot,
    count: int,
    rng: np.random.Generator,
    ground: Ground | None = None,
    layout: ContactPointLayout | None = None,
    *,
    reset: bool = False,
) -> tuple[Tensor, Tensor]:
    """Draw states from the sampling ranges, or from those of resets.

    Args:
        robot: The declared robot.
        count: Number of states.
        rng: Source of randomness.
        ground: The ground around each state; None for free space, where heights count from zero.
        layout: The robot's contact points; None to extract them from a model of it.
        reset: Whether to draw initial states for evaluation instead of states for data.

    Returns:
        Positions [rad or m], shape [count, nq], and velocities [rad/s or m/s], shape [count, nv].

    Raises:
        InputError: A range is neither declared nor implied, or a robot cannot be clear of the ground.
    """
    floor = torch.zeros(count)
    if ground is not None and not ground.scene.shapes:
        ground = None
    if ground is not None and not robot.fixed_base:
        floor = ground_height(ground, torch.zeros(count, 2))
    draw = _drawer(robot, reset, rng)
    q, qd = draw(count, floor)
    if ground is None or robot.contact_points is None:
        return q, qd
    clearance = Clearance(contact_point_layout(build(robot), robot) if layout is None else layout)
    left = torch.nonzero(clearance.depth(ground, q) > TOUCH).flatten()
    for _ in range(_DRAWS):
        if not len(left):
            return q, qd
        q[left], qd[left] = draw(len(left), floor[left])
        left = left[clearance.depth(_of(ground, left), q[left]) > TOUCH]
    if not robot.fixed_base and not reset:
        q[left] = _lifted(clearance, _of(ground, left), q[left])
        return q, qd
    raise InputError(
        f"robot {robot.name!r}: below the ground at reset in {len(left)} of {count} worlds, after {_DRAWS} draws of "
        f"each; lower the ground, or change `{'reset' if reset else 'sampling'}`"
    )


def sample_torques(robot: Robot, count: int, frames: int, rng: np.random.Generator) -> Tensor:
    """Draw torques or forces, independent in every frame [N m or N], shape [count, frames, nu]."""
    intervals = [robot.sampling_interval("control", name) for name in robot.actuated]
    return _uniform(intervals, (count, frames), rng)


def _drawer(robot: Robot, reset: bool, rng: np.random.Generator) -> _Draw:
    """Return a function that draws positions and velocities over a floor [m], shape [count]."""
    ranges = robot.reset if reset else robot.sampling
    interval = robot.reset_interval if reset else robot.sampling_interval
    rates = [interval("qd", name) for name in robot.spec.qd_names]
    scalars = {j.name: interval("q", j.name) for j in robot.spec.joints if j.scalar}
    height = robot.sampling.height if ranges.height is None else ranges.height
    if not robot.fixed_base and height is None:
        raise InputError(
            f"robot {robot.name!r}: no range to draw the base's height from; declare it as "
            "sampling: {height: [lower, upper]}"
        )

    def orientation(count: int) -> Tensor:
        if ranges.rotation is not None:
            axis = normalize(torch.from_numpy(rng.standard_normal((count, 3), dtype=np.float32)), dim=-1)
            return exponential(_uniform([(0.0, ranges.rotation)], (count,), rng) * axis)
        turns = [(-math.pi, math.pi), (-math.pi, math.pi), (0.0, ranges.tilt)]  # heading, direction of the tilt, tilt
        return tilted_rotation(*_uniform(turns, (count,), rng).T)

    def position(joint: JointSpec, count: int, floor: Tensor) -> Tensor:
        if joint.kind == "ball":
            quaternion = torch.from_numpy(rng.standard_normal((count, 4), dtype=np.float32))  # uniform rotations
            return quaternion / quaternion.norm(dim=1, keepdim=True)
        if joint.kind == "free":
            z = floor + _uniform([height or (0.0, 0.0)], (count,), rng)[:, 0]
            return torch.cat([torch.zeros(count, 2), z[:, None], orientation(count)], 1)
        return _uniform([scalars[joint.name]], (count,), rng)

    def draw(count: int, floor: Tensor) -> tuple[Tensor, Tensor]:
        q = torch.cat([position(joint, count, floor) for joint in robot.spec.joints], 1)
        return q, _uniform(rates, (count,), rng)

    return draw


def _of(ground: Ground, worlds: Tensor) -> Ground:
    return ground if ground.pose is None else ground.posed(ground.pose[worlds])


def _lifted(clearance: Clearance, ground: Ground, q: Tensor) -> Tensor:
    """Raise floating robots until no contact point lies in the ground."""
    for _ in range(_LIFTS):
        depth = clearance.depth(ground, q)
        if not (depth > TOUCH).any():
            break
        q[:, 2] += torch.where(depth > TOUCH, 1.2 * depth, 0.0)
    return q


def _uniform(intervals: Sequence[Interval], shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    low = np.array([lower for lower, _ in intervals], dtype=np.float32)
    width = np.array([upper - lower for lower, upper in intervals], dtype=np.float32)
    unit = rng.random((*shape, len(intervals)), dtype=np.float32)
    return torch.from_numpy(low + width * unit)

# SPDX-License-Identifier: Apache-2.0
"""Random states and torques of a declared robot, uniform in its ranges; float32 torch tensors.

States are drawn over the ground: heights count from what is below the base, and what lies in the ground is drawn
again.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.contact_points import ContactPointLayout
from neurodyn.core.errors import InputError
from neurodyn.core.spec import JointSpec
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Robot
from neurodyn.robots.sections import Interval, Ranges
from neurodyn.sim.clearance import Clearance, ground_height
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
) -> tuple[Tensor, Tensor]:
    """Draw states for data from the sampling ranges.

    Args:
        robot: The declared robot.
        count: Number of states.
        rng: Source of randomness.
        ground: The ground around each state; None for free space, where heights count from zero.
        layout: The robot's contact points; None to extract them from a model of it.

    Returns:
        Positions [rad or m], shape [count, nq], and velocities [rad/s or m/s], shape [count, nv].

    Raises:
        InputError: A range is neither declared nor implied, or a bolted robot cannot be clear of the ground.
    """
    return _sample(robot, robot.sampling, False, count, rng, ground, layout)


def sample_resets(
    robot: Robot,
    count: int,
    rng: np.random.Generator,
    ground: Ground | None = None,
    layout: ContactPointLayout | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw initial states for evaluation from the reset ranges; arguments as of `sample_states`.

    Raises:
        InputError: A range is neither declared nor implied, or the robot cannot be clear of the ground.
    """
    return _sample(robot, robot.reset, True, count, rng, ground, layout)


def sample_torques(robot: Robot, count: int, frames: int, rng: np.random.Generator) -> Tensor:
    """Draw torques or forces, independent in every frame [N m or N], shape [count, frames, nu]."""
    intervals = [robot.sampling_interval("control", name) for name in robot.actuated]
    return _uniform(intervals, (count, frames), rng)


def _sample(
    robot: Robot,
    ranges: Ranges,
    reset: bool,
    count: int,
    rng: np.random.Generator,
    ground: Ground | None,
    layout: ContactPointLayout | None,
) -> tuple[Tensor, Tensor]:
    floor = torch.zeros(count)
    if ground is not None and not ground.scene.shapes:
        ground = None
    if ground is not None and not robot.fixed_base:
        floor = ground_height(ground, torch.zeros(count, 2))
    draw = _drawer(robot, ranges, reset, rng)
    q, qd = draw(count, floor)
    if ground is None or robot.contact_points is None:
        return q, qd
    clearance = Clearance(_layout(robot) if layout is None else layout)
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


def _drawer(robot: Robot, ranges: Ranges, reset: bool, rng: np.random.Generator) -> _Draw:
    """Return a function that draws positions and velocities over a floor [m], shape [count]."""
    interval = robot.reset_interval if reset else robot.sampling_interval
    rates = [interval("qd", name) for name in robot.spec.qd_names]
    scalars = {j.name: interval("q", j.name) for j in robot.spec.joints if j.scalar}
    height, tilt = robot.sampling.height if ranges.height is None else ranges.height, ranges.tilt
    if not robot.fixed_base and height is None:
        raise InputError(
            f"robot {robot.name!r}: no range to draw the base's height from; declare it as "
            "sampling: {height: [lower, upper]}"
        )

    def position(joint: JointSpec, count: int, floor: Tensor) -> Tensor:
        if joint.kind == "ball":
            return _rotations(count, rng)
        if joint.kind == "free":
            z = floor + _uniform([height or (0.0, 0.0)], (count,), rng)[:, 0]
            return torch.cat([torch.zeros(count, 2), z[:, None], _tilted(count, tilt, rng)], 1)
        return _uniform([scalars[joint.name]], (count,), rng)

    def draw(count: int, floor: Tensor) -> tuple[Tensor, Tensor]:
        q = torch.cat([position(joint, count, floor) for joint in robot.spec.joints], 1)
        return q, _uniform(rates, (count,), rng)

    return draw


def _layout(robot: Robot) -> ContactPointLayout:
    from neurodyn.sim.build import build
    from neurodyn.sim.contact_points import contact_point_layout

    return contact_point_layout(build(robot), robot)


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


def _tilted(count: int, tilt: float, rng: np.random.Generator) -> Tensor:
    """Return rotations of uniform heading, tilted by up to `tilt` [rad] in a random direction; shape [count, 4]."""
    heading, direction, angle = _uniform([(-math.pi, math.pi), (-math.pi, math.pi), (0.0, tilt)], (count,), rng).T
    return tilted_rotation(heading, direction, angle)


def _rotations(count: int, rng: np.random.Generator) -> Tensor:
    """Return uniform rotations, shape [count, 4]."""
    q = torch.from_numpy(rng.standard_normal((count, 4), dtype=np.float32))
    return q / q.norm(dim=1, keepdim=True)


def _uniform(intervals: Sequence[Interval], shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    low = np.array([lower for lower, _ in intervals], dtype=np.float32)
    width = np.array([upper - lower for lower, upper in intervals], dtype=np.float32)
    unit = rng.random((*shape, len(intervals)), dtype=np.float32)
    return torch.from_numpy(low + width * unit)

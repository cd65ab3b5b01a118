# SPDX-License-Identifier: Apache-2.0
"""Random grounds: the declared scene at a pose of its own in each world."""

import math

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.scene import Scene
from neurodyn.geometry.rotation import rotate
from neurodyn.robots import Robot

FAR_BELOW = -100.0
"""Height of a ground that is absent [m]."""


def data_scene(robot: Robot) -> Scene | None:
    """Return the scene that a robot's data are drawn on; None for free space."""
    sampling = robot.ground_sampling
    scene = robot.named_ground(None if sampling is None else sampling.ground)
    return scene if scene is not None and scene.shapes else None


def sample_grounds(robot: Robot, count: int, rng: np.random.Generator) -> Tensor | None:
    """Draw poses of the ground as the robot's `ground_sampling` says.

    The scene is turned about the vertical, shifted, tilted about the point that then lies below the robot, and lifted.
    Poses are scene to world [x y z, qx qy qz qw], shape [count, 7]; None for robots in free space.
    """
    if data_scene(robot) is None:
        return None
    pose = torch.zeros(count, 7)
    pose[:, 6] = 1.0
    sampling = robot.ground_sampling
    if sampling is None:
        return pose
    unit = torch.from_numpy(rng.random((count, 7), dtype=np.float32))
    rotation = tilted_rotation(math.pi * (2 * unit[:, 0] - 1), 2 * math.pi * unit[:, 1], sampling.tilt * unit[:, 2])
    shift = torch.cat([sampling.extent * (2 * unit[:, 3:5] - 1), torch.zeros(count, 1)], 1)
    # The point of the scene at `shift` comes to lie below the world's origin.
    pose[:, :3] = -rotate(rotation, shift)
    pose[:, 2] += sampling.height[0] + (sampling.height[1] - sampling.height[0]) * unit[:, 5]
    pose[:, 3:] = rotation
    pose[unit[:, 6] < sampling.absent] = torch.tensor([0.0, 0.0, FAR_BELOW, 0.0, 0.0, 0.0, 1.0])
    return pose


def tilted_rotation(heading: Tensor, direction: Tensor, tilt: Tensor) -> Tensor:
    """Return quaternions of a turn about z by `heading`, then of a tilt about a horizontal axis; shape [count, 4]."""
    sine, w = torch.sin(tilt / 2), torch.cos(tilt / 2)
    x, y = torch.cos(direction) * sine, torch.sin(direction) * sine
    s, c = torch.sin(heading / 2), torch.cos(heading / 2)
    return torch.stack([x * c + y * s, y * c - x * s, w * s, w * c], 1)

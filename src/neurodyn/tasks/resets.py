# SPDX-License-Identifier: Apache-2.0
"""First states of episodes from the ranges that a robot declares, drawn without a simulator."""

import math

import torch
from torch import Tensor

from neurodyn.dynamics.interface import State
from neurodyn.geometry import rotation
from neurodyn.robots import Robot
from neurodyn.robots.sections import Interval

_ANYWHERE = (-math.pi, math.pi)


def reset_states(robot: Robot, worlds: int, generator: torch.Generator, *, heading: Interval = _ANYWHERE) -> State:
    """Draw states from the robot's `reset` ranges, its base over the origin of the world.

    Args:
        robot: The declared robot; its ball joints start at rest.
        worlds: Number of states.
        generator: Random numbers; its device is that of the states.
        heading: Range of the angle of a floating base about the vertical [rad]; of robots whose resets give no
            `rotation`.
    """
    q: list[Tensor] = []
    qd: list[Tensor] = []
    for joint in robot.spec.joints:
        if joint.kind == "free":
            q.append(_pose(robot, worlds, generator, heading))
        elif joint.kind == "ball":
            q.append(torch.tensor([0.0, 0.0, 0.0, 1.0], device=generator.device).expand(worlds, 4))
        else:
            q.append(uniform(robot.reset_interval("q", joint.name), worlds, generator)[:, None])
        qd += [uniform(robot.reset_interval("qd", name), worlds, generator)[:, None] for name in joint.qd_names]
    return State(torch.cat(q, dim=1), torch.cat(qd, dim=1))


def uniform(interval: Interval, worlds: int, generator: torch.Generator) -> Tensor:
    """Draw numbers uniformly, shape [worlds]."""
    lower, upper = interval
    return lower + (upper - lower) * torch.rand(worlds, generator=generator, device=generator.device)


def _pose(robot: Robot, worlds: int, generator: torch.Generator, heading: Interval) -> Tensor:
    """Draw poses of a floating base: lifted, and turned about any axis, or about the vertical and then tilted."""
    place = torch.zeros(worlds, 3, device=generator.device)
    if robot.reset.height is not None:
        place[:, 2] = uniform(robot.reset.height, worlds, generator)
    if robot.reset.rotation is not None:
        axis = torch.nn.functional.normalize(
            torch.randn(worlds, 3, generator=generator, device=generator.device), dim=-1
        )
        angle = uniform((0.0, robot.reset.rotation), worlds, generator)
        return torch.cat([place, rotation.exponential(angle[:, None] * axis)], dim=-1)
    turn = place.new_zeros(worlds, 3)
    turn[:, 2] = uniform(heading, worlds, generator)
    towards = uniform(_ANYWHERE, worlds, generator)
    tilt = uniform((0.0, robot.reset.tilt), worlds, generator)
    lean = torch.stack([tilt * towards.cos(), tilt * towards.sin(), torch.zeros_like(tilt)], dim=-1)
    return torch.cat([place, rotation.multiply(rotation.exponential(turn), rotation.exponential(lean))], dim=-1)

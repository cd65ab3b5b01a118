# SPDX-License-Identifier: Apache-2.0
"""Scenarios of an evaluation against the simulator: ground, initial states, and the holding controller."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.core.config import read_config
from neurodyn.core.description.scene import Plane, Scene, Shape, Terrain
from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.rollouts import ControlSequence
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Robot

ALL = "all"
_WALK = 3.0
"""Margin to the edge of a terrain [m]."""
_SUFFIXES = (".yaml", ".yml", ".toml", ".json")


@dataclass(frozen=True)
class Scenario:
    """Scenario of roll-outs.

    Attributes:
        name: Name of the ground; None in free space.
        scene: The ground; None in free space.
        hold: Stiffness and damping of the controller that holds the nominal pose in passive motion; None for the
            robot's own gains, or no controller if it has none.
        starts: Whether initial states are the robot's resets or drawn from the data's sampling ranges.
        poses: Whether ground poses are as declared or random as in the data.
    """

    name: str | None = None
    scene: Scene | None = None
    hold: tuple[float, float] | None = None
    starts: Literal["reset", "sampling"] = "reset"
    poses: Literal["declared", "sampling"] = "declared"

    @property
    def grounded(self) -> bool:
        """Whether the scene has any shape."""
        return self.scene is not None and len(self.scene.shapes) > 0

    def begin(self, robot: Robot, worlds: int, rng: np.random.Generator) -> tuple[State, Environment]:
        """Draw initial states and the environment of a batch of roll-outs."""
        from neurodyn.sim.sampling import sample_states

        reset = self.starts == "reset"
        if self.scene is None or not self.grounded:
            return State(*sample_states(robot, worlds, rng, reset=reset)), Environment()
        ground = Ground(self.scene, self._poses(robot, worlds, rng))
        return State(*sample_states(robot, worlds, rng, ground, reset=reset)), Environment(ground=ground)

    def _poses(self, robot: Robot, worlds: int, rng: np.random.Generator) -> Tensor | None:
        """Return ground poses; declared grounds are shifted under floating robots, to vary the landing point."""
        if self.poses == "sampling":
            return _draw_poses(robot, worlds, rng)
        if self.scene is None or robot.fixed_base or robot.ground_sampling is None or self.name not in robot.grounds:
            return None
        reach = min(robot.ground_sampling.extent, *(_room(shape) for shape in self.scene.shapes))
        if reach <= 0.0:
            return None
        pose = torch.zeros(worlds, 7)
        pose[:, 6] = 1.0
        pose[:, :2] = torch.from_numpy(rng.uniform(-reach, reach, size=(worlds, 2)).astype(np.float32))
        return pose


def _draw_poses(robot: Robot, worlds: int, rng: np.random.Generator) -> Tensor | None:
    """Draw ground poses as for data, with a ground in every world."""
    from neurodyn.sim.sampling import sample_grounds

    if robot.ground_sampling is not None:
        always = msgspec.structs.replace(robot.ground_sampling, absent=0.0)
        robot = msgspec.structs.replace(robot, ground_sampling=always)
    return sample_grounds(robot, worlds, rng)


def _room(shape: Shape) -> float:
    """Return the distance from a shape's middle within which a robot can start [m]."""
    if isinstance(shape, Plane):
        return math.inf
    return min(shape.size) / 2 - _WALK if isinstance(shape, Terrain) else 0.0


def scenario(robot: Robot, ground: str | None = None, *, words: tuple[str, ...] = (ALL,)) -> Scenario:
    """Return the scenario of an evaluation on a ground.

    Args:
        robot: The robot.
        ground: Name of one of its grounds, or a file with a scene (YAML, TOML or JSON); None for its default.
        words: Other values of `ground` that the caller accepts, for the message.

    Raises:
        InputError: There is no such ground, or the file does not describe one.
    """
    if ground is None:
        ground = robot.ground
    if ground is None:
        return Scenario()
    if ground in robot.grounds:
        return Scenario(ground, robot.grounds[ground])
    path = Path(ground)
    if path.suffix.lower() not in _SUFFIXES:
        named = f"valid: {choices([*robot.grounds, *words])}, or" if robot.grounds else "it declares none; valid:"
        raise InputError(
            f"--ground {ground!r} is no ground of robot {robot.name!r}; {named} a file with a scene (YAML)"
        )
    scene = read_config(path, Scene)
    return Scenario(str(path), msgspec.structs.replace(scene, folder=str(path.resolve().parent)))


def scenarios(robot: Robot) -> dict[str, Scenario]:
    """Return the scenarios of all declared grounds, the default first.

    Raises:
        InputError: The robot declares no grounds.
    """
    if not robot.grounds:
        raise InputError(f"--ground {ALL}: robot {robot.name!r} declares no grounds; valid: a file with a scene (YAML)")
    names = sorted(robot.grounds, key=lambda name: name != robot.ground)
    return {name: scenario(robot, name) for name in names}


Gain = float | tuple[float, ...]
"""A stiffness or damping of all driven joints, or one for each."""


def passive(robot: Robot, worlds: int, frames: int, hold: tuple[Gain, Gain] | None = None) -> ControlSequence:
    """Return the controls of passive motion: no torque, or a PD controller that holds the nominal pose.

    `hold` holds stiffness and damping; None for the robot's own (`Robot.hold_gains`), if any.
    """
    if robot.holds:
        return ControlSequence(target=torch.tensor(robot.nominal_q()).expand(worlds, frames, -1))
    hold = robot.hold_gains() if hold is None else hold
    if hold is None:
        return ControlSequence(torque=torch.zeros(worlds, 1, robot.spec.nu).expand(-1, frames, -1))
    kp, kd = (torch.tensor(gain).reshape(1, -1).repeat(worlds, 1) for gain in hold)
    return ControlSequence(target=torch.tensor(robot.nominal_q()).expand(worlds, frames, -1), kp=kp, kd=kd)


def drive_at_random(
    robot: Robot, worlds: int, frames: int, rng: np.random.Generator, hold: tuple[Gain, Gain] | None = None
) -> ControlSequence:
    """Return random controls as for data: torques drawn every frame, or targets of a PD controller.

    `hold` holds stiffness and damping for a robot with gains; None draws them for each roll-out as for data. Some drawn
    gains are so stiff and weakly damped that the robot itself oscillates.
    """
    from neurodyn.sim.sampling import sample_torques

    if robot.gains is None:
        drawn = sample_torques(robot, worlds, frames, rng)
        return ControlSequence(target=drawn) if robot.holds else ControlSequence(torque=drawn)
    intervals = (robot.gains.kp, robot.gains.kd) if hold is None else ((hold[0],) * 2, (hold[1],) * 2)
    kp, kd = (
        torch.from_numpy((low + (high - low) * rng.random((worlds, 1))).astype(np.float32))
        for low, high in (map(np.asarray, interval) for interval in intervals)
    )
    offset = rng.uniform(-robot.gains.spread, robot.gains.spread, size=(worlds, frames, robot.spec.nu))
    return ControlSequence(
        target=torch.tensor(robot.nominal_q()) + torch.from_numpy(offset.astype(np.float32)), kp=kp, kd=kd
    )

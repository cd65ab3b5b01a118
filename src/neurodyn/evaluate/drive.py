# SPDX-License-Identifier: Apache-2.0
"""How a robot is driven during a roll-out, open loop by torques or closed loop by a PD controller.

A controller acts on each one's own state: the model's torques follow from what the model predicted, the
simulator's from what the simulator did.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from neurodyn.dynamics.interface import Control
from neurodyn.robots import Robot


@dataclass(frozen=True)
class Drive:
    """Torques, or the targets and gains of a PD controller, for a batch of roll-outs.

    Attributes:
        torque: Torques or forces [N m or N], shape [worlds, T, nu]; None where a controller drives.
        target: Targets of the controller [rad or m], shape [worlds, T, nu]; None where torques drive.
        kp: Stiffness [N m/rad or N/m], shape [worlds, 1].
        kd: Damping [N m s/rad or N s/m], shape [worlds, 1].
    """

    torque: Tensor | None = None
    target: Tensor | None = None
    kp: Tensor | None = None
    kd: Tensor | None = None

    @property
    def frames(self) -> int:
        """Number of frames."""
        values = self.target if self.torque is None else self.torque
        return 0 if values is None else values.shape[1]

    def at(self, frame: int) -> Control:
        """Return what drives one frame."""
        if self.target is None:
            return Control(torque=None if self.torque is None else self.torque[:, frame])
        return Control(target=self.target[:, frame], kp=self.kp, kd=self.kd)

    def worlds(self, rows: slice) -> "Drive":
        """Return the drive of some of the roll-outs."""
        return Drive(*(None if x is None else x[rows] for x in (self.torque, self.target, self.kp, self.kd)))

    def until(self, frame: int) -> "Drive":
        """Return the drive of the first frames."""
        torque, target = (None if x is None else x[:, :frame] for x in (self.torque, self.target))
        return replace(self, torque=torque, target=target)


def passive(robot: Robot, worlds: int, frames: int, hold: tuple[float, float] | None = None) -> Drive:
    """Return the drive of passive motion: no torque, or a controller that holds the nominal pose.

    Args:
        robot: The robot.
        worlds: Number of roll-outs.
        frames: Frames of a roll-out.
        hold: Stiffness and damping of the controller; None for the robot's own `gains.hold`, where it has gains.
    """
    if hold is None and robot.gains is not None:
        hold = robot.gains.hold
    if hold is None:
        return Drive(torque=torch.zeros(worlds, 1, robot.spec.nu).expand(-1, frames, -1))
    kp, kd = (torch.full((worlds, 1), gain) for gain in hold)
    return Drive(target=torch.tensor(robot.nominal_q()).expand(worlds, frames, -1), kp=kp, kd=kd)


def random(
    robot: Robot, worlds: int, frames: int, rng: np.random.Generator, hold: tuple[float, float] | None = None
) -> Drive:
    """Return the drive of wild motion, as data are drawn: random torques in every frame, or random targets.

    Args:
        robot: The robot.
        worlds: Number of roll-outs.
        frames: Frames of a roll-out.
        rng: Source of randomness.
        hold: Stiffness and damping of a robot with gains; None for those of data, drawn for each roll-out. Some of
            these are so stiff and little damped that the robot itself does not stay calm for long.
    """
    from neurodyn.sim.sampling import sample_torques

    if robot.gains is None:
        return Drive(torque=sample_torques(robot, worlds, frames, rng))
    intervals = (robot.gains.kp, robot.gains.kd) if hold is None else ((hold[0],) * 2, (hold[1],) * 2)
    kp, kd = (torch.from_numpy(rng.uniform(*i, size=(worlds, 1)).astype(np.float32)) for i in intervals)
    offset = rng.uniform(-robot.gains.spread, robot.gains.spread, size=(worlds, frames, robot.spec.nu))
    return Drive(target=torch.tensor(robot.nominal_q()) + torch.from_numpy(offset.astype(np.float32)), kp=kp, kd=kd)

# SPDX-License-Identifier: Apache-2.0
"""What a class says and does through which neurodyn moves a robot: FILE.py:CLASS of `--robot`, `--plant` and `--on`."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np

METHODS = ("reset", "observe", "command")
"""Methods that a class must have; `stop` is optional."""


class RobotInterface(Protocol):
    """A robot, or a simulated one, that neurodyn moves in closed loop. A class needs no base class.

    It is made without arguments in a process of its own, which calls its methods (`stop` from another thread where
    another call hangs). Where that process dies or hangs for good, another one makes the class again and calls `stop`:
    the constructor must not move the robot. Any exception stops the robot and ends the command; its text is shown.

    Positions and velocities have the order, units and frames of the declared robot (`neurodyn robots ROBOT`): of a
    floating base the position of its origin [m], a quaternion x, y, z, w, the velocity of its centre of mass [m/s] and
    its angular velocity [rad/s], all in world axes.

    Attributes:
        rate: Frames per second [Hz]: that of the task's robot, or a multiple, at which commands are repeated.
        realtime: Whether time goes on by itself. If not, `command` lasts until a frame has passed in the simulation.
        control: Whether commands are torques [N m or N], target positions for the robot's own controller [rad or m], or
            "command" for what the actuators of the declaration take; then `stop` is needed.
        patience: Longest time that `observe` or `command` may take, and that a robot in real time goes on without a new
            command [s]; by default five frames, at least 0.2 s, and 30 s if not `realtime`.
        reset_seconds: Longest time that `reset` may take [s]; by default 60.
        velocity_filter: Time constant of the filter of velocities that `observe` leaves out [s]; by default a frame.
    """

    rate: float
    realtime: bool = True
    control: Literal["torque", "target", "command"] = "torque"
    patience: float | None = None
    reset_seconds: float = 60.0
    velocity_filter: float | None = None

    def reset(self) -> None:
        """Bring the robot to where an episode starts, and return once it is there."""
        ...

    def observe(self) -> Mapping[str, Any]:
        """Return what is measured now.

        "q" has shape [nq]; "qd", shape [nv], may be left out (filtered differences of q then), and "time" [s] where the
        frame number says it. Whatever else there is, numbers or 1-D arrays of equal length in every frame, is only
        logged.
        """
        ...

    def command(self, values: np.ndarray) -> None:
        """Take torques, targets or commands, shape [nu], within the declared limits, until the next command."""
        ...

    def stop(self) -> None:
        """Make the robot safe at once. Without this method it gets zero torques, or where it is as targets.

        It may be called from another thread while `observe` or `command` hangs, and more than once.
        """
        ...

# SPDX-License-Identifier: Apache-2.0
"""Acting in any dynamics: starts and ends of episodes, and planning through a model."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.control.planning.planner import Planner
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.control.robot.in_loop import robot_in_loop
    from neurodyn.control.robot.worker import RobotInterface
    from neurodyn.control.starts import LoggedStarts, SampledStarts

__all__ = ["LoggedStarts", "Planner", "RobotInterface", "SampledStarts", "open_dynamics", "robot_in_loop"]

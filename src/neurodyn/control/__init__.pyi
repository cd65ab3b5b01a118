# SPDX-License-Identifier: Apache-2.0
from .planning.planner import Planner as Planner
from .resolve import open_dynamics as open_dynamics
from .robot.followed import BaseFollower as BaseFollower
from .robot.in_loop import robot_in_loop as robot_in_loop
from .robot.sensed import SensedReading as SensedReading
from .robot.worker import RobotInterface as RobotInterface
from .starts import LoggedStarts as LoggedStarts, SampledStarts as SampledStarts

# SPDX-License-Identifier: Apache-2.0
"""A robot that changed is refused before anything is learned from it or said of it."""

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("newton", reason="the extra sim is not installed")

from neurodyn.core.errors import MismatchError
from neurodyn.data.store import Store
from neurodyn.dynamics import load
from neurodyn.fit.same_robot import require_robot, require_same_teacher
from neurodyn.robots import Robot

CHANGED = r"armature of joint 'hinge' is \[0\.5\] instead of \[0\.01\]"


def heavier(robot: Robot) -> Robot:
    replace = msgspec.structs.replace
    return replace(robot, joints=(robot.joints[0], replace(robot.joints[1], armature=0.5)))


def test_the_robot_itself_is_accepted(cartpole: Robot, teacher_file: Path):
    require_same_teacher(cartpole, Store.open(teacher_file))
    require_robot(load("pretrained:cartpole"), cartpole)


def test_data_from_before_the_change_are_refused(cartpole: Robot, teacher_file: Path):
    with pytest.raises(MismatchError, match=CHANGED):
        require_same_teacher(heavier(cartpole), Store.open(teacher_file))


def test_a_model_from_before_the_change_is_refused(cartpole: Robot):
    with pytest.raises(MismatchError, match=CHANGED):
        require_robot(load("pretrained:cartpole"), heavier(cartpole))

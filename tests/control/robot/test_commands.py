# SPDX-License-Identifier: Apache-2.0
"""A robot of the user's that takes the commands of its actuators: ranges, log, and what it needs."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn.control.robot.in_loop import RobotDynamics
from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control
from neurodyn.robots import Robot

HAND = """
class Hand:
    rate, realtime, control = 50.0, False, "command"
    def reset(self):
        self.q = [0.0, 0.0]
    def observe(self):
        return {"q": list(self.q), "qd": [0.0, 0.0]}
    def command(self, values):
        self.q = [0.01 * float(values[0]), 0.01 * float(values[0])]
    def stop(self):
        pass
class NoStop(Hand):
    stop = None
class Torques(Hand):
    control = "torque"
"""


@pytest.fixture
def robot() -> Robot:
    fingers = ("left", "right")
    servo = {"kind": "servo", "kp": 50.0, "transmission": {"left": 0.5, "right": 0.5}, "command_range": [0.0, 2.0]}
    return from_dict(
        {"name": "hand", "dt": 0.02, "actuated": {"grip": 10.0}, "drives": {"grip": servo},
         "joints": [{"name": name, "kind": "prismatic", "lower": 0.0, "upper": 0.1} for name in fingers],
         "range": {"qd": {name: [-9.0, 9.0] for name in fingers}}}, Robot)  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "hand.py").write_text(HAND)
    return tmp_path / "hand.py"


def test_commands_are_cut_to_their_ranges_and_logged(robot: Robot, file: Path, tmp_path: Path):
    log = tmp_path / "robot.csv"
    dynamics = RobotDynamics(robot, f"{file}:Hand", log)
    try:
        assert dynamics.spec.control_kind == "command"
        state = dynamics.start()
        for value in (1.5, 7.0, -1.0, 1.0):
            _, step = dynamics.step(None, state, Control(target=torch.full((1, 1), value)))
            state = step.state
    finally:
        dynamics.close()
    assert state.q.tolist() == [pytest.approx([0.01, 0.01])]
    head, *lines = log.read_text().splitlines()
    commands = np.array([float(line.split(",")[head.split(",").index("control.grip")]) for line in lines])
    np.testing.assert_allclose(commands, [1.5, 2.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("NoStop", "control is 'command' without a method stop"),
        ("Torques", "takes each torque, and robot 'hand' each com"),
    ],
)
def test_a_class_that_does_not_fit_is_refused(robot: Robot, file: Path, tmp_path: Path, kind: str, said: str):
    with pytest.raises(InputError, match=re.escape(said)):
        RobotDynamics(robot, f"{file}:{kind}", tmp_path / "robot.csv")

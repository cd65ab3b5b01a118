# SPDX-License-Identifier: Apache-2.0
"""An export on the terminal: alike names as one, the worst joints first, nothing wider than 80 columns."""

from pathlib import Path

import pytest

from neurodyn.cli.terminal.exports import group_names, print_export
from neurodyn.interop import Exported, Replay


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["hip.mass"], ["hip.mass"]),
        (["hip.damping", "knee.damping", "hip.mass"], ["*.damping (2)", "hip.mass"]),
        (["hip.com.x", "hip.com.y", "knee.com.z"], ["*.com (3)"]),
        (["actuator.hip.gain", "actuator.knee.gain", "actuator.hip.kd"], ["actuator.*.gain (2)", "actuator.hip.kd"]),
        (["gravity"], ["gravity"]),
    ],
)  # fmt: skip
def test_names_that_end_alike_are_one(names: list[str], shown: list[str]):
    assert group_names(names) == shown


def test_the_worst_joints_come_first_and_totals_last(capsys: pytest.CaptureFixture[str]):
    joints = [f"joint{number}" for number in range(12)]
    errors = {name: 1e-3 * number for number, name in enumerate(joints)}
    replay = Replay(
        target="mjcf", simulator="MuJoCo", horizon=0.5, windows=100, split="test", units=dict.fromkeys(joints, "rad"),
        original={**errors, "joint3": None}, exported=errors, model=errors,
    )  # fmt: skip
    print_export(Exported(Path("out"), ("arm.xml",), tuple(f"{name}.damping" for name in joints), (), replay))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("replayed in MuJoCo: 100 stretches of 0.5 s")
    assert [line.split()[0] for line in lines[3:10]] == [f"joint{number}" for number in range(11, 4, -1)]
    assert lines[10].split() == ["all", "mrad", "diverges", "6.49", "6.49"]
    assert lines[11:] == ["holds: *.damping (12)", "arm.xml: out"]
    assert max(map(len, lines)) <= 80


def test_what_is_not_replayed_says_why(capsys: pytest.CaptureFixture[str]):
    replay = Replay(target="isaaclab", reason="Isaac Lab is not installed")
    print_export(Exported(Path("out"), ("robot_cfg.py",), (), ("hip.mass",), replay, ("delays are whole steps",)))
    assert capsys.readouterr().out.splitlines() == [
        "not replayed: Isaac Lab is not installed", "left out: hip.mass", "delays are whole steps", "robot_cfg.py: out",
    ]  # fmt: skip

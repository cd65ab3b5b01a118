# SPDX-License-Identifier: Apache-2.0
"""What `adapt` prints: one screen of 80 columns, names explained, and no next step for what fails."""

from pathlib import Path

import msgspec
import pytest

from neurodyn.cli.terminal.results import print_adaptation, print_next
from neurodyn.identify.result import MotionLikeness, NextMotion, Reference
from tests.report.test_identification_page import GROUP, figures

MOTION = NextMotion(file="next-motion.csv", seconds=30.0, amplitude=0.5, deviations={}, tells=["narrows elbow.damping"])


def test_it_fits_a_screen_and_explains_its_names(capsys: pytest.CaptureFixture[str]):
    beside = [Reference(name=name, errors={GROUP: [1.0]}) for name in ("persistence", "gru")]
    print_adaptation(msgspec.structs.replace(figures(), references=beside))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    text = " ".join(line.strip() for line in lines)
    parts = [
        "Friction at elbow is 5.7 N m", "24 times better than the declaration", "test episodes", "identified",
        "persistence", "plain network (GRU)", "declared: the robot's file as it is", "persistence: nothing moves",
    ]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(("verdict", "suggests"), [("ok", True), ("warning: odd", True), ("fails: useless", False)])
def test_a_result_that_fails_suggests_nothing(verdict: str, suggests: bool, capsys: pytest.CaptureFixture[str]):
    result = msgspec.structs.replace(figures(), verdict=verdict, next=MOTION)
    print_next(result, Path("runs/arm"))
    printed = capsys.readouterr().out
    assert ("next: neurodyn export runs/arm --to mjcf\n" in printed) is suggests
    assert ("narrows" in printed) is suggests
    assert ("or: neurodyn policy train TASK --dynamics runs/arm\n" in printed) is suggests
    assert all(len(line) <= 80 for line in printed.splitlines())


def test_a_policy_of_a_robot_that_logs_no_base_sees_sensors(capsys: pytest.CaptureFixture[str]):
    result = figures()
    like = {GROUP: MotionLikeness(speed=1.0, spectrum=0.5)}
    rungs = [msgspec.structs.replace(rung, motion=like) for rung in result.rungs]
    print_next(msgspec.structs.replace(result, rungs=rungs), Path("runs/arm"))
    assert "or: neurodyn policy train TASK --observe sensors --dynamics runs/arm\n" in capsys.readouterr().out

# SPDX-License-Identifier: Apache-2.0
"""A check of a simulator beside a log: what the log says of the declaration, and bad logs refused before any check."""

from pathlib import Path

import msgspec
import pytest

from neurodyn.core.errors import InputError
from neurodyn.evaluate.checks.declaration import check_log
from neurodyn.evaluate.checks.run import check
from neurodyn.evaluate.checks.subject import Subject
from neurodyn.robots import load
from tests import stand_in


def subject(data: Path | None) -> Subject:
    return Subject(load("cartpole"), None, 4, 4, 0, data=None if data is None else str(data))


def test_without_a_log_there_is_nothing_to_check():
    assert check_log(subject(None)).findings == []


@pytest.mark.parametrize("targets", [True, False])
def test_a_worn_robot_is_near_its_declaration(targets: bool, tmp_path: Path):
    stand_in.log(16, 40, targets=targets).write(tmp_path / "log.h5")
    found = check_log(subject(tmp_path / "log.h5"))
    assert [one.what for one in found.findings] == [
        "held-out log (test): base position, 10 frames", "held-out log (test): joint angle, 10 frames",
    ]  # fmt: skip
    assert all(one.verdict != "fails" and 0 < one.value < 100.0 for one in found.findings)


def test_a_declaration_of_another_robot_fails(tmp_path: Path):
    """The log says that everything moves the other way."""
    store = stand_in.log(16, 40, targets=False)
    store.qd[:] *= -1.0
    store.write(tmp_path / "log.h5")
    findings = check_log(subject(tmp_path / "log.h5")).findings
    assert findings[0].verdict == "fails"
    assert "the robot is another one than declared" in findings[0].advice


def test_a_bad_log_is_refused_before_any_check(tmp_path: Path):
    store = stand_in.log(8, 20, targets=False)
    spec = msgspec.structs.replace(store.header.spec, dt=0.01)
    other = type(store)(msgspec.structs.replace(store.header, spec=spec), store.frames, store.table)
    other.write(tmp_path / "log.h5")
    with pytest.raises(InputError, match="holds other data of 'cartpole'"):
        check("cartpole", str(tmp_path / "log.h5"))

# SPDX-License-Identifier: Apache-2.0
"""Servos by name in declarations, column maps and tables of drives."""

import pytest

from neurodyn.core.config import from_dict
from neurodyn.core.description.drive import Drive, require_drives
from neurodyn.core.description.drive_tables import SERVOS, read_drives
from neurodyn.core.errors import InputError


@pytest.mark.parametrize("name", list(SERVOS))
def test_every_servo_is_a_drive_with_a_source(name):
    one = SERVOS[name]
    assert require_drives({"joint": one.drive}, ("joint",), "drives") == "target"
    assert one.armature > 0.0
    assert len(one.source) > 50


def test_a_servo_is_its_numbers_with_what_is_overridden(tmp_path):
    (given,) = read_drives({"joint": {"servo": "xl330-m288", "gain": 0.5}}, tmp_path).values()
    known = SERVOS["xl330-m288"].drive
    drive = from_dict(given, Drive)
    assert drive.gain == 0.5
    assert (drive.kind, drive.kp, drive.load_motor) == (known.kind, known.kp, known.load_motor)
    (tmp_path / "gains.csv").write_text("joint,servo,kp\nhip,xl330-m288,2\nknee,,3\n")
    table = read_drives("gains.csv", tmp_path)
    assert from_dict(table["hip"], Drive).load_external == known.load_external
    assert float(table["hip"]["kp"]) == 2.0
    assert table["knee"]["kind"] == "pd"


def test_an_unknown_servo_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"unknown servo 'xl999'; valid: .*xl330-m288"):
        read_drives({"joint": {"servo": "xl999"}}, tmp_path)

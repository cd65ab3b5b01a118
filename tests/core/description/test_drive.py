# SPDX-License-Identifier: Apache-2.0
"""Drives as plain data: which of their numbers are quantities, and within which bounds."""

import math

import pytest

from neurodyn.core.config import from_dict, to_dict
from neurodyn.core.description.drive import UNITS, Drive, bounds, require_drives
from neurodyn.core.errors import InputError


def test_stages_that_are_absent_have_no_quantities():
    assert set(Drive().quantities()) == {"gain", "coulomb", "viscous", "stribeck", "stribeck_speed", "bias"}
    assert "delay" in Drive(longest_delay=0.02).quantities()
    elastic = Drive(stiffness=50.0, rotor_inertia=0.01).quantities()
    assert {"stiffness", "rotor_inertia", "elastic_damping", "backlash"} <= set(elastic)


def test_every_number_has_a_unit():
    numbers = {name for name in Drive.__struct_fields__ if name not in ("kind", "feedback", "longest_delay")}
    assert numbers == set(UNITS)


def test_a_joint_on_a_prescribed_path_has_no_numbers():
    drive = Drive(kind="velocity")
    assert drive.leads
    assert drive.quantities() == {}
    assert require_drives({"a": drive, "b": drive}, ("a", "b"), "drives") == "velocity"
    with pytest.raises(InputError, match="which the joint follows exactly; valid: no other numbers"):
        require_drives({"a": Drive(kind="velocity", delay=0.01)}, ("a",), "drives")
    with pytest.raises(InputError, match="commands are torques at 'b' and velocities at 'a'"):
        require_drives({"a": drive}, ("a", "b"), "drives")


def test_bounds_keep_numbers_meaningful():
    drive = Drive(delay=0.01)
    assert bounds("delay", drive) == (0.0, 0.02)
    assert bounds("bias", drive) == (None, None)
    assert bounds("effort_limit", drive)[0] > 0.0


def test_a_drive_is_read_from_plain_data():
    drive = Drive(kind="pd", kp=30.0, kd=1.0, delay=0.004)
    assert from_dict(to_dict(drive), Drive) == drive
    with pytest.raises(InputError, match="keys of Drive"):
        from_dict({"kind": "pd", "stiff": 3.0}, Drive)
    with pytest.raises(InputError, match=r"delay is -0.1; valid: a finite number of at least 0"):
        from_dict({"delay": -0.1}, Drive)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"delay": -0.01}, "delay is -0.01; valid: a finite number of at least 0"),
        ({"stiffness": 0.0, "rotor_inertia": 0.1}, "stiffness is 0.0; valid: a finite number above 0"),
        ({"stiffness": 10.0}, "stiffness and rotor_inertia"),
        ({"backlash": 0.1}, "backlash is 0.1; valid: 0 without a spring"),
        ({"saturation_effort": 3.0}, "saturation_effort and velocity_limit"),
        ({"delay": 0.02, "longest_delay": 0.01}, "longest_delay is 0.01; valid: at least the delay"),
        ({"feedback": "motor"}, "feedback is motor; valid: joint"),
        ({"bias": math.inf}, "bias is inf; valid: a finite number"),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused(numbers, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        Drive(**numbers)


@pytest.mark.parametrize(
    ("drives", "said"),
    [
        ({"hip": Drive()}, "there is no driven joint 'hip'; valid: ankle, knee"),
        ({"knee": Drive(kind="hydraulic")}, "unknown kind of drive 'hydraulic'; valid: pd, torque"),
        ({"knee": Drive(kind="pd", kp=1.0)}, "drive of 'knee' is of kind 'pd' and has no kd"),
        ({"knee": Drive(kind="pd", kp=1.0, kd=0.1)}, "targets at 'knee' and torques at 'ankle'"),
    ],
)  # fmt: skip
def test_drives_that_cannot_be_are_refused(drives, said):
    with pytest.raises(InputError, match=said):
        require_drives(drives, ("knee", "ankle"), "drives")

# SPDX-License-Identifier: Apache-2.0
"""Drives as plain data: which of their numbers are quantities, and within which bounds."""

import math
import re

import pytest

from neurodyn.core.config import from_dict, to_dict
from neurodyn.core.description.actuation import PLACES, BodyWrench, DriveState, FrameOffset, Muscle, SliderCrank
from neurodyn.core.description.drive import DRIVE_NUMBERS, Drive, bounds, require_drives
from neurodyn.core.description.drive_tables import drives_of_controller
from neurodyn.core.errors import InputError


def test_stages_that_are_absent_have_no_quantities():
    assert set(Drive().quantities()) == {"gain", "coulomb", "viscous", "stribeck", "stribeck_speed", "bias"}
    assert "delay" in Drive(longest_delay=0.02).quantities()
    elastic = Drive(stiffness=50.0, rotor_inertia=0.01).quantities()
    assert {"stiffness", "rotor_inertia", "elastic_damping", "backlash"} <= set(elastic)


def test_named_numbers_are_all_fields_but_words_counts_bounds_and_parts():
    others = {
        "kind",
        "feedback",
        "encoder",
        "updates",
        "longest_delay",
        "muscle",
        "command_range",
        "force_range",
        "state",
    }
    assert set(Drive.__struct_fields__) - others - set(PLACES) == set(DRIVE_NUMBERS)


def test_a_joint_on_a_prescribed_path_has_no_numbers():
    drive = Drive(kind="velocity")
    assert drive.prescribes_motion
    assert drive.quantities() == {}
    assert require_drives({"a": drive, "b": drive}, ("a", "b"), "drives") == "velocity"
    with pytest.raises(InputError, match="which the joint follows exactly; valid: no other numbers"):
        require_drives({"a": Drive(kind="velocity", delay=0.01)}, ("a",), "drives")
    with pytest.raises(InputError, match="commands are torques at 'b' and velocities at 'a'"):
        require_drives({"a": drive}, ("a", "b"), "drives")


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (DriveState, {"kind": "filter"}, "time_constant is None; valid: a finite number above 0"),
        (
            DriveState,
            {"kind": "integrator", "time_constant": 0.1},
            "time_constant is 0.1; valid: nothing: an integrator",
        ),
        (DriveState, {"kind": "muscle", "time_constant": 0.01}, "release is None; valid: a finite number above 0 [s]"),
        (
            Muscle,
            {"force": 1.0, "lengths": (0.1, 0.2), "longest": 0.9},
            "longest is 0.9; valid: a finite number above 1",
        ),
        (FrameOffset, {"link": "a"}, "between: along and about is 0; valid: a factor other than 0"),
        (SliderCrank, {"rod": -1.0}, "crank: rod is -1.0; valid: a finite number above 0"),
    ],
)
def test_parts_of_drives_are_checked(make, given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(**given)


def test_a_muscles_numbers_are_quantities():
    state = DriveState(kind="muscle", time_constant=0.01, release=0.04)
    drive = Drive(kind="muscle", muscle=Muscle(force=9.0, lengths=(0.1, 0.2)), state=state, tendons={"biceps": 1.0})
    found = drive.quantities()
    assert {"muscle.force": 9.0, "muscle.lengths.upper": 0.2, "release": 0.04}.items() <= found.items()
    changed = drive.with_quantities(found | {"muscle.lengths.upper": 0.3, "release": 0.05, "gain": 2.0})
    assert changed.quantities() == found | {"muscle.lengths.upper": 0.3, "release": 0.05, "gain": 2.0}
    assert from_dict(to_dict(changed), Drive) == changed
    assert bounds("muscle.longest", drive)[0] > 1.0
    assert bounds("kd", Drive(kind="affine", per_command=1.0, kd=-0.1)) == (None, None)


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
        ({"load_motor": -0.1}, "load_motor is -0.1; valid: a finite number of at least 0"),
        ({"stribeck_exponent": 0.0}, "stribeck_exponent is 0.0; valid: a finite number above 0"),
        ({"supply": -1.0}, "supply is -1.0; valid: a finite number of at least 0"),
        ({"transmission": {"a": 1.0}, "load_motor": 0.1}, "load_motor is 0.1; valid: none for a drive that acts"),
        ({"delay": 0.02, "longest_delay": 0.01}, "longest_delay is 0.01; valid: at least the delay"),
        ({"feedback": "motor"}, "feedback is motor; valid: joint"),
        ({"bias": math.inf}, "bias is inf; valid: a finite number"),
        ({"command_range": (1.0, 1.0)}, "command_range is [1.0, 1.0]; valid: a lower number before a greater one"),
        ({"transmission": {}}, "transmission is {}; valid: a finite factor other than 0"),
        ({"transmission": {"a": 1.0}, "bias": 0.1}, "bias is 0.1; valid: 0 for a drive with a transmission"),
        ({"wrench": BodyWrench(link="a"), "kp": 1.0}, "wrench is beside kp; valid: a force that does not depend on"),
        ({"transmission": {"a": 1.0}, "tendons": {"b": 1.0}}, "drive: places is transmission and tendons; valid: one"),
        ({"adhesion": "a", "kd": 1.0}, "adhesion is beside kd; valid: a force that does not depend on position"),
        ({"tendons": {"a": 0.0}}, "tendons is {'a': 0.0}; valid: a finite factor other than 0 for each of its joints"),
    ],
)
def test_numbers_that_cannot_be_are_refused(numbers, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Drive(**numbers)


SERVO = Drive(kind="servo", kp=80.0, command_range=(-1.0, 1.0), transmission={"left": 0.5, "right": 0.5})


@pytest.mark.parametrize("given", ["pd", [1.0], 3])
def test_an_older_controller_that_is_no_table_is_refused(given):
    with pytest.raises(InputError, match=r"controller is .*; valid: a table of kind, kp, kd, limit and updates"):
        drives_of_controller(given)


def test_actuators_stand_beside_drives_of_any_kind():
    beside = {"grip": SERVO, "knee": Drive(kind="pd", kp=1.0, kd=0.1)}
    assert require_drives(beside, ("grip", "knee", "ankle"), "drives") == "command"
    assert from_dict(to_dict(SERVO), Drive) == SERVO
    assert SERVO.joints == ("left", "right")
    assert {"kp": 80.0, "kd": 0.0}.items() <= SERVO.quantities().items()
    motor = Drive(kind="affine", per_command=-2.0, state=DriveState(kind="filter", time_constant=0.02))
    assert motor.remembers
    assert not motor.without_memory().remembers
    assert {"per_command": -2.0, "offset": 0.0, "kp": 0.0, "kd": 0.0}.items() <= motor.quantities().items()
    assert not {"per_command", "offset"} & set(Drive().quantities())


@pytest.mark.parametrize(
    ("drives", "said"),
    [
        ({"hip": Drive()}, "there is no driven joint 'hip'; valid: ankle, knee"),
        ({"knee": Drive(kind="hydraulic")}, "unknown kind of drive 'hydraulic'; valid: affine, dc_motor, dc_servo"),
        ({"knee": Drive(dead_band=0.1)}, "has a dead_band; valid with one: a position controller, such as pd or servo"),
        ({"knee": Drive(kind="dc_servo", kp=1.0, kd=0.1)}, "is of kind 'dc_servo' and has no saturation_effort"),
        ({"knee": Drive(kind="servo")}, "drive of 'knee' is of kind 'servo' and has no kp; give one"),
        ({"knee": Drive(force_range=(0.0, 1.0))}, "takes no force_range; valid with one: kind servo or affine"),
        ({"knee": Drive(kind="pd", kp=1.0)}, "drive of 'knee' is of kind 'pd' and has no kd"),
        ({"knee": Drive(kind="pd", kp=1.0, kd=0.1)}, "targets at 'knee' and torques at 'ankle'"),
    ],
)
def test_drives_that_cannot_be_are_refused(drives, said):
    with pytest.raises(InputError, match=said):
        require_drives(drives, ("knee", "ankle"), "drives")

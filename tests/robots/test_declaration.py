# SPDX-License-Identifier: Apache-2.0
"""A declaration says what a robot is, or one line says what is wrong with it."""

import math

import pytest

from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.robots import Robot

GOOD = {
    "name": "probe",
    "asset": "probe.urdf",
    "joints": [
        {"name": "rail", "kind": "prismatic", "lower": -1.0, "upper": 1.0},
        {"name": "swing", "kind": "revolute", "continuous": True},
    ],
    "actuated": {"rail": 10.0},
    "dt": 0.01,
}

BAD = {
    "unknown joint in sampling": ({"sampling": {"q": {"knee": [0, 1]}}}, "'knee'; valid: rail, swing"),
    "undriven joint in sampling of controls": ({"sampling": {"control": {"swing": [0, 1]}}}, "'swing'; valid: rail"),
    "reversed range": ({"reset": {"qd": {"rail": [2, 1]}}}, "lower is above upper"),
    "range of three": ({"range": {"q": {"rail": [0, 1, 2]}}}, "length 2"),
    "controls in reset": ({"reset": {"control": {"rail": [0, 1]}}}, "no meaning"),
    "zero dt": ({"dt": 0}, "dt is 0"),
    "endless dt": ({"dt": math.inf}, "dt is inf"),
    "dt as a word": ({"dt": "fast"}, "dt"),
    "no joints": ({"joints": []}, "joints is empty"),
    "joint twice": ({"joints": [GOOD["joints"][0], GOOD["joints"][0]]}, "twice"),
    "unknown kind": ({"joints": [{"name": "rail", "kind": "screw"}]}, "screw"),
    "limits reversed": (
        {"joints": [{"name": "rail", "kind": "prismatic", "lower": 1, "upper": -1}]},
        "lower 1 must be below upper -1",
    ),
    "one limit": ({"joints": [{"name": "rail", "kind": "prismatic", "lower": 1}]}, "both lower and upper"),
    "continuous slider": ({"joints": [{"name": "rail", "kind": "prismatic", "continuous": True}]}, "revolute"),
    "negative armature": ({"joints": [{"name": "rail", "kind": "prismatic", "armature": -1}]}, "armature is -1"),
    "unknown actuated": ({"actuated": {"knee": 1.0}}, "actuated names the unknown joint 'knee'"),
    "no effort": ({"actuated": {"rail": 0.0}}, "effort of 'rail'"),
    "unknown solver": ({"teacher": {"solver": "xpbd"}}, "xpbd"),
    "interval that does not divide": ({"teacher": {"substeps": 5, "mass_matrix_interval": 2}}, "divisor"),
    "no substeps": ({"teacher": {"substeps": 0}}, "substeps is 0"),
    "option of the other solver": ({"teacher": {"iterations": 5}}, "options of mujoco"),
    "locked and moving": ({"locked": ["rail"]}, "both in joints and in locked"),
    "unknown suffix": ({"asset": "probe.step"}, ".urdf"),
    "friction that is ignored": (
        {"joints": [{"name": "rail", "kind": "prismatic", "friction": 1.0}]},
        "featherstone ignores",
    ),
    "floating without a free joint": ({"fixed_base": False}, "fixed_base"),
    "misspelt key": ({"gravty": [0, 0, 0]}, "gravty"),
    "gravity of two": ({"gravity": [0, 0]}, "gravity"),
}


def test_good_declaration_gives_a_spec():
    robot = from_dict(GOOD, Robot)
    assert robot.spec.q_names == ("rail", "swing")
    assert robot.spec.controls == ("rail",)
    assert robot.spec.continuous == (False, True)
    assert robot.spec.control_dofs == (0,)


@pytest.mark.parametrize("case", BAD)
def test_bad_declaration_is_one_line_that_names_the_place(case):
    change, words = BAD[case]
    with pytest.raises(InputError) as caught:
        from_dict({**GOOD, **change}, Robot, "probe.yaml")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("probe.yaml")
    assert words in message


def test_leading_sliders_are_invariant_unless_declared_otherwise():
    assert from_dict(GOOD, Robot).invariant_joints == ("rail",)
    assert from_dict({**GOOD, "invariant": []}, Robot).invariant_joints == ()
    turned = {**GOOD, "joints": GOOD["joints"][::-1]}
    assert from_dict(turned, Robot).invariant_joints == ()


def test_ranges_follow_from_limits_and_effort_where_they_are_not_declared():
    robot = from_dict(GOOD, Robot)
    assert robot.sampling_interval("q", "rail") == (-1.0, 1.0)
    assert robot.sampling_interval("q", "swing") == (-math.pi, math.pi)
    assert robot.sampling_interval("control", "rail") == (-10.0, 10.0)
    assert robot.reset_interval("qd", "swing") == (0.0, 0.0)
    with pytest.raises(InputError, match=r"sampling: \{qd: \{swing"):
        robot.sampling_interval("qd", "swing")

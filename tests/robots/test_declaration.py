# SPDX-License-Identifier: Apache-2.0
"""A declaration says what a robot is, or one line says what is wrong with it."""

import math

import pytest

from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.robots import Robot, load

GOOD = {
    "name": "probe",
    "asset": "contact point.urdf",
    "joints": [
        {"name": "rail", "kind": "prismatic", "lower": -1.0, "upper": 1.0},
        {"name": "swing", "kind": "revolute", "continuous": True},
    ],
    "actuated": {"rail": 10.0},
    "dt": 0.01,
}

FLAT = {"grounds": {"flat": {"shapes": [{"kind": "plane"}]}}, "teacher": {"solver": "mujoco"}}
GAINS = {"kp": [1, 2], "kd": [0, 1], "spread": 0.5, "hold": [1, 1]}
BAD = {
    "unknown joint in sampling": ({"sampling": {"q": {"knee": [0, 1]}}}, "'knee'; valid: rail, swing"),
    "undriven joint in sampling of controls": ({"sampling": {"control": {"swing": [0, 1]}}}, "'swing'; valid: rail"),
    "reversed range": ({"reset": {"qd": {"rail": [2, 1]}}}, "valid: the lower bound first"),
    "range of three": ({"range": {"q": {"rail": [0, 1, 2]}}}, "length 2"),
    "controls in reset": ({"reset": {"control": {"rail": [0, 1]}}}, "no meaning"),
    "zero dt": ({"dt": 0}, "dt is 0"),
    "endless dt": ({"dt": math.inf}, "dt is inf"),
    "dt as a word": ({"dt": "fast"}, "dt"),
    "no joints": ({"joints": []}, "joints is empty"),
    "joint twice": ({"joints": [GOOD["joints"][0], GOOD["joints"][0]]}, "twice"),
    "unknown kind": ({"joints": [{"name": "rail", "kind": "spiral"}]}, "spiral"),
    "limits reversed": (
        {"joints": [{"name": "rail", "kind": "prismatic", "lower": 1, "upper": -1}]},
        "lower 1 is above upper -1",
    ),
    "one limit": ({"joints": [{"name": "rail", "kind": "prismatic", "lower": 1}]}, "both lower and upper"),
    "continuous slider": ({"joints": [{"name": "rail", "kind": "prismatic", "continuous": True}]}, "revolute"),
    "negative armature": ({"joints": [{"name": "rail", "kind": "prismatic", "armature": -1}]}, "armature is -1"),
    "unknown actuated": ({"actuated": {"knee": 1.0}}, "actuated names the unknown joint 'knee'"),
    "no effort": ({"actuated": {"rail": 0.0}}, "effort of 'rail'"),
    "unknown solver": ({"teacher": {"solver": "xpbd"}}, "xpbd"),
    "fluid of Featherstone": (
        {"teacher": {"fluid": {"density": 1.2, "viscosity": 1e-5}}},
        "fluid is an option of mujoco",
    ),
    "negative viscosity": (
        {"teacher": {"solver": "mujoco", "fluid": {"density": 1.2, "viscosity": -1.0}}},
        "fluid: viscosity is -1",
    ),
    "interval that does not divide": ({"teacher": {"substeps": 5, "mass_matrix_interval": 2}}, "divisor"),
    "a path as a name": ({"name": "a/b"}, "name is 'a/b'; valid: a name that a folder can have"),
    "endless substeps": ({"simulator": {"substeps": 10**8}}, "substeps is 100000000; valid: 1 to 10,000"),
    "no substeps": ({"teacher": {"substeps": 0}}, "substeps is 0"),
    "option of the other solver": ({"teacher": {"iterations": 5}}, "option of mujoco"),
    "locked and moving": ({"locked": ["rail"]}, "both in joints and in locked"),
    "unknown suffix": ({"asset": "contact point.step"}, ".urdf"),
    "friction that is ignored": (
        {"joints": [{"name": "rail", "kind": "prismatic", "friction": 1.0}]},
        "featherstone ignores",
    ),
    "floating without a free joint": ({"fixed_base": False}, "fixed_base"),
    "misspelt key": ({"gravty": [0, 0, 0]}, "gravty"),
    "gravity of two": ({"gravity": [0, 0]}, "gravity"),
    "endless range": ({"sampling": {"q": {"rail": [0, math.inf]}}}, "two finite numbers"),
    "height of a bolted robot": ({"sampling": {"height": [0, 1]}}, "are those of floating bases"),
    "unknown default ground": ({"ground": "moon"}, "unknown ground 'moon'; valid: (none)"),
    "unknown ground of data": ({"ground_sampling": {"ground": "moon"}}, "ground_sampling names the unknown ground"),
    "overhanging ground": ({**FLAT, "ground_sampling": {"ground": "flat", "tilt": 2.0}}, "below pi/2"),
    "share above one": ({**FLAT, "ground_sampling": {"ground": "flat", "absent": 1.5}}, "absent is 1.5"),
    "reversed heights": (
        {**FLAT, "ground_sampling": {"ground": "flat", "height": [1, 0]}},
        "valid: the lower bound first",
    ),
    "ground without contacts": ({"grounds": FLAT["grounds"]}, "featherstone has no contacts"),
    "rotation that is none": ({"grounds": {"flat": {"shapes": [{"kind": "plane", "rotation": [0, 0, 0, 2]}]}}}, "unit"),
    "no contact points": ({"probes": {"shapes": []}}, "shapes is empty"),
    "no spacing": ({"probes": {"spacing": 0}}, "spacing is 0"),
    "slippery beyond reason": ({"material": {"friction": -1}}, "friction is -1"),
    "no stiffness": ({"material": {"stiffness": 0}}, "stiffness is 0"),
    "unknown nominal": ({"nominal": {"knee": 1.0}}, "nominal names the unknown joint 'knee'"),
    "gains of nothing": ({"actuated": {}, "gains": GAINS}, "there are none"),
    "reversed gains": ({"gains": {**GAINS, "kp": [2, 1]}}, "kp is [2, 1]"),
    "massless": ({"mass_scale": 0}, "mass_scale is 0"),
    "density of nothing": ({"densities": {"*": 0}}, "densities: '*' is 0"),
    "densities of a URDF": ({"densities": {"*": 1000}}, "works for MJCF"),
    "negative inertia": ({"added_inertia": {"*": -1}}, "added_inertia: '*' is -1"),
    "rotation of a bolted robot": ({"reset": {"rotation": 0.1}}, "are those of floating bases"),
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


def test_grounds_go_by_name():
    robot = from_dict({**GOOD, **FLAT, "ground": "flat"}, Robot)
    assert robot.named_ground() is robot.named_ground("flat") is robot.grounds["flat"]
    assert from_dict(GOOD, Robot).named_ground() is None
    with pytest.raises(InputError, match="no ground 'moon'; valid: flat"):
        robot.named_ground("moon")


def test_velocities_of_a_floating_base_go_by_coordinate():
    floating = {
        **GOOD,
        "joints": [{"name": "base", "kind": "free"}, *GOOD["joints"]],
        "fixed_base": False,
        "sampling": {"height": [0.5, 1.0], "tilt": 0.3, "qd": {"base.wz": [-1, 1]}},
    }
    robot = from_dict(floating, Robot)
    assert robot.sampling_interval("qd", "base.wz") == (-1.0, 1.0)
    assert robot.sampling_interval("qd", "base.vx") == (0.0, 0.0)
    with pytest.raises(InputError, match=r"'base\.w' \(did you mean '.*; valid: base\.vx"):
        from_dict({**floating, "sampling": {"qd": {"base.w": [0, 1]}}}, Robot)


def test_the_nominal_pose_is_zero_where_it_is_not_named():
    robot = from_dict({**GOOD, "actuated": {"swing": 1.0, "rail": 2.0}, "nominal": {"swing": 0.5}}, Robot)
    assert robot.nominal_q() == (0.5, 0.0)


def test_an_asset_in_place_of_a_declaration_is_told_how_to_become_one(tmp_path):
    (tmp_path / "dog.urdf").write_text("<robot/>")
    with pytest.raises(InputError, match=r"is an asset, no declaration; `neurodyn init .*dog\.urdf` writes one"):
        load(tmp_path / "dog.urdf")

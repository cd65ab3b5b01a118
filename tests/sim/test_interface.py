# SPDX-License-Identifier: Apache-2.0
"""What both reference simulators share: checks of options, names in declarations, and writers of parameters."""

import math

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.sim.articulations import added_inertia, declared_colliders, require_joints, shapes_of_contacts
from neurodyn.sim.interface import checked_pose, gravity_vectors, solver_steps, specified_limits, value_of
from neurodyn.sim.newton.articulation import kept_newton_articulation
from neurodyn.sim.parameters import ParameterWriter, nothing

LABELS = {1: {"left_foot", "left_leg"}, 2: {"right_foot"}, 3: {"trunk"}}


def test_poses_and_gravities_are_those_of_all_worlds_or_of_each(cartpole):
    assert checked_pose(None, 2).tolist() == [[0, 0, 0, 0, 0, 0, 1]] * 2
    assert gravity_vectors(cartpole, 2, None).tolist() == pytest.approx(cartpole.gravity)
    assert gravity_vectors(cartpole, 2, [0.0] * 6).shape == (2, 3)
    assert solver_steps(cartpole, None) == cartpole.simulator.substeps


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda robot: checked_pose(torch.zeros(3, 7), 2), r"the ground's pose has shape \[3, 7\]; valid: \[2, 7\]"),
        (lambda robot: checked_pose(torch.full((7,), math.nan), 2), "all finite"),
        (lambda robot: gravity_vectors(robot, 2, [0.0] * 4), "gravity has 4 numbers; valid: 3 finite ones, or 3 for"),
        (lambda robot: solver_steps(robot, 0), "substeps is 0; valid: at least 1"),
        (lambda robot: require_joints(robot, [("slider", "prismatic")]), r"instead of the declared slider"),
        (lambda robot: shapes_of_contacts({"tail": ("*tail",)}, LABELS), r"'tail' \(\*tail\) matches no collision"),
        (lambda robot: declared_colliders(msgspec.structs.replace(robot, colliders=("arm",)), LABELS), "match no coll"),
        (lambda robot: added_inertia(msgspec.structs.replace(robot, added_inertia={"arm": 1.0}), ["leg"]), "no link"),
        (lambda robot: Writer(robot).require(["hinge.colour"]), "parameter 'hinge.colour': Nobody's worlds"),
        (lambda robot: Writer(robot).require(["contact.friction"]), "parameter 'contact.friction'"),
    ],
)
def test_what_is_wrong_is_refused_by_name(cartpole, call, message):
    with pytest.raises(InputError, match=message):
        call(cartpole)


def test_numbers_that_importers_fill_in_are_no_limits():
    assert [value_of(x) for x in (None, 0.0, 5.0, 1e6)] == [None, None, 5.0, None]
    assert specified_limits(-1.0, 2.0) == (-1.0, 2.0)
    assert specified_limits(-math.inf, 2.0) == specified_limits(1.0, 1.0) == (None, None)


def test_parts_that_a_declaration_names_are_found(cartpole):
    require_joints(cartpole, [("slider", "prismatic"), ("hinge", "revolute")])
    feet = msgspec.structs.replace(cartpole, colliders=("*_foot",), added_inertia={"l*": 2.0})
    assert declared_colliders(feet, LABELS) == [1, 2]
    assert added_inertia(feet, ["leg", "trunk"]) == [2.0, 0.0]
    assert shapes_of_contacts({"left": ("left*",), "any": ("*",)}, LABELS) == {1: "left", 2: "any", 3: "any"}


class Writer(ParameterWriter):
    """Writes damping and inertias."""

    simulator = "Nobody"

    def __init__(self, robot):
        super().__init__(kept_newton_articulation(robot), {})

    def _contact_writer(self, field, geoms):
        raise AssertionError("a robot without shapes")

    def _joint_writer(self, joint, what):
        return nothing if what in ("damping", "mass") else None


def test_inertial_quantities_of_a_link_come_together(cartpole):
    writer = Writer(cartpole)
    writer.require(["hinge.damping", "hinge.mass"])
    (numbers,) = writer._inertial({"hinge.mass": 7.0, "hinge.damping": 1.0}).values()
    link = kept_newton_articulation(cartpole).links[1]
    assert numbers["mass"] == 7.0
    np.testing.assert_array_equal([numbers[f"com.{axis}"] for axis in "xyz"], link.com)
    assert numbers["inertia.xx"] == link.inertia[0]

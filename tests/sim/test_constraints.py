# SPDX-License-Identifier: Apache-2.0
"""Constraints read from arrays of a MuJoCo model, whichever simulator holds it."""

import msgspec
import numpy as np
import pytest

from neurodyn import robots
from neurodyn.core.description.contacts import ConstraintParameters
from neurodyn.core.errors import Notice
from neurodyn.sim.constraints import constraint_parameters, limit_spring, model_constraints

SOLREF, SOLIMP = (0.02, 1.0), (0.9, 0.95, 0.001, 0.5, 2.0)


def read(arrays):
    """Return a reader of a model with one joint and two geoms, whose arrays are MuJoCo's defaults unless given."""
    usual = {
        "jnt_solref": [SOLREF], "jnt_solimp": [SOLIMP], "dof_solref": [SOLREF], "dof_solimp": [SOLIMP],
        "dof_invweight0": [0.5], "geom_solref": [SOLREF] * 2, "geom_solimp": [SOLIMP] * 2,
        "geom_friction": [(1.0, 0.005, 0.0001)] * 2, "geom_condim": [3] * 2,
    }  # fmt: skip
    return lambda name: np.array((usual | arrays)[name])


@pytest.fixture
def robot():
    cartpole = robots.load("cartpole")
    limited = msgspec.structs.replace(cartpole.joints[0], lower=-1.0, upper=1.0)
    return msgspec.structs.replace(cartpole, joints=(limited, *cartpole.joints[1:]))


def constraints(robot, **arrays):
    joints, geoms = {robot.joints[0].name: (0, 0)}, {"foot": 0, "hand": 1}
    return model_constraints(robot, read(arrays), joints, geoms, elliptic=True, impratio=10.0)


def test_defaults_are_left_out_and_exceptions_are_named_by_shape(robot):
    name = robot.joints[0].name
    soft, springs = constraints(robot, geom_friction=[(1.0, 0.005, 0.0001), (0.3, 0.005, 0.0001)])
    assert (soft.cone, soft.impratio, soft.limits, soft.joint_friction) == ("elliptic", 10.0, {}, {})
    assert soft.own("friction") == {"hand"}
    assert soft.contact == ConstraintParameters()
    least = 2.0 * robot.dt / robot.simulator.substeps
    assert springs == {name: limit_spring(SOLREF, SOLIMP[1], 2.0, least)}
    stiff, _ = constraints(robot, jnt_solref=[(0.05, 1.0)])
    assert stiff.limits == {name: constraint_parameters((0.05, 1.0), SOLIMP)}


def test_a_shape_that_yields_in_its_own_way_gives_a_notice(robot):
    with pytest.warns(Notice, match=r"1 of 2 shapes yield in contacts in a way of their own \(hand\)"):
        constraints(robot, geom_solref=[SOLREF, (0.1, 1.0)])


@pytest.mark.parametrize(("solref", "spring"), [((-100.0, -4.0), (50.0, 2.0)), ((0.1, 2.0), (12.5, 10.0))])
def test_a_limit_is_a_spring_in_either_form_of_solref(solref, spring):
    assert limit_spring(solref, 1.0, 0.5) == pytest.approx(spring)


def test_compliance_is_clipped_as_in_mujoco():
    clipped = constraint_parameters((0.02, -1.0), (0.0, 1.0, 0.0, 0.5, 0.5), exact=True)
    assert clipped.solref == SOLREF
    assert clipped.solimp == (1e-4, 0.9999, 1e-15, 0.5, 1.0)

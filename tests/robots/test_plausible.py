# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from neurodyn.robots import load
from neurodyn.robots.plausible import LIMIT_SLACK, declared_bounds


def state(robot):
    q, qd = torch.zeros(3, robot.spec.nq), torch.zeros(3, robot.spec.nv)
    for joint, name in ((j, j.name) for j in robot.spec.joints if j.scalar and j.lower is not None):
        q[:, robot.spec.q_names.index(name)] = 0.5 * (joint.lower + joint.upper)
    return q, qd


def test_limits_are_widened_by_a_share_of_the_range():
    bounds = declared_bounds(load("cartpole"))
    assert bounds.q == ((-4.0 - 8.0 * LIMIT_SLACK, 4.0 + 8.0 * LIMIT_SLACK), (-math.inf, math.inf))


def test_a_declared_range_applies():
    robot = load("anymal-c")
    bounds = declared_bounds(robot)
    assert bounds.qd[robot.spec.qd_names.index("LF_HAA")] == robot.range.qd["LF_HAA"]


@pytest.mark.parametrize("value", [1e3, math.nan, math.inf, -math.inf])
def test_a_state_far_beyond_is_outside(value):
    robot = load("anymal-c")
    q, qd = state(robot)
    bounds = declared_bounds(robot)
    assert not bounds.outside(q, qd).any()
    column = robot.spec.qd_names.index("RH_KFE")
    qd[1, column] = value
    assert bounds.outside(q, qd).tolist() == [False, True, False]
    assert bounds.furthest(q, qd)[0] == "RH_KFE"


def test_a_bound_itself_is_inside_in_float32():
    robot = load("anymal-c")
    q, qd = state(robot)
    column = robot.spec.qd_names.index("RH_KFE")
    qd[0, column] = robot.range.qd["RH_KFE"][1]
    assert not declared_bounds(robot).outside(q, qd).any()

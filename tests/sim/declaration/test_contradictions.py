# SPDX-License-Identifier: Apache-2.0
"""Declarations that contradict their assets, and inertias that no body has, are refused in one line."""

import msgspec
import numpy as np
import pytest

from neurodyn import robots
from neurodyn.core.errors import InputError
from neurodyn.sim.bodies import require_possible
from neurodyn.sim.generation import generate
from neurodyn.sim.newton.build import build
from neurodyn.sim.simulators import contradictions, require_consistent


@pytest.fixture
def elastic(cartpole):
    """The cartpole, whose rail ends at 4 m, declared without that end."""
    rail = msgspec.structs.replace(cartpole.joints[0], lower=None, upper=None)
    return msgspec.structs.replace(cartpole, joints=(rail, cartpole.joints[1]))


@pytest.mark.parametrize("name", [name for name in robots.names() if robots.load(name).asset])
def test_robots_that_ship_contradict_no_asset(name):
    robot = robots.load(name)
    if robots.is_installed(robot):
        assert [one for one in contradictions(robot) if one.fatal] == []


def test_limits_left_out_are_refused_before_data_are_made(elastic, tmp_path):
    with pytest.raises(InputError, match=r"limits of the asset left out; declare lower: -4, upper: 4 for slider"):
        generate(elastic, transitions=100, out=tmp_path / "a.h5")
    assert list(tmp_path.iterdir()) == []


def test_an_angle_that_is_declared_to_turn_without_end_is_meant(cartpole):
    assert contradictions(cartpole) == []


def test_torque_beyond_the_actuator_is_refused(cartpole):
    with pytest.raises(InputError, match=r"torque beyond the actuator; declare actuated: \{slider: 1500\}"):
        require_consistent(msgspec.structs.replace(cartpole, actuated={"slider": 2000.0}))


def test_sampled_torque_beyond_the_actuator_is_reported_and_not_refused(cartpole):
    wide = msgspec.structs.replace(cartpole.sampling, control={"slider": (-3000.0, 3000.0)})
    robot = msgspec.structs.replace(cartpole, sampling=wide)
    require_consistent(robot)
    (found,) = contradictions(robot)
    assert (found.what, found.value, found.bound) == ("sampled torque beyond the actuator", 3000.0, 1500.0)


@pytest.mark.parametrize(
    ("moments", "words"),
    [
        ((1.0, 1.0, 3.0), "which no body has"),
        ((-0.5, 1.0, 1.0), "none below 0"),
        ((0.0, 0.0, 0.0), "has no inertia"),
        ((np.nan, 1.0, 1.0), "not finite"),
    ],
)
def test_impossible_inertias_are_refused(moments, words):
    with pytest.raises(InputError, match=words):
        require_possible("arm.urdf: link 'x'", np.diag(moments))


def test_inertias_that_miss_by_rounding_pass():
    require_possible("arm.urdf: link 'x'", np.diag([0.001, 0.01, 0.01105]))
    require_possible("arm.urdf: link 'x'", np.diag([0.0, 0.01, 0.01]))


def test_an_asset_with_an_impossible_inertia_is_not_built(cartpole, tmp_path):
    text = (robots.asset_path(cartpole)).read_text()
    broken = text.replace('izz="', 'izz="9', 1)
    (tmp_path / "cartpole.urdf").write_text(broken)
    robot = msgspec.structs.replace(cartpole, folder=str(tmp_path))
    with pytest.raises(InputError, match=r"link 'cart': principal moments of inertia are .* no body has"):
        build(robot)

# SPDX-License-Identifier: Apache-2.0
"""Swings that drives afford: torques against a numerical swing, what is cut where they do not, what users give."""

from dataclasses import replace

import numpy as np
import pytest

from neurodyn.core.config import from_dict
from neurodyn.robots import is_installed, load
from neurodyn.walking.closed_loop import walk, walk_headline
from neurodyn.walking.controller import (
    CLEARANCE,
    FREQUENCY,
    OVERLOAD,
    affordable_swing,
    swing_load,
    swing_motion,
    walker,
)
from neurodyn.walking.convex_mpc import MpcSettings
from neurodyn.walking.gait import GAITS, SPEED, Commands
from neurodyn.walking.plant import walking_plant

WALK = GAITS["walk"]


def driven(quadruped, load):
    """Return the robot with drives whose limits a walk at full height and speed exceeds by this factor."""
    now = swing_load(quadruped, WALK, CLEARANCE * quadruped.height, SPEED)
    return replace(quadruped, effort=quadruped.effort * now / load)


def test_the_load_is_the_torque_of_the_swing(a1):
    quadruped, clearance = a1.quadruped, 0.08
    way = np.array([SPEED * WALK.period, 0.0, 0.0])
    _, _, acceleration = swing_motion(np.zeros((500, 3)), way + np.zeros((500, 3)), np.linspace(0, 1, 500), WALK.swing,
                                      clearance)  # fmt: skip
    for leg in range(4):
        torque = acceleration @ quadruped.foot_inertia[leg] @ quadruped.jacobian[leg]
        assert np.abs(torque / quadruped.effort[leg]).max() <= 1.01 * swing_load(quadruped, WALK, clearance, SPEED)
    upward = swing_load(quadruped, WALK, clearance, 0.0)
    assert swing_load(quadruped, WALK, 2 * clearance, 0.0) == pytest.approx(2 * upward)


def test_strong_drives_swing_feet_with_the_default_clearance_and_frequency(a1):
    unlimited = replace(a1.quadruped, effort=np.full_like(a1.quadruped.effort, np.inf))
    for gait, robot in [*((gait, a1.quadruped) for gait in GAITS.values()), (WALK, unlimited)]:
        swing = affordable_swing(robot, gait, MpcSettings())
        assert (swing.clearance, swing.frequency) == (pytest.approx(CLEARANCE * a1.quadruped.height), FREQUENCY)
        assert swing.speed == np.inf


def test_weak_drives_swing_feet_lower_and_softer_under_limited_commands(a1):
    weak = driven(a1.quadruped, 2.0)
    swing = affordable_swing(weak, WALK, MpcSettings())
    assert swing.clearance == pytest.approx(0.5 * CLEARANCE * weak.height)
    assert swing.frequency == pytest.approx(FREQUENCY / np.sqrt(2.0))
    assert swing_load(weak, WALK, swing.clearance, swing.speed) == pytest.approx(OVERLOAD)
    assert affordable_swing(driven(weak, 1000.0), WALK, MpcSettings()).speed >= 0.0
    asked = np.array([[SPEED, 0.0, 0.8], [0.1, 0.0, 0.0]])
    given = replace(swing, speed=0.4).limit(asked, weak.stance)
    arm = np.cross([0.0, 0.0, given[0, 2]], weak.stance)[:, :2]
    assert np.linalg.norm(given[0, :2] + arm, axis=1).max() == pytest.approx(0.4)
    assert given[0] == pytest.approx(given[0, 0] / asked[0, 0] * asked[0])
    assert (given[1] == asked[1]).all()


def test_given_settings_override_those_that_drives_afford(a1):
    weak = driven(a1.quadruped, 2.0)
    high = affordable_swing(weak, WALK, MpcSettings(clearance=0.25))
    assert (high.clearance, high.frequency) == (pytest.approx(0.25 * weak.height), pytest.approx(FREQUENCY / 2**0.5))
    stored = {"clearance": 0.3, "swing_frequency": 40.0}  # as files say of networks that imitate without the rule
    swing = affordable_swing(weak, WALK, from_dict(stored, MpcSettings))
    assert (swing.clearance, swing.frequency, swing.speed) == (pytest.approx(0.3 * weak.height), 40.0, np.inf)


@pytest.mark.slow
def test_an_anymal_walks_with_default_settings():
    pytest.importorskip("newton")
    robot = load("anymal-c")
    if not is_installed(robot):
        pytest.skip("example-robot-data is not installed")
    plant = walking_plant(robot, "hybrid")
    commands = Commands.drawn(4, 20.0, 102)
    results = []
    for settings in (None, MpcSettings(clearance=CLEARANCE, swing_frequency=FREQUENCY)):
        controller, _, _ = walker(plant, gait="walk", settings=settings)
        results.append(walk(plant, controller, commands, seconds=2.5, seed=102)[0])
    assert results[0].falls == 0 < results[1].falls
    assert results[0].foot_speed == pytest.approx(0.57, abs=0.02)
    assert "commands scaled down to feet of 0.57 m/s" in walk_headline(results[0])
    assert "scaled down" not in walk_headline(results[1])

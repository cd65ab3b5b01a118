# SPDX-License-Identifier: Apache-2.0
"""Bounds of velocities follow from efforts, masses and limits; real motion stays well within, explosions do not."""

import math

import msgspec
import pytest
import torch

from neurodyn import robots
from neurodyn.core.seeds import generator
from neurodyn.robots import Ranges
from neurodyn.sim.batches import Recorder
from neurodyn.sim.energies import MARGIN, plausible_bounds
from neurodyn.sim.newton.simulator import ReferenceSimulator
from neurodyn.sim.simulators import articulation


def test_the_bound_of_a_cart_is_that_of_its_energy(cartpole):
    """A cart of 52.5 kg under 1500 N over 8 m, that starts at up to 10 m/s with a pole that does so too."""
    bounds = plausible_bounds(cartpole, articulation(cartpole))
    slider = bounds.qd[bounds.qd_names.index("slider")][1]
    work, start = 1500.0 * 8.0, 0.5 * 52.51 * 100.0
    fastest_pole = 0.5 * 0.85 * 100.0 + 0.5 * 2.5 * 10.0 * 10.0 + 2 * 2.5 * 9.81 * 0.5
    least = MARGIN * math.sqrt(2 * (work + start) / 52.51)
    most = MARGIN * math.sqrt(2 * (work + start + 2 * fastest_pole) / 50.01)
    assert least < slider < most


def test_a_drive_that_nothing_stops_may_accelerate_for_a_whole_trajectory(cartpole):
    rail = msgspec.structs.replace(cartpole.joints[0], lower=None, upper=None)
    endless = msgspec.structs.replace(cartpole, joints=(rail, cartpole.joints[1]))
    seconds = endless.frames * endless.dt
    bounds = plausible_bounds(endless, articulation(endless))
    assert bounds.qd[0][1] > 1500.0 / 52.5 * seconds


def test_declared_ranges_win(cartpole):
    robot = msgspec.structs.replace(cartpole, range=Ranges(qd={"slider": (-3.0, 3.0)}))
    bounds = plausible_bounds(robot, articulation(robot))
    assert bounds.qd[0] == (-3.0, 3.0)
    assert bounds.qd[1][1] > 100.0


@pytest.mark.parametrize("name", ["cartpole", "pendulum", "cube"])
def test_motion_of_data_stays_below_two_thirds_of_the_bounds(name):
    robot = robots.load(name)
    simulator = ReferenceSimulator(robot, 64)
    bounds = plausible_bounds(robot, simulator.built)
    _, qd, _, _ = Recorder(simulator, robot.frames).record(generator(0, name))
    share = (qd.abs() / torch.tensor([upper for _, upper in bounds.qd])).amax((0, 1))
    assert (share < 2 / 3).all()
    assert (share > 0.02).all()

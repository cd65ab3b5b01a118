# SPDX-License-Identifier: Apache-2.0
"""Random controllers: targets about the nominal pose, gains by trajectory, and torques within the effort."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn import robots
from neurodyn.core.seeds import generator
from neurodyn.robots.sections import Gains, Ranges
from neurodyn.sim.batches import Recorder, sample_targets
from neurodyn.sim.newton.simulator import ReferenceSimulator

GAINS = Gains(kp=(100.0, 500.0), kd=(1.0, 20.0), spread=0.5, hold=(300.0, 7.0))


@pytest.fixture(scope="module")
def robot():
    """A cartpole whose cart is held by a controller."""
    return msgspec.structs.replace(robots.load("cartpole"), gains=GAINS, nominal={"slider": 0.25}, frames=40)


def test_targets_and_gains_fill_their_ranges(robot):
    targets = sample_targets(robot, 2000, 30, generator(0, "x"))
    assert targets.target.shape == (2000, 30, 1)
    assert targets.target.amin() == pytest.approx(-0.25, abs=1e-3)
    assert targets.target.amax() == pytest.approx(0.75, abs=1e-3)
    assert targets.target.diff(dim=1).abs().mean() == pytest.approx(1 / 3, abs=0.01)
    for gain, (low, high) in ((targets.kp, GAINS.kp), (targets.kd, GAINS.kd)):
        assert gain.shape == (2000, 1)
        assert gain.amin() == pytest.approx(low, abs=0.01 * high)
        assert gain.amax() == pytest.approx(high, rel=0.01)


def test_a_share_holds_the_nominal_pose_with_the_gains_of_evaluation(robot):
    held = torch.from_numpy(generator(1, "held").random(2000) < 0.3)
    targets = sample_targets(robot, 2000, 30, generator(0, "x"), held)
    assert torch.equal((targets.kp == 300.0).flatten() & (targets.kd == 7.0).flatten(), held)
    assert (targets.target[held] == 0.25).all()
    assert (targets.target[~held] != 0.25).all()


def test_torques_follow_the_present_state_within_the_effort(robot):
    recorder = Recorder(ReferenceSimulator(robot, 16), 40)
    q, qd, control, ground = recorder.record(generator(0, "x"))
    assert ground is None
    again = generator(0, "x")
    again.random((16, 4), dtype=np.float32)  # the states, two positions and two velocities each
    again.random(16)  # which are passive
    targets = sample_targets(robot, 16, 40, again)
    expected = targets.kp * (targets.target[..., 0] - q[:, :-1, 0]) - targets.kd * qd[:, :-1, 0]
    assert (expected.abs() > 1500).any()
    torch.testing.assert_close(control[..., 0], expected.clamp(-1500, 1500))


def test_a_share_starts_from_resets_without_torque():
    robot = msgspec.structs.replace(robots.load("cartpole"), reset_fraction=0.5, frames=3)
    robot = msgspec.structs.replace(robot, reset=Ranges(q={"slider": (7.0, 8.0), "hinge": (0.0, 0.0)}))
    q, _, control, _ = Recorder(ReferenceSimulator(robot, 400), 3).record(generator(0, "x"))
    reset = q[:, 0, 0] >= 7.0
    assert reset.float().mean() == pytest.approx(0.5, abs=0.08)
    assert (control[reset] == 0.0).all()
    assert (control[~reset] != 0.0).any(-1).any(-1).all()

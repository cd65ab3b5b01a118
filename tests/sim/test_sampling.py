# SPDX-License-Identifier: Apache-2.0
"""Random states and torques fill the declared ranges and repeat for a seed."""

import msgspec
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.robots import Joint
from neurodyn.sim.sampling import sample_resets, sample_states, sample_torques


def test_states_fill_their_ranges(cartpole):
    q, qd = sample_states(cartpole, 20_000, generator(0, "x"))
    assert q.shape == qd.shape == (20_000, 2)
    assert q.dtype == torch.float32
    torch.testing.assert_close(q.amax(0), torch.tensor([3.5, torch.pi]), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(qd.amin(0), torch.tensor([-10.0, -10.0]), rtol=1e-3, atol=1e-3)
    assert q.mean(0).abs().max() < 0.1


def test_torques_are_independent_in_every_frame(cartpole):
    u = sample_torques(cartpole, 500, 100, generator(0, "x"))[..., 0]
    assert u.shape == (500, 100)
    assert u.abs().max() <= 1500
    assert torch.corrcoef(torch.stack([u[:, :-1].flatten(), u[:, 1:].flatten()]))[0, 1].abs() < 0.02


def test_resets_fill_their_own_ranges(cartpole):
    q, qd = sample_resets(cartpole, 1000, generator(0, "x"))
    assert q[:, 0].abs().max() <= 1
    assert qd.abs().max() <= 1


def test_a_seed_repeats_and_another_does_not(cartpole):
    first, same, other = (sample_states(cartpole, 4, generator(seed, "x"))[0] for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_free_joints_are_refused(cartpole):
    robot = msgspec.structs.replace(
        cartpole, joints=(Joint(name="base", kind="free"),), fixed_base=False, actuated={}, teacher=cartpole.teacher,
        sampling=type(cartpole.sampling)(), reset=type(cartpole.reset)(),
    )  # fmt: skip
    with pytest.raises(InputError, match="no random states for free joint 'base'"):
        sample_states(robot, 1, generator(0, "x"))

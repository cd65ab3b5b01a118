# SPDX-License-Identifier: Apache-2.0
"""States of two batches, world by world."""

import torch

from neurodyn.dynamics.batch import State


def test_each_world_is_taken_whole():
    mask = torch.tensor([True, False, True])
    one, other = (State(torch.full((3, 2), v), torch.full((3, 1), v), torch.full((3, 4), v)) for v in (1.0, 2.0))
    found = one.where(mask, other)
    for values in (found.q, found.qd, found.channels):
        assert values[:, 0].tolist() == [1.0, 2.0, 1.0]
        assert (values == values[:, :1]).all()


def test_channels_of_one_side_stay():
    plain, measured = State(torch.zeros(2, 1), torch.zeros(2, 1)), State(*torch.ones(3, 2, 1).unbind())
    mask = torch.tensor([True, False])
    assert plain.where(mask, plain).channels is None
    assert torch.equal(plain.where(mask, measured).channels, measured.channels)
    assert torch.equal(measured.where(mask, plain).channels, measured.channels)

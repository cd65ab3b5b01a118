# SPDX-License-Identifier: Apache-2.0
"""Windows that a failure cuts off: every frame counts the same at every horizon, members keep to their own episodes."""

import numpy as np
import torch

from neurodyn.data.mixture import Mixture
from neurodyn.learn.samplers import EndSampler
from tests import worlds


def sampler(forecast: int = 5, context: int = 6, store=None, members: int = 2, seed: int = 0) -> EndSampler:
    store = store or worlds.make_store(episodes=12, frames=20)
    own = [[np.arange(m, 12, 2)] for m in range(members)]
    return EndSampler(Mixture.of(store), own, context, forecast, 4000, seed, torch.device("cpu"))


def test_a_failure_is_seen_at_every_frame_of_the_forecast_but_the_last():
    found = sampler().draw()
    assert found is not None
    windows = found.windows
    assert windows.q.shape == (2, 500, 12, 2)
    assert windows.failed is not None
    assert windows.failed.any(-1).all()
    frames = windows.failed.nonzero()[:, -1] - 6
    counts = torch.bincount(frames, minlength=6)
    assert counts[[0, 5]].tolist() == [0, 0]  # a forecast of five sees the fifth in windows within the episode
    assert (counts[1:5] > 200).all()
    assert (windows.valid.sum(-1).flatten() == frames + 7).all()


def test_the_weight_is_their_share_of_the_windows():
    found = sampler().draw()
    assert found is not None
    # Two of six episodes of each member fail; each has ten windows of 11 frames, and four that its end cuts off.
    assert found.weight == 2 * 4 / (6 * 10)


def test_members_see_failures_of_their_own_episodes():
    store = worlds.make_store(episodes=12, frames=20)
    found = sampler(store=store).draw()
    assert found is not None
    last = {m: {store.q[store.offsets[e + 1] - 1].tobytes() for e in range(m, 12, 2)} for m in range(2)}
    for member in range(2):
        ends = found.windows.q[member, :, -1].numpy()
        assert {row.tobytes() for row in ends} <= last[member]


def test_there_are_none_without_failures_or_in_forecasts_of_one_frame():
    assert sampler(forecast=1).draw() is None
    assert sampler(store=worlds.make_store(episodes=12, frames=20, failures=False)).draw() is None
    assert sampler(context=20, forecast=2, store=worlds.make_store(episodes=12, frames=22)).draw() is not None


def test_draws_continue_from_a_saved_state():
    one, other = sampler(), sampler(seed=5)
    one.draw()
    other.load_state_dict(one.state_dict())
    a, b = one.draw(), other.draw()
    assert a is not None
    assert b is not None
    assert torch.equal(a.windows.q, b.windows.q)

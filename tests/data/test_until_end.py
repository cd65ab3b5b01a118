# SPDX-License-Identifier: Apache-2.0
"""Windows beyond the end of an episode: nothing of the next episode is taken for it, from memory and from a file."""

import dataclasses

import numpy as np
import pytest
import torch

from neurodyn.data.split import failing_episodes
from neurodyn.data.store import Store
from neurodyn.data.windows import windows_along, windows_at
from tests import worlds


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path) -> Store:
    made = worlds.make_store(episodes=9, frames=20)
    if request.param == "memory":
        return made
    made.write(tmp_path / "log.h5")
    return Store.open(tmp_path / "log.h5", memory=0)


def test_a_window_repeats_the_last_state_beyond_the_end(store: Store):
    found = windows_at(store, np.array([0, 1, 8]), np.array([15, 0, 20]), 8)
    assert found.valid.sum(1).tolist() == [6, 9, 1]
    whole = worlds.make_store(episodes=9, frames=20).q.reshape(9, 21, 2)
    np.testing.assert_array_equal(found.q[0, :6], whole[0, 15:])
    np.testing.assert_array_equal(found.q[0, 6:], np.repeat(whole[0, -1:], 3, 0))
    np.testing.assert_array_equal(found.q[1], whole[1, :9])
    np.testing.assert_array_equal(found.q[2], np.repeat(whole[8, -1:], 9, 0))
    assert found.failed is not None
    assert found.failed.nonzero().tolist() == [[0, 5]]  # episodes 0, 3 and 6 fail; the last window is of episode 8
    assert failing_episodes(store, np.arange(9), 20).tolist() == [0, 3, 6]
    assert failing_episodes(store, np.arange(9), 21).tolist() == []


def test_windows_along_a_log_start_at_every_state_with_a_past_and_a_future(store: Store):
    found = list(windows_along(store, store.episodes(), 5, 7, most=10**6, batch=32))
    starts = torch.cat([windows.q[:, 5] for windows in found])
    whole = torch.from_numpy(worlds.make_store(episodes=9, frames=20).q.reshape(9, 21, 2).copy())
    torch.testing.assert_close(starts, whole[:, 5:-1].flatten(0, 1))
    few = torch.cat([windows.q for windows in windows_along(store, store.episodes(), 5, 7, most=30)])
    assert 20 <= len(few) <= 30


def test_nothing_is_yielded_of_episodes_that_are_too_short(store: Store):
    assert not list(windows_along(store, store.episodes(), 20, 7, most=10))
    table = dataclasses.replace(store, table=store.table.copy())
    assert len(next(windows_along(table, table.episodes(), 19, 7, most=10)).q) == 9

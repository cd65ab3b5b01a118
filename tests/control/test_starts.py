# SPDX-License-Identifier: Apache-2.0
"""Starts from logs: whole windows of one episode, and none that ends in a failure."""

import numpy as np
import pytest
import torch

from neurodyn.control.starts import LoggedStarts, MixedStarts, SampledStarts, widen_rows
from neurodyn.core.errors import InputError
from neurodyn.data.header import Status, StoreHeader
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.batch import State, Window
from neurodyn.tasks import load
from tests.policy.small_worlds import SPEC, Fixed

LENGTH, EPISODES = 6, 8


@pytest.fixture
def store(tmp_path):
    """Episodes in which q counts 100 x episode + frame; all of them end in a failure."""
    path = tmp_path / "log.h5"
    with StoreWriter(path, StoreHeader(source="log", spec=SPEC)) as writer:
        for episode in range(EPISODES):
            q = (100.0 * episode + np.arange(LENGTH + 1, dtype=np.float32))[None, :, None]
            control = np.full((1, LENGTH, 1), float(episode), np.float32)
            writer.append(q, 0.0 * q, control, status=[Status.TERMINATED])
    return Store.open(path)


def test_windows_are_whole_and_never_end_in_a_failure(store):
    starts = LoggedStarts(store, 4, seed=0, split=None)
    window = starts.draw(200)
    assert window.q.shape == (200, 5, 1)
    assert window.torque.shape == (200, 4, 1)
    frames = window.q[..., 0] % 100
    assert torch.equal(frames.diff(dim=1), torch.ones(200, 4))
    assert set(window.present.q[:, 0].remainder(100).tolist()) == {4.0, 5.0}  # 6 is where the episode failed
    assert torch.equal(window.torque[:, 0, 0], window.q[:, 0, 0].div(100).floor())
    assert torch.equal(LoggedStarts(store, 4, seed=0, split=None).draw(200).q, window.q)


def test_a_log_of_failures_alone_is_refused(store):
    with pytest.raises(InputError, match="end where an episode of the task does"):
        LoggedStarts(store, LENGTH, seed=0, split=None).draw(3)


def test_states_in_which_the_task_would_end_are_left_out(store):
    def ended(state, contacts):
        assert contacts is None
        return state.q[:, 0].remainder(100) < 5

    window = LoggedStarts(store, 4, seed=0, split=None, ended=ended).draw(50)
    assert set(window.present.q[:, 0].remainder(100).tolist()) == {5.0}


def test_too_short_a_log_is_refused(store):
    with pytest.raises(InputError, match="no episode of 'mass' holds a window of 7 frames; the longest"):
        LoggedStarts(store, 7, seed=0, split=None)


def test_sampled_starts_repeat_by_seed():
    task = load("cartpole-swingup")
    one, same, other = (SampledStarts(task, seed).draw(10).q for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_contexts_are_spread_over_all_worlds():
    rows = torch.tensor([2, 0])
    state = widen_rows(State(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])), rows, 4)
    assert state.q[:, 0].tolist() == [2.0, 0.0, 1.0, 0.0]
    window = Window(torch.ones(2, 3, 1), torch.ones(2, 3, 1), torch.ones(2, 2, 1), torch.ones(2, 3, 5))
    wide = widen_rows(window, rows, 4)
    assert isinstance(wide, Window)
    assert wide.channels is not None
    assert wide.channels.shape == (4, 3, 5)
    assert wide.torque[:, 0, 0].tolist() == [1.0, 0.0, 1.0, 0.0]


def test_starts_of_two_sources_have_their_shares(store):
    starts = MixedStarts(Fixed([-1.0]), LoggedStarts(store, 1, seed=0, split=None), 0.3, seed=0)
    drawn = [starts.draw(count) for count in (1, 2, 7) * 100]
    ours = torch.cat([state.q[:, 0] for state in drawn]) == -1.0
    assert ours.float().mean() == pytest.approx(0.3, abs=0.03)
    assert all(isinstance(state, State) and state.worlds in (1, 2, 7) for state in drawn)


def test_several_logs_are_drawn_from_in_shares(store):
    header = StoreHeader(source="log", spec=SPEC)
    other = Store(header, store.frames - 10_000.0, store.table, store.ground)
    starts = LoggedStarts(Mixture.of([store, other], (0.25, 0.75)), 1, seed=0, split=None)
    present = torch.cat([starts.draw(count).present.q[:, 0] for count in (1, 64, 135)])
    assert (present < 0).float().mean() == pytest.approx(0.75, abs=0.05)

# SPDX-License-Identifier: Apache-2.0
"""Windows: uniform, never across seams, and resumable bit by bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, episode_table
from neurodyn.data.split import assign_splits, episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import (
    Origin,
    WindowIndex,
    Windows,
    WindowSampler,
    all_windows,
    blocks_of,
    concatenate,
    select_windows,
)

from .conftest import counting_batch, header


def memory_store(lengths, split=Split.TRAIN):
    lengths = np.asarray(lengths)
    table = episode_table(lengths, split=split)
    q, qd, control = counting_batch(len(lengths), int(lengths.max()))
    control = np.concatenate((control, np.zeros((len(lengths), 1, 1))), axis=1)
    rows = [np.concatenate((q[e], qd[e], control[e]), axis=1)[: n + 1] for e, n in enumerate(lengths)]
    return Store(header(), np.concatenate(rows).astype(np.float32), table)


def check_windows(batch, length):
    """Values count up by one from state to state, so a seam or a wrong row shows."""
    q = batch.q[..., 0]
    assert batch.q.shape[1:] == (length + 1, 2)
    assert batch.control.shape[1:] == (length, 1)
    assert torch.equal(q - q[:, :1], torch.arange(length + 1.0).expand(len(q), -1))
    assert torch.equal(batch.qd[..., 0], q + 0.5)
    assert torch.equal(batch.control[..., 0], -1.0 - q[:, :-1])


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_all_windows_are_all_starts_and_never_cross_a_seam(lengths, length):
    store = memory_store(lengths)
    expected = [(e, s) for e, n in enumerate(lengths) for s in range(n - length + 1)]
    if not expected:
        with pytest.raises(InputError, match=f"window of {length} frames"):
            list(all_windows(store, length))
        return
    found = []
    for windows in all_windows(store, length, batch=7):
        check_windows(windows, length)
        assert windows.q[:, 0, 0].tolist() == (1000 * windows.episode + windows.start).tolist()
        found += list(zip(windows.episode.tolist(), windows.start.tolist(), strict=True))
    assert found == expected


@pytest.mark.parametrize("length", [1, 3, 10])
def test_drawn_windows_never_cross_a_seam(store, length):
    sampler = WindowSampler(store, length, batch=500, seed=0)
    for _ in range(5):
        check_windows(sampler.draw(), length)


def test_draws_are_uniform_over_starts(store):
    sampler = WindowSampler(store, 4, split=Split.TRAIN, batch=7500, seed=1)
    assert sampler.count == 7 + 7 + 1
    _, counts = np.unique(sampler.draw().q[:, 0, 0].numpy(), return_counts=True)
    assert len(counts) == 15
    assert abs(counts - 500).max() < 5 * np.sqrt(500)


def test_windows_stay_within_their_split(store):
    drawn = WindowSampler(store, 2, split=Split.VALIDATION, batch=100, seed=0).draw()
    assert set((drawn.q[:, 0, 0] // 1000).tolist()) == {3.0}


def test_stride(store):
    index = WindowIndex(store, np.array([0, 2]), 2, stride=3)
    assert index.rows(np.arange(index.count)).tolist() == [0, 3, 6, 22]


def test_sampling_resumes_bitwise(store):
    whole = WindowSampler(store, 3, batch=16, seed=5)
    whole.draw()
    saved = whole.state_dict()
    expected = [whole.draw().q for _ in range(3)]
    other = WindowSampler(store, 3, batch=16, seed=99)
    other.load_state_dict(saved)
    for want in expected:
        assert torch.equal(other.draw().q, want)


def test_validation_is_lent_by_whole_episodes():
    store = memory_store([5] * 30)
    train, validation = episodes_of(store, Split.TRAIN), episodes_of(store, Split.VALIDATION)
    assert len(validation) == 3
    assert sorted([*train, *validation]) == list(range(30))
    assert np.array_equal(validation, episodes_of(store, Split.VALIDATION))


def test_declared_validation_is_not_touched(store):
    assert episodes_of(store, Split.TRAIN).tolist() == [0, 1, 2]
    assert episodes_of(store, Split.VALIDATION).tolist() == [3]


def test_missing_split_is_an_input_error(store):
    with pytest.raises(InputError, match="no episode for test"):
        episodes_of(store, Split.TEST)


@given(st.integers(1, 50), st.integers(0, 5))
def test_splits_leave_something_to_train_on(episodes, seed):
    split = assign_splits(episodes, seed, test=0.2)
    assert (split == Split.TRAIN).any()
    assert np.array_equal(split, assign_splits(episodes, seed, test=0.2))
    if episodes > 2:
        assert set(split.tolist()) == {0, 1, 2}


def test_windows_are_cut_into_past_and_future(store):
    windows = select_windows(store, Split.TRAIN, 4, dtype=torch.float32)
    later = windows.after(3)
    assert (later.frames, later.past.frames, windows.after(0).past) == (1, 3, None)
    assert torch.equal(later.q, windows.q[:, 3:])
    assert torch.equal(later.past.q[:, -1], later.q[:, 0])
    assert torch.equal(later.past.control, windows.control[:, :3])
    some = later.rows(torch.tensor([2, 0]))
    assert torch.equal(some.past.q, windows.q[[2, 0], :4])
    assert torch.equal(some.start, windows.start[[2, 0]])
    assert later.to(torch.float64).past.qd.dtype == torch.float64
    parts = [*later.batches(4)]
    assert [part.count for part in parts] == [4, 4, 4, 3]
    whole = concatenate(parts)
    assert torch.equal(whole.past.q, later.past.q)
    assert torch.equal(whole.episode, windows.episode)


def test_a_selection_is_spread_evenly_or_drawn_one_in_each_part(store):
    every = select_windows(store, Split.TRAIN, 2, stride=1)
    few = select_windows(store, Split.TRAIN, 2, most=5)
    assert few.count == 5
    assert few.q.dtype == torch.float64
    drawn = [select_windows(store, Split.TRAIN, 2, stride=1, most=5, seed=seed).start.tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert every.count == 9 + 9 + 3
    with pytest.raises(InputError, match="no window of 2 frames moves faster than 1e\\+09"):
        select_windows(store, None, 2, most=5, moving=1e9)


def test_logs_of_the_same_name_are_one():
    one, other = Origin.of_logs(torch.tensor([0, 1]), ("a", "b")), Origin.of_logs(torch.tensor([0, 0]), ("b",))
    both = Origin.combine([one, other], torch.cat)
    assert (both.logs, both.log.tolist()) == (("a", "b"), [0, 1, 1, 1])
    q = torch.zeros(3, 2, 1)
    assert Windows(q, q, q[:, 1:]).logs == ("log",)


def test_blocks_are_logs_or_stretches_of_them(store):
    windows = select_windows(store, None, 2, stride=1)
    blocks = blocks_of(windows)
    assert blocks.text == f"{blocks.count} stretches of logs"
    for block in range(blocks.count):
        rows = blocks.of_window == block
        assert len(windows.episode[rows].unique()) == 1
        assert (windows.start[rows].diff() == 1).all()
    many = replace(windows, origin=Origin.of_logs(torch.arange(windows.count) % 12, [str(k) for k in range(12)]))
    assert blocks_of(many).text == "12 logs"
    counts = blocks_of(many).sums(torch.ones(windows.count, 1))[:, 0]
    assert counts.sum() == windows.count

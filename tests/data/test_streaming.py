# SPDX-License-Identifier: Apache-2.0
"""Large stores: the same rows from the file as from memory, and draws that cover it in bounded memory and resume."""

import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.data import store as stored_rows
from neurodyn.data import windows
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.split import chosen_episodes, sample_states, split_blocks
from neurodyn.data.store import Store, StoredRows, take
from neurodyn.data.training_range import training_range
from neurodyn.data.windows import WindowSampler, all_windows
from neurodyn.data.writer import StoreWriter
from neurodyn.learn.run_folder import checksum

from .conftest import counting_batch, header
from .test_windows import check_windows

EPISODES, FRAMES = 40, 12


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A store of 520 rows, read in blocks of 50, of which every third episode is for validation."""
    monkeypatch.setattr(stored_rows, "_BLOCK_BYTES", 50 * 20)
    monkeypatch.setattr(windows, "_BLOCK", 16)
    split = np.where(np.arange(EPISODES) % 3 == 2, Split.VALIDATION, Split.TRAIN)
    lengths = FRAMES - np.arange(EPISODES) % 4
    with StoreWriter(tmp_path / "data.h5", header()) as writer:
        writer.append(*counting_batch(EPISODES, FRAMES), split=split, lengths=lengths)
    return tmp_path / "data.h5"


def both(path) -> tuple[Store, Store]:
    memory, file = Store.open(path), Store.open(path, memory=0)
    assert isinstance(memory.frames, np.ndarray)
    assert isinstance(file.frames, StoredRows)
    return memory, file


def test_rows_of_a_file_are_those_in_memory(path):
    memory, file = both(path)
    assert file.frames.shape == memory.frames.shape
    np.testing.assert_array_equal(file.frames[30:70], memory.frames[30:70])
    starts = np.array([400, 3, 3, 77, 49, 50, *range(100, 140)])
    np.testing.assert_array_equal(take(file.frames, starts, 3), take(memory.frames, starts, 3))
    assert checksum(file) == checksum(memory)
    assert training_range(file) == training_range(memory)
    assert all(np.array_equal(getattr(file, name), getattr(memory, name)) for name in ("q", "qd", "control"))
    inside = np.repeat(chosen_episodes(memory, Split.VALIDATION), memory.lengths + 1)
    np.testing.assert_array_equal(np.concatenate(list(split_blocks(file, Split.VALIDATION))), memory.frames[inside])


def test_few_windows_of_a_file_are_drawn_as_from_memory(path):
    one, two = (WindowSampler(store, 3, split=Split.VALIDATION, batch=64, seed=4) for store in both(path))
    for _ in range(3):
        first, second = one.draw(), two.draw()
        assert torch.equal(first.q, second.q)
        assert torch.equal(first.control, second.control)
    for first, second in zip(*(all_windows(store, 3, batch=30) for store in both(path)), strict=True):
        assert torch.equal(first.qd, second.qd)
        np.testing.assert_array_equal(first.episode, second.episode)


def test_a_stream_covers_all_windows_of_the_split_in_bounded_memory(path):
    _, file = both(path)
    held = 100 * 20
    sampler = WindowSampler(file, 3, batch=50, seed=1, stream=held)
    rows = sampler._stream._rows
    assert rows.numel() * rows.element_size() <= held
    assert len(rows) < len(sampler._stream._first)
    seen: dict[float, int] = {}
    for _ in range(200):
        batch = sampler.draw()
        check_windows(batch, 3)
        for first in batch.q[:, 0, 0].tolist():
            seen[first] = seen.get(first, 0) + 1
    assert len(seen) == sampler.count
    assert all(int(first // 1000) % 3 != 2 for first in seen)
    counts = np.array(list(seen.values()))
    assert counts.min() > 0.4 * counts.mean()
    assert counts.max() < 1.8 * counts.mean()


def test_a_stream_resumes_bitwise(path):
    _, file = both(path)
    whole, part = (WindowSampler(file, 3, batch=40, seed=2, stream=2000) for _ in range(2))
    batches = [whole.draw() for _ in range(30)]
    for _ in range(17):
        part.draw()
    resumed = WindowSampler(file, 3, batch=40, seed=2, stream=2000)
    resumed.load_state_dict(part.state_dict())
    for batch in batches[17:]:
        assert torch.equal(resumed.draw().q, batch.q)


def test_stores_in_memory_and_in_files_mix(path):
    memory, file = both(path)
    sampler = MixtureSampler(Mixture.of([memory, file], [0.25, 0.75]), 3, batch=40, seed=0, stream=2000)
    parts = sampler.draw()
    assert [number for number, _ in parts] == [0, 1]
    for _, batch in parts:
        check_windows(batch, 3)
    state, following = sampler.state_dict(), sampler.draw()
    sampler.load_state_dict(state)
    for (_, one), (_, two) in zip(sampler.draw(), following, strict=True):
        assert torch.equal(one.q, two.q)


def test_an_even_sample_is_of_all_phases_of_an_episode(path):
    memory, _ = both(path)
    every = sample_states(memory, Split.TRAIN, 10**6, following=1)
    ends = memory.offsets[1:] - 1
    inside = np.repeat(chosen_episodes(memory, Split.TRAIN), memory.lengths + 1)
    inside[ends] = False
    np.testing.assert_array_equal(every, np.flatnonzero(inside))
    some = sample_states(memory, Split.TRAIN, 100, following=1)
    assert len(some) == 100
    assert np.isin(some, every).all()
    assert (np.diff(some) > 0).all()
    episode = np.searchsorted(memory.offsets, some, side="right") - 1
    assert len(np.unique(some - memory.offsets[episode])) == FRAMES
    assert len(Mixture.of([memory, memory]).sampled_columns("q", Split.TRAIN, 100)) == 100


def test_a_file_that_is_gone_is_one_line(path):
    _, file = both(path)
    file.frames.__dict__.pop("_file", None)
    path.unlink()
    with pytest.raises(InputError, match="no such file"):
        file.frames[0:10]

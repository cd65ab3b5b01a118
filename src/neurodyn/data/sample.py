# SPDX-License-Identifier: Apache-2.0
"""Rows of the episodes of a split: an even sample of bounded size for statistics, or all of them block by block."""

from collections.abc import Iterator

import numpy as np

from neurodyn.core.seeds import generator
from neurodyn.data.split import chosen_episodes, episodes_of
from neurodyn.data.store import Store
from neurodyn.data.stored_rows import blocks

SAMPLE = 500_000
"""Rows that are enough for means and deviations."""


def sample_states(store: Store, split: int, most: int, *, following: int = 0) -> np.ndarray:
    """Return the rows of states of a split that are followed by others of their episode, rising, int64.

    Args:
        store: The trajectories.
        split: Which episodes; see `data.split.episodes_of`.
        most: States that are enough: of twice as many or more, so many are drawn, evenly and the same at each call.
        following: Least number of states that follow.

    Raises:
        InputError: There is no such episode.
    """
    episodes = episodes_of(store, split)
    counts = np.maximum(0, store.lengths[episodes] + 1 - following)
    ends = np.cumsum(counts)
    chosen = _even(int(ends[-1]), most)
    episode = np.searchsorted(ends, chosen, side="right")
    return store.offsets[episodes[episode]] + chosen - (ends - counts)[episode]


def split_blocks(store: Store, split: int) -> Iterator[np.ndarray]:
    """Yield the rows of all episodes of a split in blocks of bounded size, shape [n, width]; errors as above."""
    chosen, offsets = chosen_episodes(store, split), store.offsets
    for begin, block in blocks(store.frames):
        end = begin + len(block)
        first, last = np.searchsorted(offsets, begin, side="right") - 1, np.searchsorted(offsets, end)
        edges = np.clip(offsets[first : last + 1], begin, end)
        inside = np.repeat(chosen[first:last], np.diff(edges))
        yield block if inside.all() else block[inside]


def _even(count: int, most: int) -> np.ndarray:
    """Return all numbers below `count`, or one from each of `most` equal parts of them.

    They are drawn at random within their parts: in steps of a constant length they might be the same frame of each of
    many episodes of one length.
    """
    if count < 2 * most:
        return np.arange(count)
    bounds = np.arange(most + 1) * count // most
    return bounds[:-1] + (generator(0, "even sample").random(most) * np.diff(bounds)).astype(np.int64)

# SPDX-License-Identifier: Apache-2.0
"""Splits of whole episodes into training, validation and test, and row samples of a split."""

from collections.abc import Iterator

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.data.header import Split, Status
from neurodyn.data.store import Store, blocks

VALIDATION_FRACTION = 0.1


def assign_splits(
    episodes: int, seed: int, *, validation: float = VALIDATION_FRACTION, test: float = 0.0
) -> np.ndarray:
    """Return a random split for each episode, shape [episodes], int8; the same for the same seed.

    Every split with a positive fraction gets at least one episode if there are enough; training keeps at least one.
    """
    split = np.full(episodes, Split.TRAIN, np.int8)
    order = generator(seed, "split").permutation(episodes)
    taken = 0
    for kind, fraction in ((Split.VALIDATION, validation), (Split.TEST, test)):
        count = min(max(1, round(fraction * episodes)), episodes - 1 - taken) if fraction > 0 else 0
        split[order[taken : taken + count]] = kind
        taken += count
    return split


def episodes_of(store: Store, split: int) -> np.ndarray:
    """Return the indices of the episodes of a split.

    Without validation episodes, a fixed tenth of the training episodes (at least one) is used instead.

    Raises:
        InputError: The split is empty.
    """
    chosen = store.episodes(split)
    if split in (Split.TRAIN, Split.VALIDATION) and not len(store.episodes(Split.VALIDATION)):
        train = store.episodes(Split.TRAIN)
        chosen = train[assign_splits(len(train), store.header.seed or 0) == split]
    if not len(chosen):
        have = ", ".join(f"{len(store.episodes(kind))} {kind.name.lower()}" for kind in Split)
        raise InputError(
            f"the data of {store.header.robot!r} have no episode for {Split(split).name.lower()} ({have}); give data "
            "with one, or choose another split"
        )
    return chosen


def episodes_in(store: Store, split: int | None) -> np.ndarray:
    """Return the indices of a split's episodes, or of all for None; see `episodes_of`."""
    return store.episodes() if split is None else episodes_of(store, split)


def chosen_episodes(store: Store, split: int) -> np.ndarray:
    """Return whether each episode belongs to a split, shape [E], bool; see `episodes_of`."""
    chosen = np.zeros(len(store.table), bool)
    chosen[episodes_of(store, split)] = True
    return chosen


def failing_episodes(store: Store, episodes: np.ndarray, least: int) -> np.ndarray:
    """Return which of the episodes ended in failure after at least `least` frames."""
    return episodes[(store.status[episodes] == Status.TERMINATED) & (store.lengths[episodes] >= least)]


def held_out_split(store: Store) -> Split:
    """Return the default split for measuring models: test, or validation if there are no test episodes."""
    return Split.TEST if len(store.episodes(Split.TEST)) else Split.VALIDATION


SAMPLE = 500_000
"""Rows that suffice for means and standard deviations."""


def sample_states(store: Store, split: int, most: int, *, following: int = 0) -> np.ndarray:
    """Return ascending rows of a split's states with at least `following` later states in their episode, int64.

    From twice `most` or more, an evenly spread, reproducible sample of `most` is drawn. Errors: see `episodes_of`.
    """
    episodes = episodes_of(store, split)
    counts = np.maximum(0, store.lengths[episodes] + 1 - following)
    ends = np.cumsum(counts)
    chosen = _even(int(ends[-1]), most)
    episode = np.searchsorted(ends, chosen, side="right")
    return store.offsets[episodes[episode]] + chosen - (ends - counts)[episode]


def split_blocks(store: Store, split: int) -> Iterator[np.ndarray]:
    """Yield the rows of all episodes of a split in blocks of bounded size, shape [n, width]; see `episodes_of`."""
    chosen, offsets = chosen_episodes(store, split), store.offsets
    for begin, block in blocks(store.frames):
        end = begin + len(block)
        first, last = np.searchsorted(offsets, begin, side="right") - 1, np.searchsorted(offsets, end)
        edges = np.clip(offsets[first : last + 1], begin, end)
        inside = np.repeat(chosen[first:last], np.diff(edges))
        yield block if inside.all() else block[inside]


def _even(count: int, most: int) -> np.ndarray:
    """Return all integers below `count`, or one drawn from each of `most` equal intervals.

    A constant stride could pick the same frame of every episode if all have equal length.
    """
    if count < 2 * most:
        return np.arange(count)
    bounds = np.arange(most + 1) * count // most
    return bounds[:-1] + (generator(0, "even sample").random(most) * np.diff(bounds)).astype(np.int64)

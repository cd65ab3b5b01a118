# SPDX-License-Identifier: Apache-2.0
"""Splits of episodes into training, validation and test: always whole episodes, never windows of one."""

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.data.header import Split
from neurodyn.data.store import Store

VALIDATION_FRACTION = 0.1


def assign_splits(
    episodes: int, seed: int, *, validation: float = VALIDATION_FRACTION, test: float = 0.0
) -> np.ndarray:
    """Return a random split for each episode, shape [episodes], int8; the same for the same seed.

    Every split of a positive fraction gets at least one episode while episodes last; training keeps at least one.
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
    """Return the indexes of the episodes of a split.

    Without validation episodes, a tenth of the training episodes (at least one; the same at every call) stand in.

    Raises:
        InputError: There is no such episode.
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
    """Return the indexes of the episodes of a split; None for all. Errors as of `episodes_of`."""
    return store.episodes() if split is None else episodes_of(store, split)


def chosen_episodes(store: Store, split: int) -> np.ndarray:
    """Return which episodes belong to a split, shape [E], bool; errors as of `episodes_of`."""
    chosen = np.zeros(len(store.table), bool)
    chosen[episodes_of(store, split)] = True
    return chosen


def held_out_split(store: Store) -> Split:
    """Return the split that models are measured on unless asked otherwise: test, or validation where there is none."""
    return Split.TEST if len(store.episodes(Split.TEST)) else Split.VALIDATION

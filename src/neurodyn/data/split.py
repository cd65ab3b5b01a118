# SPDX-License-Identifier: Apache-2.0
"""Which episodes are for training, validation and testing: always whole episodes, never windows of one."""

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

    At least one episode is left for training, and at least one goes to every split whose fraction is
    positive while episodes last.
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

    A store without validation episodes lends a tenth of its training episodes (at least one; the same ones
    at every call) for validation.

    Raises:
        InputError: There is no such episode.
    """
    found = store.episodes(split)
    if split in (Split.TRAIN, Split.VALIDATION) and not len(store.episodes(Split.VALIDATION)):
        train = store.episodes(Split.TRAIN)
        found = train[assign_splits(len(train), store.header.seed or 0) == split]
    if not len(found):
        have = ", ".join(f"{len(store.episodes(kind))} {kind.name.lower()}" for kind in Split)
        raise InputError(
            f"the data of {store.header.robot!r} have no episode for {Split(split).name.lower()} ({have}); give data "
            "with one, or choose another split"
        )
    return found


def rows_of(store: Store, split: int) -> np.ndarray:
    """Return which rows belong to the episodes of a split, shape [N], bool; errors as of `episodes_of`."""
    inside = np.zeros(len(store.frames), bool)
    for episode in episodes_of(store, split):
        inside[store.offsets[episode] : store.offsets[episode + 1]] = True
    return inside

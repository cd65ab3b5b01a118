# SPDX-License-Identifier: Apache-2.0
"""Stores made of the episodes of others, in memory."""

from collections.abc import Sequence

import msgspec
import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store


def joined(stores: Sequence[Store], names: Sequence[str] = ()) -> Store:
    """Return the episodes of several stores of one robot as one store, each store a run of its own.

    Args:
        stores: The stores, with the same columns.
        names: Names of the runs; empty for their numbers.

    Raises:
        InputError: They are of different robots, or only some have a ground or rewards.
    """
    first = Mixture.of(list(stores)).header
    for store in stores[1:]:
        if store.frames.shape[1] != stores[0].frames.shape[1]:
            raise InputError("stores with other columns do not join; valid: stores that were written alike")
        if store.header.streams != first.streams:
            raise InputError("stores with other streams of sensors do not join; valid: stores that were written alike")
        if store.header.controller != first.controller:
            raise InputError("stores of logs with other controllers do not join; valid: one controller for all")
    tables, begin = [], 0
    for number, store in enumerate(stores):
        table = store.table.copy()
        table["start"] += begin
        table["run"], table["group"] = number, -1
        tables.append(table)
        begin += len(store.frames)
    runs = tuple(names) or tuple(str(number) for number in range(len(stores)))
    header = msgspec.structs.replace(first, groups=(), runs=runs)
    frames = np.concatenate([np.asarray(store.frames) for store in stores])
    extra = {name: _together(stores, name) for name in ("ground", "reward", "measured")}
    return Store(header, frames, np.concatenate(tables), **extra)


def beginnings(store: Store, frames: int) -> Store:
    """Return a store of the first `frames` transitions of each episode that has as many.

    Raises:
        InputError: None has.
    """
    long = np.flatnonzero(store.lengths >= frames)
    if not len(long):
        raise InputError(f"no episode of {store.header.robot!r} has {frames} frames; valid: longer episodes")
    table = store.table[long].copy()
    rows = (store.offsets[long][:, None] + np.arange(frames + 1)).ravel()
    table["start"], table["length"] = np.arange(len(long)) * (frames + 1), frames
    ground = None if store.ground is None else store.ground[long]
    measured = None if store.measured is None else store.measured[rows]
    return Store(store.header, np.asarray(store.frames)[rows], table, ground, measured=measured)


def _together(stores: Sequence[Store], name: str) -> np.ndarray | None:
    parts = [getattr(store, name) for store in stores]
    if all(part is None for part in parts):
        return None
    if any(part is None for part in parts):
        raise InputError(f"stores with and without a {name} do not join; valid: stores that were written alike")
    return np.concatenate(parts)

# SPDX-License-Identifier: Apache-2.0
"""Commands that come faster than frames: means over equal parts of each frame, beside the mean over all of it.

A command that moves within a frame does not act like its mean: under a servo of stiffness k_p and damping k_d on an
inertia J, the mean over a frame of length T looks later by k_d T^2 / (12 J) (some milliseconds for light joints at
10 ms). A store holds each part as a stream of kind "command", with one column per control.
"""

from dataclasses import replace

import msgspec
import numpy as np

from neurodyn.core.description.sensors import Stream
from neurodyn.data.header import StoreHeader
from neurodyn.data.store import Store

KIND = "command"
"""Kind of the streams of parts (`core.description.sensors.SENSOR_KINDS`)."""
_SHORTEST = 2e-3
"""Shortest part of a frame [s]."""
_WHOLE = 0.01
"""Largest relative distance of a period from a whole number of parts."""
_ALIKE = 1e-6
"""Share of a control's range up to which parts count as their mean."""


def parts_of_frames(period: float, dt: float) -> int:
    """Return into how many parts frames of `dt` are divided for commands with a `period` [s].

    The fewest that a period is a multiple of, so that held commands change between parts (at 125 Hz five of 2 ms in
    frames of 10 ms), not shorter than `_SHORTEST`; without such parts, as many as a period fits into a frame.
    """
    for parts in range(1, int(dt / _SHORTEST + 1e-3) + 1):
        ratio = period * parts / dt
        if round(ratio) >= 1 and abs(ratio - round(ratio)) <= _WHOLE * ratio:
            return parts
    return max(1, int(dt / max(period, _SHORTEST) + 1e-3))


def differ(parts: np.ndarray) -> bool:
    """Return whether commands move within frames, from their parts [T, parts, nu]."""
    size = np.ptp(parts, (0, 1)) if parts.size else np.zeros(0)
    return bool((np.abs(parts - parts.mean(1, keepdims=True)).max((0, 1), initial=0.0) > _ALIKE * size).any())


def part_streams(parts: int, controls: tuple[str, ...]) -> tuple[Stream, ...]:
    """Return the streams of the parts of frames; none for one part."""
    names = [f"command_{number}_of_{parts}" for number in range(1, parts + 1)] if parts > 1 else []
    return tuple(Stream(name=name, kind=KIND, joints=controls) for name in names)


def part_count(header: StoreHeader) -> int:
    """Return the parts of a frame for which a store holds commands."""
    return max(1, sum(stream.kind == KIND for stream in header.streams))


def part_columns(header: StoreHeader) -> np.ndarray:
    """Return which columns of a store's readings are parts of commands, bool."""
    streams = header.streams
    return np.repeat([one.kind == KIND for one in streams], [one.width for one in streams]).astype(bool)


def without_parts(store: Store) -> Store:
    """Return a store with the mean command of each frame alone."""
    if part_count(store.header) == 1:
        return store
    own, measured = part_columns(store.header), store.measured
    assert measured is not None
    streams = tuple(one for one in store.header.streams if one.kind != KIND)
    header = msgspec.structs.replace(store.header, streams=streams)
    return replace(store, header=header, measured=None if own.all() else measured[:, ~own])

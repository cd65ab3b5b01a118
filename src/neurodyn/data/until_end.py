# SPDX-License-Identifier: Apache-2.0
"""Windows that may reach beyond the end of their episode: what follows the end is marked, and repeats the last state.

Windows of a fixed length show how an episode ended in their last frame alone. These show it at any frame of a forecast,
as a model meets it that is followed until it says that the episode is over.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from neurodyn.data.store import Status, Store
from neurodyn.data.stored_rows import take
from neurodyn.data.windows import Batch, fields_of


@dataclass(frozen=True)
class OpenWindows(Batch):
    """Windows of L frames that may reach beyond the end of their episode.

    Attributes:
        valid: Whether each state belongs to the episode, shape [B, L + 1], bool.
    """

    valid: Tensor

    def to(self, device: str | torch.device) -> Self:
        """Return the windows on a device."""
        return self.combined([self], lambda parts: parts[0].to(device))

    @classmethod
    def combined(cls, parts: Sequence[Self], combine: Callable[[list[Tensor]], Tensor]) -> Self:
        """Return several batches of the same fields as one, each field by `combine` (torch.cat, torch.stack)."""
        found: dict[str, Any] = {}
        for field in fields(cls):
            values = [getattr(part, field.name) for part in parts]
            found[field.name] = None if values[0] is None else combine(values)
        return cls(**found)


def open_windows(store: Store, episodes: np.ndarray, starts: np.ndarray, length: int) -> OpenWindows:
    """Return windows of `length` frames from some states of some episodes on.

    Args:
        store: The trajectories.
        episodes: Episode of each window, shape [B].
        starts: State of the episode at which it starts, shape [B].
        length: Frames L of a window.
    """
    first, last = store.offsets[episodes] + starts, store.offsets[episodes + 1] - 1
    count = min(length + 1, len(store.frames))
    base = np.minimum(first, len(store.frames) - count)
    steps = first[:, None] + np.arange(length + 1)
    block = take(store.frames, base, count)
    rows = np.take_along_axis(block, (np.minimum(steps, last[:, None]) - base[:, None])[..., None], 1)
    failed = (store.status[episodes] == Status.TERMINATED)[:, None] & (steps == last[:, None])
    return OpenWindows(
        **fields_of(torch.from_numpy(rows), length, store.header.spec),
        failed=torch.from_numpy(failed),
        valid=torch.from_numpy(steps <= last[:, None]),
    )


def failing_episodes(store: Store, episodes: np.ndarray, least: int) -> np.ndarray:
    """Return those of some episodes that ended in a failure after at least so many frames."""
    return episodes[(store.status[episodes] == Status.TERMINATED) & (store.lengths[episodes] >= least)]


def windows_along(
    store: Store, episodes: np.ndarray, context: int, frames: int, most: int, batch: int = 512
) -> Iterator[OpenWindows]:
    """Yield about `most` windows in batches, spread evenly over all states that have a past and a future.

    Args:
        store: The trajectories.
        episodes: Which episodes, shape [n].
        context: Frames of each window before its start.
        frames: Frames from its start on.
        most: Number of windows.
        batch: Most windows in a batch.
    """
    counts = np.maximum(0, store.lengths[episodes] - context)
    ends, total = np.cumsum(counts), int(counts.sum())
    numbers = np.arange(0, total, max(1, -(-total // most)))
    for first in range(0, len(numbers), batch):
        some = numbers[first : first + batch]
        places = np.searchsorted(ends, some, side="right")
        yield open_windows(store, episodes[places], some - (ends - counts)[places], context + frames)

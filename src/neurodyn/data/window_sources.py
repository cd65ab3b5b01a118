# SPDX-License-Identifier: Apache-2.0
"""Sources of the rows of drawn windows: memory, a file, or a part of a file that moves through it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.data.store import IN_MEMORY, Rows, Store, StoredRows, take

_BLOCK = 1 << 15
"""Windows in a block of a stream."""


class WindowIndex:
    """All windows of L frames in some episodes, numbered 0 to `count` - 1, episode by episode."""

    def __init__(
        self, store: Store, episodes: np.ndarray, length: int, stride: int = 1, skip: np.ndarray | None = None
    ) -> None:
        """Count the windows of episodes, of which repeated ones count more often.

        Windows start every `stride` states, after the first `skip` states of each episode.

        Raises:
            InputError: No episode is long enough.
        """
        lengths = store.lengths[episodes] - (0 if skip is None else skip)
        counts = np.maximum(0, (lengths - length) // stride + 1)
        self._ends = np.cumsum(counts)
        self.count, self.length, self._stride = int(self._ends[-1]) if len(counts) else 0, length, stride
        if not self.count:
            raise InputError(
                f"no episode of {store.header.robot!r} holds a window of {length} frames; the longest of the "
                f"{len(episodes)} has {int(lengths.max())}; give a shorter window or longer episodes"
            )
        self._episodes = episodes
        self._shift = store.offsets[:-1][episodes] - stride * (self._ends - counts)
        if skip is not None:
            self._shift = self._shift + skip

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rows of the store at which windows start, shape [n], int64."""
        return self._shift[self._places(numbers)] + self._stride * numbers

    def episodes(self, numbers: np.ndarray) -> np.ndarray:
        """Return the episodes of windows, shape [n]."""
        return self._episodes[self._places(numbers)]

    def _places(self, numbers: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._ends, numbers, side="right")


@dataclass(frozen=True)
class DrawnWindows:
    """Drawn windows: numbers in the index [B], all rows of the source [N, width], and the row of each start [B]."""

    numbers: np.ndarray
    rows: Tensor
    starts: Tensor

    def part(self, windows: slice) -> "DrawnWindows":
        """Return a slice of the windows."""
        return DrawnWindows(self.numbers[windows], self.rows, self.starts[windows])


class PlainWindows:
    """Windows of rows that are all in memory, or each read from the file when it is drawn, for few draws."""

    def __init__(self, rows: Tensor | StoredRows, index: WindowIndex) -> None:
        self._rows, self._index = rows, index

    def pick(self, random: torch.Generator, count: int) -> DrawnWindows:
        """Draw `count` windows with replacement."""
        numbers = torch.randint(self._index.count, (count,), generator=random).numpy()
        starts = self._index.rows(numbers)
        if isinstance(self._rows, Tensor):
            return DrawnWindows(numbers, self._rows, torch.from_numpy(starts).to(self._rows.device))
        states = self._index.length + 1
        rows = torch.from_numpy(take(self._rows, starts, states))
        return DrawnWindows(numbers, rows.flatten(0, 1), states * torch.arange(count))

    def state(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Do nothing."""


class StreamedWindows:
    """Windows of the part of a file that is in memory; its blocks are replaced one by one.

    The windows are cut into blocks in file order, and the blocks are read in random order, each once per lap. Memory
    holds as many as fit, and draws are uniform over their windows. Once as many windows were drawn as a block has, the
    oldest block is replaced: on average, each window is drawn once while it is in memory.
    """

    def __init__(self, rows: StoredRows, index: WindowIndex, seed: int, memory: int = IN_MEMORY) -> None:
        """Read the first blocks, in an order of `seed`, into `memory` bytes, at least one; `index` is in file order."""
        self._file, self._index, self._seed = rows, index, seed
        blocks = -(-index.count // _BLOCK)
        self._bounds = np.arange(blocks + 1) * index.count // blocks
        self._first = index.rows(self._bounds[:-1])
        self._ends = index.rows(self._bounds[1:] - 1) + index.length + 1
        self._size = int((self._ends - self._first).max())
        held = max(1, min(blocks, memory // (4 * self._size * rows.shape[1])))
        self._rows = torch.empty(held, self._size, rows.shape[1])
        self._held = np.zeros(held, np.int64)
        self._loaded, self._drawn = 0, 0
        self._read_until(held)

    def pick(self, random: torch.Generator, count: int) -> DrawnWindows:
        """Draw `count` windows with replacement, after replacing the blocks that are due."""
        self._read_until(self._due())
        place = torch.randint(len(self._held), (count,), generator=random).numpy()
        share = torch.randint(1 << 30, (count,), generator=random).numpy()
        block = self._held[place]
        first = self._bounds[block]
        numbers = first + (share * (self._bounds[block + 1] - first) >> 30)
        starts = torch.from_numpy(place * self._size + self._index.rows(numbers) - self._first[block])
        picked = DrawnWindows(numbers, self._rows.flatten(0, 1), starts)
        self._drawn += count
        return picked

    def state(self) -> dict[str, Any]:
        """Return how many windows were drawn."""
        return {"drawn": self._drawn}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a saved state; reads the blocks that were in memory."""
        self._drawn = int(state["drawn"])
        self._loaded = self._due() - len(self._held)
        self._read_until(self._due())

    def _due(self) -> int:
        """Return how many blocks should have been read in all."""
        held, blocks = len(self._held), len(self._first)
        return held + self._drawn * blocks // self._index.count if held < blocks else held

    def _read_until(self, loaded: int) -> None:
        """Read the next blocks in random order until `loaded` were read in all."""
        for number in range(max(self._loaded, loaded - len(self._held)), loaded):
            lap, place = divmod(number, len(self._first))
            block = int(generator(self._seed, "blocks", lap).permutation(len(self._first))[place])
            rows = self._file[int(self._first[block]) : int(self._ends[block])]
            slot = number % len(self._held)
            self._rows[slot, : len(rows)] = torch.from_numpy(rows)
            self._held[slot] = block
        self._loaded = loaded


def window_source(
    rows: Rows, index: WindowIndex, *, device: torch.device | str, seed: int, stream: int | None
) -> PlainWindows | StreamedWindows:
    """Return the source for rows in memory, which go to `device`, or in a file.

    `stream` is how many bytes of a file's rows to hold, for many draws; None to read each window by itself. `seed`
    orders the blocks of a stream.
    """
    if isinstance(rows, np.ndarray):
        return PlainWindows(torch.from_numpy(rows).to(device), index)
    return PlainWindows(rows, index) if stream is None else StreamedWindows(rows, index, seed, stream)

# SPDX-License-Identifier: Apache-2.0
"""Windows of L consecutive frames: drawn at random, iterated in order, or extending past an episode's end."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.data.header import Split, Status
from neurodyn.data.split import episodes_in, episodes_of
from neurodyn.data.store import IN_MEMORY, Store, StoredRows, take
from neurodyn.data.writer import widths


@dataclass(frozen=True)
class Batch:
    """Windows of L frames.

    Attributes:
        q: Positions [rad or m], shape [B, L + 1, nq].
        qd: Velocities [rad/s or m/s], shape [B, L + 1, nv].
        control: Torques during the frames [N m or N], shape [B, L, nu].
        ground: Pose of the store's scene in each window (position [m], quaternion xyzw), shape [B, 7]; None without
            a scene.
        channels: Channels of the spec, shape [B, L + 1, nx]; None if it has none.
        contacts: Whether each contact of the spec is closed, shape [B, L + 1, nc]; None if it has none.
        failed: Whether a state is the last of an episode that ended in failure, shape [B, L + 1], bool; None if no
            episode of the store did.
        parameters: Values of the header's parameters in each window, shape [B, parameters]; None without any.
    """

    q: Tensor
    qd: Tensor
    control: Tensor
    ground: Tensor | None = field(default=None, kw_only=True)
    channels: Tensor | None = field(default=None, kw_only=True)
    contacts: Tensor | None = field(default=None, kw_only=True)
    failed: Tensor | None = field(default=None, kw_only=True)
    parameters: Tensor | None = field(default=None, kw_only=True)

    @classmethod
    def combined(cls, parts: Sequence[Self], combine: Callable[[list[Tensor]], Tensor]) -> Self:
        """Combine batches with the same fields, field by field with `combine` (torch.cat, torch.stack)."""
        found: dict[str, Any] = {}
        for name, first in vars(parts[0]).items():
            found[name] = None if first is None else combine([getattr(part, name) for part in parts])
        return cls(**found)

    def rows(self, index: Any) -> Self:
        """Return the windows selected by an index of their first axis, or by a tuple of indices of the first axes."""
        return replace(self, **{name: value[index] for name, value in vars(self).items() if value is not None})


def joined(batches: Sequence[Batch]) -> Batch:
    """Concatenate the windows of several batches of one store."""
    return batches[0] if len(batches) == 1 else Batch.combined(batches, torch.cat)


@dataclass(frozen=True)
class Windows(Batch):
    """Windows of L frames with their origin.

    Attributes:
        episode: Episode of each window, shape [B].
        start: Start state of each window within its episode, shape [B].
        group: Group of each episode, shape [B]; -1 for none.
    """

    episode: np.ndarray
    start: np.ndarray
    group: np.ndarray


class WindowSampler:
    """Endless batches of windows, drawn uniformly with replacement from all windows of a split.

    Draws depend on the seed alone, not on the device, and resume bitwise from a saved state.

    Attributes:
        batch: Windows B in a batch.
        rows: Windows of each batch that are returned.
        count: Number of distinct windows.
        failed: Whether each episode ended in failure, shape [E]; None if none did.
    """

    def __init__(
        self,
        store: Store,
        length: int,
        *,
        split: int = Split.TRAIN,
        batch: int,
        seed: int,
        device: str | torch.device = "cpu",
        episodes: np.ndarray | None = None,
        stream: int | None = None,
        rows: slice = slice(None),
    ) -> None:
        """Index the windows and open their source; rows in memory are copied to `device` once.

        Windows have L = `length` frames and come from a split (see `data.split.episodes_of`) or from `episodes`, where
        repeated ones are drawn more often. `stream` is the number of bytes of a file's rows held in memory while
        streaming through it (`StreamedWindows`), for many draws; None reads each window from the file when drawn, with
        the same draws as for rows in memory. `rows` selects windows of each batch if other processes take the rest.

        Raises:
            InputError: No episode of the split is long enough.
        """
        self.rows = rows
        self._store, self._episodes = store, episodes_of(store, split) if episodes is None else episodes
        self._device = device
        if stream is not None and isinstance(store.frames, StoredRows):
            self._episodes = np.sort(self._episodes)  # in file order
        self._generator = torch.Generator().manual_seed(seed)
        self._of_episodes = {
            name: torch.from_numpy(values).to(device)
            for name, values in (("ground", store.ground), ("parameters", store.parameters))
            if values is not None
        }
        failed = store.status == Status.TERMINATED
        self.failed = failed if failed.any() else None
        self.batch, self._index = batch, WindowIndex(store, self._episodes, length)
        self.count = self._index.count
        if isinstance(store.frames, np.ndarray):
            self._source = PlainWindows(torch.from_numpy(store.frames).to(device), self._index)
        elif stream is None:
            self._source = PlainWindows(store.frames, self._index)
        else:
            self._source = StreamedWindows(store.frames, self._index, seed, stream)

    def draw(self) -> Batch:
        """Return the next batch."""
        picked, length = self._source.pick(self._generator, self.batch).part(self.rows), self._index.length
        frames = _windows(picked.rows, length).index_select(0, picked.starts).to(self._device)
        fields = fields_of(frames, length, self._store.header.spec)
        if self.failed is not None or self._of_episodes:
            episode = self._index.episodes(picked.numbers)
            if self.failed is not None:
                ended = _ended(self._store, self.failed, episode, self._index.rows(picked.numbers), length)
                fields["failed"] = ended.to(self._device)
            if self._of_episodes:
                rows = torch.from_numpy(episode).to(self._device)
                fields |= {name: values.index_select(0, rows) for name, values in self._of_episodes.items()}
        return Batch(**fields)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the random generator and of the source."""
        return {"generator": self._generator.get_state(), **self._source.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the draws from a saved state."""
        self._source.load(state)
        self._generator.set_state(state["generator"])


def all_windows(
    store: Store,
    length: int,
    *,
    split: int | None = None,
    stride: int = 1,
    batch: int = 4096,
    skip: np.ndarray | None = None,
) -> Iterator[Windows]:
    """Iterate in order over all windows of L = `length` frames in a split (None: in all episodes).

    Windows start `stride` states apart, after the first `skip` states of each episode. At most `batch` windows are
    yielded at once.

    Raises:
        InputError: No episode is long enough.
    """
    episodes = episodes_in(store, split)
    index = WindowIndex(store, episodes, length, stride, skip)
    failed = store.status == Status.TERMINATED
    for begin in range(0, index.count, batch):
        numbers = np.arange(begin, min(begin + batch, index.count))
        rows, episode = index.rows(numbers), index.episodes(numbers)
        first = int(rows.min())
        block = torch.from_numpy(store.frames[first : int(rows.max()) + length + 1])
        frames = _windows(block, length).index_select(0, torch.from_numpy(rows - first))
        fields = fields_of(frames, length, store.header.spec)
        for name, values in (("ground", store.ground), ("parameters", store.parameters)):
            if values is not None:
                fields[name] = torch.from_numpy(values[episode])
        if failed.any():
            fields["failed"] = _ended(store, failed, episode, rows, length)
        yield Windows(**fields, episode=episode, start=rows - store.offsets[episode], group=store.group[episode])


def _windows(frames: Tensor, length: int) -> Tensor:
    """Return the overlapping windows of all rows as a view, shape [N - L, (L + 1) * width]."""
    rows, width = frames.shape
    return frames.as_strided((rows - length, (length + 1) * width), (width, 1))


def fields_of(frames: Tensor, length: int, spec: StateSpec) -> dict[str, Any]:
    """Return the fields of a batch as views of its rows, shape [B, L + 1, width] or [B, (L + 1) * width]."""
    picked = frames.view(len(frames), length + 1, -1)
    q, qd, control, channels, contacts = picked.split(list(widths(spec).values()), -1)
    named = {"q": q, "qd": qd, "control": control[:, :-1]}
    return named | {"channels": channels if spec.nx else None, "contacts": contacts if spec.nc else None}


def _ended(store: Store, failed: np.ndarray, episode: np.ndarray, rows: np.ndarray, length: int) -> Tensor:
    """Return whether each state is the last of a failed episode, shape [B, L + 1], bool."""
    left = store.offsets[episode + 1] - 1 - rows
    return torch.from_numpy(failed[episode][:, None] & (left[:, None] == np.arange(length + 1)))


@dataclass(frozen=True)
class OpenWindows(Batch):
    """Windows that may extend past the end of their episode; `valid` [B, L + 1], bool, marks the episode's states."""

    valid: Tensor

    def to(self, device: str | torch.device) -> Self:
        """Return the windows on a device."""
        return self.combined([self], lambda parts: parts[0].to(device))


def open_windows(store: Store, episodes: np.ndarray, starts: np.ndarray, length: int) -> OpenWindows:
    """Return windows of `length` frames from states `starts` [B] of episodes [B]; the last state is repeated."""
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
        parameters=None if store.parameters is None else torch.from_numpy(store.parameters[episodes]),
        valid=torch.from_numpy(steps <= last[:, None]),
    )


def failing_episodes(store: Store, episodes: np.ndarray, least: int) -> np.ndarray:
    """Return which of the episodes ended in failure after at least `least` frames."""
    return episodes[(store.status[episodes] == Status.TERMINATED) & (store.lengths[episodes] >= least)]


def windows_along(
    store: Store, episodes: np.ndarray, context: int, frames: int, most: int, batch: int = 512
) -> Iterator[OpenWindows]:
    """Yield about `most` windows, spread evenly over all states with enough frames before and after.

    Each has `context` frames before its start and `frames` after it; at most `batch` are yielded at once.
    """
    counts = np.maximum(0, store.lengths[episodes] - context)
    ends, total = np.cumsum(counts), int(counts.sum())
    numbers = np.arange(0, total, max(1, -(-total // most)))
    for first in range(0, len(numbers), batch):
        some = numbers[first : first + batch]
        places = np.searchsorted(ends, some, side="right")
        yield open_windows(store, episodes[places], some - (ends - counts)[places], context + frames)


_BLOCK = 1 << 15
"""Windows per block of a stream."""


class WindowIndex:
    """All windows of L frames in a set of episodes, numbered 0 to `count` - 1, episode by episode."""

    def __init__(
        self, store: Store, episodes: np.ndarray, length: int, stride: int = 1, skip: np.ndarray | None = None
    ) -> None:
        """Count the windows of the episodes; repeated episodes count repeatedly.

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
        """Return the store rows at which windows start, shape [n], int64."""
        return self._shift[self._places(numbers)] + self._stride * numbers

    def episodes(self, numbers: np.ndarray) -> np.ndarray:
        """Return the episodes of windows, shape [n]."""
        return self._episodes[self._places(numbers)]

    def _places(self, numbers: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._ends, numbers, side="right")


@dataclass(frozen=True)
class DrawnWindows:
    """Drawn windows: numbers in the index [B], all rows of the source [N, width], and each window's start row [B]."""

    numbers: np.ndarray
    rows: Tensor
    starts: Tensor

    def part(self, windows: slice) -> "DrawnWindows":
        """Return a slice of the windows."""
        return DrawnWindows(self.numbers[windows], self.rows, self.starts[windows])


class PlainWindows:
    """Windows of rows held in memory, or, for few draws, read one by one from the file."""

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
    """Windows from the part of a file held in memory, whose blocks are replaced one by one.

    Windows are cut into blocks in file order; blocks are read in random order, each once per pass. Memory holds as many
    blocks as fit, and draws are uniform over their windows. After as many draws as a block has windows, the oldest
    block is replaced, so each window is drawn once on average while in memory.
    """

    def __init__(self, rows: StoredRows, index: WindowIndex, seed: int, memory: int = IN_MEMORY) -> None:
        """Read the first blocks, in the order of `seed`, into `memory` bytes (at least one); `index` in file order."""
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
        self._read_until(self._blocks_due())
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
        """Continue from a saved state; rereads the blocks that were in memory."""
        self._drawn = int(state["drawn"])
        self._loaded = self._blocks_due() - len(self._held)
        self._read_until(self._blocks_due())

    def _blocks_due(self) -> int:
        """Return how many blocks should have been read in total."""
        held, blocks = len(self._held), len(self._first)
        return held + self._drawn * blocks // self._index.count if held < blocks else held

    def _read_until(self, loaded: int) -> None:
        """Read the next blocks in random order until `loaded` have been read in total."""
        for number in range(max(self._loaded, loaded - len(self._held)), loaded):
            lap, place = divmod(number, len(self._first))
            block = int(generator(self._seed, "blocks", lap).permutation(len(self._first))[place])
            rows = self._file[int(self._first[block]) : int(self._ends[block])]
            slot = number % len(self._held)
            self._rows[slot, : len(rows)] = torch.from_numpy(rows)
            self._held[slot] = block
        self._loaded = loaded

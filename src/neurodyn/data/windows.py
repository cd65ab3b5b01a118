# SPDX-License-Identifier: Apache-2.0
"""Windows of T consecutive frames of a store: drawn at random, in order, spread evenly, or beyond an episode's end."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.data.command_parts import part_columns, part_count
from neurodyn.data.header import Split, Status
from neurodyn.data.split import episodes_in, episodes_of
from neurodyn.data.store import IN_MEMORY, Store, StoredRows, take
from neurodyn.data.writer import widths

Combine = Callable[[list[Tensor]], Tensor]
"""How tensors of several windows become one: torch.cat or torch.stack."""


@dataclass(frozen=True)
class Origin:
    """Where windows come from.

    Attributes:
        places: Episode in the store and first state (of the past, if there is one) within it, int64, shape [W, 2].
        log: Index in `logs`, int64, shape [W].
        logs: Names of the logs.
        group: Group of the episode, -1 for none, int64, shape [W].
    """

    places: Tensor
    log: Tensor
    logs: tuple[str, ...]
    group: Tensor

    @classmethod
    def of(cls, store: Store, episodes: np.ndarray, starts: np.ndarray) -> Self:
        """Return the origin of windows from states `starts` [W] of `episodes` [W]; logs are numbered as they come."""
        some, first, inverse = np.unique(episodes, return_index=True, return_inverse=True)
        names = [store.run_name(int(episode)) for episode in some]
        logs = tuple(dict.fromkeys(names[k] for k in np.argsort(first)))
        log = np.array([logs.index(name) for name in names], np.int64)[inverse]
        places = np.stack([episodes, starts], 1).astype(np.int64)
        group = store.group[episodes].astype(np.int64)
        return cls(torch.from_numpy(places), torch.from_numpy(log), logs, torch.from_numpy(group))

    @classmethod
    def of_logs(cls, log: Tensor, logs: Sequence[str], places: Tensor | None = None) -> Self:
        """Return the origin of windows that are not from a store; without `places`, window k is episode k."""
        if places is None:
            places = torch.stack([torch.arange(len(log)), torch.zeros(len(log), dtype=torch.long)], 1)
        return cls(places, log, tuple(logs), torch.full((len(log),), -1))

    def rows(self, index: Any) -> Self:
        """Return the origin of some of the windows; logs stay, also those without a window."""
        return replace(self, places=self.places[index], log=self.log[index], group=self.group[index])

    @classmethod
    def combine(cls, parts: Sequence[Self], combine: Combine) -> Self:
        """Combine origins; logs of the same name are one."""
        logs = tuple(dict.fromkeys(name for part in parts for name in part.logs))
        log = combine([torch.tensor([logs.index(name) for name in part.logs])[part.log] for part in parts])
        places, group = (combine([getattr(part, name) for part in parts]) for name in ("places", "group"))
        return cls(places, log, logs, group)


@dataclass(frozen=True)
class Windows:
    """Windows of T frames, all of one dtype: that of the store (float32), or the caller's choice.

    Attributes:
        q: Positions [rad or m], shape [W, T + 1, nq].
        qd: Velocities [rad/s or m/s], shape [W, T + 1, nv].
        control: Controls during the frames (`StateSpec.control_kind`), shape [W, T, nu].
        ground: Pose of the store's scene (position [m], quaternion xyzw), shape [W, 7]; None without a scene.
        channels: Channels of the spec, shape [W, T + 1, nx]; None if it has none.
        contacts: Whether each contact of the spec is closed, shape [W, T + 1, nc]; None if it has none.
        failed: Whether a state is the last of an episode that ended in failure, shape [W, T + 1], bool; None if no
            episode of the store did.
        valid: Whether a state belongs to the episode, shape [W, T + 1], bool; None if all do.
        parameters: Values of the header's parameters, shape [W, parameters]; None without any.
        readings: Readings of the store's streams, NaN without a reading, shape [W, T + 1, columns]; None without
            streams.
        spread: Of an estimated base, see `Store.spread`, shape [W, T + 1, 12, k]; None for none.
        parts: Controls during equal parts of the frames (`data.command_parts`), shape [W, T, parts, nu]; None if only
            their means are known.
        past: The frames before the windows; their last state is the windows' first. None without them.
        origin: Where the windows come from; None for drawn ones.
    """

    q: Tensor
    qd: Tensor
    control: Tensor
    ground: Tensor | None = field(default=None, kw_only=True)
    channels: Tensor | None = field(default=None, kw_only=True)
    contacts: Tensor | None = field(default=None, kw_only=True)
    failed: Tensor | None = field(default=None, kw_only=True)
    valid: Tensor | None = field(default=None, kw_only=True)
    parameters: Tensor | None = field(default=None, kw_only=True)
    readings: Tensor | None = field(default=None, kw_only=True)
    spread: Tensor | None = field(default=None, kw_only=True)
    parts: Tensor | None = field(default=None, kw_only=True)
    past: "Windows | None" = field(default=None, kw_only=True)
    origin: Origin | None = field(default=None, kw_only=True)

    @property
    def count(self) -> int:
        """Number of windows."""
        return self.q.shape[0]

    @property
    def frames(self) -> int:
        """Frames in a window."""
        return self.control.shape[1]

    @property
    def commands(self) -> Tensor:
        """Controls by part of a frame, shape [W, T, parts, nu]; of whole frames, [W, T, nu], if they are not known."""
        return self.control if self.parts is None else self.parts

    @property
    def source(self) -> Origin:
        """`origin`; of windows without one, one episode each of a single log."""
        return self.origin or Origin.of_logs(torch.zeros(self.count, dtype=torch.long), ("log",))

    @property
    def episode(self) -> Tensor:
        """Episode of each window, int64, shape [W]."""
        return self.source.places[:, 0]

    @property
    def start(self) -> Tensor:
        """First state of each window (of its past, if it has one) within its episode, int64, shape [W]."""
        return self.source.places[:, 1]

    @property
    def log(self) -> Tensor:
        """Index in `logs` of each window, int64, shape [W]."""
        return self.source.log

    @property
    def logs(self) -> tuple[str, ...]:
        """Names of the logs."""
        return self.source.logs

    @classmethod
    def combine(cls, parts: Sequence["Windows"], combine: Combine) -> "Windows":
        """Combine windows with the same fields, field by field with `combine` (torch.cat, torch.stack)."""
        fields: dict[str, Any] = {}
        for name, first in vars(parts[0]).items():
            values: list[Any] = [getattr(part, name) for part in parts]
            if isinstance(first, Windows | Origin):
                fields[name] = type(first).combine(values, combine)
            else:
                fields[name] = None if first is None else combine(values)
        return cls(**fields)

    def rows(self, index: Any) -> "Windows":
        """Return the windows selected by an index of their first axis, or by a tuple of indices of the first axes."""
        fields: dict[str, Any] = {
            name: value.rows(index) if isinstance(value, Windows | Origin) else value[index]
            for name, value in vars(self).items()
            if value is not None
        }
        return replace(self, **fields)

    def to(self, target: torch.device | torch.dtype | str) -> "Windows":
        """Return the windows on another device, or with numbers of another dtype; the origin stays on the CPU."""
        cast = isinstance(target, torch.dtype)
        fields: dict[str, Any] = {
            name: value.to(target)
            for name, value in vars(self).items()
            if isinstance(value, Windows) or (isinstance(value, Tensor) and (value.is_floating_point() or not cast))
        }
        return replace(self, **fields)

    def of_groups(self, groups: Sequence[str]) -> "Windows":
        """Return the windows with the groups of their episodes, all in `groups`, as logs."""
        return replace(self, origin=replace(self.source, log=self.source.group, logs=tuple(groups)))

    def cut(self, first: int, last: int | None = None) -> "Windows":
        """Return the frames from state `first` to state `last` (None: the last one), without a past."""
        end = self.frames if last is None else last
        states = ("q", "qd", "channels", "contacts", "failed", "valid", "readings", "spread")
        parts = {name: value[:, first : end + 1] for name in states if (value := getattr(self, name)) is not None}
        within = None if self.parts is None else self.parts[:, first:end]
        return replace(self, **parts, control=self.control[:, first:end], parts=within, past=None)

    def until(self, frames: int) -> "Windows":
        """Return the first frames of the windows, with their past."""
        return replace(self.cut(0, frames), past=self.past)

    def after(self, frames: int) -> "Windows":
        """Return the windows without their first frames, which become their past."""
        return replace(self.cut(frames), past=self.cut(0, frames)) if frames else self

    def batches(self, size: int) -> Iterator["Windows"]:
        """Yield the windows in order, at most `size` at once."""
        yield from (self.rows(slice(begin, begin + size)) for begin in range(0, self.count, size))


def concatenate(parts: Sequence[Windows]) -> Windows:
    """Concatenate windows with the same fields."""
    return parts[0] if len(parts) == 1 else Windows.combine(parts, torch.cat)


def select_windows(
    store: Store,
    split: int | None,
    frames: int,
    *,
    stride: int | None = None,
    most: int | None = None,
    moving: float | None = None,
    seed: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> Windows:
    """Return windows that are spread evenly over the episodes of a split, with their origin.

    Args:
        store: The trajectories.
        split: Split of the episodes; None for all episodes.
        frames: Length of a window.
        stride: States between the starts of neighbouring windows; None for a stride that gives `most` windows before
            the selection by `moving`.
        most: Largest number of windows; None for all.
        moving: Least mean joint speed of a window [rad/s or m/s]; None to keep all.
        seed: With a stride, seed of the first window of each episode and of the selection of `most` windows; None for
            the first state and an even selection.
        dtype: Type of the numbers; fits need the default.

    Raises:
        InputError: No episode is long enough, or no window moves.
    """
    episodes, skip = episodes_in(store, split), None
    if stride is not None and seed is not None:
        room = np.clip(store.lengths[episodes] - frames, 0, stride - 1)
        skip = generator(seed, "windows", "first").integers(0, room + 1)
    if stride is None:
        stride = 1 if most is None else max(1, WindowIndex(store, episodes, frames).count // most)
    index = WindowIndex(store, episodes, frames, stride, skip)
    numbers = np.arange(index.count)
    if moving is not None:
        parts = all_windows(store, frames, split=split, stride=stride, skip=skip)
        numbers = numbers[torch.cat([part.qd.double().abs().mean((1, 2)) for part in parts]).numpy() > moving]
        if not len(numbers):
            raise InputError(
                f"data of {store.header.robot!r}: no window of {frames} frames moves faster than {moving:g} (mean "
                "joint speed); valid: data that move, or another `moving`"
            )
    if most is not None and len(numbers) > most:
        rows = torch.linspace(0, len(numbers) - 1, most).round().long()
        if seed is not None:  # one in each of `most` equal parts
            drawn = torch.from_numpy(generator(seed, "windows", "which").random(most))
            rows = ((torch.arange(most) + drawn) * len(numbers) / most).long().clamp_max(len(numbers) - 1)
        numbers = numbers[rows.numpy()]
    own, first = index.places(numbers)
    windows = replace(windows_at(store, own, first - store.offsets[own], frames), valid=None).to(dtype)
    beside = {
        name: torch.from_numpy(values[first[:, None] + np.arange(frames + 1)]).to(dtype)
        for name, values in (("readings", store.measured), ("spread", store.spread))
        if values is not None
    }
    if (parts := part_count(store.header)) > 1:
        kept = np.flatnonzero(part_columns(store.header))
        beside["parts"] = beside["readings"][:, :-1, kept].unflatten(-1, (parts, -1))
    return replace(windows, **beside, origin=Origin.of(store, own, first - store.offsets[own]))


def all_windows(
    store: Store,
    length: int,
    *,
    split: int | None = None,
    stride: int = 1,
    batch: int = 4096,
    skip: np.ndarray | None = None,
) -> Iterator[Windows]:
    """Iterate in order over all windows of L = `length` frames in a split (None: in all episodes), with their origin.

    Windows start `stride` states apart, after the first `skip` states of each episode. At most `batch` windows are
    yielded at once.

    Raises:
        InputError: No episode is long enough.
    """
    index, source = WindowIndex(store, episodes_in(store, split), length, stride, skip), _WindowSource(store, length)
    for begin in range(0, index.count, batch):
        episodes, rows = index.places(np.arange(begin, min(begin + batch, index.count)))
        first = int(rows.min())
        block = torch.from_numpy(store.frames[first : int(rows.max()) + length + 1])
        frames = _overlapping(block, length).index_select(0, torch.from_numpy(rows - first))
        windows = source.windows(frames, episodes, rows)
        yield replace(windows, origin=Origin.of(store, episodes, rows - store.offsets[episodes]))


def windows_at(store: Store, episodes: np.ndarray, starts: np.ndarray, length: int) -> Windows:
    """Return windows of `length` frames from states `starts` [W] of episodes [W].

    They may extend past the end of their episode: the last state is repeated, and `valid` marks the episode's states.
    """
    first, last = store.offsets[episodes] + starts, store.offsets[episodes + 1] - 1
    count = min(length + 1, len(store.frames))
    base = np.minimum(first, len(store.frames) - count)
    steps = first[:, None] + np.arange(length + 1)
    rows = take(store.frames, base, count)
    if not (steps[:, -1] <= last).all():
        rows = np.take_along_axis(rows, (np.minimum(steps, last[:, None]) - base[:, None])[..., None], 1)
    windows = _WindowSource(store, length).windows(torch.from_numpy(rows), episodes, first)
    return replace(windows, valid=torch.from_numpy(steps <= last[:, None]))


def windows_along(
    store: Store, episodes: np.ndarray, context: int, frames: int, most: int, batch: int = 512
) -> Iterator[Windows]:
    """Yield about `most` windows (`windows_at`) that start evenly spread over all states with enough frames before.

    Each has `context` frames before its start and `frames` after it; at most `batch` are yielded at once.
    """
    counts = np.maximum(0, store.lengths[episodes] - context)
    ends, total = np.cumsum(counts), int(counts.sum())
    numbers = np.arange(0, total, max(1, -(-total // most)))
    for first in range(0, len(numbers), batch):
        some = numbers[first : first + batch]
        places = np.searchsorted(ends, some, side="right")
        yield windows_at(store, episodes[places], some - (ends - counts)[places], context + frames)


def _overlapping(frames: Tensor, length: int) -> Tensor:
    """Return the overlapping windows of all rows as a view, shape [N - L, (L + 1) * width]."""
    rows, width = frames.shape
    return frames.as_strided((rows - length, (length + 1) * width), (width, 1))


Places = tuple[np.ndarray, np.ndarray]
"""Episodes of windows and the store rows at which they start, shape [n] each, int64."""


class _WindowSource:
    """Makes windows of L = `length` frames, on `device`, of rows of a store and of what it knows by episode.

    `failed`: whether each episode ended in failure, shape [E]; None if none did.
    """

    def __init__(self, store: Store, length: int, device: str | torch.device = "cpu") -> None:
        self._store, self._length, self._device = store, length, device
        failed = store.status == Status.TERMINATED
        self.failed = failed if failed.any() else None
        self._of_episodes = {
            name: torch.from_numpy(values).to(device)
            for name, values in (("ground", store.ground), ("parameters", store.parameters))
            if values is not None
        }

    def windows(self, frames: Tensor, episodes: np.ndarray, first: np.ndarray) -> Windows:
        """Return windows as views of their rows `frames`, shape [W, L + 1, width] or [W, (L + 1) * width].

        They begin at rows `first` [W] of the store, in `episodes` [W].
        """
        spec = self._store.header.spec
        rows = frames.to(self._device).view(len(frames), self._length + 1, -1)
        q, qd, control, channels, contacts = rows.split(list(widths(spec).values()), -1)
        beside: dict[str, Any] = {}
        if self._of_episodes:
            chosen = torch.from_numpy(episodes).to(self._device)
            beside |= {name: values.index_select(0, chosen) for name, values in self._of_episodes.items()}
        if self.failed is not None:
            left = self._store.offsets[episodes + 1] - 1 - first
            ended = self.failed[episodes][:, None] & (left[:, None] == np.arange(self._length + 1))
            beside["failed"] = torch.from_numpy(ended).to(self._device)
        return Windows(
            q, qd, control[:, :-1], channels=channels if spec.nx else None, contacts=contacts if spec.nc else None,
            **beside,
        )  # fmt: skip


ENOUGH_LOGS = 10
"""Number of logs from which on each log is one block."""
BLOCK_EXPONENT = 2.0 / 3.0
"""Power of the number of windows of which there are as many blocks, of fewer logs."""


@dataclass(frozen=True)
class Blocks:
    """A partition of windows into independent blocks.

    Attributes:
        of_window: Block of each window, int64, shape [W].
        count: Number of blocks.
        logs: Whether blocks are whole logs.
    """

    of_window: Tensor
    count: int
    logs: bool

    @property
    def text(self) -> str:
        """Number and kind, for example "12 logs"."""
        return f"{self.count} {'logs' if self.logs else 'stretches of logs'}"

    def sums(self, rows: Tensor) -> Tensor:
        """Return the sums over the blocks of values by window, [W, n] to [blocks, n]."""
        return rows.new_zeros(self.count, rows.shape[1]).index_add(0, self.of_window, rows)


def blocks_of(windows: Windows) -> Blocks:
    """Return the blocks of windows: whole logs if there are enough, else about W^(2/3) stretches."""
    origin = windows.source
    if len(origin.logs) >= ENOUGH_LOGS:
        return Blocks(origin.log, len(origin.logs), True)
    length = max(1, round(windows.count ** (1.0 - BLOCK_EXPONENT)))
    log, places = origin.log.numpy(), origin.places.numpy()
    order = np.lexsort((places[:, 1], places[:, 0], log))
    block, of_window = -1, torch.zeros(windows.count, dtype=torch.long)
    for number in range(len(origin.logs)):
        rows = order[log[order] == number]
        for stretch in np.array_split(rows, max(1, round(len(rows) / length))):
            block += 1
            of_window[torch.from_numpy(stretch)] = block
    return Blocks(of_window, block + 1, False)


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
        streaming through it (`RowStream`), for many draws; None reads each window from the file when drawn, with
        the same draws as for rows in memory. `rows` selects windows of each batch if other processes take the rest.

        Raises:
            InputError: No episode of the split is long enough.
        """
        self.rows = rows
        self._episodes = episodes_of(store, split) if episodes is None else episodes
        self._device = device
        if stream is not None and isinstance(store.frames, StoredRows):
            self._episodes = np.sort(self._episodes)  # in file order
        self._generator = torch.Generator().manual_seed(seed)
        self._source = _WindowSource(store, length, device)
        self.failed = self._source.failed
        self.batch, self._index = batch, WindowIndex(store, self._episodes, length)
        self.count = self._index.count
        self._rows = store.frames if isinstance(store.frames, StoredRows) else torch.from_numpy(store.frames).to(device)
        self._stream = None
        if isinstance(self._rows, StoredRows) and stream is not None:
            self._stream = RowStream(self._rows, self._index, seed, stream)

    def draw(self) -> Windows:
        """Return the next batch."""
        (episodes, first), rows, starts = self._pick()
        frames = _overlapping(rows, self._index.length).index_select(0, starts[self.rows])
        return self._source.windows(frames, episodes[self.rows], first[self.rows])

    def _pick(self) -> tuple[Places, Tensor, Tensor]:
        """Draw windows: their places, rows of the store [N, width], and the first of these rows of each window [B]."""
        if self._stream is not None:
            return self._stream.pick(self._generator, self.batch)
        places = self._index.places(torch.randint(self._index.count, (self.batch,), generator=self._generator).numpy())
        if isinstance(self._rows, Tensor):
            return places, self._rows, torch.from_numpy(places[1]).to(self._rows.device)
        states = self._index.length + 1
        rows = torch.from_numpy(take(self._rows, places[1], states))
        return places, rows.flatten(0, 1), states * torch.arange(self.batch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the random generator and of the stream."""
        drawn = {} if self._stream is None else {"drawn": self._stream.drawn}
        return {"generator": self._generator.get_state(), **drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the draws from a saved state."""
        if self._stream is not None:
            self._stream.resume(int(state["drawn"]))
        self._generator.set_state(state["generator"])


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

    def places(self, numbers: np.ndarray) -> Places:
        """Return where windows begin."""
        place = np.searchsorted(self._ends, numbers, side="right")
        return self._episodes[place], self._shift[place] + self._stride * numbers

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Return the store rows at which windows start, shape [n], int64."""
        return self.places(numbers)[1]


class RowStream:
    """The part of a file that is held in memory, whose blocks are replaced one by one, for draws of windows.

    Windows are cut into blocks in file order; blocks are read in random order, each once per pass. Memory holds as many
    blocks as fit, and draws are uniform over their windows. After as many draws as a block has windows, the oldest
    block is replaced, so each window is drawn once on average while in memory.

    Attributes:
        drawn: Number of windows drawn so far.
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
        self._loaded, self.drawn = 0, 0
        self._read_until(held)

    def pick(self, random: torch.Generator, count: int) -> tuple[Places, Tensor, Tensor]:
        """Draw `count` windows with replacement, after replacing the blocks that are due; see `WindowSampler._pick`."""
        self._read_until(self._blocks_due())
        place = torch.randint(len(self._held), (count,), generator=random).numpy()
        share = torch.randint(1 << 30, (count,), generator=random).numpy()
        block = self._held[place]
        first = self._bounds[block]
        numbers = first + (share * (self._bounds[block + 1] - first) >> 30)
        places = self._index.places(numbers)
        starts = torch.from_numpy(place * self._size + places[1] - self._first[block])
        self.drawn += count
        return places, self._rows.flatten(0, 1), starts

    def resume(self, drawn: int) -> None:
        """Continue after `drawn` windows; rereads the blocks that were in memory."""
        self.drawn = drawn
        self._loaded = self._blocks_due() - len(self._held)
        self._read_until(self._blocks_due())

    def _blocks_due(self) -> int:
        """Return how many blocks should have been read in total."""
        held, blocks = len(self._held), len(self._first)
        return held + self.drawn * blocks // self._index.count if held < blocks else held

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

# SPDX-License-Identifier: Apache-2.0
"""Windows of trajectories, drawn in batches by index arithmetic; never across the seam of two episodes.

A window of L frames starts at any state that is followed by L more states of its episode. All starts are computed
once; a batch is one random draw of starts and one gather.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Split, Status, Store
from neurodyn.data.writer import widths


@dataclass(frozen=True)
class Batch:
    """Windows of L frames.

    Attributes:
        q: Positions [rad or m], shape [B, L + 1, nq].
        qd: Velocities [rad/s or m/s], shape [B, L + 1, nv].
        control: Torques during the frames [N m or N], shape [B, L, nu].
        ground: Pose of the store's scene in each window (position [m], quaternion with the scalar last), shape
            [B, 7]; None where the store has no scene.
        channels: The spec's channels, shape [B, L + 1, nx]; None where it has none.
        contacts: Whether the spec's contacts are closed, shape [B, L + 1, nc]; None where it has none.
        failed: Whether each state is the last of an episode that ended in a failure, shape [B, L + 1], bool; None
            where no episode of the store did.
    """

    q: Tensor
    qd: Tensor
    control: Tensor
    ground: Tensor | None = field(default=None, kw_only=True)
    channels: Tensor | None = field(default=None, kw_only=True)
    contacts: Tensor | None = field(default=None, kw_only=True)
    failed: Tensor | None = field(default=None, kw_only=True)

    def rows(self, index: slice) -> Self:
        """Return some of the windows."""
        return replace(self, **{name: value[index] for name, value in vars(self).items() if value is not None})


@dataclass(frozen=True)
class Windows(Batch):
    """Windows of L frames with their origin.

    Attributes:
        episode: Episode of each window, shape [B].
        start: State of the episode at which each window starts, shape [B].
        group: Group of each window, shape [B]; -1 where there is none.
    """

    episode: np.ndarray
    start: np.ndarray
    group: np.ndarray


class WindowSampler:
    """Draws batches of windows uniformly, with replacement, from all starts of a split; endless.

    The draws depend on the seed alone, not on the device, and continue bitwise from a saved state.

    Attributes:
        count: Number of different windows.
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
    ) -> None:
        """Prepare the draws.

        Args:
            store: The trajectories; copied to `device` once.
            length: Frames L of a window.
            split: Which episodes to draw from; see `data.split.episodes_of`.
            batch: Windows B in a batch.
            seed: Seed of the draws.
            device: Device of the batches.
            episodes: The episodes to draw from, in place of a split; repeated ones are drawn more often.

        Raises:
            InputError: No episode of the split is long enough.
        """
        self._store, self._episodes = store, episodes_of(store, split) if episodes is None else episodes
        self._frames = torch.from_numpy(store.frames).to(device)
        self._generator = torch.Generator().manual_seed(seed)
        self._ground = None if store.ground is None else torch.from_numpy(store.ground).to(device)
        self._failures = _failures(store)
        self._offsets = torch.from_numpy(store.offsets)
        self.batch = batch
        self.set_length(length)

    @property
    def has_failures(self) -> bool:
        """Whether batches say where an episode ended in a failure."""
        return self._failures is not None

    @property
    def length(self) -> int:
        """Frames L of a window."""
        return self._length

    def set_length(self, length: int) -> None:
        """Draw windows of `length` frames from now on; the random stream continues, errors as above."""
        starts = window_starts(self._store, self._episodes, length)
        self._length, self.count = length, len(starts)
        self._starts = torch.from_numpy(starts)
        self._windows = _windows(self._frames, length)

    def draw(self) -> Batch:
        """Return the next batch."""
        choice = torch.randint(self.count, (self.batch,), generator=self._generator)
        rows = self._starts.index_select(0, choice)
        fields = _gather(self._windows, rows.to(self._frames.device), self._store.header.spec)
        if self._failures is not None:
            fields["failed"] = _ended(self._failures, rows, self._length).to(self._frames.device)
        if self._ground is not None:
            episode = torch.searchsorted(self._offsets, rows, right=True) - 1
            fields["ground"] = self._ground.index_select(0, episode.to(self._frames.device))
        return Batch(**fields)

    def __iter__(self) -> Iterator[Batch]:
        while True:
            yield self.draw()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws: the generator's, and the window length."""
        return {"generator": self._generator.get_state(), "length": self._length}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the draws from a saved state."""
        self.set_length(int(state["length"]))
        self._generator.set_state(state["generator"])


def window_starts(store: Store, episodes: np.ndarray, length: int, stride: int = 1) -> np.ndarray:
    """Return the rows at which windows of `length` frames start, every `stride` states in each episode; int64.

    Raises:
        InputError: No episode is long enough.
    """
    lengths, offsets = store.lengths[episodes], store.offsets[:-1][episodes]
    counts = np.maximum(0, (lengths - length) // stride + 1)
    total = int(counts.sum())
    if not total:
        raise InputError(
            f"no episode of {store.header.robot!r} holds a window of {length} frames; the longest of the "
            f"{len(episodes)} has {int(lengths.max())}; give a shorter window or longer episodes"
        )
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(offsets, counts) + stride * within


def all_windows(
    store: Store, length: int, *, split: int | None = None, stride: int = 1, batch: int = 4096
) -> Iterator[Windows]:
    """Iterate over all windows of a split (None: of all episodes) in batches of at most `batch`, in order.

    Args:
        store: The trajectories.
        length: Frames L of a window.
        split: Which episodes; see `data.split.episodes_of`.
        stride: States between the starts of neighbouring windows.
        batch: Most windows in a batch.

    Raises:
        InputError: No episode is long enough.
    """
    episodes = store.episodes() if split is None else episodes_of(store, split)
    starts = window_starts(store, episodes, length, stride)
    windows, failures = _windows(torch.from_numpy(store.frames), length), _failures(store)
    for begin in range(0, len(starts), batch):
        rows = starts[begin : begin + batch]
        episode = np.searchsorted(store.offsets, rows, side="right") - 1
        fields = _gather(windows, torch.from_numpy(rows), store.header.spec)
        if store.ground is not None:
            fields["ground"] = torch.from_numpy(store.ground[episode])
        if failures is not None:
            fields["failed"] = _ended(failures, torch.from_numpy(rows), length)
        yield Windows(**fields, episode=episode, start=rows - store.offsets[episode], group=store.group[episode])


def _windows(frames: Tensor, length: int) -> Tensor:
    """Return the overlapping windows of all rows as a view, shape [N - L, (L + 1) * width]: no copy."""
    rows, width = frames.shape
    return frames.as_strided((rows - length, (length + 1) * width), (width, 1))


def _gather(windows: Tensor, starts: Tensor, spec: StateSpec) -> dict[str, Any]:
    # One copy of B contiguous pieces; the results are views of it.
    width = windows.stride(0)
    picked = windows.index_select(0, starts).view(len(starts), -1, width)
    q, qd, control, channels, contacts = picked.split(list(widths(spec).values()), -1)
    named = {"q": q, "qd": qd, "control": control[:, :-1]}
    return named | {"channels": channels if spec.nx else None, "contacts": contacts if spec.nc else None}


def _failures(store: Store) -> Tensor | None:
    """Return the rows that end an episode in a failure, shape [N], bool; None where there are none."""
    failed = store.table["status"] == Status.TERMINATED
    if not failed.any():
        return None
    marked = torch.zeros(len(store.frames), dtype=torch.bool)
    marked[torch.from_numpy(store.offsets[1:][failed] - 1)] = True
    return marked


def _ended(failures: Tensor, starts: Tensor, length: int) -> Tensor:
    return failures[starts[:, None] + torch.arange(length + 1)]

# SPDX-License-Identifier: Apache-2.0
"""Batches for the members of an ensemble, each from episodes of its own.

And windows in which episodes end in a failure.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.seeds import derive_seed, generator
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.split import episodes_of
from neurodyn.data.store import IN_MEMORY, Store
from neurodyn.data.window_sources import WindowIndex
from neurodyn.data.windows import Batch, OpenWindows, failing_episodes, joined, open_windows


class MemberSampler:
    """Draws batches of windows for each member; endless, and continues bitwise from a saved state.

    Attributes:
        episodes: Of each member, and of each store, the episodes that it draws from.
    """

    def __init__(
        self,
        data: Store | Mixture,
        length: int,
        *,
        members: int,
        bootstrap: bool,
        batch: int,
        seed: int,
        phase: int,
        device: torch.device,
        rows: slice = slice(None),
    ) -> None:
        """Prepare the draws.

        Args:
            data: The trajectories, of one store or of several.
            length: Frames of a window.
            members: Number of members; 1 where all read the same windows.
            bootstrap: Whether each member has its own draw, with replacement, of the training episodes.
            batch: Windows for each member.
            seed: Seed of the training; it alone decides on the members' episodes.
            phase: Phase of the training, which has draws of its own.
            device: Where batches are wanted.
            rows: Which windows of each member's batch are wanted, as of `MixtureSampler`.

        Raises:
            InputError: No training episode is long enough.
        """
        mixture = Mixture.of(data)
        every = [episodes_of(store, Split.TRAIN) for store in mixture.stores]
        self.episodes = [
            [_resampled(own, seed, member) for own in every] if bootstrap else every for member in range(members)
        ]
        self._samplers = [
            MixtureSampler(
                mixture, length, batch=batch, seed=derive_seed(seed, "batches", phase, member), device=device,
                stream=IN_MEMORY // members, episodes=own, rows=rows,
            )
            for member, own in enumerate(self.episodes)
        ]  # fmt: skip

    def draw(self) -> Batch:
        """Return windows with the members as their first axis, as `data.windows.Batch` otherwise."""
        parts = [sampler.draw_joined() for sampler in self._samplers]
        return Batch(
            torch.stack([p.q for p in parts]),
            torch.stack([p.qd for p in parts]),
            torch.stack([p.control for p in parts]),
            channels=_stacked([p.channels for p in parts]),
            contacts=_stacked([p.contacts for p in parts]),
            failed=_stacked([p.failed for p in parts]),
        )

    def draw_rows(self) -> list[tuple[int, Batch, Tensor]]:
        """Return windows member after member: of each store that has any, its number, a batch, and their members.

        Members are on the CPU.
        """
        drawn = [(number, batch, m) for m, sampler in enumerate(self._samplers) for number, batch in sampler.draw()]
        parts = []
        for number in dict.fromkeys(number for number, _, _ in drawn):
            own = [(batch, m) for n, batch, m in drawn if n == number]
            batches, counts = [batch for batch, _ in own], torch.tensor([len(batch.q) for batch, _ in own])
            members = torch.tensor([m for _, m in own]).repeat_interleave(counts)
            parts.append((number, joined(batches), members))
        return parts

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws."""
        return {str(m): sampler.state_dict() for m, sampler in enumerate(self._samplers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the draws from a saved state."""
        for m, sampler in enumerate(self._samplers):
            sampler.load_state_dict(state[str(m)])


def _resampled(episodes: np.ndarray, seed: int, member: int) -> np.ndarray:
    return generator(seed, "bootstrap", member).choice(episodes, len(episodes))


def _stacked(parts: list[Tensor | None]) -> Tensor | None:
    found = [part for part in parts if part is not None]
    return torch.stack(found) if len(found) == len(parts) else None


_SHARE = 8
"""One window of an end for so many others."""


@dataclass(frozen=True)
class EndingWindows:
    """A batch of such windows.

    Attributes:
        windows: The windows, the members as their first axis.
        weight: How many there are in the data for each window that lies within its episode.
    """

    windows: OpenWindows
    weight: float


class EndSampler:
    """Draws windows that a failure cuts off, for each member; endless, and continues bitwise from a saved state."""

    def __init__(
        self, mixture: Mixture, episodes: list[list[np.ndarray]], context: int, forecast: int, batch: int, seed: int,
        device: torch.device, rows: slice = slice(None),
    ) -> None:  # fmt: skip
        """Prepare the draws.

        Args:
            mixture: The trajectories.
            episodes: Of each member, and of each store, the episodes to draw from.
            context: Frames of a window before its forecast.
            forecast: Frames of the forecast.
            batch: Windows of each member in the usual batches.
            seed: Seed of the draws.
            device: Where batches are wanted.
            rows: Which windows of each batch are wanted, as of `MixtureSampler`.
        """
        self._rows, ranks = rows, rows.step or 1
        self._stores, self._context, self._forecast = mixture.stores, context, forecast
        self._count, self._device = ranks * max(4, batch // _SHARE // ranks), device  # the same number for each
        self._ends = [
            [failing_episodes(store, own, context + 1) for store, own in zip(self._stores, member, strict=True)]
            for member in episodes
        ]
        self._random = [
            np.random.Generator(np.random.PCG64(derive_seed(seed, "ends", m))) for m in range(len(episodes))
        ]
        known = sum(len(own) for member in self._ends for own in member)
        whole = sum(
            WindowIndex(store, own, context + forecast).count
            for member in episodes for store, own in zip(self._stores, member, strict=True)
        )  # fmt: skip
        self._weight = (forecast - 1) * known / whole
        # A member whose episodes all went well cannot be drawn for, and a forecast of one frame is never cut off.
        self.empty = forecast == 1 or not all(any(len(own) for own in member) for member in self._ends)

    def draw(self) -> EndingWindows | None:
        """Return the next windows; None where there are none."""
        if self.empty:
            return None
        members = [self._of_member(ends, random) for ends, random in zip(self._ends, self._random, strict=True)]
        return EndingWindows(OpenWindows.combined(members, torch.stack).to(self._device), self._weight)

    def _of_member(self, ends: list[np.ndarray], random: np.random.Generator) -> OpenWindows:
        numbers = random.integers(sum(map(len, ends)), size=self._count)[self._rows]
        ahead = random.integers(1, self._forecast, size=self._count)[self._rows]
        parts, before = [], 0
        for store, own in zip(self._stores, ends, strict=True):
            mine = (numbers >= before) & (numbers < before + len(own))
            episodes = own[numbers[mine] - before]
            before += len(own)
            # As far from the end as is drawn, or as the warm-up allows.
            left = np.minimum(ahead[mine], store.lengths[episodes] - self._context)
            starts = store.lengths[episodes] - left - self._context
            if mine.any():
                parts.append(open_windows(store, episodes, starts, self._context + self._forecast))
        return OpenWindows.combined(parts, torch.cat)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws."""
        return {str(m): random.bit_generator.state for m, random in enumerate(self._random)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the draws from a saved state."""
        for m, random in enumerate(self._random):
            random.bit_generator.state = state[str(m)]


class EpisodeSampler(MemberSampler):
    """Draws batches of whole windows for each member, and batches of windows that a failure cuts off."""

    def __init__(
        self, data: Store | Mixture, context: int, forecast: int, *, members: int, bootstrap: bool, batch: int,
        seed: int, phase: int, device: torch.device, rows: slice = slice(None),
    ) -> None:  # fmt: skip
        """Prepare the draws.

        Args:
            data: The trajectories, of one store or of several.
            context: Frames of a window before its forecast.
            forecast: Frames of the forecast.
            members: As of `MemberSampler`, like all below.
            bootstrap: Whether members draw from episodes of their own.
            batch: Whole windows for each member.
            seed: Seed of the training.
            phase: Phase of the training.
            device: Where batches are wanted.
            rows: Which windows of each batch are wanted, as of `MixtureSampler`.

        Raises:
            InputError: No training episode is long enough.
        """
        super().__init__(
            data, context + forecast, members=members, bootstrap=bootstrap, batch=batch, seed=seed, phase=phase,
            device=device, rows=rows,
        )  # fmt: skip
        ends = derive_seed(seed, "end batches", phase)
        self._ends = EndSampler(Mixture.of(data), self.episodes, context, forecast, batch, ends, device, rows)

    def draw_ends(self) -> EndingWindows | None:
        """Return windows that a failure cuts off; None where there are none."""
        return self._ends.draw()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws."""
        return super().state_dict() | {"ends": self._ends.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the draws from a saved state."""
        super().load_state_dict(state)
        self._ends.load_state_dict(state["ends"])

# SPDX-License-Identifier: Apache-2.0
"""Batches for the members of an ensemble, each from its own episodes, and windows cut off by a failure."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.seeds import derive_seed, generator
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.split import episodes_of, failing_episodes
from neurodyn.data.store import IN_MEMORY, Store
from neurodyn.data.windows import WindowIndex, Windows, concatenate, windows_at


class MemberSampler:
    """Endless batches of windows for each member, which resume bitwise from a saved state.

    Attributes:
        episodes: Episodes to draw from, by member and store.
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
            data: The trajectories, of one or several stores.
            length: Frames of a window.
            members: Number of members; 1 if all read the same windows.
            bootstrap: Whether each member draws its own training episodes, with replacement.
            batch: Windows for each member.
            seed: Seed of the training, which determines the members' episodes.
            phase: Phase of the training, which has its own draws.
            device: Device of the batches.
            rows: Windows of each member's batch to return; see `MixtureSampler`.

        Raises:
            InputError: No training episode is long enough.
        """
        mixture = Mixture.of(data)
        every = [episodes_of(store, Split.TRAIN) for store in mixture.stores]
        self.episodes = [
            [generator(seed, "bootstrap", member).choice(own, len(own)) for own in every] if bootstrap else every
            for member in range(members)
        ]
        self._samplers = [
            MixtureSampler(
                mixture, length, batch=batch, seed=derive_seed(seed, "batches", phase, member), device=device,
                stream=IN_MEMORY // members, episodes=own, rows=rows,
            )
            for member, own in enumerate(self.episodes)
        ]  # fmt: skip

    def draw(self) -> Windows:
        """Return windows with the members as an additional first axis."""
        parts = [replace(sampler.draw_together(), ground=None) for sampler in self._samplers]
        return Windows.combine(parts, torch.stack)

    def draw_rows(self) -> list[tuple[int, Windows, Tensor]]:
        """Return number, batch and members (on the CPU) of each store with windows, ordered by member."""
        drawn = [(number, batch, m) for m, sampler in enumerate(self._samplers) for number, batch in sampler.draw()]
        parts = []
        for number in dict.fromkeys(number for number, _, _ in drawn):
            of_store = [(batch, m) for n, batch, m in drawn if n == number]
            batches, counts = [batch for batch, _ in of_store], torch.tensor([len(batch.q) for batch, _ in of_store])
            members = torch.tensor([m for _, m in of_store]).repeat_interleave(counts)
            parts.append((number, concatenate(batches), members))
        return parts

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws."""
        return {str(m): sampler.state_dict() for m, sampler in enumerate(self._samplers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the draws from a saved state."""
        for m, sampler in enumerate(self._samplers):
            sampler.load_state_dict(state[str(m)])


_SHARE = 8
"""Number of whole windows for each window with a failure."""


@dataclass(frozen=True)
class EndingWindows:
    """A batch of windows cut off by a failure.

    Attributes:
        windows: The windows, with the members as their first axis.
        weight: Number of such windows in the data for each whole window.
    """

    windows: Windows
    weight: float


class EndSampler:
    """Endless batches of windows cut off by a failure, which resume bitwise from a saved state."""

    def __init__(
        self, mixture: Mixture, episodes: list[list[np.ndarray]], context: int, forecast: int, batch: int, seed: int,
        device: torch.device, rows: slice = slice(None),
    ) -> None:  # fmt: skip
        """Prepare the draws.

        Args:
            mixture: The trajectories.
            episodes: Episodes to draw from, by member and store.
            context: Frames of a window before its forecast.
            forecast: Frames of the forecast.
            batch: Windows of each member in the batches of whole windows.
            seed: Seed of the draws.
            device: Device of the batches.
            rows: Windows of each batch to return; see `MixtureSampler`.
        """
        self._rows, ranks = rows, rows.step or 1
        self._stores, self._context, self._forecast = mixture.stores, context, forecast
        self._count, self._device = ranks * max(4, batch // _SHARE // ranks), device  # equal for all ranks
        self._ends = [
            [failing_episodes(store, own, context + 1) for store, own in zip(self._stores, member, strict=True)]
            for member in episodes
        ]
        self._random = [generator(seed, "ends", m) for m in range(len(episodes))]
        known = sum(len(own) for member in self._ends for own in member)
        whole = sum(
            WindowIndex(store, own, context + forecast).count
            for member in episodes for store, own in zip(self._stores, member, strict=True)
        )  # fmt: skip
        self._weight = (forecast - 1) * known / whole
        # A member without failures has no such windows, and a forecast of one frame is never cut off.
        self.empty = forecast == 1 or not all(any(len(own) for own in member) for member in self._ends)

    def draw(self) -> EndingWindows | None:
        """Return the next windows; None if there are no such windows."""
        if self.empty:
            return None
        members = [self._of_member(ends, random) for ends, random in zip(self._ends, self._random, strict=True)]
        return EndingWindows(Windows.combine(members, torch.stack).to(self._device), self._weight)

    def _of_member(self, ends: list[np.ndarray], random: np.random.Generator) -> Windows:
        numbers = random.integers(sum(map(len, ends)), size=self._count)[self._rows]
        ahead = random.integers(1, self._forecast, size=self._count)[self._rows]
        parts, before = [], 0
        for store, own in zip(self._stores, ends, strict=True):
            mine = (numbers >= before) & (numbers < before + len(own))
            episodes = own[numbers[mine] - before]
            before += len(own)
            # The drawn distance from the end, or the largest one that leaves room for the context.
            left = np.minimum(ahead[mine], store.lengths[episodes] - self._context)
            starts = store.lengths[episodes] - left - self._context
            if mine.any():
                parts.append(windows_at(store, episodes, starts, self._context + self._forecast))
        return Windows.combine(parts, torch.cat)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws."""
        return {str(m): random.bit_generator.state for m, random in enumerate(self._random)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the draws from a saved state."""
        for m, random in enumerate(self._random):
            random.bit_generator.state = state[str(m)]


class EpisodeSampler(MemberSampler):
    """Batches of whole windows for each member, and of windows cut off by a failure."""

    def __init__(
        self, data: Store | Mixture, context: int, forecast: int, *, members: int, bootstrap: bool, batch: int,
        seed: int, phase: int, device: torch.device, rows: slice = slice(None),
    ) -> None:  # fmt: skip
        """Prepare draws of windows with `context + forecast` frames; other arguments: see `MemberSampler`."""
        super().__init__(
            data, context + forecast, members=members, bootstrap=bootstrap, batch=batch, seed=seed, phase=phase,
            device=device, rows=rows,
        )  # fmt: skip
        ends = derive_seed(seed, "end batches", phase)
        self._ends = EndSampler(Mixture.of(data), self.episodes, context, forecast, batch, ends, device, rows)

    def draw_ends(self) -> EndingWindows | None:
        """Return windows cut off by a failure; None if there are none."""
        return self._ends.draw()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws."""
        return super().state_dict() | {"ends": self._ends.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the draws from a saved state."""
        super().load_state_dict(state)
        self._ends.load_state_dict(state["ends"])

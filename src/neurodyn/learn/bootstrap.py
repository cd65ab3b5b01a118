# SPDX-License-Identifier: Apache-2.0
"""Batches for the members of an ensemble: each draws from episodes of its own, so that they differ where data are few.

A bootstrap by episode (not by window): neighbouring windows are nearly the same, and only whole episodes are
independent.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.seeds import derive_seed, generator
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Split, Store
from neurodyn.data.stored_rows import IN_MEMORY
from neurodyn.data.windows import Batch, joined


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

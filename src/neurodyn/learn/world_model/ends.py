# SPDX-License-Identifier: Apache-2.0
"""Windows in which episodes end in a failure, at any frame of the forecast.

A window that lies within its episode shows the failure in its last frame or not at all: a forecast of 8 frames would
see it after 8 frames alone, and an eighth as often as any other frame. The windows here are those that the end cuts
off: with them, weighed by how many there are, each frame of an episode counts the same at each horizon.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from neurodyn.core.seeds import derive_seed
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.data.until_end import OpenWindows, failing_episodes, open_windows
from neurodyn.data.window_sources import WindowIndex
from neurodyn.learn.bootstrap import MemberSampler

_SHARE = 8
"""One window of an end for so many others."""


@dataclass(frozen=True)
class Ends:
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

    def draw(self) -> Ends | None:
        """Return the next windows; None where there are none."""
        if self.empty:
            return None
        members = [self._of_member(ends, random) for ends, random in zip(self._ends, self._random, strict=True)]
        return Ends(OpenWindows.combined(members, torch.stack).to(self._device), self._weight)

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

    def draw_ends(self) -> Ends | None:
        """Return windows that a failure cuts off; None where there are none."""
        return self._ends.draw()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws."""
        return super().state_dict() | {"ends": self._ends.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the draws from a saved state."""
        super().load_state_dict(state)
        self._ends.load_state_dict(state["ends"])

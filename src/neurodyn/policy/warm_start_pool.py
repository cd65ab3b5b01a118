# SPDX-License-Identifier: Apache-2.0
"""Starts of worlds in imagination, warmed up many at a time.

Worlds start anew a few at a time, and a warm-up of a few rows costs nearly as much as one of many.
"""

import torch
from torch import Tensor

from neurodyn.dynamics.interface import Carry, MeasuredDynamics, State, present_state
from neurodyn.policy.starts import Starts

COUNT = 128
"""Starts that are read at once."""


class WarmStartPool:
    """Warmed-up starts with the model's memory of what came before them, each used once."""

    def __init__(self, model: MeasuredDynamics, starts: Starts, count: int = COUNT) -> None:
        self._model, self._starts, self._count = model, starts, count
        self._left = 0

    def take(self, carry: Carry, state: State, rows: Tensor) -> tuple[Carry, State]:
        """Start anew in some worlds.

        Args:
            carry: History of all worlds; it stays valid.
            state: State of all worlds.
            rows: Worlds that start anew.

        Returns:
            History and state of all worlds, those of the others as they were.
        """
        if self._left < len(rows):
            context = self._starts.draw(max(self._count, len(rows)))
            self._carry, self._state = self._model.begin(context), present_state(context)
            self._left = self._state.worlds
        self._left -= len(rows)
        chosen = torch.arange(self._left, self._left + len(rows), device=rows.device)
        fresh = self._state
        channels = state.channels
        if channels is not None and fresh.channels is not None:
            channels = channels.index_copy(0, rows, fresh.channels[chosen])
        q, qd = state.q.index_copy(0, rows, fresh.q[chosen]), state.qd.index_copy(0, rows, fresh.qd[chosen])
        return self._model.graft(carry, rows, self._carry, chosen), State(q, qd, channels)

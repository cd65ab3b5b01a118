# SPDX-License-Identifier: Apache-2.0
"""Resets of worlds whose episodes have ended.

Starts are drawn in advance, because a few take as long as many, and each ended world takes the next. On a GPU, counting
them would stall every frame: there, they are drawn anew every `REFILL` frames.
"""

from abc import ABC, abstractmethod
from typing import Any, cast

import torch
from torch import Tensor

from neurodyn.control.starts import Starts, widen_rows
from neurodyn.dynamics.batch import State, Window, present_state
from neurodyn.dynamics.capture import copy_of, restore_tree, save_tree, write
from neurodyn.dynamics.interface import Carry, Dynamics, MeasuredDynamics

WARM_STARTS = 128
"""Least number of starts read at once in models of logs: warming up a few costs as much as many."""

REFILL = 32
"""Frames between new draws of the prepared starts."""

_RESERVE = 64
"""Least number of starts drawn at once for worlds whose state is complete."""

_SHARE = 4
"""Worlds per prepared start; starts are reused if more episodes end within `REFILL` frames."""


class WorldReset(ABC):
    """Resets some of the worlds.

    Attributes:
        last_row: Row of the last used start, as a tensor; advanced by `renew`.
    """

    def __init__(self, starts: Starts, worlds: int, device: torch.device, *, ahead: bool) -> None:
        """Prepare for `worlds` worlds on a device; with `ahead`, draw starts in advance."""
        self._starts = starts
        self._count = max(WARM_STARTS, worlds // _SHARE)
        self._on_demand = not ahead
        self._frames = 0
        self.last_row = torch.zeros(1, dtype=torch.long, device=device)

    def prepare(self) -> None:
        """Draw starts in advance, every `REFILL` frames; called before each frame."""
        if self._on_demand:
            return
        if self._frames % REFILL == 0:
            self._refill(self._count)
        self._frames += 1

    def state(self) -> dict[str, Any]:
        """Return the remaining starts, on the CPU (`dynamics.capture`)."""
        return {}

    def load(self, saved: dict[str, Any]) -> None:  # noqa: B027 - most have none
        """Restore what `state` returned."""

    @abstractmethod
    def renew(self, carry: Carry, state: State, done: Tensor) -> tuple[Carry, State]:
        """Return history and state of all worlds, reset where `done` is true, shape [worlds]."""

    @abstractmethod
    def _refill(self, count: int) -> None:
        """Draw starts in advance."""

    def _next_rows(self, done: Tensor, pool: int) -> Tensor:
        """Return the pool row that each world uses if it is reset, shape [worlds]."""
        rows = (self.last_row + done.cumsum(0)) % pool
        self.last_row = rows[-1:]
        return rows


class StateReset(WorldReset):
    """Resets in dynamics whose state is complete, or whose memory is empty at a start."""

    def __init__(self, dynamics: Dynamics, starts: Starts, worlds: int, *, ahead: bool = False) -> None:
        """Prepare to reset worlds of some dynamics; with `ahead`, from starts drawn in advance."""
        super().__init__(starts, worlds, torch.device(dynamics.device), ahead=ahead)
        self._dynamics, self._worlds = dynamics, worlds
        self._pool: State | None = None
        self._reserve: State | None = None

    def state(self) -> dict[str, Any]:
        """Return the starts that were drawn and not yet used."""
        return {} if self._reserve is None else {"reserve": save_tree(self._reserve)}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        reserve = saved.get("reserve")
        self._reserve = None if reserve is None else State(**reserve)

    def _next_starts(self, count: int) -> State | Window:
        """Return the next starts, of which more are drawn at once unless they have a history."""
        if self._reserve is None or len(self._reserve.q) < count:
            drawn = self._starts.draw(max(count, _RESERVE))
            if not isinstance(drawn, State) or len(drawn.q) == count:
                return drawn
            self._reserve = drawn
        taken, self._reserve = self._reserve.rows(slice(count)), self._reserve.rows(slice(count, None))
        return taken

    def renew(self, carry: Carry, state: State, done: Tensor) -> tuple[Carry, State]:
        """Reset the worlds where `done` is true."""
        if self._on_demand:
            rows = done.nonzero()[:, 0]
            context = widen_rows(self._next_starts(len(rows)), rows, self._worlds)
        else:
            assert self._pool is not None
            context = self._pool.rows(self._next_rows(done, self._pool.worlds))
        return self._dynamics.reset(carry, context, done), present_state(context).where(done, state)

    def _refill(self, count: int) -> None:
        self._pool = _into_pool(self._pool, present_state(self._starts.draw(count)))


class WarmStartPool(WorldReset):
    """Resets in models of logs, from starts warmed up in batches, each used once."""

    def __init__(
        self, model: MeasuredDynamics, starts: Starts, worlds: int = 1, *, count: int | None = None, ahead: bool = False
    ) -> None:
        """Prepare to reset worlds of a model; `count` starts are read at once (default: at least `WARM_STARTS`)."""
        super().__init__(starts, worlds, torch.device(model.device), ahead=ahead)
        self._model = model
        self._count = count or (WARM_STARTS if self._on_demand else self._count)
        self._state: State | None = None
        self._left = 0

    def state(self) -> dict[str, Any]:
        """Return the remaining starts."""
        if self._state is None:
            return {}
        return {"left": self._left, "carry": save_tree(self._carry), "state": save_tree(self._state)}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        if saved:
            self._refill(self._count)  # allocate their structure
            self._carry = restore_tree(self._carry, saved["carry"])
            self._state = restore_tree(self._state, saved["state"])
            self._left = saved["left"]

    def renew(self, carry: Carry, state: State, done: Tensor) -> tuple[Carry, State]:
        """Reset the worlds where `done` is true."""
        if self._on_demand:
            needed = int(done.sum())
            if self._left < needed:
                self._refill(max(self._count, needed))
            self._left -= needed
            chosen = (self._left - 1 + done.cumsum(0)).clamp_min(0)
        else:
            assert self._state is not None
            chosen = self._next_rows(done, self._state.worlds)
        assert self._state is not None
        return self._model.graft(carry, done, self._carry, chosen), self._state.rows(chosen).where(done, state)

    def _refill(self, count: int) -> None:
        context = self._starts.draw(count)
        fresh = self._model.begin(context), present_state(context)
        known = None if self._state is None or self._on_demand else (self._carry, self._state)
        self._carry, self._state = _into_pool(known, fresh)
        self._left = count


def world_reset_in(dynamics: Dynamics, starts: Starts, worlds: int, *, ahead: bool) -> WorldReset:
    """Return the resets for worlds of some dynamics; with `ahead`, from starts drawn in advance."""
    if dynamics.measured:
        return WarmStartPool(cast(MeasuredDynamics, dynamics), starts, worlds, ahead=ahead)
    return StateReset(dynamics, starts, worlds, ahead=ahead)


def _into_pool(pool: Any, fresh: Any) -> Any:
    """Copy fresh starts into the memory of an earlier pool, which recorded frames refer to, and return it."""
    if pool is None:
        return copy_of(fresh)
    write(pool, fresh)
    return pool

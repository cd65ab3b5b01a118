# SPDX-License-Identifier: Apache-2.0
"""What a model remembers of the worlds it plans in: their last frames."""

from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor

from neurodyn.dynamics.interface import State, Window


class History:
    """The last frames of a batch of worlds, whose episodes may have started at different times."""

    def __init__(self, frames: int) -> None:
        """Keep so many frames; models without a memory need none."""
        self._frames = frames if frames > 1 else 0
        self._states: deque[State] = deque(maxlen=self._frames + 1)
        self._controls: deque[Tensor] = deque(maxlen=self._frames)
        self._ages = torch.empty(0, dtype=torch.long)  # frames since the start of each world

    def add(self, state: State, control: Tensor | None) -> None:
        """Add a state, and the control of the frame that led to it, shape [worlds, nu]; None for a first state."""
        if control is None:
            self._states.clear()
            self._controls.clear()
            self._ages = torch.zeros(state.worlds, dtype=torch.long, device=state.q.device)
        else:
            self._controls.append(control)
            self._ages = self._ages + 1
        self._states.append(state)

    def restart(self, mask: Tensor) -> None:
        """Forget the past of some worlds, shape [worlds], bool: their next state is a first one."""
        self._ages = self._ages.masked_fill(mask, -1)

    @property
    def first(self) -> Tensor:
        """Worlds whose present state is a first one, shape [worlds], bool."""
        return self._ages == 0

    def groups(self) -> Iterator[tuple[Tensor, State | Window, bool]]:
        """Yield worlds of which equally much is known.

        Yields:
            Rows of the worlds; their present states, with what is known of their past; whether these are first ones.
        """
        ages = self._ages.clamp(max=max(1, len(self._controls)))
        for age in ages.unique().tolist():
            rows = (ages == age).nonzero()[:, 0]
            context = self._context(min(age, len(self._controls)))
            yield rows, context if len(rows) == len(ages) else context.rows(rows), age == 0

    def _context(self, frames: int) -> State | Window:
        """Return the present states with so many frames of their past."""
        present = self._states[-1]
        if not frames:
            return present
        states, controls = list(self._states)[-frames - 1 :], list(self._controls)[-frames:]
        measured = [x.channels for x in states if x.channels is not None]
        channels = torch.stack(measured, 1) if measured else None
        return Window(
            torch.stack([x.q for x in states], 1), torch.stack([x.qd for x in states], 1), torch.stack(controls, 1),
            channels,
        )  # fmt: skip

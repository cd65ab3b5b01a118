# SPDX-License-Identifier: Apache-2.0
"""What a model remembers of the worlds it plans in: their last frames."""

from collections import deque

import torch
from torch import Tensor

from neurodyn.dynamics.interface import State, Window


class History:
    """The last frames of a batch of worlds."""

    def __init__(self, frames: int) -> None:
        """Keep so many frames; models without a memory need none."""
        self._frames = frames if frames > 1 else 0
        self._states: deque[State] = deque(maxlen=self._frames + 1)
        self._controls: deque[Tensor] = deque(maxlen=self._frames)

    def add(self, state: State, control: Tensor | None) -> None:
        """Add a state, and the control of the frame that led to it, shape [worlds, nu]; None for a first state."""
        if control is None:
            self._states.clear()
            self._controls.clear()
        else:
            self._controls.append(control)
        self._states.append(state)

    def context(self) -> State | Window:
        """Return the present states, with what is known of their past."""
        present = self._states[-1]
        if not self._controls:
            return present
        measured = [x.channels for x in self._states if x.channels is not None]
        channels = torch.stack(measured, 1) if measured else None
        return Window(
            torch.stack([x.q for x in self._states], 1), torch.stack([x.qd for x in self._states], 1),
            torch.stack(list(self._controls), 1), channels,
        )  # fmt: skip

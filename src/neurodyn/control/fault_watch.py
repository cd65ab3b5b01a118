# SPDX-License-Identifier: Apache-2.0
"""The guard of loops in which something acts: the first worlds whose episodes end in implausible states are named."""

from collections import deque

import torch
from torch import Tensor

from neurodyn.control.frame_end import Ending
from neurodyn.control.task_frames import Moment, TaskFrames
from neurodyn.dynamics.guard import KEPT, MOST, Before, report, state_fault
from neurodyn.dynamics.interface import State, Step, Window


class FaultWatch:
    """Keeps the last frames of all worlds, and reports the ones that end in implausible states.

    Episodes that end so are failures already (`control.frame_end`) and start anew; here they get a name. A policy that
    explores has many of them, so that the first few are reported and the others only counted.
    """

    def __init__(self, frames: TaskFrames, where: str) -> None:
        """Take a task in some dynamics; `where` is what runs, for messages."""
        self._frames, self._where = frames, where
        self._recent: deque[tuple[State, Tensor | None]] = deque(maxlen=KEPT + frames.dynamics.spec.context)
        self._left = MOST

    def see(self, before: Moment, after: Moment, step: Step, end: Ending, lengths: Tensor) -> None:
        """Take note of a frame.

        Args:
            before: Worlds as the frame began.
            after: Worlds as it ended.
            step: What the dynamics predicted.
            end: How it ended.
            lengths: Frames of the present episodes, this one included, shape [worlds].
        """
        if not self._left:
            return
        self._recent.append((before.state, after.torque))
        if not bool(end.implausible.any()):
            return
        self._left -= 1
        world = int(end.implausible.int().argmax())
        frame = int(lengths[world])
        state = step.state
        if not bool(self._frames.bounds.outside(state.q, state.qd, state.channels)[world]):
            return  # its reward was not finite, which the task's terms say
        only = State.unchecked(
            q=state.q[world : world + 1], qd=state.qd[world : world + 1],
            channels=None if state.channels is None else state.channels[world : world + 1],
        )  # fmt: skip
        found = state_fault(self._frames.bounds, only, self._where, frame=frame)
        fault = type(found)(**{
            **found.plain(), "world": world, "worlds": int(end.implausible.sum()), "of": len(end.implausible),
        })  # fmt: skip
        report(fault, self._before(world, frame))

    def _before(self, world: int, frame: int) -> Before | None:
        """Return the last states of a world's episode; None where targets drive it, whose torques are not known."""
        kept = list(self._recent)[-frame:]
        torques = [torque[world] for _, torque in kept if torque is not None]
        if len(torques) < len(kept):
            return None
        states = [state for state, _ in kept]
        channels = [state.channels[world] for state in states if state.channels is not None]
        window = Window(
            torch.stack([state.q[world] for state in states])[None].clone(),
            torch.stack([state.qd[world] for state in states])[None].clone(),
            torch.stack(torques)[None, :-1].clone(),
            torch.stack(channels)[None].clone() if channels else None,
        )
        return Before(self._frames.dynamics.spec, window, self._frames.environment, world)

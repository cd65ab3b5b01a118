# SPDX-License-Identifier: Apache-2.0
"""Where episodes start: at states that a task draws, or after windows of a log."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State, Window, present_state
from neurodyn.robots.plausible import PlausibleBounds, declared_bounds
from neurodyn.tasks import Task

_TRIES = 100
"""Draws in which enough windows must be found from which an episode can start."""


class Starts(Protocol):
    """Draws starts of episodes."""

    def draw(self, count: int) -> State | Window:
        """Return `count` starts; always of the same kind."""
        ...

    def state(self) -> dict[str, Any]:
        """Return where the draws stand, tensors in dicts; nothing where they cannot go on from a state."""
        return {}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from what `state` gave."""


class SampledStarts(Starts):
    """States that the task draws; a model with a memory starts with an empty one."""

    def __init__(
        self, task: Task, seed: int, *, device: str | torch.device = "cpu", bounds: PlausibleBounds | None = None
    ) -> None:
        """Prepare the draws.

        Args:
            task: The task.
            seed: Seed of the draws.
            device: Device of the states.
            bounds: States outside of which are drawn again (`control.task_frames.episode_bounds`); None for the bounds
                of the task's robot.
        """
        self._task, self._device = task, torch.device(device)
        self._bounds = declared_bounds(task.declaration()) if bounds is None else bounds
        # Drawn on the CPU, so that all devices see the same starts; by a generator of its own where one is replaced, so
        # that dynamics with other bounds see the others all the same.
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "starts", task.name))
        self._spare = torch.Generator().manual_seed(derive_seed(seed, "spare starts", task.name))

    def draw(self, count: int) -> State:
        """Return `count` states; errors as of `plausible_starts`."""
        return plausible_starts(self._task, count, self._bounds, self._generator, self._spare).to(self._device)

    def state(self) -> dict[str, Any]:
        """Return where the draws stand."""
        return {"drawn": self._generator.get_state(), "spare": self._spare.get_state()}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._generator.set_state(saved["drawn"])
        self._spare.set_state(saved["spare"])


def plausible_starts(
    task: Task, count: int, bounds: PlausibleBounds, generator: torch.Generator, spare: torch.Generator
) -> State:
    """Draw starts of a task within bounds: as the task draws them, and by `spare` where one of them is outside.

    Raises:
        InputError: Nearly all states that the task draws are outside of the bounds.
    """
    state = task.start(count, generator)
    for _ in range(_TRIES):
        again = bounds.outside(state.q, state.qd)
        if not bool(again.any()):
            return state
        state = task.start(count, spare).where(again, state)
    name, value = bounds.furthest(state.q, state.qd)
    raise InputError(
        f"starts: nearly all states that task {task.name!r} draws are outside of the robot's range or of the model's "
        f"training data ({name} is {value:.3g}); valid: starts within both"
    )


class LoggedStarts(Starts):
    """Windows of a log: an episode continues where the window ends, with all of it as the model's past.

    States in which an episode of the log ended in a failure are left out, and those in which the task would end.
    """

    def __init__(
        self,
        log: Store | Mixture,
        frames: int,
        seed: int,
        *,
        split: int = Split.TRAIN,
        device: str | torch.device = "cpu",
        ended: Callable[[State, Tensor | None], Tensor] | None = None,
    ) -> None:
        """Prepare the draws.

        Args:
            log: The log, or several in shares.
            frames: Frames of a window: the full warm-up of the model.
            seed: Seed of the draws.
            split: Which episodes to draw from; those for training by default.
            device: Where windows are wanted.
            ended: From states, and which of the spec's contacts touch something, to those in which an episode would end
                at once; None where all will do.

        Raises:
            InputError: No episode of the split holds a window and more.
        """
        self._ended = ended
        seed = derive_seed(seed, "starts", "log")
        self._sampler = MixtureSampler(Mixture.of(log), frames, split=split, batch=1, seed=seed, device=device)

    def draw(self, count: int) -> Window:
        """Return `count` windows.

        Raises:
            InputError: Nearly all windows of the log end where an episode would.
        """
        parts: list[Window] = []
        missing = count
        for _ in range(_TRIES):
            self._sampler.batch = missing
            batch = self._sampler.draw_joined()
            window = Window(batch.q, batch.qd, batch.control, batch.channels)
            bad = torch.zeros(missing, dtype=torch.bool, device=batch.q.device)
            if batch.failed is not None:
                bad |= batch.failed[:, -1]
            if self._ended is not None:
                bad |= self._ended(window.present, None if batch.contacts is None else batch.contacts[:, -1])
            if bool(bad.any()):
                window = window.rows((~bad).nonzero()[:, 0])
            parts.append(window)
            missing -= len(window.q)
            if not missing:
                return Window.joined(parts)
        raise InputError(
            "starts: nearly all windows of the log end where an episode of the task does; give --starts another log"
        )

    def state(self) -> dict[str, Any]:
        """Return where the draws stand."""
        return self._sampler.state_dict()

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._sampler.load_state_dict(saved)


class MixedStarts(Starts):
    """States of two sources in shares: those that a task draws, say, and states of logs."""

    def __init__(self, first: Starts, second: Starts, share: float, seed: int) -> None:
        """Prepare the draws.

        Args:
            first: One source.
            second: The other; of windows the last state is taken.
            share: Share of the first, between 0 and 1.
            seed: Seed of what is rounded up or down.
        """
        self._first, self._second, self._share = first, second, share
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "mixed starts"))

    def draw(self, count: int) -> State:
        """Return `count` states; the number of the first source is its share, rounded at random."""
        ours = int(count * self._share + float(torch.rand((), generator=self._generator)))
        parts = [
            present_state(source.draw(number))
            for source, number in ((self._first, ours), (self._second, count - ours))
            if number
        ]
        return State(torch.cat([part.q for part in parts]), torch.cat([part.qd for part in parts]))

    def state(self) -> dict[str, Any]:
        """Return where the draws stand."""
        return {"first": self._first.state(), "second": self._second.state(), "shares": self._generator.get_state()}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._first.load(saved["first"])
        self._second.load(saved["second"])
        self._generator.set_state(saved["shares"])


def widened(context: State | Window, rows: Tensor, worlds: int) -> State | Window:
    """Return a context of all worlds that holds `context` in some rows and zeros in the others."""
    wide = {
        name: values.new_zeros(worlds, *values.shape[1:]).index_copy(0, rows, values)
        for name, values in vars(context).items()
        if values is not None
    }
    return replace(context, **wide)

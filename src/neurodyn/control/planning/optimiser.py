# SPDX-License-Identifier: Apache-2.0
"""Returns of action sequences in a model, and the interface of planners."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from neurodyn.control.planning.settings import PlannerSettings
from neurodyn.control.task_frames import FrameEnd, TaskFrames, WorldsState, judge
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State, Step, Window
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.quantities import Quantities
from neurodyn.tasks import Memory

Value = Callable[[Tensor], Tensor]
"""A critic: from observations, shape [rows, observations], to the remaining return, shape [rows]."""

_JUDGED = 1 << 15
"""Most rows of frames whose rewards are computed in one batch: more only take memory."""


@dataclass
class PlanningCost:
    """Cost of planning."""

    frames: int = 0
    """Frames predicted by the model, over all worlds and candidates."""
    gradients: int = 0
    """Number of them that were differentiated."""


class Imagination:
    """The worlds in the model, from which a planner can start any number of roll-outs.

    Attributes:
        frames: Task and model.
        generator: Random generator of the task.
        value: A critic; None for none.
        spent: Accumulated cost.
        worlds: Number of worlds.
    """

    def __init__(
        self,
        frames: TaskFrames,
        context: State | Window,
        memory: Memory,
        settings: PlannerSettings,
        generator: torch.Generator,
        *,
        pending: Tensor | None = None,
        value: Value | None = None,
        correction: State | None = None,
        spent: PlanningCost | None = None,
    ) -> None:
        """Prepare the worlds.

        Args:
            frames: Task and model.
            context: States of the worlds, or windows that end in them.
            memory: Task memory of the worlds.
            settings: Horizon, discount and penalty.
            generator: Random generator of the task.
            pending: Delayed actions that act first in any plan, shape [worlds, frames, actions]; None for none.
            value: A critic; None for none.
            correction: What is added to each predicted state of the worlds; None for nothing.
            spent: Accumulated cost.
        """
        self._correction = correction
        self.frames, self._context, self._memory, self._settings = frames, context, memory, settings
        self.generator, self._pending, self.value = generator, pending, value
        self.spent = PlanningCost() if spent is None else spent
        self.worlds = len(memory.action)

    @property
    def actions(self) -> int:
        """Size of an action."""
        return len(self.frames.task.actions)

    @property
    def limit(self) -> float:
        """Magnitude at which actions are clipped."""
        return self.frames.task.limit

    @property
    def fixed(self) -> int:
        """Number of frames whose actions are already decided."""
        return 0 if self._pending is None else self._pending.shape[1]

    def outside(self, before: WorldsState, action: Tensor) -> Tensor | None:
        """Return which rows leave what the model has seen, shape [rows], bool; None if that costs nothing."""
        return self.frames.outside(before, action) if self._settings.caution > 0 else None

    def start(self, candidates: int, *, tracked: bool = False) -> "Roll":
        """Return a roll-out of `candidates` copies of each world, one after another."""
        rows = torch.arange(self.worlds).repeat_interleave(candidates).to(self._memory.action.device)
        penalised = self._settings.penalty > 0
        moment = self.frames.begin(
            self._context.rows(rows), self.generator, memory=self._memory.rows(rows), uncertainty=penalised,
            of_mean=True,
        )  # fmt: skip
        pending = None if self._pending is None else self._pending[rows]
        correction = None if self._correction is None else self._correction.rows(rows)
        return Roll(self, moment, pending, correction, tracked=tracked)

    def returns(self, plans: Tensor, *, tracked: bool = False) -> Tensor:
        """Return the returns of plans, shape [worlds, candidates].

        Args:
            plans: Actions, shape [worlds, candidates, frames, actions].
            tracked: Whether gradients by the plans are needed.
        """
        roll = self.start(plans.shape[1], tracked=tracked)
        actions = plans.flatten(0, 1).unbind(1)
        if tracked:
            gains = torch.stack([roll.step(action) for action in actions])
        else:
            share = max(1, _JUDGED // len(roll.alive))
            gains = torch.cat([roll.steps(actions[at : at + share]) for at in range(0, len(actions), share)])
        return gains.sum(0).view(self.worlds, plans.shape[1])


class Roll:
    """One roll-out of all candidates, frame by frame.

    Attributes:
        worlds_state: Current state of the candidates; the previous one is overwritten unless the roll-out is tracked.
        alive: Candidates whose episode has not ended, shape [rows], bool.
        weight: Discount of the next frame.
    """

    def __init__(
        self, imagination: Imagination, worlds_state: WorldsState, pending: Tensor | None, correction: State | None, *,
        tracked: bool,
    ) -> None:  # fmt: skip
        """Start at a moment."""
        self._correction = correction
        self._imagination, self.worlds_state, self._pending, self._tracked = imagination, worlds_state, pending, tracked
        self._first = worlds_state.state
        self.alive = torch.ones(len(worlds_state.state.q), dtype=torch.bool, device=worlds_state.state.q.device)
        self._frame, self.weight = 0, 1.0

    def acting(self, action: Tensor, ahead: int = 0) -> Tensor:
        """Return the action of the next frame, or of one `ahead`, for a planned action, shape [rows, actions]."""
        frame = self._frame + ahead
        return self._pending[:, frame] if self._pending is not None and frame < self._imagination.fixed else action

    def step(self, action: Tensor) -> Tensor:
        """Act for one frame; return its contribution to the return of each row, shape [rows]."""
        imagination, before = self._imagination, self.worlds_state
        action = self.acting(action).clamp(-imagination.limit, imagination.limit)
        outside = imagination.outside(before, action)
        after, step = imagination.frames.advance(
            before, action, imagination.generator, tracked=self._tracked, correction=self._correction
        )
        end = judge(imagination.frames.task, imagination.frames.bounds, step, after.now, before.memory, action)
        gain = self._contributions(self._penalise(step, end, outside)[None], end.failed[None], after)[0]
        # Ended candidates stay at their start: their values no longer count, but must stay finite.
        self.worlds_state = replace(after, state=after.state.where(self.alive, self._first))
        return gain

    @torch.no_grad()
    def steps(self, actions: Sequence[Tensor]) -> Tensor:
        """Act for some frames, judged in one batch; return the contribution of each, shape [frames, rows].

        Candidates whose episode has ended continue without reward.
        """
        imagination, before, after, outside = self._imagination, [], [], []
        acted = [
            self.acting(action, ahead).clamp(-imagination.limit, imagination.limit)
            for ahead, action in enumerate(actions)
        ]
        for action in acted:
            before.append(self.worlds_state.memory)
            outside.append(imagination.outside(self.worlds_state, action))
            self.worlds_state, step = imagination.frames.advance(
                self.worlds_state, action, imagination.generator, correction=self._correction
            )
            after.append((step, self.worlds_state.now))
        steps, now = Step.concatenate([step for step, _ in after]), Quantities.concatenate([now for _, now in after])
        end = judge(
            imagination.frames.task, imagination.frames.bounds, steps, now, Memory.concatenate(before), torch.cat(acted)
        )
        shape = len(acted), -1
        earned = self._penalise(steps, end, _joined(outside)).unflatten(0, shape)
        return self._contributions(earned, end.failed.unflatten(0, shape), self.worlds_state)

    def _penalise(self, step: Step, end: FrameEnd, outside: Tensor | None) -> Tensor:
        """Return rewards less the penalties, shape [rows]."""
        imagination, settings = self._imagination, self._imagination._settings
        reward = end.reward if outside is None else end.reward - settings.caution * outside
        uncertain = imagination.frames.disagreement(step) if settings.penalty > 0 else None
        if uncertain is None:
            return reward
        return reward - settings.penalty * imagination.frames.task.penalty_scale * uncertain.masked_fill(
            end.implausible, 0.0
        )

    def _contributions(self, earned: Tensor, failed: Tensor, after: WorldsState) -> Tensor:
        """Return the contributions of frames to the return, shape [frames, rows], from their rewards and failures."""
        imagination, settings, gains = self._imagination, self._imagination._settings, []
        for gain, fails in zip(earned, failed, strict=True):
            gains.append(self.weight * torch.where(self.alive, gain, 0.0))
            self.weight *= settings.discount
            self.alive = self.alive & ~fails
        self._frame += len(gains)
        if self._frame == settings.horizon and imagination.value is not None:
            seen = imagination.frames.task.observe(after.now, after.memory)
            gains[-1] = gains[-1] + self.weight * torch.where(self.alive, imagination.value(seen), 0.0)
        imagination.spent.frames += failed.numel()
        imagination.spent.gradients += failed.numel() if self._tracked else 0
        return torch.stack(gains)


class PlanOptimiser(ABC):
    """Improves plans in a model."""

    settings_type: ClassVar[type[PlannerSettings]]
    needs_gradients: ClassVar[bool] = False
    """Whether it differentiates the model."""

    def __init__(self, settings: Any, generator: torch.Generator) -> None:
        """Prepare the planner.

        Args:
            settings: Its settings.
            generator: Random generator of candidates.
        """
        self.settings, self.generator = settings, generator

    def require_model(self, model: Dynamics) -> None:
        """Raise an InputError for a model that it cannot plan in."""
        if self.needs_gradients and not model.differentiable:
            raise InputError(
                f"{model.kind} dynamics of {model.spec.robot!r} have no gradients to plan by; valid: a planner that "
                "draws samples (mppi, cem, annealed), or a hybrid or neural model"
            )

    @abstractmethod
    def improve(self, imagination: Imagination, plan: Tensor, *, first: bool) -> Tensor:
        """Return better plans.

        Args:
            imagination: The worlds in the model.
            plan: Plans of the worlds, shape [worlds, frames, actions].
            first: Whether there is no previous plan.
        """


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return torch.cat(known) if known else None


def best(returns: Tensor, plans: Tensor) -> Tensor:
    """Return the best plan of each world, shape [worlds, frames, actions]; for shapes see `Imagination.returns`."""
    rows = torch.arange(len(plans), device=plans.device)
    return plans[rows, returns.argmax(1)]

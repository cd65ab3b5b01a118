# SPDX-License-Identifier: Apache-2.0
"""What a frame earns, and whether an episode ends with it: one rule for every loop in which a policy acts.

A policy earns what it finds, and it finds the states in which a simulator or a model has broken down. So an episode
whose state is implausible ends there as a failure, and that frame earns nothing, or what the task says where ending
early would pay (`Task.implausible_reward`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.dynamics.guard import guard_bounds
from neurodyn.dynamics.interface import Dynamics, Step
from neurodyn.dynamics.quantities import Quantities
from neurodyn.dynamics.world_model.termination import LIKELY
from neurodyn.robots.plausible import PlausibleBounds
from neurodyn.tasks import Memory, Task


def episode_bounds(task: Task, dynamics: Dynamics) -> PlausibleBounds:
    """Return the states of some dynamics outside of which an episode of a task fails: those of the guard."""
    return guard_bounds(dynamics, task.declaration())


@dataclass(frozen=True)
class Ending:
    """Where episodes failed in a frame.

    Attributes:
        failed: Whether the episode failed, shape [worlds], bool.
        implausible: Whether it did because its state is implausible or not finite, shape [worlds], bool.
    """

    failed: Tensor
    implausible: Tensor


@dataclass(frozen=True)
class FrameEnd(Ending):
    """How a frame ended in each world.

    Attributes:
        reward: What it earned, shape [worlds].
        names: Names of the parts of the reward.
        parts: The parts, shape [parts, worlds].
    """

    reward: Tensor
    names: tuple[str, ...]
    parts: Tensor


def judge(task: Task, bounds: PlausibleBounds, step: Step, now: Quantities, memory: Memory, action: Tensor) -> FrameEnd:
    """Return what the frame that ended in `step` earned, and where the episode failed.

    Args:
        task: The task.
        bounds: Its `episode_bounds` in these dynamics.
        step: What the dynamics predicted.
        now: Quantities of the state in which the frame ended.
        memory: Memory of the task as the frame began.
        action: Actions during the frame, shape [worlds, actions].
    """
    names, parts = _terms(task, now, memory, action)
    reward = parts.sum(0)
    end = ending(task, bounds, step, now, memory, reward[:, None])
    return _paid(task, end, reward, names, parts)


def ending(
    task: Task, bounds: PlausibleBounds, step: Step, now: Quantities, memory: Memory, others: Tensor | None = None
) -> Ending:
    """Return where the episode failed in the frame that ended in `step`.

    Arguments are those of `judge`; `others` are other numbers that must be finite, shape [worlds, n].
    """
    state = step.state
    implausible = bounds.outside(state.q, state.qd, state.channels, others)
    failed = task.terminated(now, memory) | implausible
    if step.termination is not None:
        failed = failed | (step.termination > LIKELY)
    return Ending(failed, implausible)


def judge_later(task: Task, end: Ending, now: Quantities, memory: Memory, action: Tensor) -> FrameEnd:
    """Return what frames earned whose ends are known, those of many frames at once; rewards see no gradient of ends.

    A reward that is not finite counts as that of an implausible state, though the episode went on.

    Args:
        task: The task.
        end: How they ended, shape [n] each.
        now: Quantities of the states in which they ended.
        memory: Memory of the task as they began.
        action: Actions during them, shape [n, actions].
    """
    names, parts = _terms(task, now, memory, action)
    reward = parts.sum(0)
    whole = Ending(end.failed, end.implausible | ~reward.detach().isfinite())
    return _paid(task, whole, reward, names, parts)


def _terms(task: Task, now: Quantities, memory: Memory, action: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """Return names and values of the terms of the reward, shape [terms, n]."""
    terms = task.reward(now, memory, action)
    return tuple(terms), torch.stack(list(terms.values()))


def _paid(task: Task, end: Ending, reward: Tensor, names: tuple[str, ...], parts: Tensor) -> FrameEnd:
    """Return the end of a frame, which earned nothing of its own where the state is implausible."""
    implausible = end.implausible
    return FrameEnd(
        end.failed, implausible, reward.masked_fill(implausible, task.implausible_reward), names,
        parts.masked_fill(implausible, 0.0),
    )  # fmt: skip

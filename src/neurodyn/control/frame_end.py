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
class FrameEnd:
    """How a frame ended in each world.

    Attributes:
        reward: What it earned, shape [worlds].
        names: Names of the parts of the reward.
        parts: The parts, shape [parts, worlds].
        failed: Whether the episode failed, shape [worlds], bool.
        implausible: Whether it did because its state is implausible or not finite, shape [worlds], bool.
    """

    reward: Tensor
    names: tuple[str, ...]
    parts: Tensor
    failed: Tensor
    implausible: Tensor


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
    state, terms = step.state, task.reward(now, memory, action)
    parts = torch.stack(list(terms.values()))
    reward = parts.sum(0)
    implausible = bounds.outside(state.q, state.qd, state.channels, reward[:, None])
    failed = task.terminated(now, memory) | implausible
    if step.termination is not None:
        failed = failed | (step.termination > LIKELY)
    parts = parts.masked_fill(implausible, 0.0)
    return FrameEnd(reward.masked_fill(implausible, task.implausible_reward), tuple(terms), parts, failed, implausible)

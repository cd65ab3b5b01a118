# SPDX-License-Identifier: Apache-2.0
"""What a frame earns, and whether an episode ends with it: one rule for every loop in which a policy acts.

A policy earns what it finds, and it finds the states in which a simulator or a model has broken down. So an episode
whose state is implausible ends there as a failure, and that frame earns nothing, or what the task says where ending
early would pay (`Task.implausible_reward`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.interface import Dynamics, Step
from neurodyn.dynamics.quantities import Quantities
from neurodyn.dynamics.world_model.termination import LIKELY
from neurodyn.robots.plausible import PlausibleBounds, declared_bounds
from neurodyn.robots.sections import Interval
from neurodyn.tasks import Memory, Task

TRAINING_MARGIN = 0.5
"""How far beyond the range of its training data a model is believed, as a share of that range, to either side.

A policy may drive a robot faster than the data did, and a model must be allowed to say so; one that has broken down
goes on to any speed. In `pretrained:cartpole`, whose data reach 15 m/s and 36 rad/s, nothing is cut: random actions and
swing-up stay within 9 m/s and 11 rad/s.
"""


def episode_bounds(task: Task, dynamics: Dynamics) -> PlausibleBounds:
    """Return the states of some dynamics outside of which an episode of a task fails.

    Those are the bounds of the robot, and for models also the range of velocities and channels of their training data,
    widened by `TRAINING_MARGIN`. In models of logs they apply to what the log measures.
    """
    bounds = declared_bounds(task.declaration()).of_spec(dynamics.spec)
    known: TrainingRange | None = dynamics.training_range
    return bounds if known is None else bounds.tightened(_widened(known.qd), _widened(known.channels))


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


def _widened(ranges: tuple[Interval, ...]) -> tuple[Interval, ...]:
    return tuple((low - TRAINING_MARGIN * (high - low), high + TRAINING_MARGIN * (high - low)) for low, high in ranges)

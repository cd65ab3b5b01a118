# SPDX-License-Identifier: Apache-2.0
"""What acts in the episodes of a log: policies, random actions, or none."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from neurodyn.tasks import Task


@dataclass(frozen=True)
class Behaviour:
    """A policy that records episodes of a log.

    Attributes:
        name: Name of the policy.
        act: From observations, shape [worlds, observations], to actions without noise, shape [worlds, actions]; None
            for uniformly random actions.
        quiet: Whether no noise is added to its actions.
    """

    name: str
    act: Callable[[Tensor], Tensor] | None = None
    quiet: bool = False


RANDOM, STILL = "random", "still"
"""Names of the behaviours without a policy: uniformly random actions, and zero actions."""
BEHAVIOURS = (RANDOM, STILL)


def behaviour(name: str, task: Task) -> Behaviour:
    """Return one of `BEHAVIOURS`, without a policy.

    `still` with action noise resembles an untrained policy: a legged robot stands and totters for whole episodes, where
    uniformly random actions throw it over at once.
    """
    if name == RANDOM:
        return Behaviour(RANDOM)
    return Behaviour(STILL, lambda seen: seen.new_zeros(len(seen), len(task.actions)))

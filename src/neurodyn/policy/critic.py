# SPDX-License-Identifier: Apache-2.0
"""The critic of a trained policy, as the value of what comes after a plan."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import read_plain
from neurodyn.core.errors import InputError
from neurodyn.learn.loop import has_state
from neurodyn.policy.artifact import load_policy, require_task
from neurodyn.policy.network import PolicyNetwork
from neurodyn.tasks import Task

_EPSILON = 1e-2
"""What rsl_rl's normaliser of observations adds to their standard deviation."""


def load_critic(folder: str, task: Task) -> Callable[[Tensor], Tensor]:
    """Return the critic that a policy's training left, from observations to discounted rewards to come, shape [rows].

    Args:
        folder: Folder of the policy.
        task: The task that it is wanted for.

    Raises:
        InputError: There is no policy, or its training left no critic.
        MismatchError: It is of another task.
    """
    path = artifacts.resolve_policy(folder)
    config, _ = load_policy(path)
    require_task(config, task, folder)
    if not has_state(path):
        raise InputError(f"{folder}: holds no critic; valid: the folder of a `neurodyn policy train`, with its state/")
    scale = float(read_plain(path / "config.yaml")["settings"]["reward_scale"])
    network = PolicyNetwork(len(config.observations), 1, config.network, math.inf)
    network.take(artifacts.read_tree(path / "state", "training")["learner"]["critic_state_dict"], _EPSILON)
    network.requires_grad_(False)

    def value(observation: Tensor) -> Tensor:
        return network(observation.to(torch.float32))[:, 0].to(observation.dtype) / scale

    return value

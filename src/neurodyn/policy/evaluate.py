# SPDX-License-Identifier: Apache-2.0
"""Return of policies in some dynamics: episodes, and what is said of them."""

from collections.abc import Callable

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.control.returns import Outcome, Returns, Tally
from neurodyn.control.starts import Starts
from neurodyn.core.progress import tracked
from neurodyn.core.records import Record
from neurodyn.dynamics.interface import Dynamics, Environment
from neurodyn.policy.environment import PolicyEnvironment
from neurodyn.policy.reward_error import RewardError
from neurodyn.tasks import Task

SEED = 500
EPISODES = 256


class PolicyEvaluation(Record, frozen=True):
    """One or several policies in several dynamics.

    Attributes:
        task: Name of the task.
        policy: Folder of the policy; of several, their folders behind each other.
        episodes: Number of episodes of each policy in each.
        seed: Seed of starts and commands.
        results: What it reaches in each; of several policies, their mean and range.
        reward_error: How far each two are apart.
        ground: Ground that was asked for; UNSET of the robot's default one.
        policies: Each policy for itself; empty of one.
        verdict: Whether the simulator contradicts the returns elsewhere (`core.verdict`).
    """

    task: str
    policy: str
    episodes: int
    seed: int
    results: list[Returns]
    reward_error: list[RewardError]
    ground: str | UnsetType = UNSET
    policies: tuple["PolicyEvaluation", ...] = ()
    verdict: str = "ok"


@torch.no_grad()
def play(
    policy: Callable[[Tensor], Tensor],
    task: Task,
    dynamics: Dynamics,
    starts: Starts,
    episodes: int = EPISODES,
    *,
    seed: int = SEED,
    penalty: float = 0.0,
    environment: Environment | None = None,
) -> Outcome:
    """Let a policy act for one episode in each of a number of worlds.

    Args:
        policy: From observations to actions, without noise.
        task: The task.
        dynamics: The dynamics.
        starts: Starts of the episodes.
        episodes: Number of episodes, all at once.
        seed: Seed of commands.
        penalty: Weight of a world model's uncertainty in `Outcome.penalised`.
        environment: What the worlds are in, as of `PolicyEnvironment`.

    Raises:
        InputError: Task and dynamics do not fit together.
    """
    world = PolicyEnvironment(task, dynamics, starts, episodes, seed=seed, penalty=penalty, environment=environment)
    tally = Tally(task, episodes, world.device)
    for _ in tracked(range(task.frames)):
        _, seen, done, extras = world.step(policy(task.observe(world.now, world.memory)))
        goes_on = tally.count(
            extras["reward"], seen, extras["terms"], done=done, failed=~extras["time_outs"],
            implausible=extras["implausible"], succeeded=extras.get("succeeded"),
        )  # fmt: skip
        if not goes_on:
            break
    return tally.outcome()

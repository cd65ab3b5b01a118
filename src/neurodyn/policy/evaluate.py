# SPDX-License-Identifier: Apache-2.0
"""Return of a policy in some dynamics, and by how much its return in one differs from that in another."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.interface import Dynamics
from neurodyn.policy.environment import PolicyEnvironment
from neurodyn.policy.starts import Starts
from neurodyn.tasks import Task

SEED = 500
EPISODES = 256


@dataclass(frozen=True)
class Outcome:
    """Episodes of a policy, the first of each world.

    Attributes:
        returns: Sum of the rewards, without penalty, shape [episodes].
        penalised: The same less the penalty, shape [episodes].
        lengths: Frames until the end, shape [episodes].
        failed: Whether the end was a failure, shape [episodes].
        succeeded: Whether the task was accomplished, shape [episodes]; None of tasks without success.
    """

    returns: Tensor
    penalised: Tensor
    lengths: Tensor
    failed: Tensor
    succeeded: Tensor | None

    def figures(self) -> dict[str, Any]:
        """Return means over the episodes as plain numbers."""
        figures = {
            "return": float(self.returns.mean()),
            "return_std": float(self.returns.std(correction=0)),
            "length": float(self.lengths.mean()),
            "episodes": len(self.returns),
            "failed": float(self.failed.float().mean()),
        }
        return figures if self.succeeded is None else {**figures, "success": float(self.succeeded.float().mean())}


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

    Raises:
        InputError: Task and dynamics do not fit together.
    """
    world = PolicyEnvironment(task, dynamics, starts, episodes, seed=seed, penalty=penalty)
    returns, lengths = torch.zeros(2, episodes, device=world.device), torch.zeros(episodes, device=world.device)
    running = torch.ones(episodes, dtype=torch.bool, device=world.device)
    failed, succeeded = ~running, None
    for _ in range(task.frames):
        _, seen, done, extras = world.step(policy(task.observe(world.now, world.memory)))
        returns += torch.where(running, torch.stack([extras["reward"], seen]), 0.0)
        lengths += running
        ended = running & done
        failed |= ended & ~extras["time_outs"]
        good = extras.get("succeeded")
        if good is not None:
            succeeded = torch.zeros_like(running) if succeeded is None else succeeded
            succeeded |= ended & good
        running &= ~done
        if not bool(running.any()):
            break
    return Outcome(returns[0].cpu(), returns[1].cpu(), lengths.cpu(), failed.cpu(), succeeded)


def reward_errors(outcomes: dict[str, Outcome]) -> list[dict[str, Any]]:
    """Return the differences of returns between pairs of dynamics.

    As the paper compares them (NeRD, arXiv 2508.15755): the mean return in one beside that in the other; and, finer,
    the mean difference between episodes that start in the same state.
    """
    errors = []
    for (a, one), (b, other) in combinations(outcomes.items(), 2):
        difference = float(other.returns.mean() - one.returns.mean())
        relative = abs(difference) / max(abs(float(one.returns.mean())), 1e-12)
        by_episode = float((other.returns - one.returns).abs().mean())
        errors.append({"a": a, "b": b, "difference": difference, "relative": relative, "by_episode": by_episode})
    return errors

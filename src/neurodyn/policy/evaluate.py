# SPDX-License-Identifier: Apache-2.0
"""Return of a policy in some dynamics, and by how much its return in one differs from that in another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core.records import Record
from neurodyn.dynamics.interface import Dynamics
from neurodyn.policy.environment import PolicyEnvironment
from neurodyn.policy.starts import Starts
from neurodyn.tasks import Task

SEED = 500
EPISODES = 256


class Returns(Record, frozen=True, rename={"mean": "return", "std": "return_std"}):
    """What a policy reaches in some dynamics.

    Attributes:
        dynamics: As the user calls them.
        mean: Mean return of the episodes.
        std: Its standard deviation between episodes.
        length: Mean length [frames].
        episodes: Number of episodes.
        failed: Share of them that end in a failure.
        implausible: Share of them that fail because their state is implausible (`policy.frame_end`).
        success: Share of them that end as they should; UNSET of tasks that have no such end.
    """

    dynamics: str
    mean: float
    std: float
    length: float
    episodes: int
    failed: float
    implausible: float = 0.0
    success: float | UnsetType = UNSET


class RewardError(Record, frozen=True):
    """How far the returns in dynamics `b` are from those in `a`: of their means, and mean over episodes."""

    a: str
    b: str
    difference: float
    relative: float
    by_episode: float


class PolicyEvaluation(Record, frozen=True):
    """A policy in several dynamics.

    Attributes:
        task: Name of the task.
        policy: Folder of the policy.
        episodes: Number of episodes in each.
        seed: Seed of starts and commands.
        results: What it reaches in each.
        reward_error: How far each two are apart.
    """

    task: str
    policy: str
    episodes: int
    seed: int
    results: list[Returns]
    reward_error: list[RewardError]


@dataclass(frozen=True)
class Outcome:
    """Episodes of a policy, the first of each world.

    Attributes:
        returns: Sum of the rewards, without penalty, shape [episodes].
        penalised: The same less the penalty, shape [episodes].
        lengths: Frames until the end, shape [episodes].
        failed: Whether the end was a failure, shape [episodes].
        implausible: Whether it was one because the state was implausible, shape [episodes].
        succeeded: Whether the task was accomplished, shape [episodes]; None of tasks without success.
    """

    returns: Tensor
    penalised: Tensor
    lengths: Tensor
    failed: Tensor
    implausible: Tensor
    succeeded: Tensor | None

    @classmethod
    def joined(cls, parts: "Sequence[Outcome]") -> "Outcome":
        """Return the episodes of several outcomes as one."""
        succeeded = [part.succeeded for part in parts if part.succeeded is not None]
        names = ("returns", "penalised", "lengths", "failed", "implausible")
        values = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        return cls(**values, succeeded=torch.cat(succeeded) if len(succeeded) == len(parts) else None)

    def returns_in(self, dynamics: str) -> Returns:
        """Return means over the episodes."""
        succeeded = UNSET if self.succeeded is None else float(self.succeeded.float().mean())
        return Returns(
            dynamics=dynamics,
            mean=float(self.returns.mean()),
            std=float(self.returns.std(correction=0)),
            length=float(self.lengths.mean()),
            episodes=len(self.returns),
            failed=float(self.failed.float().mean()),
            implausible=float(self.implausible.float().mean()),
            success=succeeded,
        )


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
    failed, implausible, succeeded = ~running, ~running, None
    for _ in range(task.frames):
        _, seen, done, extras = world.step(policy(task.observe(world.now, world.memory)))
        returns += torch.where(running, torch.stack([extras["reward"], seen]), 0.0)
        lengths += running
        ended = running & done
        failed |= ended & ~extras["time_outs"]
        implausible |= ended & extras["implausible"]
        good = extras.get("succeeded")
        if good is not None:
            succeeded = torch.zeros_like(running) if succeeded is None else succeeded
            succeeded |= ended & good
        running &= ~done
        if not bool(running.any()):
            break
    return Outcome(returns[0].cpu(), returns[1].cpu(), lengths.cpu(), failed.cpu(), implausible.cpu(), succeeded)


def reward_errors(outcomes: dict[str, Outcome]) -> list[RewardError]:
    """Return the differences of returns between pairs of dynamics.

    As the paper compares them (NeRD, arXiv 2508.15755): the mean return in one beside that in the other; and, finer,
    the mean difference between episodes that start in the same state.
    """
    errors = []
    for (a, one), (b, other) in combinations(outcomes.items(), 2):
        difference = float(other.returns.mean() - one.returns.mean())
        relative = abs(difference) / max(abs(float(one.returns.mean())), 1e-12)
        by_episode = float((other.returns - one.returns).abs().mean())
        errors.append(RewardError(a=a, b=b, difference=difference, relative=relative, by_episode=by_episode))
    return errors

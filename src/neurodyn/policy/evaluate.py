# SPDX-License-Identifier: Apache-2.0
"""Return of policies in some dynamics: episodes, and what is said of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.control.starts import Starts
from neurodyn.core.records import Record
from neurodyn.dynamics.interface import Dynamics, Environment
from neurodyn.policy.environment import PolicyEnvironment
from neurodyn.policy.reward_error import RewardError
from neurodyn.tasks import Task

SEED = 500
EPISODES = 256
_IMPLAUSIBLE = "implausible"
"""Name of what implausible ends earn, among the terms of a return."""


_KEYS = {"mean": "return", "std": "return_std", "least": "return_min", "greatest": "return_max"}


class Returns(Record, frozen=True, rename=_KEYS):
    """What one or several policies reach in some dynamics.

    Attributes:
        dynamics: As the user calls them.
        mean: Mean return of the episodes, of all policies.
        std: Its standard deviation between episodes.
        length: Mean length [frames].
        episodes: Number of episodes.
        failed: Share of them that end in a failure.
        implausible: Share of them that fail because their state is implausible (`control.frame_end`).
        success: Share of them that end as they should; UNSET of tasks that have no such end.
        terms: Mean return of each term of the reward; with implausible ends, if the task charges for them.
        least: Least mean return of a policy; UNSET of one policy.
        greatest: Greatest mean return of a policy; UNSET of one policy.
    """

    dynamics: str
    mean: float
    std: float
    length: float
    episodes: int
    failed: float
    implausible: float = 0.0
    success: float | UnsetType = UNSET
    terms: dict[str, float] | UnsetType = UNSET
    least: float | UnsetType = UNSET
    greatest: float | UnsetType = UNSET


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
    """

    task: str
    policy: str
    episodes: int
    seed: int
    results: list[Returns]
    reward_error: list[RewardError]
    ground: str | UnsetType = UNSET
    policies: tuple["PolicyEvaluation", ...] = ()


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
        terms: Sum of each term of the reward, shape [episodes].
    """

    returns: Tensor
    penalised: Tensor
    lengths: Tensor
    failed: Tensor
    implausible: Tensor
    succeeded: Tensor | None
    terms: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: "Sequence[Outcome]") -> "Outcome":
        """Return the episodes of several outcomes as one."""
        succeeded = [part.succeeded for part in parts if part.succeeded is not None]
        names = ("returns", "penalised", "lengths", "failed", "implausible")
        values = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        return cls(
            **values,
            succeeded=torch.cat(succeeded) if len(succeeded) == len(parts) else None,
            terms={name: torch.cat([part.terms[name] for part in parts]) for name in parts[0].terms},
        )

    def returns_in(self, dynamics: str) -> Returns:
        """Return means over the episodes."""
        return returns_in(dynamics, [self])


def returns_in(dynamics: str, policies: Sequence[Outcome]) -> Returns:
    """Return means over the episodes of one or several policies of a task in some dynamics."""

    def mean(values: Callable[[Outcome], Tensor | None]) -> float:
        return float(torch.stack([found.float() for one in policies if (found := values(one)) is not None]).mean())

    means = [float(one.returns.mean()) for one in policies]
    succeeded = any(one.succeeded is not None for one in policies)
    terms = {name: mean(lambda one, name=name: one.terms[name]) for name in policies[0].terms}
    return Returns(
        dynamics=dynamics,
        mean=mean(lambda one: one.returns),
        std=float(torch.cat([one.returns for one in policies]).std(correction=0)),
        length=mean(lambda one: one.lengths),
        episodes=sum(len(one.returns) for one in policies),
        failed=mean(lambda one: one.failed),
        implausible=mean(lambda one: one.implausible),
        success=mean(lambda one: one.succeeded) if succeeded else UNSET,
        terms=terms or UNSET,
        least=min(means) if len(means) > 1 else UNSET,
        greatest=max(means) if len(means) > 1 else UNSET,
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
    returns, lengths = torch.zeros(2, episodes, device=world.device), torch.zeros(episodes, device=world.device)
    running = torch.ones(episodes, dtype=torch.bool, device=world.device)
    failed, implausible, succeeded = ~running, ~running, None
    terms: dict[str, Tensor] = {}
    for _ in range(task.frames):
        _, seen, done, extras = world.step(policy(task.observe(world.now, world.memory)))
        returns += torch.where(running, torch.stack([extras["reward"], seen]), 0.0)
        lengths += running
        for name, values in {**extras["terms"], **_charge(task, extras["implausible"])}.items():
            terms[name] = terms.get(name, 0.0) + torch.where(running, values, 0.0)
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
    parts = {name: values.cpu() for name, values in terms.items()}
    return Outcome(returns[0].cpu(), returns[1].cpu(), lengths.cpu(), failed.cpu(), implausible.cpu(), succeeded, parts)


def _charge(task: Task, implausible: Tensor) -> dict[str, Tensor]:
    """Return what a frame earns that ends implausibly, which no term of the reward does."""
    return {_IMPLAUSIBLE: task.implausible_reward * implausible} if task.implausible_reward else {}

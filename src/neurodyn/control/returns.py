# SPDX-License-Identifier: Apache-2.0
"""Returns of episodes: counted frame by frame, and summarised for one or several controllers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.control.commands import Commands, mean_commands
from neurodyn.core.config import Record
from neurodyn.tasks import Task

_IMPLAUSIBLE = "implausible"
"""Name of the reward term of implausible ends."""


_KEYS = {
    "returns": "episode_returns",
    "mean": "return",
    "std": "return_std",
    "least": "return_min",
    "greatest": "return_max",
}


class QuantitySensitivity(Record, frozen=True):
    """Sensitivity of the return to a randomised quantity."""

    name: str
    low: float
    """Mean of its lowest third of values."""
    high: float
    """Mean of its highest third."""
    return_low: float
    """Mean return of the episodes with the lowest third."""
    return_high: float
    """Mean return of the episodes with the highest third."""
    correlation: float
    """Rank correlation (Spearman's) of returns with it."""


class Returns(Record, frozen=True, rename=_KEYS):
    """Returns of one or several policies in some dynamics."""

    dynamics: str
    """Name given by the user."""
    mean: float
    """Mean return of the episodes of all policies."""
    std: float
    """Its standard deviation between episodes."""
    length: float
    """Mean length [frames]."""
    episodes: int
    failed: float
    """Share of episodes that end in a failure."""
    implausible: float = 0.0
    """Share of episodes that fail because their state is implausible (`control.task_frames`)."""
    success: float | UnsetType = UNSET
    """Share of episodes that end in success; UNSET for tasks without such an end."""
    terms: dict[str, float] | UnsetType = UNSET
    """Mean return of each reward term; with implausible ends, if the task charges for them."""
    commands: Commands | UnsetType = UNSET
    """Commanded and achieved values by name; UNSET for tasks without commands."""
    least: float | UnsetType = UNSET
    """Lowest mean return of a policy; UNSET for one policy."""
    greatest: float | UnsetType = UNSET
    """Highest mean return of a policy; UNSET for one policy."""
    worst_tenth: float | UnsetType = UNSET
    """Mean return of the worst tenth of the episodes, if robots were randomised; else UNSET."""
    sensitivity: list[QuantitySensitivity] | UnsetType = UNSET
    """Sensitivities of the return, strongest first; UNSET without randomisation."""
    drawn: dict[str, list[float]] | UnsetType = UNSET
    """Values drawn for each episode, by name; UNSET without randomisation."""
    returns: list[float] | UnsetType = UNSET
    """Return of each of these episodes, in the same order."""


@dataclass(frozen=True)
class EpisodeOutcomes:
    """Episodes of a policy, the first of each world."""

    returns: Tensor
    """Sum of the rewards, without penalty, shape [episodes]."""
    penalised: Tensor
    """The same less the penalty, shape [episodes]."""
    lengths: Tensor
    """Frames until the end, shape [episodes]."""
    failed: Tensor
    """Whether the end was a failure, shape [episodes]."""
    implausible: Tensor
    """Whether it failed because the state was implausible, shape [episodes]."""
    succeeded: Tensor | None
    """Whether the task was accomplished, shape [episodes]; None for tasks without success."""
    terms: dict[str, Tensor] = field(default_factory=dict)
    """Sum of each term of the reward, shape [episodes]."""
    robots: Tensor | None = None
    """Values drawn for the episodes, shape [episodes, drawn]; None for one robot."""
    drawn: tuple[str, ...] = ()
    """Names of these values."""
    commands: Commands = field(default_factory=dict)
    """Commanded and achieved values by name; empty for tasks without commands."""

    @classmethod
    def concatenate(cls, parts: "Sequence[EpisodeOutcomes]") -> "EpisodeOutcomes":
        """Concatenate the episodes of several outcomes."""
        succeeded = [part.succeeded for part in parts if part.succeeded is not None]
        names = ("returns", "penalised", "lengths", "failed", "implausible")
        returns, penalised, lengths, failed, implausible = (
            torch.cat([getattr(part, name) for part in parts]) for name in names
        )
        return cls(
            returns, penalised, lengths, failed, implausible,
            succeeded=torch.cat(succeeded) if len(succeeded) == len(parts) else None,
            terms={name: torch.cat([part.terms[name] for part in parts]) for name in parts[0].terms},
            commands=mean_commands([part.commands for part in parts]),
        )  # fmt: skip

    def returns_in(self, dynamics: str) -> Returns:
        """Return the means over the episodes."""
        return returns_in(dynamics, [self])


def returns_in(dynamics: str, policies: Sequence[EpisodeOutcomes]) -> Returns:
    """Return means over the episodes of one or several policies of a task in some dynamics."""

    def mean(values: Callable[[EpisodeOutcomes], Tensor | None]) -> float:
        rows = [values(one) for one in policies]
        return float(torch.stack([row.float() for row in rows if row is not None]).mean())

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
        commands=mean_commands([one.commands for one in policies]) or UNSET,
        least=min(means) if len(means) > 1 else UNSET,
        greatest=max(means) if len(means) > 1 else UNSET,
    )


@dataclass
class Episodes:
    """Episodes that ended since the last call of `policy.worlds.environment.PolicyEnvironment.collect`."""

    returns: list[float] = field(default_factory=list)
    """Return of each episode, without penalty and scale."""
    penalised: list[float] = field(default_factory=list)
    """Return of each episode, less the penalty."""
    lengths: list[float] = field(default_factory=list)
    """Length of each episode [frames]."""
    failed: list[bool] = field(default_factory=list)
    implausible: list[bool] = field(default_factory=list)
    """Whether each episode failed because its state was implausible (`control.task_frames`)."""
    terms: dict[str, float] = field(default_factory=dict)
    """Sum of each reward term over these episodes, by name. The terms add up to the sum of `returns`. "implausible"
    holds the task's `implausible_reward`, if it has one."""

    @classmethod
    def concatenate(cls, parts: "Sequence[Episodes]") -> "Episodes":
        """Concatenate the episodes of several processes."""
        lists = [own.name for own in fields(cls) if own.name != "terms"]
        names = dict.fromkeys(name for part in parts for name in part.terms)
        return cls(
            **{name: [x for part in parts for x in getattr(part, name)] for name in lists},
            terms={name: sum(part.terms.get(name, 0.0) for part in parts) for name in names},
        )


@dataclass(frozen=True)
class EpisodeSums:
    """Running sums over the current episodes, and totals over all."""

    length: Tensor
    """Length of the current episodes so far [frames], shape [worlds]."""
    returns: Tensor
    """Return, penalised return and length of the current episodes, shape [3, worlds]."""
    uncertain: Tensor
    """Epistemic uncertainty, averaged over worlds and summed over all frames so far, shape []."""
    terms: Tensor
    """Sum of each reward term over the current episodes, shape [terms, worlds]."""
    earned: Tensor
    """Sum of each reward term over all episodes that have ended, shape [terms]."""

    def restart(self, which: Tensor) -> "EpisodeSums":
        """Return the sums with new episodes in the worlds of a mask, shape [worlds]."""
        return replace(
            self, length=self.length.masked_fill(which, 0), returns=self.returns.masked_fill(which, 0.0),
            terms=self.terms.masked_fill(which, 0.0),
        )  # fmt: skip


class EpisodeTally:
    """Counts the first episode of each of a batch of worlds.

    Attributes:
        running: Worlds whose episode has not ended yet, shape [worlds], bool.
    """

    def __init__(self, task: Task, worlds: int, device: torch.device | str = "cpu") -> None:
        """Start counting."""
        self._task = task
        self.running = torch.ones(worlds, dtype=torch.bool, device=device)
        self._returns, self._lengths = torch.zeros(2, worlds, device=device), torch.zeros(worlds, device=device)
        self._failed, self._implausible = ~self.running, ~self.running
        self._succeeded: Tensor | None = None
        self._terms: dict[str, Tensor] = {}

    def count(
        self,
        reward: Tensor,
        penalised: Tensor,
        terms: Mapping[str, Tensor],
        *,
        done: Tensor,
        failed: Tensor,
        implausible: Tensor,
        succeeded: Tensor | None,
    ) -> bool:
        """Count a frame; all shapes [worlds].

        Args:
            reward: Rewards of the frame.
            penalised: The same less the penalty.
            terms: Reward terms.
            done: Whether the episode ended.
            failed: Whether it ended in a failure.
            implausible: Whether it failed because its state is implausible.
            succeeded: Whether the task is accomplished; None for tasks without success.

        Returns:
            Whether any episode is still running.
        """
        self._returns += torch.where(self.running, torch.stack([reward, penalised]), 0.0)
        self._lengths += self.running
        for name, values in {**terms, **self._charge(implausible)}.items():
            self._terms[name] = self._terms.get(name, 0.0) + torch.where(self.running, values, 0.0)
        ended = self.running & done
        self._failed |= ended & failed
        self._implausible |= ended & implausible
        if succeeded is not None:
            before = torch.zeros_like(self.running) if self._succeeded is None else self._succeeded
            self._succeeded = before | (ended & succeeded)
        self.running &= ~done
        return bool(self.running.any())

    @property
    def returns(self) -> Tensor:
        """Returns so far, shape [worlds]."""
        return self._returns[0]

    def outcome(self) -> EpisodeOutcomes:
        """Return the outcomes so far, on the CPU."""
        return EpisodeOutcomes(
            self._returns[0].cpu(), self._returns[1].cpu(), self._lengths.cpu(), self._failed.cpu(),
            self._implausible.cpu(), None if self._succeeded is None else self._succeeded.cpu(),
            {name: values.cpu() for name, values in self._terms.items()},
        )  # fmt: skip

    def _charge(self, implausible: Tensor) -> dict[str, Tensor]:
        """Return the charge for an implausible end, which no reward term contains."""
        charge = self._task.implausible_reward
        return {_IMPLAUSIBLE: charge * implausible} if charge else {}


def lambda_returns(
    reward: Tensor, value: Tensor, failed: Tensor, done: Tensor, gamma: float, lam: float, failure: float = 0.0
) -> Tensor:
    r"""Return TD(lambda) targets, shape [frames, worlds].

    $$G_t = r_t + \gamma\,[(1 - \lambda)\,V(o_{t+1}) + \lambda\,G_{t+1}]$$

    (Sutton and Barto 2018, eq. 12.20), with $V(o_{t+1})$ alone in brackets where the window or an episode ends, and the
    value of a failure where it fails.

    Args:
        reward: Rewards, shape [frames, worlds].
        value: Values of the states in which frames ended, shape [frames, worlds].
        failed: Where an episode failed, shape [frames, worlds].
        done: Where an episode ended, shape [frames, worlds].
        gamma: Discount per frame.
        lam: Lambda.
        failure: Value of a failure.
    """
    value = value.masked_fill(failed, failure)
    follows = (~done).to(value).mul_(lam)  # weight of the following target
    follows[-1] = 0.0
    known = torch.addcmul(reward, value, 1.0 - follows, value=gamma)
    target, targets = torch.zeros_like(reward[0]), []
    for now, weight in zip(reversed(known.unbind()), reversed((gamma * follows).unbind()), strict=True):
        target = torch.addcmul(now, weight, target)
        targets.append(target)
    return torch.stack(targets[::-1])

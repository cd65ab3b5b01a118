# SPDX-License-Identifier: Apache-2.0
r"""Judges of a policy that no update sees, and what they promise of its return on the robot.

A model identified from logs believes in the return of a policy that was trained in it. Its judges are models fitted to
other episodes of the same logs (`identify.confidence.refits`): during the training they choose the policy that is kept,
and others of them state an interval for its return on the robot,

$$\bar R \pm t_{K-1} \sqrt{s^2 (1 + 1/K) + \sigma^2/n + (\delta L)^2 + (R - \bar R)^2},$$

with the mean return $\bar R$ of K judges over n episodes, the variance $s^2$ between judges beyond that of episodes
($\sigma^2$), and the misfit of held-out stretches of the log: the mean difference $\delta$ of the reward of a frame
between the log and the model's roll-outs, over an episode of L frames. The return R that the model imagines is one
more opinion, as it fits the log about as well as its judges; without that term, the interval is the judges' own, beyond
which an imagined return is not believed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.control.commands import Commands
from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.returns import EpisodeOutcomes
from neurodyn.core.artifacts import read_json, resolve_policy
from neurodyn.core.config import Record, from_dict
from neurodyn.core.description.parameter import student_t
from neurodyn.core.errors import InputError
from neurodyn.core.verdict import Finding
from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State, Step
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.confidence.refits import read_refits
from neurodyn.identify.ladder.rungs import held_out_windows, settle_and_roll_out
from neurodyn.sim.draws import SampledDraws
from neurodyn.tasks import Task

CONFIDENCE = 0.90
"""Confidence level of the interval of a return."""
CHOOSING = 8
"""Number of judges that choose the kept policy; the others state the interval."""
EPISODES = 64
"""Episodes of each judge that state the interval: what they start from varies returns more than the judges do."""
PROMISE = "promise.json"
"""File of a policy's folder with its promise."""

_PAST, _LEAST_SECONDS, _SECONDS = 0.25, 0.25, 1.0
"""Time before held-out windows in which motors settle; their least and greatest length [s]."""
_EACH, _LEAST_EPISODES = 30, 2
"""Most windows of an episode; fewest episodes that tell a misfit."""


class Promise(Record, frozen=True):
    """What the training of a policy promises, and what judges that no update has seen say about it.

    Attributes:
        imagined: Mean return in the training dynamics, of a posterior if it was trained over one.
        judges: Mean return in each judge.
        interval: 90 % interval of the mean return on the robot.
        believed: The interval by the judges alone.
        judged_by: Description of the judges.
        worst_tenth: Mean return of the worst tenth of episodes in the training dynamics; UNSET for one robot.
        held_out: Difference of return over an episode by which held-out stretches of the log differ from the model's
            roll-outs; UNSET if the log does not show the task's reward.
        update: Update of the kept policy.
        updates: Updates of the training.
        commands: Commanded and achieved values by name; empty for tasks without commands.
    """

    imagined: float
    judges: list[float]
    interval: tuple[float, float]
    believed: tuple[float, float]
    judged_by: str
    worst_tenth: float | UnsetType = UNSET
    held_out: float | UnsetType = UNSET
    update: int = 0
    updates: int = 0
    commands: Commands = msgspec.field(default_factory=dict)

    @property
    def judged(self) -> float:
        """Mean return over the judges."""
        return sum(self.judges) / len(self.judges)

    @property
    def excess(self) -> float:
        """Return by which the model believes in the policy more than its judges do."""
        return self.imagined - self.judged

    def in_words(self) -> list[str]:
        """Return the promise in sentences."""
        low, high = self.interval
        share = abs(self.excess) / max(abs(self.judged), 1e-12)
        lines = [
            f"The return on the robot is {low:.4g} to {high:.4g} with {CONFIDENCE:.0%} confidence: {self.judged_by} "
            f"return {self.judged:.4g} on average.",
            f"The model itself imagines {self.imagined:.4g}, {share:.1%} {'more' if self.excess > 0 else 'less'} than "
            "they do.",
        ]
        if self.worst_tenth is not UNSET:
            lines[-1] = lines[-1][:-1] + f"; the worst tenth of its episodes returns {self.worst_tenth:.4g}."
        return lines

    def finding(self) -> Finding:
        """Judge whether the judges believe the imagined return."""
        low, high = self.believed
        if self.imagined <= high:
            return Finding("promise")
        return Finding(
            "promise", "warning",
            f"the model imagines a return of {self.imagined:.4g}, and its judges ({self.judged_by}) {low:.4g} to "
            f"{high:.4g}",
            "expect the return of the judges; log this policy on the robot and adapt again (neurodyn policy online)",
        )  # fmt: skip


def read_promise(policy: Path) -> Promise | None:
    """Return the promise of a policy's training; None if its folder has none.

    Raises:
        InputError: The file is damaged.
    """
    path = policy / PROMISE
    return from_dict(read_json(path), Promise, str(path)) if path.is_file() else None


def promises_of(policies: Sequence[str]) -> dict[str, Promise]:
    """Return the promises of the policies that have one, by name."""
    found = {policy: read_promise(resolve_policy(policy)) for policy in policies}
    return {policy: promise for policy, promise in found.items() if promise is not None}


@dataclass(frozen=True)
class Judges:
    """Dynamics of the judges, one in each world, in turn.

    Attributes:
        resolved: Dynamics in which the judges' quantities are free.
        draws: The quantities of each, in turn.
        text: Description.
    """

    resolved: ResolvedDynamics
    draws: SampledDraws
    text: str

    @property
    def count(self) -> int:
        """Number of judges."""
        return len(self.draws.rows)

    def some(self, rows: slice) -> "Judges":
        """Return some of the judges."""
        chosen = SampledDraws(self.draws.names, self.draws.rows[rows], in_turn=True)
        return replace(self, draws=chosen, text=_description(len(chosen.rows)))

    def means(self, returns: Tensor) -> list[float]:
        """Return the mean return of each judge, from those of the worlds, shape [worlds]."""
        return [float(returns[k :: self.count].double().mean()) for k in range(self.count)]


def _description(count: int) -> str:
    return f"{count} models fitted to other episodes"


def judges_of(resolved: ResolvedDynamics) -> Judges | None:
    """Return the judges of a model identified from logs; None for dynamics without refits."""
    if not isinstance(resolved.dynamics, HybridDynamics) or not (Path(resolved.name) / "model").is_dir():
        return None
    columns = read_refits(Path(resolved.name))
    if columns is None:
        return None
    draws = SampledDraws(tuple(columns), torch.stack([columns[name].float() for name in columns], 1), in_turn=True)
    freed = replace(resolved, dynamics=resolved.dynamics.freeing(draws.names))
    return Judges(freed, draws, _description(len(draws.rows)))


def interval_of(returns: Tensor, count: int, misfit: float) -> tuple[float, float]:
    """Return the interval of the mean return on the robot.

    Args:
        returns: Returns of the judges' episodes, the judges in turn, shape [episodes].
        count: Number of judges.
        misfit: Further deviation, as a return, such as the misfit of held-out stretches.
    """
    rows = returns.double()[: len(returns) // count * count].view(-1, count)
    means, each = rows.mean(0), len(rows)
    of_episodes = float(rows.var(0).mean()) if each > 1 else 0.0
    between = max(0.0, float(means.var()) - of_episodes / each) if count > 1 else 0.0
    variance = between * (1.0 + 1.0 / count) + of_episodes / (each * count) + misfit**2
    reach = student_t(count - 1, CONFIDENCE) * math.sqrt(variance)
    middle = float(means.mean())
    return middle - reach, middle + reach


def promise_of(
    imagined: EpisodeOutcomes, judged: EpisodeOutcomes, judges: Judges, per_frame: float | None, worst: float | None
) -> Promise:
    """Return the promise of a policy.

    Args:
        imagined: Its episodes in the training dynamics.
        judged: Its episodes in the judges.
        judges: The judges.
        per_frame: Misfit of the reward of a frame on held-out stretches (`reward_misfit`).
        worst: Mean return of the worst tenth of a posterior; None for one robot.
    """
    misfit = None if per_frame is None else per_frame * float(imagined.lengths.mean())
    excess = float(imagined.returns.mean()) - float(judged.returns.mean())
    return Promise(
        imagined=float(imagined.returns.mean()), judges=judges.means(judged.returns),
        interval=interval_of(judged.returns, judges.count, math.hypot(misfit or 0.0, excess)),
        believed=interval_of(judged.returns, judges.count, misfit or 0.0), judged_by=judges.text,
        worst_tenth=UNSET if worst is None else worst, held_out=UNSET if misfit is None else misfit,
        commands=judged.commands,
    )  # fmt: skip


@torch.no_grad()
def reward_misfit(task: Task, dynamics: HybridDynamics, logs: Sequence[Store]) -> float | None:
    """Return the size of the mean difference of a frame's reward between held-out stretches and their roll-outs.

    Its standard error over episodes, whose stretches overlap, is part of it. None if a log holds no such stretches, or
    the reward depends on what a log does not hold.
    """
    past = max(1, round(_PAST / dynamics.spec.dt)) if dynamics.memory else 0
    differences: list[Tensor] = []
    for log in logs:
        for split in (Split.VALIDATION, Split.TEST):
            if not len(log.episodes(split)):
                continue
            try:
                windows, frames = held_out_windows(log, split, past, (_LEAST_SECONDS, _SECONDS), _EACH)
                path = settle_and_roll_out(dynamics, log, windows)
                logged, rolled = (
                    _rewards(task, dynamics, one.q[:, 1 : max(frames) + 1], one.qd[:, 1 : max(frames) + 1])
                    for one in (windows, path)
                )
            except (InputError, KeyError):
                return None
            difference, episode = (logged - rolled).mean(1), windows.source.places[:, 0]
            finite = torch.isfinite(difference)
            differences += [difference[finite & (episode == one)] for one in episode.unique()]
    means = torch.stack([each.mean() for each in differences if len(each)]) if differences else torch.zeros(0)
    if len(means) < _LEAST_EPISODES:
        return None
    return math.hypot(float(means.mean()), float(means.std()) / len(means) ** 0.5)


def _rewards(task: Task, dynamics: HybridDynamics, q: Tensor, qd: Tensor) -> Tensor:
    """Return the rewards of states, shape [windows, frames], with contacts open, for no action."""
    state = State(q.flatten(0, 1).float(), qd.flatten(0, 1).float())
    contacts = state.q.new_zeros(len(state.q), len(dynamics.spec.contacts))
    quantities = dynamics.quantities(state, Step(state, contacts=contacts))
    memory = task.begin(quantities, torch.Generator().manual_seed(0))
    still = state.q.new_zeros(len(state.q), len(task.actions))
    parts = task.reward(quantities, memory, still).values()
    return torch.stack([part.double() for part in parts]).sum(0).view(q.shape[:2])

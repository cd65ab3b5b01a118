# SPDX-License-Identifier: Apache-2.0
"""The part of judges in the training of a policy: which policy is kept, when it ends, and what it promises."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import UNSET
from torch import Tensor

from neurodyn.control.commands import STANDS_STILL, Commands, of_commands, read_commands
from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.returns import EpisodeOutcomes
from neurodyn.core.errors import InputError, notice
from neurodyn.core.verdict import Finding
from neurodyn.data.store import Store
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.evaluate.run import training_logs
from neurodyn.policy.settings import AimSettings, TrainingSettings
from neurodyn.policy.trust.judges import CHOOSING, EPISODES, Judges, Promise, judges_of, promise_of, reward_misfit
from neurodyn.robots.data import open_robot_data
from neurodyn.sim.draws import QuantityDraws
from neurodyn.tasks import Task

_SURE = 2.0
"""Standard errors by which a return must fall."""
PATIENT = 30.0
"""CPU-seconds of training after which a policy that does not move is called so."""
NO_LEARNING = "no-learning"
"""Name of the finding that a training's first evaluation was its best."""
_LEAST_EVALUATIONS = 4
"""Fewest evaluations that tell whether anything was learned."""
_FAILING = 0.1
"""Share of episodes over a posterior that may fail."""


class Play(Protocol):
    """Plays the kept policy in some dynamics, with a robot each under `draws`, from the same starts for all."""

    def __call__(self, resolved: ResolvedDynamics, draws: QuantityDraws | None, count: int) -> EpisodeOutcomes:
        """Return `count` episodes."""
        ...


class Judging:
    """Judges during a training in a model identified from logs.

    Attributes:
        choosing: Judges that choose the kept policy.
        stating: Other judges, which state the interval of its return.
        falls: Evaluations in a row in which the return fell in the judges and rose in the model.
    """

    def __init__(self, judges: Judges, patience: int | None) -> None:
        """Share out the judges; `patience` is the number of falls that end the training, None for none."""
        apart = judges.count > 2 * CHOOSING
        self.choosing = judges.some(slice(0, CHOOSING))
        self.stating = judges.some(slice(CHOOSING, None)) if apart else judges
        self.falls, self._patience = 0, patience
        self._kept: tuple[Tensor, Tensor] | None = None
        self._last: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, resolved: ResolvedDynamics, patience: int | None) -> "Judging | None":
        """Return the judges of dynamics; None if they have none."""
        judges = judges_of(resolved)
        return None if judges is None else cls(judges, patience)

    @property
    def over(self) -> bool:
        """Whether the training ends."""
        return self._patience is not None and self.falls >= self._patience

    def watch(self, imagined: Tensor, judged: Tensor) -> None:
        """Compare an evaluation with that of the kept policy, from the same starts, shape [episodes] each."""
        self._last = imagined, judged
        if self._kept is None:
            return
        gained, lost = imagined - self._kept[0], self._kept[1] - judged
        self.falls = self.falls + 1 if _is_positive(gained) and _is_positive(lost) else 0

    def keep(self) -> None:
        """Take the policy of the last evaluation as the kept one."""
        self._kept, self.falls = self._last, 0

    def promise(
        self,
        play: Play,
        trained_in: ResolvedDynamics,
        draws: QuantityDraws | None,
        task: Task,
        updates: tuple[int, int],
    ) -> Promise:
        """Return what the kept policy promises.

        Args:
            play: Plays the policy.
            trained_in: Training dynamics.
            draws: Their randomised robots; None for one robot.
            task: The task.
            updates: Updates of the kept policy and of the training.
        """
        count = EPISODES * self.stating.count
        imagined = play(trained_in, draws, count)
        judged = play(self.stating.resolved, self.stating.draws, count)
        worst = None if draws is None else _worst_tenth(imagined.returns)
        model = self.stating.resolved.dynamics
        assert isinstance(model, HybridDynamics)
        misfit = reward_misfit(task, model, _logs(task, trained_in.name))
        promise = promise_of(imagined, judged, self.stating, misfit, worst)
        return msgspec.structs.replace(promise, update=updates[0], updates=updates[1])


def findings_of_training(
    lines: Sequence[Mapping[str, Any]], kept: int, updates: int, asked: AimSettings | None = None,
    posterior_of: str | None = None, initial: Path | None = None,
) -> list[Finding]:  # fmt: skip
    """Judge from the metrics of a training whether it learned, and whether its kept policy follows its commands.

    Args:
        lines: The metrics.
        kept: Update of the kept policy.
        updates: Updates of the training.
        asked: What the policy is to achieve.
        posterior_of: Run whose posterior the robots of the training are drawn from; None for others.
        initial: The initial policy; None for a random one.
    """
    played = list(dict.fromkeys(line["step"] for line in lines if "return_training" in line))
    findings: list[Finding] = []
    if len(played) >= _LEAST_EVALUATIONS and kept == played[0]:
        advice = "give more updates or another seed, or look at the reward (policy evaluate shows its terms)"
        if initial is not None:
            advice = f"keep {initial}, from which it has hardly moved, or go on with the algorithm that trained that"
        what = f"nothing was learned after the first evaluation: the kept policy is of update {kept} of {updates}"
        findings.append(Finding(NO_LEARNING, "warning", what, advice))
    failed = failing_share(lines, kept)
    if posterior_of is not None and failed > _FAILING:  # means over robots that fell say nothing of the others
        findings.append(
            Finding(
                "fails-in-posterior", "warning",
                f"{failed:.0%} of the episodes fail: not all robots that the logs of {posterior_of} allow can be held "
                f"by one policy (update {kept} of {updates})",
                "train in the identified robot alone (--one-robot), or narrow its posterior by more logs",
            )
        )  # fmt: skip
        return findings
    findings += of_commands(kept_commands(lines, kept), f" (update {kept} of {updates})")
    if asked is not None and not findings and (words := shortcomings(lines, kept, asked)):
        advice = f"train longer (--iterations {2 * updates}), from another --seed, or look at the servos' gains"
        findings.append(Finding("inaccurate", "warning", f"after {updates} updates {words}", advice))
    return findings


def shortcomings(lines: Sequence[Mapping[str, Any]], kept: int, asked: AimSettings) -> str:
    """Return in words what the policy kept at an update does not achieve of what is asked; empty for nothing."""
    failed = failing_share(lines, kept)
    found = [f"{failed:.1%} of its episodes fail, asked {asked.falls:.0%}"] if failed > asked.falls else []
    for name, one in kept_commands(lines, kept).items():
        if one.error is not UNSET and one.error > asked.error:
            what, _, unit = name.partition(" [")
            found.append(f"its {what} has an error of {one.error:.3g} {unit.rstrip(']')}, asked {asked.error:.2g}")
    return ", ".join(found)


def failing_share(lines: Sequence[Mapping[str, Any]], kept: int) -> float:
    """Return the share of episodes in which the policy kept at an update fails."""
    return next((line["failed_training"] for line in reversed(lines) if _is_of(line, kept)), 0.0)


def call_standing(out: Path, commands: Commands, seconds: float, settings: TrainingSettings) -> None:
    """Say once, within the first minute of a training, that its policy does not move; later only the verdict does."""
    if seconds > PATIENT and any(one.name == STANDS_STILL for one in of_commands(commands)):
        notice(
            f"{out}: the policy stands; if it goes on to, try more noise (network.initial_std, now "
            f"{settings.network.initial_std:g}), a higher rate (now {settings.rate:g}), another --seed or --algorithm"
        )


def kept_commands(lines: Sequence[Mapping[str, Any]], kept: int) -> Commands:
    """Return commanded and achieved values of the policy kept at an update, from the metrics of its training."""
    line = next((line for line in reversed(lines) if _is_of(line, kept) and "commands" in line), None)
    return {} if line is None else read_commands(line["commands"])


def _is_of(line: Mapping[str, Any], update: int) -> bool:
    """Return whether a line of metrics is of the evaluation after an update."""
    return line.get("step") == update and "failed_training" in line


def _is_positive(difference: Tensor) -> bool:
    """Return whether a mean is above zero by more than two standard errors."""
    return float(difference.mean()) > _SURE * float(difference.std()) / math.sqrt(len(difference))


def _worst_tenth(returns: Tensor) -> float:
    return float(returns.sort().values[: max(1, len(returns) // 10)].mean())


def _logs(task: Task, run: str) -> Sequence[Store]:
    """Return the logs that a model was fitted to; none if they are gone."""
    with contextlib.suppress(InputError):
        robot = task.declaration()
        if not Path(run).is_dir():
            return ()
        return [open_robot_data(robot, name) for name in training_logs(run)]
    return ()

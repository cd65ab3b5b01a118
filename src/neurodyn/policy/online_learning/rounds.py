# SPDX-License-Identifier: Apache-2.0
"""One round: fit the model, train the policy in it, log the policy in the reference, compare.

Each step writes its result to the round's folder and then an entry to round.json, so that an interrupted loop resumes
at the unfinished step.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import UNSET

from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.returns import Returns
from neurodyn.control.starts import Starts
from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.core.progress import Progress, showing
from neurodyn.core.seeds import derive_seed
from neurodyn.data.mixture import Mixture, first_frames
from neurodyn.data.store import Store
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.learn.metrics import read_metrics
from neurodyn.learn.run_folder import open_mixture
from neurodyn.policy.artifact import Behaviour, load_policy
from neurodyn.policy.episodes.evaluation import SEED, play
from neurodyn.policy.episodes.logs import record_log
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.online_learning.problem import OnlineProblem
from neurodyn.policy.online_learning.record import (
    FittedModel,
    LoggedPolicy,
    PolicyComparison,
    Round,
    TrainedPolicy,
    model_error,
    read_round,
)
from neurodyn.policy.online_learning.refit import Fit
from neurodyn.policy.settings import TrainingSettings
from neurodyn.policy.trust.support import support_in
from neurodyn.policy.worlds.identified_sensors import with_sensor_errors
from neurodyn.policy.worlds.randomisation import over_posterior
from neurodyn.tasks import Task

Stages = Callable[[str], Progress]
"""From the name of a step to its progress display."""

_FILE = "round.json"
_PLAYS = 6
"""Least number of evaluations in a round that may end when the imagined return is not supported."""
_MOST_WORLDS = 256
_LEAST_WORLDS = 4
"""Least number of parallel logged episodes: two with noise and two without, so that both splits have some."""

_BATCHES = 4
"""Target number of episode batches in a log: the last may exceed the requested frames."""


@dataclass(frozen=True)
class EarlierRounds:
    """Data and rounds before a round.

    Attributes:
        first: Files of random or given data.
        rounds: Rounds of the task.
        others: Other tasks that share the model, with their rounds.
    """

    first: tuple[str, ...]
    rounds: tuple[Round, ...]
    others: tuple[tuple[Task, tuple[Round, ...]], ...] = ()

    @property
    def logs(self) -> tuple[str, ...]:
        """Logs of policies of all tasks, by round."""
        every = zip(self.rounds, *(rounds for _, rounds in self.others), strict=True)
        return tuple(one.log.path for together in every for one in together if one.log is not None)

    @property
    def policies(self) -> dict[str, Path]:
        """Folder of each log's policy."""
        every = [*self.rounds, *(one for _, rounds in self.others for one in rounds)]
        return {one.log.path: Path(one.policy.folder) for one in every if one.log and one.policy}

    @property
    def tasks(self) -> dict[str, Task]:
        """Task of each log of another task."""
        return {one.log.path: task for task, rounds in self.others for one in rounds if one.log}

    @property
    def data(self) -> tuple[str, ...]:
        """All files."""
        return (*self.first, *self.logs)

    def shares(self, random: float, last: float = 0.5) -> tuple[float, ...] | None:
        """Return training shares by file: `random` for the first files; at least `last` of the logs' for the last.

        The last logs are those of all tasks in the last round.
        """
        if not self.logs or len(self.data) == 1:
            return None
        random = random if self.first else 0.0
        first = [random / len(self.first) for _ in self.first]
        tasks = 1 + len(self.others)
        before = len(self.logs) - tasks
        last = max(last, tasks / len(self.logs))
        logs = [(1.0 - last) / max(1, before)] * before + [last / tasks] * tasks
        return (*first, *((1.0 - random) * share for share in logs))


class RoundInProgress:
    """Runs one round, or the rest of it."""

    def __init__(
        self, problem: OnlineProblem, folder: Path, number: int, known: EarlierRounds, stages: Stages | None,
        model: FittedModel | None = None,
    ) -> None:  # fmt: skip
        """Read the recorded steps in the folder of the round; its `number` counts from 1.

        `model` is the round's model, if another task's round has fitted it.
        """
        self.problem, self.folder, self.number, self.known, self._stages = problem, folder, number, known, stages
        self._shared = model
        self.round = read_round(folder / _FILE, number)

    def run(self) -> Round:
        """Run the missing steps, and return the round."""
        steps: dict[str, Callable[[], object]] = {
            "model": self._fit, "policy": self._train, "log": self._log, "measured": self._measure,
        }  # fmt: skip
        for name, step in steps.items():
            if getattr(self.round, name) is None:
                self.round = msgspec.structs.replace(self.round, **{name: step()})
                artifacts.write_json(self.folder / _FILE, self.round.plain())
        return self.round

    def _stage(self, step: str, *, shared: bool = False) -> Progress | None:
        task = f" of {self.problem.task.name}" if self.known.others and not shared else ""
        return None if self._stages is None else self._stages(f"round {self.number}{task}, {step}")

    def _fit(self) -> FittedModel:
        if self._shared is not None:
            return msgspec.structs.replace(self._shared, cpu_seconds=0.0)
        problem, known = self.problem, self.known
        previous = problem.first_run
        if known.rounds:
            assert known.rounds[-1].model is not None
            previous = known.rounds[-1].model.run
        if not known.data and previous is not None:
            return FittedModel(run=previous, cpu_seconds=0.0)
        run, began = self.folder / "model-run", time.process_time()
        fit = Fit(
            problem.task, problem.settings, run, known.data, self._shares, previous,
            _was_started(run), problem.device, self._stage("model", shared=True), known.policies,
            known.tasks,
        )  # fmt: skip
        problem.refit.fit(fit)
        copy = self.folder / "calibrated-run"
        stage = self._stage("calibration", shared=True)
        calibrated = problem.refit.calibrate(
            replace(fit, out=copy, previous=str(run), resume=_was_started(copy), progress=stage)
        )
        return FittedModel(
            run=str(run), cpu_seconds=time.process_time() - began, calibrated=str(copy) if calibrated else UNSET,
            caveat=load(run, device=problem.device).caveat or UNSET,
        )  # fmt: skip

    def _train(self) -> TrainedPolicy:
        problem, out, model = self.problem, self.folder / "policy", self._model
        settings, initial = self._policy_settings(), problem.policy
        if self.known.rounds:
            assert self.known.rounds[-1].policy is not None
            initial = Path(self.known.rounds[-1].policy.folder)
        end = train_policy(
            problem.task, model, out, settings, initial=initial, training_starts=self._training_starts(model),
            resume=_was_started(out), progress=self._stage("policy"),
        )  # fmt: skip
        support = support_in(read_metrics(out))
        return TrainedPolicy(
            folder=str(out), frames=settings.frames_of(end.step), cpu_seconds=end.cpu_seconds, updates=end.step,
            of_updates=settings.iterations, support=UNSET if support is None else support,
        )  # fmt: skip

    def _log(self) -> LoggedPolicy:
        problem, settings, path = self.problem, self.problem.settings, self.folder / "log.h5"
        _, network = load_policy(self.folder / "policy")
        quiet, noisy = Behaviour("policy", network, quiet=True), Behaviour("policy with noise", network)
        episodes = settings.log_frames / problem.task.frames
        worlds = min(_MOST_WORLDS, max(_LEAST_WORLDS, 2 * round(episodes / 2 / _BATCHES)))
        states = self._model_of_states
        with showing(self._stage("log")), problem.acting(path, states) as acting:
            summary = record_log(
                problem.task, acting.dynamics, (quiet, noisy), path, transitions=settings.log_frames,
                worlds=worlds, noise=settings.noise, correlation=settings.correlation,
                seed=derive_seed(settings.seed, "online log", self.number),
                coordinates=not problem.refit.measured, test=0.0, declared=problem.robot is None,
                resume=problem.robot is not None, states=states,
            )  # fmt: skip
        if summary.why_not_scored:
            raise InputError(f"{acting.name}: {summary.why_not_scored}; valid: a robot with an accelerometer")
        name = acting.name
        return LoggedPolicy(
            path=str(path),
            frames=summary.transitions + summary.episodes,
            returns=summary.outcomes[quiet.name].returns_in(name),
            noisy=summary.outcomes[noisy.name].returns_in(name),
            cpu_seconds=summary.cpu_seconds,
        )

    def _measure(self) -> PolicyComparison:
        problem, model = self.problem, self._model
        assert self.round.log is not None
        assert self.round.model is not None
        log = problem.refit.open(problem.task.declaration(), self.round.log.path)
        copy = self.round.model.calibrated
        with showing(self._stage("comparison")):
            returns = self._returns_in(model)
            judged = None
            if copy:
                judged = self._returns_in(replace(model, name=copy, dynamics=load(copy, device=problem.device)))
        error, finite = model_error(model.dynamics, log)
        return PolicyComparison(
            returns=judged or returns, model_error=error, uncalibrated=UNSET if judged is None else returns,
            finite_fraction=UNSET if finite == 1.0 else finite,
        )  # fmt: skip

    def _returns_in(self, model: "ModelOfRound") -> Returns:
        problem, (_, network) = self.problem, load_policy(self.folder / "policy")
        return play(
            network.to(model.dynamics.device), problem.task, model.dynamics, model.starts(problem.task, SEED),
            problem.settings.episodes, seed=SEED,
        ).returns_in(model.name)  # fmt: skip

    def _policy_settings(self) -> TrainingSettings:
        """Return the settings of this round's policy training; only a new first policy imitates data."""
        settings, first = self.problem.settings, self.number == 1
        policy = settings.policy
        assert self.round.model is not None
        policy = msgspec.structs.replace(
            policy,
            randomise=with_sensor_errors(
                policy.randomise if policy.one_robot else over_posterior(policy.randomise, self.round.model.run),
                self.round.model.run,
                self.problem.task,
            ),
            frames=policy.frames if settings.rollout is None else settings.rollout,
            clone=policy.clone if first and self.problem.policy is None else None,
            seed=derive_seed(settings.seed, "online policy", self.number),
            stop_when_exploiting=settings.stop_when_exploiting,
            evaluations=max(policy.evaluations, _PLAYS) if settings.stop_when_exploiting else policy.evaluations,
        )
        if first or policy.iterations is None:
            return policy
        return msgspec.structs.replace(policy, iterations=max(1, round(policy.iterations * settings.further)))

    @property
    def _shares(self) -> tuple[float, ...] | None:
        settings = self.problem.settings
        return self.known.shares(settings.random_share, settings.last_share)

    @property
    def _model_of_states(self) -> HybridDynamics | None:
        """The round's model, if it is a hybrid one of a robot: it estimates a base that nothing tracks."""
        assert self.round.model is not None
        model = None if self.problem.robot is None else load(self.round.model.run)
        return model if isinstance(model, HybridDynamics) else None

    @cached_property
    def _model(self) -> "ModelOfRound":
        assert self.round.model is not None
        problem, known = self.problem, self.known
        model = load(self.round.model.run, device=problem.device)
        if not known.data:
            return ModelOfRound(self.round.model.run, model)
        robot = problem.task.declaration()
        data = open_mixture(
            known.data, self._shares,
            lambda path, /, *, memory: problem.refit.open(robot, str(path)),
        )  # fmt: skip
        return ModelOfRound(self.round.model.run, model, data)

    def _training_starts(self, model: "ModelOfRound") -> Starts | None:
        """Return the starts of training roll-outs; None for those of episodes."""
        problem, settings = self.problem, self.problem.settings
        if model.log is None or (settings.rollout is None and not model.dynamics.measured):
            return None
        seed = derive_seed(settings.seed, "online starts", self.number)
        return model.mixed_starts(problem.task, seed, settings.task_share)


@dataclass(frozen=True)
class ModelOfRound(ResolvedDynamics):
    """A model with its training data, in which whole episodes start as in the reference."""

    def starts(self, task: Task, seed: int) -> Starts:
        """Return states drawn by the task, or the first windows of logged episodes.

        Raises:
            InputError: No logged episode is as long as the model's warm-up.
        """
        if self.log is None or self.is_drawn_by(task):
            return ResolvedDynamics(self.name, self.dynamics).starts(task, seed)
        return self.starts_in(self._beginnings(self.log), task, seed)

    def mixed_starts(self, task: Task, seed: int, share: float) -> Starts:
        """Return starts anywhere in the data, and a share of starts at the start of episodes.

        Without that share, a world model whose policy falls would only have starts in the middle of falls.
        """
        assert self.log is not None
        if self.is_drawn_by(task):
            return super().mixed_starts(task, seed, share)
        whole, first = Mixture.of(self.log), self._beginnings(self.log)
        shares = [(1.0 - share) * part for part in whole.shares] + [share * part for part in first.shares]
        return self.starts_in(Mixture.of((*whole.stores, *first.stores), shares), task, seed)

    def _beginnings(self, log: Store | Mixture) -> Mixture:
        """Return the first windows of logged episodes, with equal shares of all files."""
        frames, stores = max(1, self.dynamics.spec.context), Mixture.of(log).stores
        long = [store for store in stores if store.lengths.max() >= frames] or stores[-1:]  # the error names that one
        return Mixture.of([first_frames(one, frames) for one in long])


def _was_started(run: Path) -> bool:
    """Return whether a training was begun; remove incomplete results of other steps."""
    if (run / "config.yaml").is_file():
        return True
    shutil.rmtree(run, ignore_errors=True)
    return False

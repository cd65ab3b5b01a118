# SPDX-License-Identifier: Apache-2.0
"""Trials of a sweep: their order, each as a run folder like any other, and what came of it (RUN/trial.json)."""

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neurodyn.cluster.sweep.space import Values
from neurodyn.cluster.sweep.spec import SweepPlan, SweepTrial
from neurodyn.cluster.sweep.trainings import TRAININGS
from neurodyn.core import artifacts
from neurodyn.core.config import Record, from_dict
from neurodyn.core.errors import InputError
from neurodyn.evaluate.run_comparison import Figure

OUTCOME = "trial.json"


class TrialOutcome(Record, frozen=True):
    """What came of a trial.

    Attributes:
        number: Number of its setting.
        seed: Seed of the training.
        values: What is its own.
        seconds: Wall time of the trial [s].
        figure: What trials are chosen by; None where it failed.
        weights: Number of weights of the result, or of identified parameters; None where it failed.
        failed: Why it failed; empty where it did not.
    """

    number: int
    seed: int
    values: dict[str, Any]
    seconds: float
    figure: Figure | None = None
    weights: int | None = None
    failed: str = ""


def run_trial(trial: SweepTrial, folder: Path) -> TrialOutcome:
    """Train, go on with a training that was killed, or read what came of one that has ended.

    Args:
        trial: The trial.
        folder: Its run folder.
    """
    known = outcome_of(folder)
    if known is not None and not known.failed:
        return known
    training, begin = TRAININGS[trial.training], time.perf_counter()
    given = from_dict(trial.arguments, training.arguments)
    settings = from_dict(trial.settings, training.settings_type(given))
    try:
        training.run(given, settings, folder, resume=(folder / "config.yaml").exists())
        figure = training.figure(given, folder)
        if figure.value is None:
            raise InputError(f"its {training.what} is not finite")
    except InputError as error:
        outcome = failed(trial, str(error), time.perf_counter() - begin)
    else:
        outcome = TrialOutcome(
            number=trial.number, seed=trial.seed, values=trial.values, seconds=time.perf_counter() - begin,
            figure=figure, weights=training.weights(given, folder),
        )  # fmt: skip
    artifacts.write_json(folder / OUTCOME, outcome.plain())
    return outcome


def failed(trial: SweepTrial, why: str, seconds: float = 0.0) -> TrialOutcome:
    """Return what came of a trial that has no usable result."""
    return TrialOutcome(number=trial.number, seed=trial.seed, values=trial.values, seconds=seconds, failed=why)


def outcome_of(folder: Path) -> TrialOutcome | None:
    """Return what came of the trial of a run folder; None where it has not ended."""
    path = folder / OUTCOME
    if not path.is_file():
        return None
    return from_dict(artifacts.read_json(path), TrialOutcome, str(path))


CHOSEN = "settings.json"
"""The settings that were chosen, in their order: a resumed sweep goes on with them."""

Told = Callable[[int, int, TrialOutcome], None]
"""Called with the trials that have ended, the number of all, and what came of the last."""


class TrialQueue:
    """Trials one after another, and what came of them.

    Attributes:
        outcomes: What came of those that have ended, by the name of their run folder.
        total: Number of all trials.
    """

    def __init__(self, plan: SweepPlan, out: Path, told: Told | None = None) -> None:
        """Take up a sweep where its folder left it.

        Args:
            plan: The sweep.
            out: Its folder.
            told: Called after each trial.
        """
        self.outcomes: dict[str, TrialOutcome] = {}
        self.total = plan.count
        self._plan, self._out, self._told = plan, out, told
        self._waiting: deque[SweepTrial] = deque()
        self._next = 0
        path = out / CHOSEN
        self._chosen: list[Values] = artifacts.read_json(path)["settings"] if path.is_file() else []
        for number, values in enumerate(self._chosen):
            plan.chooser.replay(number, values)
            self._take(number, values)

    def folder_of(self, trial: SweepTrial) -> Path:
        """Return the run folder of a trial."""
        return self._out / "trials" / trial.name

    def pop(self) -> SweepTrial | None:
        """Return the next trial; None where there is none left."""
        while not self._waiting and self._next < self._plan.chooser.count:
            values = self._plan.chooser.choose(self._next)
            self._chosen.append(values)
            artifacts.write_json(self._out / CHOSEN, {"settings": self._chosen})
            self._take(self._next, values)
        return self._waiting.popleft() if self._waiting else None

    def end(self, trial: SweepTrial, outcome: TrialOutcome) -> None:
        """Take note of what came of a trial."""
        self.outcomes[trial.name] = outcome
        if self._told is not None:
            self._told(len(self.outcomes), self.total, outcome)
        self._tell(trial.number)

    def _take(self, number: int, values: Values) -> None:
        """Put the trials of a setting into the queue, but for those that have ended well."""
        self._next = number + 1
        for seed in self._plan.sweep.seeds:
            trial = self._plan.trial(number, seed, values)
            known = outcome_of(self.folder_of(trial))
            if known is None or known.failed:
                self._waiting.append(trial)
            else:
                self.outcomes[trial.name] = known
        self._tell(number)

    def _tell(self, number: int) -> None:
        """Tell who chooses what came of a setting, once all its seeds have ended."""
        found = [outcome for outcome in self.outcomes.values() if outcome.number == number]
        if len(found) < len(self._plan.sweep.seeds):
            return
        scores = [_score(outcome) for outcome in found]
        known = [score for score in scores if score is not None]
        self._plan.chooser.tell(number, sum(known) / len(known) if len(known) == len(scores) else None)


def _score(outcome: TrialOutcome) -> float | None:
    """Return the figure of a trial as something of which less is better; None where it failed."""
    figure = outcome.figure
    if figure is None or figure.value is None:
        return None
    return -figure.value if figure.greater_is_better else figure.value

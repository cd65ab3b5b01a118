# SPDX-License-Identifier: Apache-2.0
"""One trial of a sweep: a run folder like any other, and beside its files what came of it (RUN/trial.json)."""

import time
from pathlib import Path
from typing import Any

from neurodyn.cluster.sweep.spec import Trial
from neurodyn.cluster.sweep.trainings.registry import TRAININGS
from neurodyn.core import artifacts
from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.core.records import Record
from neurodyn.evaluate.runs.comparison import Figure

OUTCOME = "trial.json"


class Outcome(Record, frozen=True):
    """What came of a trial.

    Attributes:
        number: Number of its setting.
        seed: Seed of the training.
        values: What is its own.
        seconds: Wall time of the trial [s].
        figure: What trials are chosen by; None where it failed.
        weights: Number of weights of the result, or of identified parameters; None where it failed, or is older.
        failed: Why it failed; empty where it did not.
    """

    number: int
    seed: int
    values: dict[str, Any]
    seconds: float
    figure: Figure | None = None
    weights: int | None = None
    failed: str = ""


def run_trial(trial: Trial, folder: Path) -> Outcome:
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
        outcome = Outcome(
            number=trial.number, seed=trial.seed, values=trial.values, seconds=time.perf_counter() - begin,
            figure=figure, weights=training.weights(given, folder),
        )  # fmt: skip
    artifacts.write_json(folder / OUTCOME, outcome.plain())
    return outcome


def failed(trial: Trial, why: str, seconds: float = 0.0) -> Outcome:
    """Return what came of a trial that has no usable result."""
    return Outcome(number=trial.number, seed=trial.seed, values=trial.values, seconds=seconds, failed=why)


def outcome_of(folder: Path) -> Outcome | None:
    """Return what came of the trial of a run folder; None where it has not ended."""
    path = folder / OUTCOME
    if not path.is_file():
        return None
    return from_dict(artifacts.read_json(path), Outcome, str(path))

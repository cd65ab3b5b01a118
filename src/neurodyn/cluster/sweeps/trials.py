# SPDX-License-Identifier: Apache-2.0
"""Trials of a sweep: their order, run folders, outcomes, and Ray Tune workers."""

import contextlib
import json
import logging
import os
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from neurodyn.cluster.connection import connected, require_ray
from neurodyn.cluster.sweeps.spec import SweepPlan, SweepTrial, Values
from neurodyn.cluster.sweeps.trainings import TRAININGS
from neurodyn.cluster.workers import limit_process
from neurodyn.core import artifacts
from neurodyn.core.config import Record, from_dict
from neurodyn.core.errors import InputError
from neurodyn.evaluate.run_comparison import Figure

OUTCOME = "trial.json"


class TrialOutcome(Record, frozen=True):
    """Outcome of a trial.

    Attributes:
        number: Index of its setting.
        seed: Seed of the training.
        values: Values of the varied settings.
        seconds: Wall time of the trial [s].
        figure: Figure that ranks trials; None if it failed.
        weights: Number of weights of the result, or of identified parameters; None if it failed.
        failed: Reason for failure; empty if it did not fail.
    """

    number: int
    seed: int
    values: dict[str, Any]
    seconds: float
    figure: Figure | None = None
    weights: int | None = None
    failed: str = ""


def run_trial(trial: SweepTrial, folder: Path) -> TrialOutcome:
    """Train, resume a killed training, or read the outcome of a finished one.

    Args:
        trial: The trial.
        folder: Its run folder.
    """
    known = outcome_of(folder)
    if known is not None and not known.failed:
        return known
    training, begin = TRAININGS[trial.training], time.perf_counter()
    given = from_dict(trial.arguments, training.arguments)
    try:
        training.run(given, trial.settings, folder, resume=(folder / "config.yaml").exists())
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
    """Return the outcome of a trial without a usable result."""
    return TrialOutcome(number=trial.number, seed=trial.seed, values=trial.values, seconds=seconds, failed=why)


def outcome_of(folder: Path) -> TrialOutcome | None:
    """Return the outcome of the trial in a run folder; None if it has not finished."""
    path = folder / OUTCOME
    if not path.is_file():
        return None
    return from_dict(artifacts.read_json(path), TrialOutcome, str(path))


CHOSEN = "settings.json"
"""File of the chosen settings, in order: a resumed sweep continues with them."""

ProgressCallback = Callable[[int, int, TrialOutcome], None]
"""Called with the number of finished trials, the total number, and the last outcome."""


class TrialQueue:
    """Queue of trials, and their outcomes.

    Attributes:
        outcomes: Outcomes of finished trials, by run folder name.
        total: Total number of trials.
    """

    def __init__(self, plan: SweepPlan, out: Path, told: ProgressCallback | None = None) -> None:
        """Continue a sweep from the state of its folder.

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
            plan.chooser.restore(number, values)
            self._queue_setting(number, values)

    def folder_of(self, trial: SweepTrial) -> Path:
        """Return the run folder of a trial."""
        return self._out / "trials" / trial.name

    def pop(self) -> SweepTrial | None:
        """Return the next trial; None if none is left."""
        while not self._waiting and self._next < self._plan.chooser.count:
            values = self._plan.chooser.choose(self._next)
            self._chosen.append(values)
            artifacts.write_json(self._out / CHOSEN, {"settings": self._chosen})
            self._queue_setting(self._next, values)
        return self._waiting.popleft() if self._waiting else None

    def end(self, trial: SweepTrial, outcome: TrialOutcome) -> None:
        """Record the outcome of a trial."""
        self.outcomes[trial.name] = outcome
        if self._told is not None:
            self._told(len(self.outcomes), self.total, outcome)
        self._record_score(trial.number)

    def _queue_setting(self, number: int, values: Values) -> None:
        """Queue the trials of a setting, except those that succeeded earlier."""
        self._next = number + 1
        for seed in self._plan.sweep.seeds:
            trial = self._plan.trial(number, seed, values)
            known = outcome_of(self.folder_of(trial))
            if known is None or known.failed:
                self._waiting.append(trial)
            else:
                self.outcomes[trial.name] = known
        self._record_score(number)

    def _record_score(self, number: int) -> None:
        """Report a setting's score to the search once all its seeds have finished."""
        found = [outcome for outcome in self.outcomes.values() if outcome.number == number]
        if len(found) < len(self._plan.sweep.seeds):
            return
        scores = [_score(outcome) for outcome in found]
        known = [score for score in scores if score is not None]
        self._plan.chooser.record_score(number, sum(known) / len(known) if len(known) == len(scores) else None)


def _score(outcome: TrialOutcome) -> float | None:
    """Return the figure of a trial, negated if greater is better; None if it failed."""
    figure = outcome.figure
    if figure is None or figure.value is None:
        return None
    return -figure.value if figure.greater_is_better else figure.value


_LOSSES = 2
"""Maximum number of worker losses after which a trial is resumed by another worker."""

_QUIET = ("RAY_AIR_NEW_OUTPUT", "RAY_CHDIR_TO_TRIAL_DIR", "TUNE_PRINT_ALL_TRIAL_ERRORS")
"""Features of Tune to switch off: its tables, its own working folder per trial, its traces."""


def run_trials(
    queue: TrialQueue, address: str, *, cores: int = 1, device: str = "cpu", workers: int | None = None,
    memory: float | None = None,
) -> None:  # fmt: skip
    """Run the trials of a queue.

    Args:
        queue: The trials.
        address: Address of the cluster; see `neurodyn.cluster.Cluster`.
        cores: Cores per trial.
        device: Torch device of trials; each uses a GPU unless it is "cpu".
        workers: Maximum parallel trials; None for as many as the cluster's cores allow.
        memory: Memory limit of a trial [GB].

    Raises:
        InputError: Ray is not installed, no cluster answers, it is too small for a trial, or its head dies.
    """
    ray = require_ray()
    scratch = tempfile.TemporaryDirectory(prefix="neurodyn-tune-", ignore_cleanup_errors=True)
    with connected(address, None if workers is None else workers * cores), _silence(), scratch as folder:
        resources: dict[str, float] = {"CPU": cores}
        if device != "cpu":
            resources["GPU"] = 1
        if memory is not None:
            resources["memory"] = memory * 1e9
        _require_room(ray.cluster_resources(), resources)
        from ray import tune

        options = {
            "num_samples": -1,
            "search_alg": _searcher(tune, queue),
            "max_concurrent_trials": workers,
            "reuse_actors": True,
        }
        run_options = tune.RunConfig(
            name="sweep", storage_path=folder, verbose=0,
            failure_config=tune.FailureConfig(max_failures=_LOSSES),
        )  # fmt: skip
        trainable = tune.with_resources(_trainable(tune, cores, memory), resources)
        tune.Tuner(trainable, tune_config=tune.TuneConfig(**options), run_config=run_options).fit()


def _searcher(tune: Any, queue: TrialQueue) -> Any:
    """Return a Tune searcher that takes trials from the queue and reports their outcomes."""
    from ray.tune.search import Searcher

    class Trials(Searcher):
        def __init__(self) -> None:
            super().__init__()
            self._running: dict[str, SweepTrial] = {}

        def __reduce__(self) -> Any:
            return Searcher, ()  # Tune keeps a copy for restoring, which a sweep does not need

        def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:
            return True

        def suggest(self, trial_id: str) -> Any:
            trial = queue.pop()
            if trial is None:
                return Searcher.FINISHED
            self._running[trial_id] = trial
            return {"trial": trial, "folder": str(queue.folder_of(trial).resolve())}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            trial = self._running.pop(trial_id)
            if error or not result or "outcome" not in result:
                lost = f"its worker was lost {_LOSSES + 1} times, for lack of memory as a rule"
                queue.end(trial, failed(trial, lost))
            else:
                queue.end(trial, from_dict(json.loads(result["outcome"]), TrialOutcome))

        def save(self, checkpoint_path: str) -> None:
            Path(checkpoint_path).touch()  # the state that lasts is in the sweep's folder

        def restore(self, checkpoint_path: str) -> None:
            pass

    return Trials()


def _trainable(tune: Any, cores: int, memory: float | None) -> Any:
    """Return the function that Tune runs in a worker process."""

    class Training(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            limit_process(memory, cores)

        def step(self) -> dict[str, Any]:
            trial: SweepTrial = self.config["trial"]
            try:
                outcome = run_trial(trial, Path(self.config["folder"]))
            except Exception as error:  # the other trials continue
                outcome = failed(trial, f"{type(error).__name__}: {error}")
            return {"outcome": json.dumps(outcome.plain()), "done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.config = new_config
            return True  # the next trial reuses the process, with all imports done

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            pass

        def load_checkpoint(self, checkpoint: Any) -> None:
            pass

    return Training


def _require_room(there: dict[str, float], wanted: dict[str, float]) -> None:
    for name, amount in wanted.items():
        if there.get(name, 0.0) < amount:
            unit, scale = ("GB of memory", 1e9) if name == "memory" else (f"{name}s", 1.0)
            raise InputError(
                f"a trial takes {amount / scale:g} {unit}, and the cluster has {there.get(name, 0.0) / scale:.3g}; "
                "valid: at most that"
            )


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Suppress Tune's tables, hints and logs on the terminal."""
    before = {name: os.environ.get(name) for name in _QUIET}
    os.environ.update(dict.fromkeys(_QUIET, "0"))
    logger = logging.getLogger("ray")
    level = logger.level
    try:
        logger.setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

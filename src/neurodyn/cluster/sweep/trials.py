# SPDX-License-Identifier: Apache-2.0
"""Trials of a sweep: their order, each as a run folder like any other, what came of it, and workers of Ray Tune."""

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
from neurodyn.cluster.sweep.spec import SweepPlan, SweepTrial, Values
from neurodyn.cluster.sweep.trainings import TRAININGS
from neurodyn.cluster.workers import limit_process
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


_LOSSES = 2
"""How often a trial may lose its worker, and is gone on with by another."""

_QUIET = ("RAY_AIR_NEW_OUTPUT", "RAY_CHDIR_TO_TRIAL_DIR", "TUNE_PRINT_ALL_TRIAL_ERRORS")
"""What of Tune is switched off: its tables, its own folder as the place of a trial, its traces."""


def run_trials(
    queue: TrialQueue, address: str, *, cores: int = 1, device: str = "cpu", workers: int | None = None,
    memory: float | None = None,
) -> None:  # fmt: skip
    """Run the trials of a queue.

    Args:
        queue: The trials.
        address: Address of the cluster; see `neurodyn.cluster.Cluster`.
        cores: Cores of a trial.
        device: Torch device of trials; each takes a GPU where it is not "cpu".
        workers: Most trials at once; None for as many as the cluster has cores for.
        memory: Most memory of a trial [GB].

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
    """Return what Tune asks for trials, and tells what came of them."""
    from ray.tune.search import Searcher

    class Trials(Searcher):
        def __init__(self) -> None:
            super().__init__()
            self._running: dict[str, SweepTrial] = {}

        def __reduce__(self) -> Any:
            return Searcher, ()  # Tune keeps a copy that it could restore, which a sweep does not need

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
            Path(checkpoint_path).touch()  # what lasts is in the folder of the sweep

        def restore(self, checkpoint_path: str) -> None:
            pass

    return Trials()


def _trainable(tune: Any, cores: int, memory: float | None) -> Any:
    """Return what Tune runs in the process of a worker."""

    class Training(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            limit_process(memory, cores)

        def step(self) -> dict[str, Any]:
            trial: SweepTrial = self.config["trial"]
            try:
                outcome = run_trial(trial, Path(self.config["folder"]))
            except Exception as error:  # the other trials go on
                outcome = failed(trial, f"{type(error).__name__}: {error}")
            return {"outcome": json.dumps(outcome.plain()), "done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.config = new_config
            return True  # the next trial in the same process, which has imported everything

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
    """Keep Tune's own tables, hints and logs from the terminal."""
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

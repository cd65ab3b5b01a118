# SPDX-License-Identifier: Apache-2.0
"""Trials on the workers of a cluster, by Ray Tune: which run at once, and those whose worker was killed once more.

Tune keeps nothing that lasts: trials live in their run folders, from which a sweep is resumed.
"""

import contextlib
import json
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from neurodyn.cluster.connection import connected, require_ray
from neurodyn.cluster.sweep.spec import SweepTrial
from neurodyn.cluster.sweep.trials import TrialOutcome, TrialQueue, failed, run_trial
from neurodyn.cluster.workers import limit_process
from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError

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
    with connected(address, None if workers is None else workers * cores), _silence(), _scratch() as folder:
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
            name="sweep", storage_path=str(folder), verbose=0,
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
            return {"trial": msgspec.to_builtins(vars(trial)), "folder": str(queue.folder_of(trial).resolve())}

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
            trial = SweepTrial(**self.config["trial"])
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


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="neurodyn-tune-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

# SPDX-License-Identifier: Apache-2.0
"""Sweeps: one training with many settings and seeds. Optuna chooses and remembers the settings, Ray runs the trainings.

The file of a sweep names a verb with its arguments, settings for all trainings, and a space of values and ranges.
"""

import copy
import math
import time
from collections import deque
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Literal

import msgspec

from neurodyn.cluster.connection import connect, require_cluster, require_ray
from neurodyn.cluster.trainings import SWEPT_TRAININGS
from neurodyn.cluster.workers import limit_process
from neurodyn.core import artifacts
from neurodyn.core.config import Config, Record, from_dict, read_plain, to_dict
from neurodyn.core.config import plain as as_lists
from neurodyn.core.errors import InputError, unknown
from neurodyn.core.extras import require_extra
from neurodyn.core.locks import exclusive
from neurodyn.core.progress import tell
from neurodyn.core.seeds import require_seed
from neurodyn.evaluate.run_comparison import Figure, flat_settings, mean_of

MOST = 10_000
"""Maximum number of settings in a sweep."""
RESULT, STUDY = "sweep.json", "study.log"

Values = dict[str, Any]
"""Values of one setting of a sweep, by name."""


class Range(Config, frozen=True):
    """A range of numbers.

    Attributes:
        lower: Lower bound.
        upper: Upper bound.
        log: Whether to sample uniformly in the logarithm.
        whole: Whether to use integers only.
    """

    lower: float
    upper: float
    log: bool = False
    whole: bool = False


class Sweep(Config, frozen=True):
    """A sweep, as declared in its file.

    Attributes:
        training: Verb of the training, the file's key for its arguments.
        arguments: Arguments of the training.
        space: Settings or arguments to vary: a list of values, or a `Range`, by dotted names ("phases.0.rate").
        settings: Settings changed in all trials, by dotted names.
        search: All combinations ("grid"), independent draws ("random"), or draws near earlier good ones ("optuna").
        samples: Number of settings to try; None for a grid.
        seeds: Training seeds of each setting.
        seed: Seed of the search.
        cores: Cores per trial.
    """

    training: str
    arguments: dict[str, Any]
    space: dict[str, list[Any] | Range]
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    search: Literal["grid", "random", "optuna"] = "grid"
    samples: int | None = None
    seeds: tuple[int, ...] = (0,)
    seed: int = 0
    cores: int = 1


class TrialOutcome(Record, frozen=True):
    """Outcome of a trial: one training of a setting with a seed.

    Attributes:
        number: Number of its setting.
        seed: Seed of the training.
        values: Values of the varied settings.
        seconds: Wall time of the trial [s].
        figure: Figure that ranks trials; None if it failed.
        failed: Reason for failure; empty if it did not fail.
    """

    number: int
    seed: int
    values: Values
    seconds: float = 0.0
    figure: Figure | None = None
    failed: str = ""

    @property
    def name(self) -> str:
        """Name of its run folder."""
        return f"{self.number:04d}-seed-{self.seed}"


class Best(Record, frozen=True):
    """The best setting, by its validation figure averaged over seeds, and its best run.

    Attributes:
        run: Run folder.
        values: Values of the varied settings.
        mean: Mean of the figure over the seeds.
        half: Half width of its 95 % interval; None for one seed.
    """

    run: str
    values: Values
    mean: float
    half: float | None


class SweepResult(Record, frozen=True):
    """Result of a sweep.

    Attributes:
        training: Verb.
        figure: Name of the figure that ranks trials.
        best: The best setting.
        trials: Outcome of each trial, by its run folder.
    """

    training: str
    figure: str
    best: Best
    trials: dict[str, TrialOutcome]


def sweep(
    spec: str | Path,
    out: str | Path,
    *,
    cluster: str = "local",
    workers: int | None = None,
    memory: float | None = None,
    resume: bool = False,
) -> SweepResult:
    """Train with many settings and seeds, and name the best.

    Every trial is a run folder (OUT/trials/NUMBER-seed-SEED) like those of its verb. The whole file is validated before
    any training.

    Args:
        spec: File of the sweep; see `Sweep`.
        out: Folder of the sweep: trials, sweep.json, and Optuna's study.log.
        cluster: "local" to start Ray on this machine, "auto" for the cluster it belongs to, or HOST:PORT.
        workers: Maximum parallel trials; None for as many as the cores allow.
        memory: Memory limit of a trial [GB].
        resume: Resume a killed sweep: finished settings are kept, others continue.

    Raises:
        InputError: The file has an unknown key or an invalid setting, the folder holds a sweep, the cluster does not
            answer, or no trial has a usable result.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; valid: at least 1")
    if memory is not None and not memory > 0:
        raise InputError(f"worker_memory is {memory:g}; valid: above 0 [GB]")
    asked, folder = read_sweep(Path(spec)), Path(out)
    points = known_points(asked, str(spec))
    require_cluster(cluster)
    with exclusive(folder):
        study = _study(asked, folder, points, resume)
        total = asked.samples or len(points)
        left = total - sum(trial.state.name == "COMPLETE" for trial in _last_trials(study).values())
        if left:
            with connect(cluster, None if workers is None else workers * asked.cores):
                _train(asked, study, folder, left, total, workers=workers, memory=memory)
        result = _result(asked, folder, study)
        artifacts.write_json(folder / RESULT, result.plain())
    return result


def read_sweep(path: Path) -> Sweep:
    """Read the file of a sweep, or raise an InputError if it is missing or malformed, or has an unknown key."""
    plain = read_plain(path)
    verbs = [name for name in SWEPT_TRAININGS if isinstance(plain, dict) and name in plain]
    if len(verbs) != 1:
        given = " and ".join(verbs) or "no training"
        raise InputError(
            f"{path}: has {given}; valid: one of {', '.join(SWEPT_TRAININGS)}, with its arguments, and space"
        )
    arguments = from_dict(plain.pop(verbs[0]), SWEPT_TRAININGS[verbs[0]].arguments(), f"{path}: {verbs[0]}")
    given = {name: value for name, value in to_dict(arguments).items() if value is not None}
    return from_dict({"space": {}, **plain, "training": verbs[0], "arguments": _absolute(given)}, Sweep, str(path))


def _absolute(value: Any) -> Any:
    """Return arguments with absolute paths: workers need not run in this folder."""
    if isinstance(value, dict):
        return {name: _absolute(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_absolute(one) for one in value]
    if isinstance(value, str) and value and (Path(value).is_file() or ("/" in value and Path(value).exists())):
        return str(Path(value).resolve())
    return value


def trial_settings(asked: Sweep, seed: int, values: Values, where: str = "sweep") -> tuple[Any, Config]:
    """Return the arguments and the settings of a trial, or raise an InputError if they are unknown or out of range."""
    training = SWEPT_TRAININGS[asked.training]
    own = {name: value for name, value in values.items() if name in training.names}
    where = f"{where}: with {', '.join(f'{name} {value}' for name, value in values.items())}"
    given = from_dict({**asked.arguments, **_absolute(own)}, training.arguments(), where)
    try:
        base = training.plan(training.request_of(given))
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    plain = as_lists(to_dict(base))
    for name, value in {**asked.settings, **{n: v for n, v in values.items() if n not in own}}.items():
        *path, last = name.split(".")
        place: Any = plain
        try:
            for step in path:
                place = place[int(step) if isinstance(place, list) else step]
            place[int(last) if isinstance(place, list) else last] = copy.deepcopy(value)
        except (LookupError, TypeError, ValueError):
            raise InputError(f"{where}: {unknown('setting', name, flat_settings(plain))}") from None
        other = {"steps": "minutes", "minutes": "steps"}.get(name)  # one budget replaces the other, as with --steps
        if other is not None and plain.get(other) is not None and value is not None:
            plain[other] = None
    return given, from_dict({**plain, "seed": seed}, type(base), where)


def _distributions(asked: Sweep, where: str) -> dict[str, Any]:
    """Return Optuna's distribution of each entry of the space; that of a list is over its indices."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    distributions: dict[str, Any] = {}
    for name, entry in asked.space.items():
        try:
            if not isinstance(entry, Range):
                distributions[name] = CategoricalDistribution(range(len(entry)))
            elif entry.whole:
                distributions[name] = IntDistribution(int(entry.lower), int(entry.upper), log=entry.log)
            else:
                distributions[name] = FloatDistribution(entry.lower, entry.upper, log=entry.log)
        except (ValueError, OverflowError) as error:
            raise InputError(f"{where}: space: {name}: {error}") from None
    return distributions


def _values(asked: Sweep, parameters: Mapping[str, Any]) -> Values:
    return {
        name: parameters[name] if isinstance(entry, Range) else entry[parameters[name]]
        for name, entry in asked.space.items()
    }


def known_points(asked: Sweep, where: str) -> list[dict[str, Any]]:
    """Return the settings that are known from the start, as Optuna's parameters; errors: see `sweep`."""
    require_ray()
    require_extra(["optuna"], "a sweep", "cluster")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    if not asked.seeds or len(set(asked.seeds)) < len(asked.seeds) or "seed" in asked.space:
        raise InputError(f"{where}: seeds is {list(asked.seeds)}; valid: different numbers, which are not in space")
    for seed in (*asked.seeds, asked.seed):
        require_seed(seed)
    distributions, grid = _distributions(asked, where), asked.search == "grid"
    ranges = [name for name, entry in asked.space.items() if isinstance(entry, Range)]
    if grid and (ranges or asked.samples is not None):
        raise InputError(f"{where}: search grid takes lists of values, and no {[*ranges, 'samples'][0]}; valid: random")
    lists = {name: range(len(entry)) for name, entry in asked.space.items() if not isinstance(entry, Range)}
    count = math.prod(map(len, lists.values())) if grid else asked.samples or 0
    if not (1 <= count <= MOST and asked.space and asked.cores > 0):
        raise InputError(f"{where}: has {count:,} settings in {len(asked.space)} dimensions; valid: 1 to {MOST:,} by "
                         "lists in space, or by samples, each on at least one of the cores")  # fmt: skip
    points: list[dict[str, Any]] = []
    if grid:
        points = [dict(zip(lists, row, strict=True)) for row in product(*lists.values())]
    elif asked.search == "random":
        drawn = optuna.create_study(sampler=optuna.samplers.RandomSampler(asked.seed % 2**32))
        points = [drawn.ask(distributions).params for _ in range(count)]
    first = {name: 0 if name in lists else distributions[name].low for name in asked.space}
    each = [{**first, name: k} for name in lists for k in lists[name]]
    ends = [{**first, name: getattr(distributions[name], end)} for name in ranges for end in ("low", "high")]
    for parameters in points or [*each, *ends]:
        trial_settings(asked, asked.seeds[0], _values(asked, parameters), where)
    return points


def _study(asked: Sweep, folder: Path, points: list[dict[str, Any]], resume: bool) -> Any:
    """Open Optuna's study, with all that is known or was interrupted in its queue; errors: see `sweep`."""
    import optuna
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    if (folder / STUDY).exists() and not resume:
        raise InputError(f"{folder}: already holds a sweep; add --resume to continue it, or give another --out")
    if not (folder / STUDY).exists() and folder.exists() and any(one.name != ".lock" for one in folder.iterdir()):
        raise InputError(f"{folder}: holds other files; give a new folder for the sweep")
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(JournalFileBackend(str(folder / STUDY))), study_name="sweep",
        direction="maximize" if SWEPT_TRAININGS[asked.training].greater_is_better else "minimize",
        load_if_exists=True,
    )  # fmt: skip
    # A sampler begins with the same draws again, so a resumed one has another seed.
    study.sampler = optuna.samplers.TPESampler(seed=(asked.seed + len(study.trials)) % 2**32)
    declared, before = to_dict(asked), study.user_attrs.get("sweep")
    differing = [name for name in declared if before is not None and as_lists(declared[name]) != before[name]]
    if differing:
        raise InputError(f"{folder}: --resume needs the sweep that was begun, and {', '.join(differing)} differ")
    if before is None:
        study.set_user_attr("sweep", declared)
        for number, point in enumerate(points):
            study.enqueue_trial(point, user_attrs={"setting": number})
    for trial in _last_trials(study).values():
        if trial.state == TrialState.RUNNING:
            study.tell(trial.number, state=TrialState.FAIL)
        if trial.state in (TrialState.RUNNING, TrialState.FAIL):
            study.enqueue_trial(trial.params, user_attrs={"setting": _setting(trial)})
    return study


def _setting(trial: Any) -> int:
    return trial.user_attrs.get("setting", trial.number)


def _last_trials(study: Any) -> dict[int, Any]:
    return {_setting(trial): trial for trial in study.trials}


def _train(
    asked: Sweep, study: Any, folder: Path, left: int, total: int, *, workers: int | None, memory: float | None
) -> None:
    """Train the settings that are left on the connected cluster; lost workers' trainings are resumed twice."""
    ray = require_ray()
    from optuna.trial import TrialState

    wanted = {"CPU": float(asked.cores), "GPU": float(asked.arguments.get("device", "cpu") != "cpu")}
    if memory is not None:
        wanted["memory"] = memory * 1e9
    there = ray.cluster_resources()
    for name, amount in wanted.items():
        if there.get(name, 0.0) < amount:
            raise InputError(f"a trial takes {amount:g} of {name}, and the cluster has {there.get(name, 0.0):.3g}")
    task: Any = ray.remote(num_cpus=asked.cores, num_gpus=wanted["GPU"], memory=wanted.get("memory"), max_retries=2)(
        run_trial
    )
    slots = workers or max(1, int(there["CPU"] // asked.cores))
    distributions, waiting, running = _distributions(asked, RESULT), deque[tuple[Any, TrialOutcome]](), {}
    count = (total - left) * len(asked.seeds)
    while left or waiting or running:
        while len(running) < slots and (waiting or left):
            if not waiting:
                left -= 1
                trial = study.ask(distributions)
                values = _values(asked, trial.params)
                waiting += [(trial, TrialOutcome(number=_setting(trial), seed=s, values=values)) for s in asked.seeds]
            trial, begun = waiting.popleft()
            run = str((folder / "trials" / begun.name).resolve())
            running[task.remote(asked, begun, run, memory)] = trial, begun
        [done], _ = ray.wait(list(running))
        trial, begun = running.pop(done)
        try:
            outcome = ray.get(done)
        except ray.exceptions.RayError as error:
            why = f"its worker was lost, for lack of memory as a rule ({str(error).strip().splitlines()[-1]})"
            outcome = msgspec.structs.replace(begun, failed=why)
        trial.set_user_attr(outcome.name, outcome.plain())
        outcomes = _outcomes(trial)
        if len(outcomes) == len(asked.seeds):
            mean = mean_of([one.figure for one in outcomes])
            fine = not mean.missing and mean.mean is not None
            study.tell(trial, mean.mean if fine else None, state=TrialState.COMPLETE if fine else TrialState.FAIL)
        count += 1
        value = "failed" if outcome.figure is None else f"{outcome.figure.value:.4g}"
        tell(count / (total * len(asked.seeds)), f"{count} of {total * len(asked.seeds)} trials; the last: {value}")


def run_trial(asked: Sweep, begun: TrialOutcome, run: str, memory: float | None) -> TrialOutcome:
    """Train in a worker process, or resume a killed training, and return its outcome."""
    limit_process(memory, asked.cores)
    training, begin, folder, figure, why = SWEPT_TRAININGS[asked.training], time.perf_counter(), Path(run), None, ""
    try:
        given, settings = trial_settings(asked, begun.seed, begun.values)
        resume = (folder / "config.yaml").exists()
        training.run(training.request_of(given, folder, resume=resume, settings=settings), settings)
        figure = training.figure(given, folder)
        if figure.value is None:
            figure, why = None, f"its {training.what} is not finite"
    except Exception as error:  # the other trials continue
        why = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    return msgspec.structs.replace(begun, seconds=time.perf_counter() - begin, figure=figure, failed=why)


def _outcomes(trial: Any) -> list[TrialOutcome]:
    return [from_dict(one, TrialOutcome) for name, one in trial.user_attrs.items() if name != "setting"]


def _result(asked: Sweep, folder: Path, study: Any) -> SweepResult:
    outcomes = [one for _, trial in sorted(_last_trials(study).items()) for one in _outcomes(trial)]
    if not any(trial.state.name == "COMPLETE" for trial in study.trials):
        raise InputError(f"{folder}: none of {len(outcomes)} trials has a usable result: {outcomes[0].failed}")
    training, ranked = SWEPT_TRAININGS[asked.training], _outcomes(study.best_trial)
    values = {one.name: one.figure.value for one in ranked if one.figure is not None and one.figure.value is not None}
    run = (max if training.greater_is_better else min)(values, key=lambda name: values[name])
    half = mean_of([one.figure for one in ranked]).half
    best = Best(run=str(folder / "trials" / run), values=ranked[0].values, mean=study.best_value, half=half)
    trials = {str(folder / "trials" / one.name): one for one in outcomes}
    return SweepResult(training=asked.training, figure=training.what, best=best, trials=trials)

# SPDX-License-Identifier: Apache-2.0
"""A sweep from its file to its folder: trials, the best of them, and a comparison as a page and JSON."""

from pathlib import Path
from typing import Any

import msgspec

from neurodyn.cluster.connection import require_cluster
from neurodyn.cluster.sweeps.spec import Sweep, SweepPlan, read_sweep
from neurodyn.cluster.sweeps.trials import ProgressCallback, TrialOutcome, TrialQueue, run_trials
from neurodyn.core import artifacts
from neurodyn.core.config import Record, read_config, to_yaml
from neurodyn.core.errors import InputError
from neurodyn.core.locks import exclusive
from neurodyn.core.progress import tell
from neurodyn.evaluate.run_comparison import (
    RunComparison,
    RunFigures,
    UnmeasuredRun,
    compare_figures,
    run_settings,
    size_of,
    training_of,
)
from neurodyn.report.run_comparison import write_comparison

RECORD, RESULT, PAGE = "sweep.yaml", "sweep.json", "comparison.html"


class Best(Record, frozen=True):
    """The best setting, by its validation figure averaged over seeds, and its best run.

    Attributes:
        run: Run folder.
        values: Values of the varied settings.
        mean: Mean of the figure over the seeds.
        half: Half width of its 95 % interval; None for one seed.
    """

    run: str
    values: dict[str, Any]
    mean: float
    half: float | None


class SweepResult(Record, frozen=True):
    """Result of a sweep.

    Attributes:
        training: Verb.
        figure: Name of the figure that ranks trials.
        best: The best setting.
        trials: Outcome of each trial, by its run folder.
        comparison: Comparison of the runs, seeds of a setting grouped.
    """

    training: str
    figure: str
    best: Best
    trials: dict[str, TrialOutcome]
    comparison: RunComparison


def sweep(
    spec: str | Path,
    out: str | Path,
    *,
    cluster: str = "local",
    workers: int | None = None,
    memory: float | None = None,
    resume: bool = False,
    told: ProgressCallback | None = None,
) -> SweepResult:
    """Train with many settings and seeds, and compare the results.

    Every trial is a run folder (OUT/trials/NUMBER-seed-SEED) like those of its verb. The whole file is validated before
    any training.

    Args:
        spec: File of the sweep; see `cluster.sweeps.spec.Sweep`.
        out: Folder of the sweep: trials, sweep.yaml, sweep.json, comparison.html.
        cluster: "local" to start Ray on this machine, "auto" for the cluster it belongs to, or HOST:PORT.
        workers: Maximum parallel trials; None for as many as the cores allow.
        memory: Memory limit of a trial [GB].
        resume: Resume a killed sweep: finished trials are kept, others continue.
        told: Called after each trial.

    Raises:
        InputError: The file has an unknown key or an invalid setting, the folder holds a sweep, the cluster does not
            answer, or no trial has a usable result.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; valid: at least 1")
    if memory is not None and not memory > 0:
        raise InputError(f"worker_memory is {memory:g}; valid: above 0 [GB]")
    asked, folder = read_sweep(Path(spec)), Path(out)
    plan = SweepPlan(asked, str(spec))
    with exclusive(folder):
        _begin(asked, folder, cluster, resume)
        queue = TrialQueue(plan, folder, told)
        tell(len(queue.outcomes) / queue.total, f"{len(queue.outcomes)} of {queue.total} trials")
        if len(queue.outcomes) < queue.total:
            run_trials(
                queue, cluster, cores=asked.cores, device=asked.arguments.get("device", "cpu"), workers=workers,
                memory=memory,
            )  # fmt: skip
        result = _result(plan, folder, queue)
        artifacts.write_json(folder / RESULT, result.plain())
        write_comparison(folder / PAGE, result.comparison, title=f"Sweep of {asked.training}")
    return result


def _begin(asked: Sweep, folder: Path, cluster: str, resume: bool) -> None:
    """Write the sweep's declaration, or compare it with an existing one.

    Raises:
        InputError: The folder holds another sweep, or one that is not resumed; or no cluster answers.
    """
    path = folder / RECORD
    if path.exists():
        if not resume:
            raise InputError(f"{folder}: already holds a sweep; add --resume to go on with it, or give another --out")
        before = read_config(path, Sweep)
        differing = [name for name in Sweep.__struct_fields__ if getattr(before, name) != getattr(asked, name)]
        if differing:
            raise InputError(
                f"{path}: --resume needs the sweep that was begun, and {', '.join(differing)} differ; valid: the file "
                "as it was, or another --out"
            )
        return
    if folder.exists() and any(entry.name != ".lock" for entry in folder.iterdir()):
        raise InputError(f"{folder}: holds other files; give a new folder for the sweep")
    require_cluster(cluster)
    artifacts.write_text(path, to_yaml(asked))


def _result(plan: SweepPlan, folder: Path, queue: TrialQueue) -> SweepResult:
    entries, broken = [], []
    for name, outcome in sorted(queue.outcomes.items()):
        if outcome.figure is None:
            broken.append(UnmeasuredRun(run=name, why=outcome.failed))
        else:
            entries.append(_figures(plan, folder / "trials" / name, name, outcome))
    if not entries:
        raise InputError(f"{folder}: none of {queue.total} trials has a usable result: {broken[0].why}")
    comparison = compare_figures(entries, broken)
    group = comparison.families[0].groups[0]
    figure = next(iter(group.figures.values()))
    sign = -1.0 if figure.greater_is_better else 1.0
    known = [(sign * value, run) for value, run in zip(figure.values, group.runs, strict=True) if value is not None]
    run = min(known)[1]
    assert figure.mean is not None
    best = Best(run=str(folder / "trials" / run), values=queue.outcomes[run].values, mean=figure.mean, half=figure.half)
    trials = {str(folder / "trials" / name): outcome for name, outcome in sorted(queue.outcomes.items())}
    return SweepResult(
        training=plan.sweep.training, figure=plan.training.what, best=best, trials=trials, comparison=comparison
    )


def _figures(plan: SweepPlan, run: Path, name: str, outcome: TrialOutcome) -> RunFigures:
    """Return the figures that a trial is compared by."""
    settings, seed = run_settings(run)
    cost, series, verdict = training_of(run)
    cost = msgspec.structs.replace(cost, parameters=outcome.weights)
    model = run / "model"
    cost = msgspec.structs.replace(cost, bytes=float(size_of(model))) if model.is_dir() else cost
    figure = outcome.figure
    assert figure is not None
    return RunFigures(
        run=name, of=f"Validation: {plan.training.what}", kind=plan.sweep.training,
        figures={plan.training.what.partition(",")[0]: figure},
        series={} if series is None else {"Held-out score by training time": series},
        settings={**settings, **{key: value for key, value in outcome.values.items() if key not in settings}},
        seed=seed, cost=cost, verdict=str(verdict),
    )  # fmt: skip

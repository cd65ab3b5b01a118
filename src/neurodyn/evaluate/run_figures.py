# SPDX-License-Identifier: Apache-2.0
"""Figures that runs are compared by: evaluation, training cost, and settings."""

from collections.abc import Callable, Iterator, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

import msgspec

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.core.progress import tell
from neurodyn.core.provenance import __version__, file_checksum, files_checksum
from neurodyn.core.verdict import as_verdict, combine_verdicts
from neurodyn.dynamics.measures import BASELINES, PERSISTENCE
from neurodyn.evaluate.metrics import METRICS, shown_metrics
from neurodyn.evaluate.records import (
    About,
    Evaluation,
    ForecastEvaluation,
    Logged,
    LogMark,
    RolloutComparison,
    Simulated,
    Tossed,
)
from neurodyn.evaluate.run import evaluate, training_log
from neurodyn.evaluate.run_comparison import (
    Figure,
    FigureSeries,
    RunComparison,
    RunFigures,
    comparison_of,
    read_or_measure,
    run_settings,
    size_of,
    training_of,
)

Say = Callable[[str], None]


def print_line(text: str) -> None:
    """Report a line of progress."""
    tell(0.0, text)


def compare_runs(runs: Sequence[str | Path], *, say: Say = print_line, **asked: Any) -> RunComparison:
    """Evaluate models in the same way and compare them.

    Args:
        runs: Run directories, or "pretrained:NAME".
        say: Called with a line of progress for each run.
        asked: Arguments of `evaluate.evaluate`: `horizon`, `rollouts`, `seed`, `data`, `split`, `ground`.

    Returns:
        Families of comparable runs; runs that cannot be evaluated are listed with the reason.

    Raises:
        InputError: A run is named twice, there are none, or none can be evaluated.
    """
    return comparison_of(runs, lambda run: model_figures(run, say=say, **asked))


def model_figures(run: str | Path, *, say: Say = print_line, **asked: Any) -> RunFigures:
    """Evaluate the model of a run, or read a stored evaluation with the same arguments.

    Arguments and errors: see `compare_runs`.
    """
    folder = artifacts.resolve_run(run)
    log = _log_of(run, asked.get("data"))
    question = {
        **{name: value for name, value in asked.items() if value is not None}, "version": __version__,
        "model": files_checksum(folder, "model/*", "config.yaml", "metrics.jsonl"),
        "data": file_checksum(log) if log is not None else None,
    }  # fmt: skip

    def measure() -> RunFigures:
        say(f"measuring {run}")
        return figures_of(str(run), evaluate(run, **asked))

    return read_or_measure(
        folder, question, measure, writable=not str(run).startswith(artifacts.PRETRAINED), name=str(run)
    )


def figures_of(run: str, result: Evaluation) -> RunFigures:
    """Return a run's figures from an `evaluate` result."""
    folder, about = artifacts.resolve_run(run), result.about
    settings, seed = run_settings(folder)
    rows = list(_rows(result))
    cost, series, trained = training_of(folder)
    score = {"Held-out score by training time": series} if series is not None else {}
    verdict = result.verdict if isinstance(result.verdict, str) else "ok"
    return RunFigures(
        run=run, of=_of(result), kind=_kind(about),
        figures={title: figure for title, figure, _ in rows}, baselines=_baselines(rows),
        series={**_series(result), **score},
        settings=settings, seed=seed,
        cost=msgspec.structs.replace(cost, parameters=about.parameters, bytes=size_of(folder / "model")),
        verdict=str(combine_verdicts([as_verdict(verdict), trained])),
    )  # fmt: skip


def _kind(about: About) -> str:
    """Return kind and network, once if they are equal, and the caveat."""
    kind = " ".join(dict.fromkeys([about.kind, about.network or about.kind]))
    return f"{kind} ({about.caveat})" if about.caveat else kind


def _log_of(run: str | Path, data: str | None) -> Path | None:
    """Return the log that an evaluation reads, if known without loading the model."""
    if data is not None:
        return Path(data) if Path(data).is_file() else None
    try:
        path = Path(training_log(run))
    except (InputError, msgspec.MsgspecError):
        return None
    return path if path.is_file() else None


def _of(result: Evaluation) -> str:
    """Return a description of the evaluation; starts along logs depend on the model's history and are omitted."""
    about = result.about
    frames = f"{about.horizon:,} frames of {1e3 * about.dt:.4g} ms"
    if isinstance(result, Simulated):
        ground = f", ground {result.ground}" if result.ground else ""
        return (
            f"{about.robot} beside its simulator{ground}: {about.rollouts:,} roll-outs of {frames}, seed {about.seed}"
        )
    data = result.data if isinstance(result.data, str) else "its log"
    digest = file_checksum(Path(data)).removeprefix("sha256:")[:8] if Path(data).is_file() else ""
    log = f"{Path(data).name} ({digest})" if digest else data
    return f"{about.robot} beside {log}: {result.split} episodes, {frames}"


def _parts(result: Simulated | Tossed) -> list[tuple[str, RolloutComparison]]:
    """Return the compared roll-outs of an evaluation, each with a suffix for its titles."""
    if isinstance(result, Tossed):
        return [("", result.comparison), (", first states", result.releases.comparison)]
    if result.driven is None:
        return [("", result.comparison)]
    passive = ", held" if result.hold is not None else ", passive"
    return [(passive, result.comparison), (", driven", result.driven.comparison)]


Row = tuple[str, Figure, dict[str, float | None]]
"""Title, the model's figure, and the errors of the baselines by name."""


@singledispatch
def _rows(result: Simulated | Tossed) -> Iterator[Row]:
    for words, comparison in _parts(result):
        tables = {BASELINES[name].title: table for name, table in comparison.baselines.items()}
        for name, metric in shown_metrics(comparison.summary).items():
            others = {label: table[max(table, key=int)].means[name] for label, table in tables.items()}
            yield metric.title + words, Figure(value=comparison.summary.means[name], unit=metric.unit), others
    if isinstance(result, Simulated):
        yield "Frames per CPU-s", Figure(value=result.env_steps_per_cpu_second, greater_is_better=True), {}


@_rows.register
def _(result: Logged) -> Iterator[Row]:
    def rows(words: str, mark: LogMark, what: str) -> Iterator[Row]:
        titles = [BASELINES[key].title for key in mark.baselines]
        for label, unit, (model, *baselines) in mark.means(what, result.q_units):
            title = f"{words}, {mark.seconds:.3g} s{label}"
            yield title, Figure(value=model, unit=unit), dict(zip(titles, baselines, strict=True))

    marks = list(result.at_horizon["all"].marks.values())
    for mark in reversed(marks):
        yield from rows("Position", mark, "q")
    yield from rows("Velocity", marks[-1], "qd")


@_rows.register
def _(result: ForecastEvaluation) -> Iterator[Row]:
    for mark in reversed(result.at_horizon.values()):
        mine, still = (mark.by_model[name].scaled for name in ("model", PERSISTENCE))
        yield f"Error [std], {mark.seconds:.3g} s", Figure(value=mine), {BASELINES[PERSISTENCE].title: still}


def _baselines(rows: Sequence[Row]) -> dict[str, dict[str, Figure]]:
    """Return the errors of the baselines, under the titles of the model's figures."""
    baselines: dict[str, dict[str, Figure]] = {}
    for title, figure, others in rows:
        for name, value in others.items():
            baselines.setdefault(name, {})[title] = Figure(value=value, unit=figure.unit)
    return baselines


@singledispatch
def _series(result: Simulated | Tossed) -> dict[str, FigureSeries]:
    series = {}
    for words, comparison in _parts(result)[: 1 if isinstance(result, Tossed) else None]:
        for name, curve in comparison.curve.by_metric.items():
            metric, x = METRICS[name], [frame * result.about.dt for frame in comparison.curve.frame]
            title = f"{metric.title}{words}: mean error over time"
            series[title] = FigureSeries(x=x, y=list(curve.mean), x_label="time [s]", unit=metric.unit)
    return series


@_series.register
def _(result: Logged) -> dict[str, FigureSeries]:
    series: dict[str, FigureSeries] = {}
    marks = list(result.at_horizon["all"].marks.values())
    for unit in dict.fromkeys(result.q_units):
        y: list[float | None] = [mark.model.means("q", result.q_units)[unit] for mark in marks]
        title = "Position error by horizon" + ("" if len(set(result.q_units)) == 1 else f", in {unit}")
        series[title] = FigureSeries(x=[mark.seconds for mark in marks], y=y, x_label="horizon [s]", unit=unit)
    return series


@_series.register
def _(result: ForecastEvaluation) -> dict[str, FigureSeries]:
    y = result.by_frame["model"]
    x = [(k + 1) * result.about.dt for k in range(len(y))]
    return {"Error by horizon, in standard deviations": FigureSeries(x=x, y=list(y), x_label="horizon [s]")}

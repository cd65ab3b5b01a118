# SPDX-License-Identifier: Apache-2.0
"""Comparison of runs: families of comparable runs, groups that differ only in their seed, and differing settings."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from neurodyn.core import artifacts
from neurodyn.core.config import Record, from_dict, read_plain
from neurodyn.core.errors import InputError, notice
from neurodyn.core.progress import tracked
from neurodyn.core.verdict import Verdict, as_verdict, grade_of, worst_grade
from neurodyn.learn.manifest import MANIFEST
from neurodyn.learn.metrics import read_metrics

LEVEL = 0.95
"""Confidence level of the intervals of means over seeds."""

KEPT = "compared.json"
"""File with a run's stored evaluations, by their arguments; valid while the model is unchanged."""


class Figure(Record, frozen=True):
    """A figure that runs are compared by.

    Attributes:
        value: Value; None if nothing finite was measured.
        unit: Unit; empty if dimensionless.
        greater_is_better: Whether it is a return, not an error.
    """

    value: float | None
    unit: str = ""
    greater_is_better: bool = False


class FigureSeries(Record, frozen=True):
    """A figure as a function of horizon or training time, for plots.

    Attributes:
        x: Abscissae.
        y: Ordinates.
        x_label: Name and unit of the abscissa.
        unit: Unit of the ordinate.
        log: Whether the ordinate is logarithmic.
    """

    x: list[float]
    y: list[float | None]
    x_label: str
    unit: str = ""
    log: bool = True


class Cost(Record, frozen=True):
    """Cost of a training and size of its result; None where not recorded.

    Attributes:
        seconds: Wall time of the training [s].
        cpu_seconds: CPU time of the training [s].
        steps: Optimiser steps, or updates.
        parameters: Number of weights, or of identified parameters.
        bytes: Size of the model's files [bytes].
    """

    seconds: float | None = None
    cpu_seconds: float | None = None
    steps: float | None = None
    parameters: float | None = None
    bytes: float | None = None


class RunFigures(Record, frozen=True):
    """Figures of one run.

    Attributes:
        run: Name of the run, as given by the user.
        of: Description of the evaluation; runs with equal descriptions are comparable.
        kind: Kind of dynamics and network, or algorithm.
        figures: Figures by name; runs are ordered by the first.
        baselines: Figures of the baselines, by baseline.
        series: Figures as functions of horizon or training time, by name.
        settings: Settings (RUN/config.yaml) by dotted names, without the seed.
        seed: Training seed; None if it is not recorded.
        cost: Cost of the training.
        verdict: Whether the run is usable (`core.verdict`).
    """

    run: str
    of: str
    kind: str
    figures: dict[str, Figure]
    baselines: dict[str, dict[str, Figure]] = msgspec.field(default_factory=dict)
    series: dict[str, FigureSeries] = msgspec.field(default_factory=dict)
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    seed: int | None = None
    cost: Cost = msgspec.field(default_factory=Cost)
    verdict: str = "ok"


class Mean(Record, frozen=True):
    """A figure over the runs of a group.

    Attributes:
        mean: Mean; None if a run lacks the figure.
        half: Half width of the confidence interval at `LEVEL`, by Student's t; None for fewer than two runs.
        least: Minimum.
        greatest: Maximum.
        unit: Unit.
        greater_is_better: Whether it is a return, not an error.
        missing: Number of runs without a finite value.
        values: Values by run.
    """

    mean: float | None
    half: float | None
    least: float | None
    greatest: float | None
    unit: str = ""
    greater_is_better: bool = False
    missing: int = 0
    values: list[float | None] = msgspec.field(default_factory=list)


class RunGroup(Record, frozen=True):
    """Runs that differ only in their seed.

    Attributes:
        name: Name in tables.
        kind: Kind of dynamics and network, or algorithm.
        runs: The runs.
        seeds: Their seeds.
        settings: Settings that differ between groups; None if the kind lacks the setting.
        figures: Figures, means over the runs.
        cost: Cost, mean over the runs.
        verdict: The worst verdict, with its reason.
        series: Series of each run, by name.
    """

    name: str
    kind: str
    runs: list[str]
    seeds: list[int | None]
    settings: dict[str, Any]
    figures: dict[str, Mean]
    cost: dict[str, Mean]
    verdict: str
    series: dict[str, list[FigureSeries]]


class Family(Record, frozen=True):
    """Comparable runs, the best group first.

    Attributes:
        of: Description of the evaluation.
        groups: Groups of runs.
        baselines: Figures of the baselines, by baseline.
        common: Settings that all runs share.
    """

    of: str
    groups: list[RunGroup]
    baselines: dict[str, dict[str, Figure]]
    common: dict[str, Any]


class UnmeasuredRun(Record, frozen=True):
    """A run that could not be evaluated, and why."""

    run: str
    why: str


class RunComparison(Record, frozen=True):
    """Comparison of runs.

    Attributes:
        families: Comparable runs, by family.
        broken: Runs that could not be evaluated.
    """

    families: list[Family]
    broken: list[UnmeasuredRun] = msgspec.field(default_factory=list)


def comparison_of(runs: Sequence[str | Path], measure: Callable[[str], RunFigures]) -> RunComparison:
    """Evaluate runs one after another with `measure` and compare them; list those that raise an InputError.

    Raises:
        InputError: A run is named twice, there are none, or none can be evaluated.
    """
    names = [str(run) for run in runs]
    if not names:
        raise InputError("no run is given; valid: at least one run directory, or pretrained:NAME")
    _require_distinct(names)
    entries, broken = [], []
    for name in tracked(names):
        try:
            entries.append(measure(name))
        except InputError as error:
            broken.append(UnmeasuredRun(run=name, why=str(error)))
    if not entries:
        raise InputError(f"none of {len(names)} runs can be compared: {broken[0].why}")
    return compare_figures(entries, broken)


def compare_figures(entries: Sequence[RunFigures], broken: Sequence[UnmeasuredRun] = ()) -> RunComparison:
    """Compare runs.

    Args:
        entries: Figures of each run.
        broken: Runs that could not be evaluated.

    Returns:
        Families in the order of their first runs, each with groups of runs that differ only in their seed, best first.

    Raises:
        InputError: A run is named twice.
    """
    _require_distinct([entry.run for entry in entries])
    families: dict[str, list[RunFigures]] = {}
    for entry in entries:
        families.setdefault(entry.of, []).append(entry)
    return RunComparison(families=[_family(of, some) for of, some in families.items()], broken=list(broken))


def _require_distinct(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name}: is named twice; valid: each run once")


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted names, with indices for lists of tables: "phases.0.rate"."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)) and any(isinstance(entry, Mapping) for entry in value):
            flat |= flat_settings({str(i): entry for i, entry in enumerate(value)}, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = list(value) if isinstance(value, tuple) else value
    return flat


def mean_of(figures: Sequence[Figure | None]) -> Mean:
    """Return the mean of a figure over n runs and its half width t s / sqrt(n), by Student's t."""
    known = [figure for figure in figures if figure is not None]
    values = [figure.value for figure in known if figure.value is not None and math.isfinite(figure.value)]
    unit = next((figure.unit for figure in known), "")
    greater = any(figure.greater_is_better for figure in known)
    missing = len(figures) - len(values)
    least, greatest = min(values, default=None), max(values, default=None)
    mean = math.fsum(values) / len(values) if values and not missing else None
    half = None
    if mean is not None and len(values) > 1:
        from scipy.stats import t

        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
        half = float(t.ppf(0.5 + LEVEL / 2, len(values) - 1)) * deviation / math.sqrt(len(values))
    return Mean(
        mean=mean, half=half, least=least, greatest=greatest, unit=unit, greater_is_better=greater, missing=missing,
        values=[None if figure is None else figure.value for figure in figures],
    )  # fmt: skip


def _family(of: str, entries: list[RunFigures]) -> Family:
    names = dict.fromkeys(name for entry in entries for name in entry.settings)
    varying = [name for name in names if _differs(name, entries)]
    by_key: dict[str, list[RunFigures]] = {}
    for entry in entries:
        by_key.setdefault(_key(entry), []).append(entry)
    groups = [_group(some, varying) for some in by_key.values()]
    first = next(iter(entries[0].figures), None)
    baselines: dict[str, dict[str, Figure]] = {}
    for entry in entries:
        for name, figures in entry.baselines.items():
            baselines.setdefault(name, figures)
    common = {name: value for name, value in entries[0].settings.items() if name not in varying}
    return Family(of=of, groups=sorted(groups, key=lambda group: _rank(group, first)), baselines=baselines,
                  common=common)  # fmt: skip


def _key(entry: RunFigures) -> str:
    return repr((entry.kind, sorted((name, repr(value)) for name, value in entry.settings.items())))


def _differs(name: str, entries: Sequence[RunFigures]) -> bool:
    """Return whether a setting differs between runs, or is missing in some runs of one kind."""
    known = [entry for entry in entries if name in entry.settings]
    if len({repr(entry.settings[name]) for entry in known}) > 1:
        return True
    kinds = {entry.kind for entry in known}
    return any(entry.kind in kinds and name not in entry.settings for entry in entries)


def _group(entries: list[RunFigures], varying: Sequence[str]) -> RunGroup:
    first, others = entries[0], len(entries) - 1
    name = first.run if not others else f"{first.run} and {others} more {'seed' if others == 1 else 'seeds'}"
    costs = [{field: getattr(entry.cost, field) for field in Cost.__struct_fields__} for entry in entries]
    figures = dict.fromkeys(name for entry in entries for name in entry.figures)
    series = dict.fromkeys(name for entry in entries for name in entry.series)
    return RunGroup(
        name=name, kind=first.kind, runs=[entry.run for entry in entries], seeds=[entry.seed for entry in entries],
        settings={key: first.settings.get(key) for key in varying},
        figures={key: mean_of([entry.figures.get(key) for entry in entries]) for key in figures},
        cost={field: mean_of([Figure(value=cost[field]) for cost in costs]) for field in Cost.__struct_fields__},
        verdict=_verdict(entries),
        series={key: [entry.series[key] for entry in entries if key in entry.series] for key in series},
    )  # fmt: skip


def _verdict(entries: Sequence[RunFigures]) -> str:
    """Return the worst verdict; for several runs with the name of the run."""
    grades: list[Any] = [grade_of(entry.verdict) for entry in entries]
    worst = worst_grade(grades)
    entry = entries[grades.index(worst)]
    return entry.verdict if worst == "ok" or len(entries) == 1 else f"{entry.verdict} ({entry.run})"


def _rank(group: RunGroup, first: str | None) -> tuple[bool, float]:
    """Return a sort key: best group first, groups without the figure last."""
    figure = group.figures.get(first or "")
    if figure is None or figure.mean is None:
        return True, 0.0
    return False, -figure.mean if figure.greater_is_better else figure.mean


def read_or_measure(
    folder: Path, question: dict[str, Any], measure: Callable[[], RunFigures], *, writable: bool, name: str
) -> RunFigures:
    """Return the figures of a run stored in its `folder` (file `KEPT`), or measure and store them.

    `question` is everything the result depends on; `name` is the current name of the run.
    """
    path, key = folder / KEPT, json.dumps(question, sort_keys=True, default=str)
    known: dict[str, Any] = {}
    try:
        known = artifacts.read_json(path) if path.is_file() else {}
        if key in known:
            return msgspec.structs.replace(from_dict(known[key], RunFigures, str(path)), run=name)
    except (InputError, TypeError) as error:
        notice(f"{path}: is measured again ({error})")
        known = {}
    figures = measure()
    if writable:
        artifacts.write_checksummed(path, {**known, key: figures.plain()})
    return figures


def run_settings(folder: Path) -> tuple[dict[str, Any], int | None]:
    """Return the settings of a run or policy by dotted names, and its seed.

    Data and base runs are identified by their content.
    """
    path = folder / "config.yaml"
    if not path.is_file():
        return {}, None
    plain = read_plain(path)
    plain = dict(plain) if isinstance(plain, dict) else {}
    plain.pop("versions", None)
    sums = _checksums(folder)
    for name in ("data", "base", "starts", "dynamics"):
        if plain.get(name):
            plain[name] = _with_checksums(plain[name], sums)
    settings = plain.pop("settings", {})
    seed = settings.pop("seed", None) if isinstance(settings, dict) else None
    made = {name: value for name, value in plain.items() if value not in (None, "")}
    return flat_settings({**made, **(settings if isinstance(settings, dict) else {})}), seed


def training_of(folder: Path) -> tuple[Cost, FigureSeries | None, Verdict]:
    """Return a training's cost, its held-out score over time, and whether it finished."""
    lines = read_metrics(folder)
    timed = [line for line in lines if line.get("seconds") is not None]
    scored = [line for line in timed if line.get("rollout_score") is not None]
    series = None
    if len(scored) > 1:
        x, y = [line["seconds"] for line in scored], [line["rollout_score"] for line in scored]
        series = FigureSeries(x=x, y=y, x_label="training time [s]")
    last = timed[-1] if timed else {}
    seconds, cpu = last.get("seconds"), last.get("cpu_seconds")
    identified = folder / "identification.json"
    if identified.is_file():  # takes longer than the training of its networks
        seconds, cpu = artifacts.read_json(identified).get("seconds"), None
    trained = as_verdict(next((line["verdict"] for line in reversed(lines) if "verdict" in line), "ok"))
    if timed and not identified.is_file() and not any(line.get("finished") for line in lines):
        trained = Verdict("warning", "the training was interrupted", "continue it with --resume")
    return Cost(seconds=seconds, cpu_seconds=cpu, steps=last.get("step")), series, trained


def size_of(folder: Path) -> int:
    """Return the size of all files in a folder [bytes]."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that a training read, by name, from its manifest."""
    path = folder / MANIFEST
    plain = artifacts.read_json(path) if path.is_file() else {}
    return {**plain.get("files", {}), **plain.get("models", {})}


def _with_checksums(value: Any, sums: dict[str, str]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_with_checksums(entry, sums) for entry in value]
    digest = sums.get(str(value), "").removeprefix("sha256:")[:8]
    return f"{Path(str(value)).name} ({digest})" if digest else str(value)

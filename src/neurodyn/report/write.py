# SPDX-License-Identifier: Apache-2.0
"""RUN/report.html: a self-contained page on a model, its evaluation and training, with commands to repeat both."""

import contextlib
import shlex
from functools import singledispatch
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from neurodyn.core.artifacts import write_text
from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.core.provenance import __version__
from neurodyn.dynamics.artifact import ROBOT
from neurodyn.evaluate.records import Evaluation, ForecastEvaluation, Logged, Simulated, Tossed
from neurodyn.learn.neural.settings import Settings, load_settings
from neurodyn.report import accuracy, forecast, log
from neurodyn.report import recording_files as samples
from neurodyn.report.gather import ReportMaterial, gather
from neurodyn.report.numbers import member_parts, network_name, tossed_parts
from neurodyn.report.overview import overview_parts_of_page
from neurodyn.report.page import grid, render_page, section
from neurodyn.report.plots import PlotCurve, Span, curve_style, plot

_STANDARD_WORLDS = 512
_FEW_STARTS = 10_000


def training(material: ReportMaterial) -> str:
    """Return the section with training curves; empty if no roll-outs were measured during training."""
    lines = [line for line in material.metrics if "seconds" in line]
    score = [line.get("rollout_score") for line in lines]
    measured = [line for line in lines if line.get("rollout_score") is not None]
    if len(lines) < 2 or not measured:
        return ""
    spans = _phases(material, lines)
    caption = "Held-out roll-out error, in units of each coordinate's standard deviation over the data"
    plots = [_figure("training-score", lines, [(None, score)], "", spans, caption)]
    plots += _coordinates(material, lines, spans)
    loss = [line.get("loss") for line in lines]
    note = "; its scale differs from phase to phase" if len(spans) > 1 else ""
    negative = any(value is not None and value <= 0 for value in loss)
    plots.append(_figure("training-loss", lines, [(None, loss)], "", spans, f"Training loss{note}", log=not negative))
    at = min(measured, key=lambda line: (1.0 - line.get("finite_fraction", 1.0), line["rollout_score"]))
    lead = (
        f"A {network_name(material.result.about.network)}, measured {len(measured)} times on held-out episodes. The "
        f"best, after {at['seconds']:.0f} s ({at['step']:,} steps), is the model that is kept."
    )
    return section("Training", grid(plots), lead=lead)


def _coordinates(material: ReportMaterial, lines: list[dict[str, Any]], spans: list[Span]) -> list[str]:
    """Return one plot per unit, with coordinates by name."""
    robot = material.robot
    units = dict(zip(robot.spec.q_names, robot.spec.q_units, strict=True)) if robot else {}
    names = list(next((line["rollout_q"] for line in lines if line.get("rollout_q")), {}))
    plots = []
    for unit in dict.fromkeys(units.get(name, "") for name in names):
        ours = [name for name in names if units.get(name, "") == unit]
        single = len(ours) == 1
        values = [(None if single else n, [line.get("rollout_q", {}).get(n) for line in lines]) for n in ours]
        caption = f"Held-out roll-out error of {ours[0] if single else 'the positions'}, mean absolute"
        plots.append(_figure(f"training-{unit or 'none'}", lines, values, unit, spans, caption))
    return plots


def _figure(
    name: str,
    lines: list[dict[str, Any]],
    values: list[tuple[str | None, list[Any]]],
    unit: str,
    spans: list[Span],
    caption: str,
    *,
    log: bool = True,
) -> str:
    seconds = [line["seconds"] for line in lines]
    curves = [PlotCurve(label, seconds, y, *curve_style(i), 1.3) for i, (label, y) in enumerate(values)]
    return plot(name, curves, x_label="training time [s]", unit=unit, log=log, spans=spans, caption=caption)


def _phases(material: ReportMaterial, lines: list[dict[str, Any]]) -> list[Span]:
    phases = material.config.settings.get("phases", []) if material.config else []
    spans: list[Span] = []
    for number in sorted({line["phase"] for line in lines if "phase" in line}):
        times = [line["seconds"] for line in lines if line.get("phase") == number]
        forecast = phases[number].get("forecast") if number < len(phases) else None
        label = f"phase {number + 1}"
        if forecast is not None:
            label = f"{forecast}-frame roll-outs" if forecast else "single frames"
        spans.append(Span(spans[-1].end if spans else 0.0, max(times), label))
    return spans


def _generate(material: ReportMaterial) -> list[str]:
    header, config = material.header, material.config
    if header is None or config is None:
        return []
    listed = ", ".join(config.files)
    if header.source != "teacher":
        return [f"# {listed} was made from logs with `neurodyn import`; see the recordings above"]
    sampling = (header.simulator or {}).get("sampling", {})
    if "episodes" not in sampling or len(config.files) > 1:
        return []
    transitions = sampling["episodes"] * sampling["frames"]
    flags = ["--transitions", transitions, "--out", listed, "--seed", header.seed]
    if sampling["worlds"] != _STANDARD_WORLDS:
        flags += ["--worlds", sampling["worlds"]]
    if sampling.get("passive_fraction"):
        flags += ["--passive-fraction", sampling["passive_fraction"]]
    flags += [word for text in sampling.get("randomise", ()) for word in ("--randomise", text)]
    return [_command("generate", _robot(material), *flags)]


def _train(material: ReportMaterial) -> list[str]:
    config, kind = material.config, material.result.about.kind
    if config is None or "phases" not in config.settings:  # not from a training alone
        return []
    verb = ["train", _robot(material)] if config.base is None else ["finetune", config.base]
    shares = ["--shares", *config.shares] if config.shares else []
    flags = ["--data", *config.files, *shares, "--out", material.name]
    return [_command(*verb, *flags, *(["--kind", kind] if config.base is None else []), *_settings_flags(material))]


def _robot(material: ReportMaterial) -> str:
    """Return the robot as named in the commands, or the run's copy if the declaration is missing."""
    recorded = "" if material.config is None else material.config.robot
    carried = material.run / ROBOT
    return f"{material.name}/{ROBOT}" if carried.is_dir() and not Path(recorded).exists() else recorded


def _settings_flags(material: ReportMaterial) -> list[object]:
    """Return the flags for a training's settings, or a settings file if flags cannot express them."""
    settings, robot = material.config.settings if material.config else {}, material.robot
    budget = ["--minutes", settings["minutes"]] if settings.get("minutes") else ["--steps", settings.get("steps")]
    for size in ("small", "paper") if material.config and not material.config.base else ():
        with contextlib.suppress(InputError):  # settings of another kind of model, or of no such size
            mine = from_dict(settings, Settings)
            preset = robot and load_settings(robot, size, mine.net.kind)
            own = {"minutes": mine.minutes, "steps": mine.steps, "seed": mine.seed}
            if preset and msgspec.structs.replace(preset, **own) == mine:
                named = [] if size == "small" else ["--size", size]
                return [*named, "--net", mine.net.kind, *budget, "--seed", mine.seed]
    return ["--size", "settings.yaml"]


def _evaluate(material: ReportMaterial) -> list[str]:
    result, about = material.result, material.result.about
    flags: list[object] = ["--horizon", about.horizon]
    # --rollouts limits the starts along a log; its default is twice this.
    if isinstance(result, Simulated) or about.rollouts < _FEW_STARTS:
        flags += ["--rollouts", about.rollouts]
    if not isinstance(result, Simulated):
        flags += ["--data", next(iter(material.logs), "DATA"), "--split", result.split]
    else:
        flags += ["--seed", about.seed]
        ground = "all" if result.grounds is not UNSET else result.ground
        if ground is not None and (material.robot is None or ground != material.robot.ground):
            flags += ["--ground", ground]
        if result.stability is not UNSET:
            flags += ["--stability"]
    return [_command("evaluate", material.name, *flags)]


def _remarks(material: ReportMaterial) -> list[str]:
    """Return what the commands do not say."""
    config, remarks = material.config, []
    if config is None:
        return []
    if "phases" in config.settings and "settings.yaml" in _settings_flags(material):
        remarks.append("settings.yaml is the part below `settings:` of the configuration, shifted to the left margin.")
    if config.settings.get("minutes") and material.metrics:
        steps = material.metrics[-1]["step"]
        remarks.append(
            f"With a time budget the number of steps depends on the machine; this one took {steps:,}. With --steps "
            "everything depends on the seed alone, on one version of torch and one kind of processor."
        )
    if not (all(Path(file).is_file() for file in config.files) or material.header):
        remarks.append(f"The training data ({', '.join(config.files)}) have moved; their seed is not shown.")
    return remarks


def _command(*words: object) -> str:
    return " ".join(["neurodyn", *(shlex.quote(_text(word)) for word in words)])


def _text(word: object) -> str:
    return f"{word:g}" if isinstance(word, float) else str(word)


def write_report(
    run: Path, result: Evaluation, *, path: Path | None = None, moving: bool = True, data: str | None = None
) -> Path:
    """Write the report of a model, atomically, and return its path.

    Args:
        run: Run directory.
        result: Result of `evaluate.evaluate`.
        path: File to write; None for `report_path(run)`.
        moving: Whether to render an animation, which takes some seconds.
        data: Log that was passed to the evaluation.
    """
    material = gather(Path(run), result, moving=moving, data=data)
    path = report_path(Path(run)) if path is None else path
    write_text(path, render_report(material))
    return path


def report_path(run: Path, flags: tuple[str, ...] = ()) -> Path:
    """Return the path of a report: RUN/report.html, or RUN/report-FLAGS.html with flags such as "horizon-50".

    Only an evaluation with all defaults writes report.html (evaluation.html in a run with an identification, which owns
    report.html), so that partial evaluations do not overwrite it.
    """
    stem = "evaluation" if (run / "identification.json").is_file() else "report"
    name = "".join(c if c.isalnum() or c in ".-_" else "-" for c in "-".join([stem, *flags]))
    return run / f"{name}.html"


def render_report(material: ReportMaterial) -> str:
    """Return the report as HTML."""
    about, (template, measured) = material.result.about, _sections(material.result, material)
    return render_page(
        f"{about.robot}: {about.kind} dynamics", "evaluation.html", template=template, version=__version__,
        moving=samples.moving(material), training=training(material), trajectories=samples.trajectories(material),
        commands="\n".join([*_generate(material), *_train(material), *_evaluate(material)]),
        remarks=_remarks(material), **overview_parts_of_page(material), **measured,
    )  # fmt: skip


@singledispatch
def _sections(result: Simulated, material: ReportMaterial) -> tuple[str, dict[str, Any]]:
    return "simulated.html", accuracy.simulated_parts_of_page(result)


@_sections.register
def _(result: Tossed, material: ReportMaterial) -> tuple[str, dict[str, Any]]:
    parts, dt = tossed_parts(result), result.about.dt
    return "tossed.html", {
        "stride": "each one" if result.stride == 1 else f"one in {result.stride}",
        "errors": [*accuracy.by_horizon(parts, dt), *log.beside_others(result)],
        "over_time": accuracy.over_time(parts, dt),
        "conditions": accuracy.by_condition(result.conditions, dt),
        "calibration": [*accuracy.member_tables(member_parts(result)), *accuracy.refusal_tables(result.refusals)],
        "notes": log.recordings(result.notes),
    }


@_sections.register
def _(result: Logged, material: ReportMaterial) -> tuple[str, dict[str, Any]]:
    return "logged.html", {**log.logged_parts_of_page(result), "whole_runs": log.whole_runs(material.whole)}


@_sections.register
def _(result: ForecastEvaluation, material: ReportMaterial) -> tuple[str, dict[str, Any]]:
    return "forecast.html", {**forecast.forecast_parts_of_page(result), "bands": material.bands}

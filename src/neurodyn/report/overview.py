# SPDX-License-Identifier: Apache-2.0
"""Top of a report: the model, headline figures, and how it was made."""

from functools import singledispatch
from typing import Any

from msgspec import UNSET

from neurodyn.core.glossary import explain
from neurodyn.dynamics.measures import BASELINES
from neurodyn.evaluate.metrics import shown_metrics
from neurodyn.evaluate.records import Evaluation, ForecastEvaluation, LogEvaluation, Logged, Simulated, Tossed
from neurodyn.report import accuracy, forecast, log
from neurodyn.report.gather import ReportMaterial
from neurodyn.report.numbers import (
    capital,
    count,
    digits,
    network_name,
    quantity,
    relative_size,
    share,
    simulated_parts,
    span,
    times,
)
from neurodyn.report.page import Table, verdict_box

_MOST_LIMITS = 4
_OTHER = {
    log.DECLARED_SIMULATOR: "the declared simulator (the robot's file)",
    **{one.title: one.title.lower() for one in BASELINES.values()},
}
"""What errors are called within a sentence, by the heads of their columns."""


def overview_parts_of_page(material: ReportMaterial) -> dict[str, Any]:
    """Return the values of `templates/evaluation.html` on the model and its evaluation."""
    result, robot = material.result, material.robot
    beside = "its analytic simulator" if isinstance(result, Simulated) else "recorded trajectories"
    return {
        "material": material,
        "about": result.about,
        "title": f"{result.about.robot}: {result.about.kind} dynamics beside {beside}",
        "described": [] if robot is None or not robot.description else [f"{robot.description}."],
        "caveat": explain(result.about.caveat or ""),
        "verdict": "" if result.verdict is UNSET else verdict_box(result.verdict, result.findings or ()),
        "sentences": evaluation_sentences(result),
        "facts": _facts(material),
    }


def evaluation_sentences(result: Evaluation) -> list[str]:
    """Return how far the model is off, beside the better baseline, and up to which horizon it is of use."""
    said = [f"{capital(what)}: {value} ({remark})." for value, what, remark in _headline(result)]
    if isinstance(result, Simulated):
        said += [f"{text}." for text in accuracy.horizon_sentences(result)]
    if isinstance(result, (Logged, Tossed)):
        said += [_beside(table) for table in log.beside_others(result) if table.rows]
    if _finite(result) < 1:
        said.insert(0, f"Only {share(_finite(result))} of the roll-outs stay finite; the others are left out.")
    return said


def _beside(table: Table) -> str:
    """Return the errors of a model and of others at the last horizon of a table."""
    label, model, *errors, _ = table.rows[-1]
    others = (f"of {_OTHER.get(name, name)} {error}" for name, error in zip(table.head[2:-1], errors, strict=True))
    return f"{label}: mean error {model}, {', '.join(others)}."


def in_a_sentence(result: Evaluation) -> str:
    """Describe in one line what was evaluated, and how."""
    about = result.about
    network = f"{about.network}, {about.parameters:,} weights" if about.network else about.kind
    network += f" ({about.caveat})" if about.caveat else ""
    where = f", ground {result.ground}" if isinstance(result, Simulated) and result.ground else ""
    if isinstance(result, Simulated) and result.hold is not None:
        where += f", held by kp {result.hold[0]:g}, kd {result.hold[1]:g}"
    finite = share(_finite(result))
    return f"{about.robot}: {network}; {_scope(result)}{where}; truth: {_truth(result)}; finite {finite}"


def _facts(material: ReportMaterial) -> list[tuple[str, str]]:
    """Return robot, network, data, seeds, times, versions."""
    result, config = material.result, material.config
    about, last = result.about, material.metrics[-1] if material.metrics else {}
    history = "" if isinstance(result, Simulated) else f"{result.context_frames} frames"
    trained = ""
    if "cpu_seconds" in last:
        trained = f"{last['step']:,} steps, {span(last['seconds'])} ({span(last['cpu_seconds'])} of CPU time)"
    return [
        ("Robot", _robot(material)),
        ("Frame", f"{digits(1e3 * about.dt)} ms ({digits(1 / about.dt)} Hz)"),
        ("Network", f"{network_name(about.network)}, {about.parameters:,} parameters"),
        ("What acts", explain(about.caveat or "")),
        ("Training data", _data(material)),
        ("Trained for", trained),
        ("Training seed", str(config.settings.get("seed", "")) if config else ""),
        ("Fine-tuned from", config.base or "" if config else ""),
        ("Evaluated on", _scope(result)),
        ("History", history),
        ("Truth", _truth(result)),
        ("Ground", (result.ground or "none") if isinstance(result, Simulated) else ""),
        ("Limits of joints", _limits(material)),
        ("Versions", ", ".join(f"{k} {v}" for k, v in config.versions.items()) if config else ""),
    ]


Headline = list[tuple[str, str, str]]
"""Value, what it is, and a remark."""


@singledispatch
def _headline(result: Simulated) -> Headline:
    entries, end = [], str(result.about.horizon)
    seconds = span(result.about.horizon * result.about.dt)
    for number, (words, (_, comparison)) in enumerate(simulated_parts(result).items()):
        metrics = list(shown_metrics(comparison.summary).items())
        for name, metric in metrics if number == 0 else metrics[:1]:
            median = quantity(comparison.summary.median(name), metric.unit)
            remark = f"median {median}; {relative_size(comparison.better(end, name))} than the better baseline"
            what = f"{metric.title}: mean error {words}, over {seconds}"
            entries.append((quantity(comparison.summary.means[name], metric.unit), what, remark))
    ratio = result.env_steps_per_cpu_second / result.simulator_steps_per_cpu_second
    remark = f"{times(ratio)} the simulator's, at {result.worlds} worlds"
    entries.append((f"{result.env_steps_per_cpu_second:,.0f}", "robot frames per CPU-second", remark))
    return entries


@_headline.register
def _(result: Tossed) -> Headline:
    entries, end = [], str(result.about.horizon)
    comparison, released = result.comparison, result.releases.comparison.summary
    for name, metric in shown_metrics(comparison.summary).items():
        first, better = quantity(released.means[name], metric.unit), relative_size(comparison.better(end, name))
        remark = f"from the first states {first}; {better} than the better baseline"
        what = f"{metric.title}: mean error over {span(result.about.horizon * result.about.dt)}"
        entries.append((quantity(comparison.summary.means[name], metric.unit), what, remark))
    return entries


@_headline.register
def _(result: Logged) -> Headline:
    entries = []
    for entry in result.at_horizon["all"].marks.values():
        for label, unit, (model, *baselines) in entry.means("q", result.q_units):
            remark = f"{relative_size(min(baselines) / max(model, 1e-12))} than the better baseline"
            if not label:
                remark += f"; median {quantity(entry.model.q_percentiles['50'], unit)}"
            entries.append((quantity(model, unit), f"joint error {entry.seconds:.3g} s ahead", remark))
    return entries


@_headline.register
def _(result: ForecastEvaluation) -> Headline:
    return forecast.headline(result)


def _robot(material: ReportMaterial) -> str:
    robot = material.robot
    if robot is None:
        return material.result.about.robot
    driven = ", ".join(robot.actuated) or "none"
    return f"{robot.name}: {count(len(robot.joints), 'joint')}, driven: {driven}"


def _limits(material: ReportMaterial) -> str:
    robot = material.robot
    if robot is None:
        return ""
    named = [
        f"{j.name} {j.lower:g} to {j.upper:g} {unit}"
        for j in robot.joints
        if j.lower is not None
        for unit in j.spec.q_units
    ]
    listed = ", ".join(named[:_MOST_LIMITS]) or "none"
    return f"{listed}, and {len(named) - _MOST_LIMITS} more" if len(named) > _MOST_LIMITS else listed


def _data(material: ReportMaterial) -> str:
    if material.config is None:
        return ""
    source, header = ", ".join(material.config.files), material.header
    if header is None:
        return source
    size = f"{material.transitions:,} transitions" if material.transitions else ""
    seed = "" if header.seed is None else f", seed {header.seed}"
    origin = "simulated" if header.source == "teacher" else "recorded"
    return f"{source}: {size}, {origin}{seed}"


def _finite(result: Evaluation) -> float:
    return result.comparison.finite_fraction if isinstance(result, (Simulated, Tossed)) else result.finite_fraction


def _scope(result: Evaluation) -> str:
    about = result.about
    rollouts = f"{about.rollouts:,} roll-outs of {about.horizon:,} frames ({span(about.horizon * about.dt)})"
    if isinstance(result, LogEvaluation):
        return f"{rollouts} in {count(result.episodes, 'episode')} ({result.split})"
    return f"{rollouts}, seed {about.seed}"


def _truth(result: Evaluation) -> str:
    if isinstance(result, Simulated):
        simulator = result.simulator
        name = "plain MuJoCo" if simulator["solver"] == "mujoco-c" else f"Newton, {simulator['solver']}"
        return f"{name}, {count(simulator['substeps'], 'substep')} a frame"
    return "measured poses and velocities" if isinstance(result, Tossed) else "measured joint positions and velocities"

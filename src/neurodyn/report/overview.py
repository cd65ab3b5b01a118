# SPDX-License-Identifier: Apache-2.0
"""The top of a report: what the model is, its headline figures, and the facts about how it was made."""

from html import escape
from typing import Any

from neurodyn.report import tosses
from neurodyn.report.gather import Material
from neurodyn.report.numbers import digits, quantity, share, span, times
from neurodyn.report.page import cards, facts, paragraph, section
from neurodyn.report.words import best_baseline, count, kinds_of_error, modes, network_name

_MOST_LIMITS = 4


def header(material: Material) -> str:
    """Return title and summary."""
    robot, report = material.robot, material.report
    beside = "recorded trajectories" if material.of_log else "its analytic simulator"
    lines = [
        "<header>",
        paragraph(f"neurodyn · {material.name}", "eyebrow"),
        f"<h1>{escape(report['robot'])}: {report['kind']} dynamics beside {beside}</h1>",
    ]
    if robot is not None and robot.description:
        lines.append(paragraph(f"{robot.description}."))
    return "\n".join([*lines, "</header>"])


def headline(material: Material) -> str:
    """Return the few figures that matter most."""
    if material.of_tosses:
        return cards(tosses.headline(material.report))
    return cards(_log_cards(material) if material.of_log else _simulator_cards(material.report))


def about(material: Material) -> str:
    """Return the facts: robot, network, data, seeds, times, versions."""
    report, config = material.report, material.config
    net = report["network"] if material.model is None else network_name(material.model.net.kind)
    last = material.metrics[-1] if material.metrics else {}
    settings = config.settings if config else None
    entries = [
        ("Robot", _robot(material)),
        ("Frame", f"{digits(1e3 * report['dt'])} ms ({digits(1 / report['dt'])} Hz)"),
        ("Network", f"{net}, {report['parameters']:,} parameters"),
        ("Training data", _data(material)),
        ("Trained for", _trained(last)),
        ("Training seed", str(settings.seed) if settings else ""),
        ("Fine-tuned from", config.base or "" if config else ""),
        ("Evaluated on", _evaluated(report)),
        ("Truth", _truth(report)),
        ("Ground", _ground(report)),
        ("Limits of joints", _limits(material)),
        ("Versions", ", ".join(f"{k} {v}" for k, v in config.versions.items()) if config else ""),
    ]
    remarks = [paragraph(f"Left out: {remark}", "note") for remark in material.remarks]
    return section("What this is", facts(entries), *remarks)


def _simulator_cards(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    entries = []
    seconds = span(report["horizon"] * report["dt"])
    words = [words for _, words in modes(report)]
    for key, unit, name in kinds_of_error(report):
        median = quantity(report[f"{key}_percentiles"]["50"], unit)
        factor = best_baseline(report, str(report["horizon"]), key)
        entries.append(
            (
                quantity(report[key], unit),
                f"{name}: mean error {words[0]}, over {seconds}",
                f"median {median}; {times(factor)} smaller than the better baseline",
            )
        )
    driven = report["driven"]
    for key, unit, name in kinds_of_error(driven)[:1] if driven else ():
        median = quantity(driven[f"{key}_percentiles"]["50"], unit)
        factor = best_baseline(driven, str(report["horizon"]), key)
        remark = f"median {median}; {times(factor)} smaller than the better baseline"
        entries.append((quantity(driven[key], unit), f"{name}: the same {words[1]}", remark))
    ratio = report["env_steps_per_cpu_second"] / report["teacher_env_steps_per_cpu_second"]
    entries.append(
        (
            f"{report['env_steps_per_cpu_second']:,.0f}",
            "robot frames per CPU-second",
            f"{times(ratio)} the simulator's, at {report['worlds']} worlds",
        )
    )
    if report["finite_fraction"] < 1:
        entries.append((share(report["finite_fraction"]), "of roll-outs stay finite", "the others are left out"))
    return entries


def _log_cards(material: Material) -> list[tuple[str, str, str]]:
    report, table = material.report, material.report["at_horizon"]["all"]
    units = _log_units(material)
    entries = []
    for mark, entry in table.items():
        if mark == "starts":
            continue
        better = entry["better_than_baselines"]
        remark = f"{times(better['q_mean'])} smaller than the better baseline; median "
        remark += quantity(entry["model"]["q_percentiles"]["50"], units[0])
        entries.append(
            (quantity(entry["model"]["q_mean"], units[0]), f"joint error {entry['seconds']:.3g} s ahead", remark)
        )
    if report["finite_fraction"] < 1:
        entries.append((share(report["finite_fraction"]), "of roll-outs stay finite", "the others are left out"))
    return entries


def _log_units(material: Material) -> tuple[str, str]:
    from neurodyn.report.words import common_units

    return common_units(material.robot)


def _robot(material: Material) -> str:
    robot = material.robot
    if robot is None:
        return material.report["robot"]
    driven = ", ".join(robot.actuated) or "none"
    return f"{robot.name}: {count(len(robot.joints), 'joint')}, driven: {driven}"


def _limits(material: Material) -> str:
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


def _ground(report: dict[str, Any]) -> str:
    if "ground" not in report:
        return ""
    return report["ground"] or "none"


def _data(material: Material) -> str:
    if material.config is None:
        return ""
    source, header = material.config.data, material.header
    if header is None:
        return source
    size = f"{material.transitions:,} transitions" if material.transitions else ""
    seed = "" if header.seed is None else f", seed {header.seed}"
    origin = "simulated" if header.source == "teacher" else "recorded"
    return f"{source}: {size}, {origin}{seed}"


def _trained(last: dict[str, Any]) -> str:
    if not last:
        return ""
    return f"{last['step']:,} steps, {span(last['seconds'])} ({span(last['cpu_seconds'])} of CPU time)"


def _evaluated(report: dict[str, Any]) -> str:
    length = f"{report['horizon']:,} frames ({span(report['horizon'] * report['dt'])})"
    if "at_horizon" in report or "releases" in report:
        episodes = f"{count(report['episodes'], 'episode')} ({report['split']})"
        return f"{report['rollouts']:,} roll-outs of {length} in {episodes}"
    return f"{report['rollouts']:,} roll-outs of {length}, seed {report['seed']}"


def _truth(report: dict[str, Any]) -> str:
    simulator = report.get("teacher")
    if not simulator:
        return "measured poses and velocities" if "releases" in report else "measured joint positions and velocities"
    return f"Newton, {simulator['solver']}, {count(simulator['substeps'], 'substep')} a frame"

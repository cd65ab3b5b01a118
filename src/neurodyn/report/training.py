# SPDX-License-Identifier: Apache-2.0
"""How the training went: held-out roll-out error and loss over time, phases marked."""

from typing import Any

from neurodyn.learn.neural.settings import Phase
from neurodyn.report.gather import Material
from neurodyn.report.page import figure, grid, section
from neurodyn.report.plots import PREDICTED, SECOND, THIRD, TRUTH, Curve, Span, plot
from neurodyn.report.words import network_name

_COLOURS = (PREDICTED, TRUTH, SECOND, THIRD)
_STYLES = ("-", "--", ":")


def training(material: Material) -> str:
    """Return the training curves."""
    if material.model is None:
        return ""
    name = network_name(material.model.net.kind)
    lines = [line for line in material.metrics if "seconds" in line]
    if len(lines) < 2:
        return ""
    spans = _phases(material, lines)
    score = [line.get("rollout_score") for line in lines]
    measured = [value for value in score if value is not None]
    plots = []
    if measured:
        caption = "Held-out roll-out error, in units of each coordinate's spread over the data"
        plots.append(_figure("training-score", lines, [(None, score)], "", spans, caption))
    plots += _coordinates(material, lines, spans)
    loss = [line.get("loss") for line in lines]
    note = "; its scale differs from phase to phase" if len(spans) > 1 else ""
    plots.append(_figure("training-loss", lines, [(None, loss)], "", spans, f"Training loss{note}"))
    best = min(measured, default=None)
    lead = f"A {name}, measured {len(measured)} times on held-out episodes. "
    if best is not None:
        at = lines[score.index(best)]
        lead += f"The best, after {at['seconds']:.0f} s ({at['step']:,} steps), is the model that is kept."
    return section("Training", grid(plots), lead=lead)


def _coordinates(material: Material, lines: list[dict[str, Any]], spans: list[Span]) -> list[str]:
    """Return one plot for each unit, its coordinates by name."""
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
) -> str:
    seconds = [line["seconds"] for line in lines]
    curves = [
        Curve(label, seconds, y, _COLOURS[i % 4], _STYLES[i // 4 % 3], 1.3) for i, (label, y) in enumerate(values)
    ]
    svg = plot(name, curves, x_label="training time [s]", unit=unit, log=True, spans=spans, description=caption)
    return figure(svg, caption)


def _phases(material: Material, lines: list[dict[str, Any]]) -> list[Span]:
    phases: list[Phase] = list(material.config.settings.phases) if material.config else []
    spans = []
    for number in sorted({line["phase"] for line in lines if "phase" in line}):
        times = [line["seconds"] for line in lines if line.get("phase") == number]
        begin = spans[-1].end if spans else 0.0
        forecast = phases[number].forecast if number < len(phases) else None
        label = f"phase {number + 1}"
        if forecast is not None:
            label = f"{forecast}-frame roll-outs" if forecast else "single frames"
        spans.append(Span(begin, max(times), label))
    return spans

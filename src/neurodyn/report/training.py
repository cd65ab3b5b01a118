# SPDX-License-Identifier: Apache-2.0
"""How the training went: held-out roll-out error and loss over time, phases marked."""

from typing import Any

from neurodyn.report.gather import Material
from neurodyn.report.page import figure, grid, section
from neurodyn.report.plots import Curve, Span, look, plot
from neurodyn.report.words import network_name


def training(material: Material) -> str:
    """Return the training curves; nothing where roll-outs were not measured as it went."""
    lines = [line for line in material.metrics if "seconds" in line]
    score = [line.get("rollout_score") for line in lines]
    measured = [value for value in score if value is not None]
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
    best = min(measured)
    at = lines[score.index(best)]
    lead = (
        f"A {network_name(material.result.about.network)}, measured {len(measured)} times on held-out episodes. The "
        f"best, after {at['seconds']:.0f} s ({at['step']:,} steps), is the model that is kept."
    )
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
    *,
    log: bool = True,
) -> str:
    seconds = [line["seconds"] for line in lines]
    curves = [Curve(label, seconds, y, *look(i), 1.3) for i, (label, y) in enumerate(values)]
    svg = plot(name, curves, x_label="training time [s]", unit=unit, log=log, spans=spans, description=caption)
    return figure(svg, caption)


def _phases(material: Material, lines: list[dict[str, Any]]) -> list[Span]:
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

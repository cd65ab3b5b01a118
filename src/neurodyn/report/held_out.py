# SPDX-License-Identifier: Apache-2.0
"""Parts on held-out motion: the log beside roll-outs, errors over the horizon, and what remains unexplained."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from neurodyn.core.artifacts import write_text
from neurodyn.identify.ladder.forecasts import Forecasts, Row, WindowCurves
from neurodyn.identify.ladder.rungs import DECLARED, IDENTIFIED, NETWORKS
from neurodyn.report.numbers import count, title_of
from neurodyn.report.page import grid, header, heading, page, section
from neurodyn.report.plots import DOTS, INK, PREDICTED, QUIET, SECOND, THIRD, TRUTH, PlotCurve, legend_list, plot

_BEYOND = 1.0
"""How far a forecast may leave the plot of a log, in ranges of the log; beyond it is cut."""


def looks(models: Sequence[str], chosen: str) -> dict[str, tuple[str, str]]:
    """Return colour and line style of each model: the chosen one stands out, baselines recede."""
    fixed = {
        DECLARED: (THIRD, "--"), "nominal": (THIRD, "--"), IDENTIFIED: (SECOND, "-"), NETWORKS: (SECOND, "-."),
        "hybrid": (SECOND, "-."), "hold-last": (QUIET, ":"), "constant-velocity": (QUIET, "-."), "gru": (INK, "--"),
        "world-model": (INK, "-."),
    }  # fmt: skip
    return {name: (PREDICTED, "-") if name == chosen else fixed.get(name, (INK, ":")) for name in models}


def write_forecasts_page(path: Path, title: str, told: str, curves: Forecasts) -> Path:
    """Write a page of forecasts alone: the log beside the models, and errors over the horizon."""
    growth = section("Error over the horizon", growth_plots(curves, {}, ()), lead=growth_lead(curves))
    write_text(path, page(title, [header(title, told, eyebrow="neurodyn demo"), windows_section(curves), growth]))
    return path


def windows_section(curves: Forecasts) -> str:
    """Return the log beside the forecasts of each model, for every coordinate, in a typical and the worst window."""
    shown = _shown_models(curves)
    style = looks(shown, curves.chosen)
    parts: list[str] = [legend_list([("logged", TRUTH, "-"), *((title_of(name), *style[name]) for name in shown)])]
    for window in curves.windows:
        words = {"typical": "A typical window (median error)", "worst": "The worst window (largest error)"}
        plots = [_coordinate(curves, window, row, style) for row in range(len(curves.names))]
        parts += [heading(words.get(window.which, window.which)), grid(plots)]
    turns = any(name.endswith(".rx") for name in curves.names)
    moved = " Rotations of a base are since the window's start." if turns else ""
    lead = (
        f"From its first state, logged or filtered from the frames before, each model gets only the logged commands "
        f"for {curves.seconds[-1]:g} s. Of "
        f"{count(curves.starts, 'window')} of {curves.split} episodes, to which nothing was fitted: the windows with "
        f"the median and the largest error of the {title_of(curves.chosen)} model.{moved} Forecasts that leave the "
        "plot are cut."
    )
    return section("The log beside the models", *parts, lead=lead)


def _shown_models(curves: Forecasts) -> list[str]:
    """Return the models in windows: the declared and the chosen one, or the last one if that is the declared."""
    models = list(curves.windows[0].paths)
    return list(dict.fromkeys([models[0], curves.chosen if curves.chosen != models[0] else models[-1]]))


def _coordinate(curves: Forecasts, window: WindowCurves, row: int, style: Mapping[str, tuple[str, str]]) -> str:
    name, logged, seconds = curves.names[row], window.logged[row], curves.seconds
    lines = [PlotCurve("logged", seconds, _numbers(logged), TRUTH, "-", 2.6, 0.55)]
    lines += [
        PlotCurve(title_of(model), seconds, _until_plot_ends(window.paths[model][row], logged), *look, 1.3)
        for model, look in style.items()
    ]
    words = f"Position of {name}, {window.which} window"
    return plot(
        f"window-{window.which}-{row}", lines, unit=curves.units[row], caption=name, legend=False, description=words
    )


def _until_plot_ends(path: Row, logged: Row) -> list[float]:
    """Return a forecast until it leaves the plot of its log."""
    known = [value for value in logged if value is not None]
    low, high = min(known), max(known)
    room = _BEYOND * max(high - low, 1e-3)
    kept: list[float] = []
    for value in path:
        if value is None or not low - room <= value <= high + room:
            break
        kept.append(value)
    return kept


def growth_plots(curves: Forecasts, points: Mapping[str, Mapping[str, Row]], seconds: Sequence[float]) -> str:
    """Return errors over the horizon by group, with baselines.

    Args:
        curves: The curves.
        points: Errors of other models by name and group, at horizons.
        seconds: These horizons [s].
    """
    plots = []
    for number, (group, models) in enumerate(curves.growth.items()):
        what, _, unit = group.removesuffix("]").partition(" [")
        style = looks([*models, *points], curves.chosen)
        lines = [
            PlotCurve(
                title_of(name), curves.horizons, _numbers(row), *style[name], 2.2 if name == curves.chosen else 1.4
            )
            for name, row in models.items()
        ]
        lines += [
            PlotCurve(title_of(name), seconds, _numbers(groups[group]), *style[name], 1.4)
            for name, groups in points.items()
            if group in groups
        ]
        shown, label = (unit, "") if " or " not in unit else _one_unit(curves, unit)
        caption = f"Mean error of {what}{label}"
        plots.append(
            plot(f"growth-{number}", lines, x_label="horizon [s]", unit=shown, log=True, caption=caption, legend=False)
        )
    names = [*next(iter(curves.growth.values()), {}), *points]
    style = looks(names, curves.chosen)
    return legend_list([(title_of(name), style[name][0], style[name][1]) for name in names]) + grid(plots)


def growth_lead(curves: Forecasts | None) -> str:
    """Say what the errors over the horizon are."""
    if curves is None:
        return ""
    return (
        f"Mean error of roll-outs that long, over {count(curves.starts, 'window')} of {curves.split} episodes; "
        "logarithmic. A model is useful while it is below persistence and constant velocity."
    )


def _one_unit(curves: Forecasts, unit: str) -> tuple[str, str]:
    """Return the unit of a robot's joints if they share one, or none and a label with both."""
    units = {unit for name, unit in zip(curves.names, curves.units, strict=True) if "." not in name}
    return (units.pop(), "") if len(units) == 1 else ("", f" [{unit}]")


def rest_plots(curves: Forecasts) -> str:
    """Return unexplained errors beside the signals that go with them most."""
    plots = []
    for number, one in enumerate(curves.rest):
        pairs = [(x, y) for x, y in zip(one.x, one.y, strict=True) if x is not None and y is not None]
        dots = PlotCurve(None, [x for x, _ in pairs], [y for _, y in pairs], PREDICTED, DOTS)
        caption = f"Error of {one.name} beside {one.signal} (correlation {one.correlation:+.2f})"
        plots.append(plot(f"rest-{number}", [dots], x_label=one.signal, unit=one.unit, caption=caption))
    return grid(plots)


def _numbers(row: Row) -> list[float]:
    return [float("nan") if value is None else value for value in row]

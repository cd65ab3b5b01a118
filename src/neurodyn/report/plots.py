# SPDX-License-Identifier: Apache-2.0
"""Plots as inline SVG in the colours and fonts of the page, light or dark.

Plots are drawn in placeholder colours, which CSS variables replace; text stays text. Curves, legend and ticks have CSS
classes, and `data-plot` holds the box and range of the axes, with which plots.js, embedded by `page.page`, makes plots
interactive.
"""

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from neurodyn.report.numbers import quantity
from neurodyn.report.page import figure as with_caption
from neurodyn.report.page import legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = ("predicted", "truth", "second", "third", "ink", "quiet", "line", "phase")
VARIABLES = {f"#0a0b0{number}": f"--{name}" for number, name in enumerate(_NAMES, 1)}
PREDICTED, TRUTH, SECOND, THIRD, INK, QUIET, LINE, PHASE = VARIABLES
_SIZE = (4.4, 2.5)
_COLOURS, _STYLES = (PREDICTED, TRUTH, SECOND, THIRD), ("-", "--", ":")
_MOST_POINTS = 600
_BESIDE, _BELOW, _ABOVE, _PAD, _LETTER = 11.0, 31.0, 15.0, 6.0, 5.1  # margins; letter width of a tick [points]


DOTS = "."
"""Style of a curve of single points; a plot with one is a picture without interaction."""


@dataclass(frozen=True)
class PlotCurve:
    """One line of a plot."""

    label: str | None  # in the legend; None for none
    x: Sequence[float]
    y: Sequence[float]  # non-finite values are left out
    colour: str = PREDICTED  # one of this module's
    style: str = "-"  # matplotlib line style, or DOTS
    width: float = 1.5  # [points]
    opacity: float = 1.0
    name: str | None = None  # for hovering and hiding; None for the label


@dataclass(frozen=True)
class Span:
    """A labelled interval of the abscissa."""

    begin: float
    end: float
    label: str


def curve_style(number: int) -> tuple[str, str]:
    """Return colour and style of one of several curves; twelve combinations differ."""
    return _COLOURS[number % len(_COLOURS)], _STYLES[number // len(_COLOURS) % len(_STYLES)]


def plot(
    name: str,
    curves: Sequence[PlotCurve],
    *,
    x_label: str = "time [s]",
    unit: str = "",
    caption: str = "",
    log: bool = False,
    spans: Sequence[Span] = (),
    legend: bool = True,
    description: str = "",
    bars: bool = False,
    points: int = _MOST_POINTS,
) -> str:
    """Draw curves and return them as an SVG element, or as a figure with a caption; empty if no curve has a point.

    Args:
        name: Name of the plot, unique on its page.
        curves: The curves.
        x_label: Name and unit of the abscissa.
        unit: Unit of the ordinate, shown at its ticks.
        caption: Text below the plot; empty for the bare element.
        log: Whether the ordinate is logarithmic; nonpositive values are left out.
        spans: Labelled intervals of the abscissa.
        legend: Whether to show a legend.
        description: Description for screen readers; empty for the caption or the name.
        bars: Whether to mark single points.
        points: Approximate number of points per curve; longer curves keep local minima and maxima.
    """
    drawn = [(curve, *_points(curve, log, points)) for curve in curves]
    drawn = [(curve, x, y) for curve, x, y in drawn if len(x)]
    if not drawn:
        return ""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(cast(Any, _style(name))):
        figure = Figure(_SIZE)
        axes = figure.subplots()
        for number, (curve, x, y) in enumerate(drawn):
            marker: dict[str, Any] = {"marker": "o", "markersize": 3.5} if bars or len(x) == 1 else {}
            if curve.style == DOTS:
                marker = {"marker": "o", "markersize": 2.5, "markeredgewidth": 0}
            look: dict[str, Any] = {"color": curve.colour, "linewidth": curve.width, "alpha": curve.opacity}
            line = "None" if curve.style == DOTS else curve.style
            axes.plot(x, y, linestyle=line, label=curve.label, gid=f"curve-{number}", **look, **marker)
        _axes(axes, x_label, unit, log)
        for k, mark in enumerate(spans):
            if k % 2:
                axes.axvspan(mark.begin, mark.end, color=PHASE, linewidth=0, gid=f"span-{k}")
            place = ((mark.begin + mark.end) / 2, 1.0)
            axes.annotate(
                mark.label, place, xycoords=("data", "axes fraction"), xytext=(0, 3), textcoords="offset points",
                ha="center", va="bottom", fontsize=7, color=QUIET, gid=f"mark-{k}",
            )  # fmt: skip
        if legend:
            _legend(axes, [number for number, (curve, _, _) in enumerate(drawn) if curve.label])
        _make_room(axes, above=bool(spans))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        dots = any(curve.style == DOTS for curve, _, _ in drawn)
        contract = "" if dots else _contract(axes, [curve for curve, _, _ in drawn], x_label, unit, log)
    svg = _inline(buffer.getvalue(), description or caption or name, contract)
    return with_caption(svg, caption) if caption else svg


_BORDERS = {"--": "dashed", "-.": "dashed", ":": "dotted"}


def legend_list(entries: Sequence[tuple[str, str] | tuple[str, str, str]]) -> str:
    """Return a legend shared by several plots: (name, colour), or (name, colour, line style)."""
    looks = ((name, VARIABLES[colour], _BORDERS.get("".join(style), "solid")) for name, colour, *style in entries)
    return legend(looks)


def _legend(axes: "Axes", numbers: Sequence[int]) -> None:
    """Draw the legend of some curves, with each curve's number as the id of its entry."""
    if not numbers:
        return
    drawn = axes.legend(loc="best")
    for number, handle, text in zip(numbers, drawn.legend_handles, drawn.get_texts(), strict=True):
        for part in (handle, text):
            if part is not None:
                part.set_gid(f"key-{number}")


def _contract(axes: "Axes", curves: Sequence[PlotCurve], x_label: str, unit: str, log: bool) -> str:
    """Return the data of plots.js: axes box in SVG units, axis ranges, and curve names."""
    width, height = (72 * size for size in axes.get_figure().get_size_inches())  # type: ignore[union-attr]
    place = axes.get_position()
    box = [place.x0 * width, (1 - place.y1) * height, place.x1 * width, (1 - place.y0) * height]
    return json.dumps(
        {
            "box": [round(float(end), 2) for end in box],
            "x": [float(end) for end in axes.get_xlim()],
            "y": [float(end) for end in axes.get_ylim()],
            "log": log,
            "unit": unit,
            "xLabel": x_label,
            "names": [curve.name or curve.label or "" for curve in curves],
        }
    )


def _points(curve: PlotCurve, log: bool, most: int) -> tuple[np.ndarray, np.ndarray]:
    # If no roll-out is finite, there may be no ordinates at all.
    pairs = [(x, y) for x, y in zip(curve.x, curve.y, strict=False) if y is not None]
    x, y = np.array(pairs, dtype=float).reshape(-1, 2).T
    kept = np.isfinite(y) & (y > 0) if log else np.isfinite(y)
    x, y = x[kept], y[kept]
    if len(x) <= most:
        return x, y
    # Keep the minimum and maximum of neighbouring points: a stride would miss peaks.
    parts = np.array_split(np.arange(len(x)), most // 2)
    drawn = np.unique([k for part in parts for k in (part[y[part].argmin()], part[y[part].argmax()])])
    drawn = np.union1d(drawn, [0, len(x) - 1])
    return x[drawn], y[drawn]


def _axes(axes: "Axes", x_label: str, unit: str, log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xlabel(x_label)
    axes.margins(x=0.01)
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=7))
        axes.yaxis.set_minor_formatter(NullFormatter())
        low, high = axes.get_ylim()
        if high / low < 300:  # whole decades alone would leave one or two ticks
            steps = (1.0, 2.0, 5.0) if high / low < 30 else (1.0, 3.0)
            axes.yaxis.set_major_locator(LogLocator(subs=steps, numticks=9))
    axes.yaxis.set_major_formatter(FuncFormatter(_tick(unit)))


def _make_room(axes: "Axes", *, above: bool) -> None:
    """Set margins for labels from their number of characters: a layout engine takes longer than the drawing."""
    width, height = (72 * size for size in _SIZE)
    (low, high), text = axes.get_ylim(), axes.yaxis.get_major_formatter()
    longest = max((len(text(y, 0)) for y in axes.yaxis.get_majorticklocs() if low <= y <= high), default=0)
    left, bottom = _BESIDE + _LETTER * longest, _BELOW
    top = height - (_ABOVE if above else _PAD)
    axes.figure.subplots_adjust(left / width, bottom / height, 1 - _PAD / width, top / height)


def _tick(unit: str) -> Callable[[float, int], str]:
    def text(value: float, _position: int) -> str:
        value = 0.0 if abs(value) < 1e-12 else value
        number, _, prefixed = quantity(value, unit).partition(" ")
        if "." in number and "e" not in number:
            number = number.rstrip("0").rstrip(".")
        return f"{number} {prefixed}".strip().replace("-", "−")

    return text


def _style(name: str) -> dict[str, Any]:
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "DejaVu Sans",
        "font.size": 8,
        "axes.edgecolor": LINE,
        "axes.labelcolor": QUIET,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": LINE,
        "grid.linewidth": 0.6,
        "xtick.color": LINE,
        "ytick.color": LINE,
        "xtick.labelcolor": QUIET,
        "ytick.labelcolor": QUIET,
        "xtick.minor.visible": False,
        "ytick.minor.size": 0,
        "legend.frameon": False,
        "legend.fontsize": 7.5,
        "legend.labelcolor": INK,
        "text.color": INK,
        "lines.solid_capstyle": "round",
    }


def _inline(svg: str, description: str, contract: str) -> str:
    """Return an SVG file as a page element, without prologue, style and unused ids."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r' id="(curve|key|span|mark)-(\d+)"', r' class="\1" data-number="\2"', svg)
    svg = re.sub(r' id="[xy]tick_\d+"', ' class="tick"', svg)
    used = set(re.findall(r'#([\w-]+)[")]', svg))
    svg = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", svg)
    # Round coordinates to hundredths of a point, only inside tags, so that text is unchanged.
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d+\.\d{2})\d+", r"\1", tag[0]), svg)
    for stand_in, variable in VARIABLES.items():
        svg = svg.replace(stand_in, f"var({variable})")
    view = re.search(r'viewBox="[^"]*"', svg)
    opening = f'<svg {view[0] if view else ""} role="img" aria-label="{escape(description)}"'
    opening += f' data-plot="{escape(contract)}">' if contract else ">"
    return re.sub(r"\n\s*", "\n", re.sub(r"^<svg[^>]*>", lambda _: opening, svg))

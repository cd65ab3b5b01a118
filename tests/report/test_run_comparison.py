# SPDX-License-Identifier: Apache-2.0
"""Tables and page of runs beside each other."""

import msgspec

from neurodyn.evaluate.run_comparison import Cost, Figure, FigureSeries, RunFigures, UnmeasuredRun, compare_figures
from neurodyn.report.numbers import plus_minus
from neurodyn.report.run_comparison import broken_lines, comparison_tables, render_comparison
from tests.report.pages import check_self_contained

EVIL = "<script>alert('1')</script>"


def run(name: str, value: float | None, seed: int, width: int, of: str = "cartpole") -> RunFigures:
    return RunFigures(
        run=name, of=of, kind="mlp", figures={"Joint angle": Figure(value=value, unit="rad")},
        baselines={"persistence": {"Joint angle": Figure(value=1.5, unit="rad")}},
        series={"Score": FigureSeries(x=[0.0, 1.0, 2.0], y=[1.0, 0.5, 0.1 * (seed + 1)], x_label="training time [s]")},
        settings={"net.width": width, "clip": 1.0}, seed=seed,
        cost=Cost(seconds=61.0 + seed, cpu_seconds=50.0, steps=300, parameters=1234, bytes=5000),
        verdict="ok" if value else "fails: no roll-out is finite",
    )  # fmt: skip


def test_means_carry_their_intervals_in_one_prefix():
    assert plus_minus(0.0123, 0.0004, "m") == "12.3 ± 0.400 mm"
    assert plus_minus(0.0123, None, "m") == "12.3 mm"
    assert plus_minus(1200.0, 15.0, "") == "1,200 ± 15.0"
    assert plus_minus(None, None, "m") == "–"


def test_tables_show_figures_differences_and_costs():
    found = compare_figures(
        [run("a", 0.01, 0, 32), run("b", 0.02, 1, 32), run("c", 0.005, 0, 64), run("d", None, 0, 8)]
    )
    figures, settings, costs = comparison_tables(found)
    assert figures.title == "cartpole"
    assert list(figures.head) == ["Run", "Kind", "Seeds", "Joint angle", "Verdict"]
    assert list(figures.rows[0]) == ["c", "mlp", "1", "5.00 mrad", "ok"]
    assert figures.rows[1][0] == "a and 1 more seed"
    assert figures.rows[1][3] == "15.0 ± 63.5 mrad"
    assert list(figures.rows[2][3:]) == ["not finite in 1 of 1", "fails"]
    assert list(figures.rows[3]) == ["persistence", "", "", "1.50 rad", ""]
    assert list(settings.head) == ["Run", "net.width"]
    assert [row[1] for row in settings.rows] == ["64", "32", "8"]
    assert list(costs.rows[1][1:]) == ["61.5 s", "50.0 s", "300", "1,234", "5.00 kB"]


def test_without_differences_there_is_no_table_of_them():
    assert [table.title for table in comparison_tables(compare_figures([run("a", 1.0, 0, 32)]))] == [
        "cartpole", "Training and size",
    ]  # fmt: skip


def test_what_no_run_says_has_no_column():
    bare = msgspec.structs.replace(run("a", 1.0, 0, 32), cost=Cost(seconds=61.5, steps=300))
    (costs,) = comparison_tables(compare_figures([bare]))[1:]
    assert list(costs.head) == ["Run", "Training", "Steps"]
    nothing = msgspec.structs.replace(bare, cost=Cost())
    assert [table.title for table in comparison_tables(compare_figures([nothing]))] == ["cartpole"]


def test_what_cannot_be_compared_is_reported():
    found = compare_figures(
        [run("a", 1.0, 0, 32), run("b", 1.0, 0, 32, of="ant")], [UnmeasuredRun(run="x", why="x: is gone")]
    )
    assert broken_lines(found) == [
        "x: left out: x: is gone",
        "runs were measured differently, and are shown apart: cartpole; ant",
    ]


def test_the_page_is_self_contained_and_escapes_what_runs_are_called():
    entries = [run(EVIL, 0.01, 0, 32), run("b", 0.02, 1, 32), run("c", 0.005, 0, 64, of=EVIL)]
    html = render_comparison(compare_figures(entries, [UnmeasuredRun(run=EVIL, why=EVIL)]))
    page = check_self_contained(html)
    assert EVIL not in html
    assert "Each run" in page.text
    assert "15.0 ± 63.5 mrad" in page.text
    assert page.tags.count("svg") == 2

# SPDX-License-Identifier: Apache-2.0
"""Seeds of the same settings are one group with an interval, and runs that cannot be compared stand apart."""

import math

import msgspec
import pytest
from scipy import stats

from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.evaluate.run_comparison import (
    Figure,
    FigureSeries,
    RunFigures,
    compare_figures,
    comparison_of,
    flat_settings,
    mean_of,
)


def run(
    name: str, value: float | None, seed: int = 0, *, of: str = "cartpole", kind: str = "mlp", **more
) -> RunFigures:
    settings = {"net.width": 32, "data": "a.h5", **more.pop("settings", {})}
    figures = {"error": Figure(value=value, unit="m", greater_is_better=more.pop("greater", False))}
    return RunFigures(run=name, of=of, kind=kind, figures=figures, settings=settings, seed=seed, **more)


def test_seeds_are_one_group_whose_interval_is_that_of_scipy():
    values = [1.0, 1.4, 1.1]
    (family,) = compare_figures([run(f"r{k}", v, k) for k, v in enumerate(values)]).families
    (group,) = family.groups
    found = group.figures["error"]
    low, high = stats.t.interval(0.95, 2, loc=sum(values) / 3, scale=stats.sem(values))
    assert found.mean == pytest.approx((low + high) / 2)
    assert found.half == pytest.approx((high - low) / 2)
    assert (found.least, found.greatest, found.unit, found.values) == (1.0, 1.4, "m", values)
    assert (group.runs, group.seeds, group.settings) == (["r0", "r1", "r2"], [0, 1, 2], {})
    assert family.common == {"net.width": 32, "data": "a.h5"}


def test_one_run_has_no_interval_and_a_run_without_a_finite_figure_no_mean():
    assert mean_of([Figure(value=2.0)]).half is None
    found = mean_of([Figure(value=2.0), Figure(value=None), None, Figure(value=math.inf)])
    assert (found.mean, found.half, found.missing, found.least) == (None, None, 3, 2.0)


def test_settings_that_differ_split_groups_and_are_named():
    wide = {"net.width": 64}
    entries = [run("a", 3.0), run("b", 2.0, settings=wide), run("c", 2.2, 1, settings=wide)]
    (family,) = compare_figures(entries).families
    assert [group.runs for group in family.groups] == [["b", "c"], ["a"]]
    assert [group.settings for group in family.groups] == [{"net.width": 64}, {"net.width": 32}]
    assert [group.name for group in family.groups] == ["b and 1 more seed", "a"]


def test_a_setting_that_one_kind_does_not_have_differs_only_where_others_of_its_kind_have_it():
    entries = [run("a", 1.0, settings={"heads": 4}, kind="transformer"), run("b", 2.0), run("c", 3.0, 1)]
    (family,) = compare_figures(entries).families
    assert [group.settings for group in family.groups] == [{}, {}]
    entries = [run("a", 1.0, settings={"clip": 4}), run("b", 2.0)]
    (family,) = compare_figures(entries).families
    assert [group.settings for group in family.groups] == [{"clip": 4}, {"clip": None}]


def test_returns_are_ordered_the_other_way_and_what_has_no_figure_comes_last():
    given = [("a", 1.0), ("b", 3.0), ("c", None)]
    entries = [run(name, v, greater=True, settings={"x": name}) for name, v in given]
    (family,) = compare_figures(entries).families
    assert [group.name for group in family.groups] == ["b", "a", "c"]


def test_runs_measured_differently_get_their_own_table():
    found = compare_figures([run("a", 1.0), run("b", 1.0, of="ant"), run("c", 1.0, 1)])
    assert [(family.of, [group.runs for group in family.groups]) for family in found.families] == [
        ("cartpole", [["a", "c"]]),
        ("ant", [["b"]]),
    ]


def test_the_worst_verdict_of_a_group_is_reported_with_its_run():
    entries = [
        run("a", 1.0),
        run("b", 1.0, 1, verdict="warning: few steps"),
        run("c", 1.0, 2, verdict="fails: nothing"),
    ]
    assert compare_figures(entries).families[0].groups[0].verdict == "fails: nothing (c)"
    assert compare_figures(entries[:1]).families[0].groups[0].verdict == "ok"


def test_broken_runs_are_named_beside_the_others_and_refused_alone():
    def measure(name: str) -> RunFigures:
        if name.startswith("bad"):
            raise InputError(f"{name}: holds nothing")
        return run(name, 1.0)

    found = comparison_of(["a", "bad"], measure)
    assert [(entry.run, entry.why) for entry in found.broken] == [("bad", "bad: holds nothing")]
    for runs, words in (
        (["bad1", "bad2"], "none of 2 runs can be compared: bad1: holds nothing"),
        (["a", "a"], "a: is named twice"),
        ([], "no run is given"),
    ):
        with pytest.raises(InputError, match=words):
            comparison_of(runs, measure)


def test_settings_are_flat_and_figures_survive_their_json():
    nested = {"phases": [{"rate": 0.1}, {"rate": 0.2}], "net": {"hidden": (64, 64)}, "minutes": None}
    assert flat_settings(nested) == {
        "phases.0.rate": 0.1, "phases.1.rate": 0.2, "net.hidden": [64, 64], "minutes": None,
    }  # fmt: skip
    entry = run("a", 1.0, series={"s": FigureSeries(x=[0.0, 1.0], y=[1.0, None], x_label="time [s]")})
    assert from_dict(msgspec.json.decode(msgspec.json.encode(entry.plain())), RunFigures) == entry

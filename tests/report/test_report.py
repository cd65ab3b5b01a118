# SPDX-License-Identifier: Apache-2.0
"""The report is one sound page with nothing outside itself, and its figures are those of the evaluation."""

import re
import sys
from pathlib import Path

import msgspec
import pytest

from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.evaluate import beside_log, beside_simulator
from neurodyn.evaluate.records import ErrorCurve as ErrorCurve
from neurodyn.evaluate.records import Logged, LongRun, RolloutComparison, Simulated, Stability
from neurodyn.report import accuracy, report_path, write_report
from neurodyn.report.numbers import interval, quantity, span, times
from neurodyn.report.plots import PREDICTED, PlotCurve, plot
from neurodyn.robots import Robot
from tests.report.pages import check_self_contained

HORIZON = 40
METRICS = ("base_position_m", "joint_rad")


@pytest.fixture(scope="module")
def simulated(trained_run: Path, cartpole: Robot) -> Simulated:
    pytest.importorskip("newton")
    return beside_simulator(NEURAL.load(trained_run), cartpole, horizon=HORIZON, rollouts=6)


@pytest.fixture(scope="module")
def simulated_page(trained_run: Path, simulated: Simulated, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    assert write_report(trained_run, simulated, path=path, moving=False) == path
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def logged(trained_run: Path, cartpole: Robot, plant_store: Store, plant_file: Path) -> Logged:
    result = beside_log(NEURAL.load(trained_run), cartpole, plant_store, split=2, horizon=20)
    assert isinstance(result, Logged)
    notes = {"files": [str(plant_file)], "rows": 10, "alignment": ALIGNMENT}
    return msgspec.structs.replace(result, notes=notes)


ALIGNMENT = {
    "delays": [-0.01, 0.0, 0.01],
    "r2": [0.2, 0.9, 0.4],
    "groups": {"a": [0.1, 0.8, 0.3], "b": [0.3, 0.9, 0.5]},
    "best": 0.0,
    "chosen": 0.0,
    "significance": 5.0,
    "reason": "measured: no delay fits best",
}


def headings(html: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", html)


def test_the_page_is_sound_and_holds_nothing_from_elsewhere(simulated_page: str):
    page = check_self_contained(simulated_page)
    assert page.tags.count("svg") >= 10
    assert page.tags.count("script") == 1


def test_the_sections_of_a_simulator_report(simulated_page: str):
    assert headings(simulated_page) == [
        "Sample trajectories", "Errors over time", "Errors by horizon", "Energy", "Training", "Throughput",
        "What this is", "How to repeat this",
    ]  # fmt: skip


def test_the_figures_are_those_of_the_evaluation(simulated: Simulated, simulated_page: str):
    text = check_self_contained(simulated_page).text
    assert simulated.driven is not None
    for found in (simulated.comparison, simulated.driven.comparison):
        for horizon, entry in found.by_horizon.items():
            for key, unit in (("base_position_m", "m"), ("joint_rad", "rad")):
                assert quantity(entry.means[key], unit) in text
                assert quantity(entry.median(key), unit) in text
                assert quantity(found.baselines["hold_last"][horizon].means[key], unit) in text
    assert f"{simulated.about.parameters:,} parameters" in text
    assert f"{simulated.env_steps_per_cpu_second:,.0f}" in text


@pytest.mark.parametrize(("apart", "said"), [(1e-5, "train longer, on more data"), (0.4, "nor can any model be")])
def test_the_horizon_beyond_which_a_model_is_no_better_than_a_baseline_is_reported(
    simulated: Simulated, apart: float, said: str
):
    change, metric = msgspec.structs.replace, "joint_rad"

    def with_errors(table: dict, *values: float) -> dict:
        return {
            h: change(table["10"], means={**table["10"].means, metric: v}) for h, v in zip("12", values, strict=True)
        }

    found, references = simulated.comparison, simulated.reference_errors
    assert references is not None
    still = with_errors(found.baselines["hold_last"], 0.5, 0.5)
    baselines = dict.fromkeys(found.baselines, still)
    perturbed = with_errors(references.perturbed, 0.0, apart)
    result = change(
        simulated, driven=None, reference_errors=change(references, perturbed=perturbed),
        comparison=change(found, by_horizon=with_errors(found.by_horizon, 0.1, 1.0), baselines=baselines),
    )  # fmt: skip
    (line,) = (line for line in accuracy.horizon_sentences(result) if line.startswith("Joint angle"))
    assert "better than the baselines for" in line
    assert said in line
    good = change(found, by_horizon=with_errors(found.by_horizon, 0.1, 0.2), baselines=baselines)
    assert not any(
        line.startswith("Joint angle") for line in accuracy.horizon_sentences(change(result, comparison=good))
    )


def test_grounds_reference_errors_and_long_roll_outs_are_reported(
    trained_run: Path, simulated: Simulated, tmp_path: Path
):
    found, references = simulated.comparison, simulated.reference_errors
    assert references is not None
    means = {**found.summary.means, "joint_rad": 0.7654}
    summary = msgspec.structs.replace(found.summary, means=means)
    steep = msgspec.structs.replace(simulated, comparison=msgspec.structs.replace(found, summary=summary))
    long = LongRun(
        finite_fraction=0.5, above_ground_fraction=0.25, stable_fraction=0.25, deepest_m=0.31, greatest_speed=9.0
    )
    result = msgspec.structs.replace(
        simulated, ground="flat", grounds={"flat": simulated, "steep": steep}, hold=[85.0, 2.0], energy=None,
        driven=None, stability=Stability(frames=10_000, worlds=64, deepest_allowed_m=0.25, ground="flat", passive=long),
    )  # fmt: skip
    html = write_report(trained_run, result, path=tmp_path / "report.html", moving=False).read_text(encoding="utf-8")
    page = check_self_contained(html)
    assert {"By ground", "Long roll-outs"} <= set(headings(html))
    assert {"Energy"}.isdisjoint(headings(html))
    assert quantity(0.7654, "rad") in page.text
    assert quantity(references.half_step["10"].means["joint_rad"], "rad") in page.text
    assert quantity(0.31, "m") in page.text
    assert "held at the nominal pose" in page.text
    assert "under random" not in page.text.split("Sample trajectories")[0]
    assert "--ground all --stability" in page.text


def test_the_commands_repeat_the_evaluation(trained_run: Path, simulated: Simulated, simulated_page: str):
    text = check_self_contained(simulated_page).text
    assert f"neurodyn evaluate {trained_run} --horizon {HORIZON} --rollouts 6 --seed 500" in text
    assert "neurodyn train cartpole --data" in text
    assert "steps: 300" in text  # the configuration


def test_the_page_depends_on_its_inputs_alone(
    trained_run: Path, simulated: Simulated, simulated_page: str, tmp_path: Path
):
    again = write_report(trained_run, simulated, path=tmp_path / "again.html", moving=False)
    assert again.read_text(encoding="utf-8") == simulated_page


def test_the_default_place_is_in_the_run(trained_run: Path, logged: Logged):
    path = write_report(trained_run, logged, moving=False)
    assert path == trained_run / "report.html"
    assert path.is_file()


def test_only_an_evaluation_with_all_defaults_owns_the_report(tmp_path: Path):
    assert report_path(tmp_path) == tmp_path / "report.html"
    assert report_path(tmp_path, ("horizon-50", "ground-a b")) == tmp_path / "report-horizon-50-ground-a-b.html"
    (tmp_path / "identification.json").write_text("{}")
    assert report_path(tmp_path) == tmp_path / "evaluation.html", "report.html is the identification's"


def test_a_hybrid_model_is_called_one(trained_run: Path, simulated: Simulated, tmp_path: Path):
    result = msgspec.structs.replace(simulated, about=msgspec.structs.replace(simulated.about, kind="hybrid"))
    html = write_report(trained_run, result, path=tmp_path / "hybrid.html", moving=False).read_text(encoding="utf-8")
    body = html.split("Sample trajectories")[0] + html.split("<h2>Energy")[1].split("<h2>Training")[0]
    assert "Hybrid" in body
    assert "eural" not in body


def test_a_log_report_has_groups_windows_and_alignment(trained_run: Path, logged: Logged, tmp_path: Path):
    html = write_report(trained_run, logged, path=tmp_path / "log.html", moving=False).read_text(encoding="utf-8")
    page = check_self_contained(html)
    assert headings(html) == [
        "Sample trajectories", "Errors on recorded trajectories", "Whole runs",
        "By group", "By joint", "Calibration", "The recordings", "Training", "What this is", "How to repeat this",
    ]  # fmt: skip
    assert "even" in page.text
    assert "odd" in page.text
    assert "measured: no delay fits best" in page.text
    last = logged.at_horizon["all"].marks["20"]
    assert quantity(last.model.q[0], "m") in page.text
    assert quantity(last.baselines["hold_last"].qd[1], "rad/s") in page.text
    assert times(last.better_than_baselines["q_mean"]) in page.text


def test_a_log_report_needs_no_newton(
    trained_run: Path, logged: Logged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in [name for name in sys.modules if name.split(".")[0] == "newton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "newton", None)
    html = write_report(trained_run, logged, path=tmp_path / "log.html").read_text(encoding="utf-8")
    assert "In motion" not in headings(html)
    assert "Sample trajectories" in headings(html)
    assert "neurodyn[newton]" in check_self_contained(html).text


def test_data_that_are_gone_leave_a_remark(trained_run: Path, logged: Logged, tmp_path: Path):
    import shutil

    run = shutil.copytree(trained_run, tmp_path / "moved")
    config = run / "config.yaml"
    config.write_text(re.sub(r"data: .*", "data: gone.h5", config.read_text()))
    report = msgspec.structs.replace(logged, notes={})
    text = check_self_contained(write_report(run, report, moving=False).read_text(encoding="utf-8")).text
    assert "the recorded data of the evaluation are gone" in text
    assert "The training data (gone.h5) have moved" in text


def test_text_from_elsewhere_is_escaped(trained_run: Path, logged: Logged, tmp_path: Path):
    groups = {"<script>alert(1)</script>": logged.groups["even"], "b&c": logged.groups["odd"]}
    report = msgspec.structs.replace(logged, groups=groups)
    path = write_report(trained_run, report, path=tmp_path / "log.html", moving=False)
    page = check_self_contained(path.read_text(encoding="utf-8"))
    assert page.tags.count("script") == 1
    assert "b&c" in page.text


def test_a_model_that_blows_up_still_gets_a_page(trained_run: Path, simulated: Simulated, tmp_path: Path):
    change = msgspec.structs.replace

    def burst(found: RolloutComparison) -> RolloutComparison:
        nothing = {"10": None, "50": None, "90": None}
        empty = change(
            found.summary, means=dict.fromkeys(found.summary.means), percentiles=dict.fromkeys(METRICS, nothing)
        )
        curve = ErrorCurve(mean=[float("nan")] * len(found.curve.frame), median=[], p90=[])
        return change(
            found, summary=empty, by_horizon=dict.fromkeys(found.by_horizon, empty), finite_fraction=0.0,
            curve=change(found.curve, by_metric=dict.fromkeys(METRICS, curve)),
        )  # fmt: skip

    assert simulated.driven is not None
    assert simulated.energy is not None
    result = change(
        simulated, comparison=burst(simulated.comparison), energy=change(simulated.energy, model=None),
        driven=change(simulated.driven, comparison=burst(simulated.driven.comparison)),
    )  # fmt: skip
    html = write_report(trained_run, result, path=tmp_path / "broken.html", moving=False).read_text(encoding="utf-8")
    assert "Only 0 % of the roll-outs stay finite" in check_self_contained(html).text


@pytest.mark.slow
def test_the_moving_picture_is_on_the_page(trained_run: Path, simulated: Simulated, tmp_path: Path):
    html = write_report(trained_run, simulated, path=tmp_path / "moving.html").read_text(encoding="utf-8")
    page = check_self_contained(html)
    assert "In motion" in headings(html)
    assert page.tags.count("img") == 1
    assert len(html) < 6_000_000


def test_a_run_that_is_none_is_named(simulated: Simulated, tmp_path: Path):
    with pytest.raises(InputError, match="no such folder"):
        write_report(tmp_path / "none", simulated)


# Numbers and plots


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0434, "m", "43.4 mm"),
        (8.31e-6, "m", "8.31 µm"),
        (0.1296, "rad", "0.130 rad"),
        (2.5e-9, "J", "2.50 nJ"),
        (1234.5, "J", "1,234 J"),
        (-0.02, "m/s", "-20.0 mm/s"),
        (0.05, "", "0.0500"),
        (0.0, "m", "0 m"),
        (None, "m", "–"),
        (float("inf"), "m", "not finite"),
    ],
)
def test_quantities(value: float | None, unit: str, text: str):
    assert quantity(value, unit) == text


def test_ranges_factors_and_times():
    assert interval(0.0089, 0.0762, "m") == "8.90 – 76.2 mm"
    assert interval(0.00707, 0.36, "rad") == "7.07 mrad – 0.360 rad"
    assert interval(None, None, "m") == "–"
    assert [times(44.3), times(5.25), times(0.5), times(None)] == ["44×", "5.2×", "0.50×", "–"]
    assert [span(0.5), span(125), span(3700)] == ["0.500 s", "2 min 5 s", "1 h 1 min"]


def test_a_plot_takes_the_colours_of_the_page_and_leaves_gaps_out():
    curve = PlotCurve("model", [0, 1, 2, 3], [1.0, float("nan"), None, 4.0], PREDICTED)  # type: ignore[list-item]
    svg = plot("name", [curve], x_label="time [s]", unit="m")
    assert "var(--predicted)" in svg
    assert "#0a0b" not in svg
    assert "NaN" not in svg
    assert "time [s]" in svg


def test_a_plot_of_nothing_is_nothing():
    assert plot("name", [PlotCurve("model", [0, 1], [0.0, -1.0])], x_label="t", unit="m", log=True) == ""

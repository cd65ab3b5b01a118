# SPDX-License-Identifier: Apache-2.0
"""Several logs of one robot: whether they agree, and what varies between them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
import torch

from neurodyn.core.errors import InputError, Notice
from neurodyn.evaluate.run import open_along_log
from neurodyn.identify import AdaptationSettings, Identification, adapt
from neurodyn.identify.confidence.parameter_search import Searched
from neurodyn.identify.fit.intervals import identifiability
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.motors import with_motors
from neurodyn.identify.run import open_logs
from neurodyn.identify.settings import FitStage
from neurodyn.identify.stages import agreement
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.robots import load
from neurodyn.sim.draws import read_posterior
from tests.identify.stand_ins import DAMPING, cartpole_log, worn_cartpole

SETTINGS = AdaptationSettings(
    stages=(FitStage(0.05, 150, 6), FitStage(0.15, 80, 4)),
    initial="free",
    screen=60,
    networks=False,
    proposals=0,
    rollouts_each=20,
    reference_steps=0,
    refits=0,
)
OTHER = 1.0


def logs(folder: Path, dampings: dict[str, float]) -> list[Path]:
    paths = [folder / f"{name}.h5" for name in dampings]
    for seed, (path, damping) in enumerate(zip(paths, dampings.values(), strict=True)):
        cartpole_log(path, worn_cartpole(damping=damping), seed=seed + 10)
    return paths


@pytest.fixture(scope="module")
def disagreeing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Identification]:
    folder = tmp_path_factory.mktemp("disagreeing")
    data = logs(folder, {"a": DAMPING, "b": DAMPING, "c": OTHER})
    return folder / "run", adapt("cartpole", data, folder / "run", settings=SETTINGS, threads=1)


@pytest.mark.slow
def test_logs_that_disagree_are_told_with_the_quantity(disagreeing: tuple[Path, Identification]):
    figures = disagreeing[1].figures
    (difference,) = figures.differences
    assert difference.name == "hinge.damping"
    assert "c" in difference.logs
    assert difference.errors > 10.0
    assert difference.text.startswith(f"{difference.logs[0]} and c differ in hinge.damping by ")
    assert figures.verdict is not msgspec.UNSET
    assert figures.verdict.startswith("warning: ")
    assert "differ in hinge.damping" in figures.verdict
    assert "logs-disagree" in [one.name for one in figures.findings]


@pytest.mark.slow
def test_what_differs_has_its_own_value_in_each_log(disagreeing: tuple[Path, Identification]):
    out, found = disagreeing
    damping = next(one for one in found.figures.parameters if one.name == "hinge.damping")
    assert damping.by_log is not msgspec.UNSET
    values = {log: one.value for log, one in damping.by_log.items()}
    # Mass and gain scale with damping: the ratio is what the logs tell.
    assert values["c"] / values["a"] == pytest.approx(OTHER / DAMPING, rel=0.15)
    assert values["b"] == pytest.approx(values["a"], rel=0.1)
    saved = json.loads((out / "adaptation.json").read_text())
    assert saved["differences"][0]["name"] == "hinge.damping"
    assert {"a", "b", "c"} == set(next(q for q in saved["quantities"] if q["name"] == "hinge.damping")["by_log"])


@pytest.mark.slow
def test_evaluations_use_the_value_of_each_log_and_fit_that_of_a_new_one(
    disagreeing: tuple[Path, Identification], tmp_path: Path
):
    out = disagreeing[0]
    own = disagreeing[1].figures.own
    assert own is not msgspec.UNSET
    k = own.names.index("hinge.damping")
    log = open_along_log(out, [out.parent / "a.h5", out.parent / "c.h5"])[3]
    assert log.parameters is not None
    assert sorted(set(log.parameters[:, k].tolist())) == pytest.approx([own.groups["a"][k], own.groups["c"][k]])
    alone = open_along_log(out, out.parent / "c.h5")[3].parameters  # one of several is no new log
    assert alone is not None
    assert sorted(set(alone[:, k].tolist())) == pytest.approx([own.groups["c"][k]])
    cartpole_log(tmp_path / "new.h5", worn_cartpole(damping=OTHER), seed=20, episodes=8)
    with pytest.warns(Notice, match=r"which told their own values: .*hinge\.damping"):
        new = open_along_log(out, tmp_path / "new.h5")[3]
    assert new.parameters is not None
    assert torch.tensor(new.parameters[:, k]).median() == pytest.approx(own.groups["c"][k], rel=0.25)


@pytest.mark.slow
def test_the_posterior_is_as_wide_as_the_logs_differ(disagreeing: tuple[Path, Identification]):
    names, rows = read_posterior(disagreeing[0])
    damping = rows[:, names.index("hinge.damping")]
    spread = disagreeing[1].figures.differences[0].deviation
    assert float(damping.std()) == pytest.approx(spread, rel=0.65)


@pytest.mark.slow
def test_logs_that_agree_have_one_value(tmp_path: Path):
    data = logs(tmp_path, {"a": DAMPING, "b": DAMPING})
    figures = adapt("cartpole", data, tmp_path / "run", settings=SETTINGS, threads=1).figures
    assert figures.differences == []
    assert "logs-disagree" not in [one.name for one in figures.findings]
    damping = next(one for one in figures.parameters if one.name == "hinge.damping")
    assert damping.by_log is not msgspec.UNSET  # what each would say alone
    pooled, each = damping.value, [one.value for one in damping.by_log.values()]
    assert min(each) <= pooled * 1.05
    assert max(each) >= pooled * 0.95


@pytest.mark.slow
def test_a_quantity_can_be_told_to_vary(tmp_path: Path):
    data = logs(tmp_path, {"a": DAMPING, "b": OTHER})
    settings = msgspec.structs.replace(SETTINGS, per_log={"hinge.damp*": 1.0})
    out = tmp_path / "run"
    found = adapt("cartpole", data, out, settings=settings, threads=1)
    damping = next(one for one in found.figures.parameters if one.name == "hinge.damping")
    assert damping.by_log is not msgspec.UNSET
    assert damping.by_log["b"].value / damping.by_log["a"].value == pytest.approx(OTHER / DAMPING, rel=0.15)
    (out / "adaptation.json").unlink()
    again = adapt("cartpole", data, out, settings=settings, threads=1, resume=True)
    assert [one.by_log for one in again.figures.parameters] == [one.by_log for one in found.figures.parameters]


def test_what_varies_must_be_free(tmp_path: Path):
    data = logs(tmp_path, {"a": DAMPING, "b": OTHER})
    settings = msgspec.structs.replace(SETTINGS, per_log={"hinge.colour": 1.0})
    with pytest.raises(InputError, match=r"per_log: 'hinge\.colour' is no free quantity"):
        adapt("cartpole", data, tmp_path / "run", settings=settings, threads=1)


def test_derivatives_by_what_varies_are_those_of_the_log(tmp_path: Path):
    """A shift in every log is the coordinate itself."""
    store = open_logs(load("cartpole"), logs(tmp_path, {"a": DAMPING, "b": OTHER}))
    settings = msgspec.structs.replace(SETTINGS, per_log={"hinge.damping": 0.5})
    robot = with_motors(load("cartpole"), store)
    fitting = Fitting(FitModel.declared(robot, "cartpole", settings).in_prior_deviations(settings), store, settings, 1)
    residuals = fitting.end({"3 frames": 0.0}).residuals
    column = residuals.space.names.index("hinge.damping")
    normal = residuals.normal(residuals.start(fitting.x[None]))
    n = residuals.parameters
    assert torch.allclose(normal.gradient[..., n], 0.5 * normal.gradient[..., column], rtol=0.03)
    assert identifiability(residuals, residuals.start(fitting.x[None])).names == residuals.space.names


def test_letting_quantities_vary_changes_no_earlier_fit():
    earlier = {"hinge.mass": 0.5}
    fitting = SimpleNamespace(per_log=earlier, local={"a": None})
    Fitting.vary(fitting, ["hinge.damping"])  # type: ignore[arg-type]
    assert (earlier, fitting.per_log) == ({"hinge.mass": 0.5}, {"hinge.mass": 0.5, "hinge.damping": 1.0})


@pytest.mark.parametrize(("groups", "tried"), [(("left", "right"), True), (("log, part 1", "log, part 2"), False)])
def test_all_quantities_may_differ_between_groups_but_not_between_parts_of_one_log(
    monkeypatch: pytest.MonkeyPatch, groups: tuple[str, ...], tried: bool
):
    fit, calls = SimpleNamespace(per_log={}, store=None, end=lambda _: None), list[tuple[str, ...]]()
    monkeypatch.setattr(agreement, "shared_groups", lambda _: groups)
    monkeypatch.setattr(agreement, "_with_differences", lambda *_: None)
    monkeypatch.setattr(agreement, "_with_all_different", lambda *given: calls.append(given[2]) or (fit, None, ()))
    agreement.let_differ(cast(Fitting, fit), cast(Searched, SimpleNamespace(stages={})))
    assert calls == ([groups] if tried else [])

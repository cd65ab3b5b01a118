# SPDX-License-Identifier: Apache-2.0
"""The page of an adaptation: its parts in order, on any screen and on paper, also where everything failed."""

import re
from pathlib import Path

import msgspec
import pytest
import torch

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.identify.ladder.forecasts import ErrorBesideSignal, forecasts_of, write_forecasts
from neurodyn.identify.result import (
    IdentificationFigures,
    IdentifiedParameter,
    InPriorDeviations,
    LogCheck,
    Rung,
    UnexplainedCoordinate,
)
from neurodyn.report.identification import write_identification
from tests.report.pages import check_self_contained

SPEC = StateSpec(
    robot="arm", joints=tuple(JointSpec(name=name, kind="revolute") for name in ("shoulder", "elbow")),
    controls=("shoulder", "elbow"), dt=0.01,
)  # fmt: skip
GROUP = "joints [rad or m]"
REASON = "0.04 of the error, better beyond the spread over 15 stretches of logs (± 0.01)"


def rollouts(size: float) -> RolloutErrors:
    time = torch.linspace(0.0, 0.5, 51, dtype=torch.float64)[:, None].expand(7, 51, 2)
    q = torch.sin(6.0 * time)
    return RolloutErrors(SPEC, Trajectory(q + size * time, q), Trajectory(q, q))


def figures() -> IdentificationFigures:
    near = InPriorDeviations(value=2.0, interval=[1.5, 2.5], bounds=[-1.0, 8.0])
    unknown = InPriorDeviations(value=0.0, interval=[-1.6, 1.6], bounds=[-8.0, 8.0])
    told = IdentifiedParameter(
        name="elbow.friction", value=5.7, interval=[5.5, 5.9], nominal=0.0, unit="N m", in_prior=near
    )
    silent = IdentifiedParameter(
        name="elbow.damping", value=0.0, interval=[0.0, 0.1], nominal=0.0, determined=False, in_prior=unknown
    )
    rungs = [
        Rung(name=name, kept=True, reason=REASON, errors={GROUP: [error]}, test={GROUP: [error]})
        for name, error in (("declared", 0.24), ("identified", 0.01))
    ]
    rest = [
        UnexplainedCoordinate(
            name="elbow", error=0.1, noise=0.01, touching=None, air=0.1, with_signals={"sign(qd.elbow)": 0.8}
        )
    ]
    log = LogCheck(minutes=2.5, rate=100.0, control="torque", episodes=(8, 1, 1), repeated=0.0, joints=[], warnings=[])
    return IdentificationFigures(
        robot="arm", parameters=[told, silent], horizons=[0.5], rungs=rungs, chosen="identified", unexplained=rest,
        log=log, verdict="warning: the rest is large; log more", windows=60, logs=1, horizon_s=0.25,
    )  # fmt: skip


def with_curves(run: Path, declared: float = 1.0, identified: float = 0.1) -> None:
    curves = forecasts_of({"declared": rollouts(declared), "identified": rollouts(identified)}, "identified", "test")
    beside = ErrorBesideSignal(
        name="elbow", unit="rad", signal="sign(qd.elbow)", correlation=0.8, x=[-1, 1, 1], y=[-0.1, 0.1, None]
    )
    write_forecasts(run, curves, [beside])


def test_parts_stand_in_order_sentences_first(tmp_path: Path):
    with_curves(tmp_path)
    html = write_identification(tmp_path, figures()).read_text()
    page = check_self_contained(html)
    parts = [
        "Friction at elbow is 5.7 N m (5.5 to 5.9), declared 0.", "24 times better", "Verdict: warning", "log more",
        "The log beside the models", "A typical window", "The worst window", "Error over the horizon", "persistence",
        "What differs from the declaration", "elbow.friction", "1 quantity stays as declared",
        "What remains unexplained", "Error of elbow beside sign(qd.elbow)", "Remark",
    ]  # fmt: skip
    places = [page.text.index(part) for part in parts]
    assert places == sorted(places)
    assert html.count("<svg") == 4 + 1 + 2 + 1  # two windows of two joints, growth, two quantities, the rest
    for name in ("declared", "identified", "persistence", "constant velocity"):
        assert re.search(rf"<dt>{name}</dt><dd>\w+", html), name  # explained where it is met


def test_it_fits_a_phone_and_paper(tmp_path: Path):
    with_curves(tmp_path)
    html = write_identification(tmp_path, figures()).read_text()
    assert 'name="viewport" content="width=device-width' in html
    assert html.count("<table>") == html.count('<div class="scroll" tabindex="0"><table>')
    assert f'<td class="long">{REASON}</td>' in html  # wraps
    printed = html[html.index("@media print") :]
    for rule in ("break-inside: avoid", "overflow: visible", "white-space: normal"):
        assert rule in printed
    assert not re.search(r"<(svg|div|table|figure)[^>]* width=", html)


def test_a_run_without_curves_has_the_other_parts(tmp_path: Path):
    page = check_self_contained(write_identification(tmp_path, figures()).read_text())
    assert "The log beside the models" not in page.text
    for part in ("Error over the horizon", "What differs from the declaration", "What remains unexplained"):
        assert part in page.text


@pytest.mark.parametrize("broken", ["declared", "identified", "both"])
def test_roll_outs_that_diverge_leave_a_page(broken: str, tmp_path: Path):
    nan = float("nan")
    with_curves(tmp_path, nan if broken != "identified" else 1.0, nan if broken != "declared" else 0.1)
    result = figures()
    errors = {name: {GROUP: [None]} for name in ("declared", "identified") if broken in (name, "both")}
    rungs = [
        msgspec.structs.replace(one, errors=errors[one.name], test={}, finite_fraction=0.0)
        if one.name in errors
        else one
        for one in result.rungs
    ]
    result = msgspec.structs.replace(result, rungs=rungs, verdict="fails: it diverges", unexplained=[])
    page = check_self_contained(write_identification(tmp_path, result).read_text())
    assert "The log beside the models" in page.text
    assert "Verdict: fails" in page.text


def test_quantities_without_intervals_or_priors_are_drawn_beside_their_declared_values(tmp_path: Path):
    bare = IdentifiedParameter(name="elbow.mass", value=1.3, interval=None, nominal=1.0, why_not="no", unit="kg")
    result = IdentificationFigures(robot="arm", parameters=[bare], converged=False, reason="out of time")
    page = check_self_contained(write_identification(tmp_path, result).read_text())
    assert "about 1.3 kg" in page.text
    assert "the change relative to the declared value" in page.text
    assert "did not converge (out of time)" in page.text

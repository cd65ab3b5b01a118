# SPDX-License-Identifier: Apache-2.0
"""Curves that pages draw from: which windows are shown, what is not finite, and reading them back."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.identify.ladder.forecasts import FILE, beside_signals, forecasts_of, read_forecasts, write_forecasts
from neurodyn.identify.result import UnexplainedCoordinate

SPEC = StateSpec(
    robot="two", controls=("turn",), dt=0.01,
    joints=(JointSpec(name="turn", kind="revolute", continuous=True), JointSpec(name="slide", kind="prismatic")),
)  # fmt: skip
WINDOWS, FRAMES = 5, 400


def errors(*sizes: float) -> RolloutErrors:
    """Roll-outs whose errors grow in time to a size of each window; the joint turns by more than once."""
    time = torch.linspace(0.0, 1.0, FRAMES + 1, dtype=torch.float64)
    q = torch.stack([torch.remainder(9.0 * time + math.pi, 2 * math.pi) - math.pi, time], -1).expand(WINDOWS, -1, 2)
    off = torch.tensor(sizes, dtype=torch.float64)[:, None, None] * time[:, None]
    return RolloutErrors(SPEC, Trajectory(q + off, torch.zeros_like(q)), Trajectory(q, torch.zeros_like(q)))


def test_the_typical_and_the_worst_window_are_the_chosen_models():
    declared, fitted = errors(*[0.5] * WINDOWS), errors(0.1, 0.4, 0.2, 0.3, 0.0)
    curves = forecasts_of({"declared": declared, "identified": fitted}, "identified", "test")
    typical, worst = curves.windows
    assert (typical.which, worst.which) == ("typical", "worst")
    assert typical.paths["identified"][1][-1] == pytest.approx(1.2)
    assert worst.paths["identified"][1][-1] == pytest.approx(1.4)
    assert worst.logged[0][-1] == pytest.approx(9.0, abs=1e-3)  # beyond a turn
    assert len(curves.seconds) <= 161
    assert curves.seconds[-1] == pytest.approx(4.0)
    growth = curves.growth["joints [rad or m]"]
    assert set(growth) == {"declared", "identified", "hold-last", "constant-velocity"}
    assert growth["identified"][-1] == pytest.approx(0.2)
    assert growth["declared"][-1] == pytest.approx(0.5)


def test_roll_outs_that_diverge_are_the_worst_and_leave_gaps(tmp_path: Path):
    fitted = errors(0.1, 0.4, 0.2, 0.3, 0.0)
    broken = fitted.predicted.q.clone()
    broken[2, 200:] = math.inf
    fitted = replace(fitted, predicted=Trajectory(broken, fitted.predicted.qd))
    curves = forecasts_of({"declared": errors(*[math.nan] * WINDOWS), "identified": fitted}, "identified", "test")
    assert curves.windows[1].paths["identified"][1][-1] is None
    assert curves.windows[0].paths["declared"][0][-1] is None
    assert set(curves.growth["joints [rad or m]"]["declared"]) == {None}
    write_forecasts(tmp_path, curves)
    assert read_forecasts(tmp_path) == curves
    assert read_forecasts(tmp_path / "older") is None
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(InputError):
        read_forecasts(tmp_path)


def test_errors_stand_beside_the_signal_that_they_go_with_most():
    q, qd, control = (torch.randn(50, n, k, dtype=torch.float64) for n, k in ((2, 2), (2, 2), (1, 1)))
    windows = Windows(q, qd, control)
    rest = [
        UnexplainedCoordinate(name="slide", error=1.0, noise=0.1, touching=None, air=None, with_signals={}),
        UnexplainedCoordinate(
            name="turn", error=1.0, noise=0.1, touching=None, air=None, with_signals={"sign(qd.turn)": 0.9}
        ),
    ]
    (one,) = beside_signals(SPEC, windows, qd[:, 0], rest)
    assert (one.name, one.unit, one.signal, one.correlation) == ("turn", "rad", "sign(qd.turn)", 0.9)
    assert set(one.x) == {-1.0, 1.0}
    assert one.y == pytest.approx(qd[:, 0, 0].tolist(), rel=1e-4)

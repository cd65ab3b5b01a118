# SPDX-License-Identifier: Apache-2.0
"""Means and percentiles against sums done by hand; and a metric that is added shows in JSON, tables and pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from neurodyn.cli.terminal.results import print_evaluation
from neurodyn.data.header import Split
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.rollout_errors import RolloutErrors, horizons_up_to
from neurodyn.evaluate import METRICS, Metric
from neurodyn.evaluate.logged import beside_log
from neurodyn.evaluate.metrics import percentiles, summarise
from neurodyn.report.gather import ReportMaterial
from neurodyn.report.write import render_report
from neurodyn.robots import Robot
from tests.evaluate.test_tosses import CUBE, Coasting, coasting_store


def compared(robot: Robot, errors: torch.Tensor) -> RolloutErrors:
    """Roll-outs of a cartpole that are off by `errors`, shape [worlds, T, 2]."""
    q = torch.cat([torch.zeros(len(errors), 1, 2), errors], 1)
    return RolloutErrors.of(
        robot, Trajectory(q, torch.zeros_like(q)), Trajectory(torch.zeros_like(q), torch.zeros_like(q))
    )


def test_a_summary_is_the_mean_over_frames_up_to_the_horizon_and_over_worlds(cartpole: Robot):
    found = summarise(compared(cartpole, torch.arange(24.0).view(2, 6, 2) / 100), 3).plain()
    joint = (0.01 + 0.03 + 0.05 + 0.13 + 0.15 + 0.17) / 6
    assert found["base_position_m"] == pytest.approx((0.00 + 0.02 + 0.04 + 0.12 + 0.14 + 0.16) / 6)
    assert found["joint_rad"] == pytest.approx(joint)
    assert found["base_orientation_rad"] == 0.0
    assert found["joints"] == pytest.approx({"hinge": joint})
    assert found["joint_rad_percentiles"] == pytest.approx({"10": 0.03 + 0.012, "50": 0.09, "90": 0.15 - 0.012})
    assert "base_orientation_rad_percentiles" not in found
    assert found["at"] == pytest.approx({"base_position_m": (0.04 + 0.16) / 2, "joint_rad": (0.05 + 0.17) / 2})


def test_no_world_has_no_error_instead_of_a_good_one(cartpole: Robot):
    found = summarise(compared(cartpole, torch.full((2, 6, 2), torch.nan)), 3).plain()
    assert found["joint_rad"] is None
    assert found["joint_rad_percentiles"] == {"10": None, "50": None, "90": None}
    assert percentiles(torch.zeros(0)) == {"10": None, "50": None, "90": None}


@pytest.mark.parametrize(
    ("frames", "marks"), [(5, [5]), (10, [10]), (120, [10, 100, 120]), (1000, [10, 100, 500, 1000])]
)
def test_horizons_go_as_far_as_the_rollout(frames: int, marks: list[int]):
    assert horizons_up_to(frames) == marks


@pytest.fixture
def spin() -> Iterator[None]:
    """A metric of one's own: how far the angular velocity of a base is off."""

    def compute(c: RolloutErrors) -> torch.Tensor:
        return (c.predicted.qd - c.truth.qd)[:, 1:, 3:].norm(dim=-1, keepdim=True)

    METRICS.add("base_spin_rad_s", Metric("rad/s", "Base spin", compute))
    yield
    METRICS.remove("base_spin_rad_s")


def test_a_metric_that_is_added_shows_in_json_tables_and_pages(spin: None, capsys: pytest.CaptureFixture[str]):
    def spun(found: Trajectory) -> Trajectory:
        qd = found.qd.clone()
        qd[..., 5] += 0.0321
        return Trajectory(found.q, qd)

    result = beside_log(Coasting(spun), CUBE, coasting_store(), split=Split.TEST, horizon=10)  # type: ignore[arg-type]
    found = result.plain()
    assert found["base_spin_rad_s"] == pytest.approx(0.0321, rel=1e-3)
    assert set(found["by_horizon"]["10"]["base_spin_rad_s_percentiles"]) == {"10", "50", "90"}
    assert found["baselines"]["hold_last"]["10"]["base_spin_rad_s"] == pytest.approx(0.0, abs=1e-6)
    assert found["curve"]["base_spin_rad_s"]["mean"] == pytest.approx([0.0321] * 10, rel=1e-3)
    print_evaluation(result)
    assert "Base spin, from all starts" in capsys.readouterr().out
    page = render_report(ReportMaterial(Path("run"), "run", result, robot=CUBE))
    assert "Base spin, from all starts" in page
    assert "32.1 mrad/s" in page

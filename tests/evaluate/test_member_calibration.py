# SPDX-License-Identifier: Apache-2.0
"""Verdicts on members of neural dynamics follow from their errors, wherever the truth comes from."""

from dataclasses import replace

import pytest
import torch
from msgspec import UNSET

from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State, Trajectory
from neurodyn.dynamics.rollouts import ControlSequence, RolloutBatch, follow
from neurodyn.evaluate import beside_log
from neurodyn.evaluate.calibration import ColumnErrors, coverage_at, member_calibration, ranks_at
from neurodyn.report.accuracy import member_tables
from tests import plant

STARTS, FRAMES = 3000, 3


def members(count: int = 3):
    return plant.make_model("mlp", torch.float32, members=count).requires_grad_(False)


def errors(scale: float) -> ColumnErrors:
    """Errors drawn from a known deviation, which differs from start to start, and is said to be `scale` as large."""
    deviation = 0.5 * torch.rand(STARTS, 1, 1).expand(-1, FRAMES, 4) + 0.05
    error = torch.zeros(STARTS, FRAMES + 1, 4)
    error[:, 1:] = deviation * torch.randn(STARTS, FRAMES, 4)
    turns = torch.zeros(STARTS, FRAMES + 1, 2)
    turns[..., 1] = 2 * torch.pi  # of the angle, which make no difference
    path = Trajectory(error[..., :2] + turns, error[..., 2:], epistemic=scale * deviation)
    return ColumnErrors.of(members(), path, Trajectory(torch.zeros_like(turns), torch.zeros_like(turns)))


def test_coverage_and_ranks_are_those_of_the_drawn_errors():
    right, narrow = coverage_at(errors(1.0), 2), coverage_at(errors(0.25), 2)
    assert right.one_sigma == pytest.approx(0.683, abs=0.01)
    assert right.two_sigma == pytest.approx(0.954, abs=0.01)
    assert narrow.two_sigma is not None
    assert narrow.two_sigma < 0.45
    found = errors(1.0)
    assert (ranks_at(found, 3).epistemic_rank or 0) > 0.5
    path = replace(found.compared.predicted, epistemic=found.epistemic.flip(0))
    other = ColumnErrors.of(members(), path, found.compared.truth)
    assert abs(ranks_at(other, 3).epistemic_rank or 1) < 0.1


def test_a_log_measures_members_and_says_nothing_of_one_network(plant_store: Store):
    found = beside_log(members(), plant.robot(), plant_store, split=Split.TEST, horizon=10)
    assert found.calibration is not UNSET
    assert found.calibration.members == 3
    assert list(found.calibration.coverage) == ["1", "10"]
    assert list(found.plain()["calibration"]["unlike"]) == ["usual_median", "1.5", "2", "3"]
    assert [table.title for table in member_tables({"from all starts": found.calibration})] == [
        "3 members beside their errors, from all starts", "States beyond the data, from all starts",
    ]  # fmt: skip
    single = beside_log(members(1), plant.robot(), plant_store, split=Split.TEST, horizon=10)
    assert single.calibration is UNSET
    assert "calibration" not in single.plain()


def test_under_a_controller_each_member_is_driven_by_its_own_state():
    model, state = members(), plant.make_states(4, torch.float32)
    target = torch.zeros(4, 6, 1)
    gains = torch.full((4, 1), 5.0)
    path = follow(model, RolloutBatch(state, ControlSequence(target=target, kp=gains, kd=gains)))
    assert path.epistemic is not None
    ends = []
    for member in range(3):
        carry, now = model.begin(state, members=torch.full((4,), member), alone=True), state
        for frame in range(6):
            carry, step = model.step(carry, now, ControlSequence(target=target, kp=gains, kd=gains).at(frame))
            now = step.state
        ends.append(torch.cat([now.q, now.qd], -1))
    torch.testing.assert_close(path.epistemic[:, -1], torch.stack(ends).std(0), rtol=1e-4, atol=1e-6)


def test_deviation_grows_where_members_differ_in_how_they_continue():
    model = members()
    for parameter in model.predictor.parameters():
        parameter.zero_()
    model.predictor.skip.weight[1, -2] = 1.0  # one member feels a velocity that the others do not
    state = State(torch.zeros(50, 2), torch.randn(50, 2))
    path = model.rollout(state, torch.zeros(50, 4, 1))
    starts = RolloutBatch(state, ControlSequence(torque=torch.zeros(50, 4, 1)))
    found = member_calibration(model, path, path, starts)
    assert found is not UNSET
    assert found.out_of_distribution.by_factor["3"].ratio > 1.2
    assert found.out_of_distribution.by_factor["3"].chance_above_usual > 0.55

# SPDX-License-Identifier: Apache-2.0
"""When the loop stops, and what it says of what it found."""

import json

import msgspec
import pytest
import torch

from neurodyn.control.returns import Returns
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.policy.online_learning.loop import line
from neurodyn.policy.online_learning.record import (
    FittedModel,
    LoggedPolicy,
    PolicyComparison,
    Round,
    TrainedPolicy,
    best_of,
    has_settled,
    model_error,
    read_round,
    verdict,
)
from neurodyn.policy.online_learning.rounds import EarlierRounds
from neurodyn.policy.trust.support import PolicySupport
from tests import plant


def returns(mean: float, failed: float = 0.0) -> Returns:
    return Returns(dynamics="x", mean=mean, std=1.0, length=10.0, episodes=4, failed=failed)


def made(number: int, imagined: float, real: float, failed: float = 0.0) -> Round:
    log = LoggedPolicy(
        path=f"{number}.h5", frames=40, returns=returns(real, failed), noisy=returns(real), cpu_seconds=1.0
    )
    return Round(
        number=number,
        model=FittedModel(run="m", cpu_seconds=1.0),
        policy=TrainedPolicy(folder="p", frames=10, cpu_seconds=1.0),
        log=log,
        measured=PolicyComparison(returns=returns(imagined), model_error=0.1),
    )


def test_one_round_says_nothing_about_progress():
    assert not has_settled([made(1, 100.0, 100.0)], 0.05)


@pytest.mark.parametrize(
    ("imagined", "real", "stops"),
    [(104.0, 101.0, True), (101.0, 104.0, True), (120.0, 101.0, False), (112.0, 110.0, False), (60.0, 60.0, True)],
)
def test_a_loop_stops_where_model_and_reference_agree_and_nothing_is_gained(imagined, real, stops):
    assert has_settled([made(1, 130.0, 100.0), made(2, imagined, real)], 0.05) is stops


def test_patience_survives_a_round_without_progress():
    still = [made(1, 130.0, 100.0), made(2, 101.0, 100.0)]
    assert not has_settled(still, 0.05, 2)
    assert has_settled([*still, made(3, 102.0, 101.0)], 0.05, 2)
    assert not has_settled([*still, made(3, 151.0, 150.0)], 0.05, 2)
    assert not has_settled([made(1, 130.0, 100.0), made(2, 151.0, 150.0), made(3, 149.0, 149.0)], 0.05, 2)


def test_gaps_of_negative_returns_are_relative_to_their_size():
    assert made(1, -95.0, -100.0).gap == pytest.approx(0.05)
    assert has_settled([made(1, -300.0, -100.0), made(2, -100.0, -98.0)], 0.05)
    assert not has_settled([made(1, -300.0, -100.0), made(2, -52.0, -50.0)], 0.05)


def test_the_verdict_is_that_of_the_best_policy_in_the_reference():
    rounds = [made(1, 110.0, 100.0), made(2, 500.0, 90.0)]
    assert best_of(rounds).number == 1
    assert verdict(rounds, 0.05, "analytic").startswith("warning: the policy of round 1 returns 100 in analytic")
    assert verdict(rounds, 0.1, "analytic").startswith("ok: ")


def test_what_cannot_be_used_is_reported():
    assert verdict([made(1, 4855.0, 440.0)], 0.05, "analytic").startswith("fails: ")
    assert "every episode in analytic fails" in verdict([made(1, 10.0, 10.0, failed=1.0)], 0.05, "analytic")


def test_a_loop_with_logs_of_the_robot_does_not_blame_its_model():
    rounds = [made(1, 3000.0, 1000.0)]
    assert verdict(rounds, 0.05, "analytic").startswith("fails: ")
    blamed = verdict(rounds, 0.05, "analytic", simulated=True)
    assert blamed.startswith("warning: ")
    assert "exploits" not in blamed


def test_a_round_is_read_as_it_was_written(tmp_path):
    path, one = tmp_path / "round.json", made(3, 2.0, 1.0)
    path.write_text(json.dumps(one.plain()))
    assert read_round(path, 3) == one
    assert read_round(tmp_path / "none.json", 4) == Round(number=4)
    support = PolicySupport(9.0, 2.0, "a member held out", 0.8, 0.4)
    early = msgspec.structs.replace(
        one, policy=TrainedPolicy(folder="p", frames=10, cpu_seconds=1.0, updates=4, of_updates=60, support=support)
    )
    path.write_text(json.dumps(early.plain()))
    assert read_round(path, 3) == early
    assert "training ended after 4 of 60 updates (imagined return 9, a member held out 2" in line(early, 50)
    path.write_text('{"number": 3, "model": 5}')
    with pytest.raises(InputError, match="not the record of a round"):
        read_round(path, 3)


def test_shares_of_random_data_and_of_logs():
    assert EarlierRounds(("r.h5",), ()).shares(0.3) is None
    assert EarlierRounds((), (made(1, 1.0, 1.0),)).shares(0.3) is None
    assert EarlierRounds(("r.h5",), (made(1, 1.0, 1.0),)).shares(0.3) == pytest.approx((0.3, 0.7))
    three = tuple(made(number, 1.0, 1.0) for number in (1, 2, 3))
    known = EarlierRounds(("r.h5", "s.h5"), three)
    assert known.data == ("r.h5", "s.h5", "1.h5", "2.h5", "3.h5")
    assert known.shares(0.3) == pytest.approx((0.15, 0.15, 0.175, 0.175, 0.35))
    assert EarlierRounds((), three).shares(0.3) == pytest.approx((0.25, 0.25, 0.5))
    assert EarlierRounds((), three).shares(0.3, 0.4) == pytest.approx((0.3, 0.3, 0.4))
    assert EarlierRounds((), three).shares(0.3, 0.1) == pytest.approx((1 / 3,) * 3)  # never less than an earlier one


def test_forecasts_that_are_not_finite_are_counted_and_left_out(plant_store: Store):
    def spoil(q, qd):
        qd[: len(qd) // 4] = torch.inf
        return q, 0.5 * qd

    error, finite = model_error(plant.PlantDynamics(spoil), plant_store)
    assert 0.7 < finite < 0.8
    sound, _ = model_error(plant.PlantDynamics(lambda q, qd: (q, 0.5 * qd)), plant_store)
    assert error == pytest.approx(sound, rel=0.3)
    assert model_error(plant.PlantDynamics(lambda q, qd: (q, qd * torch.nan)), plant_store) == (None, 0.0)

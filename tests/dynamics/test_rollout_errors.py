# SPDX-License-Identifier: Apache-2.0
"""Errors of roll-outs: counted where they are not finite, and compared beyond the spread over blocks."""

import math
from dataclasses import replace

import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.data.windows import Blocks
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.rollout_errors import Ranking, RolloutErrors, compare_rollouts, judge
from tests import plant

SPEC = plant.robot().spec
BLOCKS = Blocks(torch.arange(24) // 4, 6, True)


def compared(size: float, seed: int, broken: int = 0) -> RolloutErrors:
    """Roll-outs of 24 worlds with normal errors of a size, the first `broken` of them not finite."""
    generator = torch.Generator().manual_seed(seed)
    truth = Trajectory(torch.zeros(24, 5, 2), torch.zeros(24, 5, 2))
    q, qd = (size * torch.randn(24, 5, 2, generator=generator) for _ in range(2))
    q[:broken, -1] = torch.nan
    return RolloutErrors(SPEC, Trajectory(q, qd), truth, ("slider",))


def test_what_is_not_finite_is_counted_and_left_out_of_the_means():
    errors = compared(0.1, 0, broken=6)
    assert errors.finite_fraction == 0.75
    expected = errors.errors[6:].double().mean((0, 1)).tolist()
    assert list(errors.mean_errors().values()) == pytest.approx(expected)
    assert set(compared(0.1, 0, broken=24).mean_errors().values()) == {None}


def test_channels_that_are_not_finite_count_where_they_are_compared():
    plain = compared(0.1, 0)
    channels = torch.zeros(24, 5, 1)
    truth = replace(plain.truth, channels=channels)
    broken = channels.clone()
    broken[:6, -1] = torch.nan
    errors = replace(plain, predicted=replace(plain.predicted, channels=broken), truth=truth)
    assert errors.finite.tolist() == [False] * 6 + [True] * 18
    assert torch.isfinite(errors.columns[errors.finite]).all()
    assert plain.finite.all()


def test_what_is_not_finite_ranks_last_for_any_error():
    sound, worse, broken = (
        Ranking.of(torch.tensor([3.0, 5.0])),
        Ranking(0.0, 1e9),
        Ranking.of(torch.tensor([1.0, math.nan])),
    )
    assert sound == (0.0, 4.0)
    assert broken == (0.5, 1.0)
    assert sound < worse < broken < Ranking.of(torch.tensor([math.inf, math.nan])) == (1.0, math.inf)


@pytest.mark.parametrize(
    ("size", "broken", "kept", "reason"),
    [
        ((1.0, 0.5), (0, 0), True, "better beyond the spread over 6 logs"),
        ((1.0, 1.0), (0, 0), False, "not better beyond the spread over 6 logs"),
        ((1.0, 0.1), (0, 6), False, "25% of its roll-outs are not finite, 0% of those below"),
        ((1.0, 2.0), (6, 0), True, "0% of its roll-outs are not finite, 25% of those below"),
        ((1.0, 0.1), (6, 6), True, "better beyond the spread over 5 logs"),
        ((1.0, 1.0), (24, 24), False, "no roll-out is finite"),
    ],
)
def test_a_model_is_kept_if_it_is_better_by_more_than_chance(size, broken, kept, reason):
    below, above = (compared(s, seed, b) for seed, (s, b) in enumerate(zip(size, broken, strict=True)))
    judgement = judge(below, above, (1, 4), BLOCKS)
    assert judgement.kept == kept
    assert reason in judgement.reason


@pytest.mark.parametrize(("size", "kept"), [(0.94, True), (0.96, False)])
def test_few_blocks_give_no_spread_and_a_model_is_kept_if_it_is_clearly_better(size, kept):
    two = Blocks(torch.arange(24) // 12, 2, False)
    judgement = judge(compared(0.1, 0), compared(0.1 * size, 0), (4,), two)
    assert judgement.kept == kept
    assert judgement.share == pytest.approx(size, rel=1e-4)
    assert judgement.reason.endswith("in 2 stretches of logs: too few to tell a spread")


def test_groups_are_base_and_joints():
    errors = compared(1.0, 0)
    assert (errors.groups.base, errors.groups.angles) == ((0,), (1,))
    assert errors.columns.shape == (24, 4, 4)
    assert errors.baseline("hold_last").errors.abs().max() == 0.0  # the truth rests


def test_a_truth_of_other_worlds_or_too_short_is_refused():
    errors = compared(1.0, 0)
    labels = {"predicted_label": "model", "truth_label": "log"}
    with pytest.raises(InputError, match=r"truth\.q has shape"):
        compare_rollouts(SPEC, errors.predicted, errors.truth.rows(slice(0, 3)), **labels)
    with pytest.raises(InputError, match="or more states"):
        compare_rollouts(SPEC, errors.predicted, errors.truth.until(2), **labels)
    assert compare_rollouts(SPEC, errors.predicted.until(2), errors.truth, **labels).frames == 2

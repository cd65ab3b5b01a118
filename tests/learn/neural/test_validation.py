# SPDX-License-Identifier: Apache-2.0
"""Validation rolls out along held-out episodes, and only those."""

import dataclasses

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.data.header import Split
from neurodyn.data.split import chosen_episodes
from neurodyn.data.store import Store
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.validation import SATURATION, RolloutValidation, rank, saturate
from tests import plant


def test_a_perfect_model_scores_zero(plant_store: Store, quick: Settings):
    error = RolloutValidation(plant_store, quick).measure(plant.PlantDynamics())
    assert error.ranking == (0.0, 0.0)
    assert error.q == error.qd == (0.0, 0.0)


def test_errors_are_means_in_the_units_of_the_state(plant_store: Store, quick: Settings):
    off = plant.PlantDynamics(lambda q, qd: (q + torch.tensor([0.1, -0.2]), qd + torch.tensor([0.3, 0.0])))
    error = RolloutValidation(plant_store, quick).measure(off)
    assert error.q == pytest.approx((0.1, 0.2), rel=1e-4)
    assert error.qd == pytest.approx((0.3, 0.0), rel=1e-4)
    rows = np.repeat(chosen_episodes(plant_store, Split.TRAIN), plant_store.lengths + 1)
    q, qd = plant_store.q[rows], plant_store.qd[rows]
    spread = [q[:, 0].std(ddof=1), q[:, 1].std(ddof=1), qd[:, 0].std(ddof=1)]
    assert error.ranking.error == pytest.approx((0.1 / spread[0] + 0.2 / spread[1] + 0.3 / spread[2]) / 4, rel=1e-3)


def test_a_whole_turn_of_a_continuous_joint_is_no_error(plant_store: Store, quick: Settings):
    turned = plant.PlantDynamics(lambda q, qd: (q + torch.tensor([0.0, 2 * torch.pi]), qd))
    assert RolloutValidation(plant_store, quick).measure(turned).q[1] < 1e-5


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_rollout_that_is_not_finite_is_counted_and_left_out_of_the_means(
    value: float, plant_store: Store, quick: Settings
):
    def spoil(q, qd):
        q[0, -1, 0] = value
        return q, qd

    error = RolloutValidation(plant_store, quick).measure(plant.PlantDynamics(spoil))
    assert error.ranking == (pytest.approx(1 / quick.validation_rollouts), 0.0)
    assert error.q == error.qd == (0.0, 0.0)


def test_errors_of_finite_rollouts_saturate():
    errors = saturate(torch.tensor([1.0, 1e9, torch.inf, torch.nan]))
    assert errors[:2].tolist() == [1.0, SATURATION]
    assert not errors[2:].isfinite().any()


def test_history_comes_before_what_is_scored(plant_store: Store, quick: Settings):
    phases = (Phase(share=1, rate=1e-3, batch=4, forecast=4, context=7),)
    validation = RolloutValidation(plant_store, msgspec.structs.replace(quick, phases=phases))
    assert validation.measure(plant.PlantDynamics()).ranking == (0.0, 0.0)
    for kind in plant.NETS:
        coasting = plant.make_model(kind, torch.float32)
        coasting.predictor.denormaliser.std.zero_()
        assert 0.0 < validation.measure(coasting).ranking.error < 10.0


def test_training_episodes_have_no_say(plant_store: Store, quick: Settings):
    """What is done to the training episodes' motions leaves errors on held-out episodes as they are."""
    frames = plant_store.frames.copy()
    for episode in plant_store.episodes(Split.TRAIN):
        rows = slice(plant_store.offsets[episode], plant_store.offsets[episode + 1])
        frames[rows] = frames[rows][::-1]
    model = plant.PlantDynamics(lambda q, qd: (1.1 * q, 0.9 * qd))
    mangled = dataclasses.replace(plant_store, frames=frames)
    assert RolloutValidation(mangled, quick).measure(model).q == RolloutValidation(plant_store, quick).measure(model).q


def test_a_model_on_a_whole_base_must_be_better_on_average_and_in_most_rollouts():
    base = torch.tensor([1e-5, 1e-5, 1e-5, 2.0])
    assert rank(base, base).error == pytest.approx(float(base.mean()))
    assert rank(torch.tensor([1e-5, 1e-5, 1e-5, 1.0]), base).error < base.mean()
    spoilt = torch.tensor([0.02, 0.02, 0.02, 1.0])
    assert spoilt.mean() < base.mean() < rank(spoilt, base).error
    assert rank(spoilt, None).error == pytest.approx(float(spoilt.mean()))
    diverging = torch.tensor([0.1, 0.1, 0.1, 4.0])  # better in most roll-outs, worse on average
    assert rank(diverging, torch.tensor([0.5, 0.5, 0.5, 2.0])).error > 0.875
    harmless = torch.tensor([2e-5, 2e-5, 2e-5, 1.0])  # what is negligible makes no difference
    assert rank(harmless, base).error < base.mean()
    broken = torch.tensor([1e-5, 1e-5, torch.nan, 1e-5])  # what is not finite ranks last
    assert rank(broken, base).broken == 0.25
    assert rank(broken, base) > rank(spoilt, base)

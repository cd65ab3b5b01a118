# SPDX-License-Identifier: Apache-2.0
"""Evaluation beside logs: prediction k meets recorded state k, which a known system proves."""

import dataclasses

import numpy as np
import pytest

from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.evaluate.logged import beside_log
from tests import plant


def score(model, store: Store, **options) -> dict:
    return beside_log(model, plant.robot(), store, **{"split": Split.TEST, "horizon": 20, **options}).plain()


def with_context(frames: int) -> plant.PlantDynamics:
    model = plant.PlantDynamics()
    model.spec = model.spec.with_context(frames)
    return model


def shifted_control(store: Store, frames: int) -> Store:
    """The same motions, with the control recorded a frame early or late."""
    rows = store.frames.copy()
    rows[:, 4] = np.roll(rows[:, 4], frames)
    return dataclasses.replace(store, frames=rows)


@pytest.mark.parametrize("context", [0, 7])
def test_the_known_system_has_no_error_at_all(context: int, plant_store: Store):
    found = score(with_context(context), plant_store)
    assert found["joint_rad"] == found["base_position_m"] == 0.0
    assert found["at_horizon"]["all"]["20"]["model"]["qd_mean"] == 0.0
    assert found["finite_fraction"] == 1.0
    assert found["context_frames"] == context


@pytest.mark.parametrize("frames", [-1, 1])
def test_a_control_that_is_off_by_one_frame_is_clearly_seen(frames: int, plant_store: Store):
    found = score(plant.PlantDynamics(), shifted_control(plant_store, frames))
    assert found["at_horizon"]["all"]["20"]["model"]["qd"][0] > 0.02


def test_baselines_start_from_the_same_state_as_the_model(plant_store: Store):
    """At the first frame, holding the last state is off by one frame's motion."""
    found = score(with_context(3), plant_store, horizon=1)
    (episodes,) = (plant_store.episodes(Split.TEST),)
    moved = []
    for episode in episodes:
        q, _, _ = plant_store.episode(episode)
        moved.append(np.abs(np.diff(q[3:], axis=0)).mean(0))
    entry = found["at_horizon"]["all"]["1"]
    np.testing.assert_allclose(entry["hold_last"]["q"], np.mean(moved, axis=0), rtol=1e-5)


def test_all_starts_of_a_split_are_used(plant_store: Store):
    tests = len(plant_store.episodes(Split.TEST))
    found = score(plant.PlantDynamics(), plant_store)
    assert found["rollouts"] == tests * (50 - 20 + 1)
    assert found["episodes"] == tests
    assert score(with_context(5), plant_store)["rollouts"] == tests * (50 - 25 + 1)
    assert score(plant.PlantDynamics(), plant_store, split=None)["episodes"] == 60


def test_fewer_starts_are_spread_over_all_episodes(plant_store: Store):
    found = score(plant.PlantDynamics(), plant_store, rollouts=24)
    assert found["rollouts"] <= 24
    assert sum(group["starts"] for group in found["groups"].values()) == found["rollouts"]
    assert set(found["groups"]) <= {"even", "odd"}


def test_the_default_horizon_is_half_a_second(plant_store: Store):
    found = score(plant.PlantDynamics(), plant_store, horizon=None)
    assert found["horizon"] == 30
    assert list(found["by_horizon"]) == ["6", "15", "30"]


def test_moving_windows_are_picked_by_the_recorded_speed(plant_store: Store):
    still = plant_store.frames.copy()
    still[:, 2:4] = 0.0
    found = score(plant.PlantDynamics(), dataclasses.replace(plant_store, frames=still))
    assert found["at_horizon"]["moving"] == {"starts": 0}
    assert found["at_horizon"]["all"]["starts"] > 0

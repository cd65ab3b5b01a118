# SPDX-License-Identifier: Apache-2.0
"""What every evaluation promises: its JSON keys, roll-outs that are not finite, and episodes that are too short."""

import json
from collections.abc import Callable

import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.dynamics.batch import Trajectory
from neurodyn.evaluate.logged import beside_log
from neurodyn.evaluate.world_model import forecast_log
from tests import plant, worlds
from tests.evaluate.test_tosses import CUBE, Coasting, coasting_store

PROMISED = {
    "robot", "kind", "horizon", "rollouts", "seed", "base_position_m", "base_orientation_rad", "by_horizon",
    "finite_fraction", "env_steps_per_second", "teacher",
}  # fmt: skip


def logged(store, change=None, **options) -> dict:
    """A fixed-base robot along its log; `change` maps predicted positions and velocities to others."""
    return beside_log(
        plant.PlantDynamics(change), plant.robot(), store, **{"split": Split.TEST, "horizon": 20, **options}
    ).plain()


def tossed(_, change=None, **options) -> dict:
    """A floating robot along its log."""
    options = {"split": Split.TEST, "horizon": 10, **options}
    spoil = None if change is None else lambda path: Trajectory(*change(path.q, path.qd))
    return beside_log(Coasting(spoil), CUBE, coasting_store(), **options).plain()  # type: ignore[arg-type]


def forecast(_, change=None, **options) -> dict:
    """A world model; a change of its predictions makes all of them infinite."""
    model = worlds.exact_model()
    if change is not None:
        with torch.no_grad():
            model.shift[0] = torch.inf
    return forecast_log(model, worlds.make_store(), **{"split": Split.TEST, "horizon": 20, **options}).plain()


EVALUATIONS: dict[str, tuple[Callable[..., dict], str, int]] = {
    "logged": (logged, "joint_rad", 60),
    "tossed": (tossed, "base_position_m", 80),
    "forecast": (forecast, "joint_m", 70),
}
"""Each evaluation, the error that it always has, and a horizon longer than its episodes."""


@pytest.fixture(params=EVALUATIONS)
def evaluation(request) -> tuple[Callable[..., dict], str, int]:
    return EVALUATIONS[request.param]


def test_the_json_has_what_the_command_line_promises(evaluation, plant_store):
    run, error, _ = evaluation
    found = run(plant_store)
    assert PROMISED | {error} <= set(found)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["finite_fraction"] == 1.0


@pytest.mark.parametrize(
    ("name", "everywhere"),
    [("logged", False), ("logged", True), ("tossed", False), ("tossed", True), ("forecast", True)],
)
def test_roll_outs_that_are_not_finite_are_counted_and_left_out(name, everywhere, plant_store):
    run, error, _ = EVALUATIONS[name]

    def spoil(q, qd):
        q[slice(None) if everywhere else slice(0, 1), -1] = torch.nan
        return q, qd

    found = run(plant_store, spoil)
    assert found["finite_fraction"] == (0.0 if everywhere else pytest.approx(1 - 1 / found["rollouts"]))
    assert found[error] is None if everywhere else found[error] < 1e-6
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("frames", [-1, 1])
def test_predictions_that_are_off_by_one_frame_are_seen(frames, plant_store):
    def shift(q, qd):
        return q.roll(frames, 1), qd.roll(frames, 1)

    assert logged(plant_store, shift)["by_horizon"]["20"]["joint_rad"] > 0.02
    assert tossed(plant_store, shift)["base_position_m"] > 1e-3


def test_episodes_that_are_too_short_are_bad_input(evaluation, plant_store):
    run, _, horizon = evaluation
    with pytest.raises(InputError, match=f"window of {horizon} frames"):
        run(plant_store, horizon=horizon)

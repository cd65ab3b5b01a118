# SPDX-License-Identifier: Apache-2.0
"""Evaluation beside the simulator: the simulator itself has no error, and nothing crashes on a bad model."""

import json

import msgspec
import pytest
import torch

from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Step, Trajectory
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.rollouts import RolloutBatch
from neurodyn.evaluate.metrics import touches_limit
from neurodyn.evaluate.simulated import beside_simulator, both, draw_starts
from neurodyn.robots import Robot
from neurodyn.robots.sections import Gains

pytest.importorskip("newton")
HORIZON, ROLLOUTS = 120, 6


class Wrapped(AnalyticDynamics):
    """The simulator in the place of the model, spoiled on demand."""

    kind, network = "neural", "teacher"

    def __init__(self, robot: Robot, spoil=None, **options) -> None:
        super().__init__(robot, **options)
        self._spoil = spoil

    def parameters(self):
        return iter(())

    def rollout(self, context, controls, environment=None):
        found = super().rollout(context, controls, environment)
        if self._spoil is not None:
            self._spoil(found)
        return found


def evaluate(model: Wrapped, robot: Robot, **options) -> dict:
    return beside_simulator(model, robot, **options).plain()


def roll_out(
    model: Wrapped, robot: Robot, frames: int, count: int, seed: int, *, driven: bool
) -> tuple[RolloutBatch, Trajectory]:
    """Return the starts, and what the simulator does from there."""
    starts = draw_starts(robot, frames, count, seed, driven=driven)
    return starts, both(model, robot, starts)[1].path


@pytest.fixture(scope="module")
def perfect(cartpole: Robot) -> dict:
    return evaluate(Wrapped(cartpole), cartpole, horizon=HORIZON, rollouts=ROLLOUTS)


def test_the_simulator_beside_itself_has_no_error(perfect: dict):
    for entry in (perfect, perfect["driven"], *perfect["by_horizon"].values()):
        assert entry["base_position_m"] == 0.0
        assert entry["joint_rad"] == 0.0
    assert perfect["finite_fraction"] == 1.0
    assert perfect["energy"]["model"] == perfect["energy"]["teacher"]


def test_the_report_has_what_the_command_line_promises(perfect: dict):
    promised = {
        "robot", "kind", "horizon", "rollouts", "seed", "base_position_m", "base_orientation_rad", "joint_rad",
        "by_horizon", "finite_fraction", "env_steps_per_second", "teacher",
    }  # fmt: skip
    assert promised <= set(perfect)
    assert list(perfect["by_horizon"]) == ["10", "100", "120"]
    assert {"base_position_m", "base_orientation_rad", "joint_rad"} <= set(perfect["by_horizon"]["10"])
    assert perfect["env_steps_per_second"] > 0
    assert json.loads(json.dumps(perfect, allow_nan=False)) == perfect


def test_baselines_are_far_off_where_the_simulator_moves(perfect: dict):
    held, moving = perfect["baselines"]["hold_last"], perfect["baselines"]["constant_velocity"]
    assert held["100"]["joint_rad"] > 0.3
    # Over ten frames a falling pole still goes on at nearly its speed.
    assert moving["10"]["joint_rad"] < held["10"]["joint_rad"] * 1.1
    assert moving["10"]["base_position_m"] < held["10"]["base_position_m"]


def test_a_coarser_integrator_has_an_error_that_grows(cartpole: Robot):
    found = evaluate(Wrapped(cartpole, substeps=1), cartpole, horizon=HORIZON, rollouts=ROLLOUTS)
    by_horizon = found["by_horizon"]
    assert 0 < by_horizon["10"]["joint_rad"] < by_horizon["100"]["joint_rad"]
    assert found["joint_rad"] == by_horizon[str(HORIZON)]["joint_rad"]


def test_the_seed_decides_the_rollouts(cartpole: Robot):
    first, again, other = (roll_out(Wrapped(cartpole), cartpole, 5, 3, seed, driven=True)[1].q for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_rollouts_that_leave_the_finite_are_counted_and_left_out(value: float, cartpole: Robot):
    def spoil(found: Trajectory) -> None:
        if found.q.shape[1] > 50:
            found.q[0, 50:, 1] = value

    found = evaluate(Wrapped(cartpole, spoil), cartpole, horizon=60, rollouts=ROLLOUTS)
    assert found["finite_fraction"] == pytest.approx(1 - 1 / ROLLOUTS)
    assert found["joint_rad"] == 0.0
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("value", [torch.nan, 1e30])
def test_a_model_that_diverges_everywhere_is_reported(value: float, cartpole: Robot):
    def spoil(found: Trajectory) -> None:
        found.q[:, 1:] = value
        found.qd[:, 1:] = value

    found = evaluate(Wrapped(cartpole, spoil), cartpole, horizon=20, rollouts=4)
    if value != value:
        assert found["finite_fraction"] == 0.0
        assert found["joint_rad"] is None
        assert found["energy"]["model"] is None
    else:
        assert found["base_position_m"] > 1e29
    json.dumps(found, allow_nan=False)


def test_the_reference_errors_are_the_simulators_own(perfect: dict, cartpole: Robot):
    floors = perfect["floors"]
    assert floors["rollouts"] == ROLLOUTS
    finer = evaluate(
        Wrapped(cartpole, substeps=2 * cartpole.simulator.substeps), cartpole, horizon=20, rollouts=ROLLOUTS
    )
    assert floors["twice_substeps"]["10"]["joint_rad"] == pytest.approx(finer["by_horizon"]["10"]["joint_rad"])
    first = floors["perturbed_1e-6"]["10"]
    assert 2e-7 < first["joint_rad"] < 2e-5
    assert 2e-7 < first["base_position_m"] < 2e-6
    assert evaluate(Wrapped(cartpole), cartpole, horizon=5, rollouts=2, references=0)["floors"] is None


def test_a_robot_declares_its_horizon(cartpole: Robot):
    short = msgspec.structs.replace(cartpole, evaluation_horizon=13)
    assert evaluate(Wrapped(short), short, rollouts=2, references=0, driven=False)["horizon"] == 13
    assert cartpole.evaluation_horizon == 1000


def test_a_robot_with_gains_is_held_by_its_own_controller(cartpole: Robot):
    held = msgspec.structs.replace(
        cartpole,
        gains=Gains(kp=(500.0, 900.0), kd=(80.0, 90.0), spread=0.2, hold=(700.0, 100.0)),
        nominal={"slider": 0.4},
    )
    starts, found = roll_out(Wrapped(held), held, 400, 4, 1, driven=False)
    # The cart comes to rest at the nominal place; without a controller it would roll on.
    assert found.q[:, -60:, 0].sub(0.4).abs().max() < 0.35
    same, free = roll_out(Wrapped(cartpole), cartpole, 400, 4, 1, driven=False)
    assert torch.equal(same.past.q, starts.past.q)
    assert free.q[:, -60:, 0].sub(0.4).abs().max() > 1.0


def test_the_controller_sees_the_models_own_state(cartpole: Robot):
    held = msgspec.structs.replace(cartpole, gains=Gains(kp=(1.0, 1.0), kd=(0.0, 0.0), spread=0.2, hold=(700.0, 100.0)))

    class Still(Wrapped):
        """A cart that nothing moves."""

        torques: list

        def step(self, carry, state, control):
            self.torques.append(frame_torque(self.spec, state, control))
            return carry, Step(state)

    model = Still(held)
    model.torques = []
    starts, done = roll_out(model, held, 5, 3, 1, driven=False)
    expected = -700.0 * starts.past.q[:, :1] - 100.0 * starts.past.qd[:, :1]
    for torque in model.torques:
        torch.testing.assert_close(torque, expected)
    assert not torch.allclose(done.q[:, -1], starts.past.q, atol=1e-3)


def test_touching_a_limit_is_seen_within_the_horizon_only(cartpole: Robot):
    q = torch.zeros(3, 11, 2)
    q[0, 4, 0], q[1, 8, 0] = 4.0, -4.1
    truth = Trajectory(q, torch.zeros_like(q))
    assert touches_limit(cartpole.spec, truth, 10).tolist() == [True, True, False]
    assert touches_limit(cartpole.spec, truth, 5).tolist() == [True, False, False]

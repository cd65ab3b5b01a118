# SPDX-License-Identifier: Apache-2.0
"""The analytic solver behind the common interface: stateless, and free of gradients."""

import pytest
import torch

from neurodyn.core.description.scene import Plane, Scene
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Control, Environment, State, Window
from neurodyn.geometry.ground import Ground
from neurodyn.robots import load
from tests import plant

pytest.importorskip("newton")
WORLDS, FRAMES = 4, 6


@pytest.fixture(scope="module")
def analytic() -> AnalyticDynamics:
    return AnalyticDynamics(plant.robot())


def states(seed: int) -> State:
    return plant.make_states(WORLDS, torch.float32, seed)


def torques(seed: int) -> torch.Tensor:
    return 500.0 * plant.make_torques(WORLDS, FRAMES, torch.float32, seed)


def test_interleaving_two_batches_does_not_matter(analytic: AnalyticDynamics):
    one, two = states(1), states(2)
    alone = [analytic.rollout(one, torques(3)), analytic.rollout(two, torques(4))]
    carries = [analytic.begin(one), analytic.begin(two)]
    present = [one, two]
    for t in range(FRAMES):
        for which, control in enumerate((torques(3), torques(4))):
            carries[which], step = analytic.step(carries[which], present[which], Control(torque=control[:, t]))
            present[which] = step.state
            assert torch.equal(step.state.q, alone[which].q[:, t + 1])
            assert torch.equal(step.state.qd, alone[which].qd[:, t + 1])


def test_a_step_returns_memory_of_its_own(analytic: AnalyticDynamics):
    carry = analytic.begin(states(1))
    _, first = analytic.step(carry, states(1), Control(torque=torques(3)[:, 0]))
    kept = first.state.q.clone()
    analytic.step(carry, states(2), Control(torque=torques(4)[:, 0]))
    assert torch.equal(first.state.q, kept)


def test_history_and_resets_mean_nothing_to_a_complete_state(analytic: AnalyticDynamics):
    present = states(1)
    window = Window(
        torch.stack([states(5).q, present.q], 1), torch.stack([states(5).qd, present.qd], 1), torch.zeros(WORLDS, 1, 1)
    )
    plain = analytic.rollout(present, torques(3))
    assert torch.equal(analytic.rollout(window, torques(3)).q, plain.q)
    carry = analytic.reset(analytic.begin(window), states(7), torch.tensor([True, False, True, False]))
    _, step = analytic.step(carry, present, Control(torque=torques(3)[:, 0]))
    assert torch.equal(step.state.q, plain.q[:, 1])


def test_states_that_ask_for_gradients_get_none_and_leave_no_trace(analytic: AnalyticDynamics):
    tracked = State(states(1).q.requires_grad_(), states(1).qd)
    carry = analytic.begin(tracked)
    _, step = analytic.step(carry, tracked, Control(torque=torques(3)[:, 0].requires_grad_()))
    assert not step.state.q.requires_grad
    _, after = analytic.step(carry, states(1), Control(torque=torques(3)[:, 0]))
    assert not after.state.q.requires_grad
    assert torch.equal(after.state.q, step.state.q)


def test_the_gravity_that_is_asked_for_acts(analytic: AnalyticDynamics):
    at_rest = State(torch.tensor([[0.0, torch.pi / 2]]).repeat(WORLDS, 1), torch.zeros(WORLDS, 2))
    still = torch.zeros(WORLDS, FRAMES, 1)
    none = analytic.rollout(at_rest, still, Environment(gravity=torch.zeros(3)))
    torch.testing.assert_close(none.q[:, -1], at_rest.q, rtol=0, atol=1e-6)
    half = Environment(gravity=torch.tensor([0.0, 0.0, -9.81 / 2]))
    fallen, slow = analytic.rollout(at_rest, still), analytic.rollout(at_rest, still, half)
    ratio = slow.qd[:, 1, 1] / fallen.qd[:, 1, 1]
    torch.testing.assert_close(ratio, torch.full((WORLDS,), 0.5), rtol=1e-3, atol=0)


def test_pd_targets_are_the_torques_that_they_mean(analytic: AnalyticDynamics):
    state = states(1)
    target, kp, kd = torch.full((WORLDS, 1), 0.3), torch.tensor([500.0]), torch.tensor([20.0])
    torque = kp * (target - state.q[:, :1]) - kd * state.qd[:, :1]
    carry = analytic.begin(state)
    _, driven = analytic.step(carry, state, Control(target=target, kp=kp, kd=kd))
    _, direct = analytic.step(carry, state, Control(torque=torque))
    assert torch.equal(driven.state.qd, direct.state.qd)


def falling_cubes() -> State:
    q = torch.tensor([[0, 0, 0.3, 0, 0, 0, 1.0]]).repeat(WORLDS, 1)
    return State(q, torch.zeros(WORLDS, 6))


def lifted(height: float) -> torch.Tensor:
    pose = torch.zeros(WORLDS, 7)
    pose[:, 2], pose[:, 6] = height + 0.01 * torch.arange(WORLDS), 1.0
    return pose


def test_carries_keep_their_grounds_and_gravities_when_they_take_turns():
    cube = AnalyticDynamics(load("cube"))
    ground = Ground(scene=Scene(shapes=(Plane(),)))
    start, still = falling_cubes(), torch.zeros(WORLDS, 60, 0)
    environments = [
        Environment(ground=ground.at_pose(lifted(0.0))),
        Environment(ground=ground.at_pose(lifted(0.1)), gravity=torch.tensor([0.0, 0.0, -20.0])),
        Environment(),
        Environment(ground=ground),
    ]
    alone = [cube.rollout(start, still, environment) for environment in environments]
    carries = [cube.begin(start, environment) for environment in environments]
    environments[0].ground.pose.add_(5.0)  # type: ignore[union-attr]  # what a caller does later is not the carry's
    present = [start] * len(carries)
    for frame in range(60):
        for which, carry in enumerate(carries):
            _, step = cube.step(carry, present[which], Control())
            present[which] = step.state
            assert torch.equal(step.state.q, alone[which].q[:, frame + 1])
    half = 0.0524
    torch.testing.assert_close(alone[0].q[:, -1, 2], lifted(0.0)[:, 2] + half, rtol=0, atol=1e-3)
    torch.testing.assert_close(alone[1].q[:, -1, 2], lifted(0.1)[:, 2] + half, rtol=0, atol=1e-3)
    torch.testing.assert_close(alone[3].q[:, -1, 2], torch.full((WORLDS,), half), rtol=0, atol=1e-3)
    assert (alone[2].q[:, -1, 2] < -0.2).all()


def test_more_substeps_converge(analytic: AnalyticDynamics):
    state, control = states(1), torques(3)
    finest = AnalyticDynamics(plant.robot(), substeps=160).rollout(state, control).q
    errors = [
        float((AnalyticDynamics(plant.robot(), substeps=n).rollout(state, control).q - finest).abs().mean())
        for n in (10, 20)
    ]
    assert errors[1] < 0.6 * errors[0]

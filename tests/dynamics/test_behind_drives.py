# SPDX-License-Identifier: Apache-2.0
"""Drives in front of dynamics that take torques."""

import msgspec
import pytest
import torch

from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import Control, Environment, State, Window
from neurodyn.dynamics.behind_drives import DynamicsBehindDrives
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.geometry.ground import Ground
from neurodyn.multibody.engine import EngineConfig
from neurodyn.tasks.task import reset_states
from tests.multibody import machines

F64 = torch.float64
DRIVES = {
    "shoulder": Drive(kind="pd", kp=4.0, kd=0.2, delay=0.012),
    "elbow": Drive(kind="pd", kp=3.0, kd=0.1, lag=0.01, effort_limit=1.0),
}


def plain() -> HybridDynamics:
    mechanism = machines.pendulum()
    return HybridDynamics(machines.spec(mechanism, ("shoulder", "elbow")), mechanism, EngineConfig(substeps=10))


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return 0.5 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def test_it_is_dynamics_of_targets():
    made = DynamicsBehindDrives(plain(), DRIVES)
    assert isinstance(made, Dynamics)
    assert made.spec.control_kind == "target"
    assert made.spec.context == 3
    assert made.differentiable


def test_it_moves_as_drives_in_every_step_do():
    made, mechanism = DynamicsBehindDrives(plain(), DRIVES), msgspec.structs.replace(machines.pendulum(), drives=DRIVES)
    inside = HybridDynamics(made.spec, mechanism, EngineConfig(substeps=10))
    state, targets = State(drawn(3, 2), drawn(3, 2, seed=1)), drawn(3, 1, 2, seed=2).expand(3, 10, 2)
    found, wanted = made.rollout(state, targets), inside.rollout(state, targets)
    moved = float((wanted.q[:, -1] - state.q).abs().mean())
    assert float((found.q - wanted.q).abs().max()) < 0.05 * moved


def test_steps_windows_and_resets_carry_the_drives():
    made = DynamicsBehindDrives(plain(), DRIVES)
    state, targets = State(drawn(2, 2), drawn(2, 2, seed=1)), drawn(2, 8, 2, seed=2)
    path = made.rollout(state, targets)
    carry = made.begin(state)
    for frame in range(4):
        carry, step = made.step(carry, state, Control(target=targets[:, frame]))
        state = step.state
    torch.testing.assert_close(state.q, path.q[:, 4])
    window = Window(path.q[:, :5], path.qd[:, :5], targets[:, :4])
    torch.testing.assert_close(made.rollout(window, targets[:, 4:]).q, path.q[:, 4:])
    again = made.reset(carry, state, torch.tensor([True, False]))
    assert not again.memory[0].any()
    assert torch.equal(again.memory[1], carry.memory[1])


def test_worlds_that_have_not_moved_start_over_with_what_a_window_leaves():
    in_front = DynamicsBehindDrives(plain(), DRIVES)
    inside = HybridDynamics(in_front.spec, msgspec.structs.replace(machines.pendulum(), drives=DRIVES), EngineConfig())
    for made in (in_front, inside):
        window = Window(drawn(2, 5, 2), drawn(2, 5, 2, seed=1), drawn(2, 4, 2, seed=2))
        carry = made.reset(made.begin(window.present), window, torch.tensor([True, False]))
        assert torch.equal(carry.memory[0], made.begin(window).memory[0])
        assert not carry.memory[1].any()


def test_gradients_reach_commands_and_states():
    made = DynamicsBehindDrives(plain(), DRIVES)

    def end(targets, q):
        return made.rollout(State(q, drawn(1, 2, seed=1)), targets).q[:, -1]

    given = [drawn(1, 4, 2, seed=2).requires_grad_(True), drawn(1, 2).requires_grad_(True)]
    assert torch.autograd.gradcheck(end, given, eps=1e-6, atol=1e-6, rtol=1e-4)


def test_a_floating_base_is_seen_as_by_the_dynamics_behind_the_drives():
    model = load("pretrained:anymal-c")
    made = DynamicsBehindDrives(model, {name: Drive(kind="pd", kp=80.0, kd=2.0) for name in model.spec.controls})
    state = reset_states(model.robot, 3, torch.Generator().manual_seed(0))
    turning = State(state.q - torch.eye(19)[2], torch.ones_like(state.qd))  # 1 m lower, its feet in the ground
    home = Environment(ground=Ground(model.robot.named_ground()))
    found, wanted = made.quantities(turning, environment=home), model.quantities(turning, environment=home)
    assert set(found) == set(wanted)
    for name in ("base_linear_velocity", "projected_gravity", "contact"):
        assert torch.equal(found[name], wanted[name])
    assert made.quantities(turning)["projected_gravity"].shape == (3, 3)
    assert found["contact"].any()
    assert model.contact_points is not None
    assert made.contact_points is model.contact_points


def test_members_take_turns_where_a_policy_acts():
    made, seen = DynamicsBehindDrives(plain(), DRIVES), []
    inner = made.dynamics
    inner.imagine = lambda context, environment, *, uncertainty: seen.append(uncertainty) or inner.begin(context)
    state = State(drawn(2, 2), drawn(2, 2, seed=1))
    made.step(made.imagine(state, uncertainty=True), state, Control(target=drawn(2, 2)))
    assert seen == [True]


@pytest.mark.parametrize(
    ("drives", "said"),
    [
        ({"hip": Drive()}, "there is no driven joint 'hip'; valid: elbow, shoulder"),
        ({"elbow": Drive(bias=0.1)}, "'elbow' has a bias"),
    ],
)
def test_drives_that_cannot_be_are_refused(drives, said):
    with pytest.raises(InputError, match=said):
        DynamicsBehindDrives(plain(), drives)


def test_dynamics_of_targets_have_their_drives_already():
    with pytest.raises(InputError, match="take targets, so that their drives are in them"):
        DynamicsBehindDrives(DynamicsBehindDrives(plain(), DRIVES), {})

# SPDX-License-Identifier: Apache-2.0
"""Members of neural dynamics: whom a world follows, on what they disagree, alone or together, compiled or in torch."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control, State, Window
from neurodyn.dynamics.ensemble import MARKS, Groups
from neurodyn.dynamics.neural.model import NEURAL, ModelConfig, ModelSpec, NeuralDynamics, build_model
from tests import plant

MEMBERS, MANY = 3, 20
KINDS = ["mlp", "gru"]


def ensemble(kind: str, dtype: torch.dtype = torch.float64) -> NeuralDynamics:
    return plant.make_model(kind, dtype, members=MEMBERS).requires_grad_(False)


def apart(model: NeuralDynamics) -> list[NeuralDynamics]:
    """Return models of which each one's members are all the same member of another."""
    found = []
    for member in range(model.members):
        other = copy.deepcopy(model)
        for parameter in other.parameters():
            parameter.copy_(parameter[member].clone().expand_as(parameter))
        found.append(other)
    return found


def history(worlds: int, frames: int = 3) -> Window:
    q, qd = (torch.randn(worlds, frames + 1, 2, dtype=torch.float64) for _ in range(2))
    return Window(q, qd, plant.make_torques(worlds, frames))


def joined(state: State) -> Tensor:
    return torch.cat([state.q, state.qd], -1)


@pytest.mark.parametrize("worlds", [2, MANY])
@pytest.mark.parametrize("kind", KINDS)
def test_a_world_follows_its_member_and_knows_how_far_all_are_apart(kind: str, worlds: int):
    model, past = ensemble(kind), history(worlds)
    control = Control(torque=plant.make_torques(worlds, 1)[:, 0])
    each = [m.step(m.begin(past), past.present, control)[1].state for m in apart(model)]
    states = torch.stack([joined(state) for state in each])
    member = torch.arange(worlds) % MEMBERS
    _, step = model.step(model.begin(past, members=member), past.present, control)
    torch.testing.assert_close(joined(step.state), states[member, torch.arange(worlds)])
    assert step.epistemic is not None
    torch.testing.assert_close(step.epistemic, states.std(0))
    _, mean = model.step(model.begin(past), past.present, control)
    torch.testing.assert_close(joined(mean.state), states.mean(0))  # nothing turns in the plant
    torch.testing.assert_close(mean.epistemic, states.std(0))


@pytest.mark.parametrize("advance", ["step", "step_"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_member_alone_goes_where_it_goes_beside_the_others(kind: str, advance: str):
    model, past = ensemble(kind), history(MANY)
    member = torch.tensor([0, 0, 2, 1, 2] * (MANY // 5))  # not as many worlds for each
    paths = []
    for alone in (False, True):
        carry, state = model.begin(past, members=member, alone=alone), past.present
        for t, torque in enumerate(plant.make_torques(MANY, 6).unbind(1)):
            carry, step = getattr(model, advance)(carry, state, Control(torque=torque))
            state = step.state
            assert (step.epistemic is None) == alone
            if t == 2:  # some worlds begin anew
                carry = model.reset(carry, history_like(past), torch.arange(MANY) % 4 == 0)
        paths.append(joined(state))
    torch.testing.assert_close(*paths)


def history_like(past: Window) -> Window:
    return Window(past.q.flip(0), past.qd.flip(0), past.torque.flip(0))


@pytest.mark.parametrize("worlds", [1, 5, MANY])
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_steps_are_those_of_torch(kind: str, worlds: int):
    model, dtype = ensemble(kind, torch.float32), torch.float32
    state, control = plant.make_states(worlds, dtype), Control(torque=plant.make_torques(worlds, 1, dtype)[:, 0])
    _, fast = model.step(model.begin(state), state, control)
    tracked = State(state.q.clone().requires_grad_(), state.qd)
    _, slow = model.step(model.begin(state), tracked, control)
    assert slow.state.q.requires_grad
    assert slow.epistemic is not None
    assert slow.epistemic.requires_grad
    torch.testing.assert_close(joined(fast.state), joined(slow.state).detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(fast.epistemic, slow.epistemic.detach(), rtol=1e-4, atol=1e-6)
    frame = model.fixed_frame(worlds, model.home, state.q)
    for own, given in ((frame.q, state.q), (frame.qd, state.qd), (frame.torque, control.torque)):
        own.copy_(given)
    frame.run()
    torch.testing.assert_close(torch.cat([frame.q_next, frame.qd_next], -1), joined(fast.state))


def test_a_compiled_network_uses_changed_weights_of_any_member():
    model, state = ensemble("mlp", torch.float32), plant.make_states(1, torch.float32)
    control = Control(torque=torch.zeros(1, 1))
    before = joined(model.step(model.begin(state), state, control)[1].state)
    model.predictor.net.output_layer.weight[2].mul_(2.0)
    in_place = joined(model.step(model.begin(state), state, control)[1].state)
    assert not torch.equal(before, in_place)
    other = copy.deepcopy(model)  # whose weights lie elsewhere
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(joined(other.step(other.begin(state), state, control)[1].state), in_place)
    model.predictor.net.layers[0].weight = torch.nn.Parameter(
        model.predictor.net.layers[0].weight.contiguous(), requires_grad=False
    )  # lies as the kernel cannot read it: torch takes over
    torch.testing.assert_close(joined(model.step(model.begin(state), state, control)[1].state), in_place)


def test_a_rollout_is_that_of_the_steps_and_says_where_the_members_would_be_by_themselves():
    model, state, torques = ensemble("gru"), plant.make_states(5), plant.make_torques(5, 12)
    found = model.rollout(state, torques)
    carry, now = model.begin(state), state
    for torque in torques.unbind(1):
        carry, step = model.step_(carry, now, Control(torque=torque))
        now = step.state
    torch.testing.assert_close(found.q[:, -1], now.q)
    alone = torch.stack([torch.cat([p.q, p.qd], -1) for p in (m.rollout(state, torques) for m in apart(model))])
    torch.testing.assert_close(found.epistemic, alone.std(0)[:, 1:], rtol=1e-6, atol=1e-9)
    model.calibration_scales.copy_(2.0 * torch.ones(len(MARKS), 4))
    torch.testing.assert_close(model.rollout(state, torques).epistemic, 2.0 * found.epistemic)


def test_gradients_reach_states_controls_and_weights():
    model, control = ensemble("mlp"), plant.make_torques(2, 1)[:, 0]
    q = plant.make_states(2).q

    def epistemic(q: Tensor, torque: Tensor) -> Tensor:
        state = State(q, torch.ones_like(q))
        step = model.step(model.begin(state), state, Control(torque=torque))[1]
        assert step.epistemic is not None
        return torch.cat([joined(step.state), step.epistemic], -1)

    assert torch.autograd.gradcheck(epistemic, (q.requires_grad_(), control.requires_grad_()))


def test_members_survive_the_file_and_old_files_have_one(tmp_path):
    model = ensemble("mlp", torch.float32)
    config = ModelConfig(
        kind="neural", net=plant.NETS["mlp"], encoding=model.encoding.config, robot="cartpole", members=3
    )
    made = build_model(config, ModelSpec(state=plant.robot().spec, fingerprint=None))
    made.load_state_dict(model.state_dict())
    made.state_scale.copy_(torch.arange(1.0, 5.0))
    NEURAL.save(tmp_path / "run", made)
    found, (state, torques) = NEURAL.load(tmp_path / "run"), (plant.make_states(4, torch.float32), torch.ones(4, 3, 1))
    assert (found.members, found.network, found.uncertain) == (3, "mlp", True)
    assert torch.equal(found.epistemic_scale, torch.arange(1.0, 5.0))
    assert torch.equal(
        found.rollout(state, torques).epistemic, made.requires_grad_(False).rollout(state, torques).epistemic
    )
    single = NEURAL.load("pretrained:cartpole")  # whose file does not speak of members
    assert (single.members, single.uncertain, single.epistemic_scale) == (1, False, None)


@pytest.mark.parametrize("member", [[0, 1, 2, 0, 1, 2], [0, 0, 1, 1, 2, 2], [2, 2, 0, 2, 2, 1], [1, 1, 1, 1, 1, 1]])
def test_groups_move_rows_to_their_members_and_back(member: list[int]):
    groups, x = Groups.of(torch.tensor(member), MEMBERS), torch.arange(12.0).view(6, 2)
    gathered = groups.gather(x)
    assert torch.equal(groups.scatter(gathered), x)
    for m in range(MEMBERS):
        wanted = x[torch.tensor(member) == m]
        assert torch.equal(gathered[m, : len(wanted)], wanted)
    assert groups.in_order == (member == sorted(member) and len(set(member)) == MEMBERS)


def test_imagined_worlds_take_turns_and_stay_with_their_member():
    model, state = ensemble("mlp"), plant.make_states(7)
    carry = model.imagine(state, uncertainty=True)
    assert carry.groups is None
    assert carry.member.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert model.imagine(state).groups is not None
    after = model.reset(carry, state, torch.ones(7, dtype=torch.bool))
    assert after.member.tolist() == carry.member.tolist()
    assert replace(after, memory=None) == replace(carry, memory=None)


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_member_is_held_out_from_imagination(kind: str):
    model = ensemble(kind)
    trains, judge, name = model.hold_out() or pytest.fail("nothing is held out")
    assert name == "a member held out"
    assert trains.imagine(history(5)).member.tolist() == [0, 1, 0, 1, 0]
    carry = judge.imagine(history(5))
    assert carry.member.tolist() == [2] * 5
    mask = torch.tensor([True, False, True, False, False])
    assert judge.reset(carry, history(5), mask).member.tolist() == [2] * 5
    assert model.imagine(history(4)).member.tolist() == [0, 1, 2, 0]  # the model itself stays as it is
    assert plant.make_model(kind, members=2).hold_out() is None


def test_a_silent_network_reads_nothing():
    model, state = ensemble("mlp"), plant.make_states(4)
    control = Control(torque=plant.make_torques(4, 1)[:, 0])
    inputs = model.network_inputs(state, control)
    assert inputs is not None
    assert inputs.shape == (4, model.encoding.inputs)
    model.predictor.silence()
    assert model.network_inputs(state, control) is None

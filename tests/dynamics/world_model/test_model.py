# SPDX-License-Identifier: Apache-2.0
"""World models as dynamics: history per world, members of their own, bands, and what is refused."""

import pytest
import torch

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, Environment, State, Window
from neurodyn.dynamics.ensemble import MARKS, between_marks
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.world_model.model import WorldModel
from tests import worlds

W, T = 7, 6


def draw(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


def history(count: int = W, frames: int = T) -> Window:
    return Window(
        draw(count, frames + 1, 2), draw(count, frames + 1, 2), draw(count, frames, 2), draw(count, frames + 1, 1)
    )


def control(count: int = W) -> Control:
    return Control(torque=draw(count, 2))


@pytest.mark.parametrize("changes", [{}, {"trunk": "shared"}, {"kind": "mlp"}, {"members": 1}])
def test_it_is_dynamics(changes: dict):
    model = worlds.make_model(**changes)
    assert isinstance(model, Dynamics)
    _, step = model.step(model.begin(history()), history().present, control())
    assert step.state.q.shape == step.state.qd.shape == (W, 2)
    assert step.state.channels is not None
    assert step.state.channels.shape == (W, 1)
    for found in (step.epistemic, step.aleatoric):
        assert found is not None
        assert found.shape == (W, 5)
    assert step.contacts is not None
    assert step.termination is not None
    assert step.contacts.shape == (W, 1)
    assert step.termination.shape == (W,)
    assert (step.termination > 0).all()
    assert (step.termination < 1).all()


@pytest.mark.parametrize("changes", [{}, {"trunk": "shared"}, {"kind": "mlp"}])
def test_a_rollout_is_the_mean_of_what_members_do_alone(changes: dict):
    """Each member stepped on its own path, one world each, is what the roll-out averages."""
    model, past, torques = worlds.make_model(**changes), history(1), draw(1, 5, 2)
    paths = []
    for member in range(model.members):
        carry, state = model.begin(past, members=torch.tensor([member])), past.present
        states = []
        for torque in torques.unbind(1):
            carry, step = model.step(carry, state, Control(torque=torque))
            state = step.state
            states.append(model.observation.of_state(state))
        paths.append(torch.stack(states, 1))
    found = model.rollout(past, torques)
    joined = model.observation.join(found.q, found.qd, found.channels)[:, 1:]
    torch.testing.assert_close(joined, torch.stack(paths).mean(0), rtol=1e-4, atol=1e-5)
    assert found.epistemic is not None
    torch.testing.assert_close(found.epistemic, torch.stack(paths).std(0), rtol=1e-3, atol=1e-5)


def test_each_world_follows_its_member():
    model, past = worlds.make_model(), history(3)
    same = Window(*(x[:1].expand(3, *x.shape[1:]) for x in (past.q, past.qd, past.torque, past.channels)))
    now = Control(torque=draw(1, 2).expand(3, 2))
    _, step = model.step(model.begin(same, members=torch.tensor([0, 1, 1])), same.present, now)
    assert not torch.equal(step.state.q[0], step.state.q[1])
    torch.testing.assert_close(step.state.q[1], step.state.q[2])
    assert model.begin(same).member.tolist() == [0, 1, 2]


def test_a_carry_stays_valid():
    model, past = worlds.make_model(), history()
    carry = model.begin(past)
    first = model.step(carry, past.present, control())[1].state
    with torch.no_grad():
        model.step_(carry, past.present, Control(torque=5 + draw(W, 2)))
    torch.testing.assert_close(model.step(carry, past.present, control())[1].state.q, first.q, rtol=0, atol=0)


def test_reset_gives_a_full_history_where_asked_and_leaves_others_alone():
    model, past, other = worlds.make_model(), history(), history(W, T)
    carry, _ = model.step(model.begin(past), past.present, control())
    other = Window(*(x + 1 for x in (other.q, other.qd, other.torque, other.channels)))  # type: ignore[operator]
    mask = torch.tensor([True, False, True, False, False, False, True])
    after = model.reset(carry, other, mask)
    fresh = model.begin(other)
    for h, before, new in zip(after.hidden, carry.hidden, fresh.hidden, strict=True):
        assert torch.equal(h[:, ~mask], before[:, ~mask])
        torch.testing.assert_close(h[:, mask], new[:, mask])
        assert not torch.allclose(new[:, mask], before[:, mask])
    assert torch.equal(after.member[~mask], carry.member[~mask])
    assert torch.equal(after.member[mask], (carry.member[mask] + 1) % model.members)
    chosen = model.reset(carry, other, mask, members=torch.full((W,), 2))
    assert (chosen.member[mask] == 2).all()
    emptied = model.reset(carry, past.present, mask)
    assert not any(h[:, mask].any() for h in emptied.hidden)


def test_noise_is_scaled_by_the_predicted_spread():
    model, past = worlds.make_model(), history()
    carry = model.begin(past, members=torch.zeros(W, dtype=torch.long))
    plain = model.step(carry, past.present, control())[1]
    noisy = model.step(carry, past.present, control(), noise=torch.ones(W, 5))[1]
    shift = model.observation.of_state(noisy.state) - model.observation.of_state(plain.state)
    assert (shift > 0).all()
    model.calibration_scales.fill_(3.0)
    wide = model.step(carry, past.present, control(), noise=torch.ones(W, 5))[1]
    torch.testing.assert_close(
        model.observation.of_state(wide.state) - model.observation.of_state(plain.state),
        3 * shift,
        rtol=1e-3,
        atol=1e-5,
    )


def test_gradients_reach_states_and_controls():
    model = worlds.make_model().double().requires_grad_(False)
    past = history(2)
    given = [x.double() for x in (past.q, past.qd, past.torque, past.channels)]  # type: ignore[union-attr]

    def end(controls: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        path = model.rollout(Window(q, given[1], given[2], given[3]), controls)
        return torch.cat([path.q[:, -1], path.qd[:, -1]], -1)

    controls = draw(2, 3, 2).double().requires_grad_()
    assert torch.autograd.gradcheck(end, (controls, given[0].requires_grad_()))


def test_calibration_is_interpolated_between_its_marks():
    model = worlds.make_model()
    model.calibration_scales.copy_(torch.arange(1.0, len(MARKS) + 1)[:, None].expand(-1, 5))
    scales = between_marks(model.calibration_scales, 700)
    assert scales.shape == (700, 5)
    for row, mark in enumerate(MARKS):
        torch.testing.assert_close(scales[mark - 1, 0], torch.tensor(row + 1.0))
    assert 2.0 < scales[2, 0] < 3.0
    torch.testing.assert_close(scales[-1, 0], torch.tensor(float(len(MARKS))))


def test_bad_input_is_refused_in_one_line():
    model, past = worlds.make_model(), history()
    carry = model.begin(past)
    with pytest.raises(InputError, match="0 channels; valid: 2, 2 and 1"):
        model.begin(Window(past.q, past.qd, past.torque))
    with pytest.raises(InputError, match="2 in the last axis"):
        model.step(carry, past.present, Control(torque=torch.zeros(W, 3)))
    with pytest.raises(InputError, match="no environment"):
        model.begin(past, Environment(gravity=torch.tensor([0.0, 0.0, -1.6])))
    free = StateSpec(robot="r", joints=(JointSpec(name="base", kind="free"),), controls=(), dt=0.01)
    with pytest.raises(InputError, match="'base' is free"):
        WorldModel(free, worlds.SMALL)


def test_targets_are_targets_where_the_log_has_them():
    import msgspec

    spec = msgspec.structs.replace(worlds.SPEC, control_kind="target")
    torch.manual_seed(0)
    model, past = WorldModel(spec, worlds.SMALL), history()
    carry = model.begin(past)
    target = draw(W, 2)
    found = model.step(carry, past.present, Control(target=target, kp=torch.tensor(3.0)))[1]
    same = model.step(carry, past.present, Control(target=target))[1]
    torch.testing.assert_close(found.state.q, same.state.q)
    with pytest.raises(InputError, match="driven by targets"):
        model.step(carry, past.present, Control(torque=target))


def test_the_fast_path_is_the_tracked_one():
    model, past = worlds.make_model(), history()
    carry = model.begin(past)
    state = State(past.q[:, -1].requires_grad_(), past.qd[:, -1], past.present.channels)
    tracked = model.step(carry, state, control())[1].state
    with torch.no_grad():
        fast = model.step_(carry, state, control())[1].state
    torch.testing.assert_close(tracked.q, fast.q, rtol=0, atol=1e-6)

# SPDX-License-Identifier: Apache-2.0
"""One network for a family of robots: quantities of each world as inputs."""

import msgspec
import pytest
import torch

from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, Environment, State, Window, WorldParameters
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.neural import compiled
from neurodyn.dynamics.neural.encoding import Encoding
from neurodyn.dynamics.neural.model import NEURAL, NeuralDynamics
from neurodyn.geometry.ground import Ground
from neurodyn.nets.networks import NetConfig
from neurodyn.nets.predictor import build_predictor
from tests import plant
from tests.dynamics.neural.test_base_prediction import MECHANISM
from tests.dynamics.neural.test_base_prediction import encoding as free_encoding
from tests.dynamics.neural.test_compiled import draw
from tests.dynamics.neural.test_invariance import LAYOUT

WORLDS = 4
FLAT = Scene(shapes=(Plane(),))
NUMBERS = plant.draw_numbers(WORLDS).double()


def around(numbers=NUMBERS, names=tuple(plant.DECLARED)) -> Environment:
    return Environment(parameters=WorldParameters(names, numbers))


@pytest.fixture(scope="module", params=plant.NETS)
def model(request) -> NeuralDynamics:
    return plant.make_model(request.param, conditions=plant.CONDITIONS).requires_grad_(False)


def hopper(net: str = "gru") -> NeuralDynamics:
    """A floating robot on the ground, with a base motion that stays nominal."""
    made = free_encoding(LAYOUT)
    config = msgspec.structs.replace(made.config, conditions=plant.CONDITIONS)
    torch.manual_seed(0)
    encoding = Encoding(made.spec, config, LAYOUT, MECHANISM)
    predictor = build_predictor(NetConfig(kind=net, width=16, head=8), encoding.inputs, encoding.outputs)
    predictor.fit(torch.randn(300, encoding.inputs), 0.1 * torch.randn(300, encoding.outputs))
    for weight in predictor.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return NeuralDynamics(encoding, predictor).double().requires_grad_(False)


def grounded(worlds: int, numbers: torch.Tensor) -> tuple[State, Control, Environment]:
    state, control, environment = draw(worlds)
    own = WorldParameters(tuple(plant.DECLARED), numbers)
    return state, control, Environment(environment.gravity, environment.ground, own)


def test_gradients_are_those_of_finite_differences(model):
    state, torques = plant.make_states(WORLDS), plant.make_torques(WORLDS, 6)
    past = Window(state.q[:, None].repeat(1, 3, 1), state.qd[:, None].repeat(1, 3, 1), torques[:, :2])

    def path(numbers: torch.Tensor) -> torch.Tensor:
        return model.rollout(past, torques[:, 2:], around(numbers)).q[:, -1]

    numbers = NUMBERS.clone().requires_grad_()
    assert torch.autograd.gradcheck(path, (numbers,), eps=1e-5, atol=1e-7)
    (gradient,) = torch.autograd.grad(path(numbers).sum(), numbers)
    assert (gradient.abs() > 1e-9).all()


def test_gradients_of_a_robot_on_the_ground():
    model, (state, control, _) = hopper(), draw(3)
    numbers = plant.draw_numbers(3).double().requires_grad_()

    def path(numbers: torch.Tensor) -> torch.Tensor:
        flat = Environment(ground=Ground(FLAT), parameters=WorldParameters(tuple(plant.DECLARED), numbers))
        return model.rollout(state, control.torque[:, None].repeat(1, 2, 1), flat).qd[:, -1]

    assert torch.autograd.gradcheck(path, (numbers,), eps=1e-5, atol=1e-6)


def test_worlds_without_their_own_have_the_models(model):
    state, torques = plant.make_states(WORLDS), plant.make_torques(WORLDS, 3)
    usual = model.rollout(state, torques)
    declared = torch.tensor(list(plant.DECLARED.values()), dtype=torch.float64)
    assert torch.equal(model.rollout(state, torques, around(declared.expand(WORLDS, 2))).q, usual.q)
    assert torch.equal(model.rollout(state, torques, around(declared[None])).q, usual.q)
    lengths = Environment(parameters={"hinge.length": torch.linspace(0.7, 1.6, WORLDS, dtype=torch.float64)})
    whole = torch.stack([declared[0].expand(WORLDS), lengths.parameters.numbers[:, 0]], 1)
    assert torch.equal(model.rollout(state, torques, lengths).q, model.rollout(state, torques, around(whole)).q)
    other = model.with_conditions({"hinge.length": 1.3})
    assert [one.value for one in other.conditions] == [20.0, 1.3]
    same = around(torch.tensor([[20.0, 1.3]], dtype=torch.float64))
    assert torch.allclose(other.rollout(state, torques).q, model.rollout(state, torques, same).q, atol=1e-7)
    assert not torch.equal(other.rollout(state, torques).q, usual.q)


def test_unknown_quantities_are_refused(model):
    state = plant.make_states(WORLDS)
    with pytest.raises(InputError, match=r"'hinge.mass'; valid: hinge.length, slider.damping"):
        model.begin(state, Environment(parameters={"hinge.mass": torch.ones(WORLDS)}))
    with pytest.raises(InputError, match="'mass'"):
        model.with_conditions({"mass": 1.0})
    with pytest.raises(InputError, match="--conditions"):
        Dynamics.require_parameters(model, ("hinge.mass",))


@pytest.mark.parametrize("worlds", [3, compiled.NETWORK_WORLDS + 1])
def test_compiled_steps_read_what_is_edited_in_place(worlds):
    model, numbers = hopper(), plant.draw_numbers(worlds).double()
    state, control, environment = grounded(worlds, numbers)
    carry = model.begin(state, environment)

    def torch_step() -> State:
        given = State(state.q.clone().requires_grad_(), state.qd)
        return model.step(carry, given, control)[1].state

    before = model.step(carry, state, control)[1].state
    assert torch.allclose(before.qd, torch_step().qd, rtol=1e-10, atol=1e-10)
    numbers[0] = torch.tensor([40.0, 0.7])
    after = model.step(carry, state, control)[1].state
    assert torch.allclose(after.qd, torch_step().qd, rtol=1e-10, atol=1e-10)
    assert not torch.equal(after.qd[0], before.qd[0])
    assert torch.equal(after.qd[1:], before.qd[1:])


@pytest.mark.parametrize("net", ["gru", "transformer"])
def test_fixed_frames_take_them_over(net):
    model, numbers = hopper(net), plant.draw_numbers(3).double()
    state, control, environment = grounded(3, numbers)
    frame = model.fixed_frame(3, model.resolve_environment(environment), state.q)

    def run() -> torch.Tensor:
        frame.reset(None)
        frame.refresh()
        for own, given in ((frame.q, state.q), (frame.qd, state.qd), (frame.torque, control.torque)):
            own.copy_(given)
        frame.run()
        return frame.qd_next.clone()

    for _ in range(2):
        expected = model.step(model.begin(state, environment), state, control)[1].state.qd
        assert torch.allclose(run(), expected, rtol=1e-10, atol=1e-10)
        numbers += torch.tensor([5.0, 0.1])


def test_members_see_them():
    model = plant.make_model("mlp", members=3, conditions=plant.CONDITIONS).requires_grad_(False)
    state, torques = plant.make_states(WORLDS), plant.make_torques(WORLDS, 3)
    path = model.rollout(state, torques, around())
    parts = [slice(world, world + 1) for world in range(WORLDS)]
    rows = [model.rollout(state.rows(part), torques[part], around(NUMBERS[part])) for part in parts]
    assert torch.allclose(path.q, torch.cat([one.q for one in rows]), atol=1e-10)
    assert torch.allclose(path.epistemic, torch.cat([one.epistemic for one in rows]), atol=1e-8)
    shared = model.rollout(state, torques, around(NUMBERS[:1]))
    assert torch.equal(shared.q, model.rollout(state, torques, around(NUMBERS[:1].expand(WORLDS, 2))).q)


def test_saved_models_keep_them(model, tmp_path):
    model = model.with_conditions({"hinge.length": 1.25}).float()
    NEURAL.save(tmp_path, model)
    loaded = NEURAL.load(tmp_path)
    assert loaded.conditions == model.conditions
    assert loaded.conditions[1] == msgspec.structs.replace(plant.CONDITIONS[1], value=1.25)
    state, torques = plant.make_states(WORLDS, torch.float32), plant.make_torques(WORLDS, 3, torch.float32)
    own = around(NUMBERS.float())
    assert torch.equal(loaded.rollout(state, torques, own).q, model.rollout(state, torques, own).q)
    assert torch.equal(loaded.rollout(state, torques).q, model.rollout(state, torques).q)

# SPDX-License-Identifier: Apache-2.0
"""The compiled frame: the same numbers as torch, and torch wherever a gradient is wanted."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import torch

from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, Environment, State
from neurodyn.dynamics.neural import compiled as compiled
from neurodyn.dynamics.neural.base_prediction import Base
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.geometry import rotation
from neurodyn.geometry.ground import Ground
from neurodyn.nets.networks import NetConfig
from neurodyn.nets.predictor import build_predictor
from tests import plant
from tests.dynamics.neural.test_base_prediction import MECHANISM, SUBSTEPS
from tests.dynamics.neural.test_base_prediction import encoding as free_encoding
from tests.dynamics.neural.test_invariance import COM, LAYOUT, SCENE, SPEC
from tests.dynamics.neural.test_invariance import model as hopper

NETS = {
    "silu": NetConfig(kind="mlp", width=37, depth=2, activation="silu", clip=0.8),
    "gelu": NetConfig(kind="mlp", width=64, depth=1, activation="gelu", skip=False),
    "relu": NetConfig(kind="mlp", width=18, depth=3, activation="relu"),
    "tanh": NetConfig(kind="mlp", width=33, depth=2, activation="tanh"),
    "linear": NetConfig(kind="mlp", width=8, depth=0),
    "gru": NetConfig(kind="gru", width=21, depth=2, head=16, activation="tanh"),
    "gru without head": NetConfig(kind="gru", width=16, depth=1, head=0),
    "transformer": NetConfig(kind="transformer", width=16, depth=1, heads=2, window=4, head=8),
}


def make(net: str, *, free: bool = True, layout=LAYOUT, dtype=torch.float64) -> NeuralDynamics:
    torch.manual_seed(0)
    made = free_encoding(layout) if free else hopper().encoding
    predictor = build_predictor(NETS[net], made.inputs, made.outputs)
    predictor.fit(torch.randn(300, made.inputs), 0.1 * torch.randn(300, made.outputs))
    for weight in predictor.parameters():  # the last layer begins at zero
        torch.nn.init.normal_(weight, std=0.3)
    return NeuralDynamics(made, predictor).to(dtype).requires_grad_(False)


def draw(worlds: int, dtype=torch.float64) -> tuple[State, Control, Environment]:
    torch.manual_seed(worlds)
    q, qd = 0.3 * torch.randn(worlds, SPEC.nq, dtype=dtype), torch.randn(worlds, SPEC.nv, dtype=dtype)
    q[:, 2] += 0.2
    for place in (slice(3, 7), slice(8, 12)):
        q[:, place] = rotation.normalise(torch.randn(worlds, 4, dtype=dtype))
    pose = torch.zeros(worlds, 7, dtype=dtype)
    pose[:, 3:] = rotation.exponential(0.3 * torch.randn(worlds, 3, dtype=dtype))
    gravity = torch.nn.functional.normalize(torch.randn(worlds, 3, dtype=dtype), dim=-1) * 9.81
    environment = Environment(gravity=gravity, ground=Ground(SCENE, pose))
    return State(q, qd), Control(torque=torch.randn(worlds, SPEC.nu, dtype=dtype)), environment


def advance(model, state, control, environment, *, torch_path: bool, frames: int = 3) -> torch.Tensor:
    """Step a few frames; where a gradient is wanted, torch computes the step."""
    carry, states = model.begin(state, environment), []
    for _ in range(frames):
        given = State(state.q.clone().requires_grad_(torch_path), state.qd)
        carry, step = model.step(carry, given, control)
        assert step.state.q.requires_grad == torch_path
        state = State(step.state.q.detach(), step.state.qd.detach())
        carry = torch.utils._pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, carry)
        states.append(torch.cat([state.q, state.qd], -1))
    return torch.stack(states, 1)


def agree(model, worlds: int, rtol: float, environment: Environment | None = None) -> None:
    dtype = model.encoding.dt.dtype
    state, control, own = draw(worlds, dtype)
    environment = own if environment is None else environment
    frames = 1 if dtype == torch.float32 else 3  # contacts make of rounding what they will
    expected = advance(model, state, control, environment, torch_path=True, frames=frames)
    seen = advance(model, state, control, environment, torch_path=False, frames=frames)
    assert (seen - expected).abs().max() <= rtol * expected.abs().max()
    assert (expected[:, -1, SPEC.nq :] - state.qd).abs().max() > 1e-3


@pytest.mark.parametrize("worlds", [1, 5, compiled.NETWORK_WORLDS + 1])
@pytest.mark.parametrize("net", NETS)
def test_the_same_numbers_as_torch(net, worlds):
    agree(make(net), worlds, 1e-12)


@pytest.mark.parametrize("worlds", [2, compiled.NETWORK_WORLDS + 1])
@pytest.mark.parametrize("net", ["silu", "gru"])
def test_in_single_precision_up_to_rounding(net, worlds):
    agree(make(net, dtype=torch.float32), worlds, 1e-6)


def test_without_free_motion_and_in_free_space():
    model = make("silu", free=False)
    agree(model, 3, 1e-12)
    agree(model, 3, 1e-12, Environment(ground=Ground(Scene())))
    agree(model, 3, 1e-12, Environment(ground=Ground(Scene(shapes=(Plane(),)))))


@pytest.mark.parametrize("kind", plant.NETS)
def test_continuous_joints_limits_and_products_of_velocities(kind):
    model = plant.make_model(kind).requires_grad_(False)
    dtype = next(model.parameters()).dtype
    state, torque = plant.make_states(4, dtype), plant.make_torques(4, 1, dtype)[:, 0]
    control = Control(torque=torque)
    expected = advance(model, state, control, model.home, torch_path=True)
    assert torch.allclose(advance(model, state, control, model.home, torch_path=False), expected, rtol=1e-5, atol=1e-6)


def test_the_environment_of_each_step_counts():
    model = make("silu")
    state, control, environment = draw(3)
    ground = environment.ground.at_pose(environment.ground.pose.flip(0))
    turned = Environment(gravity=environment.gravity.flip(0), ground=ground)
    seen = [advance(model, state, control, e, torch_path=False) for e in (environment, turned, environment)]
    assert torch.equal(seen[0], seen[2])
    assert not torch.equal(seen[0], seen[1])
    agree(model, 3, 1e-12, turned)


def test_a_ground_for_other_worlds_is_refused():
    model = make("silu")
    state, control, environment = draw(3)
    carry = model.begin(state, environment)
    few = State(state.q[:2], state.qd[:2])
    with pytest.raises(InputError, match=r"poses of shape \[3, 7\]"):
        model.step(carry, few, Control(torque=control.torque[:2]))


class TestWeights:
    def changed(self, change) -> None:
        model = make("gru")
        before = advance(model, *draw(2), torch_path=False)
        change(model)
        after = advance(model, *draw(2), torch_path=False)
        assert not torch.equal(before, after)
        agree(model, 2, 1e-12)

    def test_changed_in_place(self):
        self.changed(lambda model: model.predictor.net.output_layer.weight.mul_(1.5))

    def test_replaced(self):
        def replace(model):
            layer = model.predictor.net.output_layer
            layer.weight = torch.nn.Parameter(1.5 * layer.weight, requires_grad=False)

        self.changed(replace)

    def test_of_another_network(self):
        def replace(model):
            model.predictor = make("silu").predictor

        self.changed(replace)

    def test_in_another_precision(self):
        model = make("gru", dtype=torch.float32)
        agree(model, 2, 1e-6)
        model.double()
        agree(model, 2, 1e-12)
        with pytest.raises(RuntimeError, match=r"dtype|Double|double"):
            advance(model, *draw(2, torch.float32), torch_path=False)

    def test_for_one_call(self):
        model = make("silu")
        state, control, environment = draw(2)
        carry = model.begin(state, environment)
        doubled = {f"{n}": 2.0 * w for n, w in model.named_parameters()}

        class Stepped(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self):
                return self.model.step(carry, state, control)[1].state.qd

        once = Stepped()
        own = once()
        other = torch.func.functional_call(once, {f"model.{n}": w for n, w in doubled.items()})
        assert not torch.equal(own, other)
        assert torch.equal(once(), own)


def test_torch_sees_the_step_where_a_gradient_or_a_tangent_is_wanted():
    model = plant.make_model("mlp").requires_grad_(False)
    dtype = next(model.parameters()).dtype
    state, torque = plant.make_states(1, dtype), plant.make_torques(1, 1, dtype)[:, 0]
    carry = model.begin(state)

    def step(q: torch.Tensor) -> torch.Tensor:
        return model.step(carry, State.make_unchecked(q=q, qd=state.qd), Control.make_unchecked(torque=torque))[
            1
        ].state.qd

    reverse = torch.autograd.functional.jacobian(step, state.q)
    assert reverse.abs().max() > 1e-3
    assert torch.allclose(torch.func.jacrev(step)(state.q), reverse)
    assert torch.allclose(torch.func.jacfwd(step)(state.q), reverse, atol=1e-6)
    direction = torch.ones_like(state.q)
    with torch.autograd.forward_ad.dual_level():
        dual = step(torch.autograd.forward_ad.make_dual(state.q, direction))
        tangent = torch.autograd.forward_ad.unpack_dual(dual).tangent
    assert torch.allclose(tangent[0], reverse[0, :, 0] @ direction[0], atol=1e-6)
    model.requires_grad_(True)
    assert step(state.q).requires_grad


def test_results_are_the_callers_own():
    model = make("gru")
    state, control, environment = draw(2)
    carry = model.begin(state, environment)
    carry_one, one = model.step(carry, state, control)
    own = (one.state.q, one.state.qd, *carry_one.memory, *carry.memory)
    kept = [x.clone() for x in own]
    _, two = model.step(carry_one, State(2.0 * one.state.q, one.state.qd), control)
    assert all(torch.equal(a, b) for a, b in zip(kept, own, strict=True))
    assert one.state.q.is_contiguous()
    assert one.state.q.data_ptr() != two.state.q.data_ptr()


def test_threads_have_buffers_of_their_own():
    model = make("gru")
    expected = {worlds: advance(model, *draw(worlds), torch_path=False) for worlds in (2, 3)}

    def once(worlds: int) -> bool:
        return torch.equal(advance(model, *given[worlds], torch_path=False), expected[worlds])

    given = {worlds: draw(worlds) for worlds in (2, 3)}
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(once, (2, 3) * 8))


def test_copies_compile_for_themselves():
    model = plant.make_model("gru").requires_grad_(False)
    dtype = next(model.parameters()).dtype
    given = plant.make_states(2, dtype), Control(torque=plant.make_torques(2, 1, dtype)[:, 0]), model.home
    expected = advance(model, *given, torch_path=False)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(advance(other, *given, torch_path=False), expected)
        other.predictor.denormaliser.mean.add_(1.0)
        assert not torch.equal(advance(other, *given, torch_path=False), expected)
    assert torch.equal(advance(model, *given, torch_path=False), expected)


def test_states_on_the_meta_device_take_torch():
    model = plant.make_model("mlp").requires_grad_(False)
    state, control = plant.make_states(2), Control(torque=plant.make_torques(2, 1)[:, 0])
    carry = model.begin(state)
    _, step = model.to("meta").step(carry, state.to("meta"), control.to("meta"))
    assert step.state.q.device.type == "meta"


TOUCHING = msgspec.structs.replace(MECHANISM, points=LAYOUT.contact_points)


def with_contact_base(values: dict[str, float]) -> NeuralDynamics:
    """A network that corrects a step with contacts, with random weights."""
    torch.manual_seed(0)
    motion = torch.randn(500, SPEC.nv)
    made = fit_encoding(
        SPEC, motion, 0.6 * SPEC.dt * motion, motion, base_com=COM, layout=LAYOUT,
        base=Base(kind="contact", substeps=SUBSTEPS, values=values), mechanism=TOUCHING,
    )  # fmt: skip
    predictor = build_predictor(NETS["silu"], made.inputs, made.outputs)
    predictor.fit(torch.randn(300, made.inputs), 0.1 * torch.randn(300, made.outputs))
    return NeuralDynamics(made, predictor).double().requires_grad_(False)


@pytest.mark.parametrize(
    ("scene", "capturable", "values"),
    [
        (Scene(shapes=(Plane(),)), True, {}),
        (Scene(shapes=(Plane(),)), True, {"contact.friction": 0.3}),
        (Scene(shapes=(Plane(),)), False, {"gravity.z": -9.6}),
        (SCENE, False, {}),
        (Scene(), True, {}),
    ],
)
def test_a_base_with_contacts(scene, capturable, values):
    model = with_contact_base(values)
    _, _, own = draw(3)
    ground = Ground(scene, own.ground.pose)
    for pose in (own.ground.pose, own.ground.pose.flip(0)):  # the second finds the frame of the first
        environment = Environment(gravity=own.gravity, ground=ground.at_pose(pose))
        agree(model, 3, 1e-10, environment)
    environment = model.resolve_environment(environment)
    assert model.fixed_frame(3, environment, model.encoding.dt).capturable == capturable

# SPDX-License-Identifier: Apache-2.0
"""What drives and networks of hybrid dynamics keep: through begin, step, reset and roll-outs, and its derivatives."""

import msgspec
import pytest
import torch

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, State, Window
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.multibody.engine import EngineConfig, nominal
from tests.multibody import machines

F64 = torch.float64
WORLDS, FRAMES = 3, 6
DRIVES = {
    "shoulder": Drive(kind="pd", kp=20.0, kd=0.5, delay=0.013),
    "elbow": Drive(kind="pd", kp=10.0, kd=0.2, lag=0.01),
}
MOTORS = {"shoulder": Drive(delay=0.013), "elbow": Drive(lag=0.01, delay=0.02)}
"""Their memory takes commands alone."""
RECURRENT = Augmentation(
    quantities=("actuator.elbow",), inputs=("error.elbow", "qd.elbow", "qd.elbow@0.0072"), hidden=(5,), memory=3,
    activation="softsign", output_scale=(2.0,),
)  # fmt: skip


def model(blueprint: Blueprint | None = None, *free: str, drives: dict[str, Drive] | None = None) -> HybridDynamics:
    mechanism = msgspec.structs.replace(machines.pendulum(), drives=DRIVES if drives is None else drives)
    kind = "target" if any(drive.kind == "pd" for drive in mechanism.drives.values()) else "torque"
    spec = machines.spec(mechanism, ("shoulder", "elbow"), kind=kind)
    config = EngineConfig(substeps=2, blueprint=blueprint or Blueprint())
    parameters = select_parameters(nominal(mechanism, None), free, mechanism.bounds()) if free else ()
    return HybridDynamics(spec, mechanism, config, parameters)


def stirred(blueprint: Blueprint, **options) -> HybridDynamics:
    """A model whose networks have an effect."""
    made = model(blueprint, **options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        made.weights.copy_(0.4 * torch.randn(made.weights.shape, generator=generator, dtype=F64))
    return made


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return 0.5 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


@pytest.fixture(scope="module", params=["drives", "network"])
def kept(request: pytest.FixtureRequest) -> HybridDynamics:
    return model() if request.param == "drives" else stirred(Blueprint(augmentations=(RECURRENT,)))


def test_a_rollout_is_repeated_steps(kept: HybridDynamics):
    state, targets = State(drawn(WORLDS, 2), drawn(WORLDS, 2, seed=1)), drawn(WORLDS, FRAMES, 2, seed=2)
    path = kept.rollout(state, targets)
    carry = kept.begin(state)
    for frame in range(FRAMES):
        carry, step = kept.step(carry, state, Control(target=targets[:, frame]))
        state = step.state
        torch.testing.assert_close(state.q, path.q[:, frame + 1])
        torch.testing.assert_close(state.qd, path.qd[:, frame + 1])


@pytest.mark.parametrize(("drives", "interpolated"), [(DRIVES, True), (MOTORS, False)], ids=["controllers", "motors"])
def test_commands_of_parts_of_frames_are_those_of_shorter_frames(drives: dict[str, Drive], interpolated: bool):
    made = model(drives=drives)
    half = msgspec.structs.replace(made.spec, dt=0.5 * made.spec.dt)
    short = HybridDynamics(half, made.mechanism, EngineConfig(substeps=1))
    q, qd = drawn(WORLDS, 2 * FRAMES + 1, 2), drawn(WORLDS, 2 * FRAMES + 1, 2, seed=1)
    for x in (q, qd):  # states within frames are interpolated
        x[:, 1::2] = 0.5 * (x[:, :-1:2] + x[:, 2::2])
    before, onward = (drawn(WORLDS, 2 * FRAMES, 2, seed=seed) for seed in (2, 3))
    pairs = onward.unflatten(1, (FRAMES, 2))
    whole = Window(q[:, ::2], qd[:, ::2], before[:, ::2], parts=before.unflatten(1, (FRAMES, 2)))
    values, weights = made.physical().detach(), made.weights
    path = made.simulate(whole, pairs, values, weights, interpolated=interpolated)
    shorter = short.simulate(Window(q, qd, before), onward, values, weights, interpolated=interpolated)
    torch.testing.assert_close(path.q, shorter.q[:, ::2])
    torch.testing.assert_close(path.qd, shorter.qd[:, ::2])
    means = made.simulate(whole, pairs.mean(2), values, weights, interpolated=interpolated)
    assert not torch.allclose(path.q, means.q, atol=1e-5)
    # A frame of two steps holds no thirds.
    thirds = drawn(WORLDS, FRAMES, 3, 2, seed=4)
    held = made.rollout(whole.present, thirds), made.rollout(whole.present, thirds.mean(2))
    torch.testing.assert_close(held[0].q, held[1].q)


def test_the_memory_of_motors_passes_a_window_without_the_robot():
    """What commands leave in delays and lags, and its derivatives, are those of steps of the whole robot."""
    assert model().plane_engine.memory_program is None  # controllers see the joints
    made = model(None, "actuator.elbow.lag", "actuator.shoulder.delay", drives=MOTORS)
    assert made.plane_engine.memory_program is not None
    q, qd = drawn(WORLDS, FRAMES + 1, 2), drawn(WORLDS, FRAMES + 1, 2, seed=1)
    torques, onward = drawn(WORLDS, FRAMES, 2, seed=2), drawn(WORLDS, 2, 2, seed=3)
    values, weights = made.physical().detach().requires_grad_(True), made.weights
    path = made.simulate(Window(q, qd, torques), onward, values, weights)
    (by,) = torch.autograd.grad(path.q.square().sum(), values)
    memory = None
    for frame in range(FRAMES):
        state = State(q[:, frame], qd[:, frame])
        memory = made._run(made.home, state, torques[:, frame, None], values, weights, memory)[1][:, -1]
    other, _ = made._run(made.home, State(q[:, -1], qd[:, -1]), onward, values, weights, memory)
    torch.testing.assert_close(other.q, path.q, rtol=0, atol=1e-14)
    torch.testing.assert_close(torch.autograd.grad(other.q.square().sum(), values)[0], by)
    assert bool((by.abs() > 1e-8).all())


def test_equal_models_share_their_trace():
    one = model()
    assert model().plane_engine is one.plane_engine
    assert model(drives=MOTORS).plane_engine is not one.plane_engine
    assert model(None, "actuator.elbow.lag").plane_engine is not one.plane_engine


def test_a_window_leaves_what_steps_through_it_leave(kept: HybridDynamics):
    state, targets = State(drawn(WORLDS, 2), drawn(WORLDS, 2, seed=1)), drawn(WORLDS, 2 * FRAMES, 2, seed=2)
    path = kept.rollout(state, targets)
    window = Window(path.q[:, : FRAMES + 1], path.qd[:, : FRAMES + 1], targets[:, :FRAMES])
    onward = kept.rollout(window, targets[:, FRAMES:])
    torch.testing.assert_close(onward.q, path.q[:, FRAMES:])
    without = kept.rollout(window.present, targets[:, FRAMES:])
    assert float((without.q - onward.q).abs().max()) > 1e-4
    given = kept.simulate(window, targets[:, FRAMES:], kept.physical(), kept.weights)
    torch.testing.assert_close(given.q, onward.q)
    near = kept.simulate(window, targets[:, FRAMES:], kept.physical(), kept.weights, interpolated=True)
    assert float((near.q - onward.q).abs().max()) < 0.1 * float((without.q - onward.q).abs().max())
    assert kept.plane_engine.path_memory_program is not None


def test_reset_forgets_in_some_worlds_alone(kept: HybridDynamics):
    state, targets = State(drawn(WORLDS, 2), drawn(WORLDS, 2, seed=1)), drawn(WORLDS, 3, 2, seed=2)
    carry = kept.begin(state)
    for frame in range(2):
        carry, _ = kept.step(carry, state, Control(target=targets[:, frame]))
    again = kept.reset(carry, state, torch.tensor([True, False, False]))
    fresh, _ = kept.step(kept.begin(state), state, Control(target=targets[:, 2]))
    after, _ = kept.step(again, state, Control(target=targets[:, 2]))
    on, _ = kept.step(carry, state, Control(target=targets[:, 2]))
    assert torch.equal(after.memory[0], fresh.memory[0])
    assert torch.equal(after.memory[1:], on.memory[1:])
    assert not torch.equal(after.memory[0], on.memory[0])


def test_gradients_through_the_memory_are_those_of_finite_differences():
    blueprint = Blueprint(augmentations=(RECURRENT,))
    made = stirred(blueprint)
    free = model(blueprint, "actuator.*.delay", "actuator.elbow.lag", "actuator.*.kp")
    weights, values = made.weights.detach(), free.physical().detach()
    past = drawn(1, 4, 2, seed=5)
    targets = drawn(1, 4, 2, seed=6)

    def end(weights, values, past, targets):
        q = torch.cat([0.3 * past, past.new_zeros(1, 1, 2)], 1)
        window = Window(q, 0.1 * q, past)
        return free.simulate(window, targets, values, weights).q[:, -1]

    given = [x.clone().requires_grad_(True) for x in (weights, values, past, targets)]
    assert torch.autograd.gradcheck(end, given, eps=1e-6, atol=1e-6, rtol=1e-4)


def test_a_network_with_a_memory_begins_without_effect_but_not_without_a_gradient():
    made, plain = model(Blueprint(augmentations=(RECURRENT,))), model()
    state, targets = State(drawn(WORLDS, 2), drawn(WORLDS, 2, seed=1)), drawn(WORLDS, FRAMES, 2, seed=2)
    path = made.rollout(state, targets)
    torch.testing.assert_close(path.q, plain.rollout(state, targets).q)
    path.q[:, -1].square().sum().backward()
    assert made.weights.grad is not None
    assert float(made.weights.grad.abs().max()) > 0.0


def test_an_aged_input_is_what_the_quantity_was():
    """A linear network that adds one velocity of 20 ms ago to the torque, on a grid of steps of 5 ms."""
    network = Augmentation(quantities=("actuator.elbow",), inputs=("qd.shoulder@0.02",), hidden=())
    made = model(Blueprint(augmentations=(network,)), drives={})
    with torch.no_grad():
        made.weights.copy_(torch.tensor([1.0, 0.0], dtype=F64))
    plain = model(drives={})
    state, torque = State(drawn(1, 2), drawn(1, 2, seed=1)), drawn(1, 5, 2, seed=2)
    path = made.rollout(state, torque)
    # The velocity over the frame from 20 to 30 ms is that of the frame from 0 to 10 ms, two steps in each.
    carry = made.begin(state)
    for frame in range(3):
        before = state
        carry, step = made.step(carry, before, Control(torque=torque[:, frame]))
        state = step.state
    half = HybridDynamics(msgspec.structs.replace(made.spec, dt=0.005), made.mechanism, EngineConfig(substeps=1), ())
    first = State(path.q[:, 0], path.qd[:, 0])
    middle = made_half(made, first, torque[:, 0])
    now = State(path.q[:, 2], path.qd[:, 2])
    for past in (first.qd[:, 0], middle[:, 0]):
        extra = torch.stack([torch.zeros(1, dtype=F64), past], -1)
        found = half.rollout(now, (torque[:, 2] + extra)[:, None])
        now = State(found.q[:, 1], found.qd[:, 1])
    torch.testing.assert_close(now.qd, path.qd[:, 3])
    assert float((plain.rollout(first, torque).qd - path.qd).abs().max()) > 1e-3


def made_half(made: HybridDynamics, first: State, torque: torch.Tensor) -> torch.Tensor:
    """Return velocities half a frame after a start, where the network sees the first velocity."""
    spec = msgspec.structs.replace(made.spec, dt=0.005)
    half = HybridDynamics(spec, made.mechanism, EngineConfig(substeps=1), ())
    extra = torch.stack([torch.zeros(1, dtype=F64), first.qd[:, 0]], -1)
    return half.rollout(first, (torque + extra)[:, None]).qd[:, 1]


def test_drives_of_targets_take_targets_alone(kept: HybridDynamics):
    state = State(drawn(WORLDS, 2), drawn(WORLDS, 2))
    with pytest.raises(InputError, match=r"take targets; valid: .*Control\(target=...\) alone"):
        kept.step(kept.begin(state), state, Control(torque=drawn(WORLDS, 2)))


def test_a_frame_with_a_memory_has_no_derivative_by_its_state_alone(kept: HybridDynamics):
    state = State(drawn(WORLDS, 2), drawn(WORLDS, 2))
    with pytest.raises(InputError, match="have a memory"):
        kept.differentiated_frame(state, drawn(WORLDS, 2), None)


def test_a_robot_of_history_says_so(kept: HybridDynamics):
    assert kept.memory > 0
    assert kept.spec.context == 3  # twice the delay of 13 ms, in frames of 10 ms

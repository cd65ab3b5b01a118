# SPDX-License-Identifier: Apache-2.0
"""Predictions that start from free motion: exact where nothing touches, and the same wherever the robot stands."""

import copy
import dataclasses
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neurodyn.cli.main import run as command
from neurodyn.core.artifacts import read_json, read_tree
from neurodyn.core.description.contacts import ContactPoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError
from neurodyn.data.header import StoreHeader, episode_table
from neurodyn.data.split import assign_splits
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Control, Environment, State
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.neural.base_prediction import Base
from neurodyn.dynamics.neural.encoding import Encoding, EncodingConfig, fit_encoding
from neurodyn.dynamics.neural.model import NEURAL, ModelConfig, ModelSpec, NeuralDynamics, build_model
from neurodyn.geometry import rotation
from neurodyn.geometry.ground import Ground
from neurodyn.learn.metrics import read_metrics
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.train import train
from neurodyn.multibody.engine import EngineConfig
from neurodyn.multibody.motion import FreeMotion
from neurodyn.nets.networks import NetConfig
from neurodyn.nets.predictor import build_predictor
from neurodyn.robots import ROBOTS
from neurodyn.robots import load as load_robot
from tests.dynamics.neural.test_invariance import COM, LAYOUT, SCENE, SPEC, WORLDS, placed, states
from tests.learn.callbacks import StopAt, Stopped

F64 = torch.float64
SUBSTEPS = 3
MECHANISM = Mechanism(
    links=tuple(
        Link(joint=joint, mass=mass, com=com, inertia=(0.02, 0.03, 0.025, 0.002, -0.001, 0.003), damping=damping)
        for joint, mass, com, damping in zip(
            LAYOUT.joints, (2.0, 0.5, 0.3), (COM, (0.0, 0.05, -0.1), (-0.1, 0.0, 0.02)), (0.0, 0.2, 0.0), strict=True
        )
    )
)


def encoding(layout=None) -> Encoding:
    generator = torch.Generator().manual_seed(0)
    motion = torch.randn(500, SPEC.nv, generator=generator)
    return fit_encoding(
        SPEC, motion, 0.6 * SPEC.dt * motion, motion, base_com=COM, layout=layout,
        base=Base(kind="free", substeps=SUBSTEPS), mechanism=MECHANISM,
    )  # fmt: skip


def double_states():
    """Return states whose quaternions have unit length to the last digit."""
    q, qd, torque = (x.double() for x in states())
    for quaternion in (q[:, 3:7], q[:, 8:12]):
        quaternion.copy_(rotation.normalise(quaternion))
    return q, qd, torque


@pytest.fixture(scope="module")
def model() -> NeuralDynamics:
    """A network with random weights that feels the ground and its own free motion."""
    torch.manual_seed(0)
    made = encoding(LAYOUT)
    predictor = build_predictor(NetConfig(kind="gru", width=12, head=8), made.inputs, made.outputs)
    torch.nn.init.normal_(predictor.net.output_layer.weight, std=0.3)
    return NeuralDynamics(made, predictor).requires_grad_(False)


# --- anchors -------------------------------------------------------------------------------------------------------
def test_decoding_the_target_gives_the_next_state():
    """A floating robot with its mass off centre, and next states far from where free motion leads."""
    made = encoding().double()
    q, qd, torque = double_states()
    q_next, qd_next = q.flip(0), qd.flip(0)
    base_prediction = made.predict_base(q, qd, torque[:, 0])
    reached = made.decode(base_prediction, made.target(base_prediction, q_next, qd_next))
    assert position_difference(SPEC, reached.q, q_next).abs().max() < 1e-12
    torch.testing.assert_close(reached.qd, qd_next, rtol=0, atol=1e-12)


@pytest.mark.parametrize("gravity", [None, [0.0, 0.0, -9.81], [3.0, -1.0, 2.0]])
def test_no_output_is_free_motion(gravity):
    made = encoding().double()
    q, qd, torque = double_states()
    environment = None if gravity is None else Environment(gravity=torch.tensor(gravity))
    base_prediction = made.predict_base(q, qd, torque[:, 0], environment)
    after = made.decode(base_prediction, torch.zeros(WORLDS, made.outputs, dtype=F64))
    given_gravity = torch.tensor(gravity or [0.0, 0.0, -9.81], dtype=F64)
    free_q, free_qd = FreeMotion(MECHANISM, SPEC.control_dofs, SPEC.dt, SUBSTEPS)(q, qd, torque[:, 0], given_gravity)
    torch.testing.assert_close(after.q, free_q, rtol=0, atol=1e-6)  # gravity is held in single precision
    torch.testing.assert_close(after.qd, free_qd, rtol=0, atol=1e-6)


def test_what_free_motion_adds_is_an_input_in_the_axes_of_the_base():
    made, plain = encoding().double(), Encoding(SPEC, msgspec.structs.replace(encoding().config, base=None))
    assert made.inputs == plain.inputs + SPEC.nv
    q, qd, torque = double_states()
    base_prediction = made.predict_base(q, qd, torque[:, 0])
    inputs = made.encode(base_prediction, torque[:, 0])
    assert inputs.shape[-1] == made.inputs
    turn = rotation.matrix(base_prediction.q[:, 3:7])
    gained = base_prediction.qd - qd
    expected = torch.cat([(gained[:, None, :3] @ turn)[:, 0], (gained[:, None, 3:6] @ turn)[:, 0], gained[:, 6:]], 1)
    torch.testing.assert_close(inputs[:, -SPEC.nv :], expected, rtol=0, atol=1e-12)
    # Everything else is read at the end of free motion.
    torch.testing.assert_close(
        inputs[:, : -SPEC.nv],
        plain.double().encode(dataclasses.replace(base_prediction, velocity_change=None), torque[:, 0]),
    )


def test_a_batch_of_several_axes_is_that_of_its_rows():
    made = encoding().double()
    q, qd, torque = double_states()
    gravity = torch.tensor([[0.0, 0.0, -9.81], [1.0, 2.0, -9.0]], dtype=F64)
    shaped = [x.unflatten(0, (2, 3)) for x in (q, qd, torque[:, 0])]
    base_prediction = made.predict_base(*shaped, Environment(gravity=gravity))
    inputs = made.encode(base_prediction, shaped[2], Environment(gravity=gravity))
    for world in range(2):
        environment = Environment(gravity=gravity[world])
        alone = made.predict_base(*(x[world] for x in shaped), environment)
        torch.testing.assert_close(base_prediction.q[world], alone.q, rtol=0, atol=1e-14)
        torch.testing.assert_close(inputs[world], made.encode(alone, shaped[2][world], environment))


def test_free_motion_without_a_mechanism_is_refused():
    with pytest.raises(InputError, match=r"robot 'hopper': base 'free' needs the mechanism, .*leave `base` out"):
        Encoding(SPEC, msgspec.structs.replace(encoding().config, base=Base(kind="free", substeps=2)))


# --- predictions ---------------------------------------------------------------------------------------------------
def roll_out(model, turn, shift):
    q, qd, torque = states()
    tilt = rotation.exponential(torch.tensor([0.1, -0.2, 0.0]))
    pose = torch.cat([rotation.rotate(turn, torch.tensor([0.1, 0.0, 0.05])) + shift, rotation.multiply(turn, tilt)])
    gravity = rotation.rotate(turn, torch.tensor([0.0, 0.0, -9.81]))
    environment = Environment(gravity=gravity, ground=Ground(SCENE, pose.expand(WORLDS, 7)))
    found = model.rollout(State(*placed(turn, shift, q, qd)), torque, environment)
    return found.q, found.qd


@settings(max_examples=15, deadline=None, derandomize=True)
@given(vector=st.tuples(*[st.floats(-1.5, 1.5)] * 3), place=st.tuples(*[st.floats(-3, 3)] * 3))
def test_a_prediction_is_moved_and_turned_with_the_scene(model, vector, place):
    turn, shift = rotation.exponential(torch.tensor(vector)), torch.tensor(place)
    expected = placed(turn, shift, *roll_out(model, torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.zeros(3)))
    reached = roll_out(model, turn, shift)
    assert position_difference(SPEC, reached[0], expected[0]).abs().max() < 1e-5
    assert (reached[1] - expected[1]).abs().max() < 1e-4


def test_derivatives_of_a_step():
    torch.manual_seed(1)
    made = encoding()
    predictor = build_predictor(NetConfig(kind="mlp", width=6, depth=1), made.inputs, made.outputs)
    torch.nn.init.normal_(predictor.net.output_layer.weight, std=0.3)
    dynamics = NeuralDynamics(made, predictor).double()
    q, qd, torque = (x.double()[:2] for x in states())

    def step(q, qd, torque):
        state = State(q, qd)
        after = dynamics.step(dynamics.begin(state), state, Control(torque=torque))[1].state
        return torch.cat([after.q, after.qd], -1)

    leaves = [x.clone().requires_grad_() for x in (q, qd, torque[:, 0])]
    assert torch.autograd.gradcheck(step, leaves, eps=1e-6, atol=1e-6, rtol=1e-5)


def test_files_hold_the_mechanism(tmp_path: Path):
    made = encoding()
    net = NetConfig(kind="mlp", width=6, depth=1)
    config = ModelConfig(kind="neural", net=net, encoding=made.config, robot="hopper.yaml")
    saved = build_model(config, ModelSpec(state=SPEC, fingerprint=None, mechanism=MECHANISM))
    torch.nn.init.normal_(saved.predictor.net.output_layer.weight, std=0.3)
    NEURAL.save(tmp_path, saved)
    found = NEURAL.load(tmp_path)
    assert found.encoding.mechanism == MECHANISM
    q, qd, torque = states()
    saved.requires_grad_(False)
    assert torch.equal(found.rollout(State(q, qd), torque).q, saved.rollout(State(q, qd), torque).q)
    spec = read_json(tmp_path / "model" / "spec.json")
    (tmp_path / "model" / "spec.json").write_text(json.dumps({**spec, "mechanism": None}))
    with pytest.raises(InputError, match="base 'free' needs the mechanism") as caught:
        NEURAL.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_model_without_free_motion_keeps_no_mechanism(tmp_path: Path):
    plain = msgspec.structs.replace(encoding().config, base=None)
    config = ModelConfig(kind="neural", net=NetConfig(kind="mlp", width=6, depth=1), encoding=plain, robot="hopper")
    NEURAL.save(tmp_path, build_model(config, ModelSpec(state=SPEC, fingerprint=None, mechanism=MECHANISM)))
    assert json.loads((tmp_path / "model" / "spec.json").read_text())["mechanism"] is None


# --- training ------------------------------------------------------------------------------------------------------
CUBE = load_robot("cube")
SETTINGS = Settings(
    net=NetConfig(kind="mlp", width=16, depth=1),
    phases=(Phase(share=0.5, rate=1e-2, batch=32), Phase(share=0.5, rate=3e-3, batch=16, forecast=4)),
    steps=20,
    validations=2,
    validation_rollouts=16,
    validation_frames=20,
    base="free",
)


def falling_store(gravity: float = -9.81, frames: int = 25, episodes: int = 20) -> Store:
    """Cubes with their mass off centre that tumble and touch nothing."""
    spec = CUBE.spec
    base = Link(joint=msgspec.structs.replace(LAYOUT.joints[0], name="base"), mass=0.4, com=(0.02, -0.01, 0.01),
                inertia=(6e-4, 7e-4, 5e-4, 1e-5, 0.0, 2e-5))  # fmt: skip
    mechanism = Mechanism(links=(base,))
    free = FreeMotion(mechanism, (), spec.dt, 10)
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(episodes, 7, generator=generator, dtype=F64)
    q[:, 3:] = rotation.normalise(q[:, 3:])
    qd = torch.randn(episodes, 6, generator=generator, dtype=F64) * torch.tensor([1.0] * 3 + [6.0] * 3)
    path, none = [(q, qd)], torch.zeros(episodes, 0, dtype=F64)
    for _ in range(frames):
        path.append(free(*path[-1], none, torch.tensor([0.0, 0.0, gravity], dtype=F64)))
    rows = torch.stack([torch.cat(state, -1) for state in path], 1).flatten(0, 1).numpy()
    table = episode_table([frames] * episodes, split=assign_splits(episodes, 0, validation=0.2, test=0.1))
    header = StoreHeader(spec=spec, source="teacher", simulator={"substeps": 10}, seed=0, mechanism=mechanism)
    return Store(header, np.ascontiguousarray(rows, np.float32), table)


@pytest.mark.trains
def test_free_fall_is_exact_from_the_first_validation(tmp_path: Path):
    """Nothing is left to learn: the network's output is zero but for the rounding of the data."""
    store = falling_store()
    train(CUBE, "cube", "here", store, tmp_path / "free", SETTINGS)
    plain = msgspec.structs.replace(SETTINGS, base=None)
    train(CUBE, "cube", "here", store, tmp_path / "plain", plain)
    scores = [
        next(line["rollout_score"] for line in read_metrics(tmp_path / name) if "rollout_score" in line)
        for name in ("free", "plain")
    ]
    assert scores[0] < 1e-4
    assert scores[0] < 0.05 * scores[1]
    assert NEURAL.load(tmp_path / "free").encoding.config.base == Base(kind="free", substeps=10)


def test_a_training_that_adds_nothing_leaves_the_base_alone_and_says_so(tmp_path: Path):
    """Free fall again, with steps so large that they can only do harm."""
    phase = msgspec.structs.replace(SETTINGS.phases[0], rate=0.3)
    settings = msgspec.structs.replace(SETTINGS, base="contact", phases=(phase,))
    end = train(CUBE, "cube", "here", falling_store(), tmp_path, settings)
    assert "adds nothing to its base" in end.verdict
    last = read_metrics(tmp_path)[-1]
    assert last["best_score"] == last["base_score"] < 1e-4
    kept = copy.deepcopy(NEURAL.load(tmp_path)).predictor
    assert kept.forward(torch.randn(1, 20, kept.net.inputs)).abs().max() < 1e-9


def test_a_base_takes_what_was_identified(tmp_path: Path):
    store = falling_store(-3.7)
    header, moon = store.header, Parameter(name="gravity.z", nominal=-3.7)
    engine = EngineConfig(substeps=10, contact="soft")
    HYBRID.save(tmp_path / "moon", HybridDynamics(header.spec, header.mechanism, engine, (moon,), declaration="cube"))
    settings = msgspec.structs.replace(SETTINGS, base="contact", base_from=str(tmp_path / "moon"))
    train(CUBE, "cube", "here", store, tmp_path / "model", settings)
    first = next(line["rollout_score"] for line in read_metrics(tmp_path / "model") if "rollout_score" in line)
    assert first < 1e-4
    assert NEURAL.load(tmp_path / "model").encoding.config.base == Base("contact", 10, {"gravity.z": -3.7})


def test_a_base_of_other_contacts_is_refused(tmp_path: Path):
    header = falling_store().header
    corner = ContactPoint(name="box/0", joint=0, point=(0.1, 0.1, 0.1), radius=0.0)
    tree = msgspec.structs.replace(header.mechanism, points=(corner,))
    HYBRID.save(tmp_path / "bare", HybridDynamics(header.spec, tree, EngineConfig(), declaration="cube"))
    settings = msgspec.structs.replace(SETTINGS, base="contact", base_from=str(tmp_path / "bare"))
    with pytest.raises(InputError, match="a base is soft constraints without networks"):
        train(CUBE, "cube", "here", falling_store(), tmp_path / "model", settings)
    assert not (tmp_path / "model").exists()
    with pytest.raises(ValueError, match="base_from is given with base 'free'; valid: base: contact"):
        msgspec.structs.replace(SETTINGS, base_from="anywhere")


def test_a_training_with_free_motion_continues_where_it_stopped(cartpole, simulator_file: Path, tmp_path: Path):
    store = Store.open(simulator_file)
    assert store.header.mechanism is not None

    def go_on(name: str, **options) -> None:
        train(cartpole, "cartpole", str(simulator_file), store, tmp_path / name, SETTINGS, **options)

    go_on("whole")
    with pytest.raises(Stopped):
        go_on("stopped", callbacks=[StopAt(13)])
    go_on("stopped", resume=True)
    whole, found = (read_tree(tmp_path / name / "state", "training") for name in ("whole", "stopped"))
    assert found["position"]["step"] == 20
    assert all(torch.equal(found["model"][name], tensor) for name, tensor in whole["model"].items())
    assert NEURAL.load(tmp_path / "whole").encoding.mechanism == store.header.mechanism


def test_data_without_a_mechanism_are_refused_in_one_line(plant_file: Path, tmp_path: Path, capsys):
    path = tmp_path / "settings.yaml"
    path.write_text(
        "net: {kind: mlp, width: 16, depth: 1}\nsteps: 5\nbase: free\nphases: [{share: 1, rate: 1.0e-2, batch: 32}]\n"
    )
    out, robot = tmp_path / "run", tmp_path / "robot.yaml"
    robot.write_text(ROBOTS["cartpole"].read_text().replace("asset: cartpole.urdf\n", ""))
    arguments = ["train", robot, "--data", plant_file, "--out", out, "--size", path]
    assert command([str(x) for x in arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0
    assert "robot 'cartpole': has no asset, and so no known motion; valid: no base" in error
    assert not out.exists()


def test_settings_of_an_encoding_are_kept_as_plain_data():
    config = encoding().config
    assert config.base == Base(kind="free", substeps=SUBSTEPS)
    assert msgspec.convert(msgspec.to_builtins(config), EncodingConfig) == config

# SPDX-License-Identifier: Apache-2.0
"""Models as ONNX files: ONNX Runtime rolls out what the model rolls out, and the file says what it is."""

import json

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.core.description.spec import Channel, JointSpec, StateSpec
from neurodyn.core.errors import InputError, NeurodynError
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.neural.base_prediction import Base
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.world_model.model import WorldCarry, WorldModel
from neurodyn.interop.onnx import export_model
from neurodyn.multibody.contacts.held_ground import contact_layout
from neurodyn.nets import onnx_file
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.nets.networks import NetConfig
from neurodyn.nets.onnx_file import METADATA, write_onnx
from neurodyn.nets.predictor import build_predictor
from tests.multibody import machines
from tests.multibody.constraints.test_soft_contact import mechanism, random_states
from tests.plant import make_model, make_states, make_torques

ort = pytest.importorskip("onnxruntime")
PLANE = Scene(shapes=(Plane(),))


@pytest.mark.parametrize(("kind", "members"), [("mlp", 1), ("gru", 1), ("transformer", 1), ("gru", 3)])
def test_a_rollout_in_onnx_runtime_is_the_models_own(kind, members, tmp_path):
    model = make_model(kind, torch.float32, members=members).requires_grad_(False)
    assert export_model(model, tmp_path / "model.onnx") < 1e-5
    session = ort.InferenceSession(tmp_path / "model.onnx")
    state, torques = make_states(3, torch.float32), make_torques(3, 12, torch.float32)
    wanted = model.rollout(state, torques)
    values = {"q": state.q.numpy(), "qd": state.qd.numpy()}
    memory = [x for x in session.get_inputs() if x.name not in ("q", "qd", "control")]
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    values |= {x.name: np.zeros((3, *x.shape[1:]), types[x.type]) for x in memory}
    outputs = [x.name for x in session.get_outputs()]
    known = ["epistemic"] if members > 1 else []
    assert outputs == ["q_next", "qd_next", *known, *(f"{x.name}_next" for x in memory)]
    _, first = model.step(model.begin(state), state, Control(torque=torques[:, 0]))
    for frame in range(12):
        found = session.run(None, {**values, "control": torques[:, frame].numpy()})
        if known and not frame:
            np.testing.assert_allclose(found[2], first.epistemic, rtol=1e-3, atol=1e-6)
        found = found[:2] + found[2 + len(known) :]
        outputs = [name for name in outputs if name not in known]
        values = {name.removesuffix("_next"): value for name, value in zip(outputs, found, strict=True)}
        np.testing.assert_allclose(values["q"], wanted.q[:, frame + 1], rtol=1e-4, atol=1e-5)


def test_the_file_names_columns_units_and_the_frame(tmp_path):
    import onnx

    model = make_model("gru", torch.float32)
    export_model(model, tmp_path / "model.onnx")
    properties = {entry.key: entry.value for entry in onnx.load(str(tmp_path / "model.onnx")).metadata_props}
    said = json.loads(properties[METADATA])
    assert said["q_names"] == list(model.spec.q_names)
    assert said["dt"] == model.spec.dt
    assert said["control_units"][0] in ("N", "N m")
    assert said["memory"]["hidden_0"] == [model.predictor.net.width]
    plain = {entry.key: entry.value for entry in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert plain["q_names"] == ",".join(model.spec.q_names)


def hopping(base, kind, scene=PLANE, substeps=2):
    """A network with random weights that feels a plane, and corrects a base."""
    torch.manual_seed(0)
    tree = mechanism()
    tree = msgspec.structs.replace(tree, points=tree.points[1:3])  # a sphere on a leg, and one end of a capsule
    spec, layout = machines.spec(tree, ("knee",), 0.01), contact_layout(tree)
    motion = torch.randn(200, spec.nv)
    encoding = fit_encoding(
        spec, motion, 0.6 * spec.dt * motion, motion, base_com=(0.01, 0.02, 0.03), layout=layout,
        base=base and Base(kind=base, substeps=substeps), mechanism=tree,
    )  # fmt: skip
    predictor = build_predictor(NetConfig(kind=kind, width=12, depth=2, head=8), encoding.inputs, encoding.outputs)
    for parameter in predictor.net.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return NeuralDynamics(encoding, predictor, scene=scene).requires_grad_(False)


@pytest.mark.slow
@pytest.mark.parametrize(("base", "substeps"), [("contact", 2), ("impulses", 1)])
def test_contact_points_and_bases_are_in_the_file(base, substeps, tmp_path):
    model = hopping(base, "gru", substeps=substeps)
    assert export_model(model, tmp_path / "model.onnx") < 1e-4
    session = ort.InferenceSession(tmp_path / "model.onnx")
    first = random_states(60, seed=7).float()
    state = State(first[:, :8], first[:, 8:])
    memory = {
        x.name: np.zeros((len(first), *x.shape[1:]), np.float32)
        for x in session.get_inputs() if x.name not in ("q", "qd", "control")
    }  # fmt: skip
    outputs = [x.name for x in session.get_outputs()]
    carry = model.begin(state)
    for _ in range(3):
        torque = torch.randn(len(first), 1)
        given = {"q": state.q.numpy(), "qd": state.qd.numpy(), "control": torque.numpy(), **memory}
        found = dict(zip(outputs, session.run(None, given), strict=True))
        memory = {name: found[f"{name}_next"] for name in memory}
        carry, step = model.step(carry, state, Control(torque=torque))
        state = step.state
        np.testing.assert_allclose(found["q_next"], state.q, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found["qd_next"], state.qd, rtol=1e-4, atol=1e-4)


def test_grounds_that_are_no_plane_are_refused():
    model = hopping(None, "mlp", Scene(shapes=(Box(half=(1.0, 1.0, 1.0)),)))
    with pytest.raises(InputError, match=r"'machine': its ground is no plane, .*; valid: .* one plane"):
        export_model(model, None)


class Drifting(torch.nn.Module):
    """Computes something else on every call, as no file can."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return (x + self.calls,)


def test_a_file_that_differs_is_not_kept(tmp_path):
    path = tmp_path / "wrong.onnx"
    with pytest.raises(NeurodynError, match="differs from the model"):
        write_onnx(path, Drifting(), [torch.ones(2, 1)], inputs=["x"], outputs=["y"], metadata={})
    assert not path.exists()


def test_a_missing_package_is_bad_input(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"pip install .neurodyn\[export\]"):
        onnx_file.write_onnx(tmp_path / "y.onnx", Drifting(), [], inputs=[], outputs=[], metadata={})


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_a_world_model_carries_channels_contacts_and_what_it_is_unsure_of(trunk, tmp_path):
    spec = StateSpec(
        robot="walker",
        joints=(JointSpec(name="knee", kind="revolute", continuous=True),),
        controls=("knee",),
        dt=0.02,
        context=4,
        channels=(Channel(name="gravity.x", unit="1", frame="base"), Channel(name="gravity.y", unit="1", frame="base")),
        contacts=("foot",),
        control_kind="target",
    )
    torch.manual_seed(0)
    net = EnsembleConfig(members=3, width=6, depth=2, head=5, trunk=trunk)
    model = WorldModel(spec, net, terminates=True).requires_grad_(False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    assert export_model(model, tmp_path / "world.onnx") < 1e-4
    session = ort.InferenceSession(tmp_path / "world.onnx")
    outputs = [x.name for x in session.get_outputs()]
    assert outputs[:7] == [
        "q_next", "qd_next", "channels_next", "contacts", "termination", "epistemic", "aleatoric",
    ]  # fmt: skip
    state = State(torch.randn(2, 1), torch.randn(2, 1), torch.randn(2, 2))
    values = {"q": state.q.numpy(), "qd": state.qd.numpy(), "channels": state.channels.numpy()}
    memory = {x.name: np.zeros((2, *x.shape[1:]), np.float32) for x in session.get_inputs() if "hidden" in x.name}
    carry = WorldCarry(model.begin(state).hidden, None)
    for _ in range(4):
        target = torch.randn(2, 1)
        carry, step = model.step(carry, state, Control(target=target))
        state = step.state
        found = dict(zip(outputs, session.run(None, {**values, **memory, "control": target.numpy()}), strict=True))
        values = {name: found[f"{name}_next"] for name in values}
        memory = {name: found[f"{name}_next"] for name in memory}
        np.testing.assert_allclose(values["channels"], state.channels, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["contacts"], step.contacts, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["epistemic"], step.epistemic, rtol=1e-3, atol=1e-5)

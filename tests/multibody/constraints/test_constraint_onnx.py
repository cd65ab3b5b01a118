# SPDX-License-Identifier: Apache-2.0
"""Soft constraints and free motion as ONNX graphs: ONNX Runtime's steps are those of the compiled engine."""

import numpy as np
import pytest
import torch

from neurodyn.core.description.contacts import SoftConstraints
from neurodyn.core.errors import InputError
from neurodyn.multibody.trace.onnx import frame_graph
from neurodyn.multibody.trace.recurrence import ConstantFrame
from tests.multibody.constraints.test_soft_contact import YIELDS, engine, mechanism, random_states, step

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def session(of, dtype=np.float64):
    """A step of the engine in ONNX Runtime."""
    plane = (0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    graph = frame_graph(ConstantFrame(of.program.sizes, of.program.step, 1, held=plane), 8, dtype=dtype)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def stepped(session, states, control, dtype=np.float64):
    """The states one step later."""
    x = states.numpy().astype(dtype)
    given = {"q": x[:, :8], "qd": x[:, 8:], "control": np.full((len(x), 1), control, dtype)}
    return torch.from_numpy(np.concatenate(session.run(None, given), 1)).double()


@pytest.mark.parametrize(("impratio", "friction", "yields"), [(1.0, 0.7, "default"), (3.0, 0.4, "curved")])
def test_steps_with_contacts_limits_and_friction_are_the_engines(impratio, friction, yields):
    parameters = YIELDS[yields]
    constraints = SoftConstraints(
        impratio=impratio, friction=friction, contact=parameters, limits={"knee": parameters},
        joint_friction={"knee": parameters},
    )  # fmt: skip
    of, states = engine(mechanism(constraints)), random_states(200, seed=3)
    wanted = step(of, states, control=0.5)
    assert (wanted - states)[:, 8:].norm(dim=1).max() > 1.0
    torch.testing.assert_close(stepped(session(of), states, 0.5), wanted, rtol=1e-9, atol=1e-9)
    if yields == "default":
        single = stepped(session(of, np.float32), states, 0.5, np.float32)
        torch.testing.assert_close(single, wanted, rtol=1e-4, atol=1e-4)


def test_worlds_do_not_depend_on_those_beside_them():
    graph, states = session(engine(mechanism())), random_states(40, seed=5)
    whole = stepped(graph, states, 0.0)
    one_by_one = torch.cat([stepped(graph, state[None], 0.0) for state in states[:4]])
    torch.testing.assert_close(one_by_one, whole[:4], rtol=1e-12, atol=1e-12)


def test_elliptic_cones_are_refused():
    of = engine(mechanism(SoftConstraints(cone="elliptic")))
    with pytest.raises(InputError, match=r"elliptic cones .* no ONNX graph; valid"):
        session(of)

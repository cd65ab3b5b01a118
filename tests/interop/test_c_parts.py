# SPDX-License-Identifier: Apache-2.0
"""Parts of exported code: traced tensor functions, networks as C, templates, and Python as text."""

import shutil

import pytest
import torch
from torch import nn

from neurodyn.core.errors import InputError
from neurodyn.interop.c_code.networks import NetworkWriter, activation_text, write_network
from neurodyn.interop.c_code.source import CArray, CFunction, CUnit, assignments
from neurodyn.interop.texts import Raw, call, code, docstring, template
from neurodyn.multibody.trace import Graph
from neurodyn.multibody.trace.expression import apply_loop
from neurodyn.multibody.trace.tensors import trace
from tests.interop.c_programs import Program

GIVEN = torch.linspace(-1.2, 0.9, 6)
FUNCTIONS = {
    "elementary": lambda x: torch.stack([x.sin() * x.exp(), x.abs().sqrt(), x.square().rsqrt(), x.tanh() - x.relu()]),
    "masks": lambda x: torch.where((x > 0.1) & ~(x >= 0.8), x.clamp(-0.2, 0.5), 2.0 * x),
    "reductions": lambda x: torch.cat([x.view(1, 2, 3).mean(-1), x.view(1, 2, 3).amax(1), x.norm(dim=-1)[None]], -1),
    "vectors": lambda x: torch.linalg.cross(x.view(2, 3)[:1], x.view(2, 3)[1:]) @ torch.arange(6.0).view(3, 2),
    "places": lambda x: x.view(2, 3).flip(0)[:, [2, 0]].repeat(1, 2).transpose(0, 1),
    "a choice": lambda x: x.view(1, 6).gather(1, x.view(1, 6)[:, :2].min(1, keepdim=True).indices),
    "angles": lambda x: torch.stack([torch.remainder(x * 4.9, 2.0), torch.sinc(x), torch.atan2(x, x + 2.0)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_traced_functions_compute_what_torch_does(tmp_path, name):
    graph = Graph()
    x = graph.inputs("given", 6)
    (values,) = trace(graph, FUNCTIONS[name], [x], name)
    body = assignments(graph, [("y", values)], ["given"])
    step = CFunction("step", "", (CArray("given", 6),), (CArray("y", len(values)),), body)
    (found,) = Program(CUnit(name, (), (step,), double=True), tmp_path)(GIVEN[None].double().numpy())
    expected = FUNCTIONS[name](GIVEN[None]).flatten()
    assert found[0] == pytest.approx(expected.numpy(), abs=1e-6)


def test_an_operator_without_c_is_refused_by_name():
    graph = Graph()
    with pytest.raises(InputError, match="the task: torch's operator 'erf' has no form in C"):
        trace(graph, torch.erf, [graph.inputs("x", 2)], "the task")
    with pytest.raises(InputError, match="the run: a network of kind Linear has no form in C; valid: MLP, GRU"):
        write_network(NetworkWriter(2, "the run"), "in", nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the activation 'selu' has no form in C; valid: silu"):
        activation_text("selu", "the run")


def test_layers_in_blocks_compute_what_torch_does(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("needs a C compiler")
    torch.manual_seed(0)
    layers, graph = [nn.Linear(6, 37), nn.Linear(37, 3)], Graph()
    writer = NetworkWriter(6, "the network")
    loop = writer.loop(writer.perceptron("in", layers, "elu"), 3)
    values = apply_loop(graph, loop, graph.inputs("given", 6))
    step = CFunction(
        "step", "", (CArray("given", 6),), (CArray("y", 3),), assignments(graph, [("y", values)], ["given"])
    )
    unit = CUnit("network", (), (step,), helpers=writer.text())
    (found,) = Program(unit, tmp_path)(GIVEN[None].double().numpy())
    expected = nn.Sequential(layers[0], nn.ELU(), layers[1])(GIVEN)
    assert found[0] == pytest.approx(expected.detach().numpy(), abs=1e-5)


def test_texts_are_the_values_they_stand_for():
    assert "#if WALK_DOUBLE" in template("prelude.h", REAL="walk_real", DOUBLE="WALK_DOUBLE")
    with pytest.raises(KeyError, match="DOUBLE"):
        template("prelude.h", REAL="walk_real")
    value = {"a": (1, 2.0, None), "b": ["x", True], "c": Raw("math.pi")}
    assert code(value) == "{'a': (1, 2.0, None), 'b': ['x', True], 'c': math.pi}"
    assert call("f", {"x": (1,)}, 0) == "f(\n    x=(1,),\n)"
    assert docstring(["One.", 'a """ \\ b']) == '"""One.\n\na \'\'\' \\\\ b\n"""'

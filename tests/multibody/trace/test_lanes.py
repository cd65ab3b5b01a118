# SPDX-License-Identifier: Apache-2.0
"""Worlds in the lanes of a vector, and on threads, against one world at a time; and the functions of such vectors."""

import warnings

import numpy as np
import pytest
import torch

from neurodyn.core.errors import Notice
from neurodyn.multibody import Engine, EngineConfig, trace
from neurodyn.multibody.trace import Loop, apply_loop, native, program
from neurodyn.multibody.trace.native import tape_memory
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramSizes
from neurodyn.multibody.trace.target import vector_lanes
from tests.multibody.machines import hopper, spec
from tests.multibody.trace import test_loops, test_program

F64 = torch.float64
FUNCTIONS = ("sin", "cos", "exp", "log", "tanh", "sqrt")


def functions_step(inputs):
    """x, its functions, and the angle of x and the last of them."""
    x = inputs.state[0]
    graph = inputs.graph
    values = [graph.operation(name, x) for name in FUNCTIONS]
    return [x, *values, trace.arctan2(x, inputs.state[-1])]


def gradients(one, tensors, **given):
    """Return the path and the gradients of a scalar of it."""
    leaves = {name: x.clone().requires_grad_() for name, x in tensors.items()}
    path = one.rollout(**leaves, **given)
    (path * torch.linspace(0.5, 1.5, path[0].numel(), dtype=path.dtype).view(path[0].shape)).sum().backward()
    return [path.detach(), *(x.grad for x in leaves.values())]


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_functions_are_right_to_two_units_in_the_last_place(lanes, dtype):
    compiled = TracedProgram(ProgramSizes(state=2 + len(FUNCTIONS)), functions_step, lanes=lanes)
    rng = np.random.default_rng(0)
    parts = [rng.uniform(-10, 10, 4000), 10.0 ** rng.uniform(-12, 2, 3000), -(10.0 ** rng.uniform(-9, 1.9, 3000))]
    parts += [1.0 + 10.0 ** rng.uniform(-9, -1, 500), np.arange(1, 400) * (np.pi / 2), rng.uniform(-1e4, 1e4, 500)]
    given = torch.from_numpy(np.concatenate(parts)).to(dtype)
    state = torch.zeros(len(given), 2 + len(FUNCTIONS), dtype=dtype)
    state[:, 0] = given
    found = compiled.rollout(state, frames=1)[:, 1].numpy()
    x, unit = given.double().numpy(), np.finfo(found.dtype).eps
    for place, name in enumerate(FUNCTIONS, 1):
        inside = (x > 0) if name in ("log", "sqrt") else np.abs(x) < 80
        exact = getattr(np, name)(x[inside].astype(np.longdouble))
        spacing = np.spacing(np.abs(exact).astype(found.dtype))
        worst = float((np.abs(found[inside, place] - exact) / (spacing + 1e-33 * np.abs(x[inside]))).max())
        assert worst < 2.0, (name, worst)
        assert np.isfinite(found[inside, place]).all()
    assert np.allclose(found[:, -1], np.arctan2(x, 0.0), rtol=4 * unit)


@pytest.mark.parametrize("lanes", [1, 4])
def test_functions_at_the_edges(lanes):
    compiled = TracedProgram(ProgramSizes(state=2 + len(FUNCTIONS)), functions_step, lanes=lanes)
    edges = [0.0, -0.0, 710.0, -746.0, -800.0, np.inf, -np.inf, np.nan, 3e15, 5.0]
    state = torch.zeros(len(edges), 2 + len(FUNCTIONS), dtype=F64)
    state[:, 0] = torch.tensor(edges)
    found = dict(zip(FUNCTIONS, compiled.rollout(state, frames=1)[:, 1, 1:].T.tolist(), strict=False))
    assert found["exp"][:2] == [1.0, 1.0]
    assert found["exp"][2:7] == [np.inf, 0.0, 0.0, np.inf, 0.0]
    assert found["tanh"][2:7] == [1.0, -1.0, -1.0, 1.0, -1.0]
    assert found["log"][0] == -np.inf
    assert found["log"][5] == np.inf
    for name, indices in (
        ("sin", (5, 6, 7, 8)),
        ("cos", (5, 6, 7, 8)),
        ("exp", (7,)),
        ("log", (3, 6, 7)),
        ("tanh", (7,)),
    ):
        assert all(np.isnan(found[name][i]) for i in indices), name


@pytest.mark.parametrize("worlds", [1, 3, 8, 13])
@pytest.mark.parametrize("shared", [False, True])
def test_lanes_compute_what_single_worlds_do(worlds, shared):
    tensors = test_program.given(worlds, 4, shared=shared)
    found = [
        gradients(TracedProgram(test_program.SIZES, test_program.step, lanes=lanes), tensors, frames=4, substeps=3)
        for lanes in (1, 4, 8)
    ]
    for alone, four, eight in zip(*found, strict=True):
        torch.testing.assert_close(four, alone, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(eight, alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("worlds", [1, 11])
def test_rows_of_a_frame_are_those_of_autograd_whatever_lies_side_by_side_on_the_tape(worlds, lanes):
    compiled = TracedProgram(test_program.SIZES, test_program.step, lanes=lanes)
    given, none = test_program.given(worlds, 1), torch.zeros(0, dtype=F64)
    state, control = (given[name].requires_grad_() for name in ("state", "control"))
    seeds = torch.eye(state.shape[1], dtype=F64).expand(worlds, -1, -1)
    with torch.no_grad():
        after, rows = compiled.frame(state, 3, control, given["held"], given["parameters"], none)
        found = rows(seeds)
    assert {which for which, *_ in compiled._cpu} == {0, 2}  # the adjoint of roll-outs takes as long to compile
    path = compiled.rollout(frames=1, substeps=3, **given)[:, 1]
    torch.testing.assert_close(after, path.detach())
    for i, column in enumerate(path.unbind(1)):
        by_state, by_control = torch.autograd.grad(column.sum(), (state, control), retain_graph=True)
        torch.testing.assert_close(found[0][:, i], by_state)
        torch.testing.assert_close(found[1][:, i], by_control[:, 0])


def test_weights_of_padded_lanes_do_not_count():
    x, p, w = test_loops.given(5)
    tensors = {"state": x, "parameters": p, "weights": w}
    sizes = ProgramSizes(state=2, parameters=1, weights=test_loops.WEIGHTS)
    alone, together = (
        gradients(TracedProgram(sizes, test_loops.network_step, lanes=lanes), tensors, frames=3) for lanes in (1, 4)
    )
    for a, b in zip(alone, together, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("contact", ["force", "impulse", "soft"])
def test_contacts_in_lanes(contact):
    mechanism = hopper()
    engine = Engine(mechanism, spec(mechanism, ("knee",)), EngineConfig(contact=contact, substeps=20))
    generator = torch.Generator().manual_seed(3)
    worlds, frames = 11, 3
    state = 0.05 * torch.randn(worlds, engine.program.sizes.state, generator=generator, dtype=F64)
    state[:, 2] += 0.13
    state[:, 6] = 1.0
    state[:, 3:7] /= state[:, 3:7].norm(dim=1, keepdim=True)
    state[::3, 2] += 1.0
    ground = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0], dtype=F64).expand(worlds, frames, 6)
    tensors = {"state": state, "control": torch.randn(worlds, frames, 1, generator=generator, dtype=F64)}
    found = []
    for lanes in (1, 8):
        engine.program._lanes = lanes
        found.append(gradients(engine.program, tensors, frames=frames, held=ground, substeps=20))
    for alone, together in zip(*found, strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-11 * float(alone.abs().max()))
    pushed = found[0][0][:, -1, 10] - (state[:, 10] - 9.81 * 0.03) - 0.05
    assert [bool(x) for x in pushed > 1e-3] == [world % 3 > 0 for world in range(worlds)]


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(monkeypatch, threads):
    monkeypatch.setattr(program, "_THREAD_WORTH", 0.0)
    x, p, w = test_loops.given(77)
    tensors = {"state": x, "parameters": p, "weights": w}
    sizes = ProgramSizes(state=2, parameters=1, weights=test_loops.WEIGHTS)
    found = [
        gradients(TracedProgram(sizes, test_loops.network_step, threads=n), tensors, frames=3) for n in (1, threads)
    ]
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def branching(inputs):
    """A loop whose text branches on a value, which no vector can do."""
    text = "if (in[0] > (real)0) out[0] = in[0]; else out[0] = -in[0];"
    loop = Loop("size", 1, 1, 0, text, "adj[0] += in[0] > (real)0 ? seed[0] : -seed[0];")
    return apply_loop(inputs.graph, loop, [inputs.state[0]])


def test_what_no_vector_can_do_runs_one_world_at_a_time_and_says_so():
    one = TracedProgram(ProgramSizes(state=1), branching, lanes=4)
    state = torch.linspace(-1, 1, 6, dtype=F64)[:, None]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        path, slope = gradients(one, {"state": state}, frames=1)
        gradients(one, {"state": state}, frames=1)
    assert torch.equal(path[:, 1], state.abs())
    assert torch.equal(slope, 0.5 + 1.5 * state.sign())
    lines = [str(x.message) for x in said if isinstance(x.message, Notice)]
    assert len(lines) == 1
    assert "one world at a time" in lines[0]


def test_a_long_forward_kernel_and_its_adjoint_are_compiled_side_by_side_once(monkeypatch):
    loaded = []
    monkeypatch.setattr(program, "load_side_by_side", lambda *kernels: loaded.append(len(set(kernels))))
    for operations in (100, 10_000):
        one = TracedProgram(test_program.SIZES, test_program.step, lanes=4)
        one.operations = (operations, 2 * operations)
        for _ in range(2):
            gradients(one, test_program.given(5), frames=5)
    assert loaded == [2]


def test_few_worlds_run_one_by_one_and_many_fill_vectors():
    compiled = TracedProgram(ProgramSizes(state=1), lambda inputs: [0.5 * inputs.state[0]])
    lanes = vector_lanes(False)
    assert compiled.run(torch.zeros(1, 1, dtype=F64), frames=1).lanes == 1
    assert compiled.run(torch.zeros(64, 1, dtype=F64), frames=1).lanes == lanes
    assert vector_lanes(True) == 2 * lanes or lanes == 1


def test_the_memory_of_a_tape_serves_the_next_one(monkeypatch):
    # Other tests of this process leave spare buffers, and the smallest that is large enough is taken.
    monkeypatch.setattr(native, "_spare_buffers", [])
    like = torch.zeros(1, dtype=torch.float32)
    first = tape_memory(like, 1 << 20)
    place = first.data_ptr()
    assert first.shape == (1 << 20,)
    assert place % 64 == 0
    second = tape_memory(like, 1 << 20)
    assert second.data_ptr() != place
    del first
    assert tape_memory(like.double(), 1 << 18).data_ptr() == place


def test_expanded_tensors_are_read_where_they_are():
    tensors = test_program.given(6, 4)
    tensors["held"] = tensors["held"][:1, :1].expand(6, 4, 1)
    compiled = TracedProgram(test_program.SIZES, test_program.step)
    run = compiled.run(tensors["state"], frames=4, **{k: v for k, v in tensors.items() if k != "state"})
    assert run.held.stride()[:2] == (0, 0)
    whole = {name: x.contiguous() for name, x in tensors.items()}
    for a, b in zip(gradients(compiled, tensors, frames=4), gradients(compiled, whole, frames=4), strict=True):
        assert torch.equal(a, b)

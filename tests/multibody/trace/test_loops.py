# SPDX-License-Identifier: Apache-2.0
"""Native loops inside programs: a network's layers and a solver's sweeps, with gradients down to the weights."""

import math

import pytest
import torch

from neurodyn.multibody import trace
from neurodyn.multibody.trace import Graph, Loop, apply_loop, pull_back
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramSizes
from tests.multibody.trace.loops import dense, root

F64 = torch.float64
FIRST, SECOND = dense(3, 4), dense(4, 2, first_weight=16)
WEIGHTS = FIRST.weights + SECOND.weights


def network_step(inputs):
    """Two layers on the state and a parameter, of which one output is used; and a root by iteration."""
    a, b = inputs.state
    graph = inputs.graph
    hidden = apply_loop(graph, FIRST, [a, b, inputs.parameters[0]])
    out = apply_loop(graph, SECOND, hidden)
    size = apply_loop(graph, root(), [1.0 + a * a, 1.5])[0]
    return [0.9 * a + 0.1 * out[1] * size, b - 0.2 * trace.sin(a) + 0.1 * out[1]]


@pytest.fixture(scope="module")
def program():
    return TracedProgram(ProgramSizes(state=2, parameters=1, weights=WEIGHTS), network_step)


def given(worlds=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    state = torch.randn(worlds, 2, generator=generator, dtype=F64)
    parameters = torch.randn(worlds, 1, generator=generator, dtype=F64)
    return state, parameters, 0.5 * torch.randn(WEIGHTS, generator=generator, dtype=F64)


def in_torch(state, parameters, weights, frames):
    path = [state]
    for _ in range(frames):
        a, b = path[-1].unbind(-1)
        w1, w2 = weights[:16].view(4, 4), weights[16:].view(2, 5)
        one = torch.ones_like(a)[:, None]
        hidden = torch.tanh(torch.stack([a, b, parameters[:, 0], one[:, 0]], -1) @ w1.T)
        out = torch.tanh(torch.cat([hidden, one], -1) @ w2.T)[:, 1]
        size = torch.sqrt(1.0 + a * a)
        path.append(torch.stack([0.9 * a + 0.1 * out * size, b - 0.2 * torch.sin(a) + 0.1 * out], -1))
    return torch.stack(path, 1)


def test_loops_compute_what_torch_computes_and_so_do_their_gradients(program):
    found = []
    for rollout in (
        lambda x, p, w: program.rollout(x, frames=4, parameters=p, weights=w),
        lambda x, p, w: in_torch(x, p, w, 4),
    ):
        tensors = [x.requires_grad_() for x in given()]
        path = rollout(*tensors)
        path.square().sum().backward()
        found.append([path.detach(), *(x.grad for x in tensors)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)  # the iteration has converged this far
    unused = found[0][3][16:21]
    assert torch.equal(unused, torch.zeros(5, dtype=F64))
    assert bool((found[0][3][21:] != 0).all())


def test_gradients_by_state_parameters_and_weights(program):
    tensors = [x.requires_grad_() for x in given(2)]

    def rollout(x, p, w):
        return program.rollout(x, frames=2, substeps=2, parameters=p, weights=w)

    assert torch.autograd.gradcheck(rollout, tensors, eps=1e-6, atol=1e-8)


def test_threads_change_no_bit_of_the_weights_gradients(program):
    parallel = TracedProgram(program.sizes, network_step, threads=2)
    found = []
    for one in (program, parallel):
        x, p, w = (x.requires_grad_() for x in given(5))
        one.rollout(x, frames=3, parameters=p, weights=w).sum().backward()
        found.append((x.grad, p.grad, w.grad))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_an_iteration_that_has_not_converged_has_the_gradient_of_what_it_computed():
    program = TracedProgram(
        ProgramSizes(state=2),
        lambda i: [apply_loop(i.graph, root(sweeps=2), i.state)[0], trace.maximum(i.state[1], 0.1)],
    )
    state = torch.tensor([[7.0, 1.0], [0.2, 3.0]], dtype=F64, requires_grad=True)
    path = program.rollout(state, frames=1)
    assert path[0, 1, 0].item() == pytest.approx(0.5 * (4.0 + 7.0 / 4.0))
    assert abs(path[0, 1, 0].item() - math.sqrt(7.0)) > 0.2
    assert torch.autograd.gradcheck(lambda x: program.rollout(x, frames=2), [state], atol=1e-8)


def test_weights_learn_although_the_loop_depends_on_no_state_and_unused_loops_do_not_matter():
    def step(inputs):
        bias = apply_loop(inputs.graph, dense(1, 1, first_weight=2), [1.0])[0]
        apply_loop(inputs.graph, dense(1, 1), inputs.state)  # without effect
        return [inputs.state[0] + bias]

    program = TracedProgram(ProgramSizes(state=1, weights=4), step)
    weights = torch.tensor([0.1, 0.2, 0.3, -0.1], dtype=F64, requires_grad=True)
    path = program.rollout(torch.zeros(2, 1, dtype=F64), frames=3, weights=weights)
    value = math.tanh(0.2)
    assert path[1].flatten().tolist() == pytest.approx([0.0, value, 2 * value, 3 * value])
    path[:, 3].sum().backward()
    slope = 6 * (1 - value**2)
    assert weights.grad.tolist() == pytest.approx([0.0, 0.0, slope, slope])


def test_a_loop_that_is_used_twice_with_the_same_inputs_is_computed_once():
    graph = Graph()
    a, b = graph.inputs("x", 2)
    first, again, other = (apply_loop(graph, dense(2, 2), x) for x in ([a, b], [a, b], [b, a]))
    assert [x.index for x in first] == [x.index for x in again]
    assert {x.index for x in first}.isdisjoint(x.index for x in other)


def test_shared_weights_of_two_uses_add_up():
    def step(inputs):
        a, b = inputs.state
        layer = dense(1, 1)
        return [apply_loop(inputs.graph, layer, [a])[0], apply_loop(inputs.graph, layer, [b])[0]]

    program = TracedProgram(ProgramSizes(state=2, weights=2), step)
    state = torch.tensor([[0.3, -0.8]], dtype=F64)
    weights = torch.tensor([0.7, 0.1], dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: program.rollout(state, frames=2, weights=w), [weights], atol=1e-8)


def test_wrong_numbers_of_inputs_and_derivatives_of_derivatives_raise():
    graph = Graph()
    a, b = graph.inputs("x", 2)
    with pytest.raises(ValueError, match="'root' takes 2 inputs, not 1"):
        apply_loop(graph, root(), [a])
    out = apply_loop(graph, root(), [a, b])[0]
    slope = pull_back([out], [1.0], [a])[0]
    with pytest.raises(ValueError, match="'root'"):
        pull_back([slope], [1.0], [a])
    pull_back([out * out], [1.0], [a])  # what an earlier differentiation left is no obstacle


def test_arrays_that_no_usual_stack_holds_have_room():
    count = 1_250_000  # of 8 bytes: more than the 8 MB of a main thread
    text = f"""
real many[{count}];
for (int i = 0; i < {count}; ++i) many[i] = in[0] * (real)i;
real sum = (real)0;
for (int i = 0; i < {count}; i += 250000) sum += many[i];
out[0] = sum;"""
    loop = Loop(name="large", inputs=1, outputs=1, saved=0, forward=text, adjoint="adj[0] += seed[0];")
    program = TracedProgram(ProgramSizes(state=1), lambda i: [apply_loop(i.graph, loop, i.state)[0]], lanes=1)
    state = torch.tensor([[2.0], [3.0]], dtype=F64)
    for _ in range(2):
        assert program.rollout(state, frames=1)[:, 1, 0].tolist() == [5e6, 7.5e6]

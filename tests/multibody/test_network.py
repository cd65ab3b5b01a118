# SPDX-License-Identifier: Apache-2.0
"""Networks inside programs against the same networks of torch."""

import pytest
import torch

from neurodyn.core.description.blueprint import Augmentation
from neurodyn.multibody.network import network_loop
from neurodyn.multibody.trace import apply_loop
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramSizes

F64 = torch.float64
NETS = tuple(
    Augmentation(quantities=names, inputs=("a", "b", "c"), hidden=hidden, activation=activation)
    for activation, hidden, names in (
        ("tanh", (5, 4), ("x",)),
        ("elu", (4,), ("x", "y")),
        ("silu", (3, 6), ("x",)),
        ("softplus", (4,), ("x",)),
        ("relu", (6, 5, 4), ("x", "y", "z")),
        ("tanh", (), ("x", "y")),
    )
)
OUTPUTS = sum(len(net.quantities) for net in NETS)
WEIGHTS = sum(net.weights for net in NETS)
TORCH = {
    "tanh": torch.tanh,
    "elu": torch.nn.functional.elu,
    "silu": torch.nn.functional.silu,
    "softplus": torch.nn.functional.softplus,
    "relu": torch.relu,
}


@pytest.fixture(scope="module")
def program():
    """All networks in one step, one behind the other in the weights; the state is three inputs and all outputs."""

    def step(inputs):
        outputs, first = [], 0
        for number, net in enumerate(NETS):
            outputs += apply_loop(inputs.graph, network_loop(net, first, f"net {number}"), inputs.state[:3])
            first += net.weights
        return [*inputs.state[:3], *outputs]

    return TracedProgram(ProgramSizes(state=3 + OUTPUTS, weights=WEIGHTS), step)


def by_program(program, x, weights):
    state = torch.cat([x, x.new_zeros(len(x), OUTPUTS)], 1)
    return program.rollout(state, frames=1, weights=weights)[:, 1, 3:]


def by_torch(x, weights):
    found, first = [], 0
    for net in NETS:
        own, y = weights[first : first + net.weights], x
        layers = list(zip(net.widths, net.widths[1:], strict=False))
        for number, (before, after) in enumerate(layers):
            matrix, bias, own = own[: before * after], own[before * after :][:after], own[(before + 1) * after :]
            y = torch.nn.functional.linear(y, matrix.view(after, before), bias)
            y = y if number == len(layers) - 1 else TORCH[net.activation](y)
        found.append(y)
        first += net.weights
    return torch.cat(found, 1)


def given(worlds=7, size=1.0, dtype=F64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = size * torch.randn(worlds, 3, generator=generator, dtype=F64)
    return x.to(dtype), torch.randn(WEIGHTS, generator=generator, dtype=F64).to(dtype)


@pytest.mark.parametrize("size", [1e-3, 1.0, 300.0])
def test_values_and_gradients_are_those_of_torch(program, size):
    """Each network reads its own weights: any that were mixed up would show."""
    x, weights = given(size=size)
    seed = torch.randn(len(x), OUTPUTS, dtype=F64, generator=torch.Generator().manual_seed(1))
    results = []
    for compute in (lambda *a: by_program(program, *a), by_torch):
        inputs = [x.clone().requires_grad_(), weights.clone().requires_grad_()]
        value = compute(*inputs)
        results.append((value, *torch.autograd.grad((value * seed).sum(), inputs)))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-13 * max(size, 1.0))


def test_derivatives_are_those_of_the_values(program):
    x, weights = given(worlds=1, seed=2)  # away from the kinks of the rectifiers
    inputs = [x.requires_grad_(), weights.requires_grad_()]
    assert torch.autograd.gradcheck(lambda *a: by_program(program, *a), inputs, eps=1e-6, atol=1e-7, rtol=1e-6)


def test_saturated_activations_stay_finite(program):
    x, weights = given(size=1e5)
    inputs = [x.requires_grad_(), weights.requires_grad_()]
    value = by_program(program, *inputs)
    assert value.isfinite().all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(value.sum(), inputs))


def test_single_precision_is_close(program):
    x, weights = given(dtype=torch.float32)
    found = by_program(program, x, weights)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), by_torch(x.double(), weights.double()), rtol=2e-5, atol=2e-5)


def test_all_worlds_share_the_weights(program):
    x, weights = given()
    together = by_program(program, x, weights)
    for world in range(len(x)):
        alone = by_program(program, x[world : world + 1], weights)[0]
        torch.testing.assert_close(alone, together[world], rtol=1e-12, atol=1e-12)

# SPDX-License-Identifier: Apache-2.0
"""One traced function for many items: what it is unrolled, with its derivatives, and zero for items of none."""

import pytest
import torch

from neurodyn.multibody.trace import map_in_loop, safe_sqrt, sin
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramSizes

F64 = torch.float64


def body(common, blocks, item):
    (block,) = blocks
    return [item[0] * sin(common[0] * block[0]) + item[1], common[1] * safe_sqrt(block[1] * block[1] + item[1])]


def step(inputs):
    """Three items in two blocks; their results, added up, change the state."""
    a, b = inputs.state
    blocks = [[a, b], [b, 2.0 * a]]
    items = [((0,), inputs.held[0:2]), ((1,), inputs.held[2:4]), ((0,), inputs.held[4:6])]
    first, second, third = map_in_loop(inputs.graph, "items", body, [inputs.parameters[0], 0.7], blocks, items)
    return [a + 0.1 * (first[0] + second[1] + third[0]), b + 0.1 * (first[1] * second[0] + third[1])]


def in_torch(state, held, parameter):
    a, b = state.unbind(-1)

    def result(x, y, kind, more):
        there = (kind > 0).double()
        return there * (kind * torch.sin(parameter * x) + more), there * 0.7 * torch.sqrt(y * y + more)

    first, second = result(a, b, held[:, 0], held[:, 1]), result(b, 2.0 * a, held[:, 2], held[:, 3])
    third = result(a, b, held[:, 4], held[:, 5])
    return torch.stack([a + 0.1 * (first[0] + second[1] + third[0]), b + 0.1 * (first[1] * second[0] + third[1])], -1)


@pytest.mark.parametrize("lanes", [1, 4])
def test_items_and_their_derivatives_are_those_of_the_function(lanes):
    program = TracedProgram(ProgramSizes(state=2, held=6, parameters=1), step, lanes=lanes)
    generator = torch.Generator().manual_seed(0)
    state, held = (torch.rand(5, n, generator=generator, dtype=F64) + 0.5 for n in (2, 6))
    held[:, 4:] = 0.0  # an item of none in all worlds
    parameter = torch.tensor([1.3], dtype=F64)
    found = []
    for function in (
        lambda x, p: program.rollout(x, frames=1, held=held[:, None], parameters=p)[:, 1],
        lambda x, p: in_torch(x, held, p),
    ):
        x, p = state.clone().requires_grad_(), parameter.clone().requires_grad_()
        after = function(x, p)
        found.append((after.detach(), *torch.autograd.grad(after.square().sum(), (x, p))))
    for own, wanted in zip(*found, strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-12, atol=1e-12)

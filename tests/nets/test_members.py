# SPDX-License-Identifier: Apache-2.0
"""The batched recurrence is torch's own, member by member, forwards and backwards."""

import pytest
import torch
from torch import nn

from neurodyn.nets.members import MemberGRU, MemberLinear

MEMBERS, FRAMES, ROWS, INPUTS, WIDTH = 3, 5, 4, 2, 6


def layer() -> MemberGRU:
    torch.manual_seed(0)
    return MemberGRU(MEMBERS, INPUTS, WIDTH).double()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(MEMBERS, FRAMES, ROWS, INPUTS, generator=generator, dtype=torch.float64)
    return x, torch.randn(MEMBERS, ROWS, WIDTH, generator=generator, dtype=torch.float64)


def torchs_own(gru: MemberGRU, member: int) -> nn.GRU:
    cells = nn.GRU(INPUTS, WIDTH).double()
    with torch.no_grad():
        cells.weight_ih_l0.copy_(gru.project.weight[member].t())
        cells.weight_hh_l0.copy_(gru.weight[member].t())
        cells.bias_ih_l0.copy_(gru.project.bias[member, 0])
        cells.bias_hh_l0.zero_()
        cells.bias_hh_l0[2 * WIDTH :] = gru.bias[member, 0]
    return cells


@pytest.mark.parametrize("tracked", [False, True])
def test_every_member_is_a_recurrent_layer_of_its_own(tracked: bool):
    gru, (x, h) = layer(), inputs()
    with torch.set_grad_enabled(tracked):
        found = gru(x, h)
    for member in range(MEMBERS):
        expected = torchs_own(gru, member)(x[member], h[member][None])[0]
        torch.testing.assert_close(found[member], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tracked", [False, True])
def test_steps_are_the_sequence(tracked: bool):
    gru, (x, h) = layer(), inputs()
    with torch.set_grad_enabled(tracked):
        whole = gru(x, h)
        for t in range(FRAMES):
            h = gru.step(x[:, t], h)
            torch.testing.assert_close(h, whole[:, t], rtol=0, atol=1e-12)


def test_gradients_are_those_of_finite_differences():
    gru, (x, h) = layer(), inputs()
    names = ["weight", "bias", "project.weight", "project.bias"]

    def call(x: torch.Tensor, h: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(gru, dict(zip(names, weights, strict=True)), (x, h))  # type: ignore[return-value]

    leaves = [x, h, *(gru.get_parameter(name).detach() for name in names)]
    # Goes backwards through one graph many times: what the first pass wrote over is computed again.
    assert torch.autograd.gradcheck(call, [leaf.requires_grad_() for leaf in leaves])


def test_members_do_not_know_of_each_other():
    gru, (x, h) = layer(), inputs()
    gru(x, h)[1].sum().backward()
    for parameter in gru.parameters():
        assert parameter.grad is not None
        assert parameter.grad[1].abs().sum() > 0
        assert not parameter.grad[[0, 2]].any()


def test_one_input_is_read_by_all_members_of_a_linear_map():
    torch.manual_seed(0)
    linear, x = MemberLinear(MEMBERS, INPUTS, WIDTH), torch.randn(1, ROWS, INPUTS)
    found = linear(x)
    for member in range(MEMBERS):
        torch.testing.assert_close(found[member], x[0] @ linear.weight[member] + linear.bias[member])

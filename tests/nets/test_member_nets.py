# SPDX-License-Identifier: Apache-2.0
"""Networks with members compute what each member would by itself, and no gradient passes between them."""

import pytest
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.nets.networks import MEMBER_NETWORKS, NetConfig
from neurodyn.nets.predictor import build_net, build_predictor
from neurodyn.nets.sequence import SequenceNet

MEMBERS, WORLDS, TIME, INPUTS, OUTPUTS = 3, 4, 6, 5, 2
CONFIGS = {
    "mlp": NetConfig(kind="mlp", width=7, depth=2),
    "gru": NetConfig(kind="gru", width=6, depth=2, head=5, warmup=4),
}


def nets(kind: str) -> tuple[list[SequenceNet], SequenceNet]:
    torch.manual_seed(0)
    found = [build_net(CONFIGS[kind], INPUTS, OUTPUTS).double() for _ in range(MEMBERS)]
    return found, MEMBER_NETWORKS[kind](found)


def chunks(first: int = MEMBERS) -> Tensor:
    return torch.randn(first, WORLDS, TIME, INPUTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_each_member_is_the_network_that_it_was_built_of(kind: str):
    apart, together = nets(kind)
    x = chunks()
    expected = torch.stack([net(chunk) for net, chunk in zip(apart, x, strict=True)])
    torch.testing.assert_close(together(x), expected, rtol=0, atol=1e-12)
    shared = torch.stack([net(x[0]) for net in apart])
    torch.testing.assert_close(together(x[:1]), shared, rtol=0, atol=1e-12)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kind", list(CONFIGS))
def test_steps_are_the_chunk(kind: str, fast: bool):
    together, x = nets(kind)[1], chunks(1)
    expected, carry = together(x), together.begin(WORLDS)
    advance = together.step_ if fast else together.step
    for t in range(TIME):
        y, carry = advance(x[:, :, t], carry)
        torch.testing.assert_close(y, expected[:, :, t], rtol=0, atol=1e-12)


def test_a_history_is_given_to_the_worlds_that_are_asked_for():
    together, x = nets("gru")[1], chunks(1)
    mask = torch.tensor([True, False, False, True])
    primed = together.prime(together.begin(WORLDS), x, mask)
    whole = together.prime(together.begin(WORLDS), x)
    for h, wanted in zip(primed, whole, strict=True):
        torch.testing.assert_close(h[:, mask], wanted[:, mask])
        assert not h[:, ~mask].any()
    assert not any(h[:, mask].any() for h in together.reset(whole, mask))


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_gradients_do_not_mix(kind: str):
    torch.manual_seed(0)
    predictor = build_predictor(CONFIGS[kind], INPUTS, OUTPUTS, MEMBERS).double()
    predictor.net.output_layer.weight.data.normal_()
    predictor.forward_normalised(chunks(1))[1].sum().backward()
    for parameter in predictor.parameters():
        assert parameter.grad is not None
        assert parameter.grad[1].any()
        assert not parameter.grad[[0, 2]].any()


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_the_first_member_begins_as_a_network_by_itself(kind: str):
    torch.manual_seed(3)
    alone = build_predictor(CONFIGS[kind], INPUTS, OUTPUTS)
    torch.manual_seed(3)
    together = build_predictor(CONFIGS[kind], INPUTS, OUTPUTS, MEMBERS)
    for predictor in (alone, together):
        predictor.net.output_layer.weight.data.fill_(0.1)  # zero at first, as a fit leaves it
    x = chunks(1).float()
    torch.testing.assert_close(together.net(x)[0], alone.net(x[0]))
    assert not torch.equal(together.net(x)[0], together.net(x)[1])


@pytest.mark.parametrize(("members", "kind", "message"), [
    (0, "mlp", "members is 0; valid: at least 1"),
    (2, "transformer", "members is 2, but a transformer has only one; valid: 1, or as network gru, mlp"),
])  # fmt: skip
def test_members_that_cannot_be_are_refused(members: int, kind: str, message: str):
    with pytest.raises(InputError, match=message):
        build_predictor(NetConfig(kind=kind, width=8, depth=1), INPUTS, OUTPUTS, members)

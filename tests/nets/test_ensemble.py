# SPDX-License-Identifier: Apache-2.0
"""Members with own and shared trunks, together and apart."""

import pytest
import torch

from neurodyn.nets.ensemble import Ensemble, EnsembleConfig

SMALL = EnsembleConfig(members=3, width=8, depth=2, head=6)
ROWS, INPUTS = 4, 5


def build(**changes) -> Ensemble:
    import msgspec

    torch.manual_seed(0)
    return Ensemble(msgspec.structs.replace(SMALL, **changes), INPUTS, 2, 1)


KINDS = [{}, {"trunk": "shared"}, {"kind": "mlp"}, {"kind": "mlp", "trunk": "shared"}]


@pytest.mark.parametrize("changes", KINDS)
def test_steps_are_the_sequence(changes: dict):
    net, x = build(**changes), torch.randn(1, 6, ROWS, INPUTS)
    top, last = net.warm(x, net.begin(ROWS, x))
    hidden = net.begin(ROWS, x)
    for t in range(6):
        step, hidden = net.advance(x[:, t], hidden)
        torch.testing.assert_close(step.expand_as(top[:, t]), top[:, t])
    for a, b in zip(hidden, last, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("changes", KINDS)
def test_members_that_see_the_same_apart_say_what_they_say_together(changes: dict):
    net, x = build(**changes), torch.randn(1, 3, ROWS, INPUTS)
    _, hidden = net.warm(x, net.begin(ROWS, x))
    now = torch.randn(1, ROWS, INPUTS)
    together, _ = net.advance(now, hidden)
    apart, after = net.advance(now.expand(3, -1, -1), net.apart(hidden))
    assert all(h.shape == (3, ROWS, 8) for h in after)
    torch.testing.assert_close(net.log_stds(together), net.log_stds(apart))
    torch.testing.assert_close(net.event_logits(together), net.event_logits(apart))


def test_a_shared_trunk_follows_each_path_as_if_it_were_the_only_one():
    net = build(trunk="shared")
    x = torch.randn(3, ROWS, INPUTS)
    hidden = net.apart(net.begin(ROWS, x))
    top, _ = net.advance(x, hidden)
    for member in range(3):
        alone, _ = net.advance(x[member : member + 1], net.begin(ROWS, x))
        torch.testing.assert_close(top[member], alone[0])


@pytest.mark.parametrize(("changes", "word"), [({"members": 0}, "members"), ({"clip": 0.0}, "clip")])
def test_sizes_that_make_no_network_are_refused(changes: dict, word: str):
    with pytest.raises(ValueError, match=word):
        build(**changes)

# SPDX-License-Identifier: Apache-2.0
"""The predictor starts as the best linear model, in physical units, and steps like its training pass."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.nets.networks import NetConfig
from neurodyn.nets.predictor import build_net, build_predictor

CONFIGS = [
    NetConfig(kind="mlp", width=16, depth=2),
    NetConfig(kind="gru", width=8, depth=1),
    NetConfig(kind="transformer", width=16, depth=2, heads=2, window=4),
]


def data(n=4000):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 4)) * [1.0, 20.0, 0.3, 1.0] + [0.0, 5.0, -1.0, 2.0]
    y = x @ rng.normal(size=(4, 2)) * [1.0, 1e-4] + 0.1 * np.sin(3 * x[:, :2]) * [1.0, 1e-4] + [3.0, 0.0]
    return x, y


def fitted(config):
    torch.manual_seed(0)
    x, y = data()
    predictor = build_predictor(config, 4, 2).double().fit(x, y)
    return predictor, torch.from_numpy(x), torch.from_numpy(y)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.kind)
@torch.no_grad()
def test_the_initial_model_is_the_least_squares_solution(config):
    predictor, x, y = fitted(config)
    rows = np.concatenate((x.numpy(), np.ones((len(x), 1))), 1)
    solution = np.linalg.lstsq(rows, y.numpy(), rcond=None)[0]
    expected = rows @ solution
    found = predictor(x[None])[0].numpy()
    np.testing.assert_allclose(found / y.numpy().std(0), expected / y.numpy().std(0), atol=1e-7)


@torch.no_grad()
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.kind)
@torch.no_grad()
def test_corrections_begin_at_zero_where_asked_for(config):
    x, y = data()
    predictor = build_predictor(config, 4, 2).double().fit(x, y, start_at_zero=True)
    assert predictor(torch.from_numpy(x[None])).abs().max() < 1e-12 * abs(y).max()


@pytest.mark.parametrize(
    ("config", "members"),
    [(CONFIGS[0], 1), (CONFIGS[0], 3), (CONFIGS[1], 1), (CONFIGS[2], 1)],
    ids=["mlp", "mlps", "gru", "transformer"],
)
@torch.no_grad()
def test_a_silent_predictor_without_a_skip_connection_is_zero(config, members):
    x, y = data()
    plain = msgspec.structs.replace(config, skip=False)
    predictor = build_predictor(plain, 4, 2, members=members).double().fit(x, y)
    rows = torch.from_numpy(x[None, :50])
    assert predictor(rows).abs().max() > 1e-3 * abs(y).max()
    assert not predictor.silent
    predictor.silence()
    assert predictor.silent
    assert predictor(rows).abs().max() < 1e-12 * abs(y).max()


@torch.no_grad()
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.kind)
def test_a_predictor_is_silent_only_if_every_output_is_zero(config):
    predictor, _, _ = fitted(config)
    assert not predictor.silent  # the skip connection acts
    predictor.silence()
    assert predictor.float().silent  # after rounding, too
    predictor.skip.bias[1] += 1e-3
    assert not predictor.silent
    predictor.silence()
    predictor.net.output_layer.weight[0, 0] = 1e-3
    assert not predictor.silent


def test_collinear_and_constant_inputs_give_a_finite_solution():
    x, y = data()
    x = np.concatenate((x, x[:, :1] * 2, np.full((len(x), 1), 7.0)), 1)
    predictor = build_predictor(NetConfig(width=8, depth=1), 6, 2).double().fit(x, y)
    plain, _, _ = fitted(NetConfig(width=8, depth=1))
    found = predictor(torch.from_numpy(x))
    torch.testing.assert_close(found[:, 0], plain(torch.from_numpy(x[:, :4]))[:, 0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.kind)
def test_stepping_is_the_training_pass_in_physical_units(config):
    predictor, x, _ = fitted(config)
    torch.nn.init.normal_(predictor.net.output_layer.weight)
    chunk = x[:120].view(3, 40, 4)
    expected = predictor(chunk)
    fast, slow = predictor.begin(3), predictor.begin(3)
    for t in range(40):
        a, fast = predictor.step_(chunk[:, t], fast)
        b, slow = predictor.step(chunk[:, t], slow)
        torch.testing.assert_close(a, expected[:, t], rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(b, expected[:, t], rtol=1e-9, atol=1e-10)


@torch.no_grad()
def test_losses_are_taken_in_units_of_the_outputs_spread():
    predictor, x, y = fitted(CONFIGS[0])
    target = predictor.normalise_target(y)
    torch.testing.assert_close(target.std(0, unbiased=False), torch.ones(2).double(), rtol=0, atol=1e-5)
    back = predictor.denormaliser.inverse(predictor.forward_normalised(x))
    torch.testing.assert_close(back, predictor(x), rtol=0, atol=0)


def test_gradients_reach_the_last_layer_at_the_start():
    predictor, x, y = fitted(CONFIGS[0])
    loss = (predictor.forward_normalised(x) - predictor.normalise_target(y)).square().mean()
    loss.backward()
    assert predictor.net.output_layer.weight.grad.abs().max() > 0


def test_without_a_skip_connection_the_net_is_alone():
    predictor = build_predictor(NetConfig(width=8, depth=1, skip=False), 4, 2)
    x, y = data(100)
    predictor.fit(x, y)
    assert predictor.skip is None
    assert predictor(torch.from_numpy(x).float()).std() > 0
    assert not any(name.startswith("skip") for name in predictor.state_dict())


@torch.no_grad()
def test_priming_takes_physical_units():
    predictor, x, _ = fitted(CONFIGS[2])
    torch.nn.init.normal_(predictor.net.output_layer.weight)
    chunk = x[:40].view(2, 20, 4)
    carry = predictor.prime(predictor.begin(2), chunk[:, :19])
    torch.testing.assert_close(predictor.step_(chunk[:, 19], carry)[0], predictor(chunk)[:, -1], rtol=1e-9, atol=1e-10)


def test_inputs_and_outputs_of_different_length_are_refused():
    x, y = data(100)
    with pytest.raises(InputError, match="100 rows of inputs and 90 of outputs"):
        build_predictor(NetConfig(width=8, depth=1), 4, 2).fit(x, y[:90])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ({"kind": "transformer", "width": 30, "heads": 4}, "multiple of 2 x heads"),
        ({"width": 0}, "width is 0"),
        ({"kind": "gru", "depth": 0}, "depth is 0"),
    ],
)
def test_impossible_sizes_are_refused(kind, message):
    with pytest.raises((InputError, ValueError), match=message):
        NetConfig(**kind)


def test_the_authors_size_has_the_authors_number_of_weights():
    config = NetConfig(kind="transformer", width=192, depth=6, heads=12, window=10)
    weights = sum(p.numel() for p in build_net(config, 6, 4).parameters())
    assert 2.6e6 < weights < 2.75e6


def test_inputs_far_beyond_their_spread_are_cut_off_where_asked_for():
    torch.manual_seed(0)
    x, y = torch.randn(500, 3), torch.randn(500, 2)
    config = NetConfig(kind="gru", width=6, head=4, clip=4.0)
    bounded = build_predictor(config, 3, 2).fit(x, y)
    far, farther = torch.full((2, 1, 3), 50.0), torch.full((2, 1, 3), 5000.0)
    assert torch.equal(bounded(far), bounded(farther))
    assert not torch.equal(bounded(x[:2, None]), bounded(far))
    stepped, _ = bounded.step_(far[:, 0], bounded.begin(2))
    assert torch.allclose(stepped, bounded(far)[:, 0], atol=1e-6)
    free = build_predictor(NetConfig(kind="gru", width=6, head=4), 3, 2).fit(x, y)
    assert not torch.equal(free(far), free(farther))
    with pytest.raises(ValueError, match=r"clip is 0.*above 0"):
        NetConfig(clip=0.0)

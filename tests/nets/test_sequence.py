# SPDX-License-Identifier: Apache-2.0
"""What holds for every kind of sequence network: stepping is the training pass, and worlds are apart."""

import itertools

import pytest
import torch

from neurodyn.core.artifacts import read_tensors, write_tensors
from neurodyn.core.config import from_dict, to_dict
from neurodyn.nets.networks import NetConfig
from neurodyn.nets.predictor import build_net, build_predictor

INPUTS, OUTPUTS = 5, 3
CONFIGS = {
    "mlp": NetConfig(kind="mlp", width=16, depth=2),
    "gru": NetConfig(kind="gru", width=12, depth=2, head=8),
    "gru-bare": NetConfig(kind="gru", width=12, depth=1, head=0),
    "transformer": NetConfig(kind="transformer", width=24, depth=3, heads=3, window=5, head=8),
    "transformer-window-1": NetConfig(kind="transformer", width=8, depth=2, heads=2, window=1, head=0),
    "transformer-window-12": NetConfig(kind="transformer", width=16, depth=2, heads=2, window=12),
}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


@pytest.fixture
def net(config):
    torch.manual_seed(3)
    return build_net(config, INPUTS, OUTPUTS).double()


def same_bits(a, b):
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def follow(net, x, method, carry=None, resets=None):
    """Step through `x`; before frame t, reset the worlds of resets[t]."""
    carry = net.begin(x.shape[0]) if carry is None else carry
    outputs = []
    for t in range(x.shape[1]):
        if resets and t in resets:
            carry = net.reset(carry, resets[t])
        y, carry = getattr(net, method)(x[:, t], carry)
        outputs.append(y)
    return torch.stack(outputs, 1), carry


def forward_with_resets(net, x, resets):
    """Run the training pass over each stretch between the resets of each world."""
    y = torch.empty(*x.shape[:2], OUTPUTS, dtype=x.dtype)
    for world in range(x.shape[0]):
        cuts = [0, *(t for t in sorted(resets) if resets[t][world]), x.shape[1]]
        for start, end in itertools.pairwise(cuts):
            if end > start:
                y[world, start:end] = net(x[world : world + 1, start:end])[0]
    return y


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("method", ["step", "step_"])
@torch.no_grad()
def test_stepping_is_the_training_pass_also_across_resets(config, method, dtype):
    torch.manual_seed(0)
    net = build_net(config, INPUTS, OUTPUTS).to(dtype)
    x = 2 * torch.randn(4, 400, INPUTS, dtype=dtype)
    resets = {
        7: torch.tensor([False, True, False, False]),
        9: torch.tensor([False, True, True, False]),
        203: torch.tensor([True, False, True, False]),
        204: torch.tensor([True, False, False, False]),
        333: torch.tensor([True, True, True, False]),
    }
    y, _ = follow(net, x, method, resets=resets)
    expected = forward_with_resets(net, x, resets)
    assert expected.std() > 0.01
    assert (y - expected).abs().max() < TOLERANCE[dtype]


@torch.no_grad()
def test_fast_and_differentiable_steps_can_be_mixed(net):
    x = torch.randn(3, 40, INPUTS, dtype=torch.float64)
    carry, outputs = net.begin(3), []
    for t in range(40):
        y, carry = (net.step if t % 3 else net.step_)(x[:, t], carry)
        outputs.append(y)
    assert (torch.stack(outputs, 1) - net(x)).abs().max() < 1e-10


@torch.no_grad()
def test_a_reset_leaves_other_worlds_bitwise_alone(net):
    x = torch.randn(6, 60, INPUTS, dtype=torch.float64)
    mask = torch.tensor([True, False, False, True, False, False])
    for method in ("step", "step_"):
        plain, _ = follow(net, x, method)
        reset, _ = follow(net, x, method, resets={20: mask, 33: mask})
        assert same_bits(plain[~mask].contiguous(), reset[~mask].contiguous())
        if net.context:
            assert not torch.equal(plain[mask, 20], reset[mask, 20])


@torch.no_grad()
def test_a_world_that_went_wrong_is_whole_after_a_reset(net):
    mask = torch.tensor([False, True, False])
    for bad in (float("nan"), float("inf"), -1e300):
        x = torch.randn(3, 40, INPUTS, dtype=torch.float64)
        expected = forward_with_resets(net, x, {20: mask})
        broken = x.clone()
        broken[1, 15:20] = bad
        for first, then in itertools.product(("step", "step_"), repeat=2):
            before, carry = follow(net, broken[:, :20], first)
            after, _ = follow(net, broken[:, 20:], then, net.reset(carry, mask))
            y = torch.cat((before, after), 1)
            assert (y[~mask] - expected[~mask]).abs().max() < 1e-10
            assert (y[mask, 20:] - expected[mask, 20:]).abs().max() < 1e-10


def test_gradients_survive_a_world_that_went_wrong_before_its_reset(net):
    x = torch.randn(2, 12, INPUTS, dtype=torch.float64)
    x[1, 4] = float("nan")
    with torch.no_grad():
        _, carry = follow(net, x[:, :6], "step")
    carry = net.reset(carry, torch.tensor([False, True]))
    tail = x[:, 6:].clone().requires_grad_()
    y, _ = follow(net, tail, "step", carry)
    y.square().sum().backward()
    assert torch.isfinite(tail.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)


def test_step_leaves_its_carry_valid(net):
    x = torch.randn(2, 8, INPUTS, dtype=torch.float64)
    _, carry = follow(net, x, "step")
    first, _ = follow(net, x, "step", carry)
    net.reset(carry, torch.tensor([True, True]))
    again, _ = follow(net, x, "step", carry)
    assert same_bits(first, again)


def test_gradients_of_many_steps_agree_with_finite_differences(net):
    x = torch.randn(2, 7, INPUTS, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([False, True])

    def rollout(x):
        # The output is fed back, as in a roll-out.
        carry, feedback, outputs = net.begin(2), torch.zeros(2, OUTPUTS, dtype=x.dtype), []
        for t in range(x.shape[1]):
            if t == 4:
                carry = net.reset(carry, mask)
            inputs = torch.cat((x[:, t, :OUTPUTS] + feedback, x[:, t, OUTPUTS:]), 1)
            feedback, carry = net.step(inputs, carry)
            outputs.append(feedback)
        return torch.stack(outputs, 1)

    assert torch.autograd.gradcheck(rollout, (x,), atol=1e-7, rtol=1e-5)


def test_weight_gradients_of_stepping_are_those_of_the_training_pass(net):
    x = torch.randn(3, 15, INPUTS, dtype=torch.float64)
    gradients = []
    for y in (net(x), follow(net, x, "step")[0]):
        net.zero_grad()
        y.pow(2).sum().backward()
        gradients.append([p.grad.clone() for p in net.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@torch.no_grad()
def test_priming_is_resetting_and_stepping_through_the_history(net):
    x, history = (torch.randn(4, n, INPUTS, dtype=torch.float64) for n in (31, 9))
    mask = torch.tensor([True, False, True, False])
    _, carry = follow(net, x[:, :11], "step")
    primed, _ = follow(net, x[:, 11:], "step_", net.prime(carry, history, mask))
    alone, _ = follow(net, x[:, 11:], "step", carry)
    fresh = net(torch.cat((history, x[:, 11:]), 1))[:, 9:]
    assert same_bits(primed[~mask].contiguous(), follow(net, x[:, 11:], "step_", carry)[0][~mask].contiguous())
    assert (primed[~mask] - alone[~mask]).abs().max() < 1e-10
    assert (primed[mask] - fresh[mask]).abs().max() < 1e-10


def test_only_the_declared_context_can_reach_an_output(net):
    if isinstance(net, torch.nn.Module) and type(net).__name__ == "GRU":
        pytest.skip("a recurrent net declares a warm-up; its memory fades but does not end")
    frames, last = 60, 50
    x = torch.randn(1, frames, INPUTS, dtype=torch.float64, requires_grad=True)
    (reach,) = torch.autograd.grad(net(x)[0, last].pow(2).sum(), x)
    reached = reach[0].abs().amax(1) > 0
    oldest = int(reached.nonzero().min())
    assert last - oldest == net.context
    assert int(reached.nonzero().max()) == last


@torch.no_grad()
def test_the_zeroed_output_layer_silences_the_net(net):
    net.zero_output()
    assert torch.equal(net(torch.randn(2, 4, INPUTS, dtype=torch.float64)), torch.zeros(2, 4, OUTPUTS).double())


@torch.no_grad()
def test_a_saved_net_is_rebuilt_from_its_configuration(config, tmp_path):
    predictor = build_predictor(config, INPUTS, OUTPUTS)
    x, y = torch.randn(500, INPUTS) * 3 + 1, torch.randn(500, OUTPUTS)
    predictor.fit(x, y)
    write_tensors(tmp_path / "model.safetensors", predictor.state_dict())
    rebuilt = build_predictor(from_dict(to_dict(config), NetConfig), INPUTS, OUTPUTS)
    rebuilt.load_state_dict(read_tensors(tmp_path / "model.safetensors"))
    chunk = torch.randn(2, 30, INPUTS)
    assert same_bits(predictor(chunk), rebuilt(chunk))

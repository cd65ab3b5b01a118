# SPDX-License-Identifier: Apache-2.0
"""The loss of world models: zero gradient at the truth, a spread that finds its size, members that stay apart."""

import pytest
import torch

from neurodyn.data.windows import Windows
from neurodyn.learn.optimiser import MemberParameters
from neurodyn.learn.world_model.settings import WorldPhase, WorldSettings
from neurodyn.learn.world_model.trainer import EventWeights, WorldModelLoss, negative_log_likelihood
from tests import worlds

PHASE = WorldPhase(share=1.0, rate=1e-3, batch=8, context=4, forecast=3, teach=0.5)
WEIGHTS = EventWeights(torch.ones(2), torch.ones(2))


def batch(streams: int = 3, frames: int = 7) -> Windows:
    store = worlds.make_store()
    rows = torch.from_numpy(store.frames).view(40, 61, 8)[:, : frames + 1]
    picked = torch.stack([rows[8 * m : 8 * m + 8] for m in range(streams)])
    failed = torch.zeros(streams, 8, frames + 1, dtype=torch.bool)
    return Windows(
        picked[..., :2], picked[..., 2:4], picked[:, :, :-1, 4:6], channels=picked[..., 6:7], contacts=picked[..., 7:],
        failed=failed,
    )  # fmt: skip


def losses(model, phase: WorldPhase = PHASE, given: Windows | None = None) -> torch.Tensor:
    settings = WorldSettings(net=model.net.config, phases=(phase,), steps=1)
    return WorldModelLoss(model, phase, settings, torch.ones(5), WEIGHTS)(given or batch())


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_the_spread_settles_at_the_size_of_the_error(beta: float):
    errors = 3.0 * torch.randn(50_000, generator=torch.Generator().manual_seed(0))
    for size, sign in ((2.0, -1), (4.5, 1)):
        log_std = torch.tensor(size).log().expand(50_000).clone().requires_grad_()
        negative_log_likelihood(errors, log_std, beta).mean().backward()
        assert log_std.grad is not None
        assert torch.sign(log_std.grad.sum()) == sign  # descent widens what is too narrow, and narrows what is too wide


def test_a_larger_exponent_cares_more_for_what_is_hard_to_predict():
    def share(beta: float) -> float:
        error = torch.tensor([0.1, 10.0], requires_grad=True)
        negative_log_likelihood(error, torch.tensor([0.1, 10.0]).log(), beta).sum().backward()
        assert error.grad is not None
        return float(error.grad[1] / error.grad[0])

    assert share(0.0) == pytest.approx(0.01, rel=1e-3)
    assert share(0.5) == pytest.approx(1.0, rel=1e-3)
    assert share(1.0) == pytest.approx(100.0, rel=1e-3)


@pytest.mark.parametrize("loss", ["likelihood", "absolute"])
def test_members_losses_depend_on_their_own_weights_alone(loss: str):
    import msgspec

    model = worlds.make_model()
    losses(model, msgspec.structs.replace(PHASE, loss=loss))[1].backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad[[0, 2]].any(), name
        assert torch.isfinite(parameter.grad).all()
    assert model.growth.grad is not None
    assert model.growth.grad[1].any()


def test_the_absolute_loss_of_an_exact_model_is_that_of_its_spread():
    import msgspec

    model = worlds.exact_model()
    phase = msgspec.structs.replace(PHASE, loss="absolute", teach=0.0)
    with torch.no_grad():
        before = losses(model, phase)
        model.shift.add_(0.1)
        assert (losses(model, phase) > before + 0.05).all()


def test_forecasts_are_fed_back():
    """An offset of each change adds up over a forecast, which true states in between would undo."""
    model = worlds.exact_model()
    with torch.no_grad():
        model.shift[4] = 0.1
        found = model.follow(model.net.begin(8, model.scale), _start(), batch(1).control)
    truth = torch.cat([batch(1).q, batch(1).qd, batch(1).channels], -1)[:, :, 1:]  # type: ignore[list-item]
    error = (found.states - truth)[0, 0, :, 4]
    expected = [0.1 * sum(0.9**k for k in range(n + 1)) for n in range(7)]
    torch.testing.assert_close(error, torch.tensor(expected), rtol=1e-3, atol=1e-4)


def _start() -> torch.Tensor:
    given = batch(1)
    return torch.cat([given.q, given.qd, given.channels], -1)[:, :, 0]  # type: ignore[list-item]


def test_gradients_are_cut_off_member_by_member():
    model = worlds.make_model()
    parameters = MemberParameters(model, 3)
    (losses(model) * torch.tensor([1.0, 1e3, 0.0])).sum().backward()
    parameters.take_gradients(0.5)
    by_member = [[v.grad for v in views] for views in parameters._by_member]
    norms = [torch.stack([g.norm() for g in grads]).norm() for grads in by_member]  # type: ignore[union-attr]
    assert float(norms[1]) == pytest.approx(0.5, rel=1e-3)
    assert float(norms[2]) == 0.0


def test_views_change_the_model():
    model = worlds.make_model()
    parameters = MemberParameters(model, 3)
    before = model.net.mean.weight.detach().clone()
    with torch.no_grad():
        for view in parameters._by_member[1]:
            view.add_(1.0)
    torch.testing.assert_close(model.net.mean.weight[1], before[1] + 1)
    torch.testing.assert_close(model.net.mean.weight[0], before[0])

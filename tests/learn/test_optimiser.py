# SPDX-License-Identifier: Apache-2.0
"""The learning rate rises, then falls along half a cosine; both optimisers find a minimum."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.optimiser import build_optimiser, set_rate

PHASE = Phase(share=1, rate=0.02, batch=1)


def rates(settings: Settings, shares: np.ndarray) -> np.ndarray:
    optimiser = build_optimiser([torch.nn.Parameter(torch.zeros(2, 2))], settings, PHASE)
    found = [set_rate(optimiser, settings, PHASE, share) for share in shares]
    assert optimiser.param_groups[0]["lr"] == found[-1]
    return np.array(found)


def test_the_rate_rises_to_its_highest_and_falls_to_its_final_share(quick: Settings):
    shares = np.linspace(0, 1, 1001)
    found = rates(msgspec.structs.replace(quick, warmup=0.1, final=0.05), shares)
    peak = int(found.argmax())
    assert 0.09 <= shares[peak] <= 0.11
    assert found[peak] == pytest.approx(0.02, rel=0.03)
    assert (np.diff(found[: peak + 1]) > 0).all()
    assert (np.diff(found[peak:]) < 0).all()
    assert 0 < found[0] < 0.05 * 0.02
    assert found[-1] == pytest.approx(0.05 * 0.02)


def test_without_warm_up_it_is_half_a_cosine(quick: Settings):
    shares = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    found = rates(msgspec.structs.replace(quick, warmup=0.0, final=0.0), shares)
    np.testing.assert_allclose(found, 0.01 * (1 + np.cos(np.pi * shares)), atol=1e-12)


def test_beyond_its_end_the_rate_stays_at_its_final_share(quick: Settings):
    assert np.ptp(rates(quick, np.array([1.0, 1.3]))) == 0


@pytest.mark.trains
@pytest.mark.parametrize("name", ["soap", "adam"])
def test_both_optimisers_find_a_minimum(name: str, quick: Settings):
    settings = msgspec.structs.replace(quick, optimiser=name)
    torch.manual_seed(0)
    weight, aim = torch.nn.Parameter(torch.zeros(4, 3)), torch.randn(4, 3)
    optimiser = build_optimiser([weight], settings, PHASE)
    for step in range(800):
        set_rate(optimiser, settings, PHASE, step / 800)
        optimiser.zero_grad()
        ((weight - aim) * torch.tensor([1.0, 3.0, 10.0])).square().sum().backward()
        optimiser.step()
    assert (weight - aim).abs().max() < 1e-2


def test_frozen_weights_are_not_trained(quick: Settings):
    frozen, free = torch.nn.Parameter(torch.zeros(2), requires_grad=False), torch.nn.Parameter(torch.zeros(2))
    optimiser = build_optimiser([frozen, free], quick, PHASE)
    assert [p is free for p in optimiser.param_groups[0]["params"]] == [True]

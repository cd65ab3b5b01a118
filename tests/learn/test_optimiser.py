# SPDX-License-Identifier: Apache-2.0
"""Optimisers by name: each finds a minimum, frozen weights stay, and another one can be added."""

import msgspec
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.learn.neural.settings import Settings
from neurodyn.learn.optimiser import OPTIMISERS, Method, Schedule, build_optimiser, trainable


@pytest.mark.trains
@pytest.mark.parametrize("name", ["soap", "adam", "lbfgs"])
def test_each_finds_a_minimum(name: str):
    torch.manual_seed(0)
    weight, aim = torch.nn.Parameter(torch.zeros(4, 3)), torch.randn(4, 3)
    optimiser = build_optimiser(name, trainable([weight], 0.02))

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = ((weight - aim) * torch.tensor([1.0, 3.0, 10.0])).square().sum()
        loss.backward()
        return loss

    for step in range(800):
        if not OPTIMISERS[name].line_search:
            optimiser.param_groups[0]["lr"] = Schedule(warmup=0.02, final=0.01).rate(0.02, step / 800)
        optimiser.step(closure)
    assert (weight - aim).abs().max() < 1e-2


def test_frozen_weights_are_not_trained():
    frozen, free = torch.nn.Parameter(torch.zeros(2), requires_grad=False), torch.nn.Parameter(torch.zeros(2))
    optimiser = build_optimiser("adam", trainable([frozen, free], 0.1))
    assert [p is free for p in optimiser.param_groups[0]["params"]] == [True]


def test_another_one_is_added_by_name(quick: Settings):
    with pytest.raises(InputError, match="unknown optimiser 'sgd'; valid: adam, lbfgs, soap"):
        msgspec.structs.replace(quick, optimiser="sgd")
    OPTIMISERS.add("sgd", Method(lambda groups, weight_decay: torch.optim.SGD(groups, weight_decay=weight_decay)))
    try:
        assert msgspec.structs.replace(quick, optimiser="sgd").optimiser == "sgd"
        assert isinstance(build_optimiser("sgd", trainable([torch.nn.Parameter(torch.zeros(1))], 0.1)), torch.optim.SGD)
    finally:
        OPTIMISERS.remove("sgd")


def test_a_line_search_is_for_trainings_on_one_batch(quick: Settings):
    with pytest.raises(InputError, match="'lbfgs' needs the same batch in every step; valid here: adam, soap"):
        msgspec.structs.replace(quick, optimiser="lbfgs")

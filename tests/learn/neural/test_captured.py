# SPDX-License-Identifier: Apache-2.0
"""Gradients that are recorded and replayed are those of the same steps taken one by one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from benchmarks._launches import count_launches

from neurodyn.core.artifacts import read_tree
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.capture import CapturedGradient
from neurodyn.dynamics.neural.model import NEURAL, build_model
from neurodyn.learn.neural import train as training
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.trainer import LossPart, LossScale, NeuralLearner, training_loss
from neurodyn.robots import Robot


class Replay:
    """Stands for a CUDA graph: repeats the call on the same memory."""

    made = 0

    def __init__(self, work: Callable[[], None], device: torch.device, generators: Sequence[torch.Generator]) -> None:
        Replay.made += 1
        self.replay = work
        for _ in range(3):
            work()


@pytest.mark.trains
def test_a_training_by_recorded_gradients_is_the_same(
    cartpole: Robot, plant_store: Store, quick: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    phases = (Phase(share=0.5, rate=1e-2, batch=16), Phase(share=0.5, rate=3e-3, batch=16, forecast=3))
    settings = msgspec.structs.replace(quick, phases=phases, steps=12)

    def weights(name: str) -> dict[str, torch.Tensor]:
        training.train(cartpole, "cartpole", "here", plant_store, tmp_path / name, settings)
        return read_tree(tmp_path / name / "state", "training")["model"]

    stepwise = weights("stepwise")

    def recorded(*given: Any, **options: Any) -> NeuralLearner:
        return NeuralLearner(*given, **options, record=Replay)

    monkeypatch.setattr(training, "NeuralLearner", recorded)
    Replay.made = 0
    found = weights("recorded")
    assert Replay.made == 2  # one for each phase
    assert all(torch.equal(found[name], tensor) for name, tensor in stepwise.items())


def test_gradients_are_those_of_the_last_batch():
    weight = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
    captured = CapturedGradient(
        lambda held: lambda: (weight * held[0]).sum(), (torch.ones(2),), [weight], record=Replay
    )
    assert captured((torch.tensor([5.0, 7.0]),)) == 31.0
    assert weight.grad is not None
    assert weight.grad.tolist() == [5.0, 7.0]
    weight.grad = None  # as an optimiser that drops gradients leaves it
    captured((torch.tensor([1.0, 0.0]),))
    assert weight.grad.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("forecast", [0, 3])
def test_the_loss_reads_nothing_from_a_gpu(forecast: int):
    config, known = NEURAL.read("pretrained:ant")
    alone = msgspec.structs.replace(config, encoding=msgspec.structs.replace(config.encoding, base=None))
    model = build_model(alone, known).to("meta")
    spec, frames = model.spec, max(1, forecast)
    like = torch.zeros(8, frames + 1, 1, device="meta")
    batch = Windows(
        q=like.expand(-1, -1, spec.nq).clone(), qd=like.expand(-1, -1, spec.nv).clone(),
        control=like[:, :-1].expand(-1, -1, spec.nu).clone(), ground=torch.zeros(8, 7, device="meta"),
    )  # fmt: skip
    scale = LossScale(torch.ones(spec.nv, device="meta"), torch.ones(spec.nv, device="meta"))
    phase = Phase(share=1.0, rate=1e-3, batch=8, forecast=forecast, balance=0.01)
    parts = [LossPart(batch, model.home)]

    def gradient() -> None:
        training_loss(model, parts, phase, scale).sum().backward()

    gradient()
    assert not count_launches(gradient).copies


@pytest.mark.trains
def test_stores_on_one_ground_make_batches_of_one_shape(
    cartpole: Robot, plant_store: Store, quick: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def recorded(*given: Any, **options: Any) -> NeuralLearner:
        return NeuralLearner(*given, **options, record=Replay)

    monkeypatch.setattr(training, "NeuralLearner", recorded)
    Replay.made = 0
    both = Mixture.of([plant_store, plant_store], (0.3, 0.7), ("a", "b"))
    settings = msgspec.structs.replace(quick, phases=(Phase(share=1.0, rate=1e-2, batch=15),), steps=12)
    training.train(cartpole, "cartpole", ("a", "b"), both, tmp_path / "run", settings)
    assert Replay.made == 1  # though 4 or 5 of 15 windows are of the first

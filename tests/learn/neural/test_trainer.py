# SPDX-License-Identifier: Apache-2.0
"""A training that is stopped at any step and resumed ends where one that was not stopped ends."""

from pathlib import Path

import msgspec
import pytest
import torch

from neurodyn.core.artifacts import read_tree
from neurodyn.data.store import Store
from neurodyn.learn.loop import Callback, has_state
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.train import train
from neurodyn.nets.networks import NetConfig
from neurodyn.robots import Robot
from tests.learn.callbacks import StopAt, Stopped

NETS = {
    "mlp": NetConfig(kind="mlp", width=32, depth=2),
    "gru": NetConfig(kind="gru", width=12, depth=1, head=8, warmup=4),
    "transformer": NetConfig(kind="transformer", width=16, depth=1, heads=2, window=4, head=8),
}
PHASES = (Phase(share=0.5, rate=1e-2, batch=16, frames=8), Phase(share=0.5, rate=3e-3, batch=16, forecast=3, context=4))


@pytest.mark.trains
@pytest.mark.parametrize(
    ("net", "optimiser", "steps"),
    [
        ("mlp", "soap", (1, 9, 12, 20, 27)),
        ("mlp", "adam", (9, 27)),
        ("gru", "soap", (9, 27)),
        ("transformer", "soap", (9, 27)),
    ],
)
def test_where_a_training_is_stopped_makes_no_bit_of_difference(
    net: str,
    optimiser: str,
    steps: tuple[int, ...],
    cartpole: Robot,
    plant_store: Store,
    quick: Settings,
    tmp_path: Path,
):
    settings = msgspec.structs.replace(quick, net=NETS[net], optimiser=optimiser, phases=PHASES, steps=40)

    def go_on(name: str, resume: bool = False, callbacks: tuple[Callback, ...] = ()) -> None:
        out = tmp_path / name
        train(cartpole, "cartpole", "here", plant_store, out, settings, resume=resume, callbacks=callbacks)

    go_on("whole")
    whole = read_tree(tmp_path / "whole" / "state", "training")
    assert not has_state(tmp_path / "elsewhere")
    for step in steps:
        with pytest.raises(Stopped):
            go_on(str(step), callbacks=(StopAt(step),))
        assert has_state(tmp_path / str(step))
        go_on(str(step), resume=True)
        found = read_tree(tmp_path / str(step) / "state", "training")
        assert all(torch.equal(found["model"][name], tensor) for name, tensor in whole["model"].items()), step
        assert found["position"]["best"] == whole["position"]["best"]
        assert found["position"]["step"] == 40


def test_validations_are_spread_over_all_phases(cartpole: Robot, plant_store: Store, quick: Settings, tmp_path: Path):
    from neurodyn.learn.metrics import read_metrics

    settings = msgspec.structs.replace(quick, phases=PHASES, steps=40, validations=8)
    train(cartpole, "cartpole", "here", plant_store, tmp_path, settings)
    lines = [line for line in read_metrics(tmp_path) if "rollout_score" in line]
    assert [line["step"] for line in lines] == list(range(0, 41, 5))
    assert [line["phase"] for line in lines] == [0] * 5 + [1] * 4


def test_progress_ends_at_the_end(cartpole: Robot, plant_store: Store, quick: Settings, tmp_path: Path):
    class Seen:
        def __init__(self) -> None:
            self.shares: list[float] = []

        def update(self, done: float, text: str) -> None:
            assert "slider" in text
            self.shares.append(done)

    seen = Seen()
    settings = msgspec.structs.replace(quick, phases=PHASES, steps=40)
    train(cartpole, "cartpole", "here", plant_store, tmp_path, settings, progress=seen)
    assert seen.shares == pytest.approx([0.25, 0.5, 0.75, 1.0])

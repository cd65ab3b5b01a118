# SPDX-License-Identifier: Apache-2.0
"""A training of one weight that keeps its model as a file, and its record."""

from pathlib import Path

from neurodyn.core.config import Config
from neurodyn.learn.budget import TrainState
from neurodyn.learn.manifest import RunRecord
from tests.learn.test_loop import One


class Settings(Config, frozen=True):
    """Settings of a training."""

    seed: int = 3
    rates: tuple[float, ...] = (0.1, 0.01)


RECORD = RunRecord[Settings](kind="neural", robot="cartpole", data="data.h5", settings=Settings(), versions={})


class Kept(One):
    """Keeps its weight as a file, as learners of models do."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.out = out

    def keep(self, train_state: TrainState) -> None:
        super().keep(train_state)
        (self.out / "model").mkdir(exist_ok=True)
        (self.out / "model" / "model.safetensors").write_bytes(self.weight.detach().numpy().tobytes())

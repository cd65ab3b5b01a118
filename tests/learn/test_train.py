# SPDX-License-Identifier: Apache-2.0
"""Training from Python: a robot and data by name or as objects, every kind by its record."""

from pathlib import Path

import pytest
import torch

from neurodyn.core.artifacts import read_tensors
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.learn.loop import Callback, TrainingLoop
from neurodyn.learn.neural.train import read_run_config
from neurodyn.learn.training import finetune, train
from neurodyn.robots import Robot


class Count(Callback):
    def __init__(self) -> None:
        self.steps = 0

    def on_step(self, loop: TrainingLoop) -> None:
        self.steps += 1


def test_a_model_is_trained_and_fine_tuned_by_names(plant_file: Path, tmp_path: Path):
    count = Count()
    end = train("cartpole", plant_file, tmp_path / "run", net="mlp", steps=4, seed=3, callbacks=[count])
    assert end.step == count.steps == 4
    config = read_run_config(tmp_path / "run")
    assert (config.kind, config.robot, config.data) == ("neural", "cartpole", str(plant_file))
    assert (config.settings.net.kind, config.settings.steps, config.settings.seed) == ("mlp", 4, 3)
    assert train("cartpole", plant_file, tmp_path / "run", net="mlp", steps=6, seed=3, resume=True).step == 6
    assert finetune(tmp_path / "run", plant_file, tmp_path / "tuned", steps=2, callbacks=[count]).step == 2
    assert read_run_config(tmp_path / "tuned").base == str(tmp_path / "run")
    assert count.steps == 6


def test_a_robot_and_a_store_may_be_given_as_they_are(cartpole: Robot, plant_store: Store, tmp_path: Path):
    assert train(cartpole, plant_store, tmp_path / "run", steps=4).step == 4
    assert read_run_config(tmp_path / "run").robot == "cartpole"


def test_settings_may_be_given_as_they_are(cartpole: Robot, plant_store: Store, tmp_path: Path):
    train(cartpole, plant_store, tmp_path / "named", net="mlp", steps=4, seed=3)
    settings = read_run_config(tmp_path / "named").settings
    train(cartpole, plant_store, tmp_path / "given", size=settings)
    assert read_run_config(tmp_path / "given").settings == settings
    weights = [read_tensors(tmp_path / run / "model" / "model.safetensors") for run in ("named", "given")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    with pytest.raises(InputError, match="size is Settings; valid for 'world-model': a name, a file, or WorldSettings"):
        train(cartpole, plant_store, tmp_path / "no", kind="world-model", size=settings)
    finetune(tmp_path / "given", plant_store, tmp_path / "tuned", size=settings, steps=2)
    assert read_run_config(tmp_path / "tuned").settings.steps == 2


def test_a_run_may_be_a_link_to_where_there_is_space(plant_file: Path, tmp_path: Path):
    (tmp_path / "run").symlink_to(tmp_path / "disk" / "runs" / "one")
    train("cartpole", plant_file, tmp_path / "run", net="mlp", steps=2)
    assert (tmp_path / "run").is_symlink()
    assert (tmp_path / "disk" / "runs" / "one" / "model" / "spec.json").is_file()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="loop: cannot be written"):
        train("cartpole", plant_file, tmp_path / "loop", net="mlp", steps=2)


def test_kinds_are_trained_by_their_records(cartpole: Robot, plant_store: Store, tmp_path: Path):
    assert train(cartpole, plant_store, tmp_path / "world", kind="world-model", steps=4).step == 4
    with pytest.raises(InputError, match="--net is for --kind neural"):
        train(cartpole, plant_store, tmp_path / "no", kind="world-model", net="gru", steps=2)
    with pytest.raises(InputError, match="--base is for --kind neural"):
        train(cartpole, plant_store, tmp_path / "no", kind="world-model", base="contact", steps=2)
    with pytest.raises(InputError, match="unknown base 'wings'"):
        train(cartpole, plant_store, tmp_path / "no", base="wings", steps=2)
    with pytest.raises(InputError, match="unknown kind of dynamics 'magic'"):
        train(cartpole, plant_store, tmp_path / "no", kind="magic")
    with pytest.raises(InputError, match=r"kind is 'any', .* valid in Python: neurodyn.identify.adapt\("):
        train(cartpole, plant_store, tmp_path / "no", kind="any")
    with pytest.raises(InputError, match="kind is 'analytic'"):
        train(cartpole, plant_store, tmp_path / "no", kind="analytic")
    assert not (tmp_path / "no").exists()
    assert finetune(tmp_path / "world", plant_store, tmp_path / "on", steps=2).step == 2

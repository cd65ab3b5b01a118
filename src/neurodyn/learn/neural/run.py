# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics as `learn.train` and `learn.finetune` ask for them: data and settings by name."""

from pathlib import Path
from typing import Any

from neurodyn.data.store import Store
from neurodyn.dynamics.neural.artifact import NEURAL
from neurodyn.dynamics.same_robot import require_same_simulator
from neurodyn.learn.loop import TrainState
from neurodyn.learn.neural.settings import load_finetuning, load_settings
from neurodyn.learn.neural.train import finetune, train
from neurodyn.learn.plan import with_budget
from neurodyn.learn.run_folder import place_of
from neurodyn.robots import Robot, load
from neurodyn.robots.data import open_robot_data


def train_run(
    robot: Robot,
    name: str,
    data: Store | str | Path,
    out: Path,
    *,
    size: str,
    net: str | None,
    minutes: float | None,
    steps: int | None,
    seed: int | None,
    **options: Any,
) -> TrainState:
    """Train neural dynamics as `learn.train` asks; `options` and errors are those of `train`."""
    store = data if isinstance(data, Store) else open_robot_data(robot, data)
    require_same_simulator(robot, store)
    log = store.header.source == "log"
    settings = with_budget(load_settings(robot, size, net, log=log), minutes, steps, seed)
    return train(robot, name, place_of(data), store, out, settings, **options)


def finetune_run(
    run: str,
    data: Store | str | Path,
    out: Path,
    *,
    size: str,
    minutes: float | None,
    steps: int | None,
    seed: int | None,
    **options: Any,
) -> TrainState:
    """Fine-tune neural dynamics as `learn.finetune` asks; `options` and errors are those of `finetune`."""
    config, _ = NEURAL.read(run)
    robot = load(config.robot)
    settings = with_budget(load_finetuning(size, config.net, robot), minutes, steps, seed)
    store = data if isinstance(data, Store) else open_robot_data(robot, data)
    return finetune(run, place_of(data), store, out, settings, **options)

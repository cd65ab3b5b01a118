# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics as `learn.train` and `learn.finetune` ask for them: data and settings by name."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from neurodyn.core.config import replaced
from neurodyn.data.mixture import Mixture
from neurodyn.dynamics.files.same_robot import require_same_simulator
from neurodyn.dynamics.neural.artifact import NEURAL
from neurodyn.learn.loop import TrainState
from neurodyn.learn.neural.settings import Settings, load_finetuning, load_settings
from neurodyn.learn.neural.train import finetune, require_data, train
from neurodyn.learn.plan import with_budget
from neurodyn.learn.run_folder import Data, open_mixture, place_of
from neurodyn.robots import Robot, load
from neurodyn.robots.data import open_robot_data


def train_run(
    robot: Robot,
    name: str,
    data: Data,
    out: Path,
    *,
    size: str,
    net: str | None,
    minutes: float | None,
    steps: int | None,
    seed: int | None,
    shares: Sequence[float] | None = None,
    threads: int | None = None,
    members: int | None = None,
    **options: Any,
) -> TrainState:
    """Train neural dynamics as `learn.train` asks; `options` and errors are those of `train`."""
    settings, mixture = plan_training(
        robot, data, size=size, net=net, minutes=minutes, steps=steps, seed=seed, shares=shares, threads=threads,
        members=members,
    )  # fmt: skip
    return train(robot, name, place_of(mixture), mixture, out, settings, **options)


def finetune_run(
    run: str,
    data: Data,
    out: Path,
    *,
    size: str,
    minutes: float | None,
    steps: int | None,
    seed: int | None,
    shares: Sequence[float] | None = None,
    threads: int | None = None,
    **options: Any,
) -> TrainState:
    """Fine-tune neural dynamics as `learn.finetune` asks; `options` and errors are those of `finetune`."""
    settings, mixture = plan_finetuning(
        run, data, size=size, minutes=minutes, steps=steps, seed=seed, shares=shares, threads=threads
    )
    return finetune(run, place_of(mixture), mixture, out, settings, **options)


def plan_training(
    robot: Robot,
    data: Data,
    *,
    size: str,
    net: str | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    shares: Sequence[float] | None = None,
    threads: int | None = None,
    members: int | None = None,
) -> tuple[Settings, Mixture]:
    """Return with which settings, and on which data, a robot's model is to be trained; errors as of `train`."""
    mixture = open_mixture(data, shares, partial(open_robot_data, robot))
    for store in mixture.stores:
        require_data(robot, store)
        require_same_simulator(robot, store)
    log = any(store.header.source == "log" for store in mixture.stores)
    settings = with_budget(load_settings(robot, size, net, log=log), minutes, steps, seed, threads)
    return settings if members is None else replaced(settings, members=members), mixture


def plan_finetuning(
    run: str,
    data: Data,
    *,
    size: str,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    shares: Sequence[float] | None = None,
    threads: int | None = None,
) -> tuple[Settings, Mixture]:
    """Return with which settings, and on which data, a run is to be fine-tuned; errors as of `finetune`."""
    config, _ = NEURAL.read(run)
    robot = load(config.robot)
    settings = with_budget(load_finetuning(size, config.net, robot, config.members), minutes, steps, seed, threads)
    return settings, open_mixture(data, shares, partial(open_robot_data, robot))

# SPDX-License-Identifier: Apache-2.0
"""World models as `learn.train` asks for them: data and settings by name."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from neurodyn.core.config import replaced
from neurodyn.core.errors import InputError
from neurodyn.data.mixture import Mixture
from neurodyn.dynamics.world_model.artifact import WORLD_MODEL
from neurodyn.learn.loop import TrainState
from neurodyn.learn.plan import with_budget
from neurodyn.learn.run_folder import Data, open_mixture, place_of
from neurodyn.learn.world_model.settings import WorldSettings, load_world_finetuning, load_world_settings
from neurodyn.learn.world_model.train import finetune_world_model, require_log, train_world_model
from neurodyn.robots import Robot, load
from neurodyn.robots.data import open_measured_data


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
    """Train a world model as `learn.train` asks; `options` and errors are those of `train_world_model`."""
    settings, mixture = plan_training(
        robot, data, size=size, net=net, minutes=minutes, steps=steps, seed=seed, shares=shares, threads=threads,
        members=members,
    )  # fmt: skip
    return train_world_model(robot, name, place_of(mixture), mixture, out, settings, **options)


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
    """Fine-tune a world model as `learn.finetune` asks; `options` and errors are those of `finetune_world_model`."""
    settings, mixture = plan_finetuning(
        run, data, size=size, minutes=minutes, steps=steps, seed=seed, shares=shares, threads=threads
    )
    return finetune_world_model(run, place_of(mixture), mixture, out, settings, **options)


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
) -> tuple[WorldSettings, Mixture]:
    """Return with which settings, and on which data, a robot's world model is to be trained.

    Raises:
        InputError: As of `train_world_model`; or a network is asked for, which is part of a world model's settings.
    """
    if net is not None:
        raise InputError("--net is for --kind neural; the network of a world model is part of its settings (--size)")
    mixture = open_mixture(data, shares, partial(open_measured_data, robot))
    for store in mixture.stores:
        require_log(robot, store)
    settings = with_budget(load_world_settings(robot, size), minutes, steps, seed, threads)
    if members is not None:
        settings = replaced(settings, net=replaced(settings.net, members=members))
    return settings, mixture


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
) -> tuple[WorldSettings, Mixture]:
    """Return with which settings, and on which data, a run is to be fine-tuned; errors as of `finetune_world_model`."""
    config, known = WORLD_MODEL.read(run)
    settings = load_world_finetuning(size, config.net, known.state.context)
    mixture = open_mixture(data, shares, partial(open_measured_data, load(config.robot)))
    return with_budget(settings, minutes, steps, seed, threads), mixture

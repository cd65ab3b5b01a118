# SPDX-License-Identifier: Apache-2.0
"""`neurodyn train`: a model from a dataset."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from neurodyn.cli.choice import one_of
from neurodyn.nets.networks import NETWORKS

if TYPE_CHECKING:
    from neurodyn.robots import Robot


def train(
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")],
    /,
    *,
    data: str,
    out: Path,
    kind: Literal["neural", "world-model"] = "neural",
    size: str = "small",
    net: Annotated[str, one_of(NETWORKS)] | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    device: str = "cpu",
    resume: bool = False,
) -> None:
    """Train a model on a dataset and write it to a run directory.

    Args:
        robot: Name of a robot, or the path of your own declaration.
        data: HDF5 store of `neurodyn generate` or `neurodyn import`, or an npz log that the robot declares.
        out: Run directory to write.
        kind: Kind of dynamics: "neural" predicts the state of a simulator, "world-model" is an ensemble that predicts
            whatever the data measure, and how sure it is.
        size: Training settings: small, paper, or the path of a settings file.
        net: Kind of network (neural); by default the one that suits the robot.
        minutes: Time budget; by default that of the settings.
        steps: Optimiser steps instead of a time budget; then everything depends on the seed alone.
        seed: Seed of weights and batches.
        device: Torch device that trains: cpu, cuda, cuda:1 ...
        resume: Go on with a run that was killed.
    """
    from neurodyn.cli.console import TrainingBar, report_training
    from neurodyn.core.errors import InputError
    from neurodyn.dynamics.same_robot import require_same_simulator
    from neurodyn.learn.neural.settings import load_settings, with_budget
    from neurodyn.learn.neural.train import train as train_model
    from neurodyn.robots import load, locate
    from neurodyn.robots.data import open_robot_data

    declared = load(robot)
    found = locate(robot)
    if kind == "world-model":
        if net is not None:
            raise InputError(
                "--net is for --kind neural; the network of a world model is part of its settings (--size)"
            )
        _train_world_model(declared, found, data, out, size, minutes, steps, seed, device, resume)
        return
    store = open_robot_data(declared, data)
    require_same_simulator(declared, store)
    log = store.header.source == "log"
    settings = with_budget(load_settings(declared, size, net, log=log), minutes, steps, seed)
    with TrainingBar(f"training {declared.name} ({settings.net.kind}, {kind})") as bar:
        end = train_model(declared, found, data, store, out, settings, resume=resume, progress=bar, device=device)
    report_training(out, end)


def _train_world_model(
    robot: "Robot",
    name: str,
    data: str,
    out: Path,
    size: str,
    minutes: float | None,
    steps: int | None,
    seed: int | None,
    device: str,
    resume: bool,
) -> None:
    from neurodyn.cli.console import TrainingBar, report_training
    from neurodyn.learn.plan import with_budget
    from neurodyn.learn.world_model.settings import load_world_settings
    from neurodyn.learn.world_model.train import train_world_model
    from neurodyn.robots.data import open_measured_data

    store = open_measured_data(robot, data)
    settings = with_budget(load_world_settings(robot, size), minutes, steps, seed)
    with TrainingBar(f"training {robot.name} ({settings.net.kind} x{settings.net.members}, world-model)") as bar:
        end = train_world_model(robot, name, data, store, out, settings, resume=resume, progress=bar, device=device)
    report_training(out, end)

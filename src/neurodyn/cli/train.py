# SPDX-License-Identifier: Apache-2.0
"""`neurodyn train`: a model from a dataset."""

from pathlib import Path
from typing import Annotated, Literal

import tyro


def train(
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")],
    /,
    *,
    data: str,
    out: Path,
    kind: Literal["neural"] = "neural",
    size: str = "small",
    net: Literal["mlp", "gru", "transformer"] | None = None,
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
        kind: Kind of dynamics.
        size: Training settings: small, paper, or the path of a settings file.
        net: Kind of network; by default the one that suits the robot.
        minutes: Time budget; by default that of the settings.
        steps: Optimiser steps instead of a time budget; then everything depends on the seed alone.
        seed: Seed of weights and batches.
        device: Torch device that trains: cpu, cuda, cuda:1 ...
        resume: Go on with a run that was killed.
    """
    from neurodyn.cli.console import TrainingBar, report_training
    from neurodyn.fit.data import open_robot_data
    from neurodyn.fit.same_robot import require_same_teacher
    from neurodyn.fit.settings import load_settings, with_budget
    from neurodyn.fit.train import train as train_model
    from neurodyn.robots import load, names

    declared = load(robot)
    # The run is found again from any folder.
    found = robot if robot in names() else str(Path(robot).resolve())
    store = open_robot_data(declared, data)
    require_same_teacher(declared, store)
    log = store.header.source == "log"
    settings = with_budget(load_settings(declared, size, net, log=log), minutes, steps, seed)
    with TrainingBar(f"training {declared.name} ({settings.net.kind}, {kind})") as bar:
        end = train_model(declared, found, data, store, out, settings, resume=resume, progress=bar, device=device)
    report_training(out, end)

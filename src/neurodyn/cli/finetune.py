# SPDX-License-Identifier: Apache-2.0
"""`neurodyn finetune`: the same model, adapted to other data."""

from pathlib import Path
from typing import Annotated

import tyro


def finetune(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    /,
    *,
    data: str,
    out: Path,
    size: str = "finetune",
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    device: str = "cpu",
    resume: bool = False,
) -> None:
    """Adapt a trained model to other data of the same robot and write it to a new run directory.

    Args:
        run: Run directory, or pretrained:NAME.
        data: HDF5 store, or an npz log that the robot declares.
        out: Run directory to write.
        size: Settings: finetune, or the path of a settings file.
        minutes: Time budget; by default that of the settings.
        steps: Optimiser steps instead of a time budget.
        seed: Seed of the batches.
        device: Torch device that trains: cpu, cuda, cuda:1 ...
        resume: Go on with a fine-tuning that was killed.
    """
    from neurodyn.cli.console import TrainingBar, report_training
    from neurodyn.dynamics.neural.artifact import NEURAL
    from neurodyn.learn.neural.settings import load_finetuning, with_budget
    from neurodyn.learn.neural.train import finetune as finetune_model
    from neurodyn.robots import load
    from neurodyn.robots.data import open_robot_data

    config, _ = NEURAL.read(run)
    declared = load(config.robot)
    settings = with_budget(load_finetuning(size, config.net, declared), minutes, steps, seed)
    store = open_robot_data(declared, data)
    with TrainingBar(f"fine-tuning {declared.name}") as bar:
        end = finetune_model(run, data, store, out, settings, resume=resume, progress=bar, device=device)
    report_training(out, end)

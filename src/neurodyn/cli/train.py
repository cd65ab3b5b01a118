# SPDX-License-Identifier: Apache-2.0
"""`neurodyn train`: a model from a dataset."""

from pathlib import Path
from typing import Annotated

from neurodyn.cli.terminal.flags import Device, GpuIds, LoggerFlag, Threads, one_of, own_device, read_by
from neurodyn.nets.networks import NETWORKS


def _base(given: str) -> str:
    from neurodyn.dynamics.neural.base_prediction import BASES

    BASES.require(given)
    return given


def train(
    robot: str,
    /,
    *,
    data: tuple[str, ...],
    out: Path,
    kind: str = "neural",
    size: str = "small",
    net: Annotated[str, one_of(NETWORKS)] | None = None,
    base: Annotated[str, read_by(_base, "free|contact", str)] | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    shares: tuple[float, ...] | None = None,
    members: int | None = None,
    device: Device = "cpu",
    gpu_ids: GpuIds = (),
    threads: Threads = None,
    resume: bool = False,
    logger: LoggerFlag = None,
) -> None:
    """Train a model on a dataset and write it to a run directory.

    Args:
        robot: Name of a robot, or the path of your own declaration.
        data: HDF5 store of `neurodyn generate`, `import` or `policy log`, or an npz log that the robot declares; or
            several files of one robot, each on its own ground.
        out: Run directory to write.
        kind: Kind of dynamics: "neural" predicts the state of a simulator; "world-model" is an ensemble that predicts
            what the data measure, and how uncertain that is.
        size: Training settings: small, paper, for world models also short and long (memory), or the path of a file.
        net: Kind of network (neural); by default the one that suits the robot.
        base: Known motion that the network corrects (neural, data that were simulated): contact for the mechanism as
            built with contacts, limits and friction, free for it without; by default that of the settings, or none.
        minutes: Time budget; by default that of the settings.
        steps: Optimiser steps instead of a time budget; then everything depends on the seed alone.
        seed: Seed of weights and batches.
        shares: Share of each file in the windows of a batch, as .7 .3; by default that of its transitions.
        members: Networks that are trained side by side, each on its own draw of the episodes; where they disagree the
            model is uncertain. By default those of the settings: 1 (neural) or 5 (world-model).
        device: Torch device that trains: cpu, cuda, cuda:1 ...
        gpu_ids: GPUs to train on, one process on each with a batch of its own: 0 1, or all.
        threads: Threads of tensor operations; by default those of the settings (1, the fastest for small networks).
        resume: Go on with a run that was stopped.
        logger: What follows the training beside metrics.jsonl: tensorboard (default), wandb, none, or a LogWriter of
            rsl_rl as MODULE:CLASS. A resumed run keeps its own.

    Example:
        neurodyn train cartpole --data cartpole.h5 --out runs/cartpole --minutes 10
        neurodyn train anymal-c --kind world-model --data walks.h5 --out runs/walks
    """
    from neurodyn.cli.terminal.console import ProgressBar, report_training
    from neurodyn.learn.train import train as train_model

    with ProgressBar(f"training {robot} ({kind})") as bar:
        end = train_model(
            robot, data, out, kind=kind, size=size, net=net, base=base, minutes=minutes, steps=steps, seed=seed,
            shares=shares, members=members, device=own_device(device, gpu_ids), threads=threads, resume=resume,
            progress=bar, logger=logger,
        )  # fmt: skip
    report_training(out, end)

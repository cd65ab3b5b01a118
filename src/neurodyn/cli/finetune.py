# SPDX-License-Identifier: Apache-2.0
"""`neurodyn finetune`: the same model, adapted to other data."""

from pathlib import Path

from neurodyn.cli.terminal.flags import Device, GpuIds, LoggerFlag, Threads, own_device


def finetune(
    run: str,
    /,
    *,
    data: tuple[str, ...],
    out: Path,
    size: str = "finetune",
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    shares: tuple[float, ...] | None = None,
    device: Device = "cpu",
    gpu_ids: GpuIds = (),
    threads: Threads = None,
    resume: bool = False,
    logger: LoggerFlag = None,
) -> None:
    """Adapt a trained model to other data of the same robot and write it to a new run directory.

    Args:
        run: Run directory, or pretrained:NAME.
        data: HDF5 store, or an npz log that the robot declares; or several files.
        out: Run directory to write.
        size: Settings: finetune, or the path of a settings file.
        minutes: Time budget; by default that of the settings.
        steps: Optimiser steps instead of a time budget.
        seed: Seed of the batches.
        shares: Share of each file in the windows of a batch, as .7 .3; by default that of its transitions.
        device: Torch device that trains: cpu, cuda, cuda:1 ...
        gpu_ids: GPUs to train on, one process on each with a batch of its own: 0 1, or all.
        threads: Threads of tensor operations; by default those of the settings (1, the fastest for small networks).
        resume: Go on with a fine-tuning that was stopped.
        logger: What follows the training beside metrics.jsonl: tensorboard (default), wandb, none, or a LogWriter of
            rsl_rl as MODULE:CLASS. A resumed run keeps its own.

    Example:
        neurodyn finetune runs/cartpole --data my-log.h5 --out runs/mine
    """
    from neurodyn.cli.terminal.console import ProgressBar, report_training
    from neurodyn.learn.train import finetune as finetune_model

    with ProgressBar(f"fine-tuning {run}") as bar:
        end = finetune_model(
            run, data, out, size=size, minutes=minutes, steps=steps, seed=seed, shares=shares,
            device=own_device(device, gpu_ids), threads=threads, resume=resume, progress=bar, logger=logger,
        )  # fmt: skip
    report_training(out, end)

# SPDX-License-Identifier: Apache-2.0
"""`neurodyn finetune`: the same model, adapted to other data."""

from pathlib import Path

from neurodyn.cli.terminal.command import command
from neurodyn.cli.terminal.flags import GpuIds, own_device
from neurodyn.core.config import replaced
from neurodyn.learn.requests import FinetuneRequest


@command(FinetuneRequest, after={"gpu_ids": "device"})
def finetune(request: FinetuneRequest, *, gpu_ids: GpuIds = ()) -> None:
    """Adapt a trained model to other data of the same robot and write it to a new run directory.

    Flags:
        gpu_ids: GPUs to train on, one process on each with a batch of its own: 0 1, or all.

    Example:
        neurodyn finetune runs/cartpole --data my-log.h5 --out runs/mine
    """
    from neurodyn.cli.terminal.console import ProgressBar, report_training
    from neurodyn.learn.train import finetune as finetune_model

    device = own_device(request.device, gpu_ids)
    with ProgressBar(f"fine-tuning {request.run}") as bar:
        end = finetune_model(replaced(request, device=device, progress=bar))
    report_training(Path(request.out), end)

# SPDX-License-Identifier: Apache-2.0
"""`neurodyn train`: a model from a dataset."""

from pathlib import Path

from neurodyn.cli.terminal.command import command
from neurodyn.cli.terminal.flags import GpuIds, own_device
from neurodyn.core.config import replaced
from neurodyn.learn.requests import TrainRequest


@command(TrainRequest, after={"gpu_ids": "device"})
def train(request: TrainRequest, *, gpu_ids: GpuIds = ()) -> None:
    """Train a model on a dataset and write it to a run directory.

    Flags:
        gpu_ids: GPUs to train on, one process on each with a batch of its own: 0 1, or all.

    Example:
        neurodyn train cartpole --data cartpole.h5 --out runs/cartpole --minutes 10
        neurodyn train anymal-c --kind world-model --data walks.h5 --out runs/walks
    """
    from neurodyn.cli.terminal.console import ProgressBar, report_training
    from neurodyn.learn.train import train as train_model

    device = own_device(request.device, gpu_ids)
    with ProgressBar(f"training {request.robot} ({request.kind})") as bar:
        end = train_model(replaced(request, device=device, progress=bar))
    report_training(Path(request.out), end)

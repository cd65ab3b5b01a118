# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy train`: a policy, in any dynamics."""

from neurodyn.cli.terminal.command import command
from neurodyn.cli.terminal.flags import GpuIds, own_device
from neurodyn.core.config import replaced
from neurodyn.policy.requests import TrainPolicyRequest


@command(TrainPolicyRequest, after={"gpu_ids": "device"})
def train(request: TrainPolicyRequest, *, gpu_ids: GpuIds = ()) -> None:
    """Train a policy in a simulator or in a model, and write it to a folder.

    Flags:
        gpu_ids: GPUs to train on, one process on each with worlds of its own: 0 1, or all.

    Example:
        neurodyn policy train cartpole-swingup --dynamics runs/cartpole --out policies/swingup
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.verdict import require_usable
    from neurodyn.policy.algorithms import require_learner

    require_learner()
    from neurodyn.control.resolve import open_reference
    from neurodyn.control.task_frames import require_fit
    from neurodyn.learn.devices import current_ranks
    from neurodyn.learn.metrics import read_metrics
    from neurodyn.learn.tracking.session import require_tracker
    from neurodyn.policy.train import open_training, train_policy

    out, dynamics = request.out, request.dynamics
    require_tracker(request.logger, out)
    with ProgressBar(f"opening {dynamics}"):
        job = open_training(replaced(request, device=own_device(request.device, gpu_ids)))
    require_writable(current_ranks().writes(out / "config.yaml"))
    require_fit(job.task, job.where.dynamics, job.settings.penalty)
    with ProgressBar("opening the reference"):
        reference = open_reference(job.task, job.where, request.reference)
    with ProgressBar(f"training {request.task} in {dynamics}") as bar:
        end = train_policy(replaced(job, reference=reference, progress=bar))
    print(
        f"trained {end.step} updates on {read_metrics(out)[-1]['frames']:,} frames in {end.seconds:.0f} s "
        f"({end.cpu_seconds:.0f} CPU-s); policy in {out}"
    )
    beside_it = "" if dynamics == "analytic" else f" --dynamics {dynamics}"
    require_usable(end.verdict, out)
    print(f"next: neurodyn policy evaluate {out} --dynamics analytic{beside_it}")
    print(f"verdict: {end.verdict}")

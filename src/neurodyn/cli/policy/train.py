# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy train`: a policy, in any dynamics."""

from pathlib import Path
from typing import Literal

from neurodyn.cli.terminal.flags import Device, GpuIds, LoggerFlag, own_device


def train(
    task: str,
    /,
    *,
    dynamics: str,
    out: Path,
    algorithm: str = "ppo",
    settings: Path | None = None,
    policy: str | None = None,
    starts: str | None = None,
    minutes: float | None = None,
    iterations: int | None = None,
    worlds: int | None = None,
    penalty: float | Literal["auto"] | None = None,
    reference: str | None = None,
    keep_every: int | None = None,
    seed: int | None = None,
    device: Device = "cpu",
    gpu_ids: GpuIds = (),
    resume: bool = False,
    logger: LoggerFlag = None,
) -> None:
    """Train a policy in a simulator or in a model, and write it to a folder.

    Args:
        task: Name of a task, as cartpole-swingup, or FILE.py:CLASS for one of your own.
        dynamics: Where it is trained: analytic, hybrid (the declared robot with its simulator's contacts, compiled), a
            run directory, or pretrained:NAME.
        out: Folder to write.
        algorithm: ppo, or shac (gradients through the dynamics).
        settings: File with settings (YAML, TOML or JSON); by default those of the task and the algorithm.
        policy: Policy to begin with, by whatever algorithm: a folder, or pretrained-policy:NAME.
        starts: HDF5 store after whose windows episodes start, for models of logs, or "task" for starts that the task
            draws, in models without a memory; by default the model's own log.
        minutes: Time budget; by default the task's number of updates.
        iterations: Number of updates.
        worlds: Worlds that run at once.
        penalty: Weight (lambda) of a model's uncertainty that is subtracted from the reward; for world models, and
            models of `neurodyn train --members 5`. auto, in models of logs: what keeps the policy as certain as
            held-out episodes of the log.
        reference: Where the policy is played beside its own dynamics while it trains, only to be watched; by default
            the simulator, where it is installed and the policy trains elsewhere; "none" for nowhere.
        keep_every: Updates between two policies that are kept in OUT/kept, to make logs of different quality with.
        seed: Seed of weights, actions, commands and starts.
        device: Where it computes: cpu, cuda, cuda:1 ...
        gpu_ids: GPUs to train on, one process on each with worlds of its own: 0 1, or all.
        resume: Go on with a training that was killed.
        logger: What follows the training beside metrics.jsonl: tensorboard (default), wandb, none, or a LogWriter of
            rsl_rl as MODULE:CLASS. A resumed run keeps its own.

    Example:
        neurodyn policy train cartpole-swingup --dynamics runs/cartpole --out policies/swingup
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.verdict import require_usable
    from neurodyn.policy.algorithms import require_learner

    require_learner()
    from neurodyn.control.resolve import open_dynamics, open_reference
    from neurodyn.control.task_frames import require_fit
    from neurodyn.learn.devices import current_ranks
    from neurodyn.learn.metrics import read_metrics
    from neurodyn.learn.tracking.session import require_tracker
    from neurodyn.policy.algorithms import ALGORITHMS
    from neurodyn.policy.learner import begun_with
    from neurodyn.policy.settings import load_settings, with_flags
    from neurodyn.policy.train import train_policy
    from neurodyn.tasks import load

    require_tracker(logger, out)
    chosen, wanted = ALGORITHMS[algorithm], load(task)
    with ProgressBar(f"opening {dynamics}"):
        where = open_dynamics(wanted, dynamics, device=own_device(device, gpu_ids), starts=starts)
    chosen.require(where.dynamics)
    resolved = with_flags(
        load_settings(task, settings, logs=where.dynamics.measured, kind=chosen.settings),
        minutes=minutes, iterations=iterations, worlds=worlds, penalty=penalty, seed=seed,
        keep_every=keep_every,
    )  # fmt: skip
    begun = None
    if policy is not None:
        begun, resolved = begun_with(wanted, policy, resolved)
    require_writable(current_ranks().writes(out / "config.yaml"))
    require_fit(wanted, where.dynamics, resolved.penalty)
    with ProgressBar("opening the reference"):
        beside = open_reference(wanted, where, reference)
    with ProgressBar(f"training {task} in {dynamics}") as bar:
        end = train_policy(
            wanted, where, out, resolved, reference=beside, starts=starts, initial=begun, resume=resume, progress=bar,
            logger=logger,
        )  # fmt: skip
    print(
        f"trained {end.step} updates on {read_metrics(out)[-1]['frames']:,} frames in {end.seconds:.0f} s "
        f"({end.cpu_seconds:.0f} CPU-s); policy in {out}"
    )
    beside_it = "" if dynamics == "analytic" else f" --dynamics {dynamics}"
    require_usable(end.verdict, out)
    print(f"next: neurodyn policy evaluate {out} --dynamics analytic{beside_it}")
    print(f"verdict: {end.verdict}")

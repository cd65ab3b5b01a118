# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy online`: policy and model in turns."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from neurodyn.cli.terminal.flags import Device, LoggerFlag

if TYPE_CHECKING:
    from neurodyn.cli.terminal.console import ProgressBar


def online(
    task: str,
    /,
    *,
    out: Path,
    dynamics: str = "new",
    kind: str | None = None,
    reference: str | None = None,
    rounds: int | None = None,
    frames: int | None = None,
    data: tuple[str, ...] = (),
    log_frames: int | None = None,
    noise: float | None = None,
    rollout: int | None = None,
    random_share: float | None = None,
    parameters: tuple[str, ...] = (),
    size: str | None = None,
    finetune: str | None = None,
    members: int | None = None,
    model_minutes: float | None = None,
    policy: str | None = None,
    settings: Path | None = None,
    iterations: int | None = None,
    worlds: int | None = None,
    further: float | None = None,
    penalty: float | Literal["auto"] | None = None,
    tolerance: float | None = None,
    patience: int | None = None,
    seed: int | None = None,
    device: Device = "cpu",
    resume: bool = False,
    logger: LoggerFlag = None,
    json: Path | None = None,
) -> None:
    """Train a policy in a model, log it in the simulator, fit the model to all data so far, and again.

    Stops when the returns in model and simulator agree and the last rounds brought no progress.

    Args:
        task: Name of a task, as cartpole-swingup, or FILE.py:CLASS for one of your own.
        out: Folder to write: policy/ (the best in the reference), report.html, online.json, rounds/.
        dynamics: The first model: new, a run directory, or pretrained:NAME.
        kind: Kind of a new model: neural (default), hybrid (the declared robot with --parameters to identify), or
            world-model.
        reference: What is logged: analytic (default), or hybrid, which computes the same faster where the robot's
            simulator is MuJoCo.
        rounds: Most rounds; by default 5.
        frames: Frames of random data that a new model begins from; by default 50,000, for a hybrid model none.
        data: Files that a new model learns from in place of random data.
        log_frames: Frames of the policy that are logged in a round, rounded up to whole episodes; by default 20,000.
        noise: Greatest standard deviation of the noise on actions in half of the logged episodes; by default .3.
        rollout: Frames of a roll-out in the model, from logged states to the critic's value; 0 for whole episodes; by
            default 64, in a hybrid model 0.
        random_share: Share of the first data in what the model learns from, once there are logs; by default .3.
        parameters: Quantities of a hybrid model that are identified, as of `identify`; NAME=START:LOWER:UPPER.
        size: Settings of a new model's training: small, paper, or a file; of a hybrid model, a file for `identify`.
        finetune: File with settings by which a neural or world model learns on in later rounds.
        members: Networks of a new neural or world model, whose disagreement says how uncertain it is.
        model_minutes: Time budget of each fit; by default that of its settings.
        policy: Policy to begin with: a folder, or pretrained-policy:NAME.
        settings: File with settings of the policy's training; by default those of the task.
        iterations: Updates of the policy in the first round; by default those of the task.
        worlds: Worlds in the model that run at once.
        further: Updates in each further round, as a share of those in the first; by default .5.
        penalty: Weight (lambda) of the model's uncertainty that is subtracted from the reward; auto to let the model
            choose it. By default that of the task's settings.
        tolerance: Relative difference of the returns within which they agree; by default .05.
        patience: Rounds without progress, the last of which agrees, after which it stops; by default 2.
        seed: Seed of everything random.
        device: Where models and policies are trained: cpu, cuda, cuda:1 ...
        resume: Go on with a loop that was stopped; more --rounds or --patience may be given.
        logger: What follows the training beside metrics.jsonl: tensorboard (default), wandb, none, or a LogWriter of
            rsl_rl as MODULE:CLASS. A resumed run keeps its own.
        json: File for the result as JSON, as OUT/online.json.

    Example:
        neurodyn policy online cartpole-swingup --out runs/online --rounds 3
    """
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.policy.algorithms import require_learner

    require_learner()
    from neurodyn.policy.online.loop import online as learn_online
    from neurodyn.policy.online.problem import default_settings
    from neurodyn.policy.online.settings import with_flags

    require_writable(json, text=True)
    chosen = with_flags(
        default_settings(task, dynamics, kind, settings),
        policy={"iterations": iterations, "worlds": worlds, "penalty": penalty},
        reference=reference, rounds=rounds, frames=frames, log_frames=log_frames, noise=noise, rollout=rollout,
        random_share=random_share, parameters=parameters or None, size=size, finetune=finetune,
        members=members, model_minutes=model_minutes, further=further, tolerance=tolerance,
        patience=patience, seed=seed,
    )  # fmt: skip
    with _Stages() as stages:
        result = learn_online(
            task, out, dynamics=dynamics, kind=kind, settings=chosen, data=data, policy=policy, device=device,
            resume=resume, logger=logger, stages=stages, report=lambda text: print(text, flush=True),
        )  # fmt: skip
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    print(f"{result.frames:,} simulator frames, {result.cpu_seconds:.0f} CPU-s; report: {out / 'report.html'}")
    print(f"next: neurodyn policy evaluate {out / 'policy'} --dynamics {result.reference}")
    print(f"verdict: {result.verdict}")


class _Stages:
    """A progress bar for each step, one after the other."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def __call__(self, title: str) -> "ProgressBar":
        from neurodyn.cli.terminal.console import ProgressBar

        self._open.close()
        return self._open.enter_context(ProgressBar(title))

    def __enter__(self) -> "_Stages":
        return self

    def __exit__(self, *_: Any) -> None:
        self._open.close()

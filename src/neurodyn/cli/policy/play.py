# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy play`: a recording of what a policy does."""

from pathlib import Path

from neurodyn.cli.terminal.flags import Device, Format, LoggerFlag


def play(
    policy: str,
    /,
    *,
    dynamics: str = "analytic",
    beside: str | None = None,
    out: Path | None = None,
    format: Format | None = None,  # noqa: A002
    seconds: float | None = None,
    seed: int = 500,
    starts: str | None = None,
    ground: str | None = None,
    device: Device = "cpu",
    task: str | None = None,
    logger: LoggerFlag = None,
) -> None:
    """Record what a policy does in some dynamics, beside others from the same start.

    Args:
        policy: Folder of a policy, or pretrained-policy:NAME.
        dynamics: Where it acts: analytic, hybrid, a run directory, or pretrained:NAME.
        beside: Where it also acts; by default the simulator, or in the simulator a second start.
        out: File to write; by default POLICY/play.html, or play-NAME.html here for a pretrained policy.
        format: html, mp4 (needs the extra `view`), gif or rrd (needs the extra `rerun`); by default as the file's name
            ends, else html.
        seconds: Length; by default that of an episode, at most 10 s.
        seed: Seed of starts and commands.
        starts: HDF5 store after whose windows episodes start, for models of logs, or "task" for starts that the task
            draws, in models without a memory; by default the model's own log.
        ground: Ground of the robot, or a file with a scene; by default the robot's own.
        device: Where it computes: cpu, cuda, cuda:1 ...
        task: FILE.py:CLASS, for a policy of a task of your own; its code runs only if you name it.
        logger: Show the result in the run's tracker, too: wandb (the run of its training goes on) or tensorboard.

    Example:
        neurodyn policy play policies/swingup --dynamics runs/cartpole
    """
    from neurodyn.cli.terminal.flags import keep_recording, recording_file
    from neurodyn.core.artifacts import resolve_policy
    from neurodyn.policy.algorithms import require_learner

    require_learner()
    from neurodyn.policy.play import record_policy

    file = recording_file(policy, "play", out, format, resolve_policy)
    recording = keep_recording(
        policy, logger, file,
        lambda: record_policy(
            policy, dynamics, beside=beside, seconds=seconds, seed=seed, starts=starts, ground=ground, device=device,
            task=task,
        ),
    )  # fmt: skip
    print(f"{recording.seconds:.3g} s of {recording.robot.name}, {recording.title}: {file.path}")

# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy play`: a recording of what a policy does."""

from pathlib import Path

from neurodyn.cli.terminal.command import command
from neurodyn.cli.terminal.flags import Format, LoggerFlag
from neurodyn.policy.requests import PlayPolicyRequest


@command(PlayPolicyRequest, after={"out": "beside", "format": "out"})
def play(
    request: PlayPolicyRequest,
    *,
    out: Path | None = None,
    format: Format | None = None,  # noqa: A002
    logger: LoggerFlag = None,
) -> None:
    """Record what a policy does in some dynamics, beside others from the same start.

    Flags:
        out: File to write; by default POLICY/play.html, or play-NAME.html here for a pretrained policy.
        format: html, mp4 (needs the extra `view`), gif or rrd (needs the extra `rerun`); by default as the file's name
            ends, else html.
        logger: Show the result in the run's tracker, too: wandb (the run of its training goes on) or tensorboard.

    Example:
        neurodyn policy play policies/swingup --dynamics runs/cartpole
    """
    from neurodyn.cli.terminal.flags import keep_recording, recording_file
    from neurodyn.core.artifacts import resolve_policy
    from neurodyn.policy.algorithms import require_learner

    require_learner()
    from neurodyn.policy.play import record_policy

    policy = str(request.folder)
    file = recording_file(policy, "play", out, format, resolve_policy)
    recording = keep_recording(policy, logger, file, lambda: record_policy(request))
    print(f"{recording.seconds:.3g} s of {recording.robot.name}, {recording.title}: {file.path}")

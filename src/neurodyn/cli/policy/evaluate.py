# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy evaluate`: returns of policies, in dynamics beside each other."""

from pathlib import Path

import tyro

from neurodyn.cli.terminal.flags import Device, LoggerFlag


def evaluate(
    policies: tuple[str, ...],
    /,
    *,
    dynamics: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    episodes: int = 256,
    seed: int = 500,
    starts: str | None = None,
    ground: str | None = None,
    device: Device = "cpu",
    json: Path | None = None,
    task: str | None = None,
    logger: LoggerFlag = None,
) -> None:
    """Measure the return of policies in dynamics, and how far these are apart.

    Args:
        policies: Folders of policies of one task, as those of several seeds, or pretrained-policy:NAME.
        dynamics: Where they act: analytic, hybrid, a run directory, or pretrained:NAME; give the flag once for each. By
            default the simulator, and what they were trained in.
        episodes: Number of episodes of each policy in each.
        seed: Seed of starts and commands; the same starts in all dynamics that start where the task says.
        starts: HDF5 store after whose windows episodes start in models of logs; by default they start where the task
            says, and in the model's own log where it reads a history.
        ground: Ground of the robot, or a file with a scene; by default the robot's own.
        device: Where it computes: cpu, cuda, cuda:1 ...
        json: File for the result as JSON.
        task: FILE.py:CLASS, for policies of a task of your own; its code runs only if you name it.
        logger: Show the result in the run's tracker, too: wandb (the run of its training goes on) or tensorboard.

    Example:
        neurodyn policy evaluate policies/swingup --dynamics analytic --dynamics runs/cartpole
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.results import print_policy
    from neurodyn.core.artifacts import PRETRAINED_POLICY, require_writable, write_json
    from neurodyn.core.errors import InputError
    from neurodyn.policy.algorithms import require_learner

    require_learner()
    from neurodyn.learn.metrics import require_followed, show_results
    from neurodyn.policy.evaluation import evaluate_policy
    from neurodyn.policy.report import returns, write_policy_report

    require_writable(json, text=True)
    (policy, *more) = policies
    if logger is not None and more:
        raise InputError("--logger: shows the result of one policy, and several are given")
    require_followed(logger, policy)
    with ProgressBar("playing episodes"):
        result = evaluate_policy(
            policies, dynamics, episodes=episodes, seed=seed, starts=starts, ground=ground, device=device, task=task
        )
    print_policy(result)
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    tables = [table.cells for table in returns(result)]
    show_results(policy, logger, tables=tables, summary={"verdict of policy evaluate": result.verdict})
    if not more and not policy.startswith(PRETRAINED_POLICY):  # what ships with the package is not written to
        with ProgressBar("report"):
            written = write_policy_report(Path(policy), result, starts=starts, task=task)
        print(f"report: {written}")
    print(f"verdict: {result.verdict}")

# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy evaluate`: returns of policies, in dynamics beside each other."""

from pathlib import Path
from typing import cast

from neurodyn.cli.terminal.command import command
from neurodyn.cli.terminal.flags import LoggerFlag
from neurodyn.policy.requests import EvaluatePolicyRequest


@command(EvaluatePolicyRequest, after={"json": "device"})
def evaluate(request: EvaluatePolicyRequest, *, json: Path | None = None, logger: LoggerFlag = None) -> None:
    """Measure the return of policies in dynamics, and how far these are apart.

    Flags:
        json: File for the result as JSON.
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
    (policy, *more) = cast(tuple[str, ...], request.folder)
    if logger is not None and more:
        raise InputError("--logger: shows the result of one policy, and several are given")
    require_followed(logger, policy)
    with ProgressBar("playing episodes"):
        result = evaluate_policy(request)
    print_policy(result)
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    tables = [table.cells for table in returns(result)]
    show_results(policy, logger, tables=tables, summary={"verdict of policy evaluate": result.verdict})
    if not more and not policy.startswith(PRETRAINED_POLICY):  # what ships with the package is not written to
        with ProgressBar("report"):
            written = write_policy_report(Path(policy), result, starts=request.starts, task=request.task)
        print(f"report: {written}")
    print(f"verdict: {result.verdict}")

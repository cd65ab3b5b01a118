# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy log`: logs of policies at work, to learn models from."""

from neurodyn.cli.terminal.command import command
from neurodyn.policy.requests import LogPolicyRequest


@command(LogPolicyRequest)
def log(request: LogPolicyRequest) -> None:
    """Record what several policies of one task do in the simulator or in a model, with rewards and ends.

    A robot that declares rows logs those, as the robot itself would; any other logs generalised coordinates and
    torques, as `generate` does.

    Example:
        neurodyn policy log policies/walk random --out walks.h5 --transitions 100000
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.policy.algorithms import require_learner

    require_learner()
    from neurodyn.policy.logs import log_policies

    with ProgressBar("recording"):
        found = log_policies(request)
    print(
        f"{found.transitions:,} transitions in {found.episodes} episodes, {found.failed:.1%} of which ended in a "
        f"failure ({found.implausible:.1%} in an implausible state; {found.cpu_seconds:.0f} CPU-s): {found.path}"
    )
    for name, value in found.returns.items():
        print(f"return of {name}, noise included: {value:.4g}")
    if request.csv is not None:
        print(f"rows: {request.csv}")

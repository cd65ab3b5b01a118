# SPDX-License-Identifier: Apache-2.0
"""`neurodyn check`: whether a robot's reference simulator can be learned from."""

from pathlib import Path

from neurodyn.cli.terminal.command import command
from neurodyn.evaluate.requests import CheckRequest


@command(CheckRequest, after={"json": "seed", "report": "seed"})
def check(request: CheckRequest, *, json: Path | None = None, report: Path | None = None) -> None:
    """Measure whether a robot's reference simulator can be learned from, and say what to change where it cannot.

    Ends with exit code 2 where a check fails.

    Flags:
        json: File for the result as JSON.
        report: File for the result as a page (.html).

    Example:
        neurodyn check my-arm --report check.html
    """
    from neurodyn.cli.terminal.console import ProgressBar, keep_figures
    from neurodyn.cli.terminal.results import print_check
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.errors import InputError
    from neurodyn.evaluate import check as measure
    from neurodyn.report import write_check

    require_writable(json, report, text=True)
    with ProgressBar(f"checking {request.robot}"):
        result = measure(request)
    print_check(result)
    keep_figures(json, result.plain())
    if report is not None:
        print(f"report: {write_check(report, result)}")
    if result.failed:
        names = ", ".join(name.replace("_", " ") for name in result.failed)
        raise InputError(
            f"{request.robot}: the reference simulator cannot be trusted ({names}); change what is listed above"
        )
    print(f"next: neurodyn generate {request.robot} --transitions 200000 --out {result.robot}.h5")

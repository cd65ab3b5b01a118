# SPDX-License-Identifier: Apache-2.0
"""`neurodyn adapt`: from logs to a model of the robot, in one command."""

from pathlib import Path

from neurodyn.cli.terminal.command import command
from neurodyn.identify.requests import AdaptRequest


@command(AdaptRequest, after={"out": "data", "json": "threads"})
def adapt(request: AdaptRequest, *, json: Path | None = None) -> None:
    """Adapt the model of a robot to its logs: identify motors, mechanism and floor, then networks for the rest.

    Each step is kept only where it is better on whole held-out episodes. The page in the run directory says what
    differs from the declaration, what the logs do not say, what remains unexplained, and which motion to log next.

    Flags:
        json: File for the result as JSON.

    Example:
        neurodyn adapt ant --data logs/*.h5 --out runs/my-ant
        neurodyn adapt examples/own_logs --data pendulum.h5 --mechanism --out runs/pendulum
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.results import print_adaptation
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.identify.adaptation.run import adapt as adapt_robot
    from neurodyn.report.adaptation import write_adaptation

    require_writable(json, text=True)
    with ProgressBar(f"adapting {request.robot}"):
        found = adapt_robot(request)
    out = Path(request.out)
    write_adaptation(out, found.figures)
    print_adaptation(found.figures)
    if json is not None:
        write_json(json, found.figures.plain())
        print(f"figures: {json}")
    print(f"model: {out / 'model'}; report: {out / 'report.html'}")
    print(f"verdict: {found.figures.verdict}")

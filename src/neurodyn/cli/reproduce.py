# SPDX-License-Identifier: Apache-2.0
"""`neurodyn reproduce`: the training of a run once more, and whether its result is the same."""

from pathlib import Path

from neurodyn.cli.terminal.command import command
from neurodyn.core.config import replaced
from neurodyn.learn.requests import ReproduceRequest


@command(ReproduceRequest)
def reproduce(request: ReproduceRequest, *, json: Path | None = None) -> None:
    """Run the training of a run once more, with its settings and seed, and say whether the result is the same.

    What the run was made from is compared with its manifest first: other data, models and declarations are refused,
    other versions are named. A budget in steps gives the same bits on one machine.

    Flags:
        json: File for the result as JSON.

    Example:
        neurodyn reproduce runs/cartpole --out runs/again
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.core.verdict import require_usable
    from neurodyn.learn.reproduction import reproduce as train_again

    require_writable(json, text=True)
    with ProgressBar(f"reproducing {request.run}") as bar:
        found = train_again(replaced(request, progress=bar))
    if json is not None:
        write_json(json, found.plain())
        print(f"figures: {json}")
    if found.score_before is not None and found.score_now is not None:
        gap = found.score_now - found.score_before
        print(f"held-out score {found.score_before:.6g} before, {found.score_now:.6g} now (difference {gap:.3g})")
    if found.differing and found.greatest is not None:
        print(f"greatest difference of a weight or parameter: {found.greatest:.3g}")
    print(f"run: {request.out}")
    require_usable(found.verdict, Path(request.out))
    print(f"verdict: {found.verdict}")

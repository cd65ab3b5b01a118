# SPDX-License-Identifier: Apache-2.0
"""`neurodyn reproduce`: the training of a run once more, and whether its result is the same."""

from pathlib import Path

from neurodyn.cli.terminal.flags import Device


def reproduce(
    run: str,
    /,
    *,
    out: Path,
    data: tuple[str, ...] = (),
    task: str | None = None,
    device: Device | None = None,
    json: Path | None = None,
) -> None:
    """Run the training of a run once more, with its settings and seed, and say whether the result is the same.

    What the run was made from is compared with its manifest first: other data, models and declarations are refused,
    other versions are named. A budget in steps gives the same bits on one machine.

    Args:
        run: Run directory, or folder of a policy, with a manifest.json.
        out: Run directory to write.
        data: Where its data lie now, in the order in which it was given them; by default where they lay.
        task: FILE.py:CLASS, for a policy of a task of your own; its code runs only if you name it.
        device: Torch device that trains; by default that of the run.
        json: File for the result as JSON.

    Example:
        neurodyn reproduce runs/cartpole --out runs/again
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.core.verdict import require_usable
    from neurodyn.learn.reproduction import reproduce as train_again

    require_writable(json, text=True)
    with ProgressBar(f"reproducing {run}") as bar:
        found = train_again(run, out, data=data, device=device, task=task, progress=bar)
    if json is not None:
        write_json(json, found.plain())
        print(f"figures: {json}")
    if found.score_before is not None and found.score_now is not None:
        gap = found.score_now - found.score_before
        print(f"held-out score {found.score_before:.6g} before, {found.score_now:.6g} now (difference {gap:.3g})")
    if found.differing and found.greatest is not None:
        print(f"greatest difference of a weight or parameter: {found.greatest:.3g}")
    print(f"run: {out}")
    require_usable(found.verdict, out)
    print(f"verdict: {found.verdict}")

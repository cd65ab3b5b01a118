# SPDX-License-Identifier: Apache-2.0
"""`neurodyn evaluate`: errors by horizon, beside the simulator or beside a log."""

from pathlib import Path
from typing import Literal

from neurodyn.cli.terminal.flags import Device, LoggerFlag, Threads


def evaluate(
    run: str,
    /,
    *,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = 500,
    data: str | None = None,
    split: Literal["train", "validation", "test", "all"] | None = None,
    ground: str | None = None,
    stability: bool = False,
    device: Device = "cpu",
    beside: tuple[str, ...] = (),
    threads: Threads = None,
    json: Path | None = None,
    report: Path | None = None,
    logger: LoggerFlag = None,
) -> None:
    """Measure a model beside its simulator, or with --data beside recorded trajectories.

    Args:
        run: Run directory, or pretrained:NAME.
        horizon: Frames of a roll-out; by default what the robot declares (usually 1000) beside the simulator, and
            half a second on logs.
        rollouts: Number of roll-outs; by default 2048 beside the simulator (512 for floating robots, whose simulator is
            slow) and 20000 on logs.
        seed: Seed of initial states and torques.
        data: HDF5 store, or an npz log in the layout that the robot declares; by default the log that the
            model was trained on, where it was trained on one.
        split: Which episodes of the data; by default the test episodes, or the validation episodes where there are
            none.
        ground: One of the robot's grounds by name, a YAML file with a scene, or "all" for a table of all of the robot's
            grounds; by default the one that the robot declares.
        stability: Also roll out 64 worlds for 10,000 frames, and count what stays finite and above ground.
        device: Where it computes: cpu, cuda, cuda:1 ...
        beside: Runs of other world models (one trained on single frames, say), measured from the same starts.
        threads: Cores to use; by default all. Results do not depend on it.
        json: File for the result as JSON.
        report: File for the report page; by default report.html in the run directory, or report-FLAGS.html where flags
            change what is measured.
        logger: Show the result in the run's tracker, too: wandb (the run of its training goes on) or tensorboard.

    Example:
        neurodyn evaluate runs/cartpole
        neurodyn evaluate pretrained:anymal-c --ground steps
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.results import evaluation_tables, print_evaluation
    from neurodyn.core.artifacts import PRETRAINED, require_writable, resolve_run, write_json
    from neurodyn.evaluate import evaluate as measure
    from neurodyn.learn.metrics import require_followed, show_results
    from neurodyn.report import report_path, write_report

    require_writable(json, report, text=True)
    require_followed(logger, run)
    asked = {
        "horizon": horizon, "rollouts": rollouts, "seed": None if seed == 500 else seed, "data": data, "split": split,
        "ground": ground, "stability": stability or None, "beside": beside or None,
    }  # fmt: skip
    given = {name: value for name, value in asked.items() if value is not None}
    with ProgressBar(f"evaluating {run}"):
        result = measure(run, **given, device=device, threads=threads)
    print_evaluation(result)
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    if report is not None or not run.startswith(PRETRAINED):  # what ships with the package is not written to
        folder = resolve_run(run)
        path = report_path(folder, tuple(_words(name, value) for name, value in given.items()))
        with ProgressBar("report"):
            written = write_report(folder, result, path=report or path, data=data)
        print(f"report: {written}")
    tables = [table.cells for table in evaluation_tables(result)]
    show_results(run, logger, tables=tables, summary={"verdict of evaluate": result.verdict})
    print(f"verdict: {result.verdict}")


def _words(name: str, value: object) -> str:
    """Return a flag as a part of a file's name: paths by their stem."""
    values = value if isinstance(value, tuple) else (value,)
    return "-".join([name, *(Path(str(v)).stem for v in values if v is not True)])

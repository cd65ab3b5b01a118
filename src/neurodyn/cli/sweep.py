# SPDX-License-Identifier: Apache-2.0
"""`neurodyn sweep`: one training with many settings and seeds, on many cores or machines."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neurodyn.cluster.sweep.trials import TrialOutcome


def sweep(
    spec: Path,
    /,
    *,
    out: Path,
    cluster: str = "local",
    workers: int | None = None,
    worker_memory: float | None = None,
    json: Path | None = None,
    resume: bool = False,
) -> None:
    """Train with many settings and seeds (Ray Tune), and say which are best on validation data.

    Every trial is a run folder of its own, which evaluate, compare and reproduce take. Needs the extra `cluster`.

    Args:
        spec: File that says what is trained (train, finetune, identify, discover or policy train, with its arguments),
            which settings differ (space), who chooses them (search: grid, random or optuna), and with which seeds.
        out: Folder to write: trials, sweep.json, comparison.html.
        cluster: "local" for the cores of this machine, "auto" for the Ray cluster that it belongs to, or HOST:PORT of
            its head.
        workers: Most trials at once; by default as many as there are cores for.
        worker_memory: Most memory of a trial [GB]; by default no limit but the machine's.
        json: File for the result as JSON, beside OUT/sweep.json.
        resume: Go on with a sweep that was killed.

    Example:
        neurodyn sweep sweep.yaml --out sweeps/width
        neurodyn sweep sweep.yaml --out sweeps/width --cluster auto --resume
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.cluster.sweep.sweep import PAGE, RESULT
    from neurodyn.cluster.sweep.sweep import sweep as run
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.report import comparison_tables
    from neurodyn.report.run_comparison import LEAD, broken_lines

    require_writable(json, text=True)
    with ProgressBar(f"sweep {spec.name}") as bar:

        def told(done: int, total: int, outcome: "TrialOutcome") -> None:
            figure = outcome.figure
            what = outcome.failed or f"{'nan' if figure is None or figure.value is None else f'{figure.value:.4g}'}"
            bar.update(done / total, f"{done} of {total} trials; the last: {what}")

        result = run(spec, out, cluster=cluster, workers=workers, memory=worker_memory, resume=resume, told=told)
    print_tables(LEAD, comparison_tables(result.comparison), *broken_lines(result.comparison))
    if json is not None:
        write_json(json, result.plain())
    best, own = result.best, ", ".join(f"{name} {value}" for name, value in result.best.values.items())
    print(f"figures: {out / RESULT}; report: {out / PAGE}")
    print(f"best by {result.figure}: {best.mean:.4g} with {own}; run: {best.run}")

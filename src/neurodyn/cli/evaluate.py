# SPDX-License-Identifier: Apache-2.0
"""`neurodyn evaluate`: errors by horizon, beside the simulator or beside a log."""

from pathlib import Path

from neurodyn.cli.terminal.command import command
from neurodyn.cli.terminal.flags import LoggerFlag
from neurodyn.evaluate.requests import EvaluationRequest


@command(EvaluationRequest)
def evaluate(
    request: EvaluationRequest, *, json: Path | None = None, report: Path | None = None, logger: LoggerFlag = None
) -> None:
    """Measure a model beside its simulator, or with --data beside recorded trajectories.

    Flags:
        json: File for the result as JSON.
        report: File for the report page; by default report.html in the run directory, or report-FLAGS.html where flags
            change what is measured.
        logger: Show the result in the run's tracker, too: wandb (the run of its training goes on) or tensorboard.

    Example:
        neurodyn evaluate runs/cartpole
        neurodyn evaluate pretrained:anymal-c --ground steps
    """
    from neurodyn.cli.terminal.console import ProgressBar, keep_figures
    from neurodyn.cli.terminal.results import evaluation_tables, print_evaluation
    from neurodyn.core.artifacts import PRETRAINED, require_writable, resolve_run
    from neurodyn.evaluate import evaluate as measure
    from neurodyn.learn.metrics import require_followed, show_results
    from neurodyn.report import report_path, write_report

    run = str(request.run)
    require_writable(json, report, text=True)
    require_followed(logger, run)
    with ProgressBar(f"evaluating {run}"):
        result = measure(request)
    print_evaluation(result)
    keep_figures(json, result.plain())
    if report is not None or not run.startswith(PRETRAINED):  # what ships with the package is not written to
        folder = resolve_run(run)
        with ProgressBar("report"):
            path = report or report_path(folder, _asked(request))
            written = write_report(folder, result, path=path, data=request.data)
        print(f"report: {written}")
    tables = [table.cells for table in evaluation_tables(result)]
    show_results(run, logger, tables=tables, summary={"verdict of evaluate": result.verdict})
    print(f"verdict: {result.verdict}")


def _asked(request: EvaluationRequest) -> tuple[str, ...]:
    """Return the flags that change what is measured as parts of a file's name: paths by their stem."""
    usual, found = EvaluationRequest(request.run, device=request.device, threads=request.threads), []
    for name in request.__struct_fields__:
        if (value := getattr(request, name)) != getattr(usual, name):
            values = value if isinstance(value, tuple) else (value,)
            found.append("-".join([name, *(Path(str(one)).stem for one in values if one is not True)]))
    return tuple(found)

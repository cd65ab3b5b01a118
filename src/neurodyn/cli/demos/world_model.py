# SPDX-License-Identifier: Apache-2.0
"""A log learned: a world model of the walks of an ANYmal C that ship with the package; no simulator runs."""

from pathlib import Path

from neurodyn.core.progress import present_work, stage

ROBOT = "anymal-c"
LOG = "pretrained:anymal-walks"
SETTINGS = Path(__file__).with_name("walk.yaml")
HORIZON, ROLLOUTS = 100, 256


def show_world_model(out: Path, seed: int) -> None:
    """Train a world model on the log that ships, forecast its test episodes, and write a report.

    Args:
        out: Folder for run and report.
        seed: Seed of the training.
    """
    from neurodyn.cli.demos.stages import is_trained, is_unfinished
    from neurodyn.cli.tables.results import print_evaluation
    from neurodyn.cli.terminal.progress import ProgressBar
    from neurodyn.core.artifacts import resolve_run, write_json
    from neurodyn.data.store import Store
    from neurodyn.evaluate import evaluate
    from neurodyn.learn import train
    from neurodyn.report import write_report

    log, run = resolve_run(LOG) / "log.h5", out / "run"
    store = Store.open(log)
    with ProgressBar("demo") as bar:
        bar.say(
            f"1/4  log: {len(store.table)} walks of a quadruped, {store.transitions:,} frames of "
            f"{store.header.spec.dt:g} s, of what it measures with noise; {log}"
        )
        if is_trained(run):
            bar.say(f"2/4  training: {run} is trained already")
        else:
            bar.say("2/4  training: three networks that remember; where they disagree the model is uncertain")
            with stage(0.0, 0.7, "training"):
                end = train(
                    ROBOT, log, run, kind="world-model", size=str(SETTINGS), seed=seed, resume=is_unfinished(run),
                    progress=present_work(),
                )  # fmt: skip
            bar.say(f"     {end.step:,} steps, {end.cpu_seconds:.0f} CPU-s, model in {run / 'model'}")
        bar.say("3/4  evaluation: forecasts of walks that it was not trained on, from the controls alone")
        with stage(0.7, 0.9):
            result = evaluate(run, horizon=HORIZON, rollouts=ROLLOUTS)
        write_json(out / "evaluation.json", result.plain())
        bar.say("4/4  report")
        with stage(0.9, 1.0):
            report = write_report(run, result)
    print_evaluation(result)
    print(f"report: {report}")
    print(f"next: neurodyn policy train anymal-velocity --dynamics {run} --out policies/walk")
    print(f"verdict: {result.verdict}")

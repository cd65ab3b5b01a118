# SPDX-License-Identifier: Apache-2.0
"""A simulator learned: data from Newton's cartpole, a network in its place, both from the same starts."""

from pathlib import Path
from typing import TYPE_CHECKING

from neurodyn.core.progress import present_work, stage

if TYPE_CHECKING:
    from neurodyn.cli.terminal.progress import ProgressBar

ROBOT = "cartpole"


def show_cartpole(out: Path, minutes: float, transitions: int, rollouts: int, seed: int) -> None:
    """Generate data, train a neural cartpole, measure it beside Newton's solver, and write a report.

    Args:
        out: Folder for data, run and report.
        minutes: Time budget of the training.
        transitions: Transitions of training data.
        rollouts: Roll-outs of the evaluation.
        seed: Seed of data and training.

    Raises:
        InputError: A number is out of range.
    """
    from neurodyn.cli.tables.results import print_evaluation
    from neurodyn.cli.terminal.progress import ProgressBar
    from neurodyn.core.artifacts import write_json
    from neurodyn.core.errors import InputError
    from neurodyn.evaluate import evaluate
    from neurodyn.learn import load_settings, with_budget
    from neurodyn.report import write_report
    from neurodyn.robots import load

    with_budget(load_settings(load(ROBOT), "small"), minutes, None, seed)  # refused now, not minutes later
    for name, value in (("transitions", transitions), ("rollouts", rollouts)):
        if value < 1:
            raise InputError(f"--{name} is {value}; valid: at least 1")
    run = out / "run"
    with ProgressBar("demo") as bar:
        with stage(0.0, 0.1, "data"):
            data = _data(out, transitions, seed, bar)
        with stage(0.1, 0.6, "training"):
            _train(data, run, minutes, seed, bar)
        bar.say(
            f"3/4  evaluation: {rollouts} roll-outs of 1000 steps beside the simulator, from states never trained on"
        )
        with stage(0.6, 0.9):
            result = evaluate(run, rollouts=rollouts)
        write_json(out / "evaluation.json", result.plain())
        bar.say("4/4  report: pictures are being ray-traced")
        with stage(0.9, 1.0):
            report = write_report(run, result)
    print_evaluation(result)
    print(f"report: {report}")
    print(f'next: drop it into a Newton loop with neurodyn.solvers.SolverNeural(model, "{run}")')


def _data(out: Path, transitions: int, seed: int, bar: "ProgressBar") -> Path:
    from neurodyn.robots import load
    from neurodyn.sim import generate

    data, robot = out / "cartpole.h5", load(ROBOT)
    if data.exists():
        bar.say(f"1/4  data: {data} is there already")
        return data
    summary = generate(robot, transitions=transitions, out=data, seed=seed, resume=True)
    bar.say(
        f"1/4  data: {summary.transitions:,} transitions from Newton's {robot.simulator.solver} solver in "
        f"{summary.seconds:.0f} s ({summary.rate:,.0f} per CPU-second), {data}"
    )
    return data


def _train(data: Path, run: Path, minutes: float, seed: int, bar: "ProgressBar") -> None:
    from neurodyn.cli.demos.stages import is_trained, is_unfinished
    from neurodyn.learn import train

    if is_trained(run):
        bar.say(f"2/4  training: {run} is trained already")
        return
    bar.say(f"2/4  training: {minutes:g} minutes")
    end = train(ROBOT, data, run, minutes=minutes, seed=seed, resume=is_unfinished(run), progress=present_work())
    bar.say(f"     {end.step:,} steps, {end.cpu_seconds:.0f} CPU-s, model in {run / 'model'}")

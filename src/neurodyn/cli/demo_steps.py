# SPDX-License-Identifier: Apache-2.0
"""The main job from nothing: data from a simulator, a neural model, its evaluation and a report.

Every stage leaves its result in the folder and is skipped where that is already there, so that an
interrupted demo goes on where it stopped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from neurodyn.core.artifacts import write_json
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.evaluate import Evaluation, evaluate
from neurodyn.learn.metrics import Progress, read_metrics
from neurodyn.learn.neural.settings import load_settings, with_budget
from neurodyn.learn.neural.train import train
from neurodyn.report import write_report
from neurodyn.robots import load

ROBOT = "cartpole"


@dataclass(frozen=True)
class Demo:
    """What a demo leaves behind.

    Attributes:
        run: Run directory of the trained model.
        report: The report page.
        result: Figures of the evaluation.
    """

    run: Path
    report: Path
    result: Evaluation


def run_demo(
    folder: Path, *, minutes: float, transitions: int, rollouts: int, seed: int, say: Callable[[str], None],
    progress: Progress,
) -> Demo:  # fmt: skip
    """Go from nothing to a trained neural cartpole beside its simulator.

    Args:
        folder: Where data, run and report go.
        minutes: Time budget of the training [min].
        transitions: Transitions of training data.
        rollouts: Roll-outs of the evaluation.
        seed: Seed of data and training.
        say: Shown a line at each stage.
        progress: Shown how far the training is.

    Raises:
        InputError: The folder cannot be written, or holds a demo with other settings.
    """
    from neurodyn.sim.generate import generate

    robot, data, run = load(ROBOT), folder / "cartpole.h5", folder / "run"
    settings = with_budget(load_settings(robot, "small"), minutes, None, seed)
    for name, value, least in (("transitions", transitions, 1), ("rollouts", rollouts, 1), ("seed", seed, 0)):
        if value < least:  # now, not minutes later at the stage that needs it
            raise InputError(f"--{name} is {value}; valid: at least {least}")
    if data.exists():
        say(f"1/4  data: {data} is there already")
    else:
        summary = generate(robot, transitions=transitions, out=data, seed=seed, resume=True)
        say(
            f"1/4  data: {summary.transitions:,} transitions from Newton's {robot.simulator.solver} solver in "
            f"{summary.seconds:.0f} s ({summary.rate:,.0f} per CPU-second), {data}"
        )
    if finished(run):
        say(f"2/4  training: {run} is trained already")
    else:
        say(f"2/4  training: {minutes:g} minutes, {settings.net.kind}")
        end = train(
            robot,
            ROBOT,
            str(data),
            Store.open(data),
            run,
            settings,
            resume=(run / "config.yaml").exists(),
            progress=progress,
        )
        say(f"     {end.step:,} steps, {end.cpu_seconds:.0f} CPU-s, model in {run / 'model'}")
    say(f"3/4  evaluation: {rollouts} roll-outs of 1000 steps beside the simulator, from states never trained on")
    result = evaluate(run, rollouts=rollouts)
    write_json(folder / "evaluation.json", result.plain())
    say("4/4  report: pictures are being ray-traced")
    return Demo(run, write_report(run, result), result)


def finished(run: Path) -> bool:
    """Return whether a run directory holds a training that came to its end."""
    metrics = read_metrics(run)
    return bool(metrics) and bool(metrics[-1].get("finished"))

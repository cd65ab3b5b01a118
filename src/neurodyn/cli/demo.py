# SPDX-License-Identifier: Apache-2.0
"""`neurodyn demo`: from nothing to a trained neural model beside its simulator."""

from pathlib import Path


def demo(
    *, out: Path = Path("demo"), minutes: float = 2.5, transitions: int = 1_000_000, rollouts: int = 512, seed: int = 0
) -> None:
    """Generate data, train a neural cartpole, measure it beside Newton's solver, and write a report.

    Args:
        out: Folder for data, run and report; an interrupted demo in it goes on where it stopped.
        minutes: Time budget of the training.
        transitions: Transitions of training data.
        rollouts: Roll-outs of the evaluation.
        seed: Seed of data and training.
    """
    from neurodyn.cli.console import TrainingBar
    from neurodyn.cli.demo_steps import run_demo
    from neurodyn.cli.tables.results import print_evaluation

    with TrainingBar("training") as bar:
        done = run_demo(
            out,
            minutes=minutes,
            transitions=transitions,
            rollouts=rollouts,
            seed=seed,
            say=bar.say,
            progress=bar,
        )
    print_evaluation(done.result)
    print(f"report: {done.report}")
    print(f'next: drop it into a Newton loop with neurodyn.solvers.SolverNeural(model, "{done.run}")')

# SPDX-License-Identifier: Apache-2.0
"""`neurodyn compare`: runs and policies beside each other, seeds together."""

from pathlib import Path
from typing import Literal

import tyro

from neurodyn.cli.terminal.flags import Device, Threads


def compare(
    runs: tuple[str, ...],
    /,
    *,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = 500,
    data: str | None = None,
    split: Literal["train", "validation", "test", "all"] | None = None,
    ground: str | None = None,
    dynamics: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    episodes: int | None = None,
    starts: str | None = None,
    task: str | None = None,
    device: Device = "cpu",
    threads: Threads = None,
    json: Path | None = None,
    report: Path = Path("compare.html"),
) -> None:
    """Measure several runs in the same way and put them beside each other; seeds of the same settings are one row.

    Runs of which not the same can be measured (other robots, horizons, tasks) are shown apart. A run that cannot be
    measured is named, the others are compared, and the exit code is 2. What was measured is kept in RUN/compared.json
    and read again while the model is the same.

    Args:
        runs: Run directories and folders of policies, pretrained:NAME, or pretrained-policy:NAME.
        horizon: Frames of a roll-out; by default as in `neurodyn evaluate`.
        rollouts: Number of roll-outs; by default as in `neurodyn evaluate`.
        seed: Seed of initial states and torques, and of a policy's starts and commands.
        data: HDF5 store, or an npz log; by default each model's own log, where it was trained on one.
        split: Which episodes of the data.
        ground: Ground of the robot by name, or a YAML file with a scene.
        dynamics: Where policies act: analytic, hybrid, a run directory, or pretrained:NAME; give the flag once for
            each. By default the simulator.
        episodes: Number of episodes of each policy; by default 256.
        starts: HDF5 store after whose windows episodes of policies start in models of logs.
        task: FILE.py:CLASS, for policies of a task of your own; its code runs only if you name it.
        device: Where it computes: cpu, cuda, cuda:1 ...
        threads: Cores to use; by default all. Results do not depend on it.
        json: File for the result as JSON.
        report: File for the page.

    Example:
        neurodyn compare runs/seed-0 runs/seed-1 pretrained:cartpole
    """
    from neurodyn.cli.terminal.console import ProgressBar, keep_figures
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.core.artifacts import is_policy, require_writable
    from neurodyn.core.errors import InputError
    from neurodyn.evaluate.run_comparison import RunFigures, comparison_of
    from neurodyn.evaluate.run_figures import model_figures
    from neurodyn.policy.algorithms import require_learner
    from neurodyn.report import comparison_tables, write_comparison
    from neurodyn.report.run_comparison import LEAD, broken_lines

    require_writable(json, report, text=True)
    if not any(is_policy(run) for run in runs):
        given = {"dynamics": dynamics or None, "episodes": episodes, "starts": starts, "task": task}
        for name, value in given.items():
            if value is not None:
                raise InputError(f"--{name} is for policies, of which none is named here; valid: without it")
    if episodes is not None and episodes < 1:
        raise InputError(f"--episodes is {episodes}; valid: at least 1")

    def measure(run: str) -> RunFigures:
        if is_policy(run):
            require_learner()
            from neurodyn.policy.evaluation import EPISODES
            from neurodyn.policy.figures import policy_figures

            return policy_figures(
                run, dynamics=dynamics, episodes=episodes or EPISODES, seed=seed, starts=starts, ground=ground,
                task=task, device=device,
            )  # fmt: skip
        return model_figures(
            run, horizon=horizon, rollouts=rollouts, seed=seed, data=data, split=split, ground=ground, device=device,
            threads=threads,
        )  # fmt: skip

    with ProgressBar("comparing"):
        result = comparison_of(runs, measure)
    lines = broken_lines(result)
    print_tables(LEAD, comparison_tables(result), *lines)
    keep_figures(json, result.plain())
    print(f"report: {write_comparison(report, result)}")
    if result.broken:
        names = ", ".join(entry.run for entry in result.broken)
        raise InputError(f"{len(result.broken)} of {len(runs)} runs could not be compared: {names}; why is said above")

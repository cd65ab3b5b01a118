# SPDX-License-Identifier: Apache-2.0
"""`neurodyn control`: plan in a model, act in a plant."""

from pathlib import Path
from typing import Annotated

import tyro

from neurodyn.cli.machine import Device


def control(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")],
    /,
    *,
    model: str,
    planner: str = "cem",
    plant: str = "analytic",
    episodes: int = 4,
    frames: int | None = None,
    seed: int = 500,
    settings: Path | None = None,
    horizon: int | None = None,
    samples: int | None = None,
    rounds: int | None = None,
    penalty: float | None = None,
    value: str | None = None,
    noise: float = 0.0,
    velocity_noise: float = 0.0,
    delay: int = 0,
    out: Path | None = None,
    device: Device = "cpu",
    json: Path | None = None,
) -> None:
    """Plan at every frame in a model, and act in a plant.

    Args:
        task: Name of a task, as cartpole-swingup, or FILE.py:CLASS for one of your own.
        model: Where plans are tried: analytic, hybrid, a run directory, or pretrained:NAME.
        planner: mppi (needs the extra `control`), cem, annealed (sampling whose noise falls), gradient or ilqr
            (through the model).
        plant: Where they act: likewise.
        episodes: Number of episodes, side by side.
        frames: Length of an episode; by default the task's.
        seed: Seed of starts, commands, noise and candidates.
        settings: File with settings of the planner (YAML, TOML or JSON); by default those of the task.
        horizon: Frames of a plan.
        samples: Candidates of a round.
        rounds: Rounds of a decision.
        penalty: Weight (lambda) of the model's uncertainty that is subtracted from the reward.
        value: Policy whose critic says what is still to come after a plan: a folder of `policy train`.
        noise: Standard deviation of measured positions [rad or m].
        velocity_noise: Standard deviation of measured velocities [rad/s or m/s].
        delay: Frames between a decision and its effect, which the planner knows.
        out: Folder for report.html and result.json; by default none is written.
        device: Where it computes: cpu, cuda, cuda:1 ...
        json: File for the result as JSON.
    """
    from neurodyn.cli.console import TrainingBar
    from neurodyn.cli.tables.results import print_tables
    from neurodyn.control.measured_state import Noise
    from neurodyn.control.planning.closed_loop import run
    from neurodyn.control.planning.planner import Planner
    from neurodyn.control.planning.report import control_tables, verdict, write_control_report
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.core.config import from_dict
    from neurodyn.core.errors import InputError
    from neurodyn.tasks import load

    least = (("--episodes", episodes, 1), ("--frames", 1 if frames is None else frames, 1), ("--seed", seed, 0))
    for name, given, lowest in least:
        if given < lowest:
            raise InputError(f"{name} is {given}; valid: at least {lowest}")
    wanted, sway = load(task), from_dict({"position": noise, "velocity": velocity_noise}, Noise, "control")
    for path in (json, None if out is None else out / "report.html"):
        require_writable(path, text=True)
    where, real = (open_dynamics(wanted, name, device=device) for name in (model, plant))
    critic = None
    if value is not None:
        from neurodyn.policy.critic import load_critic

        critic = load_critic(value, wanted)
    asked = Planner(
        where.dynamics, wanted, planner, settings, delay=delay, value=critic,
        horizon=horizon, samples=samples, rounds=rounds, penalty=penalty, seed=seed,
    )  # fmt: skip
    _warn_of_horizon(model, asked.settings.horizon)
    with TrainingBar(f"{planner} in {model}, on {plant}") as bar:
        result, path = run(
            asked, planner, where, real, episodes=episodes, seed=seed, noise=sway, delay=delay, frames=frames,
            progress=lambda done, of, mean: bar.update(done / of, f"return {mean:.4g}"),
        )  # fmt: skip
    print_tables(f"{verdict(result)}", control_tables(result))
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    if out is not None:
        write_json(out / "result.json", result.plain())
        write_control_report(out / "report.html", wanted, result, path)
        print(f"report: {out / 'report.html'}")
    if verdict(result).startswith("unusable"):
        raise InputError(verdict(result))


def _warn_of_horizon(run: str, horizon: int) -> None:
    """Say that a plan is longer than the roll-outs that a model learned from."""
    from neurodyn.core.notices import notice
    from neurodyn.learn.run_folder import longest_forecast

    known = None if run in ("analytic", "hybrid") else longest_forecast(run)
    if known is not None and horizon > known:
        notice(f"the horizon of {horizon} frames is longer than the {known} frames that {run} was trained to predict")

# SPDX-License-Identifier: Apache-2.0
"""`neurodyn control`: plan in a model, act in a plant; or let a quadruped walk by convex MPC."""

from pathlib import Path
from typing import Annotated

import tyro

from neurodyn.cli.terminal.flags import Device
from neurodyn.control.planning.settings import DEFAULT_PLANNER

WALKERS = ("mpc", "imitation")
"""Planners by which quadrupeds walk."""


def control(
    task: Annotated[str, tyro.conf.arg(metavar="TASK|ROBOT")],
    /,
    *,
    model: str | None = None,
    planner: str = DEFAULT_PLANNER,
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
    gait: str | None = None,
    command: tuple[float, float, float] | None = None,
    ground: str | None = None,
    seconds: float | None = None,
    out: Path | None = None,
    device: Device = "cpu",
    json: Path | None = None,
) -> None:
    """Plan at every frame in a model, and act in a plant.

    With --planner mpc or imitation a quadruped walks as commanded, by contact forces from convex model-predictive
    control or from a network that imitates it; --gait, --command, --ground and --seconds are for these.

    Args:
        task: Name of a task, as cartpole-swingup, or FILE.py:CLASS for one of your own; for mpc and imitation a
            quadruped, as a1, or the path of its declaration.
        model: Where plans are tried: analytic, hybrid, a run directory, or pretrained:NAME; for imitation the folder of
            `neurodyn imitate`.
        planner: mppi, cem, annealed (sampling whose noise falls), gradient or ilqr (through the model); for
            quadrupeds mpc (needs the extra `control`) or imitation.
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
        gait: stand, trot or walk; by default trot.
        command: Velocities forward and to the left [m/s] and yaw rate [rad/s]; by default random ones, up to 0.6 m/s
            and 0.8 rad/s.
        ground: One of the robot's grounds by name, or a file with a scene; by default the one that it declares.
        seconds: Length of an episode; by default 20.
        out: Folder for report.html and result.json; by default none is written.
        device: Where it computes: cpu, cuda, cuda:1 ...
        json: File for the result as JSON.

    Example:
        neurodyn control cartpole-swingup --model runs/cartpole --planner mppi
        neurodyn control a1 --planner mpc --command 0.5 0 0
    """
    from neurodyn.cli.terminal.console import ProgressBar, claimed, keep_result
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.control.measurement_noise import MeasurementNoise
    from neurodyn.control.planning.closed_loop import run
    from neurodyn.control.planning.optimiser import PLANNERS
    from neurodyn.control.planning.planner import Planner
    from neurodyn.control.planning.report import control_tables, write_control_report
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.core.config import from_dict
    from neurodyn.core.errors import InputError, unknown
    from neurodyn.core.verdict import require_usable
    from neurodyn.tasks import load

    if planner not in WALKERS and planner not in PLANNERS:
        raise unknown("planner", planner, [*PLANNERS, *WALKERS])
    least = (("--episodes", episodes, 1), ("--frames", 1 if frames is None else frames, 1), ("--seed", seed, 0))
    for name, given, lowest in least:
        if given < lowest:
            raise InputError(f"{name} is {given}; valid: at least {lowest}")
    planning = {
        "--frames": frames, "--horizon": horizon, "--samples": samples, "--rounds": rounds, "--penalty": penalty,
        "--value": value, "--noise": noise or None, "--velocity-noise": velocity_noise or None,
        "--delay": delay or None,
    }  # fmt: skip
    walking = {"--gait": gait, "--command": command, "--ground": ground, "--seconds": seconds}
    walks = planner in WALKERS
    for name, given in (planning if walks else walking).items():
        if given is not None:
            valid = ", ".join(walking if walks else planning)
            raise InputError(f"{name} is not for --planner {planner}; valid: {valid}")
    if walks:
        walk_robot(
            task, planner=planner, model=model, plant=plant, episodes=episodes, seed=seed, settings=settings, gait=gait,
            seconds=20.0 if seconds is None else seconds, command=command, ground=ground, out=out, json=json,
        )  # fmt: skip
        return
    if model is None:
        raise InputError(f"--planner {planner} needs --model: analytic, hybrid, a run directory, or pretrained:NAME")
    wanted, sway = load(task), from_dict({"position": noise, "velocity": velocity_noise}, MeasurementNoise, "control")
    with claimed(json, out):
        with ProgressBar(f"opening {model} and {plant}"):
            where, real = (open_dynamics(wanted, name, device=device) for name in (model, plant))
        critic = None
        if value is not None:
            from neurodyn.policy.artifact import load_critic

            critic = load_critic(value, wanted)
        asked = Planner(
            where.dynamics, wanted, planner, settings, delay=delay, value=critic,
            horizon=horizon, samples=samples, rounds=rounds, penalty=penalty, seed=seed,
        )  # fmt: skip
        _warn_of_horizon(model, asked.settings.horizon)
        with ProgressBar(f"{planner} in {model}, on {plant}"):
            result, path = run(
                asked, planner, where, real, episodes=episodes, seed=seed, noise=sway, delay=delay, frames=frames,
            )  # fmt: skip
        print_tables(f"{episodes} episodes of {task}, planned by {planner} in {model}", control_tables(result))
        keep_result(result, json, out, lambda page: write_control_report(page, wanted, result, path))
    require_usable(str(result.verdict))
    print(f"verdict: {result.verdict}")


def _warn_of_horizon(run: str, horizon: int) -> None:
    """Say that a plan is longer than the roll-outs that a model learned from."""
    from neurodyn.core.errors import notice
    from neurodyn.learn.run_folder import longest_forecast

    known = None if run in ("analytic", "hybrid") else longest_forecast(run)
    if known is not None and horizon > known:
        notice(f"the horizon of {horizon} frames is longer than the {known} frames that {run} was trained to predict")


def walk_robot(
    name: str,
    *,
    planner: str,
    model: str | None,
    plant: str,
    episodes: int,
    seconds: float,
    seed: int,
    settings: Path | None,
    gait: str | None,
    command: tuple[float, float, float] | None,
    ground: str | None,
    out: Path | None,
    json: Path | None,
) -> None:
    """Let a quadruped walk; arguments as of `neurodyn control`."""
    from neurodyn.cli.terminal.console import ProgressBar, claimed, keep_result
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.core.errors import InputError
    from neurodyn.core.verdict import require_usable
    from neurodyn.robots import load
    from neurodyn.walking.controller import IMITATION, walker
    from neurodyn.walking.gait import Commands
    from neurodyn.walking.plant import walking_plant
    from neurodyn.walking.report import walk_headline, walk_tables, write_walk_report
    from neurodyn.walking.walk import walk

    if (planner == IMITATION) != (model is not None):
        raise InputError(
            "--planner imitation needs --model FOLDER, made by `neurodyn imitate`"
            if model is None
            else "--planner mpc takes no --model: its model is a single rigid body with the robot's mass"
        )
    if not 0 < seconds < float("inf"):
        raise InputError(f"--seconds is {seconds:g}; valid: above 0")
    with claimed(json, out):
        where = walking_plant(load(name), plant, ground)
        controller, law, chosen = walker(where, gait=gait, settings=settings, imitation=model)
        commands = Commands.drawn(episodes, seconds, seed) if command is None else Commands.steady(command, episodes)
        with ProgressBar(f"{name} walks in {plant}"):
            result, path = walk(where, controller, commands, seconds=seconds, seed=seed, names=(law, chosen))
        print_tables(walk_headline(result), walk_tables(result))
        keep_result(result, json, out, lambda page: write_walk_report(page, where, result, path))
    require_usable(str(result.verdict))
    print(f"verdict: {result.verdict}")

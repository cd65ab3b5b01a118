# SPDX-License-Identifier: Apache-2.0
"""`neurodyn control`, `imitate`: planning in a model at every frame, MPC, and a network that imitates it."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import tyro

from neurodyn.cli.terminal.flags import Device, command
from neurodyn.control.planning.settings import DEFAULT_PLANNER
from neurodyn.core.config import Config

WALKERS = ("mpc", "imitation")
"""Planners by which quadrupeds walk."""
_WALKING = ("gait", "command", "ground", "seconds")
_SETTINGS = ("horizon", "samples", "rounds", "penalty")
_PLANNING = ("frames", *_SETTINGS, "value", "noise", "velocity_noise", "delay")
"""Flags of one or the other alone; the settings of a planner that a flag replaces."""


class ControlRequest(Config, frozen=True, kw_only=False):
    """Episodes of a planner, or of a quadruped that walks.

    Attributes:
        task: Name of a task, as cartpole-swingup, or FILE.py:CLASS for one of your own; for mpc and imitation a
            quadruped, as a1, or the path of its declaration.
        model: Where plans are tried: analytic, hybrid, a run directory, or pretrained:NAME; for imitation the folder of
            `neurodyn imitate`.
        planner: mppi, cem, annealed (sampling whose noise falls), gradient or ilqr (through the model); for
            quadrupeds mpc (needs the extra `control`) or imitation.
        plant: Where they act: analytic, hybrid, a run directory, pretrained:NAME, or your robot as FILE.py:CLASS
            (`neurodyn.control.RobotInterface`), which takes one episode after the other and logs to OUT/robot.csv.
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
    """

    task: Annotated[str, tyro.conf.arg(metavar="TASK|ROBOT")]
    model: str | None = None
    planner: str = DEFAULT_PLANNER
    plant: str = "analytic"
    episodes: int = 4
    frames: int | None = None
    seed: int = 500
    settings: Path | None = None
    horizon: int | None = None
    samples: int | None = None
    rounds: int | None = None
    penalty: float | None = None
    value: str | None = None
    noise: float = 0.0
    velocity_noise: float = 0.0
    delay: int = 0
    gait: str | None = None
    command: tuple[float, float, float] | None = None
    ground: str | None = None
    seconds: float | None = None
    out: Path | None = None
    device: Device = "cpu"
    json: Path | None = None


@command(ControlRequest)
def control(request: ControlRequest) -> None:
    """Plan at every frame in a model, and act in a plant.

    With --planner mpc or imitation a quadruped walks as commanded, by contact forces from convex model-predictive
    control or from a network that imitates it; --gait, --command, --ground and --seconds are for these.

    Example:
        neurodyn control cartpole-swingup --model runs/cartpole --planner mppi
        neurodyn control a1 --planner mpc --command 0.5 0 0
    """
    from neurodyn.control.planning.optimiser import PLANNERS
    from neurodyn.core.errors import InputError, unknown

    planner, unset = request.planner, ControlRequest(request.task)
    if planner not in WALKERS and planner not in PLANNERS:
        raise unknown("planner", planner, [*PLANNERS, *WALKERS])
    for name, lowest in (("episodes", 1), ("frames", 1), ("seed", 0)):
        given = getattr(request, name)
        if given is not None and given < lowest:
            raise InputError(f"--{name} is {given}; valid: at least {lowest}")
    walks = planner in WALKERS
    others, valid = (_PLANNING, _WALKING) if walks else (_WALKING, _PLANNING)
    for name in others:
        if getattr(request, name) != getattr(unset, name):
            raise InputError(f"{_flag(name)} is not for --planner {planner}; valid: {', '.join(map(_flag, valid))}")
    (_walk if walks else _plan)(request)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _plan(request: ControlRequest) -> None:
    """Let a planner act."""
    from neurodyn.cli.terminal.console import ProgressBar, claimed, keep_result
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.control.planning.closed_loop import control_tables, run, write_control_report
    from neurodyn.control.planning.planner import Planner
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.control.robot.in_loop import plant_of
    from neurodyn.control.task_frames import MeasurementNoise
    from neurodyn.core.config import from_dict
    from neurodyn.core.errors import InputError
    from neurodyn.core.verdict import require_usable
    from neurodyn.policy.artifact import load_critic
    from neurodyn.tasks import load

    model, plant, planner = request.model, request.plant, request.planner
    if model is None:
        raise InputError(f"--planner {planner} needs --model: analytic, hybrid, a run directory, or pretrained:NAME")
    task = load(request.task)
    noise = from_dict({"position": request.noise, "velocity": request.velocity_noise}, MeasurementNoise, "control")
    with claimed(request.json, request.out), ExitStack() as opened:
        with ProgressBar(f"opening {model}"):
            where = open_dynamics(task, model, device=request.device, flag="--model")
        asked = Planner(
            where.dynamics, task, planner, request.settings, delay=request.delay, seed=request.seed,
            value=None if request.value is None else load_critic(request.value, task),
            **{name: getattr(request, name) for name in _SETTINGS},
        )  # fmt: skip
        _warn_of_horizon(model, asked.settings.horizon)
        with ProgressBar(f"opening {plant}"):
            real = opened.enter_context(plant_of(task, plant, request.device, request.out))
        with ProgressBar(f"{planner} in {model}, on {plant}"):
            result, path = run(
                asked, planner, where, real, episodes=request.episodes, seed=request.seed, noise=noise,
                frames=request.frames,
            )  # fmt: skip
        title = f"{request.episodes} episodes of {request.task}, planned by {planner} in {model}"
        print_tables(title, control_tables(result))
        keep_result(result, request.json, request.out, lambda page: write_control_report(page, task, result, path))
    require_usable(str(result.verdict))
    print(f"verdict: {result.verdict}")


def _warn_of_horizon(run: str, horizon: int) -> None:
    """Say that a plan is longer than the roll-outs that a model learned from."""
    from neurodyn.core.errors import notice
    from neurodyn.learn.run_folder import longest_forecast

    known = None if run in ("analytic", "hybrid") else longest_forecast(run)
    if known is not None and horizon > known:
        notice(f"the horizon of {horizon} frames is longer than the {known} frames that {run} was trained to predict")


def _walk(request: ControlRequest) -> None:
    """Let a quadruped walk."""
    from neurodyn.cli.terminal.console import ProgressBar, claimed, keep_result
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.core.errors import InputError
    from neurodyn.core.verdict import require_usable
    from neurodyn.robots import load
    from neurodyn.walking.controller import IMITATION, walker
    from neurodyn.walking.gait import Commands
    from neurodyn.walking.plant import walking_plant
    from neurodyn.walking.walk import walk, walk_headline, walk_tables, write_walk_report

    model, seed, episodes = request.model, request.seed, request.episodes
    seconds = 20.0 if request.seconds is None else request.seconds
    if (request.planner == IMITATION) != (model is not None):
        raise InputError(
            "--planner imitation needs --model FOLDER, made by `neurodyn imitate`"
            if model is None
            else "--planner mpc takes no --model: its model is a single rigid body with the robot's mass"
        )
    if not 0 < seconds < float("inf"):
        raise InputError(f"--seconds is {seconds:g}; valid: above 0")
    with claimed(request.json, request.out):
        where = walking_plant(load(request.task), request.plant, request.ground)
        controller, law, gait = walker(where, gait=request.gait, settings=request.settings, imitation=model)
        steady = request.command
        commands = Commands.drawn(episodes, seconds, seed) if steady is None else Commands.steady(steady, episodes)
        with ProgressBar(f"{request.task} walks in {request.plant}"):
            result, path = walk(where, controller, commands, seconds=seconds, seed=seed, names=(law, gait))
        print_tables(walk_headline(result), walk_tables(result))
        keep_result(result, request.json, request.out, lambda page: write_walk_report(page, where, result, path))
    require_usable(str(result.verdict))
    print(f"verdict: {result.verdict}")


def imitate(
    robot: str,
    /,
    *,
    out: Path,
    plant: str = "hybrid",
    ground: str | None = None,
    gait: str = "trot",
    transitions: int | None = None,
    rounds: int | None = None,
    seed: int = 0,
    settings: Path | None = None,
    imitation: Path | None = None,
) -> None:
    """Train a network that decides on the contact forces of a quadruped as convex model-predictive control does.

    Args:
        robot: Name of a quadruped, or the path of a declaration.
        out: Folder for the network; forces.onnx is the same as an ONNX file (needs the extra `export`).
        plant: Where it walks: hybrid, analytic, or a run directory.
        ground: One of the robot's grounds by name, or a file with a scene; by default the one that it declares.
        gait: trot, walk or stand.
        transitions: Decisions of the quadratic program to learn from first; by default 10,000.
        rounds: Rounds of DAgger, in which the network walks and the quadratic program corrects it; by default 4.
        seed: Seed of commands, pushes and weights.
        settings: File with settings of the controller (YAML, TOML or JSON).
        imitation: File with settings of the imitation.

    Example:
        neurodyn imitate a1 --out runs/a1-forces
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.config import read_config, replaced
    from neurodyn.core.errors import InputError
    from neurodyn.core.locks import exclusive
    from neurodyn.nets.onnx_file import require_onnx
    from neurodyn.robots import load
    from neurodyn.walking.convex_mpc import MpcSettings
    from neurodyn.walking.force_network import save_imitation
    from neurodyn.walking.gait import GAITS
    from neurodyn.walking.imitation import ImitationSettings
    from neurodyn.walking.imitation import imitate as learn
    from neurodyn.walking.plant import walking_plant

    if out.exists():
        raise InputError(f"{out}: is there already; valid: another folder")
    require_writable(out / "forces.json")
    require_onnx()
    GAITS.require(gait)
    how = ImitationSettings() if imitation is None else read_config(imitation, ImitationSettings)
    given = {key: value for key, value in (("transitions", transitions), ("rounds", rounds)) if value is not None}
    try:
        how = replaced(how, **given)
    except InputError as error:
        raise InputError(f"--{error}") from None
    mpc = MpcSettings() if settings is None else read_config(settings, MpcSettings)
    with exclusive(out):
        where = walking_plant(load(robot), plant, ground)
        with ProgressBar(f"{robot}: imitating the quadratic program"):
            network, law = learn(where, gait, mpc, how, seed=seed)
        save_imitation(out, network, law.config)
    print(f"{out} written; next: neurodyn control {robot} --planner imitation --model {out} --plant {plant}")

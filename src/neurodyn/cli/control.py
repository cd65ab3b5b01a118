# SPDX-License-Identifier: Apache-2.0
"""`neurodyn control`, `imitate`: planning in a model at every frame, MPC, and a network that imitates MPC."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import tyro

from neurodyn.cli.terminal.console import ProgressBar, locked_output, print_verdict, shell_word, write_result
from neurodyn.cli.terminal.flags import Device, command
from neurodyn.control.planning.settings import DEFAULT_PLANNER
from neurodyn.core.artifacts import require_writable
from neurodyn.core.config import Config, from_dict, read_config, with_changes
from neurodyn.core.errors import InputError, notice, unknown
from neurodyn.core.locks import exclusive
from neurodyn.core.verdict import require_usable

WALKERS = ("mpc", "imitation")
"""Planners for walking quadrupeds."""
_WALKING = ("gait", "command", "ground", "seconds")
_SETTINGS = ("horizon", "samples", "rounds", "penalty", "caution", "correction")
_PLANNING = ("frames", *_SETTINGS, "value", "noise", "velocity_noise", "delay")
"""Flags that only walking, or only planning, takes; and planner settings that flags override."""


class ControlRequest(Config, frozen=True, kw_only=False):
    """Episodes of a planner, or of a walking quadruped."""

    task: Annotated[str, tyro.conf.arg(metavar="TASK|ROBOT")]
    """Name of a task, such as cartpole-swingup, or FILE.py:CLASS for your own; for mpc and imitation a quadruped, such
    as a1, or the path of its declaration."""
    model: str | None = None
    """Dynamics to plan in: analytic, hybrid, a run directory, or pretrained:NAME; for imitation the folder written by
    `neurodyn imitate`."""
    planner: str = DEFAULT_PLANNER
    """mppi, cem, annealed (sampling with decreasing noise), gradient or ilqr (through the model); for quadrupeds mpc
    (needs the extra `control`) or imitation."""
    plant: str = "analytic"
    """Plant to act on: analytic, hybrid, a run directory, pretrained:NAME, or your robot as FILE.py:CLASS
    (`neurodyn.control.RobotInterface`), which runs episodes one by one and logs to OUT/robot.csv."""
    episodes: int = 4
    """Number of parallel episodes."""
    frames: int | None = None
    """Length of an episode [frames]; by default the task's."""
    seed: int = 500
    """Seed of starts, commands, noise and candidates."""
    settings: Path | None = None
    """File with planner settings (YAML, TOML or JSON); by default the task's."""
    horizon: int | None = None
    """Planning horizon [frames]."""
    samples: int | None = None
    """Candidates per round."""
    rounds: int | None = None
    """Rounds per decision."""
    penalty: float | None = None
    """Weight (lambda) of the model uncertainty subtracted from the reward."""
    caution: float | None = None
    """Reward that each planned frame outside of what the model has seen costs."""
    correction: float | None = None
    """Share (0 to 1) of the model's last error over one frame in the running mean that is added to its predictions."""
    value: str | None = None
    """Policy folder (`policy train`) whose critic estimates the return after the planning horizon."""
    noise: float = 0.0
    """Standard deviation of position noise [rad or m]."""
    velocity_noise: float = 0.0
    """Standard deviation of velocity noise [rad/s or m/s]."""
    delay: int = 0
    """Frames between a decision and its effect, known to the planner."""
    gait: str | None = None
    """stand, trot or walk; by default trot."""
    command: tuple[float, float, float] | None = None
    """Velocities forward and to the left [m/s] and yaw rate [rad/s]; by default random, up to 0.6 m/s and 0.8 rad/s."""
    ground: str | None = None
    """One of the robot's grounds by name, or a file with a scene; by default the declared one."""
    seconds: float | None = None
    """Length of an episode [s]; by default 20."""
    out: Path | None = None
    """Folder for report.html and result.json; by default neither is written."""
    device: Device = "cpu"
    """Device: cpu, cuda, cuda:1 ..."""
    json: Path | None = None
    """File for the result as JSON."""


@command(ControlRequest)
def control(request: ControlRequest) -> None:
    """Plan in a model at every frame, and act on a plant.

    With --planner mpc or imitation, a quadruped walks as commanded, with contact forces from convex model-predictive
    control or from a network that imitates it; --gait, --command, --ground and --seconds apply to these.

    Example:
        neurodyn control cartpole-swingup --model runs/cartpole --planner mppi
        neurodyn control a1 --planner mpc --command 0.5 0 0
    """
    from neurodyn.control.planning.planner import PLANNERS

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
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.control.planning.closed_loop import run
    from neurodyn.control.planning.planner import Planner
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.control.robot.in_loop import plant_of
    from neurodyn.control.task_frames import MeasurementNoise
    from neurodyn.policy.artifact import load_critic
    from neurodyn.report.planning import control_tables, write_control_report
    from neurodyn.tasks import load

    model, plant, planner = request.model, request.plant, request.planner
    if model is None:
        raise InputError(f"--planner {planner} needs --model: analytic, hybrid, a run directory, or pretrained:NAME")
    task = load(request.task)
    noise = from_dict({"position": request.noise, "velocity": request.velocity_noise}, MeasurementNoise, "control")
    with locked_output(request.json, request.out), ExitStack() as opened:
        with ProgressBar(f"opening {model}"):
            where = open_dynamics(task, model, device=request.device, flag="--model")
        asked = Planner(
            where.dynamics, task, planner, request.settings, delay=request.delay, seed=request.seed,
            value=None if request.value is None else load_critic(request.value, task),
            **{name: getattr(request, name) for name in _SETTINGS},
        )  # fmt: skip
        _warn_of_horizon(model, asked.settings.horizon)
        with ProgressBar(f"opening {plant}"):
            real = opened.enter_context(plant_of(task, plant, request.device, request.out, where.dynamics))
        with ProgressBar(f"{planner} in {model}, on {plant}"):
            result, path = run(
                asked, planner, where, real, episodes=request.episodes, seed=request.seed, noise=noise,
                frames=request.frames,
            )  # fmt: skip
        title = f"{request.episodes} episodes of {request.task}, planned by {planner} in {model}"
        print_tables(title, control_tables(result))
        write_result(result, request.json, request.out, lambda page: write_control_report(page, task, result, path))
    require_usable(str(result.verdict))
    print_verdict(result.verdict)


def _warn_of_horizon(run: str, horizon: int) -> None:
    """Warn if a plan is longer than the roll-outs that a model was trained on."""
    from neurodyn.learn.run_folder import longest_forecast

    known = None if run in ("analytic", "hybrid") else longest_forecast(run)
    if known is not None and horizon > known:
        notice(f"the horizon of {horizon} frames is longer than the {known} frames that {run} was trained to predict")


def _walk(request: ControlRequest) -> None:
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.robots import load
    from neurodyn.walking.closed_loop import walk, walk_headline, walk_tables, write_walk_report
    from neurodyn.walking.controller import IMITATION, walker
    from neurodyn.walking.gait import Commands
    from neurodyn.walking.plant import walking_plant

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
    with locked_output(request.json, request.out):
        where = walking_plant(load(request.task), request.plant, request.ground)
        controller, law, gait = walker(where, gait=request.gait, settings=request.settings, imitation=model)
        steady = request.command
        commands = Commands.drawn(episodes, seconds, seed) if steady is None else Commands.steady(steady, episodes)
        with ProgressBar(f"{request.task} walks in {request.plant}"):
            result, path = walk(where, controller, commands, seconds=seconds, seed=seed, names=(law, gait))
        print_tables(walk_headline(result), walk_tables(result))
        write_result(result, request.json, request.out, lambda page: write_walk_report(page, where, result, path))
    require_usable(str(result.verdict))
    print_verdict(result.verdict)


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
    """Train a network that imitates convex model-predictive control of a quadruped's contact forces.

    Args:
        robot: Name of a quadruped, or the path of a declaration.
        out: Folder for the network, also written as forces.onnx (needs the extra `export`).
        plant: Plant to walk in: hybrid, analytic, or a run directory.
        ground: One of the robot's grounds by name, or a file with a scene; by default the declared one.
        gait: trot, walk or stand.
        transitions: Decisions of the quadratic program to train on first; by default 10,000.
        rounds: DAgger rounds, in which the network walks and the quadratic program corrects it; by default 4.
        seed: Seed of commands, pushes and weights.
        settings: File with controller settings (YAML, TOML or JSON).
        imitation: File with imitation settings.

    Example:
        neurodyn imitate a1 --out runs/a1-forces
    """
    from neurodyn.nets.onnx_file import require_onnx
    from neurodyn.robots import load
    from neurodyn.walking.convex_mpc import MpcSettings
    from neurodyn.walking.force_network import save_imitation
    from neurodyn.walking.gait import GAITS
    from neurodyn.walking.imitation import ImitationSettings
    from neurodyn.walking.imitation import imitate as learn
    from neurodyn.walking.plant import walking_plant

    if out.exists():
        raise InputError(f"{out}: already exists; valid: another folder")
    require_writable(out / "forces.json")
    require_onnx()
    GAITS.require(gait)
    how = ImitationSettings() if imitation is None else read_config(imitation, ImitationSettings)
    given = {key: value for key, value in (("transitions", transitions), ("rounds", rounds)) if value is not None}
    try:
        how = with_changes(how, **given)
    except InputError as error:
        raise InputError(f"--{error}") from None
    mpc = MpcSettings() if settings is None else read_config(settings, MpcSettings)
    with exclusive(out):
        where = walking_plant(load(robot), plant, ground)
        with ProgressBar(f"{robot}: imitating the quadratic program"):
            network, law = learn(where, gait, mpc, how, seed=seed)
        save_imitation(out, network, law.config)
    words = f"{shell_word(robot)} --planner imitation --model {shell_word(out)} --plant {shell_word(plant)}"
    print(f"{out} written; next: neurodyn control {words}")

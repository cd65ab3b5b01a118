# SPDX-License-Identifier: Apache-2.0
"""`neurodyn demo`: close a reality gap, or learn a simulator, a log or a policy, with a report, in minutes."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from neurodyn.cli.terminal.console import ProgressBar, print_verdict, shell_word
from neurodyn.core.artifacts import atomic_folder, resolve_run, write_json
from neurodyn.core.errors import InputError
from neurodyn.core.interruption import Interrupted
from neurodyn.core.locks import exclusive
from neurodyn.core.progress import present_work, stage
from neurodyn.core.verdict import grade_of
from neurodyn.core.workers import Beside, available_cores

if TYPE_CHECKING:
    from neurodyn.core.config import Record
    from neurodyn.learn.budget import TrainState


R = TypeVar("R", bound="Record")

_BUDGET = {"minutes": 2.5, "transitions": 1_000_000, "rollouts": 512}


def demo(
    *,
    neural: bool = False,
    world_model: bool = False,
    policy: bool = False,
    out: Path | None = None,
    minutes: float | None = None,
    transitions: int | None = None,
    rollouts: int | None = None,
    seed: int = 0,
) -> None:
    """Show a policy fail on a robot that differs from its declaration, adapt the model, and train one that works.

    First a real quadruped's log, beside its declaration and the model adapted to it. The robot of the rest is a
    stand-in in plain MuJoCo. This takes two minutes on two cores; --world-model and --policy take about one each,
    --neural five.

    Args:
        neural: Instead, train a neural cartpole on simulator data and evaluate it against that simulator.
        world_model: Instead, learn a quadruped from shipped walking logs, without a simulator.
        policy: Instead, learn to swing up the cartpole inside a network, then test in the simulator.
        out: Output folder; an interrupted demo in it resumes. By default demo, or demo-neural, demo-world-model or
            demo-policy.
        minutes: Training time of the neural cartpole [min]; by default 2.5.
        transitions: Size of its training data [transitions]; by default a million.
        rollouts: Number of roll-outs in its evaluation; by default 512.
        seed: Seed of data and training.

    Example:
        neurodyn demo
        neurodyn demo --world-model
    """
    budget = {"minutes": minutes, "transitions": transitions, "rollouts": rollouts}
    given = {name: value for name, value in budget.items() if value is not None}
    asked = [name for name, one in (("neural", neural), ("world-model", world_model), ("policy", policy)) if one]
    if len(asked) > 1:
        raise InputError(f"--{asked[0]} and --{asked[1]} are different demos; give one of them")
    if given and asked not in ([], ["neural"]):
        raise InputError(f"--{next(iter(given))} is for the neural cartpole; valid with the other demos: --out, --seed")
    if seed < 0:
        raise InputError(f"--seed is {seed}; valid: at least 0")
    which = "neural" if given else "".join(asked)
    shown: dict[str, Callable[[Path], None]] = {
        "": partial(show_gap, seed=seed),
        "neural": partial(show_cartpole, **(_BUDGET | given), seed=seed),
        "world-model": partial(show_world_model, seed=seed),
        "policy": partial(show_policy, seed=seed),
    }
    with _alone(out := out or Path(f"demo-{which}".rstrip("-"))):
        shown[which](out)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the folder for one demo, and explain how an interrupted one resumes."""
    try:
        with exclusive(out):
            yield
    except KeyboardInterrupt as stop:
        raise Interrupted(getattr(stop, "code", 130), f"{out}: interrupted; the same command goes on") from None


GAP_ROBOT, GAP_TASK, GAP_POLICY = "ant", "ant-run", "pretrained-policy:ant-run"
GAP_SETTINGS, GAP_FIT = (Path(__file__).with_name(name) for name in ("gap.yaml", "gap_fit.yaml"))
GAP_FRAMES, GAP_NOISE = 5_000, 0.4
"""Frames of the robot's log, and the noise on its actions."""
GAP_EPISODES, GAP_PROMISES = 5, 64
"""Episodes of each policy on the robot, and in its model."""


REAL_ROBOT = "real_robots/go2/robot.yaml"
REAL_SECONDS, REAL_STARTS = (0.1, 0.5, 1.0), 20
"""Horizons of the forecasts of a real robot [s], and the most starts in an episode."""


def forecast_real_robot(out: Path) -> str:
    """Forecast motions of a real quadruped that no fit saw, by its declaration and by the model adapted to its log.

    Returns:
        What the forecasts show, in a line.
    """
    from neurodyn.data.header import Split
    from neurodyn.dynamics.hybrid.declared import declared_hybrid
    from neurodyn.dynamics.rollout_errors import RolloutErrors
    from neurodyn.dynamics.rollouts import recorded_environments, roll_along, truth_of
    from neurodyn.evaluate.run import open_along_log
    from neurodyn.identify.ladder.forecasts import forecasts_of
    from neurodyn.identify.ladder.rungs import DECLARED, NETWORKS, held_out_windows
    from neurodyn.report.held_out import write_forecasts_page

    folder = example(REAL_ROBOT).parent
    adapted, _, robot, store = open_along_log(folder / "adapted", folder / "log.npz")
    windows, frames = held_out_windows(store, Split.TEST, adapted.spec.context, REAL_SECONDS, REAL_STARTS)
    errors = {
        name: RolloutErrors.of(
            robot, roll_along(model, windows, recorded_environments(store, model)), truth_of(windows)
        )
        for name, model in ((DECLARED, declared_hybrid(robot, threads=1)), (NETWORKS, adapted))
    }  # fmt: skip
    declared, found = (1e3 * float(one.errors[:, frames[-1] - 1].mean()) for one in errors.values())
    path = write_forecasts_page(
        out / "go2.html", "A real Go2 in the air",
        "A public log of 16 s. The adapted model has the motors and masses that it tells, and networks on the legs.",
        forecasts_of(errors, NETWORKS, "test"),
    )  # fmt: skip
    return f"a second ahead its joints are off by {declared:.1f} mrad as declared, {found:.1f} as adapted: {path}"


def show_gap(out: Path, seed: int) -> None:
    """Log a robot that differs from its declaration, adapt its model, train a policy in it, and test on the robot.

    Raises:
        InputError: The extra `policy` or `sim` is not installed.
    """
    cores = available_cores()
    with Beside(partial(forecast_real_robot, out), cores) as real:
        _close_gap(out, seed, real, cores)


def _close_gap(out: Path, seed: int, real: Beside[str], cores: int) -> None:
    from neurodyn.policy.learners.algorithms import require_learner

    require_learner()
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.dynamics.hybrid.model import HybridDynamics
    from neurodyn.identify.result import read_adaptation
    from neurodyn.identify.run import adapt
    from neurodyn.policy.episodes.logs import log_policies
    from neurodyn.policy.episodes.report import PolicyGap, measure_gap, play_in_both, write_gap
    from neurodyn.policy.learners.learner import initial_policy
    from neurodyn.policy.learners.training import train as train_policy
    from neurodyn.policy.settings import load_settings, with_flags
    from neurodyn.report.identification import write_identification
    from neurodyn.report.sentences import sentences
    from neurodyn.tasks import load

    robot = f"{example('worn_ant.py')}:WornAnt"
    task, log, run, folder = load(GAP_TASK), out / "log.h5", out / "model", out / "policy"
    settings = with_flags(load_settings(GAP_TASK, GAP_SETTINGS), seed=seed)
    initial, settings = initial_policy(task, GAP_POLICY, settings)
    with ProgressBar("demo") as bar:
        bar.say("a real Go2 in the air: its log ships, with the model that was adapted to it")
        bar.say(
            f"1/5  the robot: {robot}, unlike its declaration (its file); {GAP_POLICY} and random (uniformly random "
            "actions) are logged in it"
        )
        with stage(0.0, 0.07, "logging"):
            logged = log_policies(
                (GAP_POLICY, "random"), log, robot=robot, transitions=GAP_FRAMES, noise=GAP_NOISE, seed=seed
            )
        bar.say(f"     {logged.transitions:,} frames with noise, {log}")
        with stage(0.07, 0.08, "the real robot"):
            bar.say(f"     of the real robot: {real.result()}")
        bar.say("2/5  identification: motors, joints, floor and payload from the log, without networks on top")
        play = partial(play_in_both, GAP_TASK, robot, episodes=(GAP_EPISODES, GAP_PROMISES), seed=seed)
        played = out / "before.h5", out / "after.h5"
        with Beside(partial(play, GAP_POLICY, "hybrid", played[0]), cores) as before:
            with stage(0.08, 0.5, "identifying"):
                figures = read_adaptation(run)
                if figures is None:
                    going_on = (run / "config.yaml").exists()
                    figures = adapt(GAP_ROBOT, log, run, settings=GAP_FIT, seed=seed, resume=going_on).figures
            for line in sentences(figures):
                bar.say(f"     {line}")
            said = f"3/5  training: PPO in the identified model, from {GAP_POLICY}; the robot does not run"
            page = partial(write_identification, run, figures)
            with stage(0.5, 0.84, "training"), Beside(page, cores) as written:

                def fit(**going: Any) -> "TrainState":
                    opened = open_dynamics(task, str(run))
                    if isinstance(opened.dynamics, HybridDynamics):
                        opened.dynamics.threads = cores
                    return train_policy(task, opened, folder, settings, initial=initial, **going)

                _train(bar, said, folder, fit, "policy")
                written.result()
            bar.say(f"4/5  both policies: {GAP_EPISODES} episodes each in the robot, {GAP_PROMISES} in their models")
            with stage(0.84, 1.0, "playing"):

                def measure() -> PolicyGap:
                    after = play(str(folder), str(run), played[1])
                    return measure_gap(GAP_TASK, robot, before.result(), after, figures)

                result, report = _measure(
                    bar, out, measure, "5/5  report", lambda gap: write_gap(out, figures, run, gap, played)
                )
    print_tables("", [result.table()])
    print(f"report: {report}")
    if grade_of(result.verdict) != "fails":
        print(f"next: neurodyn policy play {shell_word(folder)} --on {shell_word(robot)}")
    print_verdict(result.verdict)


ROBOT = "cartpole"


def show_cartpole(out: Path, minutes: float, transitions: int, rollouts: int, seed: int) -> None:
    """Generate data, train a neural cartpole, evaluate it against Newton's solver, and write a report.

    Raises:
        InputError: A number is out of range.
    """
    from neurodyn.cli.terminal.results import print_evaluation
    from neurodyn.evaluate import evaluate
    from neurodyn.learn import load_settings, train, with_budget
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
            fit = partial(train, ROBOT, data, run, minutes=minutes, seed=seed)
            _train(bar, f"2/4  training: {minutes:g} minutes", run, fit)
        bar.say(
            f"3/4  evaluation: {rollouts} roll-outs of 1000 steps beside the simulator, from states never trained on"
        )
        with stage(0.6, 1.0):
            measure, said = partial(evaluate, run, rollouts=rollouts), "4/4  report: pictures are being ray-traced"
            result, report = _measure(bar, out, measure, said, partial(write_report, run))
    print_evaluation(result)
    print(f"report: {report}")
    print(f'next: drop it into a Newton loop with neurodyn.solvers.SolverNeural(model, "{run}")')


def _data(out: Path, transitions: int, seed: int, bar: "ProgressBar") -> Path:
    from neurodyn.robots import load
    from neurodyn.sim import generate

    data, robot = out / "cartpole.h5", load(ROBOT)
    if data.exists():
        bar.say(f"1/4  data: {data} already exists")
        return data
    summary = generate(robot, transitions=transitions, out=data, seed=seed, resume=True)
    bar.say(
        f"1/4  data: {summary.transitions:,} transitions from Newton's {robot.simulator.solver} solver in "
        f"{summary.seconds:.0f} s ({summary.rate:,.0f} per CPU-second), {data}"
    )
    return data


def _train(bar: "ProgressBar", said: str, run: Path, train: "Callable[..., TrainState]", what: str = "model") -> None:
    """Train, or resume an interrupted training; a finished one is kept."""
    from neurodyn.learn import read_metrics

    metrics = read_metrics(run)
    if metrics and metrics[-1].get("finished"):
        bar.say(f"{said.partition(':')[0]}: {run} is trained already")
        return
    bar.say(said)
    end = train(resume=(run / "config.yaml").exists(), progress=present_work())
    steps, made = ("steps", run / "model") if what == "model" else ("updates", run)
    bar.say(f"     {end.step:,} {steps}, {end.cpu_seconds:.0f} CPU-s, {what} in {made}")


def _measure(
    bar: "ProgressBar", out: Path, measure: Callable[[], R], said: str, write: Callable[[R], Path]
) -> tuple[R, Path]:
    """Evaluate, store the figures, and write the report; return the result and the report's path."""
    with stage(0.0, 0.75):
        result = measure()
    write_json(out / "evaluation.json", result.plain())
    bar.say(said)
    with stage(0.75, 1.0):
        return result, write(result)


LOG_ROBOT = "anymal-c"
LOG = "pretrained:anymal-walks"
LOG_SETTINGS = Path(__file__).with_name("walk.yaml")
LOG_HORIZON, LOG_ROLLOUTS = 100, 256


def show_world_model(out: Path, seed: int) -> None:
    """Train a world model on the shipped log, forecast its test episodes, and write a report."""
    from neurodyn.cli.terminal.results import print_evaluation
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
        said = "2/4  training: three networks that remember; where they disagree the model is uncertain"
        with stage(0.0, 0.7, "training"):
            fit = partial(train, LOG_ROBOT, log, run, kind="world-model", size=str(LOG_SETTINGS), seed=seed)
            _train(bar, said, run, fit)
        bar.say("3/4  evaluation: forecasts of walks that it was not trained on, from the controls alone")
        with stage(0.7, 1.0):
            measure = partial(evaluate, run, horizon=LOG_HORIZON, rollouts=LOG_ROLLOUTS)
            result, report = _measure(bar, out, measure, "4/4  report", partial(write_report, run))
    print_evaluation(result)
    print(f"report: {report}")
    if grade_of(result.verdict or "ok") != "fails":
        print(f"next: neurodyn policy train anymal-velocity --dynamics {shell_word(run)} --out policies/walk")
    print_verdict(result.verdict)


TASK = "cartpole-swingup"
MODEL = "pretrained:cartpole"
POLICY_SETTINGS = Path(__file__).with_name("swingup.yaml")


def show_policy(out: Path, seed: int) -> None:
    """Train a policy in the shipped neural cartpole, and play it there and, if installed, in Newton.

    Raises:
        InputError: The extra `policy` is not installed.
    """
    from neurodyn.policy.learners.algorithms import require_learner

    require_learner()
    from neurodyn.cli.terminal.results import print_policy
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.policy.episodes.evaluation import evaluate as evaluate_policy
    from neurodyn.policy.episodes.report import write_policy_report
    from neurodyn.policy.learners.training import train as train_policy
    from neurodyn.policy.settings import load_settings, with_flags
    from neurodyn.tasks import load

    task, folder = load(TASK), out / "policy"
    simulated = find_spec("newton") is not None
    with ProgressBar("demo") as bar:
        said = f"1/3  training: PPO for {TASK} in {MODEL}, a network; no simulator runs"
        with stage(0.0, 0.8, "training"):
            settings = with_flags(load_settings(TASK, POLICY_SETTINGS), seed=seed)

            def fit(**going: Any) -> "TrainState":
                return train_policy(task, open_dynamics(task, MODEL), folder, settings, **going)

            _train(bar, said, folder, fit, "policy")
        beside = "in Newton, where it has never been, and in the network" if simulated else "in the network"
        bar.say(f"2/3  evaluation: 256 episodes {beside}")
        where = ("analytic", MODEL) if simulated else (MODEL,)
        with stage(0.8, 1.0):
            measure = partial(evaluate_policy, (str(folder),), where, episodes=256)
            result, report = _measure(bar, out, measure, "3/3  report", partial(write_policy_report, folder))
    print_policy(result)
    print(f"report: {report}")
    if grade_of(result.verdict) != "fails":
        print(f"next: neurodyn export {shell_word(folder)}")
    print_verdict(result.verdict)


_PACKAGE = Path(__file__).resolve().parent.parent
SOURCES = (_PACKAGE / "examples", _PACKAGE.parent.parent / "examples")
"""Locations of the examples: in an installed package, and in a clone."""


_INCOMPLETE = "the installation is incomplete, install neurodyn once more"


def example(name: str) -> Path:
    """Return an example file; raise an InputError if the installation lacks it."""
    path = next((folder / name for folder in SOURCES if (folder / name).is_file()), None)
    if path is None:
        raise InputError(f"{SOURCES[0] / name}: no such file; {_INCOMPLETE}")
    return path


def examples(*, out: Path = Path("examples")) -> None:
    """Write the documentation's examples: robots, column maps, short logs, tasks, scripts.

    Args:
        out: Folder to write.

    Example:
        neurodyn examples --out examples
    """
    source = next((folder for folder in SOURCES if folder.is_dir()), None)
    if source is None:
        raise InputError(f"{SOURCES[0]}: no such folder; {_INCOMPLETE}")
    with exclusive(out):
        if out.exists():
            raise InputError(f"{out}: already exists; give another --out")
        with ProgressBar("writing examples"), atomic_folder(out) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    count = sum(path.is_file() for path in out.rglob("*"))
    print(f"{count} files: {out}")
    print(f"next: python {out / 'own_logs/make_logs.py'} --out logs")

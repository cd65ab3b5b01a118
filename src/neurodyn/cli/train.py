# SPDX-License-Identifier: Apache-2.0
"""`neurodyn train`, `finetune`, `sweep`, `identify`, `discover`, `adapt`: models from data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from neurodyn.cli.terminal.console import (
    ProgressBar,
    print_verdict,
    report_training,
    shell_word,
    terminal,
    write_figures,
)
from neurodyn.cli.terminal.flags import (
    ClusterAddress,
    GpuIds,
    JsonFile,
    WorkerMemory,
    Workers,
    arg,
    cluster_of,
    command,
    own_device,
)
from neurodyn.core.artifacts import require_writable, run_folder, write_json
from neurodyn.core.config import read_record, to_dict, with_changes
from neurodyn.core.errors import InputError
from neurodyn.core.verdict import require_usable
from neurodyn.identify.requests import AdaptRequest, DiscoverRequest, IdentifyRequest, NextMotionRequest
from neurodyn.learn.requests import ANY, FinetuneRequest, TrainRequest

_MINUTES = 10.0
"""Default time budget of `train --kind any` [min]."""


@command(TrainRequest)
def train(request: TrainRequest, *, gpu_ids: GpuIds = ()) -> None:
    """Train a model on a dataset and write it to a run directory.

    Example:
        neurodyn train cartpole --data cartpole.h5 --out runs/cartpole --minutes 10
        neurodyn train anymal-c --kind world-model --data walks.h5 --out runs/walks
        neurodyn train cartpole --kind any --minutes 5 --data log.h5 --out runs/any
    """
    from neurodyn.learn.training import train as train_model

    if request.kind == ANY:
        _adapt(_of_any_kind(request), None)
        return
    device = own_device(request.device, gpu_ids)
    with ProgressBar(f"training {request.robot} ({request.kind})") as bar:
        end = train_model(with_changes(request, device=device, progress=bar))
    report_training(Path(request.out), end)


def _of_any_kind(request: TrainRequest) -> AdaptRequest:
    """Return the adaptation that picks the kind of a model in a time budget; an InputError for other flags."""
    from neurodyn.identify.settings import AdaptationSettings

    plain = TrainRequest(request.robot, request.data, request.out)
    valid = ("kind", "minutes", "seed", "threads", "resume", "logger", "progress")
    for name in set(TrainRequest.__struct_fields__) - {"robot", "data", "out", *valid}:
        if getattr(request, name) != getattr(plain, name):
            raise InputError(f"--{name.replace('_', '-')} is for one kind; valid with --kind any: --minutes, --seed")
    data = cast(Sequence[str], request.data)  # of the command line
    return AdaptRequest(
        request.robot, data, Path(request.out), kind=ANY, minutes=request.minutes or _MINUTES,
        settings=AdaptationSettings(refits=0, proposals=0), seed=request.seed, threads=request.threads,
        resume=request.resume, logger=request.logger,
    )  # fmt: skip


@command(FinetuneRequest)
def finetune(request: FinetuneRequest, *, gpu_ids: GpuIds = ()) -> None:
    """Fine-tune a trained model on other data of the same robot, into a new run directory.

    Example:
        neurodyn finetune runs/cartpole --data my-log.h5 --out runs/mine
    """
    from neurodyn.learn.training import finetune as finetune_model

    device = own_device(request.device, gpu_ids)
    with ProgressBar(f"fine-tuning {request.run}") as bar:
        end = finetune_model(with_changes(request, device=device, progress=bar))
    report_training(Path(request.out), end)


def sweep(
    spec: Path,
    /,
    *,
    out: Path,
    cluster: str = "local",
    workers: int | None = None,
    worker_memory: float | None = None,
    json: Path | None = None,
    resume: bool = False,
) -> None:
    """Train with many settings and seeds (Optuna, Ray), and report which are best on validation data.

    Every trial is its own run folder, usable with evaluate and compare. Needs the extra `cluster`.

    Args:
        spec: File with the training (train, finetune, identify, discover or policy train, and its arguments), the
            settings to vary (space), the search (grid, random or optuna), and the seeds.
        out: Folder to write: trials, sweep.json.
        cluster: "local" for this machine's cores, "auto" for the Ray cluster it belongs to, or HOST:PORT of its head.
        workers: Maximum parallel trials; by default as many as the cores allow.
        worker_memory: Memory limit of a trial [GB]; by default only the machine's.
        json: File for the result as JSON, in addition to OUT/sweep.json.
        resume: Continue an interrupted sweep.

    Example:
        neurodyn sweep sweep.yaml --out sweeps/width
        neurodyn sweep sweep.yaml --out sweeps/width --cluster auto --resume
    """
    from neurodyn.cluster.sweeps import RESULT
    from neurodyn.cluster.sweeps import sweep as run

    require_writable(json, text=True)
    with ProgressBar(f"sweep {spec.name}"):
        result = run(spec, out, cluster=cluster, workers=workers, memory=worker_memory, resume=resume)
    for name, trial in result.trials.items():
        figure = trial.failed if trial.figure is None else f"{trial.figure.value:.4g}"
        print(f"{name}: {_settings_text(trial.values)}: {figure}")
    if json is not None:
        write_json(json, result.plain())
    best = result.best
    print(f"figures: {out / RESULT}")
    print(f"best by {result.figure}: {best.mean:.4g} with {_settings_text(best.values)}; run: {best.run}")


def _settings_text(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


@command(IdentifyRequest)
def identify(
    request: IdentifyRequest,
    *,
    json: JsonFile = None,
    cluster: ClusterAddress = None,
    workers: Workers = None,
    worker_memory: WorkerMemory = None,
) -> None:
    """Identify quantities of a robot's dynamics, and train the networks of a blueprint, from a dataset.

    Example:
        neurodyn identify dfki-c1 --data log.npz --out runs/c1
        neurodyn identify arm --data log.h5 --parameters '*.damping' --out runs/arm
    """
    from neurodyn.cli.terminal.results import print_identification, print_next
    from neurodyn.identify.run import identify as identify_robot
    from neurodyn.report.identification import write_identification

    out, drive = Path(request.out), request.drive
    require_writable(json, text=True)
    if drive in ("network", "gru"):
        if request.logger is not None:
            raise InputError(f"--drive {drive} has no metrics that a logger could follow; leave out --logger")
        if cluster is not None:
            raise InputError(f"--drive {drive} trains one network; valid with --cluster: --drive torque or pd, or none")
        _drive_network(request, out, json)
        return
    title = f"identifying {request.robot}"
    with cluster_of(cluster, workers, worker_memory) as executor, ProgressBar(title) as bar:
        identification = identify_robot(with_changes(request, progress=bar, executor=executor))
    result = identification.figures
    write_identification(out, result, identification.runs)
    print_identification(result)
    write_figures(json, result.plain())
    print(f"model: {out / 'model'}; report: {out / 'report.html'}")
    print_next(result, out)
    if result.verdict:
        print_verdict(result.verdict)


def _drive_network(request: IdentifyRequest, out: Path, json: Path | None) -> None:
    """Train an actuator network and print its errors and those of the best parametric drive."""
    from neurodyn.cli.terminal.results import print_drive_network
    from neurodyn.identify.drives import DriveNetworkSettings, identify_drive_network
    from neurodyn.identify.run import open_logs
    from neurodyn.robots import load

    declared, recurrent = load(str(request.robot)), request.drive == "gru"
    settings = DriveNetworkSettings(network="gru" if recurrent else "mlp", seed=request.seed or 0)
    with ProgressBar(f"identifying the drives of {declared.name}"):
        result = identify_drive_network(declared, open_logs(declared, request.data), out, settings)
    print_drive_network(result)
    write_figures(json, result.plain())
    print(f"network: {out / 'actuator_network.json'}" + ("" if recurrent else f"; model: {out / 'model'}"))


@command(DiscoverRequest)
def discover(request: DiscoverRequest, *, json: JsonFile = None) -> None:
    """Find which quantities of a robot's dynamics need a network, and which inputs each needs.

    Writes a hybrid model with the discovered networks, blueprint.yaml and discovery.json to the run directory.

    Example:
        neurodyn discover dfki-c1 --data log.npz --base runs/c1 --out runs/networks
    """
    from neurodyn.cli.terminal.tables import print_table
    from neurodyn.identify.discovery.run import discover_robot

    require_writable(json, text=True)
    with ProgressBar(f"discovering {request.robot}"):
        result = discover_robot(request)
    pairs = [(pair["quantity"], pair["input"]) for pair in result["pairs"]]
    print_table(terminal(), ("acts on", "input"), pairs, f"{result['robot']}: what the data ask for")
    print(f"held-out error {result['held_out_error']:.4g} (without networks {result['bare_error']:.4g})")
    print(f"model: {request.out}")
    write_figures(json, result)


@command(AdaptRequest)
def adapt(request: AdaptRequest, *, json: JsonFile = None) -> None:
    """Adapt a robot's model to its logs: identify motors, mechanism and floor, then train networks for the rest.

    For a run of `neurodyn train --conditions`, a network for a family of robots, it finds the member that fits the
    logs; the weights stay, and `neurodyn finetune` can train them further.

    Each step is kept only if it is better on whole held-out episodes. The report in the run directory says what differs
    from the declaration (the robot's file), what the logs do not determine (it stays as declared), what remains
    unexplained, and which motion to log next.

    Example:
        neurodyn adapt ant --data logs/*.h5 --out runs/my-ant
        neurodyn adapt examples/own_logs --data log.h5 --mechanism --out runs/pole
        neurodyn adapt runs/family --data logs/mine.h5 --out runs/mine
    """
    _adapt(request, json)


def _adapt(request: AdaptRequest, json: Path | None) -> None:
    """Adapt a robot and print what was found."""
    from neurodyn.cli.terminal.results import print_adaptation, print_conditions, print_next
    from neurodyn.identify.conditions import IdentifiedConditions, adapt_conditions, is_run
    from neurodyn.identify.run import adapt as adapt_robot
    from neurodyn.report.adaptation import write_conditions
    from neurodyn.report.identification import write_identification

    require_writable(json, text=True)
    out = Path(request.out)
    with ProgressBar(f"adapting {request.robot}"):
        result = adapt_conditions(request) if is_run(request.robot) else adapt_robot(request)
    if isinstance(result, IdentifiedConditions):
        write_conditions(out, result.figures)
        print_conditions(result.figures)
    else:
        write_identification(out, result.figures, result.runs)
        print_adaptation(result.figures)
    write_figures(json, result.figures.plain())
    print(f"model: {out / 'model'}; report: {out / 'report.html'}")
    if not isinstance(result, IdentifiedConditions):
        print_next(result.figures, out)
    require_usable(str(result.figures.verdict), out)
    print_verdict(result.figures.verdict)


MotionRobot = Annotated[str | None, arg(
    help="Plays the motion: your robot as FILE.py:CLASS (`neurodyn.control.RobotInterface`), or `model` for the "
    "identified model.")
]  # fmt: skip
MotionLog = Annotated[
    Path | None, arg(help="Folder for the log; by default a file in this folder named after the time.")
]


@command(NextMotionRequest)
def next_motion(
    request: NextMotionRequest, *, robot: MotionRobot = None, out: MotionLog = None, json: JsonFile = None
) -> None:
    """Propose another motion to log after `neurodyn adapt`, or play the proposed one.

    The motion starts and ends at rest, within limits, clear of contacts in the identified model and its posterior.
    Without --robot the run's next-motion.csv is replaced; with it, it is played once, and the log is written to
    OUT/robot.csv with a column map for `neurodyn import`.

    Example:
        neurodyn next-motion runs/arm --seconds 30
        neurodyn next-motion runs/arm --robot my_arm.py:Arm --out logs/second
    """
    from neurodyn.control.robot.motion import play_next_motion
    from neurodyn.identify.run import next_motion as propose

    run = run_folder(request.run)
    require_writable(json, text=True)
    if robot is not None:
        log = play_next_motion(run, robot, out)
        reader, name = log.with_suffix(".yaml"), read_record(run / "config.yaml", "robot")["robot"]
        to = f"--robot {shell_word(name)} --out {shell_word(log.stem)}.h5"
        print(f"{log} written; next: neurodyn import {shell_word(log)} --reader {shell_word(reader)} {to}")
        return
    with ProgressBar("looking for a motion"):
        motion = propose(request)
    write_figures(json, to_dict(motion))
    if motion.why_not:
        raise InputError(
            f"{run}: {motion.why_not}; valid: other limits (--limits FILE), or a longer motion (--seconds)"
        )
    print(f"{run / motion.file}: {motion.seconds:g} s, from rest to rest in {motion.pose}")
    for text in (*motion.tells, *motion.beyond):
        print(f"  {text}")
    for kind, source in motion.sources.items():
        print(f"{kind}: {source}")
    print(f"next: neurodyn next-motion {shell_word(run)} --robot FILE.py:CLASS, or play it with your own tools")

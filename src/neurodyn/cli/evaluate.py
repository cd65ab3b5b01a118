# SPDX-License-Identifier: Apache-2.0
"""`neurodyn evaluate`, `compare`, `view`: models against simulators, logs and each other; `export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import UseAppendAction, arg

from neurodyn.cli.terminal.console import ProgressBar, print_verdict, write_figures
from neurodyn.cli.terminal.flags import (
    Device,
    FormatFlag,
    JsonFile,
    ResultLogger,
    Threads,
    command,
    keep_recording,
    recording_file,
    registry_name,
)
from neurodyn.core.artifacts import (
    PRETRAINED,
    PRETRAINED_POLICY,
    export_folder,
    is_policy,
    require_writable,
    resolve_run,
)
from neurodyn.core.errors import InputError, choices
from neurodyn.core.glossary import explain
from neurodyn.evaluate.requests import EvaluationRequest, RecordingRequest
from neurodyn.interop.formats import CODE, POLICY_FORMATS, SIMULATOR_FORMATS, WRITERS

if TYPE_CHECKING:
    from neurodyn.interop.replays import Replay


@command(EvaluationRequest)
def evaluate(
    request: EvaluationRequest,
    *,
    json: JsonFile = None,
    report: Annotated[
        Path | None,
        arg(
            help="File for the report page; by default report.html in the run directory, or report-FLAGS.html if flags "
            "change the evaluation."
        ),
    ] = None,
    logger: ResultLogger = None,
) -> None:
    """Evaluate a model against its simulator, or with --data against recorded trajectories.

    Example:
        neurodyn evaluate runs/cartpole
        neurodyn evaluate pretrained:anymal-c --ground steps
    """
    from neurodyn.evaluate import evaluate as measure
    from neurodyn.learn.metrics import require_followed, show_results

    run = str(request.run)
    require_writable(json, report, text=True)
    require_followed(logger, run)
    if request.states:
        _evaluate_states(request, json)
        return
    with ProgressBar(f"evaluating {run}"):
        result = measure(request)
    from neurodyn.cli.terminal.results import evaluation_tables, print_evaluation  # after the evaluation
    from neurodyn.report import report_path, write_report

    print_evaluation(result)
    write_figures(json, result.plain())
    if report is not None or not run.startswith(PRETRAINED):  # the package's own files are not written to
        folder = resolve_run(run)
        with ProgressBar("report"):
            path = report or report_path(folder, _flag_names(request))
            written = write_report(folder, result, path=path, data=request.data)
        print(f"report: {written}")
    tables = [table.cells for table in evaluation_tables(result)]
    show_results(run, logger, tables=tables, summary={"verdict of evaluate": result.verdict})
    print_verdict(result.verdict)


def _evaluate_states(request: EvaluationRequest, json: Path | None) -> None:
    """Print errors of estimated states of a base."""
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.evaluate import estimated_states
    from neurodyn.report.numbers import digits, quantity
    from neurodyn.report.page import Table

    with ProgressBar("estimating the states of the base"):
        result = estimated_states(request)
    head = ("", "velocity", "height", "tilt", "angular velocity", "velocity / own sd", "height / own sd")
    rows = [
        (one.way, quantity(one.linear, "m/s"), quantity(one.height, "m"), quantity(one.tilt, "rad"),
         quantity(one.angular, "rad/s"), digits(one.linear_share), digits(one.height_share))
        for one in result.ways
    ]  # fmt: skip
    title = f"{result.run} on {result.data}: {result.frames:,} frames of {result.episodes} episodes"
    print_tables(title, [Table("Mean errors of the base's states beside motion capture", head, rows)])
    write_figures(json, result.plain())


def _flag_names(request: EvaluationRequest) -> tuple[str, ...]:
    """Return the flags that change the evaluation as parts of a file name: paths by their stem."""
    usual, names = EvaluationRequest(request.run, device=request.device, threads=request.threads), []
    for name in request.__struct_fields__:
        if (value := getattr(request, name)) != getattr(usual, name):
            values = value if isinstance(value, tuple) else (value,)
            names.append("-".join([name, *(Path(str(one)).stem for one in values if one is not True)]))
    return tuple(names)


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
    dynamics: UseAppendAction[tuple[str, ...]] = (),
    episodes: int | None = None,
    randomise: UseAppendAction[tuple[str, ...]] = (),
    starts: str | None = None,
    task: str | None = None,
    device: Device = "cpu",
    threads: Threads = None,
    json: Path | None = None,
    report: Path = Path("compare.html"),
) -> None:
    """Evaluate several runs in the same way and compare them; seeds of the same settings share a row.

    Runs that are not comparable (other robots, horizons, tasks) are shown apart. If a run cannot be evaluated, it is
    named, the others are compared, and the exit code is 2. Results are cached in RUN/compared.json as long as the model
    does not change.

    Args:
        runs: Run directories and folders of policies, pretrained:NAME, or pretrained-policy:NAME.
        horizon: Frames of a roll-out; by default as in `neurodyn evaluate`.
        rollouts: Number of roll-outs; by default as in `neurodyn evaluate`.
        seed: Seed of initial states and torques, and of a policy's starts and commands.
        data: HDF5 store or npz log; by default each model's own log, if it was trained on one.
        split: Episodes of the data to use.
        ground: Ground of the robot by name, or a YAML file with a scene.
        dynamics: Dynamics for policies: analytic, hybrid, a run directory, or pretrained:NAME; repeat the flag for
            several. By default the simulator.
        episodes: Number of episodes of each policy; by default 256.
        randomise: Quantities randomised per episode, as in `neurodyn policy train`, the same for all policies; repeat
            the flag for several.
        starts: HDF5 store; in models of logs, policy episodes start after its windows.
        task: FILE.py:CLASS, for policies of your own task; its code runs only if named here.
        device: Device: cpu, cuda, cuda:1 ...
        threads: Cores to use; by default all. Results do not depend on it.
        json: File for the result as JSON.
        report: File for the page.

    Example:
        neurodyn compare runs/seed-0 runs/seed-1 pretrained:cartpole
    """
    from neurodyn.cli.terminal.results import print_tables
    from neurodyn.evaluate.run_comparison import RunFigures, comparison_of
    from neurodyn.evaluate.run_figures import model_figures
    from neurodyn.policy.learners.algorithms import require_learner
    from neurodyn.report import comparison_tables, write_comparison
    from neurodyn.report.run_comparison import LEAD, broken_lines

    require_writable(json, report, text=True)
    if not any(is_policy(run) for run in runs):
        given = {"dynamics": dynamics or None, "episodes": episodes, "starts": starts, "task": task,
                 "randomise": randomise or None}  # fmt: skip
        for name, value in given.items():
            if value is not None:
                raise InputError(f"--{name} is for policies, of which none is given; valid: without it")
    if episodes is not None and episodes < 1:
        raise InputError(f"--episodes is {episodes}; valid: at least 1")

    def measure(run: str) -> RunFigures:
        if is_policy(run):
            require_learner()
            from neurodyn.policy.episodes.evaluation import EPISODES, policy_figures

            asked: dict[str, Any] = {"randomise": randomise} if randomise else {}
            return policy_figures(
                run, dynamics=dynamics, episodes=episodes or EPISODES, seed=seed, starts=starts, ground=ground,
                task=task, device=device, **asked,
            )  # fmt: skip
        return model_figures(
            run, horizon=horizon, rollouts=rollouts, seed=seed, data=data, split=split, ground=ground, device=device,
            threads=threads,
        )  # fmt: skip

    with ProgressBar("comparing"):
        result = comparison_of(runs, measure)
    lines = broken_lines(result)
    print_tables(LEAD, comparison_tables(result), *lines)
    write_figures(json, result.plain())
    print(f"report: {write_comparison(report, result)}")
    if result.broken:
        names = ", ".join(entry.run for entry in result.broken)
        raise InputError(
            f"{len(result.broken)} of {len(runs)} runs could not be compared: {names}; the reasons are above"
        )


@command(RecordingRequest)
def view(
    request: RecordingRequest,
    *,
    out: Annotated[
        Path | None, arg(help="File to write; by default RUN/view.html, or view-NAME.html here for a pretrained model.")
    ] = None,
    format: FormatFlag = None,  # noqa: A002
    live: Annotated[
        bool,
        arg(
            help="Run in a browser until Ctrl-C, or for --seconds: sliders command the robot, dragging pushes it ("
            "needs the extra `live`). RUN may then also be a robot."
        ),
    ] = False,
    dynamics: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(
            help="With --live, dynamics to run side by side, at most two: analytic, hybrid, a run directory or "
            "pretrained:NAME; repeat the flag for several. By default the model and its simulator, or a robot's hybrid "
            "model."
        ),
    ] = (),
    port: Annotated[int, arg(help="With --live, the local port that the browser opens; 0 for a free one.")] = 8080,
    logger: ResultLogger = None,
) -> None:
    """Record a model and its simulator or log side by side from the same start, or run them in a browser.

    Example:
        neurodyn view runs/cartpole --out cartpole.gif
        neurodyn view ant --live --dynamics hybrid --dynamics analytic
    """
    from neurodyn.report.recording import record_run

    if live:
        given = {
            "--out": out,
            "--format": format,
            "--logger": logger,
            "--data": request.data,
            "--driven": request.driven,
        }
        if others := [flag for flag, value in given.items() if value]:
            raise InputError(f"--live writes no file and draws no torques; leave out {', '.join(others)}")
        _view_live(request, dynamics, port)
        return
    if dynamics or port != 8080:
        raise InputError("--dynamics and --port are for --live; valid without it: the model of the run")
    run = str(request.run)
    file = recording_file(run, "view", out, format, resolve_run)
    recording = keep_recording(run, logger, file, lambda: record_run(request))
    print(f"{recording.seconds:.3g} s of {recording.robot.name}, {recording.title}, {recording.worlds[0]}: {file.path}")


def _view_live(request: RecordingRequest, dynamics: tuple[str, ...], port: int) -> None:
    from contextlib import suppress

    from neurodyn.report.live import LiveView, open_session, require_viser

    require_viser()
    if request.seconds is not None and not request.seconds > 0:
        raise InputError(f"--seconds is {request.seconds:g}; valid: above 0")
    session = open_session(request, dynamics)
    view = LiveView(session, port=port)
    until = "Ctrl-C ends it" if request.seconds is None else f"for {request.seconds:g} s"
    print(f"{session.robot.name}: {' and '.join(session.dynamics)} at {view.address}; {until}", flush=True)
    frames = 0
    try:
        with suppress(KeyboardInterrupt):
            frames = view.run(request.seconds)
    finally:
        view.stop()
    if request.seconds is not None:
        print(f"{frames} frames in {request.seconds:g} s")


def export(
    run: str,
    /,
    *,
    out: Path | None = None,
    to: Annotated[str | None, registry_name(CODE, WRITERS, SIMULATOR_FORMATS, POLICY_FORMATS)] = None,
    data: Path | None = None,
    force: bool = False,
    without_delay: bool = False,
    json: JsonFile = None,
) -> None:
    """Export a model or policy as ONNX or C, an identified robot for a simulator, or data for other tools.

    Args:
        run: Run directory, pretrained:NAME, a policy folder, or pretrained-policy:NAME; or a dataset (.h5) of measured,
            simulated or predicted trajectories.
        out: File to write; by default model.onnx in the run directory, policy.onnx in the policy folder, or NAME.onnx
            here if pretrained. For a policy to rsl_rl, a folder, by default POLICY/rsl-rl. For a dataset, a file (mcap)
            or folder (lerobot), by default beside it. For an identified robot, a folder, by default RUN/newton,
            RUN/mjcf and so on.
        to: For a run, the simulator: newton, isaaclab, mjcf, urdf or mjlab; without it, ONNX. For a dataset, the
            format: lerobot (a LeRobot data set, v3.0) or mcap (an MCAP file of ROS 2 messages). For a policy: rsl-rl (a
            checkpoint for Isaac Lab's play.py --checkpoint). For a policy or model: c (a pair of C99 files) or
            cpp-header, or c-base-filter, the filter of a floating base (docs/own-sensors.md), into a folder.
        data: Log whose held-out episodes are replayed in the simulator before an identified robot is written, by
            default that of the run.
        force: Write the file even if it predicts that log worse than the robot's original file.
        without_delay: For mjcf: filters of commands with the same mean delay, for MuJoCo before 3.5.
        json: File for the errors of the replay.

    Example:
        neurodyn export runs/cartpole
        neurodyn export walks.h5 --to lerobot --out walks
    """
    is_data = Path(run).suffix.lower() in {".h5", ".hdf5"}
    _require_replay(to if not is_data else None, data=data, force=force, without_delay=without_delay, json=json)
    if to is not None and to in CODE and not is_data:
        _export_code(run, to, out, data, force, json)
    elif to is not None and to in SIMULATOR_FORMATS and not is_data:
        _export_identified(run, to, out, {"data": data, "force": force, "without_delay": without_delay}, json)
    elif to is not None and to in POLICY_FORMATS and not is_data:
        _export_policy(run, to, out)
    elif to is not None or is_data:
        _export_data(Path(run), to, out)
    else:
        _export_onnx(run, out)


def _require_replay(to: str | None, **flags: Any) -> None:
    """Refuse flags of a replay for an export that has none, and files that cannot be read or written."""
    given = next((name for name, value in flags.items() if value), None)
    if given is not None and (to is None or (to not in SIMULATOR_FORMATS and to not in CODE)):
        raise InputError(
            f"--{given.replace('_', '-')} is for exports that replay a log; valid with it: "
            f"--to {choices((*SIMULATOR_FORMATS, *CODE))}"
        )
    if flags["without_delay"] and to != "mjcf":
        raise InputError(f"--without-delay is for MJCF, not for {to}; valid with it: --to mjcf")
    if flags["data"] is not None and not flags["data"].exists():
        raise InputError(f"--data: {flags['data']} does not exist; valid: a log of the robot")
    require_writable(flags["json"], text=True)


def _export_onnx(run: str, out: Path | None) -> None:
    what = "policy" if run.startswith(PRETRAINED_POLICY) or (Path(run) / "policy.safetensors").is_file() else "model"
    if out is None:
        ships = run.startswith((PRETRAINED, PRETRAINED_POLICY))
        out = Path(f"{run.partition(':')[2]}.onnx") if ships else Path(run) / f"{what}.onnx"
    if what == "policy":
        from neurodyn.interop.onnx import export_policy

        require_writable(out)
        with ProgressBar(f"exporting {run}"):
            difference = export_policy(run, out)
    else:
        from neurodyn.dynamics.artifact import load
        from neurodyn.interop.onnx import ONNX_FRAMES, export_model

        with ProgressBar(f"exporting {run}"):
            model = load(run)
            if model.kind not in ONNX_FRAMES:
                raise InputError(
                    f"{run}: holds a {model.kind} model, for which there is no ONNX; valid: --to "
                    f"{choices((*SIMULATOR_FORMATS, *CODE))}"
                )
            require_writable(out)
            difference = export_model(model, out)
        if model.caveat:
            print(f"{run}: {explain(model.caveat)}")
    print(f"differs from the {what} by at most {difference:.1e} in ONNX Runtime: {out}")


def _export_code(run: str, to: str, out: Path | None, data: Path | None, force: bool, json: Path | None) -> None:
    """Write a model or a policy as code without dependencies, that of an identified robot after a replay of its log."""
    from neurodyn.interop.formats import WorseError, replayed_code

    try:
        with ProgressBar(f"exporting {run}"):
            folder, replay = replayed_code(run, to, out, data=data, force=force)
    except WorseError as error:
        _print_replay(error.replay, json)
        raise
    if replay is not None:
        _print_replay(replay, json)
    print(f"{', '.join(sorted(path.name for path in folder.iterdir()))}: {folder}; how to compile: first line of main")


def _print_replay(replay: "Replay", json: Path | None) -> None:
    from neurodyn.cli.terminal.exports import print_replay

    print_replay(replay)
    write_figures(json, replay.plain())


def _export_policy(policy: str, to: str, out: Path | None) -> None:
    with ProgressBar(f"exporting {policy}"):
        written = POLICY_FORMATS[to](policy, out or export_folder(policy, to))
    print(f"checkpoint: {written}; its runner's settings: params/agent.yaml beside it")


def _export_data(data: Path, to: str | None, out: Path | None) -> None:
    """Write a dataset in the format of other tools."""
    from neurodyn.data.store import Store

    if to is None or to not in WRITERS:
        raise InputError(f"{data}: is a dataset; say in which format with --to; valid: {choices(WRITERS)}")
    store = Store.open(data)
    store.require_base(str(data))
    path = out or data.with_suffix(f".{to}")
    with ProgressBar(f"writing {path}"):
        WRITERS[to](store, path)
    print(f"{store.transitions:,} frames in {len(store.table):,} episodes: {path}")


def _export_identified(run: str, to: str, out: Path | None, options: dict[str, Any], json: Path | None) -> None:
    """Write an identified robot for a simulator, after a replay of its log, and report both."""
    from neurodyn.cli.terminal.exports import print_export
    from neurodyn.interop.formats import WorseError, export_identified

    try:
        with ProgressBar(f"exporting {run}"):
            exported = export_identified(run, to, out, **options)
    except WorseError as error:
        _print_replay(error.replay, json)
        raise
    print_export(exported)
    write_figures(json, exported.replay.plain())

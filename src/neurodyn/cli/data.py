# SPDX-License-Identifier: Apache-2.0
"""`neurodyn generate`, `import`, `inspect`: datasets from simulators and logs, and their contents."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from neurodyn.cli.terminal.console import ProgressBar, print_verdict, shell_word, write_figures
from neurodyn.cli.terminal.flags import ClusterAddress, WorkerMemory, Workers, cluster_of, command, registry_name
from neurodyn.core.artifacts import require_writable, write_text
from neurodyn.core.config import with_changes
from neurodyn.core.errors import InputError
from neurodyn.core.progress import stage
from neurodyn.core.verdict import combine_verdicts, require_usable
from neurodyn.interop.formats import MODEL_LAYOUTS
from neurodyn.sim.requests import GenerationRequest

if TYPE_CHECKING:
    from neurodyn.data.header import StoreHeader
    from neurodyn.robots import Robot


_SHOWN = 3


@command(GenerationRequest)
def generate(
    request: GenerationRequest,
    *,
    cluster: ClusterAddress = None,
    workers: Workers = None,
    worker_memory: WorkerMemory = None,
) -> None:
    """Generate a dataset with a robot's analytic solver: random states, grounds, and torques or controllers.

    Trajectories end when they leave plausible bounds; if too many do, nothing is written.

    Example:
        neurodyn generate cartpole --transitions 1000000 --out cartpole.h5
    """
    from neurodyn import robots
    from neurodyn.sim.generation import generate as run

    robot = robots.load(str(request.robot))
    with cluster_of(cluster, workers, worker_memory) as executor, ProgressBar(f"simulating {robot.name}"):
        begun = partial(_announce, robot)
        summary = run(with_changes(request, robot=robot, executor=executor, begun=begun))
    left = sum(departure.trajectories for departure in summary.departures)
    if left:
        worst = "; ".join(departure.words for departure in summary.departures[:_SHOWN])
        more = "" if len(summary.departures) <= _SHOWN else f"; and {len(summary.departures) - _SHOWN} more coordinates"
        print(f"{left:,} trajectories end where they leave plausible bounds: {worst}{more}")
    ends = ", ".join(f"{count} {reason}" for reason, count in summary.early_ends.items())
    print(
        f"{summary.transitions:,} transitions in {summary.episodes:,} trajectories (ended early: {ends}; empty: "
        f"{summary.empty}), {summary.seconds:.1f} s, {summary.rate:,.0f} transitions per CPU-second, "
        f"{summary.bytes / 1e6:.1f} MB: {summary.path}"
    )


def _announce(robot: "Robot", header: "StoreHeader") -> None:
    """Report the input width of a network for these data, and warn if it makes training slow."""
    from neurodyn.learn.neural.settings import contact_point_advice, network_inputs

    points = 0 if header.contact_points is None else len(header.contact_points.contact_points)
    print(f"{points} contact points, {network_inputs(robot, header.contact_points)} network inputs")
    if advice := contact_point_advice(header.contact_points):
        print(f"warning: {advice}")


def import_(
    files: tuple[Path, ...],
    /,
    out: Path,
    reader: str | None = None,
    robot: str | None = None,
    split: Literal["declared", "train", "validation", "test", "random"] = "declared",
    alignment: float | None = None,
    seed: int = 0,
    model: Annotated[str | None, registry_name(MODEL_LAYOUTS)] = None,
    statistics: Path | None = None,
) -> None:
    """Import logs as a dataset, or another project's checkpoint as a run.

    Logs are resampled to the robot's frames and checked, and the delay from control to motion is measured; it stays in
    the data. A check that fails gives exit code 2, after the data set is written. Formats are recognised by file
    contents: CSV, npz, MuJoCo's npz, LeRobot data sets, ROS 2 bags, MCAP, and HDF5 of robomimic and Isaac Lab.

    Args:
        files: Logs: files, or folders of bags and LeRobot data sets. With --model, a checkpoint.
        out: File to write (.h5). With --model, a run directory.
        reader: Robot whose declared column map fits, for example dfki-c1, or path of a column map (YAML, TOML);
            "rwm-csv" for headerless rows in the robot's declared layout, or path of a row layout. Without one, columns
            are matched to the robot's joint names; `neurodyn inspect LOG` drafts a column map.
        robot: Robot of the log, by name or path; by default the one in the column map.
        split: Training, validation or test for all runs; or as declared in the log (else random by run); or random by
            run.
        alignment: Shift of the commands [s], for clocks that differ, overriding the column map.
        seed: Seed of a random split.
        model: Layout of a checkpoint to import as a model: rwm, a Robotic World Model; or nerd, a NeRD network.
        statistics: File with the model's input normalisation statistics; by default the robot's own.

    Example:
        neurodyn import walk.mcap --robot my-arm --out walk.h5
    """
    if model is not None:
        _import_model(files, out, robot, model, statistics)
        return
    if statistics is not None:
        raise InputError("--statistics is for imported models; valid with --model")
    from neurodyn.cli.terminal.tables import print_import
    from neurodyn.data.header import Split
    from neurodyn.data.readers import import_logs, import_rows
    from neurodyn.data.readers.column_map import PAYLOAD, with_alignment, with_centers
    from neurodyn.identify.unknowns.bodies import loads_of
    from neurodyn.robots.data import declared_commands, find_map, find_reader, find_rows
    from neurodyn.sim.pivots import pivot_places
    from neurodyn.sim.simulators import articulation

    if reader is None and robot is None:
        raise InputError(
            "no robot is named for the logs; valid: --robot ROBOT, or --reader MAP, a column map that names one"
        )
    layout = None if reader is None else find_rows(reader, robot)
    if layout is not None:
        if alignment is not None:
            raise InputError("--alignment is for column maps; rows say which action produced which state")
        given = None if split in {"declared", "random"} else Split[split.upper()]
        with ProgressBar("reading logs"):
            store = import_rows(files, layout, out, split=given, seed=seed)
        print_import(store, out)
        return
    if reader is None and not files:
        raise InputError("no log file given; expected at least one path")
    with ProgressBar("reading logs"):
        columns, own = find_map(files[0], robot or "") if reader is None else find_reader(reader, robot)
        if alignment is not None:
            columns = with_alignment(columns, alignment)
        columns = with_centers(columns, lambda: articulation(own).centers_of_mass)
        carries = any(name.endswith(PAYLOAD) for name in columns.parameters)
        commands = replace(
            declared_commands(own), places=pivot_places(own) if columns.found else None,
            loads=loads_of(own) if carries else None,
        )  # fmt: skip
        store = import_logs(files, columns, own.spec, out, split=split, seed=seed, declared=commands)
    print_import(store, out)
    verdict = str(combine_verdicts(store.header.findings))
    require_usable(verdict, out)
    print_verdict(verdict)


def _import_model(files: tuple[Path, ...], out: Path, robot: str | None, layout: str, statistics: Path | None) -> None:
    """Write a checkpoint as a run, and report its contents."""
    from neurodyn.interop.formats import import_model

    if len(files) != 1 or robot is None:
        raise InputError(f"--model {layout} reads one checkpoint of one robot; give one file, and --robot")
    with ProgressBar(f"reading {files[0].name}"):
        model = import_model(files[0], robot, out, layout=layout, statistics=statistics)
    members = f" with {model.members} members" if hasattr(model, "members") else ""
    print(f"{model.network}{members}, {model.spec.context} frames of warm-up: {out}")
    print(f"next: neurodyn evaluate {shell_word(out)}{' --data LOG.h5' if model.measured else ''}")


def inspect(
    file: Path,
    /,
    plot: Path | None = None,
    json: Path | None = None,
    robot: str | None = None,
    map: Path | None = None,  # noqa: A002 (the name of the flag)
) -> None:
    """Show the contents of a dataset or a raw log.

    For a dataset: counts, ranges, coverage, rates, gaps, how episodes ended, and a plot. For a raw log: streams and
    columns with types, rates, gaps and likely units, and a draft column map.

    Args:
        file: HDF5 store, or a log in any format that `neurodyn import` reads.
        plot: File for the plot of a dataset; by default beside it.
        json: File to write the figures to, as JSON.
        robot: Robot of a raw log, by name or path; the draft column map uses its joints.
        map: File for the column map of a raw log; by default LOG.map.yaml here. An existing file is kept.

    Example:
        neurodyn inspect walk.h5
    """
    from neurodyn.data.readers.column_map import is_log
    from neurodyn.data.writer import STORE_SUFFIXES

    if file.suffix.lower() not in STORE_SUFFIXES or is_log(file):
        _inspect_log(file, robot, map, json)
        return
    from neurodyn.cli.terminal.tables import print_inspection
    from neurodyn.data.inspection import inspect_store, plot_store
    from neurodyn.data.store import Store
    from neurodyn.robots.data import declared_ranges

    for name, given in (("--robot", robot), ("--map", map)):
        if given is not None:
            Store.open(file, memory=0)
            raise InputError(f"{name} is for raw logs; {file} is a dataset, whose header holds this")
    picture = plot or file.with_suffix(".png")
    require_writable(json, text=True)
    require_writable(picture)
    with ProgressBar(f"inspecting {file.name}"):
        with stage(0.0, 0.2, "reading"):
            store = Store.open(file)
            ranges = declared_ranges(store.header.spec)
        with stage(0.2, 0.6, "statistics"):
            contents = inspect_store(store, ranges)
        with stage(0.6, 1.0, "picture"):
            plot_store(store, picture, ranges)
    print_inspection(contents)
    print(f"picture: {picture}")
    write_figures(json, contents)


def _inspect_log(log: Path, robot: str | None, column_map: Path | None, json: Path | None) -> None:
    """Show the contents of a raw log, and draft a column map."""
    from neurodyn.cli.terminal.tables import print_log
    from neurodyn.data.inspection import inspect_log
    from neurodyn.robots import load
    from neurodyn.sim.declaration.pose import standing_height
    from neurodyn.sim.simulators import articulation

    path = column_map or Path(f"{log.resolve().name}.map.yaml")
    require_writable(json, text=True)
    require_writable(None if path.exists() else path)
    with ProgressBar(f"inspecting {log.name}"):
        known = None if robot is None else load(robot)
        if known is None:
            report = inspect_log(log)
        else:
            free = any(joint.kind == "free" for joint in known.joints)
            centers = articulation(known).centers_of_mass if free else {}
            report = inspect_log(log, known.spec, robot, centers, lambda: standing_height(known))
    print_log(report.found)
    if path.exists():
        print(f"column map: {path} already exists and is kept; --map FILE writes another")
    else:
        write_text(path, report.map_text)
        print(f"column map to start from: {path}")
    write_figures(json, report.found)

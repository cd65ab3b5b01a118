# SPDX-License-Identifier: Apache-2.0
"""`neurodyn import`: a dataset from logs."""

from pathlib import Path
from typing import Annotated, Literal

from neurodyn.cli.terminal.flags import one_of
from neurodyn.core.errors import InputError
from neurodyn.interop.formats import MODEL_LAYOUTS


def import_(
    files: tuple[Path, ...],
    /,
    out: Path,
    reader: str | None = None,
    robot: str | None = None,
    split: Literal["declared", "train", "validation", "test", "random"] = "declared",
    alignment: float | None = None,
    seed: int = 0,
    model: Annotated[str | None, one_of(MODEL_LAYOUTS)] = None,
    statistics: Path | None = None,
) -> None:
    """Read logs into a dataset, or somebody else's checkpoint into a run.

    Logs are resampled to the robot's frames, with measured alignment of control and motion. Formats are recognised by
    what a file holds: CSV, npz, MuJoCo's npz, LeRobot data sets, bags of ROS 2, MCAP, and HDF5 of robomimic and Isaac
    Lab.

    Args:
        files: Logs: files, or folders of bags and LeRobot data sets. With --model, a checkpoint.
        out: File to write (.h5). With --model, a run directory.
        reader: Robot whose declared column map fits, for example dfki-c1, or path of a column map (YAML, TOML);
            "rwm-csv" for headerless rows in the layout that the robot declares, or path of a layout of rows. Without
            one, columns are found by the names of the robot's joints; `neurodyn inspect LOG` drafts a column map.
        robot: Robot that the log is of, by name or path; by default the one that the column map names.
        split: Training, validation or test for all runs; or by the log itself (random by run where it does not
            say); or random by run.
        alignment: Delay from logged control to motion [s], in place of the column map's.
        seed: Seed of a random split.
        model: Layout of a checkpoint that is read as a model: rwm, a world model of Robotic World Model; or nerd, a
            network of NeRD.
        statistics: File with what the model's inputs were normalised with; by default the robot's own.

    Example:
        neurodyn import walk.mcap --robot my-arm --out walk.h5
    """
    if model is not None:
        _import_model(files, out, robot, model, statistics)
        return
    if statistics is not None:
        raise InputError("--statistics is of a model's inputs; valid with --model")
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.tables import print_import
    from neurodyn.data.header import Split
    from neurodyn.data.readers import import_logs, import_rows
    from neurodyn.data.readers.column_map import with_alignment
    from neurodyn.robots.data import find_map, find_reader, find_rows

    if reader is None and robot is None:
        raise InputError("says of which robot the logs are neither by --robot nor by --reader; give one of them")
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
        columns, spec = find_map(files[0], robot or "") if reader is None else find_reader(reader, robot)
        if alignment is not None:
            columns = with_alignment(columns, alignment)
        store = import_logs(files, columns, spec, out, split=split, seed=seed)
    print_import(store, out)


def _import_model(files: tuple[Path, ...], out: Path, robot: str | None, layout: str, statistics: Path | None) -> None:
    """Write a checkpoint as a run, and say what it holds."""
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.interop.checkpoints import import_model

    if len(files) != 1 or robot is None:
        raise InputError(f"--model {layout} reads one checkpoint of one robot; give one file, and --robot")
    with ProgressBar(f"reading {files[0].name}"):
        found = import_model(files[0], robot, out, layout=layout, statistics=statistics)
    members = f" with {found.members} members" if hasattr(found, "members") else ""
    print(f"{found.network}{members}, {found.spec.context} frames of warm-up: {out}")
    print(f"next: neurodyn evaluate {out}{' --data LOG.h5' if found.measured else ''}")

# SPDX-License-Identifier: Apache-2.0
"""`neurodyn import`: a dataset from logs."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from neurodyn.core.errors import InputError


def import_(
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES")],
    reader: str,
    out: Path,
    robot: str | None = None,
    split: Literal["declared", "train", "validation", "test", "random"] = "declared",
    alignment: float | None = None,
    seed: int = 0,
) -> None:
    """Read logs into a dataset: resampled to the robot's frames, with measured alignment of control and motion.

    Args:
        files: Log files (CSV or npz).
        reader: Robot whose declared column map fits, for example dfki-c1, or path of a column map (YAML, TOML);
            "rwm-csv" for headerless rows in the layout that the robot declares, or path of a layout of rows.
        out: File to write (.h5).
        robot: Robot that the log is of, by name or path; by default the one that the column map names.
        split: Training, validation or test for all runs; or by the log itself (random by run where it does not
            say); or random by run.
        alignment: Delay from logged control to motion [s], in place of the column map's.
        seed: Seed of a random split.
    """
    from neurodyn.cli.tables.data import print_import
    from neurodyn.data.header import Split
    from neurodyn.data.readers import import_logs, import_rows
    from neurodyn.data.readers.column_map import with_alignment
    from neurodyn.robots.logs import find_reader, find_rows

    layout = find_rows(reader, robot)
    if layout is not None:
        if alignment is not None:
            raise InputError("--alignment is for column maps; rows say which action produced which state")
        given = None if split in {"declared", "random"} else Split[split.upper()]
        print_import(import_rows(files, layout, out, split=given, seed=seed), out)
        return
    columns, spec = find_reader(reader, robot)
    if alignment is not None:
        columns = with_alignment(columns, alignment)
    store = import_logs(files, columns, spec, out, split=split, seed=seed)
    print_import(store, out)

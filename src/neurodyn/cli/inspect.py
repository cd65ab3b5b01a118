# SPDX-License-Identifier: Apache-2.0
"""`neurodyn inspect`: what a dataset or a raw log holds."""

from pathlib import Path


def inspect(
    file: Path,
    /,
    plot: Path | None = None,
    json: Path | None = None,
    robot: str | None = None,
    map: Path | None = None,  # noqa: A002 (the name of the flag)
) -> None:
    """Show what a dataset or a raw log holds.

    Of a dataset: counts, ranges, coverage, rates, gaps, and how episodes ended; and a picture. Of a raw log: streams
    and columns with types, rates, gaps and likely units; and a column map to start from.

    Args:
        file: HDF5 store, or a log of any format that `neurodyn import` reads.
        plot: File for the picture of a dataset; beside it by default.
        json: File to write the figures to, as JSON.
        robot: Robot that a raw log is of, by name or path, whose joints the column map then has.
        map: File for the column map of a raw log; by default LOG.map.yaml here. One that is there is kept.

    Example:
        neurodyn inspect walk.h5
    """
    from neurodyn.data.readers.column_map import is_log
    from neurodyn.data.writer import SUFFIXES

    if file.suffix.lower() not in SUFFIXES or is_log(file):
        _inspect_log(file, robot, map, json)
        return
    from neurodyn.cli.terminal.console import ProgressBar, keep_figures
    from neurodyn.cli.terminal.tables import print_inspection
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.errors import InputError
    from neurodyn.core.progress import stage
    from neurodyn.data.inspection import inspect_store, plot_store
    from neurodyn.data.store import Store
    from neurodyn.robots.data import declared_ranges

    for name, given in (("--robot", robot), ("--map", map)):
        if given is not None:
            raise InputError(f"{name} is for raw logs; {file} is a dataset, which says all that itself")
    picture = plot or file.with_suffix(".png")
    require_writable(json, text=True)
    require_writable(picture)
    with ProgressBar(f"inspecting {file.name}"):
        with stage(0.0, 0.2, "reading"):
            store = Store.open(file)
            ranges = declared_ranges(store.header.spec)
        with stage(0.2, 0.6, "statistics"):
            found = inspect_store(store, ranges)
        with stage(0.6, 1.0, "picture"):
            plot_store(store, picture, ranges)
    print_inspection(found)
    print(f"picture: {picture}")
    keep_figures(json, found)


def _inspect_log(log: Path, robot: str | None, column_map: Path | None, json: Path | None) -> None:
    """Show what a raw log holds, and draft a column map."""
    from neurodyn.cli.terminal.console import ProgressBar, keep_figures
    from neurodyn.cli.terminal.tables import print_log
    from neurodyn.core.artifacts import require_writable, write_text
    from neurodyn.data.inspection import inspect_log
    from neurodyn.robots import load

    path = column_map or Path(f"{log.resolve().name}.map.yaml")
    require_writable(json, text=True)
    require_writable(None if path.exists() else path)
    with ProgressBar(f"inspecting {log.name}"):
        report = inspect_log(log, None if robot is None else load(robot).spec, robot)
    print_log(report.found)
    if path.exists():
        print(f"column map: {path} is there already and kept; --map FILE writes another")
    else:
        write_text(path, report.map_text)
        print(f"column map to start from: {path}")
    keep_figures(json, report.found)

# SPDX-License-Identifier: Apache-2.0
"""`neurodyn inspect`: what a dataset holds."""

from pathlib import Path
from typing import Annotated

import tyro


def inspect(
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.h5")],
    plot: Path | None = None,
    json: Path | None = None,
) -> None:
    """Show what a dataset holds: counts, ranges, coverage, rates, gaps, and how episodes ended; and draw it.

    Args:
        file: HDF5 store.
        plot: File for the picture; beside the dataset by default.
        json: File to write the figures to, as JSON.
    """
    from neurodyn.cli.tables.data import print_inspection
    from neurodyn.core.artifacts import write_json
    from neurodyn.data.inspection import inspect_store
    from neurodyn.data.plots import plot_store
    from neurodyn.data.store import Store
    from neurodyn.robots.data import declared_ranges

    store = Store.open(file)
    ranges = declared_ranges(store.header.spec)
    found = inspect_store(store, ranges)
    print_inspection(found)
    picture = plot or file.with_suffix(".png")
    plot_store(store, picture, ranges)
    print(f"picture: {picture}")
    if json is not None:
        write_json(json, found)
        print(f"figures: {json}")

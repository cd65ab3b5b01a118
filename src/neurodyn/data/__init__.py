# SPDX-License-Identifier: Apache-2.0
"""Trajectories: the HDF5 store, windows of it, and readers of logs."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.data.header import Split, Status, StoreHeader
    from neurodyn.data.inspection import inspect_log, inspect_store, plot_store
    from neurodyn.data.readers.column_map import READERS, ColumnMap, LogFormat, read_column_map
    from neurodyn.data.readers.logs import import_logs, open_data
    from neurodyn.data.readers.raw import RawRun
    from neurodyn.data.readers.rows import import_rows
    from neurodyn.data.row_layout import RowLayout
    from neurodyn.data.store import Store
    from neurodyn.data.windows import Batch, Windows, WindowSampler, all_windows
    from neurodyn.data.writer import StoreWriter

__all__ = [
    "READERS", "Batch", "ColumnMap", "LogFormat", "RawRun", "RowLayout", "Split", "Status", "Store", "StoreHeader",
    "StoreWriter", "WindowSampler", "Windows", "all_windows", "import_logs", "import_rows", "inspect_log",
    "inspect_store", "open_data", "plot_store", "read_column_map",
]  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
from .header import Split as Split, Status as Status, StoreHeader as StoreHeader
from .inspection import inspect_log as inspect_log, inspect_store as inspect_store, plot_store as plot_store
from .readers.column_map import (
    READERS as READERS,
    ColumnMap as ColumnMap,
    LogFormat as LogFormat,
    read_column_map as read_column_map,
)
from .readers.logs import import_logs as import_logs, open_data as open_data
from .readers.raw import RawRun as RawRun
from .readers.rows import import_rows as import_rows
from .row_layout import RowLayout as RowLayout
from .store import Store as Store
from .windows import (
    Origin as Origin,
    Windows as Windows,
    WindowSampler as WindowSampler,
    all_windows as all_windows,
    select_windows as select_windows,
)
from .writer import StoreWriter as StoreWriter

# SPDX-License-Identifier: Apache-2.0
from neurodyn.data.readers.column_map import Column, ColumnMap, read_column_map
from neurodyn.data.readers.logs import import_logs, open_data, read_logs
from neurodyn.data.readers.rows import import_rows, read_rows, write_rows

__all__ = [
    "Column", "ColumnMap", "import_logs", "import_rows", "open_data", "read_column_map", "read_logs", "read_rows",
    "write_rows",
]  # fmt: skip

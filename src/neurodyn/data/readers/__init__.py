# SPDX-License-Identifier: Apache-2.0
from neurodyn.data.readers.bags import MCAP, ROSBAG1, ROSBAG2
from neurodyn.data.readers.column_map import READERS, Column, ColumnMap, read_column_map
from neurodyn.data.readers.csv import CSV
from neurodyn.data.readers.folder import FOLDER
from neurodyn.data.readers.json_lines import JSON, JSON_LINES
from neurodyn.data.readers.lerobot import LEROBOT
from neurodyn.data.readers.logs import import_logs, open_data, read_logs
from neurodyn.data.readers.mujoco import MUJOCO
from neurodyn.data.readers.npz import NPZ
from neurodyn.data.readers.robomimic import ROBOMIMIC
from neurodyn.data.readers.rows import import_rows, read_rows, write_rows
from neurodyn.data.readers.tensors import TENSORS

for _name, _format in {
    "npz": NPZ, "mujoco": MUJOCO, "lerobot": LEROBOT, "mcap": MCAP, "rosbag1": ROSBAG1, "rosbag2": ROSBAG2,
    "robomimic": ROBOMIMIC, "pt": TENSORS, "jsonl": JSON_LINES, "json": JSON, "folder": FOLDER,
    "csv": CSV,  # last, because it recognises any text in columns
}.items():  # fmt: skip
    READERS.add(_name, _format)

__all__ = [
    "Column", "ColumnMap", "import_logs", "import_rows", "open_data", "read_column_map", "read_logs", "read_rows",
    "write_rows",
]  # fmt: skip

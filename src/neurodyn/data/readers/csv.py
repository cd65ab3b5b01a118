# SPDX-License-Identifier: Apache-2.0
"""Reading runs from CSV files with a header line: one file is one run, or several if a column says so."""

import csv
from itertools import pairwise
from pathlib import Path

import numpy as np

from neurodyn.core.config import describe_os_error
from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.data.readers.raw import RawRun, check_velocities, convert, cut, parse_split, selected


def read_csv(path: Path, columns: ColumnMap, spec: StateSpec) -> list[RawRun]:
    """Read the selected runs of a CSV file.

    Raises:
        InputError: The file cannot be read, columns are missing, or cells are no finite numbers.
    """
    table = _Table(path, columns)
    converted = convert(columns, spec, table.numbers, table.rows, str(path))
    bounds = _bounds(table, columns)
    check_velocities(columns, spec, converted, bounds, str(path))
    runs = []
    for index, (begin, end) in enumerate(pairwise(bounds)):
        label = table.texts(columns.episodes)[begin] if columns.episodes else str(index)
        name = f"{path.stem}/{label}" if len(bounds) > 2 else path.stem
        group = table.texts(columns.group)[begin] if columns.group in table.names else ""
        split = None
        if columns.split in table.names:
            split = parse_split(table.texts(columns.split)[begin], f"{path}: column {columns.split!r}, row {begin}")
        event = table.texts(columns.together)[begin] if columns.together in table.names else None
        if selected(columns, group, name):
            labels = {"name": name, "group": group, "split": split, "together": event}
            runs.append(cut(columns, spec, converted, slice(begin, end), **labels, where=str(path)))
    return runs


class _Table:
    """The lines of a CSV file; rows are counted from 0 after the header."""

    def __init__(self, path: Path, columns: ColumnMap) -> None:
        self.path, self._cells = path, []
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                lines = (line for line in file if line.strip() and not line.startswith(columns.comment or "\0"))
                reader = csv.reader(lines, delimiter=columns.delimiter, skipinitialspace=True)
                self.names = [name.strip() for name in next(reader, [])]
                self._cells = list(reader)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"{path}: cannot be read ({describe_os_error(error)}); expected a CSV file") from None
        self.rows = len(self._cells)
        if not self.names or not self.rows:
            trouble = "is empty" if not self.names else "has a header but no rows"
            raise InputError(f"{path}: {trouble}; expected a CSV file with a header line and rows")
        self._check_names(columns)
        self._check_lengths()

    def numbers(self, name: str) -> np.ndarray:
        """Return a column as float64, shape [rows]."""
        cells = self.texts(name)
        try:
            return np.array(cells, dtype=np.float64)
        except ValueError:
            row = next(row for row, cell in enumerate(cells) if not _is_number(cell))
            raise InputError(
                f"{self.path}: column {name!r} holds {cells[row]!r} in row {row}; expected a number"
            ) from None

    def texts(self, name: str | None) -> list[str]:
        """Return a column as text."""
        index = self.names.index(name or "")
        return [row[index] for row in self._cells]

    def _check_names(self, columns: ColumnMap) -> None:
        coordinates = (*columns.positions.values(), *columns.velocities.values(), *columns.control.values())
        wanted = [name for column in coordinates for name in (*column.columns, *column.subtracted)]
        wanted += [name for name in (columns.time, columns.episodes) if name is not None]
        missing = list(dict.fromkeys(name for name in wanted if name not in self.names))
        if missing:
            raise InputError(
                f"{self.path}: has no column {', '.join(map(repr, missing))}; columns there: {', '.join(self.names)}"
            )

    def _check_lengths(self) -> None:
        for row, cells in enumerate(self._cells):
            if len(cells) != len(self.names):
                raise InputError(
                    f"{self.path}: row {row} has {len(cells)} cells; expected {len(self.names)}, as in the header"
                )


def _bounds(table: _Table, columns: ColumnMap) -> list[int]:
    if columns.episodes is None:
        return [0, table.rows]
    labels = table.texts(columns.episodes)
    return [0, *(row for row in range(1, table.rows) if labels[row] != labels[row - 1]), table.rows]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True

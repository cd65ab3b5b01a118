# SPDX-License-Identifier: Apache-2.0
"""Reader of CSV files with a header line: one file is one run, or several if a column says so."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from pathlib import Path

import numpy as np

from neurodyn.core.errors import InputError, unreadable
from neurodyn.data.readers.column_map import ColumnMap, LogFormat, permissive_map
from neurodyn.data.readers.raw import parse_split
from neurodyn.data.readers.source import (
    MOST_VALUES,
    ColumnSeries,
    LogPart,
    RunRows,
    Source,
    Topic,
    equal_runs,
    usual_stamp,
)

_LINES = 1 << 14
"""Lines held as text at once."""
LOOKED_AT = 256
"""Rows of a table that tell which of its columns are numbers, and how these are written."""
_MISSING = frozenset({"", "-", "n/a", "na", "none", "null"})
"""Cells without a value, in lower case; "nan" is a number."""


class CsvSource(Source):
    """A CSV file; rows are numbered from 0 after the header."""

    form = "csv"

    def __init__(self, path: Path, columns: ColumnMap | None) -> None:
        """Open a file.

        Without a column map, separators of columns and decimals are guessed from the first lines, and # starts
        comments.
        """
        self.path, self._map, self._drafting = path, columns or permissive_map(self.form), columns is None
        self.delimiter, self.decimal = self._map.delimiter, self._map.decimal
        if columns is None:
            first = next((line for line in self._text() if self._counts(line)), "")
            text = first.strip()  # spaces separate only as a last resort: "time [s],cart position [m]"
            self.delimiter = max(",;\t", key=text.count) if any(mark in text for mark in ",;\t") else " "
        lines = self._lines()
        self.names = [name.strip() for name in next(lines, [])]
        if not any(self.names) or next(lines, None) is None:
            trouble = "is empty" if not any(self.names) else "has a header but no rows"
            raise InputError(f"{path}: {trouble}; expected a CSV file with a header line and rows")
        self._stamp = self.stamp() if columns is None else columns.time
        if columns is None and self.delimiter != ",":
            marked = [cell for row in self._first_rows() for cell in row if "," in cell]
            self.decimal = "," if marked and all(map(_has_decimal_comma, marked)) else "."

    def stamp(self) -> str | None:
        """Return the column whose name looks like a time stamp."""
        return usual_stamp(self.names)

    def topics(self) -> list[Topic]:
        """Return the table as the only stream."""
        numbers, texts = list[str](), list[str]()
        for name, cells in zip(self.names, zip(*self._first_rows(), strict=False), strict=False):
            first = next((cell for cell in cells if cell.strip().lower() not in _MISSING), None)
            if first is not None and _is_number(self._with_point(first)):
                numbers.append(name)
            else:
                texts.append(f"{name} ({'empty' if first is None else repr(first)})")
        return [Topic("", "rows", tuple(numbers), "a column" if self.stamp() else "none", not_numbers=tuple(texts))]

    def _first_rows(self) -> list[list[str]]:
        """Return the cells of the first rows after the header."""
        return list(islice(self._lines(), 1, 1 + LOOKED_AT))

    def _with_point(self, cell: str) -> str:
        """Return a number with a point for decimals."""
        return cell if self.decimal == "." else cell.replace(self.decimal, ".", 1)

    def parts(self, names: Sequence[str]) -> Iterator[LogPart]:
        """Yield the table in parts, cut into runs where the column `episodes` changes."""
        columns = self._map
        labels = [columns.episodes, columns.split, columns.group, columns.together]
        wanted = [*names, *([self._stamp] if self._stamp else [])]
        absent = [name for name in (*wanted, columns.episodes) if name is not None and name not in self.names]
        if absent:
            raise self.missing(absent, self.names)
        twice = [name for name in dict.fromkeys(wanted) if self.names.count(name) > 1 and not self._drafting]
        if twice:
            count = self.names.count(twice[0])
            raise InputError(f"{self.path}: has {count} columns {twice[0]!r}; expected one: rename the others")
        limit = max(_LINES, MOST_VALUES // (len(names) + 1))
        pending: list[_Rows] = []
        first = size = 0
        for block in self._blocks(sorted(set(wanted)), labels):
            pending += block.runs()
            size += len(block)
            if size >= limit:
                yield self._part(pending, first, last=False)
                first, size, pending = first + size, 0, []
        if pending:
            yield self._part(pending, first, last=True)

    def _part(self, blocks: "list[_Rows]", first: int, *, last: bool) -> LogPart:
        series = {name: np.concatenate([block.numbers[name] for block in blocks]) for name in blocks[0].numbers}
        rows = sum(len(block) for block in blocks)
        if self._stamp is None:
            time = (first + np.arange(rows)) * float(self._map.period or 0.0)
        else:
            time = self.seconds(series[self._stamp], self._stamp, first, self._map.time_unit)
        runs, begin = [], 0
        for index, (label, same) in enumerate(groupby(blocks, key=lambda block: block.label)):
            group = list(same)
            end = begin + sum(len(block) for block in group)
            cut = (first > 0 and index == 0) or (not last and end == rows)
            runs.append(self._run(group[0], label, slice(begin, end), first, cut))
            begin = end
        return LogPart(runs, {name: ColumnSeries(time, value) for name, value in series.items()}, first)

    def _run(self, block: "_Rows", label: str | None, rows: slice, first: int, partial: bool) -> RunRows:
        """Return a run with the labels in its first row."""
        name = self.path.stem if label is None else f"{self.path.stem}/{label}"
        columns = self._map
        split = block.text(columns.split)
        where = f"{self.path}: column {columns.split!r}, row {first + rows.start}"
        return RunRows(
            name, block.text(columns.group) or "", None if split is None else parse_split(split, where),
            block.text(columns.together), rows, partial,
        )  # fmt: skip

    def _blocks(self, wanted: Sequence[str], labels: Sequence[str | None]) -> "Iterator[_Rows]":
        """Yield blocks of lines: data columns as numbers, label columns as text."""
        places = {name: self.names.index(name) for name in wanted}
        texts = {name: self.names.index(name) for name in labels if name is not None and name in self.names}
        lines, first = self._lines(), 0
        next(lines)
        width = len(self.names)
        while cells := list(islice(lines, _LINES)):
            for row, line in enumerate(cells):
                if len(line) != width:
                    raise self._ragged(first + row, len(line), width)
            columns = list(zip(*cells, strict=True))
            numbers = {name: self._numbers(columns[index], name, first) for name, index in places.items()}
            yield _Rows(numbers, {name: columns[index] for name, index in texts.items()}, labels[0])
            first += len(cells)

    def _numbers(self, cells: Sequence[str], name: str, first: int) -> np.ndarray:
        """Return cells as float64, shape [rows]; cells without a value are NaN if the column map allows gaps."""
        texts = cells if self.decimal == "." else [self._with_point(cell) for cell in cells]
        if self._map.missing == "gap":
            texts = ["nan" if text.strip().lower() in _MISSING else text for text in texts]
        try:
            return np.array(texts, dtype=np.float64)
        except ValueError:
            row = next(row for row, text in enumerate(texts) if not _is_number(text))
            raise InputError(
                f"{self.path}: column {name!r} holds {cells[row]!r} in row {first + row}{self._place(first + row)}; "
                f"expected a number{_hint(cells[row])}"
            ) from None

    def _place(self, row: int) -> str:
        """Return " (line N)" for a row's line in the file."""
        counted = (number for number, line in enumerate(self._text(), 1) if self._counts(line))
        return f" (line {next(islice(counted, row + 1, None))})"

    def _text(self) -> Iterator[str]:
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                yield from file
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable(self.path, error, "a CSV file in UTF-8") from None

    def _counts(self, line: str) -> bool:
        return bool(line.strip()) and not line.startswith(self._map.comment or "\0")

    def _lines(self) -> Iterator[list[str]]:
        """Yield the cells of each line, the header first; those of lists in cells are `name[0]`, `name[1]` ..."""
        lines = self._cells()
        names = next(lines, [])
        head = list(islice(lines, LOOKED_AT))
        lengths = _lengths_of_lists(names, head)
        if not lengths:
            yield names
            yield from head
            yield from lines
            return
        yield [
            one
            for k, name in enumerate(names)
            for one in ([f"{name.strip()}[{i}]" for i in range(lengths[k])] if k in lengths else [name])
        ]
        for row, cells in enumerate(chain(head, lines)):
            yield self._open_lists(cells, names, lengths, row)

    def _open_lists(self, cells: list[str], names: list[str], lengths: Mapping[int, int], row: int) -> list[str]:
        if len(cells) != len(names):
            raise self._ragged(row, len(cells), len(names))
        opened: list[str] = []
        for k, cell in enumerate(cells):
            if k not in lengths:
                opened.append(cell)
                continue
            values = [cell] * lengths[k] if cell.strip().lower() in _MISSING else _values_of_list(cell)
            if len(values) != lengths[k]:
                raise InputError(
                    f"{self.path}: column {names[k].strip()!r} holds a list of {len(values)} in row {row}"
                    f"{self._place(row)}; expected {lengths[k]}, as in the first row"
                )
            opened += values
        return opened

    def _ragged(self, row: int, count: int, width: int) -> InputError:
        return InputError(
            f"{self.path}: row {row}{self._place(row)} has {count} cells; expected {width}, as in the header"
        )

    def _cells(self) -> Iterator[list[str]]:
        """Yield the cells of each line as they stand in the file."""
        try:
            lines = (line for line in self._text() if self._counts(line))
            yield from csv.reader(lines, delimiter=self.delimiter, skipinitialspace=True)
        except csv.Error as error:
            raise InputError(f"{self.path}: cannot be read ({error}); expected a CSV file") from None


class _Rows:
    """Consecutive rows of a table: some columns as numbers, others as text."""

    def __init__(self, numbers: dict[str, np.ndarray], texts: dict[str, Sequence[str]], label: str | None) -> None:
        self.numbers, self._texts, self._label = numbers, texts, label
        self.label = self.text(label)

    def __len__(self) -> int:
        return len(next(iter(self.numbers.values())))

    def text(self, name: str | None) -> str | None:
        """Return the first cell of a column; None if there is no such column."""
        return self._texts[name][0] if name in self._texts else None

    def runs(self) -> "Iterator[_Rows]":
        """Yield consecutive rows with the same label."""
        if self._label is None:
            yield self
            return
        for begin, end in equal_runs(np.asarray(self._texts[self._label])):
            numbers = {name: values[begin:end] for name, values in self.numbers.items()}
            texts = {name: values[begin:end] for name, values in self._texts.items()}
            yield _Rows(numbers, texts, self._label)


_OPENS = ("[", "(")


def _lengths_of_lists(names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[int, int]:
    """Return the length of the lists in each column that has them, such as "[0.1, 0.2]"."""
    lengths: dict[int, int] = {}
    for k in range(len(names)):
        cells = (row[k].strip() for row in rows if len(row) == len(names))
        first = next((cell for cell in cells if cell.lower() not in _MISSING), "")
        if first.startswith(_OPENS) and (values := _values_of_list(first)) and all(map(_is_number, values)):
            lengths[k] = len(values)
    return lengths


def _values_of_list(cell: str) -> list[str]:
    return [value for value in re.split(r"[\s,;\[\]()]+", cell) if value]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _has_decimal_comma(cell: str) -> bool:
    """Return whether a cell is a number but for a comma in place of the point."""
    return "," in cell and _is_number(cell.replace(",", ".", 1))


def _hint(cell: str) -> str:
    """Return how to write what a cell holds instead of a number; empty if it is unclear."""
    if _has_decimal_comma(cell):
        return ", with a point for decimals (or `decimal: ','` in the map, where `delimiter` is no comma)"
    if cell.strip().startswith(_OPENS):
        return ": its column holds lists in some rows only"
    if re.match(r"\d{4}-\d\d-\d\d", cell.strip()):
        return ", such as seconds, instead of a date"
    return ""


def _recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is text whose first lines have equally many cells, or has the suffix."""
    if path.is_dir() or not head or b"\0" in head:
        return path.suffix.lower() == ".csv" and not path.is_dir()
    try:
        text = head.decode("utf-8-sig", errors="strict" if len(head) < 4096 else "ignore")
    except UnicodeDecodeError:
        return path.suffix.lower() == ".csv"
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    table = len(lines) > 1 and any(
        lines[0].count(mark) > 0 and lines[0].count(mark) == lines[1].count(mark) for mark in ",;\t"
    )
    return path.suffix.lower() == ".csv" or (table and not text.lstrip().startswith(("{", "<")))


KEYS = frozenset({"comment", "decimal", "delimiter", "episodes", "group", "split", "time_unit", "together"})
CSV = LogFormat("a CSV file with a header line", _recognises, CsvSource, keys=KEYS)
"""CSV files."""

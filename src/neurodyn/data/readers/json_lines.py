# SPDX-License-Identifier: Apache-2.0
"""Readers of JSON: one object a line, or a file of records, whose numbers are columns such as "imu.gyroscope[0]"."""

import json
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from neurodyn.core.errors import InputError, unreadable
from neurodyn.data.readers.column_map import LogFormat
from neurodyn.data.readers.csv import KEYS, LOOKED_AT, CsvSource

_EXPECTED = 'expected one object per line, such as {"time": 0.0, "q": [0.1, 0.2]}'


class JsonLinesSource(CsvSource):
    """A file of JSON lines; rows are numbered from 0."""

    form = "jsonl"

    def _lines(self) -> Iterator[list[str]]:
        """Yield the names of the columns, which the first lines have, then the cells of each line; empty for none."""
        first = dict[str, str]()
        for cells in islice(self._objects(), LOOKED_AT):
            first |= cells
        names = list(first)
        yield names
        for cells in self._objects():
            yield [cells.get(name, "") for name in names]

    def _counts(self, line: str) -> bool:
        return bool(line.strip())

    def _place(self, row: int) -> str:
        return super()._place(row - 1)  # no line is a header

    def _objects(self) -> Iterator[dict[str, str]]:
        """Yield the cells of each line by name."""
        for number, line in enumerate(self._text(), 1):
            if not self._counts(line):
                continue
            try:
                tree = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(
                    f"{self.path}: line {number} is no JSON ({error.msg}); expected one object per line"
                ) from None
            if not isinstance(tree, dict):
                raise InputError(
                    f'{self.path}: line {number} is no object; expected one per line, such as {{"time": 0}}'
                )
            yield dict(_flat(tree, ""))


def _flat(tree: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each leaf of plain data."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _flat(value, f"{name}.{key}" if name else key)
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _flat(value, f"{name}[{index}]")
    elif tree is not None:
        yield name, str(float(tree)) if isinstance(tree, bool) else str(tree)


class JsonSource(JsonLinesSource):
    """A file of JSON: a list of objects, or an object with such a list or with columns as lists.

    What else it holds is the same in all rows, such as the gains of a run.
    """

    form = "json"

    def _objects(self) -> Iterator[dict[str, str]]:
        for record in self._records:
            yield dict(_flat(record, ""))

    def _place(self, row: int) -> str:
        return ""

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        try:
            tree = json.loads(self.path.read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise unreadable(self.path, error, "a file of JSON") from None
        records = _records_of(tree)
        if not records:
            raise InputError(f"{self.path}: holds no records; expected a list of objects, or lists of equal length")
        return records


def _records_of(tree: Any) -> list[dict[str, Any]]:
    """Return the objects of the longest list of objects, or of lists of equal length, with what stands beside it."""
    if _is_table(tree):
        return tree
    leaves = dict(_leaves(tree, "")) if isinstance(tree, dict) else {}
    tables = {name: one for name, one in leaves.items() if _is_table(one)}
    if tables:
        longest = max(tables, key=lambda name: len(tables[name]))
        usual = {name: one for name, one in leaves.items() if name not in tables}
        return [usual | record for record in tables[longest]]
    lists = {name: one for name, one in leaves.items() if isinstance(one, list)}
    count = max(map(len, lists.values()), default=0)
    columns = {name: one for name, one in lists.items() if len(one) == count > 1}
    usual = {name: one for name, one in leaves.items() if name not in columns}
    return [usual | dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _is_table(tree: Any) -> bool:
    return isinstance(tree, list) and bool(tree) and all(isinstance(one, dict) for one in tree)


def _leaves(tree: dict[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    """Yield what is no object within objects, by its dotted name."""
    for key, value in tree.items():
        whole = f"{name}.{key}" if name else key
        if isinstance(value, dict):
            yield from _leaves(value, whole)
        else:
            yield whole, value


def _recognises(path: Path, head: bytes) -> bool:
    """Return whether a file begins with a JSON object in a line of its own."""
    if path.is_dir() or not head.lstrip().startswith(b"{"):
        return False
    line, mark, _ = head.lstrip().partition(b"\n")
    if not mark:  # one long line: is it the first of several?
        return path.suffix.lower() in {".jsonl", ".ndjson"}
    try:
        return isinstance(json.loads(line), dict)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return False


JSON_LINES = LogFormat(
    "JSON lines, one object per row", _recognises, JsonLinesSource, keys=KEYS - {"comment", "decimal", "delimiter"}
)
"""Files of JSON lines."""
JSON = LogFormat(
    "a JSON file of records", lambda path, _: path.suffix.lower() == ".json" and not path.is_dir(), JsonSource,
    keys=KEYS - {"comment", "decimal", "delimiter"},
)  # fmt: skip
"""Files of JSON."""

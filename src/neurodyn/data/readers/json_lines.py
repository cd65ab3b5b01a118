# SPDX-License-Identifier: Apache-2.0
"""Reader of JSON lines: one object a line, whose numbers are columns such as "imu_state.gyroscope[0]"."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from neurodyn.core.errors import InputError
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

# SPDX-License-Identifier: Apache-2.0
"""Reader of folders in which each file is a stream of one run, such as state.csv and command.csv.

Columns are named after file and column, "state.q1"; each file keeps its own clock.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from neurodyn.core.errors import InputError, choices
from neurodyn.data.readers.column_map import READERS, ColumnMap, LogFormat, permissive_map, recognise
from neurodyn.data.readers.source import ColumnSeries, LogPart, RunRows, Source, Topic

_SUFFIXES = frozenset({".csv", ".npz", ".jsonl"})
_TABLES = frozenset({"csv", "npz", "jsonl", "json", "pt"})
_RUN = frozenset({"config.yaml", "manifest.json"})
"""Files of folders that `neurodyn` writes."""


class FolderSource(Source):
    """A folder of tables that were logged together."""

    def __init__(self, path: Path, columns: ColumnMap | None) -> None:
        """Open a folder; raise an InputError if a file of it cannot be read."""
        self.path, self._map = path, columns or permissive_map("folder")
        self._files = {file.stem: file for file in sorted(path.iterdir()) if _is_table(file)}
        twice = [file.name for file in sorted(path.iterdir()) if _is_table(file) and self._files[file.stem] != file]
        if twice:
            raise InputError(f"{path}: {twice[0]} has the name of another file; expected one file a stream")
        self._streams = {name: self._opened(file, columns) for name, file in self._files.items()}

    def _opened(self, file: Path, columns: ColumnMap | None) -> Source:
        """Open a file: by its own time stamps, where it lacks those that the map names."""
        reader = _reader(file)
        source = reader.source(file)
        if columns is None:
            return source
        names = {name for topic in source.topics() for name in topic.columns}
        stamp = columns.time if columns.time in names else source.stamp()
        if stamp is None:
            raise InputError(f"{file}: has no column {columns.time!r}, nor other times; valid: a clock in each file")
        own = msgspec.structs.replace(
            permissive_map(str(recognise(file))), period=None, time=stamp, time_unit=columns.time_unit,
            missing=columns.missing,
        )  # fmt: skip
        if own.format == "csv":
            own = msgspec.structs.replace(own, delimiter=source.delimiter, decimal=source.decimal)
        return reader.source(file, own)

    def topics(self) -> list[Topic]:
        """Return the streams of each file."""
        topics: list[Topic] = []
        for stream, source in self._streams.items():
            for topic in source.topics():
                columns, others = (tuple(f"{stream}.{x}" for x in own) for own in (topic.columns, topic.not_numbers))
                name = ".".join(part for part in (stream, topic.name) if part)
                topics.append(replace(topic, name=name, columns=columns, not_numbers=others))
        return topics

    def stamp(self) -> str | None:
        """Return the name of the times in the first file that has them."""
        return next((stamp for source in self._streams.values() if (stamp := source.stamp()) is not None), None)

    def parts(self, names: Sequence[str]) -> Iterator[LogPart]:
        """Yield the folder as one run."""
        series: dict[str, ColumnSeries] = {}
        for stream, source in self._streams.items():
            own = [name.removeprefix(f"{stream}.") for name in names if name.startswith(f"{stream}.")]
            if not own:
                continue
            parts = list(source.parts(own))
            time = np.concatenate([part.series[own[0]].time for part in parts])
            for name in own:
                value = np.concatenate([part.series[name].value for part in parts])
                series[f"{stream}.{name}"] = ColumnSeries(time, value)
        absent = [name for name in names if name not in series]
        if absent:
            there = [column for topic in self.topics() for column in topic.columns]
            raise InputError(
                f"{self.missing(absent, there)}; a folder is one run, whose files are its streams: for a run a file "
                f"give the files ({choices([file.name for file in self._files.values()])})"
            )
        yield LogPart([RunRows(self.path.resolve().name)], series)


def _reader(file: Path) -> LogFormat:
    reader = READERS[str(recognise(file))]
    assert isinstance(reader, LogFormat)
    return reader


def _is_table(file: Path) -> bool:
    return file.is_file() and recognise(file) in _TABLES


def _recognises(path: Path, head: bytes) -> bool:
    """Return whether a folder holds several tables, and is none that `neurodyn` wrote."""
    if not path.is_dir() or any((path / name).exists() for name in _RUN):
        return False
    return sum(file.suffix.lower() in _SUFFIXES for file in path.iterdir()) > 1


FOLDER = LogFormat(
    "a folder whose files are the streams of one run (CSV, npz, JSON)", _recognises, FolderSource,
    keys=frozenset({"time_unit"}),
)  # fmt: skip
"""Folders of files that were logged together."""

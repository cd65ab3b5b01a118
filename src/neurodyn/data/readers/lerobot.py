# SPDX-License-Identifier: Apache-2.0
"""Reader of LeRobot data sets, versions 3.0 and 2.1: folders of Parquet files with metadata in meta/.

Videos and images are ignored. The rows of an episode are 1/fps apart; time stamps, rounded to single precision, are
used only if they deviate from that.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neurodyn.core.errors import InputError, unreadable
from neurodyn.data.header import Split
from neurodyn.data.readers.column_map import ColumnMap, LogFormat
from neurodyn.data.readers.source import (
    MOST_VALUES,
    ColumnSeries,
    LogPart,
    RunRows,
    Source,
    Topic,
    column_index,
    equal_runs,
    split_reference,
)

_NUMBERS = ("float", "int", "uint", "bool")
_BOOKKEEPING = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_DATA_V3 = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_DATA_V2 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
_BATCH = 1 << 15
_SPLITS = {"train": Split.TRAIN, "val": Split.VALIDATION, "validation": Split.VALIDATION, "test": Split.TEST}


@dataclass(frozen=True)
class _Feature:
    """One feature of a data set, with an array per row."""

    dtype: str
    width: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class _LerobotEpisode:
    """One episode: its number, rows and file."""

    index: int
    length: int
    file: Path


class LerobotSource(Source):
    """A LeRobot data set."""

    def __init__(self, path: Path, columns: ColumnMap | None) -> None:
        """Open a data set by its folder or its meta/info.json."""
        self.path = path if path.is_dir() else path.parent.parent
        info = _read_json(self.path / "meta" / "info.json")
        self.version = str(info.get("codebase_version", ""))
        if not self.version.startswith(("v3.", "v2.")):
            raise InputError(
                f"{path}: is a LeRobot data set of version {self.version or '(none)'!r}; valid: v3.0, v2.1"
            )
        self.fps = self._rate(info.get("fps"))
        self.robot = str(info.get("robot_type") or "")
        self._features = self._read_features(info.get("features"))
        self._template = str(info.get("data_path") or (_DATA_V3 if self.version.startswith("v3.") else _DATA_V2))
        self._chunk = int(info.get("chunks_size") or 1000)
        declared: Any = info.get("splits")
        self._declared: dict[str, Any] = declared if isinstance(declared, dict) else {}
        self._episodes = self._read_episodes()
        if not self._episodes:
            raise InputError(f"{path}: holds no episode; expected at least one")
        empty = [str(e.index) for e in self._episodes if e.length < 1]
        if empty:
            raise InputError(f"{path}: episodes without a row: {', '.join(empty[:5])}; remove them")

    def topics(self) -> list[Topic]:
        """Return the features."""
        rows = sum(episode.length for episode in self._episodes)
        streams = []
        for name, feature in self._features.items():
            if name in _BOOKKEEPING:
                continue
            numbers = feature.dtype.startswith(_NUMBERS)
            keys = feature.names or tuple(map(str, range(feature.width)))
            columns = (name,) if feature.width == 1 and not feature.names else tuple(f"{name}[{key}]" for key in keys)
            trouble = "" if numbers else "is no table of numbers"
            kind = f"{feature.dtype} [{feature.width}]"
            streams.append(Topic(name, kind, columns if numbers else (), f"{self.fps:g} fps", rows, trouble))
        return streams

    def parts(self, names: Sequence[str]) -> Iterator[LogPart]:
        """Yield the episodes, long ones in parts."""
        places = {name: self._place(name) for name in names}
        splits = self._splits()
        for episode, block, partial in self._blocks(places, MOST_VALUES // (len(names) + 1)):
            run = RunRows(f"{self.path.name}/{episode.index}", split=splits.get(episode.index), partial=partial)
            time = block.pop("timestamp")
            yield LogPart([run], {name: ColumnSeries(time, value) for name, value in block.items()}, 0)

    def _blocks(
        self, places: dict[str, tuple[str, int]], limit: int
    ) -> Iterator[tuple[_LerobotEpisode, dict[str, np.ndarray], bool]]:
        """Yield columns and times of each episode, long ones in parts, and whether it has several parts."""
        by_index = {episode.index: episode for episode in self._episodes}
        seen = dict.fromkeys(by_index, 0)
        pending: list[dict[str, np.ndarray]] = []
        current, split = -1, False
        for file in dict.fromkeys(episode.file for episode in self._episodes):
            for batch in self._batches(file, places):
                numbers = batch.pop("episode_index").astype(np.int64)
                for begin, end in equal_runs(numbers):
                    index = int(numbers[begin])
                    if index not in by_index or by_index[index].file != file:
                        raise InputError(
                            f"{file}: holds rows of episode {index}, which meta/ does not place there; write the "
                            "data set again"
                        )
                    rows = {name: value[begin:end] for name, value in batch.items()}
                    count = sum(len(r["timestamp"]) for r in pending)
                    if pending and (index != current or count + end - begin > limit):
                        split = split or index == current
                        yield by_index[current], _join(pending), split
                        pending, split = [], index == current
                    current = index
                    pending.append(rows)
                    seen[index] += end - begin
        if pending:
            yield by_index[current], _join(pending), split
        short = [e for e in self._episodes if seen[e.index] != e.length]
        if short:
            raise InputError(
                f"{short[0].file}: holds {seen[short[0].index]} rows of episode {short[0].index}; expected "
                f"{short[0].length}, as meta/ says"
            )

    def _batches(self, file: Path, places: dict[str, tuple[str, int]]) -> Iterator[dict[str, np.ndarray]]:
        """Yield rows of a file: the selected columns, times and episode numbers."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        wanted = list(dict.fromkeys([*(feature for feature, _ in places.values()), "episode_index"]))
        try:
            with pq.ParquetFile(file) as table:
                there = table.schema_arrow.names
                absent = [name for name in wanted if name not in there]
                if absent:
                    raise InputError(f"{file}: has no column {', '.join(map(repr, absent))}; there: {', '.join(there)}")
                clocks = [name for name in ("timestamp", "frame_index") if name in there]
                first = 0
                for batch in table.iter_batches(_BATCH, columns=[*wanted, *clocks]):
                    yield self._numbers(batch, places, file, first)
                    first += batch.num_rows
        except FileNotFoundError:
            raise InputError(f"{file}: no such file, though meta/ names it; copy the data set again") from None
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).split("\n")[0]
            raise InputError(f"{file}: is damaged or cut off ({reason}); copy the data set again") from None

    def _numbers(self, batch: Any, places: dict[str, tuple[str, int]], file: Path, first: int) -> dict[str, np.ndarray]:
        """Return the selected columns of some rows as float64."""
        there = [name for name in ("episode_index", "timestamp", "frame_index") if name in batch.schema.names]
        widths = {feature: self._features[feature].width for feature, _ in places.values()}
        tables = {
            name: _table(batch.column(name), widths.get(name, 1), name, file, first)
            for name in {**widths, **dict.fromkeys(there)}
        }
        values = {name: tables[feature][:, index].astype(np.float64) for name, (feature, index) in places.items()}
        numbers = {name: tables[name][:, 0].astype(np.float64) for name in there}
        values["episode_index"] = numbers["episode_index"]
        values["timestamp"] = self._times(numbers.get("timestamp"), numbers.get("frame_index"), file, first)
        return values

    def _times(self, stamps: np.ndarray | None, frames: np.ndarray | None, file: Path, first: int) -> np.ndarray:
        if stamps is None and frames is None:
            raise InputError(f"{file}: has neither 'timestamp' nor 'frame_index'; expected at least one")
        for values, name in ((stamps, "timestamp"), (frames, "frame_index")):
            if values is not None and not np.isfinite(values).all():
                row = int(np.argmin(np.isfinite(values)))
                raise InputError(f"{file}: {name!r} holds {values[row]} in row {first + row}; expected finite numbers")
        if frames is None:
            assert stamps is not None
            return stamps
        times = frames / self.fps
        rounding = 1e-3 / self.fps + 2.0**-22 * np.abs(times)
        return times if stamps is None or (np.abs(stamps - times) <= rounding).all() else stamps

    def _place(self, reference: str) -> tuple[str, int]:
        """Split a name such as "observation.state[elbow]" into feature and column."""
        name, key = (reference, None) if reference in self._features else split_reference(reference)
        feature = self._features.get(name)
        numeric = [n for n, f in self._features.items() if f.dtype.startswith(_NUMBERS)]
        if feature is None or name not in numeric:
            raise self.missing([name], numeric, "feature")
        index = column_index(key, feature.width, feature.names)
        if index is None:
            there = ", ".join(feature.names) or f"0 to {feature.width - 1}"
            raise InputError(
                f"{self.path}: feature {name!r} has {feature.width} columns; valid in brackets: {there} (asked for "
                f"{reference!r})"
            )
        return name, index

    def _splits(self) -> dict[int, Split]:
        """Return the split of each episode, if the data set declares more than one."""
        ranges = {_SPLITS[k]: str(v) for k, v in self._declared.items() if k in _SPLITS}
        splits: dict[int, Split] = {}
        if len(ranges) > 1:
            for split, text in ranges.items():
                first, _, last = text.partition(":")
                if first.isdecimal() and last.isdecimal():
                    splits |= dict.fromkeys(range(int(first), int(last)), split)
        return splits

    def _rate(self, fps: Any) -> float:
        if not isinstance(fps, int | float) or isinstance(fps, bool) or not 0 < fps < float("inf"):
            raise InputError(f"{self.path}: meta/info.json has fps {fps!r}; expected a number above 0")
        return float(fps)

    def _read_features(self, tree: Any) -> dict[str, _Feature]:
        if not isinstance(tree, dict) or not tree:
            raise InputError(f"{self.path}: meta/info.json has no features; expected a name, dtype and shape of each")
        features = {}
        for name, entry in tree.items():
            shape = entry.get("shape") if isinstance(entry, dict) else None
            sizes = shape if isinstance(shape, list) and all(isinstance(n, int) and n >= 0 for n in shape) else None
            if sizes is None:
                raise InputError(f"{self.path}: feature {name!r} in meta/info.json has no shape; expected a list")
            width = int(np.prod(sizes, dtype=np.int64))
            features[str(name)] = _Feature(str(entry.get("dtype", "")), width, _flat_names(entry.get("names"), width))
        return features

    def _read_episodes(self) -> list[_LerobotEpisode]:
        try:
            return self._episodes_v3() if self.version.startswith("v3.") else self._episodes_v2()
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"{self.path}: meta/ does not describe the episodes ({type(error).__name__}: {error}); expected "
                "episode_index and length of each, and data_path in info.json"
            ) from None

    def _episodes_v2(self) -> list[_LerobotEpisode]:
        episodes = []
        path = self.path / "meta" / "episodes.jsonl"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable(path, error, "an episode a line") from None
        for line in lines:
            if line.strip():
                entry = json.loads(line)
                index = int(entry["episode_index"])
                place = self._template.format(episode_chunk=index // self._chunk, episode_index=index)
                episodes.append(_LerobotEpisode(index, int(entry["length"]), self.path / place))
        return episodes

    def _episodes_v3(self) -> list[_LerobotEpisode]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        files = sorted((self.path / "meta" / "episodes").glob("*/*.parquet"))
        if not files:
            raise InputError(f"{self.path}: has no meta/episodes/*/*.parquet; expected the list of episodes")
        columns = ["episode_index", "length", "data/chunk_index", "data/file_index"]
        rows: list[dict[str, Any]] = []
        for file in files:
            try:
                rows += pq.read_table(file, columns=columns).to_pylist()
            except (pa.ArrowException, OSError) as error:
                reason = str(error).split("\n")[0]
                raise InputError(f"{file}: is damaged or cut off ({reason}); copy the data set again") from None
        episodes = []
        for row in sorted(rows, key=lambda row: row["episode_index"]):
            place = self._template.format(chunk_index=row["data/chunk_index"], file_index=row["data/file_index"])
            episodes.append(_LerobotEpisode(int(row["episode_index"]), int(row["length"]), self.path / place))
        return episodes


def _table(column: Any, width: int, name: str, file: Path, first: int) -> np.ndarray:
    """Return a column of numbers or lists of numbers as an array of shape [rows, width]; missing numbers are NaN."""
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute  # its functions are created on import
    rows = len(column)
    values, depth = column, 0
    while (
        pa.types.is_list(values.type) or pa.types.is_large_list(values.type) or pa.types.is_fixed_size_list(values.type)
    ):
        if values.null_count:
            row = pc.index(values.is_valid(), False).as_py()
            raise InputError(f"{file}: {name!r} is empty in row {first + row}; expected {width} numbers")
        values, depth = values.flatten(), depth + 1
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)):
        raise InputError(f"{file}: {name!r} holds {column.type}; expected numbers")
    numbers = values.to_numpy(zero_copy_only=False)
    if depth == 1 and rows:
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        if (lengths != width).any():
            row = int(np.argmax(lengths != width))
            raise InputError(
                f"{file}: {name!r} has {lengths[row]} columns in row {first + row}; expected {width}, as meta/info.json"
                " says"
            )
    if len(numbers) != rows * width:
        raise InputError(f"{file}: {name!r} has {len(numbers)} numbers in {rows} rows; expected {width} in each")
    if numbers.dtype.kind not in "fiub":
        numbers = numbers.astype(np.float64)
    return numbers.reshape(rows, width)


def _join(blocks: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _flat_names(names: Any, width: int) -> tuple[str, ...]:
    """Return the names of a feature's columns, flattened if grouped; empty unless each column has a distinct name."""
    if isinstance(names, dict):
        names = [name for part in names.values() for name in (part if isinstance(part, list) else [part])]
    if not isinstance(names, list) or len(names) != width or len(set(map(str, names))) != width:
        return ()
    return tuple(map(str, names))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error, "a LeRobot data set") from None
    except ValueError as error:
        raise InputError(f"{path}: is no JSON ({error}); copy the data set again") from None
    if not isinstance(tree, dict):
        raise InputError(f"{path}: holds no object; expected the description of a LeRobot data set")
    return tree


def _recognises(path: Path, head: bytes) -> bool:
    """Return whether a path is a folder with meta/info.json, or that file."""
    if path.is_dir():
        return (path / "meta" / "info.json").is_file()
    return path.name == "info.json" and path.parent.name == "meta"


LEROBOT = LogFormat(
    "a LeRobot data set (v3.0 or v2.1)", _recognises, LerobotSource, times="own", extra=("pyarrow.parquet",)
)
"""LeRobot data sets."""

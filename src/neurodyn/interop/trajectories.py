# SPDX-License-Identifier: Apache-2.0
"""Trajectories as a LeRobot 3.0 data set, or as MCAP files of ROS 2 messages for PlotJuggler, Foxglove and rosbag2."""

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neurodyn.core.artifacts import atomic, atomic_folder
from neurodyn.core.errors import InputError, notice
from neurodyn.core.progress import tracked
from neurodyn.core.provenance import __version__
from neurodyn.data.header import Split
from neurodyn.data.readers.column_map import require_logs
from neurodyn.data.store import Store


def _prepare(store: Store, path: Path, packages: tuple[str, ...], what: str) -> None:
    """Raise an InputError if packages are missing or the path exists; issue a notice about omitted sensors."""
    if store.header.streams:
        names = ", ".join(stream.name for stream in store.header.streams)
        notice(f"{path}: holds joints and controls alone; left out: readings of {names}")
    require_logs(path, packages)
    if path.exists():
        raise InputError(f"{path}: already exists; give another {what}, or remove it")


_DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_EPISODES = "meta/episodes/chunk-000/file-000.parquet"
_FILE_BYTES = 100 << 20
_CHUNK = 1000
_SPLITS = {Split.TRAIN: "train", Split.VALIDATION: "val", Split.TEST: "test"}
_COUNTERS = ("frame_index", "episode_index", "index", "task_index")


def write_lerobot(store: Store, path: Path) -> None:
    """Write a store as a LeRobot data set folder, with episodes ordered by split.

    Raises:
        InputError: The folder exists or cannot be written, or the extra `logs` is not installed.
    """
    _prepare(store, path, ("pyarrow.parquet",), "folder")
    import pyarrow as pa
    import pyarrow.parquet as pq

    order = np.argsort(store.split, kind="stable").tolist()
    statistics = {name: _Statistics() for name in (*_columns(store), "timestamp", *_COUNTERS)}
    rows = {"file": [], "chunk": [], "begin": [], "length": []}
    with atomic_folder(path) as folder:
        index, size, number, writer = 0, 0, -1, None
        try:
            for table in _tables(store, order):
                if writer is None or size > _FILE_BYTES:
                    if writer is not None:
                        writer.close()
                    number, size = number + 1, 0
                    place = _DATA.format(chunk_index=number // _CHUNK, file_index=number % _CHUNK)
                    (folder / place).parent.mkdir(parents=True, exist_ok=True)
                    writer = pq.ParquetWriter(folder / place, table.schema, compression="snappy")
                writer.write_table(table)
                size += table.nbytes
                for column, value in zip(
                    rows.values(), (number % _CHUNK, number // _CHUNK, index, len(table)), strict=True
                ):
                    column.append(value)
                for name, statistic in statistics.items():
                    statistic.add(_values(table, name))
                index += len(table)
        finally:
            if writer is not None:
                writer.close()
        (folder / _EPISODES).parent.mkdir(parents=True)
        task = f"motion of {store.header.robot}"
        pq.write_table(_episodes(rows, task), folder / _EPISODES)
        pandas = {"index_columns": ["task"], "columns": [], "column_indexes": []}
        tasks = pa.table({"task_index": pa.array([0]), "task": [task]}, metadata={"pandas": json.dumps(pandas)})
        pq.write_table(tasks, folder / "meta" / "tasks.parquet")
        (folder / "meta" / "info.json").write_text(json.dumps(_info(store, order, index), indent=4))
        described = {name: statistic.plain() for name, statistic in statistics.items()}
        (folder / "meta" / "stats.json").write_text(json.dumps(described, indent=4))


def _columns(store: Store) -> dict[str, list[str]]:
    spec = store.header.spec
    state = [f"{name}.pos" for name in spec.q_names] + [f"{name}.vel" for name in spec.qd_names]
    kind = {"torque": "effort", "target": "pos", "velocity": "vel", "command": "cmd"}[spec.control_kind]
    names = {"observation.state": state, "action": [f"{name}.{kind}" for name in spec.controls]}
    if spec.nx:
        names["observation.channels"] = [channel.name for channel in spec.channels]
    if spec.nc:
        names["observation.contacts"] = list(spec.contacts)
    if store.reward is not None:
        names["next.reward"] = []
    return {name: columns for name, columns in names.items() if columns or name == "next.reward"}


def _tables(store: Store, order: list[int]) -> Iterator[Any]:
    """Yield the rows of each episode."""
    import pyarrow as pa

    spec, names, index = store.header.spec, _columns(store), 0
    for number, episode in enumerate(tracked(order, "episodes")):
        begin, length = int(store.table["start"][episode]), int(store.table["length"][episode])
        frames = store.frames[begin : begin + length + 1]
        rows = len(frames)
        values = {
            "observation.state": np.concatenate([store.columns("q", frames), store.columns("qd", frames)], axis=1),
            "action": store.columns("control", frames).copy(),
            "observation.channels": store.columns("channel", frames),
            "observation.contacts": store.columns("contact", frames),
        }
        if length:
            values["action"][-1] = values["action"][-2]
        arrays = {
            name: pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values[name]).ravel()), len(columns))
            for name, columns in names.items()
            if columns
        }
        if "next.reward" in names:
            assert store.reward is not None
            arrays["next.reward"] = pa.array(store.reward[begin : begin + rows])
        frame = np.arange(rows)
        arrays["timestamp"] = pa.array((frame * spec.dt).astype(np.float32))
        counters = (frame, np.full(rows, number), index + frame, np.zeros(rows))
        arrays |= {name: pa.array(c.astype(np.int64)) for name, c in zip(_COUNTERS, counters, strict=True)}
        index += rows
        yield pa.table(arrays)


def _values(table: Any, name: str) -> np.ndarray:
    """Return a column as an array of shape [rows, columns]."""
    column = table.column(name).combine_chunks()
    numbers = column.flatten() if hasattr(column.type, "list_size") else column
    return numbers.to_numpy(zero_copy_only=False).reshape(len(table), -1).astype(np.float64)


def _episodes(rows: dict[str, list[int]], task: str) -> Any:
    import pyarrow as pa

    begin, length = np.asarray(rows["begin"]), np.asarray(rows["length"])
    return pa.table(
        {
            "episode_index": np.arange(len(begin)),
            "data/chunk_index": rows["chunk"],
            "data/file_index": rows["file"],
            "dataset_from_index": begin,
            "dataset_to_index": begin + length,
            "tasks": [[task]] * len(begin),
            "length": length,
            "meta/episodes/chunk_index": np.zeros(len(begin), int),
            "meta/episodes/file_index": np.zeros(len(begin), int),
        }
    )


def _info(store: Store, order: list[int], rows: int) -> dict[str, Any]:
    """Return the data set's metadata."""
    rate = 1.0 / store.header.spec.dt
    fps = round(rate) if abs(rate - round(rate)) < 1e-6 * rate else rate
    counts = [(name, int((store.split[order] == split).sum())) for split, name in _SPLITS.items()]
    splits, begin = {}, 0
    for name, count in counts:
        if count:
            splits[name] = f"{begin}:{begin + count}"
        begin += count
    features: dict[str, Any] = {
        name: {"dtype": "float32", "shape": [max(1, len(columns))], "names": columns or None}
        for name, columns in _columns(store).items()
    }
    features["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
    features |= {name: {"dtype": "int64", "shape": [1], "names": None} for name in _COUNTERS}
    return {
        "codebase_version": "v3.0",
        "robot_type": store.header.robot,
        "total_episodes": len(order),
        "total_frames": rows,
        "total_tasks": 1,
        "chunks_size": _CHUNK,
        "data_files_size_in_mb": _FILE_BYTES >> 20,
        "video_files_size_in_mb": 200,
        "fps": fps,
        "splits": splits,
        "data_path": _DATA,
        "video_path": None,
        "features": features,
    }


class _Statistics:
    """Moments of a feature over all rows."""

    def __init__(self) -> None:
        self._count, self._sum, self._square = 0, np.zeros(1), np.zeros(1)
        self._least, self._most = np.full(1, np.inf), np.full(1, -np.inf)

    def add(self, values: np.ndarray) -> None:
        self._count += len(values)
        self._sum, self._square = self._sum + values.sum(axis=0), self._square + (values**2).sum(axis=0)
        self._least = np.minimum(self._least, values.min(axis=0))
        self._most = np.maximum(self._most, values.max(axis=0))

    def plain(self) -> dict[str, list[float]]:
        mean = self._sum / self._count
        deviation = np.sqrt(np.maximum(self._square / self._count - mean**2, 0.0))
        arrays = {"min": self._least, "max": self._most, "mean": mean, "std": deviation}
        return {**{name: array.tolist() for name, array in arrays.items()}, "count": [self._count]}


STATES, COMMANDS = "/joint_states", "/joint_commands"
"""Topics of joints."""

_START = 1_000_000_000
_PAUSE = 1.0
_HEADER = "std_msgs/Header header\n"
_RULE = "=" * 80 + "\n"
_STAMP = f"""{_RULE}MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
{_RULE}MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
_VECTOR = "{0}MSG: geometry_msgs/{1}\nfloat64 x\nfloat64 y\nfloat64 z\n"
_TYPES = {
    "sensor_msgs/msg/JointState": _HEADER
    + "string[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n"
    + _STAMP,
    "geometry_msgs/msg/PoseStamped": _HEADER
    + f"geometry_msgs/Pose pose\n{_RULE}MSG: geometry_msgs/Pose\ngeometry_msgs/Point position\n"
    + f"geometry_msgs/Quaternion orientation\n{_VECTOR.format(_RULE, 'Point')}"
    + f"{_RULE}MSG: geometry_msgs/Quaternion\nfloat64 x\nfloat64 y\nfloat64 z\nfloat64 w\n"
    + _STAMP,
    "geometry_msgs/msg/TwistStamped": _HEADER
    + f"geometry_msgs/Twist twist\n{_RULE}MSG: geometry_msgs/Twist\ngeometry_msgs/Vector3 linear\n"
    + f"geometry_msgs/Vector3 angular\n{_VECTOR.format(_RULE, 'Vector3')}"
    + _STAMP,
}


def write_mcap(store: Store, path: Path) -> None:
    """Write a store as one MCAP file; errors: see `write_lerobot`."""
    _prepare(store, path, ("mcap", "zstandard"), "file")
    from mcap.writer import CompressionType, Writer

    with atomic(path) as partial, partial.open("wb") as file:
        writer = Writer(file, compression=CompressionType.ZSTD)
        writer.start(profile="ros2", library=f"neurodyn {__version__}")
        spec = store.header.spec
        described = {"robot": spec.robot, "dt": repr(spec.dt), "source": store.header.source}
        writer.add_metadata("neurodyn", described | {"control": spec.control_kind})
        _Episodes(store, writer).write()
        writer.finish()


class _Episodes:
    """The messages of a store."""

    def __init__(self, store: Store, writer: Any) -> None:
        self._store, self._writer = store, writer
        self._schemas: dict[str, int] = {}
        self._channels: dict[str, int] = {}
        spec = store.header.spec
        self._scalar = [joint.name for joint in spec.joints if joint.scalar]
        self._floating = [(j, p) for j, p in zip(spec.joints, spec.places, strict=True) if not j.scalar]
        self._q = [spec.q_names.index(name) for name in self._scalar]
        self._qd = [spec.qd_names.index(name) for name in self._scalar]
        kinds = ("target", "velocity", "torque")  # JointState has no field for actuator commands
        self._command = 0 if spec.control_kind == "command" else kinds.index(spec.control_kind)

    def write(self) -> None:
        """Write all messages in time order."""
        store, spec, start = self._store, self._store.header.spec, _START
        for episode in tracked(range(len(store.table)), "episodes"):
            begin, length = int(store.table["start"][episode]), int(store.table["length"][episode])
            frames = store.frames[begin : begin + length + 1]
            q, qd, control = (store.columns(name, frames).astype(np.float64) for name in ("q", "qd", "control"))
            for frame in range(length + 1):
                time = start + round(frame * spec.dt * 1e9)
                if self._scalar:
                    self._joints(STATES, time, self._scalar, (q[frame, self._q], qd[frame, self._qd], None))
                for joint, place in self._floating:
                    position = q[frame, place.q][:3] if joint.kind == "free" else np.zeros(3)
                    linear = qd[frame, place.linear] if joint.kind == "free" else np.zeros(3)
                    pose = np.concatenate((position, q[frame, place.quaternion]))
                    self._numbers(f"/{joint.name}/pose", "geometry_msgs/msg/PoseStamped", time, pose)
                    twist = np.concatenate((linear, qd[frame, place.angular]))
                    self._numbers(f"/{joint.name}/twist", "geometry_msgs/msg/TwistStamped", time, twist)
                if frame < length and spec.nu:
                    given = [control[frame] if kind == self._command else None for kind in range(3)]
                    self._joints(COMMANDS, time, list(spec.controls), given)
            start += round((length * spec.dt + max(_PAUSE, 20 * spec.dt)) * 1e9)

    def _joints(self, topic: str, time: int, names: list[str], values: Sequence[np.ndarray | None]) -> None:
        message = _Cdr(time, "")
        message.names(names)
        for numbers in values:
            message.sequence(numbers)
        self._send(topic, "sensor_msgs/msg/JointState", time, message)

    def _numbers(self, topic: str, kind: str, time: int, values: np.ndarray) -> None:
        message = _Cdr(time, "world")
        message.numbers(values)
        self._send(topic, kind, time, message)

    def _send(self, topic: str, kind: str, time: int, message: "_Cdr") -> None:
        if topic not in self._channels:
            if kind not in self._schemas:
                self._schemas[kind] = self._writer.register_schema(kind, "ros2msg", _TYPES[kind].encode())
            self._channels[topic] = self._writer.register_channel(topic, "cdr", self._schemas[kind])
        self._writer.add_message(self._channels[topic], time, bytes(message.content), time)


class _Cdr:
    """A message in little-endian CDR that starts with a header."""

    def __init__(self, time: int, frame: str) -> None:
        self.content = bytearray(b"\x00\x01\x00\x00")
        self.content += struct.pack("<iI", *divmod(time, 1_000_000_000))
        self._text(frame)

    def names(self, names: list[str]) -> None:
        self._align(4)
        self.content += struct.pack("<I", len(names))
        for name in names:
            self._text(name)

    def sequence(self, values: np.ndarray | None) -> None:
        """Append an array of doubles with its length; None is empty."""
        self._align(4)
        self.content += struct.pack("<I", 0 if values is None else len(values))
        if values is not None and len(values):
            self.numbers(values)

    def numbers(self, values: np.ndarray) -> None:
        self._align(8)
        self.content += np.asarray(values, "<f8").tobytes()

    def _text(self, text: str) -> None:
        self._align(4)
        encoded = text.encode() + b"\0"
        self.content += struct.pack("<I", len(encoded)) + encoded

    def _align(self, size: int) -> None:
        self.content += bytes(-(len(self.content) - 4) % size)

# SPDX-License-Identifier: Apache-2.0
"""Writing trajectories as an MCAP file with messages of ROS 2, which PlotJuggler, Foxglove and rosbag2 open.

Positions and velocities of joints are on /joint_states, controls on /joint_commands: efforts, or positions where they
are targets. A floating joint NAME is on /NAME/pose and /NAME/twist, the velocity that of the centre of mass in world
axes. Episodes follow each other with a pause between them.
"""

import struct
from pathlib import Path
from typing import Any

import numpy as np

from neurodyn.core.artifacts import atomic
from neurodyn.core.errors import InputError
from neurodyn.core.progress import tracked
from neurodyn.data.readers.formats import require_logs
from neurodyn.data.store import Store
from neurodyn.data.writers.left_out import note_left_out
from neurodyn.version import __version__

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
    """Write the trajectories of a store as one MCAP file.

    Raises:
        InputError: The file is there already, cannot be written, or the extra `logs` is not installed.
    """
    note_left_out(store, path)
    require_logs(path, ("mcap", "zstandard"))
    if path.exists():
        raise InputError(f"{path}: is there already; give a file that is not, or remove it")
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
        self._command = ("target", "velocity", "torque").index(spec.control_kind)

    def write(self) -> None:
        """Write all messages in the order of time."""
        store, spec, start = self._store, self._store.header.spec, _START
        for episode in tracked(range(len(store.table)), "episodes"):
            begin, length = int(store.table["start"][episode]), int(store.table["length"][episode])
            frames = store.frames[begin : begin + length + 1]
            q, qd, control = (store.columns(name, frames).astype(np.float64) for name in ("q", "qd", "control"))
            for frame in range(length + 1):
                time = start + round(frame * spec.dt * 1e9)
                if self._scalar:
                    self._joints(STATES, time, self._scalar, q[frame, self._q], qd[frame, self._qd], None)
                for joint, place in self._floating:
                    position = q[frame, place.q][:3] if joint.kind == "free" else np.zeros(3)
                    linear = qd[frame, place.linear] if joint.kind == "free" else np.zeros(3)
                    pose = np.concatenate((position, q[frame, place.quaternion]))
                    self._numbers(f"/{joint.name}/pose", "geometry_msgs/msg/PoseStamped", time, pose)
                    twist = np.concatenate((linear, qd[frame, place.angular]))
                    self._numbers(f"/{joint.name}/twist", "geometry_msgs/msg/TwistStamped", time, twist)
                if frame < length and spec.nu:
                    given = [control[frame] if kind == self._command else None for kind in range(3)]
                    self._joints(COMMANDS, time, list(spec.controls), given[0], given[1], given[2])
            start += round((length * spec.dt + max(_PAUSE, 20 * spec.dt)) * 1e9)

    def _joints(
        self,
        topic: str,
        time: int,
        names: list[str],
        position: np.ndarray | None,
        velocity: np.ndarray | None,
        effort: np.ndarray | None,
    ) -> None:
        message = _Cdr(time, "")
        message.names(names)
        for values in (position, velocity, effort):
            message.sequence(values)
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
    """A message in CDR, little-endian, that begins with a header."""

    def __init__(self, time: int, frame: str) -> None:
        self.content = bytearray(b"\x00\x01\x00\x00")
        self.content += struct.pack("<iI", *divmod(time, 1_000_000_000))
        self._text(frame)

    def names(self, names: list[str]) -> None:
        """Add an array of texts."""
        self._align(4)
        self.content += struct.pack("<I", len(names))
        for name in names:
            self._text(name)

    def sequence(self, values: np.ndarray | None) -> None:
        """Add an array of any length of doubles; None is empty."""
        self._align(4)
        self.content += struct.pack("<I", 0 if values is None else len(values))
        if values is not None and len(values):
            self.numbers(values)

    def numbers(self, values: np.ndarray) -> None:
        """Add doubles."""
        self._align(8)
        self.content += np.asarray(values, "<f8").tobytes()

    def _text(self, text: str) -> None:
        self._align(4)
        encoded = text.encode() + b"\0"
        self.content += struct.pack("<I", len(encoded)) + encoded

    def _align(self, size: int) -> None:
        self.content += bytes(-(len(self.content) - 4) % size)

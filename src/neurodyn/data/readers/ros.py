# SPDX-License-Identifier: Apache-2.0
"""ROS messages: parser for their definitions, and layout of the numbers in serialised messages (CDR and ROS 1)."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from neurodyn.core.errors import InputError

PRIMITIVES = {
    "bool": "u1", "byte": "u1", "char": "u1", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2",
    "int32": "i4", "uint32": "u4", "int64": "i8", "uint64": "u8", "float32": "f4", "float64": "f8",
}  # fmt: skip
"""numpy dtype of each numeric type."""

_USUAL = """
builtin_interfaces/Time: int32 sec; uint32 nanosec
builtin_interfaces/Duration: int32 sec; uint32 nanosec
std_msgs/Header: builtin_interfaces/Time stamp; string frame_id
std_msgs/Float64: float64 data
std_msgs/Float32: float32 data
std_msgs/MultiArrayDimension: string label; uint32 size; uint32 stride
std_msgs/MultiArrayLayout: std_msgs/MultiArrayDimension[] dim; uint32 data_offset
std_msgs/Float64MultiArray: std_msgs/MultiArrayLayout layout; float64[] data
std_msgs/Float32MultiArray: std_msgs/MultiArrayLayout layout; float32[] data
geometry_msgs/Vector3: float64 x; float64 y; float64 z
geometry_msgs/Point: float64 x; float64 y; float64 z
geometry_msgs/Quaternion: float64 x; float64 y; float64 z; float64 w
geometry_msgs/Pose: geometry_msgs/Point position; geometry_msgs/Quaternion orientation
geometry_msgs/PoseStamped: std_msgs/Header header; geometry_msgs/Pose pose
geometry_msgs/PoseWithCovariance: geometry_msgs/Pose pose; float64[36] covariance
geometry_msgs/PoseWithCovarianceStamped: std_msgs/Header header; geometry_msgs/PoseWithCovariance pose
geometry_msgs/Twist: geometry_msgs/Vector3 linear; geometry_msgs/Vector3 angular
geometry_msgs/TwistStamped: std_msgs/Header header; geometry_msgs/Twist twist
geometry_msgs/TwistWithCovariance: geometry_msgs/Twist twist; float64[36] covariance
geometry_msgs/Wrench: geometry_msgs/Vector3 force; geometry_msgs/Vector3 torque
geometry_msgs/WrenchStamped: std_msgs/Header header; geometry_msgs/Wrench wrench
geometry_msgs/Transform: geometry_msgs/Vector3 translation; geometry_msgs/Quaternion rotation
geometry_msgs/TransformStamped: std_msgs/Header header; string child_frame_id; geometry_msgs/Transform transform
nav_msgs/Odometry: std_msgs/Header header; string child_frame_id; geometry_msgs/PoseWithCovariance pose; \
geometry_msgs/TwistWithCovariance twist
sensor_msgs/JointState: std_msgs/Header header; string[] name; float64[] position; float64[] velocity; float64[] effort
sensor_msgs/Imu: std_msgs/Header header; geometry_msgs/Quaternion orientation; float64[9] orientation_covariance; \
geometry_msgs/Vector3 angular_velocity; float64[9] angular_velocity_covariance; \
geometry_msgs/Vector3 linear_acceleration; float64[9] linear_acceleration_covariance
trajectory_msgs/JointTrajectoryPoint: float64[] positions; float64[] velocities; float64[] accelerations; \
float64[] effort; builtin_interfaces/Duration time_from_start
trajectory_msgs/JointTrajectory: std_msgs/Header header; string[] joint_names; \
trajectory_msgs/JointTrajectoryPoint[] points
"""


@dataclass(frozen=True)
class MessageField:
    """Field of a message; `count` is the length of a fixed array, -1 for any length, None for a single value."""

    kind: str
    name: str
    count: int | None = None


Definitions = dict[str, tuple[MessageField, ...]]
"""Fields of each message type, by "package/Type"."""


@cache
def usual() -> Definitions:
    """Return the definitions of common ROS 2 messages."""
    found: Definitions = {}
    for line in _USUAL.replace("\\\n", "").strip().splitlines():
        kind, _, fields = line.partition(": ")
        found[kind] = tuple(_field(text, kind) for text in fields.split("; "))
    return found


@cache
def usual_ros1() -> Definitions:
    """Return the definitions of common ROS 1 messages, whose headers have a sequence number."""
    header = (MessageField("uint32", "seq"), MessageField("time", "stamp"), MessageField("string", "frame_id"))
    return {**usual(), "std_msgs/Header": header}


def short_name(kind: str) -> str:
    """Shorten "package/msg/Type" to "package/Type"."""
    parts = kind.split("/")
    return f"{parts[0]}/{parts[-1]}"


def parse_definitions(kind: str, text: str) -> Definitions:
    """Parse a bag's definition of a type "package/msg/Type" and of the types after it, separated by lines of "=".

    Raises:
        InputError: The text is malformed, or refers to an unknown type.
    """
    found: Definitions = {}
    for index, part in enumerate(re.split(r"^={20,}\s*$", text, flags=re.MULTILINE)):
        lines = part.strip().splitlines()
        name = short_name(kind)
        if index:
            match = re.match(r"MSG:\s*(\S+)", lines[0]) if lines else None
            if match is None:
                raise InputError(f"the definition of {kind} is malformed; expected lines 'MSG: package/Type'")
            name, lines = short_name(match[1]), lines[1:]
        fields = [line.split("#")[0].strip() for line in lines]
        found[name] = tuple(_field(line, name) for line in fields if line and "=" not in _without_default(line))
    for name, fields in list(found.items()):
        for field in fields:
            _require(field.kind, name, found)
    return found


def _require(kind: str, of: str, found: Definitions) -> None:
    """Add the common definitions that a bag uses but omits."""
    if kind in PRIMITIVES or kind in {"string", "time", "duration"} or kind in found:
        return
    if kind not in usual():
        raise InputError(f"the definition of {of} refers to {kind}, which the file does not define")
    found[kind] = usual()[kind]
    for field in found[kind]:
        _require(field.kind, kind, found)


def _without_default(line: str) -> str:
    """Return type and name of a field, without a default; the value of a constant is kept."""
    words = line.split(None, 2)
    bounded = words[0].replace("<=", "")  # string<=10 is a type
    return " ".join((bounded, words[1] if len(words) > 1 else "", words[2][:1] if len(words) > 2 else ""))


def _field(line: str, inside: str) -> MessageField:
    words = line.split()
    match = re.fullmatch(r"([\w/]+)(?:<=\d+)?(?:\[(<=)?(\d*)\])?", words[0])
    if match is None or len(words) < 2:
        raise InputError(f"the definition of {inside} has the field {line!r}; expected 'type name'")
    kind = match[1]
    if kind == "Header":
        kind = "std_msgs/Header"
    elif kind not in PRIMITIVES and kind not in {"string", "time", "duration", "wstring"}:
        kind = short_name(kind) if "/" in kind else f"{inside.split('/')[0]}/{kind}"
    count = None if "[" not in words[0] else (int(match[3]) if match[3] and not match[2] else -1)
    return MessageField(kind, words[1], count)


_NAMES = ("name", "names", "joint_names")
"""String fields that name the values of the arrays beside and below them."""

_MOST_STRUCTS = 4096
_MOST_NUMBERS = 1024
"""Length above which an array (an image, for example) is not read as columns."""


@dataclass(frozen=True)
class Numbers:
    """Contiguous numbers in a message: names such as "position[elbow]", first byte, and dtype."""

    names: tuple[str, ...]
    offset: int
    dtype: np.dtype


@dataclass(frozen=True)
class MessageLayout:
    """Byte layout of the numbers in a message.

    The bytes at `places`, shape [B], have the same `values` in every message of this layout: lengths and names of
    joints. `stamp` is the offset of seconds and nanoseconds in the header, None without a header; `order` is the byte
    order, "<" or ">".
    """

    numbers: tuple[Numbers, ...]
    places: np.ndarray
    values: np.ndarray
    stamp: int | None
    order: str


def find_layout(message: bytes, kind: str, definitions: Definitions, *, ros1: bool = False) -> MessageLayout:
    """Find the layout of a message of type "package/msg/Type", or raise an InputError if it does not fit."""
    walk = _Walk(message, definitions, ros1)
    try:
        walk.struct(short_name(kind), "", ())
    except (struct.error, UnicodeDecodeError, OverflowError):
        raise InputError(f"a message of {len(message)} bytes does not fit the definition of {kind}") from None
    places = np.concatenate([np.arange(part.start, part.stop) for part in walk.fixed] or [np.zeros(0, int)])
    values = np.frombuffer(message, np.uint8)[places]
    return MessageLayout(tuple(walk.numbers), places, values, walk.stamp, walk.order)


class _Walk:
    """One pass through a message."""

    def __init__(self, message: bytes, definitions: Definitions, ros1: bool) -> None:
        self.message, self.definitions, self.ros1 = message, definitions, ros1
        self.numbers: list[Numbers] = []
        self.fixed: list[slice] = []
        self.stamp: int | None = None
        self.order = "<"
        self.at = self.origin = 0
        self.widest, self.structs = 1, 0
        if not ros1:
            if len(message) < 4 or message[0] != 0 or message[1] not in (0, 1, 6, 7):
                raise InputError(f"a message of {len(message)} bytes is not serialised as CDR")
            self.order = "<" if message[1] & 1 else ">"
            self.at = self.origin = 4
            self.widest = 4 if message[1] >= 6 else 8  # XCDR2 aligns to 4 bytes at most

    def struct(self, kind: str, path: str, names: Sequence[str]) -> None:
        """Walk through one struct; `names` label the values of its arrays."""
        self.structs += 1
        if self.structs > _MOST_STRUCTS:
            raise InputError(f"a message holds more than {_MOST_STRUCTS} structures; expected a type for few numbers")
        for part in self.definitions[kind]:
            label = f"{path}.{part.name}" if path else part.name
            if part.kind == "std_msgs/Header" and not path and part.count is None:
                self._header(label)
            elif part.kind == "string":
                texts = self._strings(part, named=part.name in _NAMES)
                names = texts if part.name in _NAMES and part.count is not None else names
            elif part.kind in PRIMITIVES:
                self._numbers(part, label, names)
            elif part.kind in {"time", "duration"}:
                self._pair(part, label)
            elif part.kind not in self.definitions:
                raise InputError(f"a field of type {part.kind} cannot be read")
            else:
                for index in range(self._count(part)):
                    self.struct(part.kind, label if part.count is None else f"{label}[{index}]", names)

    def _header(self, label: str) -> None:
        first = len(self.numbers)
        self.struct("std_msgs/Header", label, ())
        stamps = [n.offset for n in self.numbers[first:] if n.names[0].startswith(f"{label}.stamp.sec")]
        self.stamp = stamps[0] if stamps else None
        del self.numbers[first:]

    def _pair(self, part: MessageField, label: str) -> None:
        for index in range(self._count(part)):
            place = label if part.count is None else f"{label}[{index}]"
            for name in ("secs", "nsecs"):
                self.numbers.append(Numbers((f"{place}.{name}",), self.at, np.dtype(self.order + "u4")))
                self._skip(4)

    def _numbers(self, part: MessageField, label: str, names: Sequence[str]) -> None:
        dtype = np.dtype(self.order + PRIMITIVES[part.kind])
        count = self._count(part)
        if not count:
            return
        self._align(dtype.itemsize)
        if count > _MOST_NUMBERS:
            self._skip(count * dtype.itemsize)
            return
        if part.count is None:
            keys: tuple[str, ...] = (label,)
        else:
            keys = tuple(f"{label}[{key}]" for key in (names if len(names) == count else range(count)))
        self.numbers.append(Numbers(keys, self.at, dtype))
        self._skip(count * dtype.itemsize)

    def _strings(self, part: MessageField, *, named: bool) -> list[str]:
        texts = []
        for _ in range(self._count(part)):
            self._align(4)
            begin, length = self.at, self._length()
            text = self.message[self.at : self.at + length]
            self._skip(length)
            self.fixed.append(slice(begin, self.at if named else begin + 4))
            texts.append(text.rstrip(b"\0").decode() if named else "")
        return texts

    def _count(self, part: MessageField) -> int:
        if part.count is None:
            return 1
        if part.count >= 0:
            return part.count
        self._align(4)
        begin, count = self.at, self._length()
        self.fixed.append(slice(begin, begin + 4))
        if count > len(self.message):
            raise InputError(f"a message of {len(self.message)} bytes says that {part.name!r} has {count} values")
        return count

    def _length(self) -> int:
        (value,) = struct.unpack_from(self.order + "I", self.message, self.at)
        self.at += 4
        return value

    def _align(self, size: int) -> None:
        if not self.ros1:
            self.at += -(self.at - self.origin) % min(size, self.widest)

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.message):
            raise struct.error("the message ends")


@dataclass(frozen=True)
class Decoded:
    """Numbers in messages of one layout: indices [N], float64 columns by name [N], and header times [ns], int64 [N]."""

    index: np.ndarray
    columns: dict[str, np.ndarray]
    stamp: np.ndarray | None


class Decoder:
    """Decodes the messages of one stream, and caches their layouts."""

    def __init__(self, kind: str, definitions: Definitions, *, ros1: bool = False) -> None:
        self._kind, self._definitions, self._ros1 = kind, definitions, ros1
        self._layouts: dict[int, list[MessageLayout]] = {}

    def decode(self, messages: Sequence[bytes], wanted: frozenset[str] | None = None) -> list[Decoded]:
        """Return the selected columns (None: all) of messages, grouped by layout; an InputError if one does not fit."""
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        return [
            part
            for length in np.unique(lengths).tolist()
            for part in self._of_length(messages, np.flatnonzero(lengths == length), length, wanted)
        ]

    def _of_length(
        self, messages: Sequence[bytes], index: np.ndarray, length: int, wanted: frozenset[str] | None
    ) -> list[Decoded]:
        content = b"".join([messages[i] for i in index.tolist()])
        rows = np.frombuffer(content, np.uint8).reshape(len(index), length)
        known, left, parts = self._layouts.setdefault(length, []), np.arange(len(index)), []
        tried = 0
        while len(left):
            if tried == len(known):
                known.append(find_layout(rows[left[0]].tobytes(), self._kind, self._definitions, ros1=self._ros1))
            layout, tried = known[tried], tried + 1
            same = (rows[np.ix_(left, layout.places)] == layout.values).all(axis=1)
            if same.any():
                chosen = rows if same.all() and len(left) == len(rows) else rows[left[same]]
                parts.append(_decoded(layout, chosen, index[left[same]], wanted))
                left = left[~same]
        return parts


def _decoded(layout: MessageLayout, rows: np.ndarray, index: np.ndarray, wanted: frozenset[str] | None) -> Decoded:
    """Read the numbers of messages of one layout; `rows` holds their bytes."""
    columns: dict[str, np.ndarray] = {}
    for numbers in layout.numbers:
        if wanted is None or not wanted.isdisjoint(numbers.names):
            size = len(numbers.names) * numbers.dtype.itemsize
            block = np.ascontiguousarray(rows[:, numbers.offset : numbers.offset + size]).view(numbers.dtype)
            columns |= {
                name: block[:, place].astype(np.float64)
                for place, name in enumerate(numbers.names)
                if wanted is None or name in wanted
            }
    stamp = None
    if layout.stamp is not None:
        both = np.ascontiguousarray(rows[:, layout.stamp : layout.stamp + 8]).view(layout.order + "u4").astype(np.int64)
        stamp = both[:, 0] * 1_000_000_000 + both[:, 1]
    return Decoded(index, columns, stamp)

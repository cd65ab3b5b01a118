# SPDX-License-Identifier: Apache-2.0
"""Layout of the numbers in serialised ROS messages (CDR and ROS 1), by the definitions of `rosbags`.

Messages of one layout are decoded together, as columns: 980,000 messages of 12 joints a second, where rosbags' own
deserialiser, which makes an object of each, reaches 65,000.
"""

import keyword
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from neurodyn.core.errors import InputError

PRIMITIVES = {
    "bool": "u1", "byte": "u1", "char": "u1", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2",
    "int32": "i4", "uint32": "u4", "int64": "i8", "uint64": "u8", "float32": "f4", "float64": "f8",
}  # fmt: skip
"""numpy dtype of each numeric type."""

_HEADER = "std_msgs/msg/Header"
_TIMES = ("builtin_interfaces/msg/Time", "builtin_interfaces/msg/Duration")
_ROS1_TIMES = {"sec": "secs", "nanosec": "nsecs"}


@dataclass(frozen=True)
class MessageField:
    """Field of a message; `count` is the length of a fixed array, -1 for any length, None for a single value."""

    kind: str
    name: str
    count: int | None = None


Definitions = dict[str, tuple[MessageField, ...]]
"""Fields of each message type, by "package/msg/Type"."""


def full_name(kind: str) -> str:
    """Return "package/msg/Type" for "package/Type", as ROS 1 has it."""
    return kind.replace("/", "/msg/") if kind.count("/") == 1 else kind


def message_definitions(kind: str, text: str = "", *, ros1: bool = False) -> Definitions:
    """Return the fields of a message type and of all types in it.

    Args:
        kind: The type, "package/msg/Type".
        text: Its .msg definition, and those of the types in it, as bags have them; without one, the type must be among
            the common ones of ROS 2 Humble or ROS 1 Noetic.
        ros1: Whether times and headers are those of ROS 1.

    Raises:
        InputError: The text is malformed, or refers to an unknown type.
    """
    from rosbags.typesys import TypesysError, get_types_from_msg

    kind = full_name(kind)
    own: dict[str, Any] = {}
    if text.strip():
        try:
            own = get_types_from_msg(text, kind)
        except TypesysError as error:
            raise InputError(f"the definition of {kind} is malformed ({str(error).splitlines()[0]})") from None
    elif kind not in _common(ros1):
        raise InputError(
            f"has the type {kind} with no definition; valid: a bag with .msg definitions, or a common type, such as "
            "sensor_msgs/msg/JointState"
        )
    definitions: Definitions = {}
    missing = [(kind, kind)]
    while missing:
        name, inside = missing.pop()
        if name in definitions or name in PRIMITIVES or "/" not in name:
            continue
        fields = own.get(name) or _common(ros1).get(name)
        if fields is None:
            raise InputError(f"the definition of {inside} refers to {name}, which the file does not define")
        definitions[name] = tuple(_field(*field) for field in fields[1])
        missing += [(field.kind, name) for field in definitions[name]]
    return definitions


@cache
def _common(ros1: bool) -> dict[str, Any]:
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS1_NOETIC if ros1 else Stores.ROS2_HUMBLE).fielddefs


def _field(name: str, description: Any) -> MessageField:
    from rosbags.interfaces import Nodetype

    (node, what), count = description, None
    if node in (Nodetype.ARRAY, Nodetype.SEQUENCE):
        count = what[1] if node == Nodetype.ARRAY else -1
        node, what = what[0]
    if keyword.iskeyword(name[:-1]) and name.endswith("_"):  # as rosbags renames it
        name = name[:-1]
    return MessageField(what[0] if node == Nodetype.BASE else what, name, count)


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
        walk.struct(full_name(kind), "", ())
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
            name = _ROS1_TIMES.get(part.name, part.name) if self.ros1 and kind in _TIMES else part.name
            label = f"{path}.{name}" if path else name
            if part.kind == _HEADER and not path and part.count is None:
                self._header(label)
            elif part.kind == "string":
                texts = self._strings(part, named=part.name in _NAMES)
                names = texts if part.name in _NAMES and part.count is not None else names
            elif part.kind in PRIMITIVES:
                self._numbers(part, label, names)
            elif part.kind not in self.definitions:
                raise InputError(f"a field of type {part.kind} cannot be read")
            else:
                for index in range(self._count(part)):
                    self.struct(part.kind, label if part.count is None else f"{label}[{index}]", names)

    def _header(self, label: str) -> None:
        first = len(self.numbers)
        self.struct(_HEADER, label, ())
        stamps = [n.offset for n in self.numbers[first:] if n.names[0].startswith(f"{label}.stamp.sec")]
        self.stamp = stamps[0] if stamps else None
        del self.numbers[first:]

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
                parts.append(_decode_rows(layout, chosen, index[left[same]], wanted))
                left = left[~same]
        return parts


def _decode_rows(layout: MessageLayout, rows: np.ndarray, index: np.ndarray, wanted: frozenset[str] | None) -> Decoded:
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

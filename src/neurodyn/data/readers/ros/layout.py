# SPDX-License-Identifier: Apache-2.0
"""The numbers in serialised ROS messages: CDR (ROS 2) and the format of ROS 1, many messages at once.

Messages of one stream mostly have the same layout: numbers at the same offsets. The layout is found by walking through
one of them. All messages that have the same lengths of arrays and the same names of joints at the same offsets are then
read as one array of bytes.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.data.readers.ros.definitions import PRIMITIVES, Definitions, Field, short_name

_NAMES = ("name", "names", "joint_names")
"""Fields whose texts name the values of the arrays beside and below them."""

_MOST_STRUCTS = 4096
_MOST_NUMBERS = 1024
"""Length from which an array is no table of columns but a picture, say, and left out."""


@dataclass(frozen=True)
class Numbers:
    """Numbers that lie side by side in a message.

    Attributes:
        names: Name of each, as in "position[elbow]".
        offset: First byte.
        dtype: Type of each.
    """

    names: tuple[str, ...]
    offset: int
    dtype: np.dtype


@dataclass(frozen=True)
class Layout:
    """Where the numbers of a message are.

    Attributes:
        numbers: The numbers, in order.
        places: Bytes that are equal in every message of this layout: of lengths, and of names of joints, shape [B].
        values: Their values, shape [B].
        stamp: Offset of seconds and nanoseconds in the header; None without one.
        order: "<" or ">", the order of the bytes of a number.
    """

    numbers: tuple[Numbers, ...]
    places: np.ndarray
    values: np.ndarray
    stamp: int | None
    order: str


def find_layout(message: bytes, kind: str, definitions: Definitions, *, ros1: bool = False) -> Layout:
    """Walk through a message.

    Args:
        message: The serialised message.
        kind: Its type, "package/msg/Type".
        definitions: Definitions of that type and of those in it.
        ros1: Whether it is serialised as in ROS 1.

    Raises:
        InputError: The message does not fit the definition.
    """
    walk = _Walk(message, definitions, ros1)
    try:
        walk.struct(short_name(kind), "", ())
    except (struct.error, UnicodeDecodeError, OverflowError):
        raise InputError(f"a message of {len(message)} bytes does not fit the definition of {kind}") from None
    places = np.concatenate([np.arange(part.start, part.stop) for part in walk.fixed] or [np.zeros(0, int)])
    values = np.frombuffer(message, np.uint8)[places]
    return Layout(tuple(walk.numbers), places, values, walk.stamp, walk.order)


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
        """Walk through one struct; `names` are those of the values in its arrays."""
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

    def _pair(self, part: Field, label: str) -> None:
        for index in range(self._count(part)):
            place = label if part.count is None else f"{label}[{index}]"
            for name in ("secs", "nsecs"):
                self.numbers.append(Numbers((f"{place}.{name}",), self.at, np.dtype(self.order + "u4")))
                self._skip(4)

    def _numbers(self, part: Field, label: str, names: Sequence[str]) -> None:
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

    def _strings(self, part: Field, *, named: bool) -> list[str]:
        texts = []
        for _ in range(self._count(part)):
            self._align(4)
            begin, length = self.at, self._length()
            text = self.message[self.at : self.at + length]
            self._skip(length)
            self.fixed.append(slice(begin, self.at if named else begin + 4))
            texts.append(text.rstrip(b"\0").decode() if named else "")
        return texts

    def _count(self, part: Field) -> int:
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
    """Numbers of some messages of one layout.

    Attributes:
        index: Which of the messages they are, shape [N].
        columns: Values by name, float64, shape [N].
        stamp: Time in the header [ns], int64, shape [N]; None without one.
    """

    index: np.ndarray
    columns: dict[str, np.ndarray]
    stamp: np.ndarray | None


class Decoder:
    """Decodes the messages of one stream, and remembers the layouts that it met."""

    def __init__(self, kind: str, definitions: Definitions, *, ros1: bool = False) -> None:
        self._kind, self._definitions, self._ros1 = kind, definitions, ros1
        self._layouts: dict[int, list[Layout]] = {}

    def decode(self, messages: Sequence[bytes], wanted: frozenset[str] | None = None) -> list[Decoded]:
        """Return the numbers of some messages, by layout.

        Args:
            messages: Serialised messages.
            wanted: Names of the columns to return; None for all.

        Raises:
            InputError: A message does not fit the definition.
        """
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


def _decoded(layout: Layout, rows: np.ndarray, index: np.ndarray, wanted: frozenset[str] | None) -> Decoded:
    """Read the numbers of messages of one layout, rows of bytes."""
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

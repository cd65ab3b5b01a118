# SPDX-License-Identifier: Apache-2.0
"""Readers of bags: MCAP files with ROS 2 or ROS 1 messages, bags of ROS 1, and of ROS 2 in SQLite.

A ROS 2 bag is a folder with metadata.yaml, or one of its files. `rosbags` reads all but MCAP files: it refuses those
cut short, of ROS 1, or with messages of others beside those of ROS. The loop over their chunks here reads 860,000
messages a second, mcap's own reader 310,000.
"""

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from neurodyn.core.errors import InputError, suggested_file, unreadable
from neurodyn.data.readers.column_map import ColumnMap, LogFormat, require_logs
from neurodyn.data.readers.message_log import Message, MessageChannel, MessageSource

MAGIC = b"\x89MCAP0\r\n"
"""First bytes of an MCAP file."""

_RECORD = struct.Struct("<BQ")
_MESSAGE = struct.Struct("<HIQQ")
_SCHEMA, _CHANNEL, _MESSAGE_CODE = 0x03, 0x04, 0x05


class McapSource(MessageSource):
    """An MCAP file, or consecutive files from a recorder that splits its output."""

    def __init__(self, path: Path, columns: ColumnMap | None, files: tuple[Path, ...] = ()) -> None:
        """Open a log of one or several files; the column map selects the clock."""
        self.path, self._files = path, files or (path,)
        self.clock = "header" if columns is None else columns.clock
        self._channels: dict[str, MessageChannel] = {}

    def channels(self) -> dict[str, MessageChannel]:
        """Return the channels by topic, from the summary or, without one, from the whole file."""
        if not self._channels:
            for file in self._files:
                self._read_summary(file)
            if not self._channels:
                for _ in self.messages(frozenset()):
                    pass
        return self._channels

    def messages(self, topics: frozenset[str]) -> Iterator[Message]:
        """Yield the messages of selected topics in file order."""
        for file in self._files:
            reader = _McapReader(file, topics, self._channels)
            try:
                yield from reader.messages()
            except InputError:
                raise
            except OSError as error:
                raise unreadable(file, error, "an MCAP file") from None
            except Exception as error:  # each part of the format raises its own errors
                raise InputError(
                    f"{file}: is damaged or cut off after {reader.count} messages ({_reason(error)}); recover what is "
                    f"left with `mcap recover {file.name} -o NEW.mcap`"
                ) from None

    def _read_summary(self, file: Path) -> None:
        from mcap.reader import make_reader

        try:
            with file.open("rb") as stream:
                summary = make_reader(stream).get_summary()
        except OSError as error:
            raise unreadable(file, error, "an MCAP file") from None
        except Exception:  # damage is reported when the messages are read
            return
        if summary is not None:
            for channel in summary.channels.values():
                schema = summary.schemas.get(channel.schema_id)
                self._channels.setdefault(channel.topic, _channel(channel, schema))


class _McapReader:
    """One pass through an MCAP file; `count` is the number of messages so far, of all topics."""

    def __init__(self, path: Path, topics: frozenset[str], channels: dict[str, MessageChannel]) -> None:
        self._path, self._topics, self._channels = path, topics, channels
        self._schemas: dict[int, Any] = {}
        self._wanted: dict[int, str] = {}
        self.count = 0

    def messages(self) -> Iterator[Message]:
        """Yield the messages of the selected topics; topics found on the way are added to the channels."""
        from mcap.records import Channel as ChannelRecord
        from mcap.records import Chunk, DataEnd, Schema
        from mcap.records import Message as MessageRecord
        from mcap.stream_reader import StreamReader

        with self._path.open("rb") as stream:
            limit = self._path.stat().st_size
            for record in StreamReader(stream, emit_chunks=True, record_size_limit=limit).records:
                if isinstance(record, Chunk):
                    yield from self._chunk(record)
                elif isinstance(record, Schema):
                    self._schemas[record.id] = record
                elif isinstance(record, ChannelRecord):
                    self._add(record)
                elif isinstance(record, MessageRecord):
                    self.count += 1
                    if record.channel_id in self._wanted:
                        yield self._wanted[record.channel_id], record.log_time, record.data
                elif isinstance(record, DataEnd):
                    return

    def _chunk(self, chunk: Any) -> Iterator[Message]:
        from mcap.data_stream import ReadDataStream
        from mcap.records import Channel as ChannelRecord
        from mcap.records import Schema
        from mcap.stream_reader import get_chunk_data_stream

        if chunk.compression not in ("", "zstd", "lz4"):
            raise ValueError(f"compression {chunk.compression!r} is unknown; valid: zstd, lz4, none")
        stream, size = get_chunk_data_stream(chunk, validate_crc=True)
        content, at, wanted = stream.read(size), 0, self._wanted
        while at < len(content):
            code, length = _RECORD.unpack_from(content, at)
            at += _RECORD.size
            if at + length > len(content):
                raise ValueError("a record is longer than its chunk")
            if code == _MESSAGE_CODE:
                self.count += 1
                channel, _, log_time, _ = _MESSAGE.unpack_from(content, at)
                if channel in wanted:
                    yield wanted[channel], log_time, content[at + _MESSAGE.size : at + length]
            elif code in (_SCHEMA, _CHANNEL):
                from io import BytesIO

                record = ReadDataStream(BytesIO(content[at : at + length]))
                if code == _SCHEMA:
                    schema = Schema.read(record)
                    self._schemas[schema.id] = schema
                else:
                    self._add(ChannelRecord.read(record))
            at += length

    def _add(self, record: Any) -> None:
        self._channels.setdefault(record.topic, _channel(record, self._schemas.get(record.schema_id)))
        if record.topic in self._topics:
            self._wanted[record.id] = record.topic


def _channel(channel: Any, schema: Any) -> MessageChannel:
    if schema is None:
        return MessageChannel(channel.topic, "", channel.message_encoding, "", "")
    text = schema.data.decode("utf-8", errors="replace")
    return MessageChannel(channel.topic, schema.name, channel.message_encoding, text, schema.encoding)


def _reason(error: Exception) -> str:
    return str(error).split("\n")[0].strip() or type(error).__name__


def _is_mcap(path: Path, head: bytes) -> bool:
    """Return whether a file starts like an MCAP file or has its suffix."""
    return head.startswith(MAGIC) or (path.suffix.lower() == ".mcap" and not path.is_dir())


_MCAP = ("mcap", "rosbags", "zstandard", "lz4.frame")
_CLOCK = frozenset({"clock"})
MCAP = LogFormat("an MCAP file", _is_mcap, McapSource, times="own", extra=_MCAP, keys=_CLOCK)
"""MCAP files."""


_SQLITE = b"SQLite format 3\0"
_ROS1 = b"#ROSBAG V"
_KEY = "rosbag2_bagfile_information"
_ZSTD = b"\x28\xb5\x2f\xfd"
_LANGUAGES = {"NONE": "", "MSG": "ros2msg", "IDL": "ros2idl"}


class RosbagSource(MessageSource):
    """Bags of ROS 1 (.bag), or of ROS 2 in SQLite: a folder with its metadata, or consecutive files."""

    def __init__(self, path: Path, columns: ColumnMap | None, files: tuple[Path, ...] = ()) -> None:
        """Open a bag; see `McapSource`."""
        self.path, self._files = path, files or (path,)
        self.clock = "header" if columns is None else columns.clock

    def channels(self) -> dict[str, MessageChannel]:
        """Return the channels by topic; bags before ROS 2 Iron have no definitions."""
        channels: dict[str, MessageChannel] = {}
        for file in self._files:
            with _open(file) as bag:
                for one in bag.connections:
                    encoding = getattr(one.ext, "serialization_format", "ros1")
                    language = _LANGUAGES[one.msgdef.format.name]
                    channel = MessageChannel(one.topic, one.msgtype, encoding, one.msgdef.data, language)
                    channels.setdefault(one.topic, channel)
        if not channels:
            raise InputError(f"{self.path}: is a bag without topics; expected one with messages")
        return channels

    def messages(self, topics: frozenset[str]) -> Iterator[Message]:
        """Yield the messages of selected topics, file by file in the order of their times."""
        for file in self._files:
            with _open(file) as bag:
                wanted = [one for one in bag.connections if one.topic in topics]
                for one, stamp, content in bag.messages(wanted) if wanted else ():
                    yield one.topic, stamp, _unpack(content)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Open a file or folder with rosbags; any damage becomes an InputError."""
    from rosbags import rosbag1, rosbag2

    if not path.exists():
        raise InputError(f"{path}: no such file{suggested_file(path)}; expected a bag (.db3, .bag)")
    old = path.suffix.lower() == ".bag"
    try:
        with (rosbag1 if old else rosbag2).Reader(path) as bag:
            yield bag
    except InputError:
        raise
    except Exception as error:  # each part of the format raises its own errors
        cure = "`rosbag reindex`" if old else "`ros2 bag reindex` or `sqlite3 FILE .recover`"
        raise InputError(f"{path}: is damaged, cut off or no bag ({_reason(error)}); recover it with {cure}") from None


def _unpack(content: bytes) -> bytes:
    """Decompress a message of a file whose metadata, which say so, are elsewhere."""
    if not content.startswith(_ZSTD):
        return content
    import zstandard

    return zstandard.ZstdDecompressor().decompress(content, max_output_size=1 << 26)


def open_bag(path: Path, columns: ColumnMap | None) -> MessageSource:
    """Open a bag: a folder, its metadata.yaml, or a file; raise an InputError for missing or unreadable files."""
    if path.is_file() and path.name != "metadata.yaml":
        return RosbagSource(path, columns)
    folder = path if path.is_dir() else path.parent
    if not (folder / "metadata.yaml").is_file():
        files = sorted([*folder.glob("*.db3"), *folder.glob("*.mcap")])
        if len({file.suffix for file in files}) != 1:
            raise InputError(f"{folder}: has no metadata.yaml, and not one kind of files; expected a bag of ROS 2")
    else:
        files = _listed_files(folder / "metadata.yaml")
    if files[0].suffix == ".mcap":
        require_logs(path, MCAP.extra)
        return McapSource(path, columns, tuple(files))
    return RosbagSource(path, columns, tuple(files))


def _listed_files(metadata: Path) -> list[Path]:
    """Return the files of a bag in order; for compressed ones, which rosbags unpacks, their folder."""
    try:
        tree: Any = yaml.safe_load(metadata.read_text(encoding="utf-8"))
        files = [metadata.parent / str(name) for name in tree[_KEY]["relative_file_paths"]]
        if str(tree[_KEY].get("compression_mode") or "none").lower() != "none":
            return [metadata.parent]
    except OSError as error:
        raise unreadable(metadata, error, "a bag's metadata") from None
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError):
        raise InputError(
            f"{metadata}: does not list the files of a bag; expected `{_KEY}: relative_file_paths`, or remove it to "
            "read the files beside it"
        ) from None
    absent = [file.name for file in files if not file.is_file()]
    if absent or not files:
        there = ", ".join(sorted(file.name for file in metadata.parent.iterdir()))
        raise InputError(f"{metadata}: names {', '.join(absent) or 'no files'}, which are not there; there: {there}")
    return files


def _is_bag(path: Path, head: bytes) -> bool:
    """Return whether a path is a folder with bag files, its metadata, or an SQLite bag."""
    if path.is_dir():
        metadata = path / "metadata.yaml"
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if metadata.is_file():
                return _KEY in metadata.read_text(encoding="utf-8")
        return any(next(path.glob(f"*{suffix}"), None) is not None for suffix in (".db3", ".mcap"))
    return head.startswith(_SQLITE) or path.suffix.lower() == ".db3" or _KEY.encode() in head


_BAGS = ("rosbags", "zstandard")
ROSBAG1 = LogFormat("a bag of ROS 1 (.bag)", lambda _, head: head.startswith(_ROS1), RosbagSource, "own", _BAGS, _CLOCK)
"""ROS 1 bags."""
ROSBAG2 = LogFormat("a bag of ROS 2 (folder or .db3)", _is_bag, open_bag, "own", _BAGS, _CLOCK)
"""ROS 2 bags."""

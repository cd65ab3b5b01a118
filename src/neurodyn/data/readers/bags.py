# SPDX-License-Identifier: Apache-2.0
"""Readers of bags: MCAP files with ROS 2 or ROS 1 messages, and ROS 2's SQLite files.

A ROS 2 bag is a folder with metadata.yaml, or one of its files.
"""

import contextlib
import sqlite3
import struct
import zlib
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
        count = 0
        for file in self._files:
            reader = _McapReader(file, topics, self._channels)
            try:
                for message in reader.messages():
                    count += 1
                    yield message
            except InputError:
                raise
            except OSError as error:
                raise unreadable(file, error, "an MCAP file") from None
            except Exception as error:  # each part of the format raises its own errors
                raise InputError(
                    f"{file}: is damaged or cut off after {count} messages ({_reason(error)}); recover what is left "
                    f"with `mcap recover {file.name} -o NEW.mcap`"
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
    """One pass through an MCAP file."""

    def __init__(self, path: Path, topics: frozenset[str], channels: dict[str, MessageChannel]) -> None:
        self._path, self._topics, self._channels = path, topics, channels
        self._schemas: dict[int, Any] = {}
        self._wanted: dict[int, str] = {}

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
                elif isinstance(record, MessageRecord) and record.channel_id in self._wanted:
                    yield self._wanted[record.channel_id], record.log_time, record.data
                elif isinstance(record, DataEnd):
                    return

    def _chunk(self, chunk: Any) -> Iterator[Message]:
        from mcap.data_stream import ReadDataStream
        from mcap.records import Channel as ChannelRecord
        from mcap.records import Schema

        content, at, wanted = _content(chunk), 0, self._wanted
        while at < len(content):
            code, length = _RECORD.unpack_from(content, at)
            at += _RECORD.size
            if at + length > len(content):
                raise ValueError("a record is longer than its chunk")
            if code == _MESSAGE_CODE:
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


def _content(chunk: Any) -> bytes:
    """Return the records of a chunk, decompressed and verified."""
    if chunk.compression == "zstd":
        import zstandard

        content = zstandard.decompress(chunk.data, chunk.uncompressed_size)
    elif chunk.compression == "lz4":
        import lz4.frame

        content = lz4.frame.decompress(chunk.data)
    elif not chunk.compression:
        content = bytes(chunk.data)
    else:
        raise ValueError(f"compression {chunk.compression!r} is unknown; valid: zstd, lz4, none")
    if chunk.uncompressed_crc and zlib.crc32(content) != chunk.uncompressed_crc:
        raise ValueError("the checksum of a chunk is wrong")
    return content


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


MCAP = LogFormat("an MCAP file", _is_mcap, McapSource, times="own", extra=("mcap", "zstandard", "lz4.frame"))
"""MCAP files."""


_SQLITE = b"SQLite format 3\0"
_ZSTD = b"\x28\xb5\x2f\xfd"
_KEY = "rosbag2_bagfile_information"


class SqliteSource(MessageSource):
    """A bag in consecutive SQLite files."""

    def __init__(self, path: Path, columns: ColumnMap | None, files: tuple[Path, ...] = ()) -> None:
        """Open a bag; see `McapSource`."""
        self.path, self._files = path, files or (path,)
        self.clock = "header" if columns is None else columns.clock

    def channels(self) -> dict[str, MessageChannel]:
        """Return the channels by topic; bags before ROS 2 Iron have no definitions."""
        found: dict[str, MessageChannel] = {}
        for file in self._files:
            with _opened(file) as bag:
                rows = bag.execute("SELECT name, type, serialization_format FROM topics ORDER BY id").fetchall()
                texts: dict[str, tuple[str, str]] = {}
                with contextlib.suppress(sqlite3.OperationalError):  # no such table
                    query = "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
                    texts = {kind: (language, text) for kind, language, text in bag.execute(query)}
            for topic, kind, encoding in rows:
                language, text = texts.get(kind, ("", ""))
                found.setdefault(
                    str(topic), MessageChannel(str(topic), str(kind), str(encoding), str(text), str(language))
                )
        if not found:
            raise InputError(f"{self.path}: is a bag without topics; expected one with messages")
        return found

    def messages(self, topics: frozenset[str]) -> Iterator[Message]:
        """Yield the messages of selected topics in file order."""
        for file in self._files:
            with _opened(file) as bag:
                names = {index: name for index, name in bag.execute("SELECT id, name FROM topics") if name in topics}
                marks = ",".join("?" * len(names))
                query = f"SELECT topic_id, timestamp, data FROM messages WHERE topic_id IN ({marks}) ORDER BY id"
                for topic, stamp, content in bag.execute(query, list(names)):
                    if not isinstance(content, bytes) or not isinstance(stamp, int):
                        raise sqlite3.DatabaseError("a message holds no bytes")
                    yield names[topic], stamp, _plain(content, file)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a file read-only; any damage becomes an InputError."""
    if not file.is_file():
        raise InputError(f"{file}: no such file{suggested_file(file)}; expected a bag (.db3)")
    uri = f"{file.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as bag:
            yield bag
    except (sqlite3.Error, OverflowError) as error:
        raise InputError(
            f"{file}: is damaged, cut off or no bag of ROS 2 ({error}); recover it with `ros2 bag reindex` or "
            "`sqlite3 FILE .recover`"
        ) from None


def _plain(content: bytes, file: Path) -> bytes:
    """Return a message, decompressed."""
    if not content.startswith(_ZSTD):
        return content
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompress(content, max_output_size=1 << 26)
    except zstandard.ZstdError as error:
        raise InputError(f"{file}: a compressed message is damaged ({error}); record it again") from None


def open_bag(path: Path, columns: ColumnMap | None) -> MessageSource:
    """Open a bag: a folder, its metadata.yaml, or a .db3 file; raise an InputError for missing or unreadable files."""
    if path.is_file() and path.name != "metadata.yaml":
        return SqliteSource(path, columns)
    folder = path if path.is_dir() else path.parent
    files = _files(folder)
    if any(file.suffix == ".mcap" for file in files):
        require_logs(path, MCAP.extra)
        return McapSource(path, columns, files)
    return SqliteSource(path, columns, files)


def _files(folder: Path) -> tuple[Path, ...]:
    """Return the files of a bag in order."""
    metadata = folder / "metadata.yaml"
    if not metadata.is_file():
        files = sorted([*folder.glob("*.db3"), *folder.glob("*.mcap")])
        if len({file.suffix for file in files}) != 1:
            raise InputError(f"{folder}: has no metadata.yaml, and not one kind of files; expected a bag of ROS 2")
        return tuple(files)
    try:
        tree: Any = yaml.safe_load(metadata.read_text(encoding="utf-8"))
        names = [str(name) for name in tree[_KEY]["relative_file_paths"]]
    except OSError as error:
        raise unreadable(metadata, error, "a bag's metadata") from None
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError):
        raise InputError(
            f"{metadata}: does not list the files of a bag; expected `{_KEY}: relative_file_paths`, or remove it to "
            "read the files beside it"
        ) from None
    files = [folder / name for name in names]
    packed = [file for file in files if file.suffix == ".zstd"]
    if packed:
        raise InputError(f"{packed[0]}: is compressed as a whole; unpack it with `zstd -d`, and remove metadata.yaml")
    absent = [file.name for file in files if not file.is_file()]
    if absent or not files:
        there = ", ".join(sorted(file.name for file in folder.iterdir()))
        raise InputError(f"{metadata}: names {', '.join(absent) or 'no files'}, which are not there; there: {there}")
    return tuple(files)


def _is_bag(path: Path, head: bytes) -> bool:
    """Return whether a path is a folder with bag files, its metadata, or an SQLite bag."""
    if path.is_dir():
        metadata = path / "metadata.yaml"
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if metadata.is_file():
                return _KEY in metadata.read_text(encoding="utf-8")
        return any(next(path.glob(f"*{suffix}"), None) is not None for suffix in (".db3", ".mcap"))
    return head.startswith(_SQLITE) or path.suffix.lower() == ".db3" or _KEY.encode() in head


ROSBAG2 = LogFormat("a bag of ROS 2 (folder or .db3)", _is_bag, open_bag, times="own", extra=("zstandard",))
"""ROS 2 bags."""

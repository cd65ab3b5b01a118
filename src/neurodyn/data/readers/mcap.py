# SPDX-License-Identifier: Apache-2.0
"""Reader of MCAP files with ROS 2 or ROS 1 messages."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neurodyn.core.errors import InputError, unreadable
from neurodyn.data.readers.column_map import ColumnMap, LogFormat
from neurodyn.data.readers.message_log import Message, MessageChannel, MessageSource

MAGIC = b"\x89MCAP0\r\n"
"""First bytes of an MCAP file."""

_RECORD = struct.Struct("<BQ")
_MESSAGE = struct.Struct("<HIQQ")
_SCHEMA, _CHANNEL, _MESSAGE_CODE = 0x03, 0x04, 0x05


class McapSource(MessageSource):
    """An MCAP file, or the consecutive files of a recorder that splits them."""

    def __init__(self, path: Path, columns: ColumnMap | None, files: tuple[Path, ...] = ()) -> None:
        """Open a log of one file or several; the column map selects the clock."""
        self.path, self._files = path, files or (path,)
        self.clock = "header" if columns is None else columns.clock
        self._channels: dict[str, MessageChannel] = {}

    def channels(self) -> dict[str, MessageChannel]:
        """Return the channels by topic, from the summary, or from the whole file if there is none."""
        if not self._channels:
            for file in self._files:
                self._read_summary(file)
            if not self._channels:
                for _ in self.messages(frozenset()):
                    pass
        return self._channels

    def messages(self, topics: frozenset[str]) -> Iterator[Message]:
        """Yield the messages of some topics in file order."""
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
        except Exception:  # any damage is reported when the messages are read
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
        """Yield the messages of the wanted topics; topics found on the way are added to the channels."""
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


def _recognises(path: Path, head: bytes) -> bool:
    """Return whether a file starts as an MCAP file, or has the suffix."""
    return head.startswith(MAGIC) or (path.suffix.lower() == ".mcap" and not path.is_dir())


MCAP = LogFormat("an MCAP file", _recognises, McapSource, times="own", extra=("mcap", "zstandard", "lz4.frame"))
"""Messages in one file."""

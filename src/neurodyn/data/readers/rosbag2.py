# SPDX-License-Identifier: Apache-2.0
"""Reader of ROS 2 bags: a folder with metadata.yaml, or one of its .db3 files."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from neurodyn.core.errors import InputError, unreadable
from neurodyn.data.readers.column_map import ColumnMap, LogFormat, require_logs
from neurodyn.data.readers.mcap import MCAP, McapSource
from neurodyn.data.readers.message_log import Message, MessageChannel, MessageSource

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
        """Yield the messages of some topics in file order."""
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
        raise InputError(f"{file}: no such file; expected a bag (.db3)")
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
    """Return a message decompressed."""
    if not content.startswith(_ZSTD):
        return content
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompress(content, max_output_size=1 << 26)
    except zstandard.ZstdError as error:
        raise InputError(f"{file}: a compressed message is damaged ({error}); record it again") from None


def open_bag(path: Path, columns: ColumnMap | None) -> MessageSource:
    """Open a bag: a folder, its metadata.yaml, or a .db3 file; an InputError if files are missing or not readable."""
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


def _recognises(path: Path, head: bytes) -> bool:
    """Return whether a path is a folder with bag files, its metadata, or an SQLite bag."""
    if path.is_dir():
        metadata = path / "metadata.yaml"
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if metadata.is_file():
                return _KEY in metadata.read_text(encoding="utf-8")
        return any(next(path.glob(f"*{suffix}"), None) is not None for suffix in (".db3", ".mcap"))
    return head.startswith(_SQLITE) or path.suffix.lower() == ".db3" or _KEY.encode() in head


ROSBAG2 = LogFormat("a bag of ROS 2 (folder or .db3)", _recognises, open_bag, times="own", extra=("zstandard",))
"""Bags of ROS 2."""

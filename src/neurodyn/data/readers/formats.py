# SPDX-License-Identifier: Apache-2.0
"""Formats of logs: one registry, in which a file finds its reader by what it holds."""

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from neurodyn.core.errors import InputError, unreadable
from neurodyn.core.registry import Registry

if TYPE_CHECKING:
    from neurodyn.data.readers.column_map import ColumnMap
    from neurodyn.data.readers.source import Source

_HEAD = 4096
HDF5 = b"\x89HDF\r\n\x1a\n"
"""First bytes of an HDF5 file."""

READERS: "Registry[LogFormat | Callable[..., Any]]" = Registry(
    "format of logs",
    npz="neurodyn.data.readers.npz:NPZ",
    mujoco="neurodyn.data.readers.mujoco:MUJOCO",
    lerobot="neurodyn.data.readers.lerobot:LEROBOT",
    mcap="neurodyn.data.readers.ros.mcap:MCAP",
    rosbag2="neurodyn.data.readers.ros.rosbag2:ROSBAG2",
    robomimic="neurodyn.data.readers.robomimic:ROBOMIMIC",
    csv="neurodyn.data.readers.csv:CSV",  # last, because it recognises any text in columns
)
"""Log readers by format: a `LogFormat`, or any function (path, column map, spec) -> runs, whose name is the suffix."""


@dataclass(frozen=True)
class LogFormat:
    """A format of logs.

    Attributes:
        what: What a log of it is, in words.
        recognises: Whether a file or folder is one, by its path and first bytes (none of a folder).
        open: Opens one; the column map is None where there is none yet.
        times: Where times come from: a "column" (or a constant period) that the column map names, "steps" whose length
            the file or the column map says, or a clock of the file's "own".
        extra: Packages that it needs beside those of neurodyn.
    """

    what: str
    recognises: Callable[[Path, bytes], bool]
    open: "Callable[[Path, ColumnMap | None], Source]"
    times: Literal["column", "steps", "own"] = "column"
    extra: tuple[str, ...] = ()

    def source(self, path: Path, columns: "ColumnMap | None" = None) -> "Source":
        """Open a file.

        Raises:
            InputError: The file is missing or damaged, or the extra `logs` is not installed.
        """
        require_logs(path, self.extra)
        return self.open(path, columns)


def require_logs(where: Path, modules: Sequence[str]) -> None:
    """Refuse work that needs the extra `logs` where that is not installed.

    Raises:
        InputError: A module cannot be imported.
    """
    from importlib import import_module

    for module in modules:
        try:
            import_module(module)
        except ImportError:
            raise InputError(
                f"{where}: needs the package {module.partition('.')[0]!r}, which is not installed; install it with "
                "`pip install 'neurodyn[logs]'`"
            ) from None


def recognise(path: Path) -> str | None:
    """Return the name of the format of a file or folder, by what it holds; None where it is of none.

    Raises:
        InputError: The file cannot be read.
    """
    head = b""
    try:
        if not path.is_dir():
            with path.open("rb") as file:
                head = file.read(_HEAD)
    except OSError as error:
        raise unreadable(path, error, "a log") from None
    for name, reader in READERS.items():
        if isinstance(reader, LogFormat):
            if reader.recognises(path, head):
                return name
        elif path.suffix.lower() == f".{name}":
            return name
    return None


def require_format(path: Path) -> str:
    """Return the name of the format of a file or folder.

    Raises:
        InputError: It cannot be read, or is of none; the message lists the formats.
    """
    name = recognise(path)
    if name is None:
        known = "; ".join(reader.what for reader in READERS.values() if isinstance(reader, LogFormat))
        size = "is an empty folder" if path.is_dir() and not any(path.iterdir()) else "is no log of a known format"
        if path.is_file() and not path.stat().st_size:
            size = "is empty"
        raise InputError(f"{path}: {size}; valid: {known}")
    return name


def is_log(path: Path) -> bool:
    """Return whether a path is a log, by what it holds or, where it is not there, by its suffix; a store is none."""
    if path.exists():
        try:
            name = recognise(path)
        except InputError:
            name = None
        if name is not None:
            return True
    return path.suffix.lower().removeprefix(".") in READERS


def zip_names(path: Path, head: bytes) -> list[str]:
    """Return the names of the arrays of an npz file; none where it is no readable zip archive."""
    if not head.startswith(b"PK"):
        return []
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError):
        return []

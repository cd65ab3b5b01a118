# SPDX-License-Identifier: Apache-2.0
"""One writer per file or folder: a lock beside the target that the operating system releases when its process exits.

The lock is an flock on an open file. A killed writer may leave its lock file behind, but not the lock. On file systems
without locks, the process named in the file is checked instead.
"""

import errno
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neurodyn.core.errors import InputError, describe_os_error, unwritable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_WORDS = 3
"""Number of words of a writer's command line shown in messages."""


@dataclass
class _HeldLock:
    """A lock of this process: its thread and acquisition count."""

    thread: int
    count: int


_held: dict[str, _HeldLock] = {}
_guard = threading.Lock()


@contextmanager
def exclusive(target: str | Path) -> Iterator[None]:
    """Hold the lock of a file or folder to be written; reentrant within a thread.

    Neither `target` nor its parent has to exist. Raises an InputError if the path is invalid, or one that names the
    process or thread currently writing.
    """
    try:
        path = Path(os.path.realpath(target))
    except (OSError, ValueError) as error:
        raise unwritable(repr(str(target)), str(error)) from None
    if not path.name or path.name == "-":
        raise InputError(f"{str(target)!r}: cannot be written; give the path of a file or folder")
    with _once(str(path), target) as first:
        if not first:
            yield
            return
        made = [folder for folder in path.parents if not folder.exists()]
        lock, file = _open(path, target)
        try:
            _write_owner(file)
            yield
        finally:
            with suppress(OSError):  # while locked, so that no other process holds this file
                lock.unlink()
            os.close(file)
            for folder in made:  # innermost first; folders with files remain
                with suppress(OSError):
                    folder.rmdir()


@contextmanager
def _once(key: str, target: str | Path) -> Iterator[bool]:
    """Yield whether this is the thread's first acquisition; raise an InputError if another thread holds the lock."""
    thread = threading.get_ident()
    with _guard:
        held = _held.setdefault(key, _HeldLock(thread, 0))
        if held.thread != thread:
            raise _taken(target, "another thread of this process")
        held.count += 1
        first = held.count == 1
    try:
        yield first
    finally:
        with _guard:
            held.count -= 1
            if not held.count:
                del _held[key]


def _open(path: Path, target: str | Path) -> tuple[Path, int]:
    """Return the lock file of a target, open and locked."""
    for lock in (path.with_name(f".{path.name}.lock"), path / ".lock"):  # inside if only the target itself is writable
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
                if not _lock(file):
                    owner = _owner(file)
                    os.close(file)
                    raise _taken(target, _name(owner))
                with suppress(OSError):
                    if os.path.samestat(os.fstat(file), os.stat(lock)):
                        return lock, file
                os.close(file)  # its holder removed it between the two calls
        except PermissionError:
            if lock.parent == path or not path.is_dir():
                raise unwritable(target, "permission denied") from None
        except (OSError, ValueError) as error:
            raise unwritable(target, describe_os_error(error)) from None
    raise AssertionError


def _lock(file: int) -> bool:
    """Try to lock an open file; return whether that succeeded."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    owner = _owner(file)
    return owner.get("host") != socket.gethostname() or not is_alive(owner.get("pid"))


def is_alive(pid: Any) -> bool:
    """Return whether a process with this number runs on this machine."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def _write_owner(file: int) -> None:
    words = [Path(sys.argv[0]).name, *sys.argv[1:]][:_WORDS]
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%H:%M:%S"), "command": words}
    with suppress(OSError):  # full disk: the lock then carries no name
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(owner).encode(), 0)


def _owner(file: int) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        owner = json.loads(os.pread(file, 4096, 0))
        if isinstance(owner, dict):
            return owner
    return {}


def _name(owner: dict[str, Any]) -> str:
    if not owner:
        return "another process"
    command = " ".join(str(word) for word in owner.get("command", ()))
    return f"process {owner.get('pid')} on {owner.get('host')} ({command}, since {owner.get('since')})"


def _taken(target: str | Path, who: str) -> InputError:
    return InputError(f"{target}: is being written by {who}; wait for it, or give another path")

# SPDX-License-Identifier: Apache-2.0
"""One writer per file or folder: a lock beside the target that the operating system releases when its process exits.

The lock is filelock's, which knows file systems without locks. This file adds what a refused user needs: the name of
the writer, and no files or folders left behind.
"""

import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from neurodyn.core.errors import InputError, describe_os_error, unwritable

_WORDS = 3
"""Number of words of a writer's command line shown in messages."""


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
    made = [folder for folder in path.parents if not folder.exists()]
    lock = _acquire(path, target)
    try:
        if lock.lock_counter == 1:
            _write_owner(lock)
        yield
    finally:
        if lock.lock_counter == 1:
            with suppress(OSError):  # while locked, so that no other process holds this file
                os.unlink(lock.lock_file)
        lock.release()
        for folder in made:  # innermost first; folders with files remain
            with suppress(OSError):
                folder.rmdir()


def _acquire(path: Path, target: str | Path) -> BaseFileLock:
    for place in (path.with_name(f".{path.name}.lock"), path / ".lock"):  # inside if only the target itself is writable
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(place, timeout=0.05, poll_interval=0.01, is_singleton=True)  # its last holder may remove it
            lock.acquire()
            return lock
        except Timeout:
            _require_lockable(place, target)
            raise InputError(
                f"{target}: is being written by {_owner(place)}; wait for it, or give another path"
            ) from None
        except PermissionError:
            if place.parent == path or not path.is_dir():
                raise unwritable(target, "permission denied") from None
        except (OSError, ValueError) as error:
            raise unwritable(target, describe_os_error(error)) from None
    raise AssertionError


def _require_lockable(place: Path, target: str | Path) -> None:
    """Raise the InputError of a place where no file can be made, as in /proc, which looks like a lock that is held."""
    if place.exists():
        return
    try:
        with tempfile.TemporaryFile(dir=place.parent):  # of no name, which another process may be about to lock
            pass
    except OSError as error:
        raise unwritable(target, describe_os_error(error)) from None


def _write_owner(lock: BaseFileLock) -> None:
    """Write the name of this process into a lock file, unless it holds filelock's own (file systems without locks)."""
    words = [Path(sys.argv[0]).name, *sys.argv[1:]][:_WORDS]
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%H:%M:%S"), "command": words}
    with suppress(OSError):  # full disk: the lock then carries no name
        if not isinstance(lock, SoftFileLock):
            Path(lock.lock_file).write_text(json.dumps(owner), encoding="utf-8")


def _owner(lock: Path) -> str:
    """Describe the process that holds a lock file."""
    owner: Any = None
    with suppress(OSError, ValueError):
        owner = json.loads(lock.read_text(encoding="utf-8"))
    if not isinstance(owner, dict):
        return "another process"
    if (owner.get("pid"), owner.get("host")) == (os.getpid(), socket.gethostname()):
        return "another thread of this process"
    command = " ".join(str(word) for word in owner.get("command", ()))
    return f"process {owner.get('pid')} on {owner.get('host')} ({command}, since {owner.get('since')})"

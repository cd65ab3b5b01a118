# SPDX-License-Identifier: Apache-2.0
"""Commands in forks of this process, faults for them, and checks of how they ended."""

import contextlib
import os
import random
import resource
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import neurodyn
from neurodyn.cli.main import run
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store

LONGEST = 60
"""CPU seconds after which a run counts as hanging; ten times as many for wall-clock time."""
STOPPED = (130, 143)
"""Exit codes after Ctrl-C and SIGTERM."""


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Exit code, negative for a signal; None if it hung and was killed.
        peak: Peak resident memory [MiB].
    """

    code: int | None
    peak: float


def child(arguments: list[str], *, limit: Callable[[], None] | None = None, output: Path) -> int:
    """Start a command in a fork after setting limits there; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        with output.open("w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST + 5))
                if limit is not None:
                    limit()
                code = run(arguments)
            except SystemExit as stop:
                code = int(stop.code or 0)
            except BaseException:  # any failure, for the parent to read
                traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int, kill_after: float | None = None) -> Ended:
    """Wait for a child and return how it ended; kill it after `kill_after` seconds, if given."""
    begin = time.monotonic()
    while (past := time.monotonic() - begin) < 10 * LONGEST:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            return Ended(None if code == -signal.SIGXCPU else code, usage.ru_maxrss / 1024)
        if kill_after is not None and past >= kill_after:
            os.kill(pid, signal.SIGKILL)
            kill_after = None
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    usage = os.wait4(pid, 0)[2]
    return Ended(None, usage.ru_maxrss / 1024)


def complaint(code: int | None, output: Path) -> str | None:
    """Return what is wrong with how a command ended; None if nothing is."""
    text = output.read_text(errors="replace")
    if code is None:
        return "hangs"
    if code not in (0, 2):
        return f"exit code {code}: {text.strip().splitlines()[-1:]}"
    if "Traceback" in text:
        return f"traceback: {text.strip().splitlines()[-1:]}"
    said = complaints(text)
    return None if code == 0 or len(said) == 1 else f"exit code 2 with {len(said)} lines"


def complaints(text: str) -> list[str]:
    """Return the lines of a command's output that say what is wrong: those that are no notes."""
    return [line for line in text.splitlines() if line.startswith("neurodyn: ") and "note:" not in line]


def place_of(error: BaseException) -> str:
    """Return the file and line in which an error was raised."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(place.filename).name}:{place.lineno}"


def whole(target: Path) -> str | None:
    """Return what is wrong with a target's file or folder; None if it is complete or missing."""
    try:
        if target.suffix == ".h5" and target.exists():
            Store.open(target)
        if (target / "model" / "config.json").exists():
            neurodyn.load(target)
    except (InputError, OSError, ValueError) as error:
        return f"half written: {error}"
    return None


def memory_ends_after(more: int) -> Callable[[], None]:
    """Return a limit that allows a process only `more` bytes of memory beyond its current use."""

    def limit() -> None:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))

    return limit


def files_end_at(size: int) -> Callable[[], None]:
    """Return a limit on file size, as on a full disk."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return a file's content truncated, with flipped bits, or with random bytes inserted."""
    data = bytearray(content)
    kind = draw.randrange(4)
    if kind == 0:
        return bytes(data[: draw.randrange(len(data))])
    if kind == 1:
        for _ in range(draw.randint(1, 8)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        return bytes(data)
    begin = draw.randrange(len(data))
    strange = (b"\0" * 64, b"\xff\xfe" * 32, b"1e999", b"nan", b"[" * 500, b"-1", draw.randbytes(64))
    piece = draw.choice(strange)
    return bytes(data[:begin]) + piece + bytes(data[begin + (len(piece) if kind == 2 else 0) :])

# SPDX-License-Identifier: Apache-2.0
"""`neurodyn doctor`: what of neurodyn works on this machine, and what is missing for the rest."""

import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from neurodyn.core.provenance import __version__
from neurodyn.core.workers import available_cores

_LITTLE_DISK, _LITTLE_MEMORY = 5.0, 4.0
"""Free space, and memory, below which trainings are likely to end early [GB]."""
_NOT_FOR_USERS = {"dev", "docs", "bench"}


class Diagnosis(NamedTuple):
    """A line: of what, what was found, and what to do about it (empty where nothing)."""

    what: str
    found: str
    advice: str = ""


def doctor() -> None:
    """Show versions, extras, devices, memory, disk and caches, and what to do about what is missing.

    Example:
        neurodyn doctor
    """
    from neurodyn.cli.terminal.console import ProgressBar, terminal
    from neurodyn.cli.terminal.tables import print_table

    with ProgressBar("looking at this machine"):
        found = list(findings())
    print_table(terminal(80), ("", "Found", "To do"), found)
    open_points = sum(bool(one.advice) for one in found)
    print("everything is there" if not open_points else f"{open_points} to do, where you need it")


def findings() -> Iterator[Diagnosis]:
    """Yield the lines on this machine."""
    yield Diagnosis("neurodyn", f"{__version__}, Python {platform.python_version()}, {platform.platform(terse=True)}")
    for package in ("torch", "warp-lang"):
        yield Diagnosis(package, version(package))
    yield from _extras()
    yield _gpu()
    yield _threads()
    yield _memory()
    yield _disk(Path.cwd())
    yield from _caches()


def _extras() -> Iterator[Diagnosis]:
    """Yield what is installed of each extra."""
    for extra, packages in extras().items():
        missing = [package for package in packages if _version(package) is None]
        there = ", ".join(f"{package} {_version(package)}" for package in packages if package not in missing)
        advice = f"pip install 'neurodyn[{extra}]'" if missing else ""
        yield Diagnosis(f"extra {extra}", there or "not installed", advice)


def extras() -> dict[str, list[str]]:
    """Return the packages of each extra that users may want, by its name."""
    found: dict[str, list[str]] = {}
    for line in requires("neurodyn") or ():
        package, _, condition = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", condition)
        if extra is not None and extra[1] not in _NOT_FOR_USERS:
            found.setdefault(extra[1], []).append(re.split(r"[\s\[<>=!~]", package.strip(), maxsplit=1)[0])
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpu() -> Diagnosis:
    import torch

    if not torch.cuda.is_available():
        return Diagnosis("GPU", "none that torch can use; everything runs on the processor")
    names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    return Diagnosis("GPU", ", ".join(f"cuda:{k} {name}" for k, name in enumerate(names)))


def _threads() -> Diagnosis:
    asked = os.environ.get("OMP_NUM_THREADS")
    said = "" if asked is None else f", OMP_NUM_THREADS={asked}"
    return Diagnosis("cores", f"{available_cores()} of {os.cpu_count()} usable{said}")


def _memory() -> Diagnosis:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
        free, whole = (int(lines[name].split()[0]) / 1e6 for name in ("MemAvailable", "MemTotal"))
    except (OSError, KeyError, ValueError):
        return Diagnosis("memory", "unknown on this system")
    advice = "close other programs; large trainings may run out of memory" if free < _LITTLE_MEMORY else ""
    return Diagnosis("memory", f"{free:.1f} GB free of {whole:.1f}", advice)


def _disk(folder: Path) -> Diagnosis:
    free = shutil.disk_usage(folder).free / 1e9
    advice = "free some space; a dataset of a legged robot takes gigabytes" if free < _LITTLE_DISK else ""
    return Diagnosis("disk", f"{free:.1f} GB free in {folder}", advice)


def size_of_folder(folder: Path) -> int:
    """Return the size of all files in a folder [bytes], from which other processes may remove some meanwhile."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += (Path(place) / name).stat().st_size
    return size


def _caches() -> Iterator[Diagnosis]:
    """Yield the cache of compiled kernels, which may be deleted: what is needed is compiled again."""
    if find_spec("warp") is None:
        return
    import warp

    warp.config.log_level = warp.LOG_ERROR  # it would say at length what the lines above do
    warp.init()
    folder = Path(str(warp.config.kernel_cache_dir))
    size = size_of_folder(folder) / 1e6
    writable = os.access(folder, os.W_OK)
    yield Diagnosis(
        "kernel cache",
        f"{size:.0f} MB in {folder}",
        "" if writable else "make it writable: kernels compile at every start",
    )

# SPDX-License-Identifier: Apache-2.0
"""`neurodyn doctor`: what works on this machine."""

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

from neurodyn.cli.terminal.console import ProgressBar, terminal
from neurodyn.core.provenance import __version__
from neurodyn.core.workers import available_cores

_LITTLE_DISK, _LITTLE_MEMORY = 5.0, 4.0
"""Free disk space, and memory, below which trainings are likely to fail [GB]."""
_NOT_FOR_USERS = {"dev", "docs", "bench"}


class Diagnosis(NamedTuple):
    """One line: subject, finding, and advice (empty for none)."""

    what: str
    found: str
    advice: str = ""


def doctor() -> None:
    """Show versions, extras, devices, memory, disk and caches, with advice on what is missing.

    Example:
        neurodyn doctor
    """
    from neurodyn.cli.terminal.tables import print_table

    with ProgressBar("looking at this machine"):
        lines = list(findings())
    print_table(terminal(), ("", "Found", "To do"), lines)
    open_points = sum(bool(one.advice) for one in lines)
    print("everything is there" if not open_points else f"{open_points} to do, where you need it")


def findings() -> Iterator[Diagnosis]:
    """Yield the lines for this machine."""
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
    """Yield the installed packages of each extra."""
    for extra, packages in extras().items():
        missing = [package for package in packages if _version(package) is None]
        there = ", ".join(f"{package} {_version(package)}" for package in packages if package not in missing)
        advice = f"pip install 'neurodyn[{extra}]'" if missing else ""
        yield Diagnosis(f"extra {extra}", there or "not installed", advice)


def extras() -> dict[str, list[str]]:
    """Return the packages of each user-facing extra, by its name."""
    packages_of: dict[str, list[str]] = {}
    for line in requires("neurodyn") or ():
        package, _, condition = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", condition)
        if extra is not None and extra[1] not in _NOT_FOR_USERS:
            packages_of.setdefault(extra[1], []).append(re.split(r"[\s\[<>=!~]", package.strip(), maxsplit=1)[0])
    return packages_of


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
    """Return the total size of a folder's files [bytes]; other processes may remove some meanwhile."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += (Path(place) / name).stat().st_size
    return size


def _caches() -> Iterator[Diagnosis]:
    """Yield the cache of compiled kernels, which may be deleted: kernels are recompiled on demand."""
    if find_spec("warp") is None or find_spec("torch") is None:
        return
    import warp

    from neurodyn.geometry.launching import start_warp

    warp.config.log_level = warp.LOG_ERROR  # otherwise it would repeat the lines above at length
    start_warp()
    folder = Path(str(warp.config.kernel_cache_dir))
    size = size_of_folder(folder) / 1e6
    writable = os.access(folder, os.W_OK)
    yield Diagnosis(
        "kernel cache",
        f"{size:.0f} MB in {folder}",
        "" if writable else "make it writable: kernels compile at every start",
    )

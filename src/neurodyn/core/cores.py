# SPDX-License-Identifier: Apache-2.0
"""How many processor cores this process may use: what the machine, its scheduler and its container leave it."""

import math
import os
from pathlib import Path

from neurodyn.core.errors import InputError

_CGROUPS = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Return the cores that this process may use, at least 1.

    These are the cores that it is bound to, no more than the quota of its control group (how containers are limited),
    and no more than the environment variable OMP_NUM_THREADS where that is set.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = (bound, _quota(), _asked())
    return max(1, min(limit for limit in limits if limit is not None))


def resolve_threads(threads: int | None) -> int:
    """Return a number of threads or processes: the one asked for, or that of the available cores for None.

    Raises:
        InputError: It is below 1.
    """
    if threads is None:
        return available_cores()
    if threads < 1:
        raise InputError(f"threads is {threads}; valid: a whole number of at least 1")
    return threads


def _asked() -> int | None:
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(given) if given.isdecimal() and int(given) > 0 else None


def _quota() -> int | None:
    """Return the cores that the control group of this process may use, rounded up; None for no limit."""
    found = [cores for folder in _control_groups() if (cores := _cores_of(folder)) is not None]
    return math.ceil(min(found)) if found else None


def _control_groups() -> list[Path]:
    """Return the folders of the control groups that this process is in, inner ones first, in versions 1 and 2."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = _CGROUPS / "cpu" if controllers else _CGROUPS
        inner = root / path.lstrip("/")
        folders += [folder for folder in (inner, *inner.parents) if folder.is_relative_to(root)]
    return folders


def _cores_of(folder: Path) -> float | None:
    """Return the quota of a control group over its period; None for no limit."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text(encoding="utf-8") for name in ("quota", "period")
            )
        return int(quota) / int(period) if quota.strip() != "max" and int(quota) > 0 else None
    except (OSError, ValueError):
        return None

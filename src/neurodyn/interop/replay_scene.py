# SPDX-License-Identifier: Apache-2.0
"""What players of exported files get and return, and the compilation of exported C."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import Trajectory
from neurodyn.robots import Robot


class NotReplayedError(Exception):
    """A target cannot be replayed here; the message says why."""


@dataclass(frozen=True)
class ReplayScene:
    """What a player needs besides a file.

    Attributes:
        robot: The declaration, with the drives that it declares for a log of targets.
        windows: Windows with the past in which actuators settle.
        step: Time step of the model [s].
        com: Point of a floating base whose velocity the states hold, in the base's frame [m].
    """

    robot: Robot
    windows: Windows
    step: float
    com: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Played:
    """Roll-outs of an exported file, and of the original (None without one), and the simulator that computed them."""

    simulator: str
    exported: Trajectory
    original: Trajectory | None


_SECONDS = 300
"""Longest time that a compiler gets [s]."""


def compile_library(source: Path, *options: str) -> Path:
    """Compile a C file as a shared library beside it; raises `NotReplayedError` if that does not work here."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise NotReplayedError("there is no C compiler")
    library = source.with_suffix(".so")
    command = [compiler, "-std=c99", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), *options, "-lm"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        raise NotReplayedError(f"{source.name} does not compile with {compiler}") from None
    return library

# SPDX-License-Identifier: Apache-2.0
"""Runs as they were logged, in SI units but at their own times; what every reader returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np

from neurodyn.core.description.scene import Vector3
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.data.readers.measured import Readings


@dataclass(frozen=True)
class RawRun:
    """One run, or one of several consecutive parts of a long one, which have the same name.

    Attributes:
        name: Name of the run.
        group: Name of its group; empty where there is none.
        split: Its split; None where the log does not say.
        time: Time of each row [s], increasing, shape [N].
        q: Positions [rad or m], shape [N, nq].
        qd: Velocities [rad/s or m/s], shape [N, nv]; None where they follow from the positions.
        control: Torques, held from row to row [N m or N], shape [N, nu].
        together: Equal for runs that a random split must not divide.
        velocity_time: Time of each row of `qd` [s], shape [V], where velocities have a clock of their own.
        control_time: Time of each row of `control` [s], shape [C], where controls have a clock of their own.
        missing: Times at which the log lacks a value [s], increasing; no episode goes on across them.
        centers: Centre of mass of each free joint's body in its frame [m], for velocities from poses; else the origin.
        readings: What sensors beside those of the joints read, in the order of the column map.
    """

    name: str
    group: str
    split: Split | None
    time: np.ndarray
    q: np.ndarray
    qd: np.ndarray | None
    control: np.ndarray
    together: str = ""
    velocity_time: np.ndarray | None = None
    control_time: np.ndarray | None = None
    missing: np.ndarray | None = None
    centers: Mapping[str, Vector3] = field(default_factory=dict)
    readings: tuple[Readings, ...] = ()

    @property
    def clocks(self) -> dict[str, np.ndarray]:
        """Times of the rows of "q", "qd" and "control" [s]; without "qd" where there are no velocities."""
        clocks = {"q": self.time, "control": self.time if self.control_time is None else self.control_time}
        if self.qd is not None:
            clocks["qd"] = self.time if self.velocity_time is None else self.velocity_time
        return clocks

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        arrays = (self.q, self.qd, self.control, self.time, self.velocity_time, self.control_time)
        return sum(array.nbytes for array in arrays if array is not None)


def selected(columns: ColumnMap, group: str, name: str) -> bool:
    """Return whether a run is to be read; a run without a group passes the selection of groups."""

    def matches(patterns: tuple[str, ...], label: str) -> bool:
        return not patterns or any(fnmatchcase(label, pattern) for pattern in patterns)

    return (not group or matches(columns.select_groups, group)) and matches(columns.select_runs, name)


def parse_split(value: object, where: str) -> Split:
    """Return the split that a number or word stands for, or raise an InputError."""
    text = str(value).strip().lower()
    for split in Split:
        if text in {str(int(split)), f"{int(split)}.0", split.name.lower()}:
            return split
    raise InputError(f"{where}: unknown split {value!r}; valid: 0 or train, 1 or validation, 2 or test")

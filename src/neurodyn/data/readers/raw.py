# SPDX-License-Identifier: Apache-2.0
"""Runs as logged, in SI units at their original times, with statistics."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np

from neurodyn.core.description.scene import Vector3
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.data.readers.sensor_columns import SensorReadings


@dataclass(frozen=True)
class RawRun:
    """One run, or one of several consecutive parts of a long run, which share its name.

    Attributes:
        name: Name of the run.
        group: Name of its group; empty for none.
        split: Split; None if the log does not say.
        time: Time of each row [s], increasing, shape [N].
        q: Positions [rad or m], shape [N, nq].
        qd: Velocities [rad/s or m/s], shape [N, nv]; None if derived from the positions.
        control: Torques, held from row to row [N m or N], shape [N, nu].
        together: Label shared by runs that a random split must keep together.
        velocity_time: Time of each row of `qd` [s], shape [V], if velocities have a separate clock.
        control_time: Time of each row of `control` [s], shape [C], if controls have a separate clock.
        missing: Times of missing values in the log [s], increasing; they separate episodes.
        centers: Centre of mass of each free joint's body in its frame [m], for velocities from poses; default: origin.
        readings: Readings of further sensors, in the order of the column map.
        parameters: Values of the map's parameters in each row, shape [N, parameters].
        steps: Which of them are constant within an episode.
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
    readings: tuple[SensorReadings, ...] = ()
    parameters: np.ndarray | None = None
    steps: tuple[bool, ...] = ()

    @property
    def clocks(self) -> dict[str, np.ndarray]:
        """Row times of "q", "control" and, if there are velocities, "qd" [s]."""
        clocks = {"q": self.time, "control": self.time if self.control_time is None else self.control_time}
        if self.qd is not None:
            clocks["qd"] = self.time if self.velocity_time is None else self.velocity_time
        return clocks

    @property
    def nbytes(self) -> int:
        """Size in memory [bytes]."""
        arrays = (self.q, self.qd, self.control, self.time, self.velocity_time, self.control_time)
        return sum(array.nbytes for array in arrays if array is not None)


def is_selected(columns: ColumnMap, group: str, name: str) -> bool:
    """Return whether a run is selected; a run without a group passes any group selection."""

    def matches(patterns: tuple[str, ...], label: str) -> bool:
        return not patterns or any(fnmatchcase(label, pattern) for pattern in patterns)

    return (not group or matches(columns.select_groups, group)) and matches(columns.select_runs, name)


def parse_split(value: object, where: str) -> Split:
    """Return the split for a number or word, or raise an InputError."""
    text = str(value).strip().lower()
    for split in Split:
        if text in {str(int(split)), f"{int(split)}.0", split.name.lower()}:
            return split
    raise InputError(f"{where}: unknown split {value!r}; valid: 0 or train, 1 or validation, 2 or test")


def mirror(run: RawRun, columns: ColumnMap) -> RawRun:
    """Return a run with the signs of all joints changed, if the column map names it among the mirrored ones."""
    if not any(fnmatchcase(run.name, pattern) for pattern in columns.mirrored_runs):
        return run
    return replace(run, q=-run.q, qd=None if run.qd is None else -run.qd, control=-run.control)


_STEPS = 1 << 20
"""Steps per group that enter its median; later steps of a longer log are only checked for gaps."""


@dataclass(frozen=True)
class RunLabels:
    """Labels of a run; see `RawRun`."""

    group: str
    split: Split | None
    together: str


class Survey:
    """Statistics of runs that outlive the runs: labels by name, and counts of rows, gaps and missing values."""

    def __init__(self, max_gap: float) -> None:
        self.runs: dict[str, RunLabels] = {}
        self.rows = self.gap_count = self.missing = 0
        self._max_gap = max_gap
        self._gaps: list[dict[str, float | str]] = []
        self._steps: dict[str, list[np.ndarray]] = {}
        self._kept: dict[str, int] = {}
        self._longest: dict[str, float] = {}
        self._names: dict[str, set[str]] = {}

    def add(self, run: RawRun) -> None:
        """Add a run, or a part of one."""
        self.runs.setdefault(run.name, RunLabels(run.group, run.split, run.together))
        self.rows += len(run.time)
        self.missing += 0 if run.missing is None else len(run.missing)
        steps = np.diff(run.time)
        for row in np.flatnonzero(steps > self._max_gap):
            self.gap_count += 1
            self._gaps.append({"run": run.name, "at_s": float(run.time[row]), "length_s": float(steps[row])})
        self._gaps = self.longest(1000)
        group = run.group or "all"
        self._names.setdefault(group, set()).add(run.name)
        self._longest[group] = max(self._longest.get(group, 0.0), float(steps.max()))
        if self._kept.get(group, 0) < _STEPS:
            self._steps.setdefault(group, []).append(steps)
            self._kept[group] = self._kept.get(group, 0) + len(steps)

    def longest(self, count: int) -> list[dict[str, float | str]]:
        """Return the `count` longest gaps."""
        return sorted(self._gaps, key=lambda gap: -float(gap["length_s"]))[:count]

    def rates(self) -> dict[str, dict[str, float]]:
        """Return median rate, slowest step [Hz] and number of runs of each group."""
        return {
            name: {"median": 1 / step, "slowest": 1 / self._longest[name], "runs": len(self._names[name])}
            for name, step in self._medians().items()
        }

    def slower_than(self, step: float) -> list[str]:
        """Return the groups whose median step is longer than `step` [s]."""
        return sorted(name for name, median in self._medians().items() if median > step)

    def _medians(self) -> dict[str, float]:
        return {name: float(np.median(np.concatenate(steps))) for name, steps in self._steps.items()}


def by_ratio(slope: np.ndarray, velocity: np.ndarray) -> float | None:
    """Return the ratio of a position's slope to its velocity; None if they correlate weakly."""
    good = np.isfinite(slope) & np.isfinite(velocity)
    if good.sum() < 3:
        return None
    slope, velocity = slope[good], velocity[good]
    power, other, together = (float((a * b).mean()) for a, b in ((velocity,) * 2, (slope,) * 2, (slope, velocity)))
    if power <= 1e-12 or other <= 1e-12 or abs(together) < 0.8 * math.sqrt(power * other):
        return None
    return together / power

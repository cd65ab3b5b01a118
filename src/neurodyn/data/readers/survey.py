# SPDX-License-Identifier: Apache-2.0
"""What is noted of the runs of a log while they pass: rates, gaps and missing values."""

from dataclasses import dataclass

import numpy as np

from neurodyn.data.header import Split
from neurodyn.data.readers.raw import RawRun

_STEPS = 1 << 20
"""Steps of a group whose median is taken; the later ones of a longer log only count as gaps."""


@dataclass(frozen=True)
class SeenRun:
    """Labels of a run, as of `RawRun`."""

    group: str
    split: Split | None
    together: str


class Survey:
    """Counts of runs, kept while the runs themselves are not.

    Attributes:
        runs: Labels of each run, by name.
        rows: Number of rows.
        gap_count: Number of gaps.
        missing: Number of rows without a value.
    """

    def __init__(self, max_gap: float) -> None:
        self.runs: dict[str, SeenRun] = {}
        self.rows = self.gap_count = self.missing = 0
        self._max_gap = max_gap
        self._gaps: list[dict[str, float | str]] = []
        self._steps: dict[str, list[np.ndarray]] = {}
        self._kept: dict[str, int] = {}
        self._longest: dict[str, float] = {}
        self._names: dict[str, set[str]] = {}

    def add(self, run: RawRun) -> None:
        """Note a run, or a part of one."""
        self.runs.setdefault(run.name, SeenRun(run.group, run.split, run.together))
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
        """Return the longest gaps."""
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

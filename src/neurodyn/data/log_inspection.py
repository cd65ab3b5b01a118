# SPDX-License-Identifier: Apache-2.0
"""What a raw log holds: its streams and columns with rates, gaps, ranges and likely units."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.readers.draft import Draft, draft_map, draft_text, meaning
from neurodyn.data.readers.formats import READERS, LogFormat, require_format
from neurodyn.data.readers.source import Part, Series, Topic
from neurodyn.data.readers.unit_doubts import by_ratio

_KEPT = 1 << 18
_PAUSE = 0.1


@dataclass(frozen=True)
class LogReport:
    """What `inspect_log` found.

    Attributes:
        found: Figures as plain data.
        map_text: A column map to start from, as YAML with comments.
    """

    found: dict[str, Any]
    map_text: str


def inspect_log(path: Path, spec: StateSpec | None = None, robot: str | None = None) -> LogReport:
    """Read a raw log once and say what it holds.

    Args:
        path: A log of any format that `neurodyn import` reads.
        spec: The robot that it is of, whose joints the drafted column map then has.
        robot: Its name or path, which the map then names.

    Raises:
        InputError: The log is of no known format, or damaged.
    """
    name = require_format(path)
    reader = READERS[name]
    if not isinstance(reader, LogFormat):
        raise InputError(f"{path}: the format {name!r} of a plug-in cannot be inspected; import it with a column map")
    source = reader.source(path)
    topics = source.topics()
    readable = [topic for topic in topics if topic.columns]
    if not readable:
        troubles = "; ".join(f"{t.name} ({t.kind}) {t.trouble}".strip() for t in topics if t.trouble)
        raise InputError(f"{path}: holds no column of numbers{': ' if troubles else ''}{troubles}")
    read = readable[:1] if name == "npz" else readable  # arrays of other lengths are of no row
    columns = list(dict.fromkeys(column for topic in read for column in topic.columns))
    seen = _Seen(source.stamp())
    for part in source.parts(columns):
        seen.add(part)
    unit, factor = seen.time_unit()
    draft = draft_map(source, name, topics, spec)
    _add_units(draft, seen, name)
    if unit != "s":
        draft.tree = {"format": name, "time": draft.tree.get("time"), "time_unit": unit} | draft.tree
    if getattr(source, "delimiter", ",") != ",":
        draft.tree = {"format": name, "delimiter": getattr(source, "delimiter", ",")} | draft.tree
    step = getattr(source, "step", 0.0)
    if (source.stamp() is None and name in {"csv", "npz"}) or step is None:
        draft.tree = {"format": name, "period": 0.01} | draft.tree
        draft.doubts.insert(0, "the log has no time stamps: give the time between two rows as `period` [s]")
    entries = [_topic(topic, seen if topic in read else None, factor) for topic in topics]
    found = {"log": str(path), "format": name, "what": reader.what, "runs": seen.runs, "topics": entries}
    remarks = {c: r for c in columns if (r := seen.remark(c))}
    text = draft_text(draft, str(path), remarks, robot)
    return LogReport(found | {"doubts": draft.doubts, "absent": draft.absent}, text)


class _Seen:
    """Moments of columns and clocks, taken while a log passes."""

    def __init__(self, stamp: str | None) -> None:
        self.runs = 0
        self._stamp = stamp
        self._names: set[str] = set()
        self._moments: dict[str, list[float]] = {}
        self._steps: dict[str, list[np.ndarray]] = {}
        self._kept: dict[str, int] = {}
        self._extremes: dict[str, list[float]] = {}
        self._first: dict[str, Series] = {}

    def add(self, part: Part) -> None:
        """Take a part of the log."""
        for run in part.runs:
            if run.name not in self._names:
                self._names.add(run.name)
                self.runs += 1
        clocks: dict[int, np.ndarray] = {}
        for name, series in part.series.items():
            self._count(name, series.value)
            if name not in self._first and len(series.value):
                rows = slice(0, min(_KEPT, part.runs[0].rows.indices(len(series.value))[1]))
                self._first[name] = Series(series.time[rows], series.value[rows].copy())
            if id(series.time) not in clocks:
                steps = np.diff(series.time)
                for run in part.runs[1:]:
                    if run.rows.start:
                        steps[run.rows.start - 1] = np.nan
                steps = steps[np.isfinite(steps)]
                clocks[id(series.time)] = steps
            self._clock(name, clocks[id(series.time)])

    def _count(self, name: str, value: np.ndarray) -> None:
        good = value[np.isfinite(value)]
        count, missing, least, most, total = self._moments.get(name, [0, 0, np.inf, -np.inf, 0.0])
        if len(good):
            least, most, total = min(least, float(good.min())), max(most, float(good.max())), total + float(good.sum())
        self._moments[name] = [count + len(value), missing + len(value) - len(good), least, most, total]

    def _clock(self, name: str, steps: np.ndarray) -> None:
        if not len(steps):
            return
        if self._kept.get(name, 0) < _KEPT:
            self._steps.setdefault(name, []).append(steps[:_KEPT])
            self._kept[name] = self._kept.get(name, 0) + len(steps)
        longest, pauses, back = self._extremes.get(name, [0.0, 0, 0])
        limit = max(_PAUSE, 10 * float(np.median(steps)))
        self._extremes[name] = [
            max(longest, float(steps.max())), pauses + int((steps > limit).sum()), back + int((steps < 0).sum())
        ]  # fmt: skip

    def clock(self, name: str, factor: float) -> dict[str, float | None]:
        """Return rate [Hz], slowest step [Hz], pauses and steps back of a column's clock, whose unit is `factor` s."""
        if name not in self._steps:
            return {"rate_hz": None, "slowest_hz": None, "gaps": 0, "backwards": 0}
        median = factor * float(np.median(np.concatenate(self._steps[name])))
        longest, pauses, back = self._extremes[name]
        return {
            "rate_hz": 1 / median if median > 0 else None,
            "slowest_hz": 1 / (factor * longest) if longest > 0 else None,
            "gaps": pauses,
            "backwards": back,
        }

    def column(self, name: str) -> dict[str, Any]:
        """Return count, range and likely unit of a column."""
        count, missing, least, most, total = self._moments.get(name, [0, 0, np.nan, np.nan, 0.0])
        good = count - missing
        return {
            "name": name, "rows": int(count), "missing": int(missing), "unit": self.unit(name) or "",
            "min": least if good else None, "max": most if good else None, "mean": total / good if good else None,
        }  # fmt: skip

    def remark(self, name: str) -> str:
        """Return range and likely unit of a column in words."""
        found = self.column(name)
        if found["min"] is None:
            return "no number"
        unit = found["unit"]
        lost = f", {found['missing']} missing" if found["missing"] else ""
        return f"{found['min']:.3g} to {found['max']:.3g}{f' {unit}?' if unit else ''}{lost}"

    def unit(self, name: str) -> str | None:
        """Return the likely unit of a joint's position or velocity; None where nothing is known."""
        found = meaning(name)
        if found is None or name not in self._first:
            return None
        if found.quantity == "position":
            return "deg" if self._span(name) > 7.0 else "rad"
        if found.quantity != "velocity":
            return None
        position = next(
            (
                other
                for other in self._first
                if (m := meaning(other)) is not None and m.quantity == "position" and m.key == found.key
            ),
            None,
        )
        if position is None:
            return "rad/s"
        scale = np.pi / 180 if self.unit(position) == "deg" else 1.0
        where, own = self._first[position], self._first[name]
        if len(where.time) < 3 or (np.diff(where.time) <= 0).any() or len(own.time) < 3:
            return "rad/s"
        slope = np.gradient(scale * where.value, where.time * self.time_unit()[1])
        ratio = by_ratio(np.interp(own.time, where.time, slope), own.value)
        if ratio is None:
            return "rad/s"
        known = {"rad/s": 1.0, "deg/s": np.pi / 180, "rpm": np.pi / 30, "rev/s": 2 * np.pi}
        unit = min(known, key=lambda u: abs(np.log(abs(ratio) / known[u])))
        return unit if abs(abs(ratio) / known[unit] - 1) < 0.2 else "rad/s"

    def _span(self, name: str) -> float:
        values = self._first[name].value
        good = np.abs(values[np.isfinite(values)])
        return float(np.quantile(good, 0.99)) if len(good) else 0.0

    def time_unit(self) -> tuple[str, float]:
        """Return the likely unit of a column of time stamps, and its size [s]."""
        if self._stamp is None or not self._steps:
            return "s", 1.0
        step = float(np.median(np.concatenate(next(iter(self._steps.values())))))
        for most, unit, size in ((0.5, "s", 1.0), (500.0, "ms", 1e-3), (5e5, "us", 1e-6)):
            if step < most:
                return unit, size
        return "ns", 1e-9


def _add_units(draft: Draft, seen: _Seen, name: str) -> None:
    """Write likely units that are not SI into a drafted map; messages of ROS are in SI units by definition."""
    if name in {"mcap", "rosbag2", "mujoco"}:
        return
    for what in ("q", "qd"):
        columns = draft.tree.get(what)
        for column in columns.values() if isinstance(columns, dict) else ():
            unit = seen.unit(column["column"])
            if unit in {"deg", "deg/s", "rpm", "rev/s"}:
                column["unit"] = unit


def _topic(topic: Topic, seen: _Seen | None, factor: float) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": topic.name, "type": topic.kind, "clock": topic.clock, "rows": topic.rows, "trouble": topic.trouble,
    }  # fmt: skip
    if seen is None or not topic.columns:
        return entry | {"columns": [{"name": column} for column in topic.columns]}
    columns = [seen.column(column) for column in topic.columns]
    rows = topic.rows if topic.rows is not None else max(column["rows"] for column in columns)
    clock = max((seen.clock(column, factor) for column in topic.columns), key=lambda c: c["rate_hz"] or 0.0)
    return entry | {"rows": rows} | clock | {"columns": columns}

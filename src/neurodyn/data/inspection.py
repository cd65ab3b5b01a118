# SPDX-License-Identifier: Apache-2.0
"""Summary of a store or a raw log: counts, ranges, coverage, rates, gaps, likely units, and a plot of a store."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from neurodyn.core.artifacts import atomic
from neurodyn.core.config import from_dict
from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.progress import tracked
from neurodyn.data.command_parts import KIND
from neurodyn.data.header import Split, Status
from neurodyn.data.log_checks import FASTEST_TURN
from neurodyn.data.readers.column_map import READERS, LogFormat, require_format
from neurodyn.data.readers.column_names import meaning, told_unit
from neurodyn.data.readers.draft import ColumnMapDraft, draft_map, draft_text
from neurodyn.data.readers.floating import FloatingColumns, fitting_conventions
from neurodyn.data.readers.raw import by_ratio
from neurodyn.data.readers.source import ColumnSeries, LogPart, Topic, state_units
from neurodyn.data.readers.source import factor as unit_size
from neurodyn.data.store import Store

Ranges = dict[str, dict[str, tuple[float, float]]]
"""Intended interval of each coordinate, by kind ("q", "qd", "control", "channel") and name."""

_FEWEST, _ALIKE, _SIMILAR = 50, 0.9, 1.5
"""Fewest values by which columns are compared, and least correlation and largest ratio of sizes of columns alike."""
_BINS = 50
_PLANE_BINS = 20


def inspect_store(store: Store, ranges: Ranges | None = None) -> dict[str, Any]:
    """Return statistics of a store as plain data, with coverage of `ranges` (default: the range of the data)."""
    return counts(store) | {
        "coordinates": coordinates(store, ranges or {}),
        "planes": _planes(store, ranges or {}),
        "ground": _ground(store),
        "rewards": _rewards(store),
    }


def counts(store: Store) -> dict[str, Any]:
    """Return a store's summary without reading its rows: origin, counts of episodes and transitions, notes of logs."""
    header, lengths = store.header, store.lengths
    return {
        "robot": header.robot,
        "source": header.source,
        "dt_s": header.spec.dt,
        "seed": header.seed,
        "teacher": header.simulator,
        "versions": header.versions,
        "episodes": len(store.table),
        "transitions": store.transitions,
        "duration_s": store.transitions * header.spec.dt,
        "length": {"min": int(lengths.min()), "median": float(np.median(lengths)), "max": int(lengths.max())},
        "splits": {split.name.lower(): _count(store, store.split == split) for split in Split},
        "ends": {status.name.lower(): _count(store, store.status == status) for status in Status},
        "groups": {name: _count(store, store.group == index) for index, name in enumerate(header.groups)},
        "log": header.notes if header.source == "log" else None,
        "sensors": _readings(store),
    }


def _readings(store: Store) -> dict[str, float]:
    shares: dict[str, float] = {}
    place = 0
    for stream in store.header.streams:
        if stream.kind == KIND:
            continue
        assert store.measured is not None
        shares[stream.name] = float(np.isfinite(store.measured[:, place]).mean())
        place += stream.width
    return shares


def coordinates(store: Store, ranges: Ranges) -> list[dict[str, Any]]:
    """Return unit, range, moments and coverage of each column of q, qd, control, channels, contacts and readings.

    Coverage is the fraction of 50 equal bins of the coordinate's interval with at least one state.
    """
    spec = store.header.spec
    units = state_units(spec)
    units |= {"channel": {c.name: c.unit for c in spec.channels}, "contact": dict.fromkeys(spec.contacts, "1")}
    acting = np.ones(len(store.frames), bool)
    acting[store.offsets[1:] - 1] = False  # the last row of an episode has no control
    columns = {"q": store.q, "qd": store.qd, "channel": store.channel, "contact": store.contact}
    columns["control"] = store.control[acting]
    if store.measured is not None:
        streams = [one for one in store.header.streams if one.kind != KIND]
        units["measured"] = {x: unit for one in streams for x, unit in zip(one.columns, one.units, strict=True)}
        columns["measured"] = store.measured  # parts of commands come last
    entries = []
    for what, named in tracked(units.items()):
        for index, (name, unit) in enumerate(tracked(named.items())):
            column = wrap_column(store, what, index, columns[what][:, index])
            column = column[np.isfinite(column)]  # NaN: no reading
            interval = ranges.get(what, {}).get(name)
            entry = {"what": what, "name": name, "unit": unit, "range": None if interval is None else list(interval)}
            entries.append(entry | _moments(column, interval) if len(column) else entry)
    return entries


def wrap_column(store: Store, what: str, index: int, column: np.ndarray) -> np.ndarray:
    """Return a column in float64; positions of continuous joints are wrapped to [-pi, pi)."""
    column = column.astype(np.float64)
    if what == "q" and store.header.spec.continuous[index]:
        return np.mod(column + np.pi, 2 * np.pi) - np.pi
    return column


def _moments(column: np.ndarray, interval: tuple[float, float] | None) -> dict[str, Any]:
    low, high = interval or (float(column.min()), float(column.max()))
    counts = np.histogram(column, bins=_BINS, range=(low, high) if high > low else (low - 1, low + 1))[0]
    return {
        "min": float(column.min()),
        "max": float(column.max()),
        "mean": float(column.mean()),
        "std": float(column.std()),
        "p01": float(np.percentile(column, 1)),
        "p99": float(np.percentile(column, 99)),
        "coverage": float((counts > 0).mean()),
        "outside": float(((column < low) | (column > high)).mean()),
    }


def _planes(store: Store, ranges: Ranges) -> dict[str, float]:
    """Return the fraction of 20 x 20 bins of position and velocity with a state, by single-axis joint."""
    spec = store.header.spec
    coverage = {}
    for joint in spec.joints:
        if not joint.scalar:
            continue
        row, dof = spec.q_names.index(joint.name), spec.qd_names.index(joint.name)
        pair = [wrap_column(store, "q", row, store.q[:, row]), store.qd[:, dof].astype(np.float64)]
        limits = [
            ranges.get(what, {}).get(joint.name) or (float(values.min()), float(values.max()) + 1e-9)
            for what, values in zip(("q", "qd"), pair, strict=True)
        ]
        counts = np.histogram2d(pair[0], pair[1], bins=_PLANE_BINS, range=limits)[0]
        coverage[joint.name] = float((counts > 0).mean())
    return coverage


def _ground(store: Store) -> dict[str, Any] | None:
    """Return the shapes in the scene, and the ranges of its height [m] and tilt [rad] over the episodes."""
    scene, ground = store.header.scene, store.ground
    if scene is None or ground is None:
        return None
    x, y = ground[:, 3].astype(np.float64), ground[:, 4].astype(np.float64)
    tilt = 2 * np.arcsin(np.clip(np.hypot(x, y), 0.0, 1.0))
    height = ground[:, 2]
    return {
        "shapes": [type(shape).__name__.lower() for shape in scene.shapes],
        "height": [float(height.min()), float(height.max())],
        "tilt": [float(tilt.min()), float(tilt.max())],
        "poses": len(np.unique(ground, axis=0)),
        "probes": None if store.header.contact_points is None else len(store.header.contact_points.contact_points),
    }


def _rewards(store: Store) -> dict[str, Any] | None:
    """Return moments of the reward per frame and of the return per episode, and mean returns by group."""
    returns = store.returns
    if returns is None or store.reward is None or not store.transitions:
        return None
    acting = np.ones(len(store.frames), bool)
    acting[store.offsets[1:] - 1] = False
    parts = {"frame": store.reward[acting].astype(np.float64), "return": returns}
    groups = enumerate(store.header.groups)
    return {
        **{
            name: {key: float(getattr(values, key)()) for key in ("min", "mean", "max", "std")}
            for name, values in parts.items()
        },
        "groups": {name: float(returns[store.group == i].mean()) for i, name in groups if (store.group == i).any()},
    }


def _count(store: Store, chosen: np.ndarray) -> dict[str, int]:
    return {"episodes": int(chosen.sum()), "transitions": int(store.lengths[chosen].sum())}


_MOST_ROWS = 12
_SAMPLES = 4


def plot_store(store: Store, path: Path, ranges: Ranges | None = None) -> None:
    """Plot histograms of q, qd, control and channels, and a few episodes, into a PNG file."""
    from matplotlib.figure import Figure

    spec = store.header.spec
    units = state_units(spec)
    columns = (
        *((what, getattr(store, what), units[what]) for what in ("q", "qd", "control")),
        ("channel", store.channel, {channel.name: channel.unit for channel in spec.channels}),
    )
    columns = [column for column in columns if column[2]]
    rows = min(_MOST_ROWS, max(len(units) for _, _, units in columns))
    figure = Figure(figsize=(16 * len(columns) / 3, 2.2 * rows + 0.8), layout="constrained")
    figure.suptitle(
        f"{spec.robot}: {store.transitions:,} transitions of {spec.dt:.4g} s in {len(store.table):,} episodes"
    )
    axes = figure.subplots(rows, 2 * len(columns), squeeze=False, width_ratios=(1, 1.6) * len(columns))
    for axis in axes.flat:
        axis.set_axis_off()
    samples = np.linspace(0, len(store.table) - 1, min(_SAMPLES, len(store.table))).round().astype(int)
    for kind, (what, values, units) in enumerate(columns):
        for row, (name, unit) in enumerate(list(units.items())[:rows]):
            label = f"{what} {name} [{unit}]"
            _histogram(axes[row, 2 * kind], wrap_column(store, what, row, values[:, row]), label, ranges, what, name)
            _episodes(axes[row, 2 * kind + 1], store, samples, what, row, label)
    with atomic(path) as partial:
        figure.savefig(partial, format="png", dpi=80)


def _histogram(axis, column: np.ndarray, label: str, ranges: Ranges | None, what: str, name: str) -> None:  # noqa: ANN001
    axis.set_axis_on()
    axis.hist(column[np.isfinite(column)], bins=60, color="#3b6fb5", log=True)
    for bound in (ranges or {}).get(what, {}).get(name, ()):
        axis.axvline(bound, color="#d9822b", linewidth=1)
    axis.set_title(label, fontsize=8)
    axis.tick_params(labelsize=6)


def _episodes(axis, store: Store, samples: np.ndarray, what: str, row: int, label: str) -> None:  # noqa: ANN001
    axis.set_axis_on()
    for index in samples:
        arrays: dict[str, np.ndarray] = dict(zip(("q", "qd", "control"), store.episode(int(index)), strict=True))
        arrays["channel"] = store.channel[store.offsets[index] : store.offsets[index + 1]]
        axis.plot(store.header.spec.dt * np.arange(len(arrays[what])), arrays[what][:, row], linewidth=0.8)
    axis.set_title(f"{label}, episodes {', '.join(map(str, samples))}", fontsize=8)
    axis.tick_params(labelsize=6)


_IMU = "sensor_msgs/msg/Imu"
_KEPT = 1 << 18
_PAUSE = 0.1
_SPEEDS, _SLIDING_SPEEDS = ("rad/s", "deg/s", "rpm", "rev/s"), ("m/s", "mm/s")
"""Units that velocities of joints may have, those of SI first."""
_BEYOND, _LONGEST_SLIDE = 5.0, 10.0
"""Times the reach of a slide from which on its positions are in mm; reach of one without limits [m]."""


@dataclass(frozen=True)
class LogReport:
    """Figures of a log as plain data, and the draft of a column map as YAML with comments."""

    found: dict[str, Any]
    map_text: str


def inspect_log(
    path: Path, spec: StateSpec | None = None, robot: str | None = None,
    centers: Mapping[str, Vector3] = MappingProxyType({}), stands: Callable[[], float] = lambda: 0.0,
) -> LogReport:  # fmt: skip
    """Read a raw log once and report its topics, columns, rates and likely units, with a draft column map.

    The draft maps the joints of `spec`, if given, and names the robot by name or path; `centers` are centres of mass of
    its free joints' bodies in their frames [m], by joint; `stands` returns the height at which a floating base stands
    [m], which is called if the log has none.

    Raises:
        InputError: The log's format is unknown, or it is damaged.
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
        expected = troubles or "expected times and readings as numbers"
        raise InputError(f"{path}: holds no column of numbers; {expected}")
    read = readable[:1] if name == "npz" else readable  # npz arrays of other lengths have other rows
    columns = list(dict.fromkeys(column for topic in read for column in topic.columns))
    seen = _LogContents(source.stamp())
    for part in source.parts(columns):
        seen.add(part)
    unit, factor = seen.time_unit()
    draft = draft_map(source, name, [seen.with_numbers(topic) for topic in topics], spec, centers, stands)
    _add_units(draft, seen, name, spec)
    _fit_conventions(draft, seen, factor)
    _find_targets(draft, seen, spec)
    if unit != "s":
        draft.tree = {"format": name, "time": draft.tree.get("time"), "time_unit": unit} | draft.tree
    if source.decimal != ".":
        draft.tree = {"format": name, "decimal": source.decimal} | draft.tree
    if source.delimiter != ",":
        draft.tree = {"format": name, "delimiter": source.delimiter} | draft.tree
    if texts := [text for topic in topics for text in topic.not_numbers]:
        draft.doubts.append(f"columns without numbers, which are not read: {', '.join(texts)}")
    if (source.stamp() is None and name in {"csv", "jsonl", "npz"}) or source.step is None:
        draft.doubts.insert(0, "the log has no time stamps: give the time between two rows as `period` [s]")
    entries = [_topic(topic, seen if topic in read else None, factor) for topic in topics]
    figures = {"log": str(path), "format": name, "what": reader.what, "runs": len(seen.runs), "topics": entries}
    remarks = {c: r for c in columns if (r := seen.remark(c))}
    text = draft_text(draft, str(path), remarks, robot, columns)
    return LogReport(figures | {"doubts": draft.doubts, "absent": draft.absent}, text)


@dataclass
class _ColumnStatistics:
    """Moments and first values of one column, and moments of its clock's steps."""

    count: int = 0
    missing: int = 0
    least: float = np.inf
    most: float = -np.inf
    total: float = 0.0
    steps: list[np.ndarray] = field(default_factory=list)
    kept: int = 0
    longest: float = 0.0
    pauses: int = 0
    backwards: int = 0
    first: ColumnSeries | None = None

    def add(self, value: np.ndarray, steps: np.ndarray) -> None:
        good = value[np.isfinite(value)]
        self.count += len(value)
        self.missing += len(value) - len(good)
        if len(good):
            self.least, self.most = min(self.least, float(good.min())), max(self.most, float(good.max()))
            self.total += float(good.sum())
        if not len(steps):
            return
        if self.kept < _KEPT:
            self.steps.append(steps[:_KEPT])
            self.kept += len(steps)
        self.longest = max(self.longest, float(steps.max()))
        self.pauses += int((steps > max(_PAUSE, 10 * float(np.median(steps)))).sum())
        self.backwards += int((steps < 0).sum())

    def clock(self, factor: float) -> dict[str, float | None]:
        """Return median and slowest rate [Hz], pauses and backward steps of a clock in units of `factor` s."""
        median = factor * float(np.median(np.concatenate(self.steps))) if self.steps else 0.0
        return {
            "rate_hz": 1 / median if median > 0 else None,
            "slowest_hz": 1 / (factor * self.longest) if self.longest > 0 else None,
            "gaps": self.pauses,
            "backwards": self.backwards,
        }


class _LogContents:
    """Contents of a log, accumulated while it is read: run names and columns."""

    def __init__(self, stamp: str | None) -> None:
        self.runs: set[str] = set()
        self._stamp = stamp
        self.unbounded: set[str] = set()
        """Columns of continuous joints, whose size tells no unit."""
        self.slides: dict[str, float] = {}
        """How far slides reach by their limits [m], by column; infinite without limits."""
        self.columns: dict[str, _ColumnStatistics] = defaultdict(_ColumnStatistics)

    def add(self, part: LogPart) -> None:
        self.runs |= {run.name for run in part.runs}
        clocks: dict[int, np.ndarray] = {}
        for name, series in part.series.items():
            if id(series.time) not in clocks:
                steps = np.diff(series.time)
                steps[[run.rows.start - 1 for run in part.runs[1:] if run.rows.start]] = np.nan
                clocks[id(series.time)] = steps[np.isfinite(steps)]
            column = self.columns[name]
            column.add(series.value, clocks[id(series.time)])
            if column.first is None and len(series.value):
                rows = slice(0, min(_KEPT, part.runs[0].rows.indices(len(series.value))[1]))
                column.first = ColumnSeries(series.time[rows], series.value[rows].copy())

    def column(self, name: str) -> dict[str, Any]:
        """Return count, range and likely unit of a column."""
        seen = self.columns[name]
        good = seen.count - seen.missing
        return {
            "name": name, "rows": seen.count, "missing": seen.missing, "unit": self.unit(name) or "",
            "min": seen.least if good else None, "max": seen.most if good else None,
            "mean": seen.total / good if good else None,
        }  # fmt: skip

    def with_numbers(self, topic: Topic) -> Topic:
        """Return a topic without the columns that hold no number, and an IMU's without an attitude that never turns."""
        empty = {name for name, seen in self.columns.items() if seen.count == seen.missing}
        if topic.kind == _IMU:
            turns = [name for name in topic.columns if ".orientation." in name]
            still = all(self.columns[name].least == self.columns[name].most for name in turns)
            empty |= set(turns) if still else set()
        return replace(topic, columns=tuple(name for name in topic.columns if name not in empty))

    def remark(self, name: str) -> str:
        """Return range and likely unit of a column in words."""
        column = self.column(name)
        if column["min"] is None:
            return "no number"
        unit = column["unit"]
        lost = f", {column['missing']} missing" if column["missing"] else ""
        return f"{column['min']:.3g} to {column['max']:.3g}{f' {unit}?' if unit else ''}{lost}"

    def unit(self, name: str) -> str | None:
        """Return the unit in a column's name, or the likely one of a joint's position or velocity; None otherwise."""
        known, own = meaning(name), self.columns[name].first
        if known is None or own is None:
            return None
        if told := told_unit(name):
            return told
        if known.quantity == "position":
            good = np.abs(own.value[np.isfinite(own.value)])
            if name in self.slides:
                farthest = float(np.quantile(good, 0.99)) if len(good) else 0.0
                return "mm" if farthest > _BEYOND * min(self.slides[name], _LONGEST_SLIDE) else "m"
            if name in self.unbounded:  # a wheel's angle may have any size
                steps, clock = np.abs(np.diff(own.value)), np.diff(own.time) * self.time_unit()[1]
                rates = steps[clock > 0] / clock[clock > 0]
                around = bool(((steps > 350.0) & (steps < 361.0)).any())
                return "deg" if around or (len(rates) and float(np.quantile(rates, 0.95)) > FASTEST_TURN) else ""
            return "deg" if len(good) and float(np.quantile(good, 0.99)) > 7.0 else "rad"
        if known.quantity != "velocity":
            return None
        position, where = self._position_of(known.key)
        speeds = _SLIDING_SPEEDS if name in self.slides else _SPEEDS
        first = speeds[0]
        if where is None or len(where.time) < 3 or (np.diff(where.time) <= 0).any() or len(own.time) < 3:
            return first
        scale = {"deg": np.pi / 180, "mm": 1e-3}.get(self.unit(position) or "", 1.0)
        slope = np.gradient(scale * where.value, where.time * self.time_unit()[1])
        ratio = by_ratio(np.interp(own.time, where.time, slope), own.value)
        if ratio is None:
            return first
        sizes = {unit: unit_size(unit, first, name) for unit in speeds}
        unit = min(sizes, key=lambda u: abs(np.log(abs(ratio) / sizes[u])))
        return unit if abs(abs(ratio) / sizes[unit] - 1) < 0.2 else first

    def alike(self, one: str, other: str) -> bool:
        """Return whether the first values of two columns change alike, and are of one size."""
        first, second = self.columns[one].first, self.columns[other].first
        if first is None or second is None or len(first.time) < _FEWEST or len(second.time) < _FEWEST:
            return False
        a, b = first.value, np.interp(first.time, second.time, second.value)
        sizes = float(np.std(a)), float(np.std(b))
        if not np.isfinite(sizes).all() or min(sizes) < 1e-9:
            return False
        return float(np.corrcoef(a, b)[0, 1]) > _ALIKE and max(sizes) < _SIMILAR * min(sizes)

    def _position_of(self, key: str) -> tuple[str, ColumnSeries | None]:
        """Return the name and the first values of the position of a joint."""
        for name, column in self.columns.items():
            known = meaning(name)
            if column.first is not None and known is not None and (known.quantity, known.key) == ("position", key):
                return name, column.first
        return "", None

    def time_unit(self) -> tuple[str, float]:
        """Return the likely unit of the time stamps, and its size [s]."""
        steps = next((column.steps for column in self.columns.values() if column.steps), None)
        if self._stamp is None or steps is None:
            return "s", 1.0
        step = float(np.median(np.concatenate(steps)))
        for most, unit, size in ((0.5, "s", 1.0), (500.0, "ms", 1e-3), (5e5, "us", 1e-6)):
            if step < most:
                return unit, size
        return "ns", 1e-9


def _add_units(draft: ColumnMapDraft, seen: _LogContents, name: str, spec: StateSpec | None) -> None:
    """Write likely non-SI units into a drafted map; ROS messages are in SI units by definition."""
    if name in {"mcap", "rosbag1", "rosbag2", "mujoco"}:
        return
    for joint in spec.joints if spec is not None else ():
        for what in ("q", "qd"):
            entry = draft.tree[what].get(joint.name) if isinstance(draft.tree.get(what), dict) else None
            if entry is not None and joint.kind == "prismatic":
                seen.slides[entry["column"]] = max(
                    math.inf if bound is None else abs(bound) for bound in (joint.lower, joint.upper)
                )
            elif entry is not None and (joint.continuous or joint.kind != "revolute"):
                seen.unbounded.add(entry["column"])
    for what in ("q", "qd"):
        columns = draft.tree.get(what)
        for column in columns.values() if isinstance(columns, dict) else ():
            unit = seen.unit(column["column"])
            if unit in {"deg", "deg/s", "rpm", "rev/s", "mm", "mm/s"}:
                column["unit"] = unit


def _fit_conventions(draft: ColumnMapDraft, seen: _LogContents, factor: float) -> None:
    """Give poses the conventions that fit their velocities in the log, where the drafted ones do not."""
    for joint, tree in draft.tree.get("floating", {}).items():
        if not isinstance(tree, dict) or "angular_velocity" not in tree:
            continue
        for _ in range(2):  # of angular velocities, then of linear ones
            declared = from_dict(tree, FloatingColumns, joint)
            names = [name for name, _ in (*declared.q_columns(), *declared.qd_columns())]
            series = [seen.columns[name].first if isinstance(name, str) else None for name in names]
            rows = min((len(one.value) for one in series if one is not None), default=0)
            if None in series or rows < _FEWEST:
                break
            values = np.column_stack([one.value[:rows] for one in series if one is not None])
            q, qd = np.split(values, [len(declared.q_columns())], axis=1)
            q[:, :-4] *= unit_size(declared.position_unit, "m", joint)
            steps = factor * np.diff(series[0].time[:rows]) if series[0] is not None else np.zeros(0)
            found = fitting_conventions(declared, q, qd, steps)
            if not found:
                break
            tree |= found
            words = ", ".join(f"`{name}: {value}`" for name, value in found.items())
            draft.doubts.append(f"{joint}: {words}, as these fit its velocities")


def _find_targets(draft: ColumnMapDraft, seen: _LogContents, spec: StateSpec | None) -> None:
    """Take commands for position targets, if no name says what they are and all are like the positions.

    Targets that are like positions have their units.
    """
    q, commands = draft.tree.get("q"), draft.tree.get("control")
    if not (isinstance(q, dict) and isinstance(commands, dict) and commands.keys() <= q.keys()):
        return
    like = {name for name, one in commands.items() if seen.alike(one["column"], q[name]["column"])}
    if draft.torques and like == commands.keys():
        draft.take_for_targets()
    kind = draft.tree.get("control_kind", spec.control_kind if spec is not None else "")
    for name in like if kind == "target" else ():
        if "unit" in q[name]:
            commands[name].setdefault("unit", q[name]["unit"])


def _topic(topic: Topic, seen: _LogContents | None, factor: float) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": topic.name, "type": topic.kind, "clock": topic.clock, "rows": topic.rows, "trouble": topic.trouble,
    }  # fmt: skip
    if seen is None or not topic.columns:
        return entry | {"columns": [{"name": column} for column in topic.columns]}
    columns = [seen.column(column) for column in topic.columns]
    rows = topic.rows if topic.rows is not None else max(column["rows"] for column in columns)
    clock = max((seen.columns[column].clock(factor) for column in topic.columns), key=lambda c: c["rate_hz"] or 0.0)
    return entry | {"rows": rows} | clock | {"columns": columns}

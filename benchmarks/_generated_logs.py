# SPDX-License-Identifier: Apache-2.0
"""Logs drawn at random: a known motion in a format, order, clock, unit and convention, with its right column map.

A log that no column map can express says why it has to be refused.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from _known_motion import CENTER, DT, KnownRun, Motion

TABLES = ("csv", "jsonl", "npz")
BAGS = ("mcap", "rosbag1", "rosbag2")
SETS = ("mujoco", "robomimic", "lerobot", "lerobot2")
FORMATS = (*TABLES, "csv", *BAGS, *SETS, "other")
UNITS = {
    "rad": {"": 1.0, "deg": np.pi / 180, "rev": 2 * np.pi, "mrad": 1e-3},
    "m": {"": 1.0, "mm": 1e-3, "cm": 1e-2},
    "rad/s": {"": 1.0, "deg/s": np.pi / 180, "rpm": np.pi / 30},
    "m/s": {"": 1.0, "mm/s": 1e-3, "cm/s": 1e-2},
    "N m": {"": 1.0, "mN m": 1e-3, "N cm": 1e-2},
    "N": {"": 1.0, "mN": 1e-3},
}
_CLOCKS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass
class Stream:
    """Columns on one clock: times since the motion's zero [s], and values by column."""

    time: np.ndarray
    columns: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class DrawnLog:
    """Files, the column map that reads them rightly, and what they hold; `refused`: why no map can."""

    files: list[Path]
    tree: dict[str, Any]
    runs: list[KnownRun]
    what: list[str]
    refused: str = ""
    units_told: bool = True


class Drawing:
    """One log that is being drawn."""

    def __init__(self, kind: str, draw: Random, folder: Path) -> None:
        self.kind, self.draw, self.folder = kind, draw, folder
        self.rng = np.random.default_rng(draw.getrandbits(32))
        self.what: list[str] = [kind]
        self.refused = ""
        self.tree: dict[str, Any] = {}
        self.factors: dict[str, tuple[float, float]] = {}
        self.blind: list[tuple[float, float]] = []

    def chance(self, share: float, word: str = "") -> bool:
        """Draw a yes or no; a yes is said."""
        yes = self.draw.random() < share
        if yes and word:
            self.what.append(word)
        return yes

    def clock(self, seconds: float, step: float, begin: float = 0.0, *, uneven: bool = True) -> np.ndarray:
        """Draw the times of a stream's rows from a time on [s]."""
        time = begin + step * np.arange(round(seconds / step) + 1)
        if uneven and self.chance(0.25, "uneven"):
            time[1:-1] += self.rng.uniform(-0.3, 0.3, len(time) - 2) * step
        if uneven and self.chance(0.2, "lost rows"):
            time = time[self.rng.random(len(time)) > 0.05]
        if uneven and self.chance(0.15, "pause"):
            hole = begin + self.draw.uniform(0.3, 0.6) * seconds
            time = time[(time < hole) | (time > hole + 0.35)]
        self._note_pauses(time)
        return time

    def _note_pauses(self, time: np.ndarray) -> None:
        for row in np.flatnonzero(np.diff(time) > 0.1):
            self.blind.append((float(time[row]), float(time[row + 1])))

    def column(self, name: str, unit: str, *, plain: bool = False) -> dict[str, Any]:
        """Draw how a quantity is written; its entry of the map."""
        entry: dict[str, Any] = {"column": name}
        chosen = "" if plain else self.draw.choice(list(UNITS[unit]))
        size, offset = UNITS[unit][chosen], 0.0
        if chosen:
            entry["unit"] = chosen
        if not plain and self.draw.random() < 0.2:
            entry["sign"] = -1
            size = -size
        if not plain and self.draw.random() < 0.2:
            entry["scale"] = self.draw.choice((0.5, 9.0, 0.01))
            size *= entry["scale"]
        if not plain and self.draw.random() < 0.2:
            offset = entry["offset"] = self.draw.choice((-35.0, 0.25, 2.0))
        self.factors[name] = (size, offset)
        return entry

    def rename(self, entry: dict[str, Any], end: str) -> str:
        """Add the unit to the name of a column; return the name."""
        old = entry["column"]
        entry["column"] = old + (end if end.startswith(" ") else end.replace("/", "_").replace(" ", ""))
        self.factors[entry["column"]] = self.factors.pop(old)
        return entry["column"]

    def raw(self, name: str, values: np.ndarray) -> np.ndarray:
        """Return what a column says of values in SI units."""
        size, offset = self.factors[name]
        return values / size - offset


def _units_of(motion: Motion) -> list[tuple[str, str, str]]:
    return [("m", "m/s", "N") if p else ("rad", "rad/s", "N m") for p in motion.prismatic]


def drawn_log(number: int, kind: str, draw: Random, folder: Path) -> DrawnLog:
    """Draw the log of a robot of a kind into a folder; `number` chooses the format."""
    form = FORMATS[number % len(FORMATS)]
    if form in ("lerobot", "lerobot2") and kind == "body":
        form = "csv"
    drawing = Drawing(kind, draw, folder)
    drawing.what.insert(0, form)
    write: Callable[[Drawing, str], DrawnLog] = {
        **dict.fromkeys(TABLES, _table), **dict.fromkeys(BAGS, _bag), **dict.fromkeys(SETS, _set), "other": _other,
    }[form]  # fmt: skip
    log = write(drawing, form)
    log.what, log.refused = drawing.what, log.refused or drawing.refused
    return log


def _table(d: Drawing, form: str) -> DrawnLog:
    motion = Motion(d.kind, d.draw)
    names, values = _table_columns(d, motion, form)
    step = d.draw.choice((DT, DT, DT / 2, DT / 4, 0.013))
    files, runs = d.draw.choice((1, 1, 1, 2, 3)), []
    inside = form != "npz" and files == 1 and d.chance(0.2, "episodes in a column")
    clock = d.draw.choice(list(_CLOCKS))
    stamped = d.draw.random() < 0.85
    if clock != "s" and stamped:
        d.tree["time_unit"] = clock
        d.what.append(clock)
    origin = d.draw.choice((0.0, 12.5, 1.7e9)) if stamped else 0.0
    stamp = d.draw.choice(("t", "time", "timestamp", f"t_{clock}", f"time [{clock}]"))
    d.tree |= {"time": stamp} if stamped else {"period": step}
    count = d.draw.choice((2, 3)) if inside else files
    if form == "csv" and (mark := d.draw.choice((",", ",", ";", "\t"))) != ",":
        d.tree["delimiter"] = mark
    differentiated = "" if isinstance(d.tree["qd"], dict) else d.tree.get("velocity", "central")
    tables = []
    gapped = d.chance(0.25, "missing values")
    for _ in range(count):
        run_motion = motion if not tables else Motion(d.kind, d.draw)
        d.blind = []
        time = d.clock(d.draw.uniform(2.0, 3.5), step, uneven=stamped)
        columns = {name: np.asarray(make(run_motion, time), float) for name, make in values.items()}
        if gapped:
            _blank(d, columns, time, [n for n in names if n in columns])
        time_rows = time
        if stamped and d.chance(0.1, "repeated rows"):
            again = np.sort(np.concatenate([np.arange(len(time)), d.rng.integers(1, len(time), 5)]))
            columns, time_rows = {n: v[again] for n, v in columns.items()}, time[again]
        tables.append((time_rows, columns))
        rounding = 4e-16 * (origin + 5.0)
        runs.append(KnownRun(run_motion, dict.fromkeys(("q", "qd", "control"), time), list(d.blind), rounding))
        runs[-1].differentiated = {"": 0.0, "central": DT, "past": 0.02}[differentiated]
        runs[-1].per_joint = (
            tuple(n for n, c in d.tree["qd"].items() if c == "differentiate") if not differentiated else ()
        )
        if runs[-1].per_joint:
            runs[-1].differentiated = 0.0
    if gapped:
        d.tree["missing"] = "gap"
    if inside:
        d.tree["episodes"] = "run"
        reset = d.draw.random() < 0.5
        d.what += ["clock reset"] if reset else []
        tables = [_joined(tables, reset)]
    order = list(tables[0][1])
    d.draw.shuffle(order)
    written = []
    for k, (time, columns) in enumerate(tables):
        columns = {name: columns[name] for name in order}
        if stamped:
            stamps = (time + origin) / _CLOCKS[clock]
            whole = clock in ("us", "ns")
            columns[stamp] = np.round(stamps).astype(np.int64) if whole else stamps
        written.append(_WRITERS[form](d, d.folder / f"log{k}", columns))
        for run in runs if inside else [runs[k]]:
            run.rounding += (
                {"us": 1e-6, "ms": 0.0, "s": 0.0, "ns": 3e-7 if origin > 1e6 else 1e-9}[clock] if stamped else 0
            )
    return DrawnLog(written, {"format": form} | d.tree, runs, d.what)


def _joined(tables: list, reset: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    moved, at = [], 0.0
    for time, _ in tables:
        moved.append(time if reset else time + at)
        at += time[-1] + 0.7
    runs = np.concatenate([np.full(len(time), k) for k, (time, _) in enumerate(tables)])
    joined = {name: np.concatenate([columns[name] for _, columns in tables]) for name in tables[0][1]}
    return np.concatenate(moved), joined | {"run": runs}


def _blank(d: Drawing, columns: dict[str, np.ndarray], time: np.ndarray, names: list[str]) -> None:
    """Take away the values of some columns for a while."""
    begin = d.draw.uniform(0.2, 0.7) * time[-1]
    rows = np.flatnonzero((time > begin) & (time < begin + d.draw.choice((0.03, 0.3))))
    if not len(rows) or rows[0] == 0 or rows[-1] == len(time) - 1:
        return
    for name in d.draw.sample(names, d.draw.randint(1, len(names))):
        columns[name][rows] = np.nan
    d.blind.append((float(time[rows[0] - 1]), float(time[rows[-1] + 1])))


Values = dict[str, Callable[[Motion, np.ndarray], np.ndarray]]


def _table_columns(d: Drawing, motion: Motion, form: str) -> tuple[list[str], Values]:
    """Draw the columns of a table; the names of those that the map reads, and how each follows from a motion."""
    style = d.draw.choice(("{j}_{w}", "{w}_{j}", "{j}.{w}", "{w}.{j}"))
    words = d.draw.choice((("pos", "vel", "effort"), ("q", "dq", "tau"), ("position", "velocity", "torque")))
    arrays = form == "npz" and d.draw.random() < 0.6
    entries: dict[str, dict[str, Any]] = {"q": {}, "qd": {}, "control": {}}
    values: Values = {}
    told = d.draw.choice(("", "", " [{unit}]", "_{unit}"))
    relative = len(motion.joints) > 1 and motion.kind == "arm" and d.chance(0.15, "absolute angles")
    order = list(range(len(motion.joints)))
    d.draw.shuffle(order)
    for at, k in enumerate(order):
        name, units = motion.joints[k], _units_of(motion)[k]
        for what, word, unit in zip(entries, words, units, strict=True):
            if what == "control" and name not in motion.driven:
                continue
            column = f"{word}[{at}]" if arrays and what != "control" else style.format(j=name, w=word)
            entry = d.column(column, unit)
            if told and not column.endswith("]") and "scale" not in entry:
                column = d.rename(entry, told.format(unit=entry.get("unit") or unit))
            if (
                what == "q"
                and "offset" not in entry
                and entry.get("scale") is None
                and motion.kind != "arm"
                and name == "pole"
                and d.chance(0.3, "wrapped")
            ):
                entry["wrapped"] = True
            entries[what][name] = entry
            values[column] = _of_joint(d, what, k, name, column, entry.get("wrapped", False))
    if relative:
        _make_absolute(d, motion, entries, values)
    if d.chance(0.2, "two torques"):
        name = motion.driven[0]
        column = entries["control"][name]["column"]
        whole = values[column]
        values[f"{column}_ff"] = lambda m, t: 0.3 * whole(m, t)
        values[column] = lambda m, t: 0.7 * whole(m, t)
        entries["control"][name]["column"] = [column, f"{column}_ff"]
    d.tree |= entries
    _free_columns(d, motion, form, values)
    if not motion.free and d.chance(0.2, "no velocities"):
        d.tree["qd"] = "differentiate"
        d.tree |= {"velocity": "past"} if d.draw.random() < 0.5 else {}
    elif motion.kind == "arm" and not relative and d.chance(0.15, "finger without velocity"):
        d.tree["qd"]["finger"] = "differentiate"
    if not arrays and d.chance(0.2, "another encoder"):
        own = motion.joints[0]
        values[f"{own}_angle"] = lambda m, t: m.q(t)[:, 7 if m.free else 0] + 0.3
    for name in ("temperature_1", "battery_V", "raw_counts"):
        if d.draw.random() < 0.3:
            values[name] = lambda m, t: 20.0 + np.sin(t)
    listed = [entry["column"] for part in ("q", "qd", "control") for entry in entries_of(d.tree[part])]
    base = d.tree.get("floating", {}).get("base", {})
    parts = ("position", "quaternion", "angles", "linear_velocity", "angular_velocity")
    listed += [base[part] for part in parts if part in base]
    named = {name for one in listed for name in ([one] if isinstance(one, str) else one)}
    return [name for name in values if name in named or name.partition("[")[0] in named], values


def entries_of(part: Any) -> list[dict[str, Any]]:
    """Return the entries of columns in a part of a map ("q", "qd" or "control"); none if it is differentiated."""
    return [one for one in part.values() if isinstance(one, dict)] if isinstance(part, dict) else []


def _of_joint(d: Drawing, what: str, k: int, name: str, column: str, wrapped: bool) -> Callable:
    def make(motion: Motion, t: np.ndarray) -> np.ndarray:
        if what == "q":
            own = motion.q(t)[:, k + (7 if motion.free else 0)]
            own = (own + np.pi) % (2 * np.pi) - np.pi if wrapped else own
        elif what == "qd":
            own = motion.qd(t)[:, k + (6 if motion.free else 0)]
        else:
            own = motion.torque(t)[:, motion.driven.index(name)]
        return d.raw(column, own)

    return make


def _make_absolute(d: Drawing, motion: Motion, entries: dict, values: Values) -> None:
    """Log the elbow's angle and velocity as those of its link."""
    for what in ("q", "qd"):
        upper, lower = entries[what]["shoulder"], entries[what]["elbow"]
        for name in ("sign", "scale", "offset", "unit"):
            upper.pop(name, None), lower.pop(name, None)
        for one in (upper, lower):
            d.factors[one["column"]] = (1.0, 0.0)
        first, own = values[upper["column"]], values[lower["column"]]
        values[lower["column"]] = lambda m, t, a=first, b=own: a(m, t) + b(m, t)
        lower["minus"] = upper["column"]


def _free_columns(d: Drawing, motion: Motion, form: str, values: Values) -> None:
    """Draw the columns of a floating base."""
    if not motion.free:
        return
    array = form == "npz" and d.draw.random() < 0.5
    parts = {"position": ("p", "xyz"), "quaternion": ("quat", "xyzw"), "linear_velocity": ("v", "xyz"),
             "angular_velocity": ("w", "xyz")}  # fmt: skip
    order = d.draw.choice(("xyzw", "wxyz"))
    base: dict[str, Any] = {"order": order, "angular_axes": d.draw.choice(("world", "body")),
                            "linear_axes": d.draw.choice(("world", "body")),
                            "linear_of": d.draw.choice(("origin", "center_of_mass"))}  # fmt: skip
    d.what += [f"{base['angular_axes']} spin", f"{base['linear_axes']} speed of {base['linear_of']}"]
    units = {"position": ("position_unit", "m"), "linear_velocity": ("linear_unit", "m/s"),
             "angular_velocity": ("angular_unit", "rad/s"), "angles": ("angles_unit", "rad")}  # fmt: skip
    if d.chance(0.25, "angles"):
        base["sequence"] = d.draw.choice(("xyz", "xyz", "ZYX", "XYZ", "zyx", "yzx"))
        base.pop("order"), parts.pop("quaternion")
        parts["angles"] = ("rpy", "rpy")
    for name in ("frame", "world"):
        if d.chance(0.12, name):
            turn = Rotation.from_euler("xyz", [d.draw.uniform(-2, 2) for _ in range(3)]).as_quat()
            base[name] = [d.draw.uniform(-0.3, 0.3) for _ in range(3)] + turn.tolist()
    flips = d.chance(0.3, "flipping signs")
    for part, (letter, axes) in parts.items():
        axes = order if part == "quaternion" else axes
        named = [f"{letter}[{k}]" for k in range(len(axes))] if array else [f"base_{letter}{axis}" for axis in axes]
        if part == "angles" and not array:
            named = [f"base_{ {'x': 'roll', 'y': 'pitch', 'z': 'yaw'}[axis] }" for axis in base["sequence"].lower()]
        base[part] = letter if array else named
        size = 1.0
        if part in units and d.draw.random() < 0.3:
            key, unit = units[part]
            base[key] = d.draw.choice([u for u in UNITS[unit] if u])
            size = UNITS[unit][base[key]]
        for k, name in enumerate(named):
            values[name] = _of_base(part, k, size, dict(base), flips)
    if d.chance(0.15, "poses alone"):
        for name in ("linear_velocity", "angular_velocity", "angular_axes", "linear_unit", "angular_unit"):
            base.pop(name, None)
        d.tree["qd"] = "differentiate"
        base.pop("linear_axes"), base.pop("linear_of")
    d.tree["floating"] = {"base": base}


def _of_base(part: str, k: int, size: float, base: dict, flips: bool) -> Callable:
    return lambda m, t: base_reading(m, t, part, base, flips)[:, k] / size


def base_reading(m: Motion, t: np.ndarray, part: str, base: dict, flips: bool = False) -> np.ndarray:
    """Return the pose or velocity of the base, or of a frame on it, in a convention, shape [T, 3 or 4]."""
    place, mount = _pose(base.get("frame"))
    shift, world = _pose(base.get("world"))
    position, turn = m.pose(t)[0], Rotation.from_quat(m.pose(t)[1])
    if part == "position":
        return world.inv().apply(position + turn.apply(place) - shift)
    if part == "angles":
        return (world.inv() * turn * mount).as_euler(base["sequence"])
    if part == "quaternion":
        signs = np.where(np.sin(40 * t) < 0, -1.0, 1.0)[:, None] if flips else 1.0
        quaternion = (world.inv() * turn * mount).as_quat()
        return (quaternion if base["order"] == "xyzw" else np.roll(quaternion, 1, axis=1)) * signs
    linear, spin = m.twist(t)
    kind, value = ("angular_axes", spin) if part == "angular_velocity" else ("linear_axes", linear)
    if part == "linear_velocity":
        value = value + np.cross(spin, turn.apply(place if base["linear_of"] == "origin" else CENTER))
    return (world if base[kind] == "world" else turn * mount).inv().apply(value)


def _pose(pose: list[float] | None) -> tuple[np.ndarray, Rotation]:
    numbers = np.array(pose or [0, 0, 0, 0, 0, 0, 1.0])
    return numbers[:3], Rotation.from_quat(numbers[3:])


def _write_csv(d: Drawing, path: Path, columns: dict[str, np.ndarray]) -> Path:
    mark = d.tree.get("delimiter", ",")
    empty = d.draw.choice(("", "nan", "NaN"))
    texts = {n: [repr(x) if np.isfinite(x) else empty for x in v.tolist()] for n, v in columns.items()}
    head = "# recorded\n" if d.draw.random() < 0.2 else ""
    end = d.draw.choice(("\n", "\r\n"))
    rows = [mark.join(texts), *(mark.join(row) for row in zip(*texts.values(), strict=True))]
    bom = "\ufeff" if d.draw.random() < 0.1 else ""
    path = path.with_suffix(".csv")
    path.write_bytes((bom + head + end.join(rows) + end).encode())
    return path


def _write_jsonl(d: Drawing, path: Path, columns: dict[str, np.ndarray]) -> Path:
    omit = d.draw.random() < 0.5
    lines = []
    for row in range(len(next(iter(columns.values())))):
        tree: dict[str, Any] = {}
        for name, values in columns.items():
            value = values[row].item()
            if isinstance(value, float) and not np.isfinite(value):
                if omit:
                    continue
                value = None
            first, dot, rest = name.partition(".")
            if dot:
                tree.setdefault(first, {})[rest] = value
            else:
                tree[name] = value
        lines.append(json.dumps(tree))
    path = path.with_suffix(".jsonl")
    path.write_text("\n".join(lines) + "\n")
    return path


def _write_npz(d: Drawing, path: Path, columns: dict[str, np.ndarray]) -> Path:
    arrays: dict[str, dict[int, np.ndarray]] = {}
    for name, values in columns.items():
        array, _, rest = name.partition("[")
        if rest[:-1].isdecimal():
            arrays.setdefault(array, {})[int(rest[:-1])] = values
        else:
            arrays.setdefault(name, {})[-1] = values
    ready = {n: (v[-1] if -1 in v else np.stack([v[k] for k in sorted(v)], 1)) for n, v in arrays.items()}
    path = path.with_suffix(".npz")
    np.savez(path, **ready)
    return path


_WRITERS = {"csv": _write_csv, "jsonl": _write_jsonl, "npz": _write_npz}


def _bag(d: Drawing, form: str) -> DrawnLog:
    from _generated_bags import draw_bag

    return draw_bag(d, form)


def _set(d: Drawing, form: str) -> DrawnLog:
    from _generated_sets import SETS

    return SETS[form](d, form)


def _other(d: Drawing, form: str) -> DrawnLog:
    from _generated_bags import draw_other

    return draw_other(d)

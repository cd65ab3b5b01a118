# SPDX-License-Identifier: Apache-2.0
"""Drawn bags of ROS 1 and 2 and MCAP files, and logs that no column map can express."""

import json
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from _generated_logs import Drawing, DrawnLog, base_reading
from _known_motion import DT, KnownRun, Motion

_EPOCH = 1_700_000_000.0


class _Bag:
    """Messages of a bag in the order of their log times, and the types of their topics."""

    def __init__(self, ros1: bool) -> None:
        from rosbags.typesys import Stores, get_typestore

        self.ros1 = ros1
        self.store = get_typestore(Stores.ROS1_NOETIC if ros1 else Stores.ROS2_HUMBLE)
        self.messages: list[tuple[int, str, str, bytes]] = []

    def add(self, log: float, topic: str, kind: str, stamp: float | None = None, **fields: Any) -> None:
        """Add a message with a log time and, for those with a header, a stamp [s]."""
        fields = {n: np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v for n, v in fields.items()}
        types = self.store.types
        if stamp is not None:
            fields = {"header": self._header(stamp)} | fields
        message = types[kind](**fields)
        write = self.store.serialize_ros1 if self.ros1 else self.store.serialize_cdr
        self.messages.append((round(log * 1e9), topic, kind, bytes(write(message, kind))))

    def _header(self, stamp: float) -> Any:
        whole = round(stamp * 1e9)
        types = self.store.types
        time = types["builtin_interfaces/msg/Time"](sec=whole // 10**9, nanosec=whole % 10**9)
        more = {"seq": 0} if self.ros1 else {}
        return types["std_msgs/msg/Header"](stamp=time, frame_id="base", **more)

    def make(self, kind: str, **fields: Any) -> Any:
        """Return a part of a message."""
        return self.store.types[kind](**fields)

    def write(self, path: Path, form: str, folder: bool) -> Path:
        """Write the bag; return its file or folder."""
        from rosbags.rosbag1 import Writer as Writer1
        from rosbags.rosbag2 import StoragePlugin, Writer

        if self.ros1:
            path = path.with_suffix(".bag")
            writer: Any = Writer1(path)
        else:
            plugin = StoragePlugin.MCAP if form == "mcap" else StoragePlugin.SQLITE3
            writer = Writer(path, version=9, storage_plugin=plugin)
        with writer as bag:
            topics: dict[str, Any] = {}
            for log, topic, kind, content in sorted(self.messages, key=lambda one: one[0]):
                if topic not in topics:
                    topics[topic] = bag.add_connection(topic, kind, typestore=self.store)
                bag.write(topics[topic], log, content)
        if self.ros1 or folder:
            return path
        return next(one for one in path.iterdir() if one.suffix in (".mcap", ".db3"))


def draw_bag(d: Drawing, form: str) -> DrawnLog:
    """Draw a bag with joint states, commands and, of a floating base, odometry or poses."""
    motion, bag = Motion(d.kind, d.draw), _Bag(form == "rosbag1")
    seconds = d.draw.uniform(2.5, 3.5)
    clocks = _Clocks(d)
    run = KnownRun(motion, {}, rounding=3e-9)
    d.tree |= {"format": form, "q": {}, "qd": {}, "control": {}}
    _joint_states(d, motion, bag, clocks, run, seconds)
    _commands(d, motion, bag, clocks, run, seconds)
    if motion.free:
        _base(d, motion, bag, clocks, run, seconds)
    if d.chance(0.3, "another robot"):
        for t in np.arange(0, seconds, 0.05):
            bag.add(clocks.log(t), "/other/joint_states", "sensor_msgs/msg/JointState", clocks.stamp(t),
                    name=["thumb"], position=np.array([t]), velocity=np.array([]), effort=np.array([]))  # fmt: skip
    if clocks.broken:
        d.tree["clock"] = "log"
    run.blind = d.blind
    folder = d.draw.random() < 0.5
    if folder and form != "rosbag1":
        d.what.append("folder")
        d.tree["format"] = "rosbag2"
    return DrawnLog([bag.write(d.folder / "bag", form, folder)], d.tree, [run], d.what)


class _Clocks:
    """Stamps of headers and times of the log."""

    def __init__(self, d: Drawing) -> None:
        kind = d.draw.choice(("wall", "wall", "wall", "sim", "reset", "one reset", "zero"))
        d.what.append(f"{kind} stamps")
        self.kind, self.broken = kind, kind in ("sim", "reset", "one reset")
        self.late = d.draw.choice((0.0, 0.004)) if kind == "wall" else 0.0

    def log(self, t: float, *, stamped: bool = True) -> float:
        """Return when a message of a time is logged; late, if its header says when it was."""
        return _EPOCH + t + (self.late if stamped else 0.0)

    def stamp(self, t: float, *, second: bool = False) -> float:
        """Return what a header says, of the first or a `second` publisher."""
        if self.kind.endswith("reset"):
            back = t >= 1.5 and (second or self.kind == "reset")
            return _EPOCH * (self.kind != "reset") + t - 1.5 * back
        return {"wall": _EPOCH + t, "sim": 3.2 + t, "zero": 0.0}[self.kind]


def _joint_states(d: Drawing, motion: Motion, bag: _Bag, clocks: _Clocks, run: KnownRun, seconds: float) -> None:
    step = d.draw.choice((DT, DT / 2, DT / 4, 0.008))
    names, topics = list(motion.joints), ["/joint_states"]
    halves = [names]
    if len(names) > 1 and d.chance(0.3, "two publishers"):
        halves = [names[:1], names[1:]]
        if d.draw.random() < 0.5:
            topics = ["/arm/joint_states", "/hand/joint_states"]
    speeds = d.chance(0.75, "") or motion.free
    apart = speeds and not motion.free and len(halves) == 1 and d.chance(0.25, "velocities apart")
    shuffled = d.chance(0.3, "names change order")
    lost = d.chance(0.2, "missing velocities") and speeds and not apart
    times = [d.clock(seconds, step, 0.0031 * at) for at in range(len(halves))]
    skip, rates = (7, 6) if motion.free else (0, 0)
    kind = "sensor_msgs/msg/JointState"
    for at, (half, time) in enumerate(zip(halves, times, strict=True)):
        q, qd = motion.q(time), motion.qd(time)
        hole = 0.4 * seconds
        inside = np.flatnonzero((time > hole) & (time < hole + 0.3) & (lost and at == 0))
        if len(inside):
            d.blind.append((float(time[inside[0] - 1]), float(time[inside[-1] + 1])))
            d.tree["missing"] = "gap"
        topic = topics[min(at, len(topics) - 1)]
        for row, t in enumerate(time.tolist()):
            order = d.draw.sample(half, len(half)) if shuffled else half
            index = np.array([names.index(n) for n in order])
            velocity = qd[row, rates + index] if speeds and not apart else np.zeros(0)
            if row in inside:
                velocity = np.full(len(order), np.nan)
            stamp = clocks.stamp(t, second=at > 0)
            bag.add(clocks.log(t), topic, kind, stamp, name=list(order), position=q[row, skip + index],
                    velocity=velocity, effort=np.zeros(0))  # fmt: skip
        for name in half:
            d.tree["q"][name] = {"column": f"{topic}.position[{name}]"}
            d.tree["qd"][name] = {"column": f"{topic}.velocity[{name}]"}
        run.clocks["q"] = run.clocks["qd"] = time
        run.others += [time] if len(halves) > 1 else []
    if apart:
        time = d.clock(seconds, d.draw.choice((DT, DT / 2)), 0.0017)
        for t, rate in zip(time.tolist(), motion.qd(time), strict=True):
            layout = bag.make("std_msgs/msg/MultiArrayLayout", dim=[], data_offset=0)
            bag.add(
                clocks.log(t, stamped=False), "/velocities", "std_msgs/msg/Float64MultiArray", layout=layout, data=rate
            )
        d.tree["qd"] = {n: {"column": f"/velocities.data[{k}]"} for k, n in enumerate(names)}
        run.clocks["qd"] = time
    if not speeds:
        d.what.append("no velocities")
        d.tree["qd"] = "differentiate"
        run.differentiated = DT


def _commands(d: Drawing, motion: Motion, bag: _Bag, clocks: _Clocks, run: KnownRun, seconds: float) -> None:
    step, kind = d.draw.choice((DT, DT / 4, 0.03)), d.draw.choice(("array", "state"))
    begin = d.draw.choice((0.0, 0.0, 0.4))
    time = d.clock(seconds - begin, step, begin)
    for t, torque in zip(time.tolist(), motion.torque(time), strict=True):
        if kind == "array":
            layout = bag.make("std_msgs/msg/MultiArrayLayout", dim=[], data_offset=0)
            bag.add(clocks.log(t, stamped=False), "/effort_controller/commands", "std_msgs/msg/Float64MultiArray",
                    layout=layout, data=torque)  # fmt: skip
        else:
            none = np.zeros(0)
            bag.add(clocks.log(t), "/joint_commands", "sensor_msgs/msg/JointState", clocks.stamp(t),
                    name=list(motion.driven), position=none, velocity=none, effort=torque)  # fmt: skip
    d.tree["control"] = {
        n: {"column": f"/effort_controller/commands.data[{k}]" if kind == "array" else f"/joint_commands.effort[{n}]"}
        for k, n in enumerate(motion.driven)
    }
    run.clocks["control"] = time


def _base(d: Drawing, motion: Motion, bag: _Bag, clocks: _Clocks, run: KnownRun, seconds: float) -> None:
    kind = d.draw.choice(("odometry", "pose and twist", "pose and twist"))
    d.what.append(kind)
    base: dict[str, Any] = {"order": "xyzw", "angular_axes": "body", "linear_axes": "body", "linear_of": "origin"}
    if kind != "odometry":
        base |= {
            "angular_axes": "world",
            "linear_axes": "world",
            "linear_of": d.draw.choice(("origin", "center_of_mass")),
        }
    step = d.draw.choice((DT, DT / 2))
    time = d.clock(seconds, step)
    other = (
        time if kind == "odometry" else d.clock(seconds - 0.3, d.draw.choice((DT, DT / 2)), d.draw.choice((0.0, 0.2)))
    )
    values = {part: base_reading(motion, at, part, base, d.draw.random() < 0.3) for part, at in (
        ("position", time), ("quaternion", time), ("linear_velocity", other), ("angular_velocity", other))}  # fmt: skip

    def three(values: np.ndarray, what: str = "Vector3") -> Any:
        return bag.make(f"geometry_msgs/msg/{what}", **dict(zip("xyz", values.tolist(), strict=True)))

    def twist_of(row: int) -> Any:
        linear, angular = (three(values[f"{part}_velocity"][row]) for part in ("linear", "angular"))
        return bag.make("geometry_msgs/msg/Twist", linear=linear, angular=angular)

    for row, t in enumerate(time.tolist()):
        turn = bag.make(
            "geometry_msgs/msg/Quaternion", **dict(zip("xyzw", values["quaternion"][row].tolist(), strict=True))
        )
        pose = bag.make("geometry_msgs/msg/Pose", position=three(values["position"][row], "Point"), orientation=turn)
        if kind == "odometry":
            twist, none = twist_of(row), np.zeros(36)
            bag.add(clocks.log(t), "/odom", "nav_msgs/msg/Odometry", clocks.stamp(t), child_frame_id="base",
                    pose=bag.make("geometry_msgs/msg/PoseWithCovariance", pose=pose, covariance=none),
                    twist=bag.make("geometry_msgs/msg/TwistWithCovariance", twist=twist, covariance=none))  # fmt: skip
        else:
            bag.add(clocks.log(t), "/base/pose", "geometry_msgs/msg/PoseStamped", clocks.stamp(t), pose=pose)
    for row, t in enumerate(other.tolist() if kind != "odometry" else []):
        bag.add(clocks.log(t), "/base/twist", "geometry_msgs/msg/TwistStamped", clocks.stamp(t, second=True),
                twist=twist_of(row))  # fmt: skip
    pose_at, twist_at = (
        ("/odom.pose.pose", "/odom.twist.twist") if kind == "odometry" else ("/base/pose.pose", "/base/twist.twist")
    )
    base |= {
        "position": [f"{pose_at}.position.{a}" for a in "xyz"],
        "quaternion": [f"{pose_at}.orientation.{a}" for a in "xyzw"],
        "linear_velocity": [f"{twist_at}.linear.{a}" for a in "xyz"],
        "angular_velocity": [f"{twist_at}.angular.{a}" for a in "xyz"],
    }
    d.tree["floating"] = {"base": base}
    run.others += [time, other]


def draw_other(d: Drawing) -> DrawnLog:
    """Draw a log that no map expresses, or a map that is wrong."""
    motion = Motion(d.kind, d.draw)
    time = DT / 2 * np.arange(250)
    columns = {"t": time}
    tree: dict[str, Any] = {"format": "csv", "time": "t", "q": {}, "qd": {}, "control": {}}
    skip, rates = (7, 6) if motion.free else (0, 0)
    for k, name in enumerate(motion.joints):
        columns |= {f"{name}_pos": motion.q(time)[:, k + skip], f"{name}_vel": motion.qd(time)[:, k + rates]}
        tree["q"][name], tree["qd"][name] = {"column": f"{name}_pos"}, {"column": f"{name}_vel"}
    for k, name in enumerate(motion.driven):
        columns[f"{name}_tau"] = motion.torque(time)[:, k]
        tree["control"][name] = {"column": f"{name}_tau"}
    if motion.free:
        base: dict[str, Any] = {"order": "xyzw", "angular_axes": "world", "linear_axes": "world", "linear_of": "origin"}
        for part, letter in (
            ("position", "p"),
            ("quaternion", "o"),
            ("linear_velocity", "v"),
            ("angular_velocity", "w"),
        ):
            values = base_reading(motion, time, part, base)
            columns |= {f"{letter}{k}": values[:, k] for k in range(values.shape[1])}
            base[part] = [f"{letter}{k}" for k in range(values.shape[1])]
        tree["floating"] = {"base": base}
    ways = [*_WAYS, *(_FREE_WAYS if motion.free else [])]
    way = d.draw.choice(ways)
    d.what.append(way.__name__[1:].replace("_", " "))
    path = way(d, columns, tree, motion)
    run = KnownRun(motion, dict.fromkeys(("q", "qd", "control"), time))
    return DrawnLog([path], tree, [run], d.what, refused=d.what[-1])


def _table(d: Drawing, columns: dict[str, Any], **options: Any) -> Path:
    mark, path = options.get("mark", ","), d.folder / options.get("name", "log.csv")
    texts = [[x if isinstance(x, str) else repr(float(x)) for x in values] for values in columns.values()]
    if options.get("comma"):
        texts = [[x.replace(".", ",") for x in column] for column in texts]
    head = options.get("head") or list(columns)
    rows = [mark.join(head)] * (not options.get("bare")) + [mark.join(row) for row in zip(*texts, strict=True)]
    path.write_bytes(("\n".join(rows) + "\n").encode(options.get("encoding", "utf-8")))
    return path


def _commas_in_numbers(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    tree["delimiter"] = ";"
    return _table(d, columns, mark=";", comma=True)


def _lists_in_cells(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    name = f"{motion.joints[0]}_pos"
    columns[name] = [f'"[{x!r}, 0.0]"' for x in columns[name].tolist()]
    return _table(d, columns)


def _a_name_twice(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    name = f"{motion.joints[0]}_pos"
    wrong = {"first": columns[name] + 0.3}
    return _table(d, wrong | columns, head=[name, *columns])


def _utf16(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    return _table(d, columns, encoding="utf-16")


def _no_header(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    return _table(d, columns, bare=True)


def _dates_as_times(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    columns["t"] = [f"2026-01-01T00:00:{t:09.6f}" for t in columns["t"].tolist()]
    return _table(d, columns)


def _clock_goes_back(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    columns["t"] = np.where(columns["t"] > 1.0, columns["t"] - 1.0, columns["t"])
    return _table(d, columns)


def _rows_shuffled(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    order = d.rng.permutation(len(columns["t"]))
    tree.pop("time")
    tree["period"] = DT / 2
    return _table(d, {name: values[order] for name, values in columns.items() if name != "t"})


def _missing_values_undeclared(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    name = d.draw.choice([n for n in columns if n != "t"])
    columns[name][40:60] = np.nan
    return _table(d, columns)


def _infinite(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    columns[d.draw.choice([n for n in columns if n != "t"])][50] = np.inf
    return _table(d, columns)


def _clock_in_other_unit(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    columns["t"] = columns["t"] * d.draw.choice((1e3, 1e6, 1e-3))
    return _table(d, columns)


def _velocities_in_degrees(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    columns[f"{motion.joints[-1]}_vel"] *= 180 / np.pi
    return _table(d, columns)


def _positions_in_degrees(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    columns[f"{motion.joints[0]}_pos"] *= 180 / np.pi
    return _table(d, columns)


def _velocities_swapped(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    if len(motion.joints) < 2:
        return _velocities_in_degrees(d, columns, tree, motion)
    one, other = motion.joints[:2]
    tree["qd"][one], tree["qd"][other] = tree["qd"][other], tree["qd"][one]
    return _table(d, columns)


def _lengths_differ(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    tree["format"], path = "npz", d.folder / "log.npz"
    name = f"{motion.driven[0]}_tau"
    np.savez(path, **{n: v if n != name else v[::2] for n, v in columns.items()})
    return path


def _objects(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    tree["format"], path = "npz", d.folder / "log.npz"
    np.savez(path, log=np.array([{"t": 0.0}], dtype=object))
    return path


def _one_array(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    path = d.folder / "log.npy"
    np.save(path, np.stack([np.asarray(v, float) for v in columns.values()], 1))
    return path


def _torch_file(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    import torch

    path = d.folder / "log.pt"
    torch.save({n: torch.as_tensor(v) for n, v in columns.items()}, path)
    return path


def _pickle(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    path = d.folder / "log.pkl"
    path.write_bytes(pickle.dumps(columns))
    return path


def _parquet(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = d.folder / "log.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def _plain_hdf5(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    path = d.folder / d.draw.choice(("log.h5", "log.hdf5"))
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file[name] = values
    return path


def _json_array(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    tree["format"], path = "jsonl", d.folder / "log.json"
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*(v.tolist() for v in columns.values()), strict=True)]
    path.write_text(json.dumps(rows, indent=d.draw.choice((None, 1))))
    return path


_WAYS = [
    _commas_in_numbers, _lists_in_cells, _a_name_twice, _utf16, _no_header, _dates_as_times, _clock_goes_back,
    _rows_shuffled, _missing_values_undeclared, _infinite, _clock_in_other_unit, _velocities_in_degrees,
    _positions_in_degrees, _velocities_swapped, _lengths_differ, _objects, _one_array, _torch_file, _pickle, _parquet,
    _plain_hdf5, _json_array,
]  # fmt: skip


def _other_order(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    tree["floating"]["base"]["order"] = "wxyz"
    return _table(d, columns)


def _other_axes(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    tree["floating"]["base"][d.draw.choice(("angular_axes", "linear_axes"))] = "body"
    return _table(d, columns)


def _other_point(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    tree["floating"]["base"]["linear_of"] = "center_of_mass"
    return _table(d, columns)


def _tracking_lost(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    for k in range(4):
        columns[f"o{k}"][60:70] = 0.0
    return _table(d, columns)


def _conjugate(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    for k in range(3):
        columns[f"o{k}"] *= -1.0
    return _table(d, columns)


def _pose_of_a_marker(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    from neurodyn.data.readers.floating import rotate

    turn = np.stack([columns[f"o{k}"] for k in range(4)], 1)
    moved = rotate(turn, np.tile((0.2, 0.1, -0.1), (len(turn), 1)))
    for k in range(3):
        columns[f"p{k}"] = columns[f"p{k}"] + moved[:, k]
    return _table(d, columns)


def _positions_in_mm(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    for k in range(3):
        columns[f"p{k}"] = columns[f"p{k}"] * 1e3
    return _table(d, columns)


def _angles_for_a_quaternion(d: Drawing, columns: dict, tree: dict, motion: Motion) -> Path:
    angles = motion.angles(np.asarray(columns["t"]))
    for k in range(4):
        del columns[f"o{k}"]
    columns |= {f"base_{n}": angles[:, k] for k, n in enumerate(("roll", "pitch", "yaw"))}
    tree["floating"]["base"]["quaternion"] = ["base_roll", "base_pitch", "base_yaw"]
    return _table(d, columns)


_FREE_WAYS = [
    _other_order, _other_axes, _other_point, _tracking_lost, _conjugate, _pose_of_a_marker, _positions_in_mm,
    _angles_for_a_quaternion,
] * 2  # fmt: skip

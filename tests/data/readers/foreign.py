# SPDX-License-Identifier: Apache-2.0
"""Logs of the robot `arm` in the formats of other tools, written without our own writers."""

import json
import sqlite3
import struct

import h5py
import numpy as np

from .conftest import smooth_motion

DT = 0.02
NAMES = ("lift", "turn")
JOINT_STATE = """std_msgs/Header header
string[] name
float64[] position
float64[] velocity
float64[] effort
"""
RULE = "=" * 80
DEFINITION = (
    JOINT_STATE
    + f"{RULE}\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n"
    + f"{RULE}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
)


def motion(rows=101, dt=DT):
    """Time, positions, velocities and controls in single precision, as doubles."""
    time = dt * np.arange(rows)
    return time, *(x.astype(np.float32).astype(float) for x in smooth_motion(time))


def cdr(*fields, order="<"):
    """Serialise texts, integers ("I", value), lists of texts and arrays of doubles."""
    content = bytearray(b"\0\1\0\0" if order == "<" else b"\0\0\0\0")

    def align(size):
        content.extend(bytes(-(len(content) - 4) % size))

    def text(value):
        align(4)
        content.extend(struct.pack(order + "I", len(value.encode()) + 1) + value.encode() + b"\0")

    for field in fields:
        if isinstance(field, str):
            text(field)
        elif isinstance(field, int):
            align(4)
            content.extend(struct.pack(order + "I", field))
        elif isinstance(field, list):
            align(4)
            content.extend(struct.pack(order + "I", len(field)))
            for value in field:
                text(value)
        elif isinstance(field, tuple):  # a fixed array or struct of doubles
            align(8)
            content.extend(np.asarray(field, order + "f8").tobytes())
        else:
            align(4)
            content.extend(struct.pack(order + "I", len(field)))
            if len(field):
                align(8)
                content.extend(np.asarray(field, order + "f8").tobytes())
    return bytes(content)


def stamp(nanoseconds):
    return [int(part) for part in divmod(int(nanoseconds), 1_000_000_000)]


def joint_state(nanoseconds, names, position=(), velocity=(), effort=(), order="<"):
    arrays = (np.asarray(x, float) for x in (position, velocity, effort))
    return cdr(*stamp(nanoseconds), "base", list(names), *arrays, order=order)


def arm_messages(rows=101, start=10**18, control_delay=0, shuffled=False):
    """(topic, type, log time, content) of a JointState that changes its order, and of commands half as often."""
    time, q, qd, control = motion(rows)
    messages = []
    for k in range(rows):
        now = start + round(time[k] * 1e9)
        order = [1, 0] if shuffled and k % 3 == 1 else [0, 1]
        names = [NAMES[i] for i in order]
        messages.append(
            (
                "/joint_states",
                "sensor_msgs/msg/JointState",
                now + 1000,
                joint_state(now, names, q[k][order], qd[k][order]),
            )
        )
        if k < rows - 1:
            content = joint_state(now + control_delay, NAMES, effort=control[k])
            messages.append(("/command", "sensor_msgs/msg/JointState", now + 2000, content))
    return messages


def write_mcap(path, messages, definition=DEFINITION, encoding="cdr", language="ros2msg", **options):
    from mcap.writer import Writer

    with path.open("wb") as file:
        writer = Writer(file, **options)
        writer.start(profile="ros2")
        schemas, channels = {}, {}
        for topic, kind, time, content in messages:
            if kind not in schemas:
                text = definition if isinstance(definition, str) else definition.get(kind, "")
                schemas[kind] = writer.register_schema(kind, language, text.encode())
            if topic not in channels:
                channels[topic] = writer.register_channel(topic, encoding, schemas[kind])
            writer.add_message(channels[topic], time, content, time)
        writer.finish()
    return path


def write_db3(path, messages, definitions=()):
    with sqlite3.connect(path) as bag:
        bag.execute("PRAGMA synchronous = OFF")
        bag.execute("CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT)")
        bag.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB)")
        if definitions:
            bag.execute(
                "CREATE TABLE message_definitions(topic_type TEXT, encoding TEXT, encoded_message_definition TEXT)"
            )
            bag.executemany("INSERT INTO message_definitions VALUES (?, ?, ?)", definitions)
        topics = {}
        for topic, kind, time, content in messages:
            if topic not in topics:
                topics[topic] = len(topics) + 1
                bag.execute("INSERT INTO topics VALUES (?, ?, ?, 'cdr')", (topics[topic], topic, kind))
            bag.execute(
                "INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)", (topics[topic], time, content)
            )
    bag.close()
    return path


def write_lerobot_v21(folder, episodes=3, rows=40, **changes):
    """A data set of version 2.1: positions alone, target positions as action."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"{name}.pos" for name in NAMES]
    info = {
        "codebase_version": "v2.1", "robot_type": "arm", "fps": 50, "chunks_size": 2, "total_episodes": episodes,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "splits": {"train": f"0:{episodes}"},
        "features": {
            "observation.state": {"dtype": "float32", "shape": [2], "names": {"motors": names}},
            "action": {"dtype": "float32", "shape": [2], "names": names},
            "observation.images.top": {"dtype": "video", "shape": [480, 640, 3], "names": ["h", "w", "c"]},
            **{n: {"dtype": "int64", "shape": [1], "names": None} for n in ("frame_index", "episode_index")},
            "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        },
        **changes,
    }  # fmt: skip
    (folder / "meta").mkdir(parents=True)
    (folder / "meta/info.json").write_text(json.dumps(info))
    lines = []
    for episode in range(episodes):
        time, q, _, control = motion(rows)
        place = folder / f"data/chunk-{episode // 2:03d}/episode_{episode:06d}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        table = {
            "observation.state": pa.array((q + episode).astype(np.float32).tolist(), pa.list_(pa.float32())),
            "action": pa.array(control.astype(np.float32).tolist(), pa.list_(pa.float32())),
            "timestamp": time.astype(np.float32), "frame_index": np.arange(rows),
            "episode_index": np.full(rows, episode),
        }  # fmt: skip
        pq.write_table(pa.table(table), place)
        lines.append(json.dumps({"episode_index": episode, "tasks": ["move"], "length": rows}))
    (folder / "meta/episodes.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def write_isaac(path, demos=3, rows=40, dt=DT, initial=True, **env):
    """Demonstrations of Isaac Lab: actions before, states after each step."""
    _, q, qd, control = motion(rows + 1, dt)
    env = env or {"sim_args": {"dt": dt / 4, "decimation": 4}}
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"], data.attrs["env_args"] = demos * rows, json.dumps({"env_name": "Arm-v0", **env})
        for index in range(demos):
            demo = data.create_group(f"demo_{index}")
            demo.attrs["num_samples"], demo.attrs["success"] = rows, True
            demo["actions"] = control[:-1].astype(np.float32)
            robot = "articulation/robot/joint_"
            demo[f"states/{robot}position"], demo[f"states/{robot}velocity"] = q[1:] + index, qd[1:]
            demo["obs/joint_pos"], demo["obs/joint_vel"] = q[:-1] + index, qd[:-1]
            demo["obs/camera"] = np.zeros((rows, 4, 4, 3), np.uint8)
            if initial:
                demo[f"initial_state/{robot}position"], demo[f"initial_state/{robot}velocity"] = q[:1] + index, qd[:1]
    return path


def write_mujoco(path, episodes=None, rows=60, **changes):
    time, q, qd, control = motion(rows)
    arrays = {"time": time, "qpos": q, "qvel": qd, "ctrl": control[:-1]}
    if episodes:
        arrays = {name: np.stack([value] * episodes) for name, value in arrays.items()}
    np.savez(path, **{name: value for name, value in {**arrays, **changes}.items() if value is not None})
    return path

# SPDX-License-Identifier: Apache-2.0
"""Speed and memory of log import: every format, a robot of 12 joints at 500 Hz.

Each import runs in its own process on one thread. Velocities and torques are logged. In CSV, npz and mujoco the log is
one run with jittering time stamps, so that every frame is interpolated. The dataset is checked against the motion.
"""

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from _common import require, result_parser, write_result
from neurodyn.core import JointSpec, StateSpec
from neurodyn.core.config import from_dict
from neurodyn.data import ColumnMap, Split, Store, StoreHeader, StoreWriter, import_logs
from neurodyn.interop import WRITERS

RATE, BLOCK = 500.0, 1 << 16
JOINTS = tuple(f"{leg}_{joint}" for leg in ("lf", "rf", "lh", "rh") for joint in ("haa", "hfe", "kfe"))
SPEC = StateSpec(
    robot="quadruped", joints=tuple(JointSpec(name=name, kind="revolute") for name in JOINTS), controls=JOINTS,
    dt=1 / RATE,
)  # fmt: skip
FORMATS = ("csv", "npz", "mujoco", "lerobot", "mcap", "rosbag2", "robomimic")


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="length of the logs")
    parser.add_argument("--formats", nargs="*", default=list(FORMATS), choices=FORMATS)
    parser.add_argument("--folder", type=Path, help="where the logs are written; by default a temporary folder")
    parser.add_argument("--read", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read(*arguments.read)
        return
    figures: dict[str, float] = {}
    rows = round(60 * RATE * arguments.minutes)
    for name in arguments.formats:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
            log = write(name, Path(scratch), rows)
            out = Path(scratch) / "out.h5"
            command = [sys.executable, __file__, "--read", name, str(log), str(out)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            found = json.loads(done.stdout.splitlines()[-1])
            check(out, rows, name)
        figures[f"{name}_times_real_time"] = rows / RATE / found["cpu_s"]
        figures[f"{name}_memory_mib"] = found["memory_mib"]
        print(f"{name}: {found['cpu_s']:.1f} CPU-s for {arguments.minutes:g} minutes, {found['memory_mib']:.0f} MiB")
    write_result(arguments.json, "readers", {"minutes": arguments.minutes, **figures}, {})


def read(name: str, log: str, out: str) -> None:
    """Import a log and print its cost."""
    start = time.process_time()
    import_logs([Path(log)], column_map(name), SPEC, Path(out), split="train")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu_s": time.process_time() - start, "memory_mib": used}))


def check(out: Path, rows: int, name: str) -> None:
    """Stop if the dataset differs from the logged motion."""
    store = Store.open(out, memory=0)
    lost = len(store.table) * (8 + 0.25 * RATE)  # seams, and a delay that a periodic motion may appear to have
    require(store.transitions > rows - lost, f"{name}: {store.transitions} transitions of {rows} rows")
    begin = int(store.table["start"][-1])
    frames = np.asarray(store.frames[begin : begin + 1000])
    smooth = np.abs(np.diff(frames[:, :12], axis=0) * RATE - frames[1:, 12:24]).max()
    require(smooth < 0.3, f"{name}: velocities are {smooth:.2f} rad/s from the slopes of the positions")


def motion(begin: int, end: int, jitter: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return time, positions, velocities and torques of some rows."""
    rows = np.arange(begin, end)
    time = rows / RATE + (2e-4 * np.sin(12.9898 * rows) if jitter else 0.0)
    rate = 1.0 + 0.3 * np.arange(12)
    phase = time[:, None] * rate
    return time, 0.5 * np.sin(phase), 0.5 * rate * np.cos(phase), 5.0 * np.sin(1.7 * phase)


def blocks(rows: int):
    return ((begin, min(rows, begin + BLOCK)) for begin in range(0, rows, BLOCK))


def column_map(name: str) -> ColumnMap:
    """Return the column map of the logs below."""
    places = {
        "csv": ("q_{1}", "v_{1}", "u_{1}"),
        "npz": ("q[{0}]", "v[{0}]", "u[{0}]"),
        "mujoco": ("qpos[{0}]", "qvel[{0}]", "ctrl[{0}]"),
        "lerobot": ("observation.state[{1}.pos]", "observation.state[{1}.vel]", "action[{1}.effort]"),
        "mcap": ("/joint_states.position[{1}]", "/joint_states.velocity[{1}]", "/joint_commands.effort[{1}]"),
        "rosbag2": ("/joint_states.position[{1}]", "/joint_states.velocity[{1}]", "/joint_commands.effort[{1}]"),
        "robomimic": ("obs/joint_pos[{0}]", "obs/joint_vel[{0}]", "actions[{0}]"),
    }[name]
    tree: dict[str, object] = {"format": name}
    for what, place in zip(("q", "qd", "control"), places, strict=True):
        tree[what] = {joint: {"column": place.format(i, joint)} for i, joint in enumerate(JOINTS)}
    if name in {"csv", "npz"}:
        tree["time"] = "t"
    return from_dict(tree, ColumnMap)


def write(name: str, folder: Path, rows: int) -> Path:
    """Write a log of a format, and return its path."""
    if name in {"lerobot", "mcap"}:
        return exported(name, folder, rows)
    if name == "rosbag2":
        return bag(exported("mcap", folder, rows), folder / "bag.db3")
    path = folder / f"log.{name}"
    if name == "csv":
        with path.open("w") as file:
            file.write(",".join(["t", *(f"{kind}_{joint}" for kind in "qvu" for joint in JOINTS)]) + "\n")
            for span in blocks(rows):
                values = motion(*span)
                np.savetxt(file, np.column_stack(values), fmt="%.7g", delimiter=",")
    elif name in {"npz", "mujoco"}:
        path = path.with_suffix(".npz")
        arrays(path, rows, ("t", "q", "v", "u") if name == "npz" else ("time", "qpos", "qvel", "ctrl"))
    else:
        with h5py.File(path, "w") as file:
            data = file.create_group("data")
            data.attrs["env_args"] = json.dumps({"sim_args": {"dt": 1 / RATE, "decimation": 1}})
            demo = data.create_group("demo_0")
            names = ("obs/joint_pos", "obs/joint_vel", "actions")
            made = [demo.create_dataset(name, (rows, 12), "f4", chunks=(4096, 12)) for name in names]
            for begin, end in blocks(rows):
                for array, values in zip(made, motion(begin, end, False)[1:], strict=True):
                    array[begin:end] = values
    return path


def arrays(path: Path, rows: int, names: tuple[str, ...]) -> None:
    """Write an npz file array by array, which numpy cannot do without holding all."""
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        for index, name in enumerate(names):
            shape = (rows,) if index == 0 else (rows, 12)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
                for span in blocks(rows):
                    file.write(motion(*span)[index].tobytes())


def exported(name: str, folder: Path, rows: int) -> Path:
    """Write a dataset with one episode per two minutes, and export it with `neurodyn export`."""
    data, path = folder / "data.h5", folder / f"log.{name}"
    with StoreWriter(data, StoreHeader(spec=SPEC, source="log")) as writer:
        for begin, end in blocks(rows):
            _, q, qd, control = motion(begin, end, False)
            writer.append(q[None], qd[None], control[None, :-1], split=Split.TRAIN)
    WRITERS[name](Store.open(data, memory=0), path)
    return path


def bag(source: Path, path: Path) -> Path:
    """Write the messages of an MCAP file as a bag in SQLite."""
    from mcap.reader import make_reader

    with source.open("rb") as file, sqlite3.connect(path) as out:
        out.execute("PRAGMA synchronous = OFF")
        out.execute("CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT)")
        out.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB)")
        known: dict[int, int] = {}
        for schema, channel, message in make_reader(file).iter_messages(log_time_order=False):
            if channel.id not in known:
                known[channel.id] = len(known) + 1
                topic = (known[channel.id], channel.topic, schema.name)
                out.execute("INSERT INTO topics VALUES (?, ?, ?, 'cdr')", topic)
            out.execute(
                "INSERT INTO messages(topic_id, timestamp, data) VALUES (?, ?, ?)",
                (known[channel.id], message.log_time, message.data),
            )
    return path


if __name__ == "__main__":
    main()

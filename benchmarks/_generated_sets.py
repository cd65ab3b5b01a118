# SPDX-License-Identifier: Apache-2.0
"""Drawn data sets of MuJoCo, robomimic, Isaac Lab and LeRobot."""

import json
from random import Random
from typing import Any

import h5py
import numpy as np

from _generated_logs import Drawing, DrawnLog
from _known_motion import DT, KnownRun, Motion
from neurodyn.data.readers.floating import rotate


def draw_mujoco(d: Drawing, form: str) -> DrawnLog:
    """Draw states of MuJoCo."""
    step = d.draw.choice((DT, DT / 2, DT / 4))
    many = d.draw.choice((0, 0, 2))
    rows, runs, blocks = round(d.draw.uniform(2, 3) / step), [], []
    for _ in range(max(1, many)):
        motion = Motion(d.kind, d.draw)
        time = step * np.arange(rows)
        qpos, qvel = motion.q(time), motion.qd(time)
        if motion.free:
            linear, spin = motion.twist(time)
            turn = motion.pose(time)[1]
            qpos[:, 3:7] = np.roll(turn, 1, axis=1)
            qvel[:, :3], qvel[:, 3:6] = linear, rotate(turn * [-1, -1, -1, 1.0], spin)
        blocks.append((time + d.draw.choice((0.0, 7.5)), qpos, qvel, motion.torque(time)))
        runs.append(KnownRun(motion, dict.fromkeys(("q", "qd", "control"), time)))
    time, qpos, qvel, ctrl = (np.stack(part) if many else part[0] for part in zip(*blocks, strict=True))
    arrays = {"qpos": qpos, "qvel": qvel, "ctrl": ctrl}
    if d.draw.random() < 0.5:
        arrays["ctrl"] = ctrl[..., :-1, :]
    d.tree["format"] = "mujoco"
    clock = d.draw.choice(("time", "timestep", "period"))
    d.what.append(clock)
    if clock == "time":
        arrays["time"] = time
    elif clock == "timestep":
        arrays["timestep"] = np.array(step)
    else:
        d.tree["period"] = step
    path = d.folder / "states.npz"
    np.savez(path, **arrays)
    motion = runs[0].motion
    skip, rates = (7, 6) if motion.free else (0, 0)
    d.tree |= {
        "q": {n: {"column": f"qpos[{k + skip}]"} for k, n in enumerate(motion.joints)},
        "qd": {n: {"column": f"qvel[{k + rates}]"} for k, n in enumerate(motion.joints)},
        "control": {n: {"column": f"ctrl[{k}]"} for k, n in enumerate(motion.driven)},
    }
    if motion.free:
        d.tree["floating"] = {"base": {
            "position": [f"qpos[{k}]" for k in range(3)], "quaternion": [f"qpos[{k}]" for k in range(3, 7)],
            "order": "wxyz", "linear_velocity": [f"qvel[{k}]" for k in range(3)], "linear_of": "origin",
            "angular_velocity": [f"qvel[{k}]" for k in range(3, 6)], "angular_axes": "body",
        }}  # fmt: skip
    return DrawnLog([path], d.tree, runs, d.what)


def draw_robomimic(d: Drawing, form: str) -> DrawnLog:
    """Draw demonstrations of robomimic or Isaac Lab."""
    path, runs = d.folder / "demos.hdf5", []
    step = d.draw.choice((DT, DT / 2))
    after = d.chance(0.5, "states after the step")
    first = after and d.draw.random() < 0.7
    order = list(range(len(Motion(d.kind, Random(0)).joints)))
    d.draw.shuffle(order)
    free = d.kind == "body"
    robot = "articulation/robot"
    place = f"states/{robot}/" if after else "obs/"
    names = ("joint_position", "joint_velocity") if after else ("joint_pos", "joint_vel")
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        known = d.chance(0.7)
        settings = {"sim_args": {"dt": step / 4, "decimation": 4}}
        data.attrs["env_args"] = json.dumps(settings if known else {"env_name": "Mine"})
        for number in range(d.draw.choice((1, 2, 11))):
            motion, rows = Motion(d.kind, d.draw), round(d.draw.uniform(1.5, 2.5) / step)
            whole = step * np.arange(rows + 1)
            time = whole[1:] if after else whole[:-1]
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = rows
            demo["actions"] = motion.torque(whole[:-1])
            skip, rates = (7, 6) if free else (0, 0)
            for where, at in ((place, time), *([(f"initial_state/{robot}/", whole[:1])] if first else [])):
                demo[where + names[0]] = motion.q(at)[:, skip:][:, order]
                demo[where + names[1]] = motion.qd(at)[:, rates:][:, order]
                if free:
                    demo[where + "root_pose"] = np.concatenate(
                        [motion.pose(at)[0], np.roll(motion.pose(at)[1], 1, axis=1)], 1
                    )
                    demo[where + "root_velocity"] = motion.qd(at)[:, :6]
            clock = whole if first else time
            runs.append(KnownRun(motion, {"q": clock, "qd": clock, "control": whole[:-1]}))
    joints, driven = runs[0].motion.joints, runs[0].motion.driven
    d.tree |= {"format": "robomimic", **({} if known else {"period": step})}
    d.tree["q"] = {joints[k]: {"column": f"{place}{names[0]}[{at}]"} for at, k in enumerate(order)}
    d.tree["qd"] = {joints[k]: {"column": f"{place}{names[1]}[{at}]"} for at, k in enumerate(order)}
    d.tree["control"] = {n: {"column": f"actions[{k}]"} for k, n in enumerate(driven)}
    if free:
        d.tree["floating"] = {"base": {
            "position": [f"{place}root_pose[{k}]" for k in range(3)],
            "quaternion": [f"{place}root_pose[{k}]" for k in range(3, 7)], "order": "wxyz",
            "linear_velocity": [f"{place}root_velocity[{k}]" for k in range(3)],
            "angular_velocity": [f"{place}root_velocity[{k}]" for k in range(3, 6)], "angular_axes": "world",
        }}  # fmt: skip
    return DrawnLog([path], d.tree, runs, d.what)


def draw_lerobot(d: Drawing, form: str) -> DrawnLog:
    """Draw a LeRobot data set, of version 2.1 or 3.0."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    old, folder = form == "lerobot2", d.folder / "set"
    (folder / "meta").mkdir(parents=True)
    fps = d.draw.choice((50, 100, 200))
    step = 1 / fps
    motion = Motion(d.kind, d.draw)
    joints, driven = list(motion.joints), list(motion.driven)
    order = d.draw.sample(range(len(joints)), len(joints))
    degrees = d.chance(0.4, "degrees")
    size = np.where(np.array(motion.prismatic) | (not degrees), 1.0, np.pi / 180)
    speeds = d.chance(0.5, "velocities in the state")
    state = [f"{joints[k]}.pos" for k in order] + ([f"{joints[k]}.vel" for k in order] if speeds else [])
    grouped = d.draw.random() < 0.3
    named = {"motors": state} if grouped else state
    info: dict[str, Any] = {
        "codebase_version": "v2.1" if old else "v3.0", "fps": fps, "robot_type": d.kind, "features": {
            "observation.state": {"dtype": "float32", "shape": [len(state)], "names": named},
            "action": {"dtype": "float32", "shape": [len(driven)], "names": [f"{n}.effort" for n in driven]},
        },
    }  # fmt: skip
    rows, lines, runs = [], [], []
    for number in range(d.draw.choice((1, 2, 4))):
        motion, count = Motion(d.kind, d.draw), round(d.draw.uniform(1.5, 2.5) / step)
        time = step * np.arange(count)
        q, qd = motion.q(time) / size, motion.qd(time) / size
        values = np.concatenate([q[:, order], *([qd[:, order]] if speeds else [])], 1).astype(np.float32)
        table = {
            "observation.state": pa.array(values.tolist(), pa.list_(pa.float32())),
            "action": pa.array(motion.torque(time).astype(np.float32).tolist(), pa.list_(pa.float32())),
            "timestamp": time.astype(np.float32), "frame_index": np.arange(count),
            "episode_index": np.full(count, number),
        }  # fmt: skip
        runs.append(KnownRun(motion, dict.fromkeys(("q", "qd", "control"), time)))
        if not speeds:
            runs[-1].differentiated = DT
        rows.append(pa.table(table))
        lines.append({"episode_index": number, "length": count, "data/chunk_index": 0, "data/file_index": 0})
        if old:
            (folder / "data/chunk-000").mkdir(parents=True, exist_ok=True)
            pq.write_table(rows[-1], folder / f"data/chunk-000/episode_{number:06d}.parquet")
    (folder / "meta/info.json").write_text(json.dumps(info))
    if old:
        (folder / "meta/episodes.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    else:
        (folder / "data/chunk-000").mkdir(parents=True)
        pq.write_table(pa.concat_tables(rows), folder / "data/chunk-000/file-000.parquet")
        (folder / "meta/episodes/chunk-000").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(lines), folder / "meta/episodes/chunk-000/file-000.parquet")
    units = [{"unit": "deg"} if s != 1.0 else {} for s in size]
    rates = [{"unit": "deg/s"} if s != 1.0 else {} for s in size]
    d.tree |= {"format": "lerobot", "qd": "differentiate"}
    d.tree["q"] = {n: {"column": f"observation.state[{n}.pos]", **u} for n, u in zip(joints, units, strict=True)}
    if speeds:
        d.tree["qd"] = {n: {"column": f"observation.state[{n}.vel]", **u} for n, u in zip(joints, rates, strict=True)}
    d.tree["control"] = {n: {"column": f"action[{n}.effort]"} for n in driven}
    return DrawnLog([folder], d.tree, runs, d.what)


SETS = {"mujoco": draw_mujoco, "robomimic": draw_robomimic, "lerobot": draw_lerobot, "lerobot2": draw_lerobot}
"""Writers by format."""

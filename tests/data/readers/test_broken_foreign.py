# SPDX-License-Identifier: Apache-2.0
"""Whatever is wrong with a log of another tool, the answer is one line of `InputError`, and no file is left behind."""

import json
import shutil
import sqlite3
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.data.inspection import inspect_log
from neurodyn.data.readers import ColumnMap, import_logs
from neurodyn.data.readers.column_map import READERS
from neurodyn.data.readers.draft import infer_map
from neurodyn.interop.formats import WRITERS

from . import foreign
from .conftest import MAPS, SPEC, npz_arrays, npz_map
from .test_foreign import BAG

pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("mcap")
FAST = settings(
    derandomize=True,  # HDF5's own reader can run for ever on some damage; what passes once passes always
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MESSAGES = foreign.arm_messages(rows=30)
ISAAC = {
    "format": "robomimic",
    "q": {n: {"column": f"states/articulation/robot/joint_position[{i}]"} for i, n in enumerate(foreign.NAMES)},
    "qd": {n: {"column": f"states/articulation/robot/joint_velocity[{i}]"} for i, n in enumerate(foreign.NAMES)},
    "control": {n: {"column": f"actions[{i}]"} for i, n in enumerate(foreign.NAMES)},
}
MUJOCO = {
    "format": "mujoco",
    "q": {n: {"column": f"qpos[{i}]"} for i, n in enumerate(foreign.NAMES)},
    "qd": {n: {"column": f"qvel[{i}]"} for i, n in enumerate(foreign.NAMES)},
    "control": {n: {"column": f"ctrl[{i}]"} for i, n in enumerate(foreign.NAMES)},
}
LEROBOT = {
    "format": "lerobot",
    "q": {n: {"column": f"observation.state[{n}.pos]"} for n in foreign.NAMES},
    "qd": "differentiate",
    "control": {n: {"column": f"action[{n}.pos]"} for n in foreign.NAMES},
}


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp())
    yield path
    shutil.rmtree(path)


def clear(folder):
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def one_line(call):
    """Return the message of the InputError that a call raises, which is one line."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def refused(folder, log, tree):
    """Check that a log is refused, and that nothing is left behind."""
    before = sorted(folder.iterdir())
    message = one_line(lambda: import_logs([log], from_dict(tree, ColumnMap), SPEC, folder / "out.h5"))
    assert sorted(folder.iterdir()) == before
    return message


def cut(path, data, least=0):
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(least, len(content) - 40))])


@FAST
@given(data=st.data())
def test_broken_mcap(folder, data):
    clear(folder)
    path, messages, tree, options = folder / "log.mcap", list(MESSAGES), json.loads(json.dumps(BAG)), {}
    damage = data.draw(
        st.sampled_from(
            ["cut", "flip", "topic", "joint", "type", "definition", "encoding", "schema", "backwards", "nan", "empty",
             "robot", "short", "count", "garbage", "silent", "apart"]
        )
    )  # fmt: skip
    row = data.draw(st.integers(1, 25)) * 2
    topic, kind, time, content = messages[row]
    if damage == "topic":
        tree["control"]["turn"]["column"] = data.draw(
            st.sampled_from(["/cmd.effort[turn]", "effort[turn]", "/command"])
        )
    elif damage == "joint":
        name = data.draw(st.sampled_from(["position[wrist]", "position", "torque[lift]", "position[0]", "velocity[]"]))
        tree["q"]["lift"]["column"] = f"/joint_states.{name}"
    elif damage == "type":
        messages = [(t, "my_msgs/msg/Odd" if t == "/command" else k, *rest) for t, k, *rest in messages]
        options = {"definition": {"sensor_msgs/msg/JointState": foreign.DEFINITION}}
    elif damage == "definition":
        texts = ["float64 x\n====\nMSG", "nothing", "float64[", "my_msgs/Odd x", "string name\nfloat64 x"]
        options = {"definition": data.draw(st.sampled_from(texts))}
    elif damage == "encoding":
        options = {"encoding": data.draw(st.sampled_from(["protobuf", "json", "", "cbor"]))}
    elif damage == "schema":
        messages = [(t, "my_msgs/msg/Odd", *rest) for t, _, *rest in messages]
        options = {"definition": "", "language": data.draw(st.sampled_from(["", "ros2msg", "ros2idl", "protobuf"]))}
    elif damage == "backwards":
        messages[row] = (topic, kind, time, content[:4] + foreign.cdr(*foreign.stamp(5 * 10**17))[4:] + content[12:])
    elif damage == "nan":
        bad = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        messages[row] = ("/joint_states", kind, time, foreign.joint_state(time, foreign.NAMES, [bad, 0], [0, 0]))
    elif damage == "empty":
        messages = messages[: data.draw(st.integers(0, 2))]
    elif damage == "robot":
        messages = [
            (t, k, w, foreign.joint_state(w, ["hip", "knee"], [0, 0], [0, 0], [0, 0])) for t, k, w, _ in messages
        ]
    elif damage == "short":
        messages[row] = (topic, kind, time, content[: data.draw(st.integers(0, len(content) - 1))])
    elif damage == "count":
        messages[row] = (topic, kind, time, content[:24] + b"\xff\xff\xff\x7f" + content[28:])
    elif damage == "silent":
        silent = data.draw(st.sampled_from(["/command", "/joint_states"]))
        messages = [m for m in messages if m[0] != silent]
    elif damage == "apart":
        late = foreign.arm_messages(rows=30, start=2 * 10**18)
        messages = [m for m in messages if m[0] == "/command"] + [m for m in late if m[0] == "/joint_states"]
    foreign.write_mcap(path, messages, **options)
    if damage == "cut":
        cut(path, data)
    elif damage == "flip":
        whole = bytearray(path.read_bytes())
        at = data.draw(st.integers(150, 400))  # inside the first chunk, whose checksum then is wrong
        whole[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(bytes(whole))
    elif damage == "garbage":
        path.write_bytes(data.draw(st.binary(max_size=300)))
    refused(folder, path, tree)


@FAST
@given(data=st.data())
def test_broken_bags(folder, data):
    clear(folder)
    bag = folder / "drive"
    bag.mkdir()
    path, metadata = bag / "drive_0.db3", bag / "metadata.yaml"
    foreign.write_db3(path, MESSAGES)
    metadata.write_text("rosbag2_bagfile_information:\n  relative_file_paths: [drive_0.db3]\n")
    damage = data.draw(
        st.sampled_from(["cut", "table", "column", "metadata", "file", "zstd", "blob", "type", "folder", "garbage"])
    )
    if damage == "cut":
        content = path.read_bytes()
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 4096))])
    elif damage == "metadata":
        broken = st.sampled_from(
            ["", "[", "rosbag2_bagfile_information: 3", "rosbag2_bagfile_information: {}", "other: 1", "\x00",
             "rosbag2_bagfile_information: {relative_file_paths: []}"]
        )  # fmt: skip
        metadata.write_text(data.draw(broken))
        path.unlink()
    elif damage == "file":
        path.rename(bag / "other.db3")
    elif damage == "zstd":
        metadata.write_text("rosbag2_bagfile_information:\n  relative_file_paths: [drive_0.db3.zstd]\n")
    elif damage == "folder":
        shutil.rmtree(bag)
        bag.mkdir()
    elif damage == "garbage":
        path.write_bytes(b"SQLite format 3\0" + data.draw(st.binary(max_size=400)))
    else:
        statement = {
            "table": f"DROP TABLE {data.draw(st.sampled_from(['topics', 'messages']))}",
            "column": "ALTER TABLE messages RENAME COLUMN data TO content",
            "blob": f"UPDATE messages SET data = {data.draw(st.sampled_from(['NULL', '3', 'x', '28b52ffd']))!r}",
            "type": "UPDATE topics SET type = 'my_msgs/msg/Odd'",
        }[damage]
        with sqlite3.connect(path) as file:
            file.execute(statement.replace("'NULL'", "NULL").replace("'28b52ffd'", "x'28b52ffd00'"))
        file.close()
    refused(folder, bag, {**BAG, "format": "rosbag2"})


@FAST
@given(data=st.data())
def test_broken_lerobot(folder, data):
    import pyarrow as pa

    clear(folder)
    path = foreign.write_lerobot_v21(folder / "set", episodes=2, rows=12)
    names = [f"{name}.pos" for name in foreign.NAMES]
    tree = json.loads(json.dumps(LEROBOT))
    info = json.loads((path / "meta/info.json").read_text())
    parquet = path / "data/chunk-000/episode_000001.parquet"
    table = pq.read_table(parquet)
    damage = data.draw(
        st.sampled_from(
            ["cut", "file", "width", "column", "null", "text", "nan", "rows", "version", "fps", "feature", "json",
             "episodes", "line", "name", "backwards", "number", "empty", "shape"]
        )
    )  # fmt: skip

    def replaced(name, values):
        return table.set_column(table.schema.get_field_index(name), name, values)

    if damage == "cut":
        cut(parquet, data)
    elif damage == "file":
        parquet.unlink()
    elif damage in {"width", "null", "nan"}:
        rows = table["observation.state"].to_pylist()
        row = data.draw(st.integers(0, 11))
        rows[row] = {"width": data.draw(st.sampled_from([[], [1.0], [1.0] * 3])), "null": None, "nan": [0.0, np.nan]}[
            damage
        ]
        pq.write_table(replaced("observation.state", pa.array(rows, pa.list_(pa.float32()))), parquet)
    elif damage == "text":
        pq.write_table(replaced("action", pa.array([["a", "b"]] * 12)), parquet)
    elif damage == "column":
        dropped = data.draw(st.sampled_from(["observation.state", "action", "episode_index"]))
        pq.write_table(table.drop_columns([dropped]), parquet)
    elif damage == "rows":
        pq.write_table(table.slice(0, data.draw(st.integers(0, 11))), parquet)
    elif damage == "version":
        info["codebase_version"] = data.draw(st.sampled_from(["v1.6", "", "v4.0", 3, None]))
    elif damage == "fps":
        info["fps"] = data.draw(st.sampled_from([0, -5, "fast", None, 1, True]))
    elif damage == "feature":
        info["features"] = data.draw(st.sampled_from([{}, None, [], {"action": info["features"]["action"]}]))
    elif damage == "shape":
        shape = data.draw(st.sampled_from([[3], None, "2", [-2], [7]]))
        info["features"]["observation.state"] = {"dtype": "float32", "shape": shape, "names": names}
    elif damage == "json":
        (path / "meta/info.json").write_text(data.draw(st.sampled_from(["", "{", "[]", "3", '{"fps": 50}'])))
    elif damage == "episodes":
        (path / "meta/episodes.jsonl").unlink()
    elif damage == "line":
        lines = ["{", "{}", '{"episode_index": 0}', '{"episode_index": "a", "length": 3}', "[]", ""]
        (path / "meta/episodes.jsonl").write_text(data.draw(st.sampled_from(lines)))
    elif damage == "name":
        column = data.draw(st.sampled_from(["observation.state[wrist]", "observation.state[2]", "state", "action"]))
        tree["q"]["lift"]["column"] = column
    elif damage == "backwards":
        table = replaced("frame_index", pa.array(np.arange(12)[::-1]))
        pq.write_table(replaced("timestamp", table["timestamp"].take(pa.array(np.arange(12)[::-1]))), parquet)
    elif damage == "number":
        pq.write_table(
            replaced("episode_index", pa.array(np.full(12, data.draw(st.sampled_from([0, 2, -1]))))), parquet
        )
    elif damage == "empty":
        rows = [{"episode_index": 0, "length": 12}, {"episode_index": 1, "length": 0}]
        (path / "meta/episodes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    if damage in {"version", "fps", "feature", "shape"}:
        (path / "meta/info.json").write_text(json.dumps(info))
    refused(folder, path, tree)


@FAST
@given(data=st.data())
def test_broken_demonstrations(folder, data):
    clear(folder)
    path = foreign.write_isaac(folder / "demos.hdf5", demos=2, rows=12)
    tree = json.loads(json.dumps(ISAAC))
    damage = data.draw(
        st.sampled_from(
            ["cut", "demo", "rows", "width", "text", "nan", "empty", "none", "step", "name", "deep", "data"]
        )
    )
    joint = "data/demo_1/states/articulation/robot/joint_position"
    if damage == "cut":
        cut(path, data)
    elif damage == "name":
        column = data.draw(st.sampled_from(["obs/joint_pos[7]", "obs/joints[0]", "obs/camera[0]", "actions", "states"]))
        tree["q"]["lift"]["column"] = column
    else:
        with h5py.File(path, "r+") as file:
            if damage in {"rows", "width", "text", "deep"}:
                del file[joint]
                file[joint] = {
                    "rows": np.zeros((data.draw(st.sampled_from([0, 5, 13])), 2)), "width": np.zeros((12, 1)),
                    "text": np.full((12, 2), b"x"), "deep": np.zeros((12, 2, 2)),
                }[damage]  # fmt: skip
            elif damage == "nan":
                file[joint][data.draw(st.integers(0, 11)), 0] = np.nan
            elif damage == "demo":
                del file[f"data/demo_1/{data.draw(st.sampled_from(['states', 'actions', 'obs']))}"]
                if "states" in file["data/demo_1"]:
                    file["data/demo_1"].attrs["num_samples"] = -1
                    if "actions" in file["data/demo_1"]:
                        del file["data/demo_1/actions"]
            elif damage == "empty":
                for name in ("actions", "states", "obs"):
                    del file[f"data/demo_1/{name}"]
                file["data/demo_1/actions"] = np.zeros((0, 2))
            elif damage == "none":
                del file["data/demo_0"], file["data/demo_1"]
            elif damage == "step":
                text = data.draw(
                    st.sampled_from(["", "{}", "[", "3", '{"sim_args": {"dt": 0}}', '{"sim_args": {"dt": -1}}'])
                )
                file["data"].attrs["env_args"] = text
            else:
                del file["data"]
    refused(folder, path, tree)


@FAST
@given(data=st.data())
def test_broken_mujoco(folder, data):
    clear(folder)
    path, tree = folder / "states.npz", json.loads(json.dumps(MUJOCO))
    _, q, qd, control = foreign.motion(12)
    name = data.draw(st.sampled_from(["time", "qpos", "qvel", "ctrl"]))
    damage = data.draw(
        st.sampled_from(["drop", "nan", "text", "rows", "deep", "empty", "back", "cut", "column", "step"])
    )
    arrays = {"time": 0.02 * np.arange(12), "qpos": q, "qvel": qd, "ctrl": control}
    if damage == "drop":
        arrays[name] = None
    elif damage == "nan":
        arrays[name] = arrays[name].copy()
        arrays[name].flat[data.draw(st.integers(0, 11))] = np.nan
    elif damage == "text":
        arrays[name] = arrays[name].astype(str)
    elif damage == "rows":
        arrays[name] = arrays[name][: data.draw(st.integers(1, 9))]
    elif damage == "deep":
        arrays[name] = arrays[name].reshape(1, 1, *arrays[name].shape, 1)
    elif damage == "empty":
        arrays[name] = arrays[name][:0]
    elif damage == "back":
        arrays["time"] = arrays["time"][::-1]
    elif damage == "step":
        bad = st.sampled_from([0.0, -1.0, np.nan, np.inf, np.zeros(3), "x"])
        arrays |= {"time": None, "timestep": np.array(data.draw(bad))}
    elif damage == "column":
        tree["q"]["lift"]["column"] = data.draw(st.sampled_from(["qpos[9]", "qpos", "qpos[x]", "xpos[0]", "time[0]"]))
    foreign.write_mujoco(path, **arrays)
    if damage == "cut":
        content = path.read_bytes()
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 30))])
    refused(folder, path, tree)


@FAST
@given(content=st.binary(max_size=400), suffix=st.sampled_from([".mcap", ".db3", ".npz", ".csv", ".hdf5", ".txt", ""]))
def test_inspecting_garbage_is_one_line(folder, content, suffix):
    clear(folder)
    path = folder / f"log{suffix}"
    path.write_bytes(content)
    one_line(lambda: inspect_log(path))


def test_a_bag_of_another_robot_says_whose_joints_are_there(folder):
    messages = [(t, k, w, foreign.joint_state(w, ["hip", "knee"], [0, 0], [0, 0], [0, 0])) for t, k, w, _ in MESSAGES]
    path = foreign.write_mcap(folder / "log.mcap", messages)
    message = refused(folder, path, BAG)
    assert "topic '/joint_states' has no 'position[lift]', 'position[turn]'" in message
    assert "there: effort[hip], effort[knee], position[hip]" in message
    source = READERS["mcap"].source(path)
    assert "no column that is named as the position of 'lift'" in one_line(lambda: infer_map(source, "mcap", SPEC))


@pytest.fixture(scope="module")
def lerobot_v3(tmp_path_factory):
    """A data set of version 3.0, of which tests break copies."""
    folder = tmp_path_factory.mktemp("v3")
    np.savez(folder / "log.npz", **npz_arrays(runs=2))
    store = import_logs([folder / "log.npz"], npz_map(), SPEC, folder / "log.h5")
    WRITERS["lerobot"](store, folder / "set")
    return folder / "set"


@FAST
@given(data=st.data())
def test_broken_lerobot_v3(folder, lerobot_v3, data):
    import pyarrow as pa

    clear(folder)
    path = folder / "set"
    shutil.copytree(lerobot_v3, path)
    tree = json.loads(json.dumps(LEROBOT))
    tree["control"] = {n: {"column": f"action[{n}.effort]"} for n in foreign.NAMES}
    rows, episodes = path / "data/chunk-000/file-000.parquet", path / "meta/episodes/chunk-000/file-000.parquet"
    meta, table, info = pq.read_table(episodes), pq.read_table(rows), json.loads((path / "meta/info.json").read_text())
    damage = data.draw(
        st.sampled_from(
            ["cut rows", "cut episodes", "rows", "episodes", "index", "range", "column", "width", "nan", "template",
             "missing", "robot", "empty", "file"]
        )
    )  # fmt: skip
    if damage == "cut rows":
        cut(rows, data)
    elif damage == "cut episodes":
        cut(episodes, data)
    elif damage in {"rows", "episodes"}:
        shutil.rmtree(path / {"rows": "data", "episodes": "meta/episodes"}[damage])
    elif damage == "index":
        name = data.draw(st.sampled_from(["episode_index", "length", "data/chunk_index", "data/file_index"]))
        pq.write_table(meta.drop_columns([name]), episodes)
    elif damage == "range":  # which then is not that of the rows
        wrong = pa.array([length + data.draw(st.integers(1, 9)) for length in meta["length"].to_pylist()])
        pq.write_table(meta.set_column(meta.schema.get_field_index("length"), "length", wrong), episodes)
    elif damage == "file":
        far = pa.array([data.draw(st.integers(1, 99))] * len(meta))
        pq.write_table(
            meta.set_column(meta.schema.get_field_index("data/file_index"), "data/file_index", far), episodes
        )
    elif damage in {"width", "nan"}:
        state = table["observation.state"].to_pylist()
        row = data.draw(st.integers(0, len(state) - 1))
        state[row] = state[row][:-1] if damage == "width" else [np.nan, *state[row][1:]]
        changed = pa.array(state, pa.list_(pa.float32()))
        place = table.schema.get_field_index("observation.state")
        pq.write_table(table.set_column(place, "observation.state", changed), rows)
    elif damage == "column":
        dropped = data.draw(st.sampled_from(["observation.state", "action"]))
        pq.write_table(table.drop_columns([dropped]), rows)
    elif damage == "template":
        info["data_path"] = data.draw(st.sampled_from(["data/{other}.parquet", 3, "{", "nowhere/x.parquet"]))
        (path / "meta/info.json").write_text(json.dumps(info))
    elif damage == "missing":
        del info[data.draw(st.sampled_from(["features", "fps", "codebase_version"]))]
        (path / "meta/info.json").write_text(json.dumps(info))
    elif damage == "robot":
        tree["q"]["lift"]["column"] = "observation.state[hip.pos]"
    elif damage == "empty":
        pq.write_table(meta.slice(0, 0), episodes)
    refused(folder, path, tree)


@pytest.mark.slow
@FAST
@given(data=st.data())
def test_logs_of_another_robot_name_what_is_there(folder, data):
    clear(folder)
    names = data.draw(
        st.lists(st.sampled_from(["hip", "knee", "ankle", "toe", "wing"]), min_size=2, max_size=2, unique=True)
    )
    form = data.draw(st.sampled_from(["mcap", "lerobot"]))
    if form == "mcap":
        messages = [(t, k, w, foreign.joint_state(w, names, [0, 0], [0, 0], [0, 0])) for t, k, w, _ in MESSAGES]
        path = foreign.write_mcap(folder / "log.mcap", messages)
    else:
        path = foreign.write_lerobot_v21(folder / "set", episodes=1, rows=12)
        text = (path / "meta/info.json").read_text()
        for ours, theirs in zip(foreign.NAMES, names, strict=True):
            text = text.replace(f"{ours}.pos", f"{theirs}.pos")
        (path / "meta/info.json").write_text(text)
    message = one_line(lambda: infer_map(READERS[form].source(path), form, SPEC))
    assert any(name in message for name in (*foreign.NAMES, *names))
    message = refused(folder, path, BAG if form == "mcap" else LEROBOT)
    assert any(name in message for name in names)  # what would be valid


@FAST
@given(amplitude=st.floats(0.1, 3.0), rate=st.floats(0.5, 4.0), form=st.sampled_from(["mujoco", "csv", "mcap"]))
def test_degrees_that_are_read_as_radians_are_noticed(folder, amplitude, rate, form):
    clear(folder)
    time = 0.02 * np.arange(150)
    angle, speed = amplitude * np.sin(rate * time), amplitude * rate * np.cos(rate * time)
    q, qd = np.column_stack((np.sin(time), np.rad2deg(angle))), np.column_stack((np.cos(time), speed))
    tree = {"mujoco": MUJOCO, "csv": MAPS["csv"], "mcap": BAG}[form]
    path = folder / {"mujoco": "log.npz", "csv": "log.csv", "mcap": "log.mcap"}[form]
    if form == "mujoco":
        foreign.write_mujoco(path, time=time, qpos=q, qvel=qd, ctrl=np.zeros_like(q))
    elif form == "csv":
        rows = np.column_stack((time, q[:, 0], q[:, 1], qd[:, 0], qd[:, 1], 0 * time, 0 * time))
        np.savetxt(path, rows, delimiter=",", header="t,x,a,dx,da,f,m", comments="")
    else:
        nanoseconds = [10**18 + round(t * 1e9) for t in time]
        pairs = zip(nanoseconds, q, qd, strict=True)
        kind, zero = "sensor_msgs/msg/JointState", [0.0, 0.0]
        messages = [
            message
            for t, position, velocity in pairs
            for message in (
                ("/joint_states", kind, t, foreign.joint_state(t, foreign.NAMES, position, velocity)),
                ("/command", kind, t, foreign.joint_state(t, foreign.NAMES, (), (), zero)),
            )
        ]
        foreign.write_mcap(path, messages)
    found = import_logs([path], from_dict(tree, ColumnMap), SPEC, folder / "out.h5").header.findings
    assert any(one.name == "degrees" and "turn" in one.what and "`unit" in one.advice for one in found), found
    assert not any("lift" in one.what for one in found if one.name == "degrees")

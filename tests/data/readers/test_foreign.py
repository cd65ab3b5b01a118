# SPDX-License-Identifier: Apache-2.0
"""Logs of other tools: each format is recognised by its content, and gives the motion that was put in, exactly."""

import struct
import zipfile

import msgspec
import numpy as np
import pytest
import yaml

from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.inspection import inspect_log
from neurodyn.data.readers import ColumnMap, import_logs, read_logs
from neurodyn.data.readers.column_map import READERS, is_log, recognise, require_logs
from neurodyn.data.readers.draft import infer_map
from neurodyn.interop.formats import WRITERS

from . import foreign
from .conftest import PENDULUM, SPEC, npz_arrays, npz_map, smooth_motion, write_csv

pytest.importorskip("pyarrow")
pytest.importorskip("mcap")
BAG = {
    "format": "mcap",
    "q": {name: {"column": f"/joint_states.position[{name}]"} for name in foreign.NAMES},
    "qd": {name: {"column": f"/joint_states.velocity[{name}]"} for name in foreign.NAMES},
    "control": {name: {"column": f"/command.effort[{name}]"} for name in foreign.NAMES},
    "alignment": 0.0,
}


def bag_map(**changes):
    return from_dict({**BAG, **changes}, ColumnMap)


def check_motion(store, episode=0, offset=0.0, rows=101, velocity=True):
    """Check that an episode is the arm's motion, bit by bit."""
    _, q, qd, control = foreign.motion(rows)
    found = store.episode(episode)
    assert np.array_equal(found[0], (q + offset).astype(np.float32))
    assert np.array_equal(found[2], control[:-1].astype(np.float32))
    if velocity:
        assert np.array_equal(found[1], qd.astype(np.float32))


def test_an_mcap_whose_names_change_order(tmp_path):
    path = foreign.write_mcap(tmp_path / "bag.mcap", foreign.arm_messages(shuffled=True))
    assert recognise(path) == "mcap"
    check_motion(read_logs([path], bag_map(), SPEC, split="train"))


@pytest.mark.parametrize("options", [{"use_chunking": False}, {"compression": "none"}, {"compression": "lz4"}])
def test_every_kind_of_mcap(tmp_path, options):
    from mcap.writer import CompressionType

    if "compression" in options:
        options = {"compression": CompressionType[options["compression"].upper()]}
    path = foreign.write_mcap(tmp_path / "bag.mcap", foreign.arm_messages(), **options)
    check_motion(read_logs([path], bag_map(), SPEC, split="train"))


def test_a_bag_in_sqlite_without_definitions_and_as_a_folder(tmp_path):
    folder = tmp_path / "drive"
    folder.mkdir()
    messages = foreign.arm_messages(shuffled=True)
    foreign.write_db3(folder / "drive_0.db3", messages[:90])
    foreign.write_db3(folder / "drive_1.db3", messages[90:])
    (folder / "metadata.yaml").write_text(
        "rosbag2_bagfile_information:\n  relative_file_paths: [drive_0.db3, drive_1.db3]\n"
    )
    assert recognise(folder) == recognise(folder / "drive_0.db3") == "rosbag2"
    check_motion(read_logs([folder], bag_map(format="rosbag2"), SPEC, split="train"))


def test_an_archive_of_other_files_is_no_npz(tmp_path):
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as archive:
        archive.writestr("log/readme.txt", b"")
    assert recognise(tmp_path / "log.zip") is None


def test_big_endian_messages_of_a_usual_type_without_its_definition(tmp_path):
    time, q, qd, control = foreign.motion(30)
    rows = zip(time, q, qd, control, strict=True)
    stamped = [(round(t * 1e9), foreign.joint_state(1e9 + t * 1e9, foreign.NAMES, *x, order=">")) for t, *x in rows]
    big = [("/a", "sensor_msgs/msg/JointState", *pair) for pair in stamped]
    columns = {
        what: {n: {"column": f"/a.{field}[{n}]"} for n in foreign.NAMES}
        for what, field in (("q", "position"), ("qd", "velocity"), ("control", "effort"))
    }
    path = foreign.write_mcap(tmp_path / "big.mcap", big, definition="")
    check_motion(read_logs([path], bag_map(**columns), SPEC, split="train"), rows=30)


def test_joints_on_several_topics_with_clocks_of_their_own(tmp_path):
    """Each joint has a topic and a rate; commands come without a header."""
    time, messages = 0.01 * np.arange(300), []
    for k, t in enumerate(time):
        q, qd, _ = (x[0] for x in smooth_motion(np.array([t])))
        now = round(t * 1e9)
        for i, name in enumerate(foreign.NAMES if k % 2 else foreign.NAMES[:1]):
            content = foreign.joint_state(now + 1, [name], q[i : i + 1], qd[i : i + 1])
            messages.append((f"/{name}", "sensor_msgs/msg/JointState", now, content))
    for t in 0.005 + 0.025 * np.arange(118):
        control = smooth_motion(np.array([t]))[2][0]
        content = foreign.cdr(0, 0, control)
        messages.append(("/command", "std_msgs/msg/Float64MultiArray", round(t * 1e9), content))
    messages.sort(key=lambda message: message[2])
    path = foreign.write_mcap(tmp_path / "bag.mcap", messages, definition="")
    columns = bag_map(
        q={n: {"column": f"/{n}.position[{n}]"} for n in foreign.NAMES},
        qd={n: {"column": f"/{n}.velocity[{n}]"} for n in foreign.NAMES},
        control={n: {"column": f"/command.data[{i}]"} for i, n in enumerate(foreign.NAMES)},
    )
    store = read_logs([path], columns, SPEC, split="train")
    q, qd, control = store.episode(0)
    start = 0.01  # the first time that all streams have reached
    at = start + 0.02 * np.arange(len(q))
    want = smooth_motion(at)
    assert len(q) > 140
    assert np.allclose(q, want[0], atol=1e-5)
    assert np.allclose(qd, want[1], atol=2e-4)
    assert np.allclose(control, smooth_motion(at[:-1])[2], atol=0.04)  # held for 25 ms


def test_lerobot_2_1(tmp_path):
    folder = foreign.write_lerobot_v21(tmp_path / "set")
    assert recognise(folder) == recognise(folder / "meta/info.json") == "lerobot"
    columns = infer_map(READERS["lerobot"].source(folder), "lerobot", SPEC)
    assert (columns.qd, columns.velocity) == ("differentiate", "past")
    store = read_logs([folder], columns, SPEC, split="train")
    assert store.header.runs == ("set/0", "set/1", "set/2")
    for episode in range(3):
        check_motion(store, episode, offset=episode, rows=40, velocity=False)
    _, _, qd, _ = foreign.motion(40)
    assert np.allclose(store.episode(0)[1][3:], qd[3:], atol=0.15)  # slopes of past positions


@pytest.mark.parametrize("initial", [True, False])
def test_states_of_isaac_lab_are_those_after_the_step(tmp_path, initial):
    path = foreign.write_isaac(tmp_path / "demos.hdf5", initial=initial)
    assert recognise(path) == "robomimic"
    joint = "states/articulation/robot/joint_"
    columns = {
        "format": "robomimic",
        "q": {n: {"column": f"{joint}position[{i}]"} for i, n in enumerate(foreign.NAMES)},
        "qd": {n: {"column": f"{joint}velocity[{i}]"} for i, n in enumerate(foreign.NAMES)},
        "control": {n: {"column": f"actions[{i}]"} for i, n in enumerate(foreign.NAMES)},
        "alignment": 0.0,
    }
    store = read_logs([path], from_dict(columns, ColumnMap), SPEC, split="train")
    assert store.header.groups == ("success",)
    if initial:
        check_motion(store, 1, offset=1.0, rows=41)
    else:  # the first state that is known is that after the first action
        _, q, _, control = foreign.motion(41)
        assert np.array_equal(store.episode(0)[0], q[1:].astype(np.float32))
        assert np.array_equal(store.episode(0)[2], control[1:-1].astype(np.float32))


def test_observations_of_robomimic_are_those_before_the_step(tmp_path):
    path = foreign.write_isaac(tmp_path / "demos.hdf5", env_kwargs={"control_freq": 50})
    columns = {
        "format": "robomimic",
        "q": {n: {"column": f"obs/joint_pos[{i}]"} for i, n in enumerate(foreign.NAMES)},
        "qd": {n: {"column": f"obs/joint_vel[{i}]"} for i, n in enumerate(foreign.NAMES)},
        "control": {n: {"column": f"actions[{i}]"} for i, n in enumerate(foreign.NAMES)},
        "alignment": 0.0,
    }
    check_motion(read_logs([path], from_dict(columns, ColumnMap), SPEC, split="train"), rows=40)


def test_a_step_that_nobody_says_is_asked_for(tmp_path):
    path = foreign.write_isaac(tmp_path / "demos.hdf5", env_name="x")
    columns = infer_map(READERS["robomimic"].source(path), "robomimic", SPEC)
    with pytest.raises(InputError, match=r"does not say how long a step is .*give `period`"):
        read_logs([path], columns, SPEC)


def test_columns_without_a_number_are_not_drafted_and_named_where_a_map_has_them(tmp_path):
    path = foreign.write_mujoco(tmp_path / "states.npz", qvel=np.full((60, 2), np.nan), ctrl=np.full((59, 2), np.nan))
    report = inspect_log(path, SPEC, "arm")
    assert "qd: differentiate" in report.map_text
    assert [absent for absent in report.found["absent"] if "control" in absent]
    columns = msgspec.structs.replace(infer_map(READERS["mujoco"].source(path), "mujoco", SPEC), missing="gap")
    with pytest.raises(InputError, match=r"ctrl\[0\], ctrl\[1\], qvel\[0\], qvel\[1\] never hold a number; leave out"):
        read_logs([path], columns, SPEC)


@pytest.mark.parametrize(
    ("clock", "drafted"), [({"time": 0.004 * np.arange(9)}, True), ({"timestep": 0.004}, True), ({}, False)]
)
def test_the_draft_of_mujocos_npz_follows_its_clock(clock: dict, drafted: bool, tmp_path):
    np.savez(tmp_path / "states.npz", qpos=np.zeros((9, 1)), qvel=np.zeros((9, 1)), ctrl=np.zeros((8, 1)), **clock)
    report = inspect_log(tmp_path / "states.npz", PENDULUM, "pendulum")
    assert "period:" not in report.map_text
    assert any("give the time between two rows" in doubt for doubt in report.found["doubts"]) != bool(clock)


@pytest.mark.parametrize("episodes", [None, 3])
def test_npz_of_mujoco(tmp_path, episodes):
    path = foreign.write_mujoco(tmp_path / "states.npz", episodes)
    assert recognise(path) == "mujoco"
    columns = infer_map(READERS["mujoco"].source(path), "mujoco", SPEC)
    store = read_logs([path], columns, SPEC, split="train")
    assert len(store.table) == (episodes or 1)
    check_motion(store, rows=60)


def test_csv_and_npz_are_told_apart_by_content(tmp_path, npz_file):
    write_csv(tmp_path / "log.txt", 0.02 * np.arange(5))
    npz_file.rename(tmp_path / "log.data")
    assert recognise(tmp_path / "log.txt") == "csv"
    assert recognise(tmp_path / "log.data") == "npz"
    store = import_logs([tmp_path / "log.data"], npz_map(), SPEC, tmp_path / "log.h5")
    assert len(store.table) == 3
    assert recognise(tmp_path / "log.h5") is None
    assert not is_log(tmp_path / "log.h5")
    with pytest.raises(InputError, match=r"is an npz file.*, but the column map reads 'mcap'; give `format: npz`"):
        read_logs([tmp_path / "log.data"], bag_map(), SPEC)


@pytest.mark.parametrize("to", ["mcap", "lerobot"])
def test_round_trips_are_exact(tmp_path, npz_file, to):
    store = import_logs([npz_file], npz_map(), SPEC, tmp_path / "log.h5")
    out = tmp_path / f"log.{to}"
    WRITERS[to](store, out)
    columns = infer_map(READERS[to].source(out), to, SPEC)
    back = read_logs([out], columns, SPEC, split="declared" if to == "lerobot" else "train")
    assert np.array_equal(back.lengths, store.lengths)
    assert np.array_equal(back.frames, store.frames)
    if to == "lerobot":
        assert back.split.tolist() == [Split.TRAIN, Split.VALIDATION, Split.TEST]
    with pytest.raises(InputError, match="already exists"):
        WRITERS[to](store, out)


def test_what_is_missing_is_a_gap_if_the_map_says_so(tmp_path):
    arrays = npz_arrays(runs=1)
    arrays["pos"][40, 1] = np.nan
    np.savez(tmp_path / "log.npz", **arrays)
    with pytest.raises(InputError, match=r"holds nan in row 40 .*missing: gap"):
        read_logs([tmp_path / "log.npz"], npz_map(), SPEC)
    store = read_logs([tmp_path / "log.npz"], npz_map(missing="gap"), SPEC, split="train")
    assert store.lengths.tolist() == [39, 59]
    assert store.header.notes["missing_values"] == 1


def test_messages_without_values_are_no_gap_and_values_that_are_nan_are(tmp_path):
    messages = foreign.arm_messages()
    time, q, _, _ = foreign.motion()
    empty = ("/joint_states", "sensor_msgs/msg/JointState", 0, foreign.joint_state(10**18 + 3, foreign.NAMES))
    path = foreign.write_mcap(tmp_path / "a.mcap", [messages[0], empty, *messages[1:]])
    check_motion(read_logs([path], bag_map(), SPEC, split="train"))
    now = 10**18 + round(time[50] * 1e9)
    bad = foreign.joint_state(now, foreign.NAMES, [q[50, 0], np.nan], [0, 0])
    messages[100] = (*messages[100][:3], bad)
    path = foreign.write_mcap(tmp_path / "b.mcap", messages)
    with pytest.raises(InputError, match=r"column '/joint_states.position\[turn\]' holds nan at 1 s"):
        read_logs([path], bag_map(), SPEC)
    assert read_logs([path], bag_map(missing="gap"), SPEC, split="train").lengths.tolist() == [49, 49]


def test_all_bad_files_are_named_at_once(tmp_path, npz_file):
    (tmp_path / "a.npz").write_text("no zip")
    np.savez(tmp_path / "b.npz", time=np.arange(3.0))
    files = [tmp_path / "a.npz", npz_file, tmp_path / "b.npz"]
    with pytest.raises(
        InputError, match=r"2 of 3 logs cannot be read: .*a\.npz: not a .*b\.npz: has no array"
    ) as caught:
        import_logs(files, npz_map(), SPEC, tmp_path / "out.h5")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.h5").exists()


def test_long_logs_are_read_in_parts(tmp_path, monkeypatch, npz_file):
    whole = read_logs([npz_file], npz_map(), SPEC)
    paths = [
        foreign.write_mcap(tmp_path / "bag.mcap", foreign.arm_messages(rows=401)),
        foreign.write_lerobot_v21(tmp_path / "set", rows=101),
        write_csv(tmp_path / "log.csv", 0.02 * np.arange(101)),
    ]
    for module in ("source", "csv", "npz", "lerobot", "message_log"):
        monkeypatch.setattr(f"neurodyn.data.readers.{module}.MOST_VALUES", 600)
    monkeypatch.setattr("neurodyn.data.readers.csv._LINES", 30)
    assert np.array_equal(read_logs([npz_file], npz_map(), SPEC).q, whole.q)
    bag = read_logs(paths[:1], bag_map(), SPEC, split="train")
    assert len(bag.table) > 3
    assert bag.header.runs == ("bag",)
    assert bag.transitions > 380  # a seam costs a frame
    columns = infer_map(READERS["lerobot"].source(paths[1]), "lerobot", SPEC)
    assert read_logs(paths[1:2], columns, SPEC, split="train").header.runs == ("set/0", "set/1", "set/2")


def test_a_package_that_is_missing_is_named(tmp_path):
    with pytest.raises(InputError, match=r"needs nowhere, .*pip install 'neurodyn\[logs\]'"):
        require_logs(tmp_path, ("nowhere.part",))


def test_a_raw_log_is_inspected_and_a_map_is_drafted_in_its_units(tmp_path):
    """An encoder in degrees, a speed in rpm, a clock in ms with a gap, and a hole in the data."""
    time = 0.004 * np.arange(500)
    time[300:] += 1.0
    angle, speed = np.sin(3 * time), 3 * np.cos(3 * time)
    rows = np.column_stack((1e3 * time, np.rad2deg(angle), speed * 30 / np.pi, np.cos(time)))
    lines = ["t_ms;hinge_angle;hinge_speed;hinge_torque", *(";".join(f"{x:.9g}" for x in row) for row in rows)]
    lines[40] = lines[40].rsplit(";", 1)[0] + ";"
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    report = inspect_log(tmp_path / "log.csv", PENDULUM, "pendulum")
    (topic,) = report.found["topics"]
    assert (round(topic["rate_hz"]), topic["gaps"], topic["backwards"]) == (250, 1, 0)
    assert [column["missing"] for column in topic["columns"]] == [0, 0, 0, 1]
    tree = yaml.safe_load(report.map_text)
    assert (tree["robot"], tree["time"], tree["time_unit"], tree["missing"]) == ("pendulum", "t_ms", "ms", "gap")
    assert tree["q"] == {"hinge": {"column": "hinge_angle", "unit": "deg"}}
    assert tree["qd"] == {"hinge": {"column": "hinge_speed", "unit": "rpm"}}
    assert tree["control"] == {"hinge": {"column": "hinge_torque"}}
    columns = from_dict(tree, ColumnMap)
    store = read_logs([tmp_path / "log.csv"], columns, PENDULUM, split="train")
    assert len(store.table) == 3
    begin = int(store.table["start"][1])
    assert np.abs(np.diff(store.q[begin : begin + 50, 0]) / PENDULUM.dt - store.qd[begin : begin + 49, 0]).max() < 0.1


def test_pictures_in_a_bag_are_no_columns(tmp_path):
    definition = "uint32 height\nuint8[] data\n"
    content = b"\0\1\0\0" + struct.pack("<II", 4, 5000) + bytes(5000)
    messages = [("/camera", "my_msgs/msg/Picture", k, content) for k in range(3)]
    path = foreign.write_mcap(tmp_path / "bag.mcap", messages, definition=definition)
    (topic,) = READERS["mcap"].source(path).topics()
    assert topic.columns == ("/camera.height",)

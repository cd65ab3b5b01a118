# SPDX-License-Identifier: Apache-2.0
"""Logs of robots whose base nobody tracks: joints and an IMU, of Unitree's robots and in ROS 2, in every format."""

import csv
import json
import struct

import numpy as np
import pytest
from msgspec.structs import replace

from neurodyn.core.config import from_dict
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.command_parts import part_count, without_parts
from neurodyn.data.inspection import inspect_log, inspect_store
from neurodyn.data.readers import ColumnMap, import_logs, read_column_map, read_logs
from neurodyn.data.readers.sensor_columns import SensorReadings
from neurodyn.data.readers.unitree import feet, motor_order
from neurodyn.data.store import Store

from . import foreign
from .conftest import SPEC as ARM
from .test_measured import bag

LEGS = [f"{leg}_{joint}_joint" for leg in ("FL", "FR", "RL", "RR") for joint in ("hip", "thigh", "calf")]
GO2 = StateSpec(
    robot="go2", joints=(JointSpec("root", "free"), *(JointSpec(name, "revolute") for name in LEGS)),
    controls=tuple(LEGS), dt=0.02,
)  # fmt: skip
ORDER = [f"{leg}_{joint}_joint" for leg in ("FR", "FL", "RR", "RL") for joint in ("hip", "thigh", "calf")]
DT = 0.005
IMU = {"kind": "imu", "columns": {"angular_velocity": "gyro", "specific_force": "acc"}}


def readings(rows=401):
    """Time, motors [rows, 20, 3] (q, dq, torque) in Unitree's order, gyroscope, specific force, attitude, feet."""
    time = DT * np.arange(rows)
    rate = 1.0 + 0.1 * np.arange(20)
    phase = rate * time[:, None]
    motors = np.stack([np.sin(phase), rate * np.cos(phase), 3.0 * np.cos(2.0 * phase)], axis=2)
    gyroscope = np.stack([np.cos(time), 0.1 * time, 0.2 + 0.0 * time], axis=1)
    force = np.stack([time, 0.0 * time, 9.81 + np.sin(40.0 * time)], axis=1)
    half = 0.1 * np.sin(time)
    attitude = np.stack([np.cos(half), np.sin(half), 0.0 * time, 0.0 * time], axis=1)
    pressed = np.where(np.sin(3.0 * time[:, None] + np.arange(4)) > 0.0, 90.0, 3.0)
    return time, motors, gyroscope, force, attitude, pressed


def low_states(rows=401):
    """Unitree's messages as plain data, motor by motor."""
    _, motors, *imu, pressed = readings(rows)
    names = ("gyroscope", "accelerometer", "quaternion")
    for k in range(rows):
        yield {
            "tick": 1000 + 5 * k,
            "imu_state": {name: one[k].tolist() for name, one in zip(names, imu, strict=True)},
            "motor_state": [{"mode": 1, "q": a, "dq": b, "tau_est": c} for a, b, c in motors[k].tolist()],
            "foot_force": [int(x) for x in pressed[k]],
        }


def write_jsonl(path):
    path.write_text("".join(json.dumps(one) + "\n" for one in low_states()))
    return path


def write_csv(path):
    rows = []
    for one in low_states():
        row = {"tick": one["tick"]}
        for name, values in one["imu_state"].items():
            row |= {f"imu_state.{name}[{k}]": value for k, value in enumerate(values)}
        for k, motor in enumerate(one["motor_state"]):
            row |= {f"motor_state[{k}].{name}": value for name, value in motor.items()}
        rows.append(row | {f"foot_force[{k}]": value for k, value in enumerate(one["foot_force"])})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


LOW_STATE = f"""IMUState imu_state
MotorState[20] motor_state
int16[4] foot_force
uint32 tick
{foreign.RULE}
MSG: unitree_go/IMUState
float32[4] quaternion
float32[3] gyroscope
float32[3] accelerometer
float32[3] rpy
int8 temperature
{foreign.RULE}
MSG: unitree_go/MotorState
uint8 mode
float32 q
float32 dq
float32 ddq
float32 tau_est
"""


def serialise(one):
    """A LowState in CDR, field after field with the alignment of each."""
    content = bytearray()

    def put(form, *values):
        for value in values:
            content.extend(bytes(-len(content) % struct.calcsize(form)))
            content.extend(struct.pack(f"<{form}", value))

    imu = one["imu_state"]
    put("f", *imu["quaternion"], *imu["gyroscope"], *imu["accelerometer"], 0.0, 0.0, 0.0)
    put("b", 30)
    for motor in one["motor_state"]:
        put("B", motor["mode"])
        put("f", motor["q"], motor["dq"], 0.0, motor["tau_est"])
    put("h", *one["foot_force"])
    put("I", one["tick"])
    return b"\0\1\0\0" + bytes(content)


def write_mcap(path):
    kind = "unitree_go/msg/LowState"
    messages = [("/lowstate", kind, 10**18 + 5_000_000 * k, serialise(one)) for k, one in enumerate(low_states())]
    return foreign.write_mcap(path, messages, definition={kind: LOW_STATE})


WRITERS = {"jsonl": write_jsonl, "csv": write_csv, "mcap": write_mcap}


def check(store):
    """Joints by name, an IMU with means of specific force, an attitude, foot switches, and no base."""
    _, motors, gyroscope, force, attitude, pressed = readings()
    assert store.header.base == "unmeasured"
    assert np.isnan(store.q[:, :7]).all()
    assert np.isnan(store.qd[:, :6]).all()
    count = int(store.lengths[0]) + 1
    first = np.searchsorted(motors[:, 0, 0], store.q[0, 7 + LEGS.index(ORDER[0])] - 1e-6)
    rows = first + 4 * np.arange(count)
    for number, name in enumerate(ORDER):
        place = LEGS.index(name)
        np.testing.assert_allclose(store.q[:count, 7 + place], motors[rows, number, 0], atol=2e-5)
        np.testing.assert_allclose(store.qd[:count, 6 + place], motors[rows, number, 1], atol=2e-4)
        mean = motors[rows[:-1, None] + np.arange(4), number, 2].mean(1)
        np.testing.assert_allclose(store.control[: count - 1, place], mean, atol=2e-4)
    streams = {stream.kind: stream for stream in store.header.streams}
    assert set(streams) == {"imu", "orientation", "foot_switch", "command"}
    assert streams["imu"].averaged == ("specific_force",)
    assert part_count(store.header) == 4
    store = without_parts(store)
    columns = [name for stream in store.header.streams for name in stream.columns]
    kinds = [stream.kind for stream in store.header.streams for _ in stream.columns]
    seen = {kind: store.measured[:count, [k == kind for k in kinds]] for kind in streams if kind != "command"}
    np.testing.assert_allclose(seen["imu"][:, :3], gyroscope[rows], atol=1e-5)
    mean = (force[rows[:-1, None] + np.arange(5)] * [[[0.5], [1], [1], [1], [0.5]]]).sum(1) / 4
    np.testing.assert_allclose(seen["imu"][:-1, 3:], mean, atol=1e-5)
    np.testing.assert_allclose(seen["orientation"][:, [3, 0, 1, 2]], attitude[rows], atol=1e-6)
    np.testing.assert_array_equal(seen["foot_switch"], pressed[rows] > 20)
    assert streams["foot_switch"].joints == tuple(f"{leg}_calf_joint" for leg in ("FR", "FL", "RR", "RL"))
    assert len(columns) == 6 + 4 + 4


@pytest.mark.parametrize("form", WRITERS)
def test_a_drafted_map_reads_low_states_as_they_are(tmp_path, form):
    path = WRITERS[form](tmp_path / f"low.{form}")
    report = inspect_log(path, GO2)
    assert report.found["absent"] == []
    assert "root: unmeasured" in report.map_text
    (tmp_path / "map.yaml").write_text(report.map_text)
    check(import_logs([path], read_column_map(tmp_path / "map.yaml"), GO2, tmp_path / "log.h5", split="train"))
    store = Store.open(tmp_path / "log.h5")
    check(store)
    inspect_store(store)


def test_motors_have_the_order_of_their_robot():
    assert [motor_order(LEGS)[k] for k in range(12)] == ORDER
    assert feet(LEGS) == ("FR_calf_joint", "FL_calf_joint", "RR_calf_joint", "RL_calf_joint")
    waist = ["left_hip_pitch_joint", "waist_yaw_joint", "right_elbow_joint"]
    assert motor_order(waist) == {0: waist[0], 12: waist[1], 25: waist[2]}
    assert motor_order(["shoulder", "elbow"]) == {}
    assert feet(waist) == ()


def arrays(path, **changes):
    """An npz log of joints and an IMU."""
    time, motors, gyroscope, force, *_ = readings()
    given = {"time": time, "q": motors[:, :12, 0], "qd": motors[:, :12, 1], "tau": motors[:, :12, 2]}
    np.savez(path, **{**given, "gyro": gyroscope, "acc": force, **changes})
    return path


def npz_map(**changes):
    joints = {what: {name: {"column": f"{array}[{k}]"} for k, name in enumerate(LEGS)} for what, array in
              (("q", "q"), ("qd", "qd"), ("control", "tau"))}  # fmt: skip
    given = {"format": "npz", "time": "time", **joints, "floating": {"root": "unmeasured"}, "measured": {"imu": IMU}}
    return from_dict({**given, **changes}, ColumnMap)


def test_an_npz_without_a_pose_is_drafted_and_read(tmp_path):
    path = arrays(tmp_path / "log.npz")
    text = inspect_log(path, GO2).map_text
    assert [line for line in ("root: unmeasured", "kind: imu", "averaged: [specific_force]") if line not in text] == []
    (tmp_path / "map.yaml").write_text(text)
    drafted = read_logs([path], read_column_map(tmp_path / "map.yaml"), GO2)
    store = read_logs([path], npz_map(), GO2)
    np.testing.assert_array_equal(drafted.q, store.q)
    assert store.header.streams[0].averaged == ()


def test_velocities_may_be_differentiated(tmp_path):
    path = arrays(tmp_path / "log.npz")
    store = read_logs([path], npz_map(qd="differentiate"), GO2)
    given = read_logs([path], npz_map(), GO2)
    np.testing.assert_allclose(store.qd[:50, 6:], given.qd[1:51, 6:], atol=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"floating": {"FL_hip_joint": "unmeasured"}}, "only the floating base may be: 'root'"),
        ({"floating": {}}, "or `root: unmeasured`"),
        ({"measured": {}}, "no sensor measures its motion; valid: an IMU under `measured`"),
        ({"measured": {"imu": {**IMU, "averaged": ["heat"]}}}, "averaged names 'heat'; valid: specific_force"),
        ({"measured": {"imu": {**IMU, "threshold": 2.0}}}, "threshold is given for a imu; valid for: foot_switch"),
        ({"floating": {"root": "unknown"}}, "unmeasured"),
    ],
)
def test_what_is_declared_wrongly_is_told(tmp_path, changes, message):
    with pytest.raises((InputError, ValueError), match=message.replace("(", r"\(")):
        read_logs([arrays(tmp_path / "log.npz")], npz_map(**changes), GO2)


def test_means_over_frames_are_those_of_the_signal():
    time = 0.001 * np.arange(1000)
    value = np.stack([np.sin(7 * time), np.where(time < 0.5, 0.0, 1.0)], axis=1)
    one = SensorReadings(time, value, slice(0, 0), averaged=(0,))
    at = 0.02 * np.arange(49)
    found = one.at(at, 0.02)
    np.testing.assert_allclose(found[:, 0], (np.cos(7 * at) - np.cos(7 * (at + 0.02))) / 0.14, atol=1e-5)
    np.testing.assert_allclose(found[:, 1], value[::20][:49, 1])
    late = SensorReadings(time[np.r_[0:300, 400:1000]], value[np.r_[0:300, 400:1000]], slice(0, 0), averaged=(0,))
    lost = np.isnan(late.at(at, 0.02)[:, 0])
    assert lost[15:20].all()
    assert not lost[:14].any()
    assert not lost[20:].any()


def test_what_needs_a_pose_says_so(tmp_path):
    store = read_logs([arrays(tmp_path / "log.npz")], npz_map(), GO2)
    with pytest.raises(InputError, match="base 'root' are not measured, and this needs them; valid: a log with motion"):
        store.require_base("log.h5")


def test_joint_states_and_an_imu_of_ros_need_no_pose(tmp_path):
    path = bag(tmp_path / "bag.mcap")
    spec = replace(ARM, joints=(JointSpec("root", "free"), *ARM.joints))
    text = inspect_log(path, spec).map_text
    assert "root: unmeasured" in text
    (tmp_path / "map.yaml").write_text(text)
    store = import_logs([path], read_column_map(tmp_path / "map.yaml"), spec, tmp_path / "bag.h5")
    assert store.header.base == "unmeasured"
    assert {stream.name: stream.kind for stream in store.header.streams} == {"imu": "imu", "ft": "wrench"}
    with_base = read_logs([path], read_column_map(tmp_path / "map.yaml"), spec)
    np.testing.assert_array_equal(with_base.q, store.q)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{\"a\": 1}\n{\"a\" 2}\n", "line 2 is no JSON"), ("{\"a\": 1}\n[1]\n", "line 2 is no object"),
     ("{\"a\": 1}\n{\"a\": \"x\"}\n", "column 'a' holds 'x' in row 1")],
)  # fmt: skip
def test_damaged_json_lines_name_the_line(tmp_path, text, message):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        inspect_log(path)

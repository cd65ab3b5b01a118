# SPDX-License-Identifier: Apache-2.0
"""Columns of sensors: from logs with clocks of their own to frames, and maps that are drafted for them."""

import numpy as np
import pytest

from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError
from neurodyn.data.inspection import inspect_log
from neurodyn.data.readers import import_logs, read_column_map, read_logs
from neurodyn.data.readers.sensor_columns import SensorReadings
from neurodyn.data.store import Store

from . import foreign
from .conftest import SPEC, npz_arrays, npz_map

IMU = {
    "kind": "imu",
    "columns": {"angular_velocity": "gyro", "specific_force": "acc"},
    "units": {"specific_force": "g"},
}


def npz(path, **changes):
    """An npz log with an inertial unit, whose axis y is missing in one row, and a pose."""
    arrays = npz_arrays()
    time = arrays["time"]
    gyro = np.stack([np.sin(time), time, 1.0 + 0 * time], 1)
    gyro[7, 1] = np.nan
    half = 0.5 * np.sin(time)
    turn = np.stack([np.cos(half), np.sin(half), 0 * time, 0 * time], 1)
    turn[::2] *= -1.0
    place = np.stack([time, 2 * time, 0 * time], 1)
    np.savez(path, **{**arrays, "gyro": gyro, "acc": gyro / 9.80665, "turn": turn, "place": place, **changes})
    return path


POSE = {"kind": "pose", "columns": {"position": "place", "quaternion": "turn"}, "order": "wxyz",
        "units": {"position": "mm"}}  # fmt: skip


def test_readings_come_in_si_units_beside_the_frames(tmp_path):
    columns = npz_map(measured={"imu": IMU, "tip": POSE})
    store = import_logs([npz(tmp_path / "log.npz")], columns, SPEC, tmp_path / "log.h5")
    assert [stream.name for stream in store.header.streams] == ["imu", "tip"]
    first = store.measured[: int(store.lengths[0]) + 1]
    time = 0.02 * np.arange(len(first))
    np.testing.assert_allclose(first[:7, 0], np.sin(time[:7]), rtol=1e-6)
    assert np.isnan(first[7, :6]).all(), "a reading that lacks a number is none"
    assert np.isfinite(first[8:]).all()
    np.testing.assert_allclose(first[8:, :3], first[8:, 3:6], rtol=1e-5)
    np.testing.assert_allclose(first[:, 6], 1e-3 * time, atol=1e-7)
    half = 0.5 * np.sin(time)
    np.testing.assert_allclose(np.abs(first[:, 9]), np.abs(np.sin(half)), atol=1e-6)
    np.testing.assert_allclose(np.abs(first[:, 12]), np.cos(half), atol=1e-6)
    assert ((first[1:, 9:] * first[:-1, 9:]).sum(1) > 0).all(), "quaternions do not jump to their negatives"
    whole = read_logs([tmp_path / "log.npz"], columns, SPEC)
    np.testing.assert_array_equal(whole.measured, store.measured)


def test_frames_near_no_reading_have_none():
    slow = SensorReadings(0.1 * np.arange(5), np.arange(5.0)[:, None], slice(0, 0))
    found = slow.at(0.02 * np.arange(25), 0.02)[:, 0]
    np.testing.assert_allclose(found[::5][:5], [0, 1, 2, 3, 4], atol=1e-9)
    there = np.flatnonzero(np.isfinite(found))
    assert there.tolist() == [0, 5, 10, 15, 20]
    shifted = slow.at(0.02 * np.arange(25) + 0.004, 0.02)[:, 0]
    np.testing.assert_allclose(shifted[[0, 5, 10]], [0.04, 1.04, 2.04])
    assert np.isnan(SensorReadings(np.zeros(0), np.zeros((0, 3)), slice(0, 0)).at(np.zeros(2), 0.1)).all()


@pytest.mark.parametrize(
    "given",
    [
        {"controller": {"kp": 40.0, "kd": {"lift": 2.0, "turn": 1.0}}},
        {"drives": {"lift": {"kind": "pd", "kp": 40, "kd": 2}, "turn": {"kind": "pd", "kp": 40, "kd": 1}}},
    ],
)
def test_targets_and_their_drives_travel_with_the_data(tmp_path, given):
    columns = npz_map(control_kind="target", **given)
    store = import_logs([npz(tmp_path / "log.npz")], columns, SPEC, tmp_path / "log.h5")
    store = Store.open(tmp_path / "log.h5")
    assert store.header.spec.control_kind == "target"
    damping = {"lift": 2.0, "turn": 1.0}
    assert store.header.drives == {joint: Drive(kind="pd", kp=40.0, kd=kd) for joint, kd in damping.items()}


def bag(path):
    """A bag with joints at 50 Hz, an inertial unit at 200 Hz and wrenches at 10 Hz."""
    messages = foreign.arm_messages()
    for k in range(401):
        now = 10**18 + 5_000_000 * k
        value = tuple(float(x) for x in (np.sin(0.005 * k), 0.0, 1.0))
        zeros = (0.0,) * 9
        content = foreign.cdr(*foreign.stamp(now), "imu", (0.0, 0.0, 0.0, 1.0), zeros, value, zeros, value, zeros)
        messages.append(("/imu", "sensor_msgs/msg/Imu", now + 500, content))
        if k % 20 == 0:
            wrench = foreign.cdr(*foreign.stamp(now), "tool", tuple(float(x) for x in range(6)))
            messages.append(("/ft", "geometry_msgs/msg/WrenchStamped", now + 500, wrench))
    messages.sort(key=lambda message: message[2])
    return foreign.write_mcap(path, messages, definition={"sensor_msgs/msg/JointState": foreign.DEFINITION})


def test_a_drafted_map_names_sensors_and_imports_as_it_is(tmp_path):
    path = bag(tmp_path / "bag.mcap")
    text = inspect_log(path, SPEC).map_text
    assert [line for line in ("measured:", "kind: imu", "kind: wrench") if line not in text] == []
    (tmp_path / "map.yaml").write_text(text)
    store = import_logs([path], read_column_map(tmp_path / "map.yaml"), SPEC, tmp_path / "bag.h5")
    assert {stream.name: stream.kind for stream in store.header.streams} == {"imu": "imu", "ft": "wrench"}
    first = store.measured[: int(store.lengths[0]) + 1]
    np.testing.assert_allclose(first[:, 0], np.sin(0.02 * np.arange(len(first))), atol=1e-6)
    np.testing.assert_allclose(first[::5, 6:], np.tile(np.arange(6.0), (len(first[::5]), 1)), atol=1e-6)
    assert np.isnan(first[1::5, 6:]).all()


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ({"imu": {**IMU, "kind": "lidar"}}, "unknown kind of sensor 'lidar'; valid: accelerometer"),
        ({"imu": {**IMU, "columns": {"angular_velocity": "gyro"}}}, "columns has no 'specific_force'"),
        ({"imu": {**IMU, "columns": {**IMU["columns"], "force": "acc"}}}, "columns names 'force'; quantities of a imu"),
        ({"imu": {**IMU, "units": {"angular_velocity": "km"}}}, "unknown unit 'km'"),
        ({"imu": {**IMU, "columns": {**IMU["columns"], "angular_velocity": ["gyro[0]"]}}}, "has 1 columns"),
        ({"imu": {**IMU, "columns": {**IMU["columns"], "angular_velocity": "rate"}}}, "'rate'"),
        ({"t": {"kind": "joint_torque", "columns": {"torque": "tau"}}}, "needs joints"),
        ({"tip": {**POSE, "columns": {"position": "place", "quaternion": ["gyro[0]"] * 4}}}, "'tip' has norm"),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_read_are_named(tmp_path, measured, message):
    with pytest.raises(InputError, match=message):
        import_logs([npz(tmp_path / "log.npz")], npz_map(measured=measured), SPEC, tmp_path / "log.h5")
    assert not (tmp_path / "log.h5").exists()

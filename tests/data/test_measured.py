# SPDX-License-Identifier: Apache-2.0
"""Readings of sensors in stores: round trips, gaps, and files of before there were any."""

import json
from dataclasses import replace

import h5py
import msgspec
import numpy as np
import pytest

from neurodyn.core.description.drive import Drive
from neurodyn.core.description.sensors import Stream, stream_columns
from neurodyn.core.errors import InputError
from neurodyn.data.inspection import inspect_store
from neurodyn.data.mixture import first_frames, joined
from neurodyn.data.store import Store
from neurodyn.data.windows import select_windows
from neurodyn.data.writer import StoreWriter

from .conftest import counting_batch, header

STREAMS = (Stream(name="imu", kind="imu"), Stream(name="torque", kind="joint_torque", joints=("slide", "pole")))
LENGTHS = [10, 4, 10]


DRIVES = {"slide": Drive(kind="pd", kp=20.0, kd=1.0)}


def readings():
    values = np.random.default_rng(3).normal(size=(3, 11, 8)).astype(np.float32)
    values[:, ::3, :6] = np.nan
    return values


@pytest.fixture
def path(tmp_path):
    q, qd, control = counting_batch(3, 10)
    with StoreWriter(tmp_path / "log.h5", header(streams=STREAMS, drives=DRIVES)) as writer:
        writer.append(q, qd, control, lengths=LENGTHS, measured=readings())
    return tmp_path / "log.h5"


def test_round_trip_with_gaps(path, tmp_path):
    store = Store.open(path)
    valid = np.arange(11)[None] <= np.array(LENGTHS)[:, None]
    assert store.header.streams == STREAMS
    assert store.header.drives == DRIVES
    np.testing.assert_array_equal(store.measured, readings()[valid])
    assert stream_columns(STREAMS)[5:] == ("imu.specific_force.z", "torque.torque.slide", "torque.torque.pole")
    store.write(tmp_path / "copy.h5")
    np.testing.assert_array_equal(Store.open(tmp_path / "copy.h5").measured, store.measured)
    with h5py.File(path) as file:
        assert b"imu.angular_velocity.x" in file.attrs["measured_names"].tolist()


def test_an_interrupted_store_is_continued_with_its_readings(tmp_path):
    q, qd, control = counting_batch(3, 10)
    path, own = tmp_path / "log.h5", header(streams=STREAMS)
    writer = StoreWriter(path, own)
    writer.append(q, qd, control, measured=readings())
    del writer
    with StoreWriter(path, own, resume=True) as writer:
        writer.append(q, qd, control, measured=2 * readings())
    store = Store.open(path)
    np.testing.assert_array_equal(store.measured[33:], 2 * readings().reshape(33, 8))


def test_readings_follow_their_episodes(path):
    store = Store.open(path)
    both = joined([store, store])
    np.testing.assert_array_equal(both.measured[len(store.frames) :], store.measured)
    np.testing.assert_array_equal(first_frames(store, 6).measured[7:], store.measured[16 + 0 : 16 + 7])
    windows = select_windows(store, None, 4, stride=4, most=100)
    for row, (episode, start) in enumerate(windows.source.places):
        np.testing.assert_array_equal(windows.readings[row], readings()[episode, start : start + 5])
    np.testing.assert_array_equal(windows.cut(2).readings, windows.readings[:, 2:])
    bare = replace(store, header=msgspec.structs.replace(store.header, streams=()), measured=None)
    with pytest.raises(InputError, match="other streams of sensors"):
        joined([store, bare])


def test_an_inspection_lists_readings(path):
    store = Store.open(path)
    found = {c["name"]: c for c in inspect_store(store)["coordinates"] if c["what"] == "measured"}
    assert list(found) == list(stream_columns(STREAMS))
    assert inspect_store(store)["sensors"] == {"imu": pytest.approx(float(np.isfinite(store.measured[:, 0]).mean())),
                                              "torque": 1.0}  # fmt: skip
    assert found["imu.specific_force.x"]["unit"] == "m/s^2"
    assert found["imu.specific_force.x"]["max"] == pytest.approx(float(np.nanmax(store.measured[:, 3])))


def test_a_store_of_before_there_were_sensors_opens(tmp_path):
    q, qd, control = counting_batch(2, 5)
    with StoreWriter(tmp_path / "old.h5", header()) as writer:
        writer.append(q, qd, control)
    with h5py.File(tmp_path / "old.h5", "r+") as file:
        text = bytes(file["header"][()]).decode()
        plain = json.loads(text)
        plain["controller"] = {"kind": "pd", "kp": 20.0, "kd": {"slide": 1.0}, "limit": 1e9, "updates": 1}
        text = json.dumps({key: value for key, value in plain.items() if key not in ("streams", "drives")})
        del file["header"], file.attrs["measured_names"]
        file.create_dataset("header", data=np.frombuffer(text.encode(), np.uint8))
        assert "measured" not in file
    store = Store.open(tmp_path / "old.h5")
    assert (store.measured, store.header.streams) == (None, ())
    drive = Drive(kind="pd", kp=20.0, kd=1.0, effort_limit=1e9)
    assert store.header.drives == {"slide": drive}


def test_readings_that_do_not_fit_are_refused(path, tmp_path):
    q, qd, control = counting_batch(3, 10)

    def written(measured, streams=STREAMS):
        with StoreWriter(tmp_path / "new.h5", header(streams=streams)) as writer:
            writer.append(q, qd, control, measured=measured)

    with pytest.raises(InputError, match=r"measured has shape \[33, 0\]; valid: \[33, 8\]"):
        written(None)
    with pytest.raises(InputError, match=r"measured has shape \[33, 8\]; valid: \[33, 0\]"):
        written(readings(), ())
    with pytest.raises(InputError, match="a reading is infinite"):
        written(np.full((3, 11, 8), np.inf))
    with pytest.raises(InputError, match=r"measured has shape \[3, 4, 8\]"):
        written(readings()[:, :4])
    assert not (tmp_path / "new.h5").exists()
    with h5py.File(path, "r+") as file:
        del file["measured"]
    with pytest.raises(InputError, match="no dataset 'measured'"):
        Store.open(path)

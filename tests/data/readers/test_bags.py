# SPDX-License-Identifier: Apache-2.0
"""Bags that rosbags writes give the motion that was put in, exactly; a bag cut short names what can be read."""

import struct

import numpy as np
import pytest

from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.data.readers import ColumnMap, read_logs
from neurodyn.data.readers.column_map import READERS, recognise
from neurodyn.data.readers.ros import Decoder, find_layout, message_definitions

from . import foreign
from .conftest import SPEC
from .test_foreign import BAG, bag_map, check_motion

pytest.importorskip("rosbags")

from rosbags import rosbag1, rosbag2
from rosbags.typesys import Stores, get_typestore

KIND = "sensor_msgs/msg/JointState"


def arm_states(store, rows=101, start=10**18):
    """(topic, log time, message) of the arm's states, and of its commands, as objects of rosbags."""
    state, time = store.types[KIND], store.types["builtin_interfaces/msg/Time"]
    header = store.types["std_msgs/msg/Header"]
    sequence = {"seq": 0} if "seq" in header.__annotations__ else {}
    none = np.zeros(0)
    for t, q, qd, control in zip(*foreign.motion(rows), strict=True):
        now = start + round(t * 1e9)
        stamped = header(**sequence, stamp=time(*foreign.stamp(now)), frame_id="base")
        yield "/joint_states", now + 1000, state(stamped, list(foreign.NAMES), q, qd, none)
        yield "/command", now + 2000, state(stamped, list(foreign.NAMES), none, none, control)


@pytest.mark.parametrize("compression", [None, "BZ2", "LZ4"])
def test_bags_of_ros_1(tmp_path, compression):
    store, path = get_typestore(Stores.ROS1_NOETIC), tmp_path / "drive.bag"
    bag = rosbag1.Writer(path)
    if compression:
        bag.set_compression(rosbag1.Writer.CompressionFormat[compression])
    with bag:
        topics = {topic: bag.add_connection(topic, KIND, typestore=store) for topic in ("/joint_states", "/command")}
        for topic, now, message in arm_states(store):
            bag.write(topics[topic], now, store.serialize_ros1(message, KIND))
    assert recognise(path) == "rosbag1"
    check_motion(read_logs([path], bag_map(format="rosbag1"), SPEC, split="train"))
    assert READERS["rosbag1"].source(path).topics()[0].clock == "header"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"is damaged, cut off or no bag .*recover it with `rosbag reindex`"):
        read_logs([path], bag_map(format="rosbag1"), SPEC)


@pytest.mark.parametrize("mode", [None, "FILE", "MESSAGE"])
@pytest.mark.parametrize("storage", ["SQLITE3", "MCAP"])
def test_bags_of_ros_2(tmp_path, storage, mode):
    store, path = get_typestore(Stores.ROS2_HUMBLE), tmp_path / "drive"
    bag = rosbag2.Writer(path, version=9, storage_plugin=rosbag2.StoragePlugin[storage])
    if mode:
        bag.set_compression(rosbag2.CompressionMode[mode], rosbag2.CompressionFormat.ZSTD)
    with bag:
        topics = {topic: bag.add_connection(topic, KIND, typestore=store) for topic in ("/joint_states", "/command")}
        for topic, now, message in arm_states(store):
            bag.write(topics[topic], now, store.serialize_cdr(message, KIND))
    assert recognise(path) == "rosbag2"
    check_motion(read_logs([path], bag_map(format="rosbag2"), SPEC, split="train"))
    if not mode:
        (path / "metadata.yaml").unlink()
        check_motion(read_logs([path], bag_map(format="rosbag2"), SPEC, split="train"))


def test_an_mcap_file_cut_short_says_how_many_messages_can_be_read(tmp_path):
    path = foreign.write_mcap(tmp_path / "bag.mcap", foreign.arm_messages(), chunk_size=2048)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut off after (\d+) messages .*`mcap recover bag.mcap") as caught:
        READERS["mcap"].source(path).topics()
    assert 50 < int(str(caught.value).split("after ")[1].split()[0]) < 151


def test_columns_are_those_of_messages_on_their_own():
    definitions = message_definitions("my_msgs/Odd", "time at\nint8 class\nHeader header\nfloat32[2] pair", ros1=True)
    content = struct.pack("<IIbIIIIff", 5, 6, 3, 0, 7, 8, 0, 1.5, 2.5)
    [decoded] = Decoder("my_msgs/Odd", definitions, ros1=True).decode([content] * 3)
    values = {"at.secs": 5, "at.nsecs": 6, "class": 3, "pair[0]": 1.5, "pair[1]": 2.5}
    assert {n: column.tolist() for n, column in decoded.columns.items()} == {n: [values[n]] * 3 for n in values}
    assert decoded.stamp is not None
    assert decoded.stamp.tolist() == [7 * 10**9 + 8] * 3


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("my_msgs/msg/Odd", "", "has the type my_msgs/msg/Odd with no definition; valid: a bag with .msg definitions"),
        ("my_msgs/msg/Odd", "float64[", "the definition of my_msgs/msg/Odd is malformed"),
        ("my_msgs/msg/Odd", "my_msgs/Other x", "refers to my_msgs/msg/Other, which the file does not define"),
    ],
)
def test_definitions_that_cannot_be_read(kind, text, message):
    with pytest.raises(InputError, match=message):
        message_definitions(kind, text)


def test_messages_that_do_not_fit_their_definition():
    definitions = message_definitions(KIND)
    with pytest.raises(InputError, match="a message of 3 bytes is not serialised as CDR"):
        find_layout(b"abc", KIND, definitions)
    with pytest.raises(
        InputError, match="a message of 12 bytes does not fit the definition of sensor_msgs/msg/JointSt"
    ):
        find_layout(b"\0\1\0\0" + bytes(8), KIND, definitions)


def test_a_map_for_one_format_of_messages_reads_the_others(tmp_path):
    path = foreign.write_mcap(tmp_path / "bag.mcap", foreign.arm_messages())
    check_motion(read_logs([path], from_dict({**BAG, "format": "rosbag1"}, ColumnMap), SPEC, split="train"))


def test_a_clock_set_back_names_the_clock_of_the_recorder(tmp_path):
    def back(kind, time, content):
        return content if time < 10**18 + 5 * 10**8 else foreign.cdr(*foreign.stamp(time - 3 * 10**8)) + content[12:]

    messages = [(topic, kind, time, back(kind, time, content)) for topic, kind, time, content in foreign.arm_messages()]
    path = foreign.write_mcap(tmp_path / "back.mcap", messages)
    with pytest.raises(InputError, match=r"time goes backwards in run 'back' .*; `clock: log` takes the recorder's"):
        read_logs([path], bag_map(), SPEC)
    check = read_logs([path], bag_map(clock="log"), SPEC, split="train")
    assert check.transitions > 50


@pytest.mark.parametrize("key", ["split", "episodes", "group", "time_unit", "delimiter"])
def test_a_key_that_nothing_reads_of_a_bag_is_refused(key):
    with pytest.raises(InputError, match=f"{key} is given, but nothing reads it of an MCAP file; valid for .*csv"):
        bag_map(**{key: ";"})

# SPDX-License-Identifier: Apache-2.0
"""Open logs, before a column map gives their columns a meaning: topics, columns and clocks of each format."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.readers import npz
from neurodyn.data.readers.bags import McapSource
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.data.readers.lerobot import LerobotSource
from neurodyn.data.readers.message_log import MessageSource
from neurodyn.data.readers.mujoco import MujocoSource
from neurodyn.data.readers.robomimic import RobomimicSource
from neurodyn.data.readers.source import ColumnSeries, LogPart, RunRows, Source
from neurodyn.data.readers.streams import read_source

from . import foreign
from .conftest import SPEC


def test_arrays_of_an_npz_file_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wide, steps = np.arange(60.0).reshape(20, 3), np.array(0.01)
    np.savez(tmp_path / "log.npz", wide=wide, steps=steps, by_columns=np.asfortranarray(wide), none=np.zeros(3))
    monkeypatch.setattr(npz, "_WHOLE", 0)
    arrays = npz.NpzArrays(tmp_path / "log.npz")
    assert (arrays.shape("wide"), arrays.dtype("wide"), arrays.step("steps")) == ((20, 3), np.dtype(float), 0.01)
    for begin, end in ((0, 5), (5, 9), (15, 20), (2, 4)):  # onwards, over a hole, and back
        for name in ("wide", "by_columns"):
            np.testing.assert_array_equal(arrays.rows(name, begin, end), wide[begin:end])
    with pytest.raises(InputError, match=r"has no array 'wid' \(did you mean 'wide'\?\); arrays there: .*wide"):
        arrays.array("wid")
    with pytest.raises(InputError, match="array 'none' is no time step; expected one number above 0"):
        arrays.step("none")


def columns(source: Source, *names: str) -> dict[str, ColumnSeries]:
    """Return columns of the first part of a log."""
    part = next(source.parts(names))
    assert isinstance(part, LogPart)
    return {name: part.series[name] for name in names}


def test_controls_of_mujoco_end_before_the_states(tmp_path: Path):
    source = MujocoSource(foreign.write_mujoco(tmp_path / "states.npz"), None)
    assert {topic.name: topic.columns for topic in source.topics()}["ctrl"] == ("ctrl[0]", "ctrl[1]")
    read = columns(source, "qpos[1]", "ctrl[0]")
    time, q, _, control = foreign.motion(60)
    np.testing.assert_array_equal(read["qpos[1]"].value, q[:, 1])
    np.testing.assert_array_equal(read["ctrl[0]"].value, control[:-1, 0])
    np.testing.assert_array_equal(read["ctrl[0]"].time, time[:-1])


def test_columns_of_lerobot_have_the_names_of_motors(tmp_path: Path):
    pytest.importorskip("pyarrow")
    splits = {"train": "0:2", "test": "2:3"}
    source = LerobotSource(foreign.write_lerobot_v21(tmp_path / "set", splits=splits), None)
    state = next(topic for topic in source.topics() if topic.name == "observation.state")
    assert (state.columns, state.clock) == (("observation.state[lift.pos]", "observation.state[turn.pos]"), "50 fps")
    assert [part.runs[0].split for part in source.parts(["action[0]"])] == [Split.TRAIN, Split.TRAIN, Split.TEST]
    np.testing.assert_array_equal(columns(source, "action[1]")["action[1]"].time, np.arange(40) / 50)


def test_states_of_demonstrations_are_after_their_step(tmp_path: Path):
    source = RobomimicSource(foreign.write_isaac(tmp_path / "demos.hdf5"), None)
    assert source.step == pytest.approx(foreign.DT)
    state, action = "states/articulation/robot/joint_position[0]", "actions[0]"
    read = columns(source, state, action)
    assert (len(read[state].time), len(read[action].time)) == (41, 40)  # with the state before the first step
    np.testing.assert_allclose(read[state].time, foreign.DT * np.arange(41))


def test_messages_give_columns_by_topic_and_field(tmp_path: Path):
    pytest.importorskip("mcap")
    source = McapSource(foreign.write_mcap(tmp_path / "bag.mcap", foreign.arm_messages(shuffled=True)), None)
    assert isinstance(source, MessageSource)
    topics = {topic.name: topic for topic in source.topics()}
    assert topics["/command"].columns == ("/command.effort[lift]", "/command.effort[turn]")
    read = columns(source, "/joint_states.position[turn]", "/command.effort[lift]")
    time, q, _, control = foreign.motion()
    np.testing.assert_array_equal(read["/joint_states.position[turn]"].value, q[:, 1])
    np.testing.assert_array_equal(read["/command.effort[lift]"].value, control[:-1, 0])
    np.testing.assert_allclose(read["/command.effort[lift]"].time, time[:-1], atol=1e-8)
    with pytest.raises(InputError, match=r"has no topic '/comand'; topics there: /joint_states \(sensor_msgs/msg/Joi"):
        columns(source, "/comand.effort[lift]")


class Streams(Source):
    """A log of two clocks: positions of one joint each 10 ms, everything else each 25 ms."""

    path = Path("log")

    def topics(self):
        return []

    def parts(self, names):
        fast, slow = np.arange(101) * 0.01, np.arange(41) * 0.025
        clocks = {name: fast if name == "a" else slow for name in names}
        yield LogPart([RunRows("run")], {name: ColumnSeries(time, np.sin(3 * time)) for name, time in clocks.items()})


def test_streams_of_one_kind_are_brought_to_the_densest_clock():
    q = {"lift": {"column": "a"}, "turn": {"column": "b", "offset": 1.0, "sign": -1}}
    tree = {"format": "mcap", "q": q, "qd": "differentiate", "control": {n: {"column": "c"} for n in ("lift", "turn")}}
    [run] = read_source(Streams(), from_dict(tree, ColumnMap), SPEC)
    assert len(run.time) == 101
    np.testing.assert_array_equal(run.q[:, 0], np.sin(3 * run.time))
    np.testing.assert_allclose(run.q[:, 1], -(1 + np.sin(3 * run.time)), atol=1e-3)  # cubic between 25 ms
    assert run.control_time is not None
    assert len(run.control_time) == 41
    with pytest.raises(InputError, match="no run is selected by x; groups there: "):
        list(read_source(Streams(), from_dict({**tree, "select_runs": ["x"]}, ColumnMap), SPEC))

# SPDX-License-Identifier: Apache-2.0
"""Streams with clocks of their own: what one of them lacks is not made up from its values before and after."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn.core.config import from_dict
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.data.readers.resample import segments
from neurodyn.data.readers.source import ColumnSeries, LogPart, RunRows, Source
from neurodyn.data.readers.streams import read_source

from .conftest import SPEC

BODY = StateSpec(
    robot="body",
    joints=(JointSpec(name="base", kind="free"), JointSpec(name="flap", kind="revolute")),
    controls=(),
    dt=0.01,
)
ROOT = {
    "position": ["x", "y", "z"], "quaternion": ["a", "b", "c", "d"], "order": "xyzw", "angular_axes": "world",
    "linear_velocity": ["vx", "vy", "vz"], "angular_velocity": ["wx", "wy", "wz"],
}  # fmt: skip
FREE = {"format": "mcap", "floating": {"base": ROOT}, "q": {"flap": {"column": "f"}}, "qd": {"flap": {"column": "g"}}}
ARM = {
    "format": "mcap", "missing": "gap", "q": {n: {"column": f"q{n}"} for n in ("lift", "turn")},
    "qd": {n: {"column": f"v{n}"} for n in ("lift", "turn")},
    "control": {n: {"column": "u"} for n in ("lift", "turn")},
}  # fmt: skip


class Told(Source):
    """Columns as they are given."""

    path = Path("log")

    def __init__(self, **series: tuple[np.ndarray, np.ndarray]) -> None:
        self.series = {name: ColumnSeries(time, np.array(value)) for name, (time, value) in series.items()}

    def topics(self):
        raise NotImplementedError

    def parts(self, names):
        yield LogPart([RunRows("run")], {name: self.series[name] for name in names})


def turning(pose: np.ndarray, twist: np.ndarray, flap: np.ndarray, signs: float | np.ndarray = 1.0) -> Told:
    """A body that turns about z at 2 rad/s and moves along x as sin(3 t), with a flap."""
    zero, none = np.zeros_like(pose), np.zeros_like(twist)
    return Told(
        x=(pose, np.sin(3 * pose)), y=(pose, zero), z=(pose, zero), a=(pose, zero), b=(pose, zero),
        c=(pose, signs * np.sin(pose)), d=(pose, signs * np.cos(pose)), vx=(twist, 3 * np.cos(3 * twist)),
        vy=(twist, none), vz=(twist, none), wx=(twist, none), wy=(twist, none), wz=(twist, 2 + none),
        f=(flap, np.sin(flap)), g=(flap, np.cos(flap)),
    )  # fmt: skip


@pytest.mark.parametrize("apart", [True, False], ids=["a flap on a third clock", "all poses on one"])
@pytest.mark.parametrize("late", [True, False], ids=["a twist that begins late", "one that pauses"])
def test_velocities_of_a_body_are_not_made_up(late, apart):
    pose = 0.01 * np.arange(301)
    twist = pose[(pose > 0.6) if late else (pose < 1.0) | (pose > 1.4)] + 0.003
    source = turning(pose, twist, pose + 0.005 if apart else pose)
    [run] = read_source(source, from_dict(FREE, ColumnMap), BODY)
    pieces = segments(run, 0.1)
    assert len(pieces) == (1 if late else 2)
    for piece in pieces:
        clock = piece.time if piece.velocity_time is None else piece.velocity_time
        np.testing.assert_allclose(piece.qd[:, 0], 3 * np.cos(3 * clock), atol=1e-3)
        assert clock[-1] - clock[0] > 0.9


def test_signs_of_a_quaternion_are_joined_before_it_is_interpolated():
    pose = 0.01 * np.arange(301)
    flips = np.where(np.arange(301) % 7 < 3, -1.0, 1.0)
    source = turning(pose, pose, 0.005 * np.arange(601) + 0.002, flips)
    [run] = read_source(source, from_dict(FREE, ColumnMap), BODY)
    np.testing.assert_allclose(abs(run.q[:, 3:7] @ [0, 0, 0, 1]), abs(np.cos(run.time)), atol=1e-6)


def test_a_value_that_one_of_several_streams_lacks_begins_an_episode():
    fast, slow = 0.01 * np.arange(301), 0.02 * np.arange(150) + 0.003
    lost = (slow > 1.0) & (slow < 1.4)
    speed = np.where(lost, np.nan, 3 * np.cos(3 * slow))
    source = Told(
        qlift=(fast, np.sin(3 * fast)), vlift=(fast, 3 * np.cos(3 * fast)), qturn=(slow, np.sin(3 * slow)),
        vturn=(slow, speed), u=(fast, np.cos(fast)),
    )  # fmt: skip
    [run] = read_source(source, from_dict(ARM, ColumnMap), SPEC)
    first, second = segments(run, 0.1)
    assert max(clock[-1] for clock in first.clocks.values()) <= slow[~lost & (slow < 1.2)][-1] + 0.021
    assert second.time[0] >= slow[~lost & (slow > 1.2)][0]
    for piece in (first, second):
        clock = piece.time if piece.velocity_time is None else piece.velocity_time
        np.testing.assert_allclose(piece.qd[:, 1], 3 * np.cos(3 * clock), atol=2e-3)


def test_slopes_are_not_taken_across_a_pause_and_are_of_second_order_at_ends():
    fast, slow = 0.01 * np.arange(301), 0.02 * np.arange(150) + 0.001
    slow = slow[(slow < 1.0) | (slow > 1.09)]  # shorter than max_gap would be bridged
    tree = ARM | {"qd": "differentiate", "max_gap": 0.05}
    source = Told(qlift=(fast, fast**2), qturn=(slow, slow**2), u=(fast, fast))
    [run] = read_source(source, from_dict(tree, ColumnMap), SPEC)
    np.testing.assert_allclose(run.q[:, 1], run.time**2, atol=1e-12)


@pytest.mark.parametrize("names", [("qturn",), ("vturn",), ("u",)])
def test_a_clock_that_is_set_back_in_one_of_several_streams_is_refused(names):
    fast, slow = 0.01 * np.arange(301), 0.02 * np.arange(150)
    back = np.where(slow > 1.5, slow - 1.2, slow)
    tree = ARM | {"control": {"lift": {"column": "ulift"}, "turn": {"column": "u"}}}
    clocks = dict.fromkeys(("qlift", "vlift", "ulift"), fast)
    clocks |= {n: back if n in names else slow for n in ("qturn", "vturn", "u")}
    source = Told(**{name: (time, np.sin(time)) for name, time in clocks.items()})
    with pytest.raises(InputError, match=r"time of a stream of \w+ goes backwards \(1.5 s to 0.3.*`clock: log`"):
        list(read_source(source, from_dict(tree, ColumnMap), SPEC))


def test_a_clock_that_is_set_back_in_the_velocities_of_a_body_is_refused():
    pose = 0.01 * np.arange(301)
    source = turning(pose, np.where(pose > 1.5, pose - 1.2, pose), pose)
    tree = FREE | {"qd": {"flap": {"column": "g"}}}
    with pytest.raises(InputError, match="time of a stream of qd goes backwards"):
        list(read_source(source, from_dict(tree, ColumnMap), BODY))


def test_sums_of_columns_with_clocks_of_their_own_have_the_gaps_of_each():
    time, other = 0.01 * np.arange(301), 0.01 * np.arange(301) + 0.004
    other = other[(other > 0.5) & ((other < 1.0) | (other > 1.4))]
    tree = ARM | {"control": {n: {"column": ["u", "more"]} for n in ("lift", "turn")}}
    known = {name: (time, np.sin(time)) for name in ("qlift", "qturn", "vlift", "vturn", "u")}
    [run] = read_source(Told(**known, more=(other, np.cos(other))), from_dict(tree, ColumnMap), SPEC)
    pieces = segments(run, 0.1)
    assert len(pieces) == 2
    for piece in pieces:
        clock = piece.clocks["control"]
        np.testing.assert_allclose(piece.control[:, 0], np.sin(clock) + np.cos(clock), atol=1e-4)
    assert sum(piece.time[-1] - piece.time[0] for piece in pieces) > 1.9

# SPDX-License-Identifier: Apache-2.0
"""npz logs: round trip, runs, groups, splits, selections, and bad arrays."""

import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.readers import npz, read_logs
from neurodyn.data.readers.draft import draft_map
from neurodyn.data.store import Store

from .conftest import SPEC, npz_arrays, npz_map, smooth_motion


def read(path, choice="declared", **changes):
    return read_logs([path], npz_map(**changes), SPEC, split=choice)


def test_round_trip_through_a_store(npz_file, tmp_path):
    read(npz_file).write(tmp_path / "log.h5")
    store = Store.open(tmp_path / "log.h5")
    assert store.header.source == "log"
    assert store.header.runs == ("run0", "run1", "run2")
    assert store.header.groups == ("even", "odd")
    assert store.group.tolist() == [0, 1, 0]
    assert store.split.tolist() == [Split.TRAIN, Split.VALIDATION, Split.TEST]
    want = smooth_motion(0.02 * np.arange(101))
    for episode in range(3):
        q, qd, control = store.episode(episode)
        assert np.allclose(q, want[0], atol=1e-6)
        assert np.allclose(qd, want[1], atol=1e-6)
        assert np.allclose(control, want[2][:-1], atol=1e-5)


def test_optional_arrays_may_be_absent(tmp_path):
    arrays = npz_arrays()
    for name in ("split", "group", "group_name", "run_name"):
        del arrays[name]
    np.savez(tmp_path / "log.npz", **arrays)
    store = read(tmp_path / "log.npz", select_groups=["even"])
    assert len(store.table) == 3
    assert store.header.runs == ("log/0", "log/1", "log/2")
    assert set(store.split.tolist()) == {Split.TRAIN, Split.VALIDATION, Split.TEST}


def test_pauses_cut_a_single_run_into_parts(tmp_path):
    time = 0.02 * np.arange(300)
    q, qd, control = smooth_motion(time)
    paused = time + np.repeat((0.0, 3.0, 3.2), 100)  # .2 s are a dropout, 3 s a pause
    np.savez(tmp_path / "log.npz", time=paused, pos=q, vel=qd, tau=control)
    store = read(tmp_path / "log.npz", episodes=None, split=None, group=None, group_names=None, run_names=None)
    assert store.header.runs == ("log",)
    assert store.header.groups == ("log, part 1", "log, part 2")
    assert store.group.tolist() == [0] * 3 + [1] * 6  # each piece is cut in time for training, validation and test


def test_arrays_may_be_named_with_brackets(tmp_path):
    arrays = npz_arrays()
    arrays["time [ms]"] = 1e3 * arrays.pop("time")
    np.savez(tmp_path / "log.npz", **arrays)
    store = read(tmp_path / "log.npz", time="time [ms]", time_unit="ms")
    assert np.allclose(store.episode(0)[0], smooth_motion(0.02 * np.arange(101))[0], atol=1e-6)


def test_runs_of_the_other_side_are_mirrored(npz_file):
    plain, mirrored = read(npz_file), read(npz_file, mirrored_runs=["run[12]"])
    for episode, sign in enumerate((1.0, -1.0, -1.0)):
        for one, other in zip(mirrored.episode(episode), plain.episode(episode), strict=True):
            assert np.array_equal(one, sign * other)
    with pytest.raises(InputError, match=r"mirrored_runs 'run9' fits no run; valid: "):
        read(npz_file, mirrored_runs=["run9"])


def test_selection_of_groups_and_runs(npz_file):
    assert read(npz_file, select_groups=["ev*"]).header.runs == ("run0", "run2")
    assert read(npz_file, select_runs=["run[12]"]).header.runs == ("run1", "run2")
    with pytest.raises(InputError, match=r"no run is selected by third; groups there: even, odd"):
        read(npz_file, select_groups=["third"])


def test_split_can_be_chosen(npz_file):
    assert set(read(npz_file, choice="validation").split.tolist()) == {Split.VALIDATION}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pos": None}, "has no array 'pos'; arrays there: group, group_name"),
        ({"offsets": None}, "has no array 'offsets'"),
        ({"pos": np.zeros((303, 1))}, r"array 'pos' has shape \[303, 1\]; expected"),
        ({"pos": np.zeros(303)}, r"array 'pos' has shape \[303\]"),
        ({"vel": np.zeros((302, 2))}, r"array 'vel' has shape \[302, 2\]"),
        ({"pos": np.full((303, 2), "x")}, "array 'pos' holds <U1; expected numbers"),
        ({"pos": np.full((303, 2), np.nan)}, r"column 'pos\[0\]' holds nan in row 0 \(303 such rows\)"),
        ({"time": np.zeros(0)}, "array 'time' is empty"),
        ({"time": np.zeros(303)}, "run 'run0' has 1 rows with different times"),
        ({"time": -np.arange(303.0)}, "time goes backwards in run 'run0' at row 1"),
        ({"offsets": np.array([0, 101, 202, 300])}, "does not cut 303 rows into runs"),
        ({"offsets": np.array([0.0, 303.0])}, "does not cut 303 rows"),
        ({"split": np.array([0, 1])}, r"array 'split' has shape \[2\]; expected \[3\]"),
        ({"split": np.array([0, 1, 7])}, "unknown split"),
        ({"group": np.array([0, 1, 9])}, "does not index the 2 names"),
    ],
)
def test_bad_arrays(tmp_path, changes, message):
    arrays = {**npz_arrays(), **changes}
    np.savez(tmp_path / "log.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(InputError, match=message):
        read(tmp_path / "log.npz")


def test_files_that_are_no_npz(tmp_path, npz_file):
    (tmp_path / "text.npz").write_text("no zip")
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    (tmp_path / "cut.npz").write_bytes(npz_file.read_bytes()[:2000])
    np.savez(tmp_path / "pickled.npz", **{**npz_arrays(), "pos": np.array([{}], dtype=object)})
    for name in ("text", "one", "cut", "pickled", "missing"):
        with pytest.raises(InputError, match=rf"{name}\.npz"):
            read(tmp_path / f"{name}.npz")


def test_columns_are_subtracted(npz_file):
    plain = read(npz_file).episode(0)[0]
    turn = {"column": "pos[1]", "minus": "pos[0]"}
    relative = read(npz_file, q={"lift": {"column": "pos[0]"}, "turn": turn}).episode(0)[0]
    assert np.allclose(relative[:, 1], plain[:, 1] - plain[:, 0], atol=1e-6)
    geared = {"column": {"pos[0]": 0.5, "pos[1]": -2.0}, "offset": 0.1}
    behind = read(npz_file, q={"lift": {"column": "pos[0]"}, "turn": geared}).episode(0)[0]
    assert np.allclose(behind[:, 1], 0.5 * plain[:, 0] - 2.0 * plain[:, 1] + 0.1, atol=1e-6)
    with pytest.raises(InputError, match="valid: finite numbers"):
        read(npz_file, q={"lift": {"column": {"pos[0]": float("nan")}}, "turn": turn})
    with pytest.raises(InputError, match="has no array 'no'"):
        read(npz_file, q={"lift": {"column": "pos[0]"}, "turn": {"column": "pos[1]", "minus": "no[0]"}})


def test_velocities_from_the_past_need_no_logged_ones(npz_file):
    with pytest.raises(InputError, match="add qd: differentiate"):
        read(npz_file, velocity="past")
    store = read(npz_file, qd="differentiate", velocity="past")
    assert np.allclose(store.episode(0)[1][3:], smooth_motion(0.02 * np.arange(101))[1][3:], atol=5e-3)


def test_runs_of_an_archive_are_drafted(tmp_path):
    arrays = npz_arrays()
    np.savez(tmp_path / "log.npz", **arrays, order=np.arange(3)[::-1])
    source = npz.NpzSource(tmp_path / "log.npz", None)
    assert source.runs() == {"episodes": "offsets", "run_names": "run_name", "split": "split"}
    drafted = draft_map(source, "npz", source.topics(), SPEC).tree
    assert drafted | source.runs() == drafted
    np.savez(tmp_path / "one.npz", **{**arrays, "offsets": np.array([0, 100, 101, 302])})  # not as many rows
    assert npz.NpzSource(tmp_path / "one.npz", None).runs() == {}

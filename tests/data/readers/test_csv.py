# SPDX-License-Identifier: Apache-2.0
"""CSV logs: round trip, units, signs, offsets, sums, runs, and bad tables."""

import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.inspection import inspect_log
from neurodyn.data.readers import read_logs
from neurodyn.data.readers.csv import CsvSource

from .conftest import SPEC, csv_map, smooth_motion, write_csv

TIME = 0.02 * np.arange(101)


def read(path, **changes):
    return read_logs([path], csv_map(**changes), SPEC, split="train")


def test_a_log_at_the_frames_of_the_robot_comes_back_as_it_is(tmp_path):
    store = read(write_csv(tmp_path / "log.csv", TIME))
    q, qd, control = store.episode(0)
    want = smooth_motion(TIME)
    assert np.allclose(q, want[0], atol=1e-6)
    assert np.allclose(qd, want[1], atol=1e-6)
    assert np.allclose(control, want[2][:-1], atol=1e-5)


def test_units_signs_and_offsets(tmp_path):
    path = write_csv(tmp_path / "log.csv", TIME)
    store = read(
        path,
        q={"lift": {"column": "x", "unit": "mm", "sign": -1}, "turn": {"column": "a", "unit": "deg", "offset": 90.0}},
        qd={"lift": {"column": "dx", "unit": "mm/s", "sign": -1}, "turn": {"column": "da", "unit": "rpm"}},
        control={"lift": {"column": "f", "unit": "kN"}, "turn": {"column": "m", "scale": 6.0, "unit": "mN m"}},
    )
    q, qd, control = smooth_motion(TIME)
    found = store.episode(0)
    assert np.allclose(found[0], np.stack((-1e-3 * q[:, 0], np.deg2rad(q[:, 1] + 90.0)), 1), atol=1e-4)
    assert np.allclose(found[1], np.stack((-1e-3 * qd[:, 0], qd[:, 1] * 2 * np.pi / 60), 1), atol=1e-6)
    assert np.allclose(found[2], (control * [1e3, 6e-3])[:-1], rtol=1e-4, atol=1e-3)


def test_columns_are_added_up(tmp_path):
    store = read(
        write_csv(tmp_path / "log.csv", TIME), control={"lift": {"column": ["f", "m"]}, "turn": {"column": "m"}}
    )
    assert np.allclose(store.episode(0)[2][:, 0], smooth_motion(TIME)[2][:-1].sum(axis=1), atol=1e-5)


def test_a_name_that_two_columns_have_is_refused(tmp_path):
    path = write_csv(tmp_path / "log.csv", TIME)
    path.write_text(path.read_text().replace("da,", "x,", 1))
    with pytest.raises(InputError, match=r"has 2 columns 'x'; expected one: rename the others"):
        read(path, qd="differentiate")


@pytest.mark.parametrize(
    ("cell", "hint"),
    [
        ("0,5", "with a point for decimals"),
        ("[0.5, 1]", "its column holds lists in some rows only"),
        ("2026-01-01T00:00:01", "such as seconds, instead of a date"),
        ("x", "expected a number$"),
    ],
)
def test_bad_cells_are_refused_with_what_would_be_valid(tmp_path, cell, hint):
    path = tmp_path / "log.csv"
    path.write_text(f't,x,a,dx,da,f,m\n0,0,0,0,0,0,0\n0.02,"{cell}",0,0,0,0,0\n')
    with pytest.raises(InputError, match=hint):
        read(path)


def test_order_of_columns_in_the_map_does_not_matter(tmp_path):
    path = write_csv(tmp_path / "log.csv", TIME)
    swapped = read(path, q={"turn": {"column": "a", "wrapped": True}, "lift": {"column": "x"}})
    assert np.allclose(swapped.frames, read(path).frames, atol=1e-6)


def test_wrapped_angles_are_joined(tmp_path):
    q, qd, control = smooth_motion(TIME)
    q[:, 1] *= 3
    wrapped = np.mod(q[:, 1] + np.pi, 2 * np.pi) - np.pi
    rows = np.column_stack((TIME, q[:, 0], wrapped, qd, control))
    path = tmp_path / "log.csv"
    np.savetxt(path, rows, delimiter=",", header="t,x,a,dx,da,f,m", comments="", fmt="%.17g")
    store = read(path, q={"lift": {"column": "x"}, "turn": {"column": "a", "wrapped": True}})
    assert np.allclose(store.episode(0)[0][:, 1], q[:, 1], atol=1e-5)


def test_a_column_cuts_runs_and_names_splits_and_groups(tmp_path):
    lines = ["t,x,a,dx,da,f,m,trial,use,kind"]
    for trial, (use, kind) in enumerate([("train", "slow"), ("2", "fast")]):
        lines += [f"{t:.3f},0,0,0,0,0,0,{trial},{use},{kind}" for t in TIME[:20]]
    path = tmp_path / "log.csv"
    path.write_text("# made by hand\n" + "\n".join(lines))
    store = read_logs([path], csv_map(episodes="trial", split="use", group="kind"), SPEC)
    assert store.lengths.tolist() == [19, 19]
    assert store.split.tolist() == [Split.TRAIN, Split.TEST]
    assert store.header.groups == ("slow", "fast")
    assert store.header.runs == ("log/0", "log/1")


def test_time_in_milliseconds_and_other_delimiter(tmp_path):
    path = tmp_path / "log.csv"
    q, qd, control = smooth_motion(TIME)
    rows = np.column_stack((1e3 * TIME, q, qd, control))
    np.savetxt(path, rows, delimiter=";", header="t;x;a;dx;da;f;m", comments="", fmt="%.17g")
    store = read(path, time_unit="ms", delimiter=";")
    assert np.allclose(store.episode(0)[0], q, atol=1e-6)


def test_decimal_commas_are_read_and_drafted(tmp_path):
    q, qd, control = smooth_motion(TIME)
    path, rows = tmp_path / "log.csv", np.column_stack((TIME, q, qd, control))
    lines = [";".join(f"{x:.9f}" for x in row).replace(".", ",") for row in rows]
    path.write_text("\n".join(["t;x;a;dx;da;f;m", *lines]))
    assert np.allclose(read(path, delimiter=";", decimal=",").episode(0)[0], q, atol=1e-6)
    drafted = inspect_log(path)
    assert drafted.found["topics"][0]["columns"][1]["max"] == pytest.approx(q[:, 0].max(), abs=1e-6)
    assert "delimiter: ;\ndecimal: ','\n" in drafted.map_text
    with pytest.raises(InputError, match=r"decimal is ','; valid: another character than `delimiter`"):
        read(path, decimal=",")


def test_columns_that_begin_empty_or_hold_text_are_no_silent_loss(tmp_path):
    q, qd, control = smooth_motion(TIME)
    path = tmp_path / "log.csv"
    rows = [",".join(f"{x:.9f}" for x in row) for row in np.column_stack((TIME, q, qd, control))]
    begun = [f"{row},{'N/A' if k < 3 else 35.0},idle," for k, row in enumerate(rows)]
    path.write_text("\n".join(["t,x,a,dx,da,f,m,temperature,mode,spare", *begun]))
    found = inspect_log(path).found
    (warm,) = [one for one in found["topics"][0]["columns"] if one["name"] == "temperature"]
    assert (warm["min"], warm["missing"]) == (35.0, 3)
    assert "columns without numbers, which are not read: mode ('idle'), spare (empty)" in found["doubts"]


def test_constant_period(tmp_path):
    store = read(write_csv(tmp_path / "log.csv", TIME), time=None, period=0.01)
    assert store.transitions == 50


def corrupt(path, line, text):
    lines = path.read_text().split("\n")
    lines[line] = text
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (5, "0.08,0,x1,0,0,0,0", r"column 'a' holds 'x1' in row 4 \(line 6\); expected a number"),
        (5, "0.08,0,,0,0,0,0", "column 'a' holds '' in row 4"),
        (5, "0.08,0,nan,0,0,0,0", "column 'a' holds nan in row 4"),
        (5, "0.08,0,0,0,0,inf,0", "column 'f' holds inf in row 4"),
        (5, "0.08,0,0", r"row 4 \(line 6\) has 3 cells; expected 7"),
        (5, "0.01,0,0,0,0,0,0", r"time goes backwards in run 'log' at row 4 \(0.06 s to 0.01 s\)"),
        (0, "t,x,angle,dx,da,f,m", r"has no column 'a' \(did you mean 'da'\?\); columns there: t, x, angle, dx"),
    ],
)
def test_bad_cells_are_named(tmp_path, line, text, message):
    path = write_csv(tmp_path / "log.csv", TIME)
    corrupt(path, line, text)
    with pytest.raises(InputError, match=message):
        read(path)


@pytest.mark.parametrize(("text", "message"), [("", "is empty"), ("t,x,a,dx,da,f,m\n", "no rows")])
def test_empty_files(tmp_path, text, message):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "log.csv")


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "none.csv")
    (tmp_path / "log.csv").write_bytes(bytes(range(256)) * 4)
    with pytest.raises(InputError, match=r"log\.csv"):
        read(tmp_path / "log.csv")


def test_another_rate_than_declared(tmp_path):
    with pytest.raises(InputError, match="logged at 50 Hz, but the column map declares 500 Hz"):
        read(write_csv(tmp_path / "log.csv", TIME), rate=500.0)


def test_a_rate_too_slow_for_the_frames(tmp_path):
    with pytest.raises(InputError, match=r"logged at 5 Hz, too slow for frames of 0\.02 s; valid: at least 10 Hz"):
        read(write_csv(tmp_path / "log.csv", 0.2 * np.arange(50)))


def test_a_space_within_a_name_is_no_delimiter(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time [s],cart position [m]\n0.0,1.5\n0.1,1.6\n")
    source = CsvSource(path, None)
    assert source.names == ["time [s]", "cart position [m]"]
    assert source.stamp() == "time [s]"
    path.write_text("time position\n0.0 1.5\n0.1 1.6\n")
    assert CsvSource(path, None).names == ["time", "position"]

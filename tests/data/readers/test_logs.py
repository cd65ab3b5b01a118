# SPDX-License-Identifier: Apache-2.0
"""From log files to trajectories: splits, opening by suffix, and column maps as files."""

import msgspec
import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.data.header import CONTROL, Split, StoreHeader
from neurodyn.data.readers import import_logs, open_data, read_column_map, read_logs
from neurodyn.data.store import Store

from .conftest import PENDULUM, SPEC, csv_map, npz_arrays, npz_map, simulate_pendulum, write_csv

MAP = """
format: npz
time: time
q: {lift: {column: "pos[0]"}, turn: {column: "pos[1]"}}
qd: {lift: {column: "vel[0]"}, turn: {column: "vel[1]"}}
control: {lift: {column: "tau[0]"}, turn: {column: "tau[1]"}}
episodes: offsets
split: split
"""


def test_import_writes_what_it_returns(npz_file, tmp_path):
    store = import_logs([npz_file], npz_map(), SPEC, tmp_path / "log.h5")
    assert np.array_equal(Store.open(tmp_path / "log.h5").frames, store.frames)


def test_notes_state_rates_alignment_and_velocity(npz_file):
    notes = read_logs([npz_file], npz_map(), SPEC).header.notes
    assert notes["rates_hz"]["even"]["median"] == pytest.approx(50.0)
    assert notes["velocity"] == "logged velocity, interpolated"
    assert notes["alignment"]["chosen"] == 0.0
    assert notes["rows"] == 303


def test_a_delay_is_measured_without_the_test_runs_and_stays_in_the_data(tmp_path):
    runs = [simulate_pendulum(seconds=30.0, delay=delay, seed=delay) for delay in (2, 2, 5)]
    names = ("time", "q", "qd", "tau")
    arrays = {name: np.concatenate([run[i] for run in runs]) for i, name in enumerate(names)}
    np.savez(tmp_path / "log.npz", **arrays, offsets=15_000 * np.arange(4), split=np.array([0, 1, 2]))
    columns = npz_map(
        q={"hinge": {"column": "q"}},
        qd={"hinge": {"column": "qd"}},
        control={"hinge": {"column": "tau"}},
        alignment="auto",
    )
    store = read_logs([tmp_path / "log.npz"], columns, PENDULUM)
    assert store.header.notes["alignment"]["best"] == pytest.approx(0.004, abs=3e-4)
    found = store.header.delays[CONTROL]
    assert found.usable
    assert found.seconds == pytest.approx(0.004, abs=3e-4)
    assert 0 < found.error < 0.002
    assert store.header.shift == found.applied == 0.0
    unshifted = read_logs([tmp_path / "log.npz"], msgspec.structs.replace(columns, alignment=0.0), PENDULUM)
    assert np.array_equal(store.control, unshifted.control)


def test_a_declared_shift_is_applied_and_kept_in_the_header(npz_file):
    header = read_logs([npz_file], npz_map(alignment=0.02), SPEC).header
    assert header.shift == header.delays[CONTROL].applied == 0.02


def test_a_store_that_was_shifted_by_a_measured_delay_is_recognised():
    notes = {"alignment": {"chosen": 0.0167, "reason": "measured: 16.7 ms fits best (19.3 standard errors over none)"}}
    assert StoreHeader(spec=SPEC, source="log", notes=notes).shift == 0.0167


def test_random_split_is_by_run(tmp_path):
    time = 0.02 * np.arange(60)
    time[30:] += 1.0
    files = [write_csv(tmp_path / f"log{index}.csv", time) for index in range(10)]
    store = read_logs(files, csv_map(), SPEC)
    assert len(store.table) == 20
    assert np.array_equal(store.split[::2], store.split[1::2])
    assert np.bincount(store.split[::2]).tolist() == [7, 1, 2]


def test_a_single_run_is_cut_in_time(tmp_path):
    store = read_logs([write_csv(tmp_path / "log.csv", 0.02 * np.arange(101))], csv_map(), SPEC)
    assert store.split.tolist() == [Split.TRAIN, Split.VALIDATION, Split.TEST]
    assert store.lengths.tolist() == [70, 9, 19]
    assert len(np.unique(store.q[:, 1])) == 101


def test_a_log_without_split_is_opened_whole_for_testing(tmp_path):
    arrays = npz_arrays()
    del arrays["split"]
    np.savez(tmp_path / "log.npz", **arrays)
    (tmp_path / "map.yaml").write_text(MAP)
    store = open_data(tmp_path / "log.npz", SPEC, tmp_path / "map.yaml")
    assert store.split.tolist() == [Split.TEST] * 3


def test_a_log_with_split_is_opened_with_it(npz_file, tmp_path):
    (tmp_path / "map.yaml").write_text(MAP)
    assert open_data(npz_file, SPEC, tmp_path / "map.yaml").split.tolist() == [0, 1, 2]


def test_opening_a_store_checks_the_robot(npz_file, tmp_path):
    import_logs([npz_file], npz_map(), SPEC, tmp_path / "log.h5")
    assert len(open_data(tmp_path / "log.h5", SPEC).table) == 3
    with pytest.raises(InputError, match="holds data of 'arm', not of 'pendulum'"):
        open_data(tmp_path / "log.h5", PENDULUM)


def test_opening_a_log_needs_a_map_of_its_format(npz_file, tmp_path):
    with pytest.raises(InputError, match="declares no column map"):
        open_data(npz_file, SPEC)
    (tmp_path / "map.yaml").write_text(MAP)
    with pytest.raises(InputError, match=r"reads \.npz files"):
        open_data(write_csv(tmp_path / "log.csv", np.arange(5.0)), SPEC, tmp_path / "map.yaml")


def test_a_map_extends_another(tmp_path):
    (tmp_path / "base.yaml").write_text(MAP)
    (tmp_path / "map.yaml").write_text("extends: base.yaml\nalignment: 0.01\nselect_groups: [a*]\n")
    columns = read_column_map(tmp_path / "map.yaml")
    assert columns.alignment == 0.01
    assert columns.q["turn"].column == "pos[1]"
    (tmp_path / "base.yaml").write_text("extends: map.yaml\n")
    with pytest.raises(InputError, match="extends itself"):
        read_column_map(tmp_path / "map.yaml")


@pytest.mark.parametrize(
    ("replace", "by", "message"),
    [
        ("format: npz", "format: parquet", "parquet"),
        ("time: time", "period: 0", "period is 0"),
        ("time: time\n", "", "give either time"),
        ("split: split", "spilt: split", "spilt"),
        ("split: split", "alignment: later", "alignment"),
        ("split: split", "max_gap: -1", "max_gap is -1"),
        ("pos[0]", "", "has no array ''"),
        ('lift: {column: "pos[0]"}, ', "", "q has no column for 'lift'"),
        ('lift: {column: "pos[0]"}', 'lift: {column: "pos[0]", unit: furlong}', "unknown unit 'furlong'; valid .*mm"),
        ('turn: {column: "pos[1]"}', 'turn: {column: "pos[1]", unit: m}', "unknown unit 'm'; valid .*deg"),
        ('turn: {column: "tau[1]"}', 'wrist: {column: "tau[1]"}', "control names the unknown 'wrist'"),
        ("pos[1]", "pos[7]", r"array 'pos' has shape \[303, 2\]"),
        ("time: time", "time: [time", "not readable as YAML"),
        (MAP, "- 1", "is no column map"),
    ],
)
def test_bad_maps(npz_file, tmp_path, replace, by, message):
    assert replace in MAP
    (tmp_path / "map.yaml").write_text(MAP.replace(replace, by, 1))
    with pytest.raises(InputError, match=message):
        open_data(npz_file, SPEC, tmp_path / "map.yaml")


def test_missing_map(npz_file, tmp_path):
    with pytest.raises(InputError, match=r"none\.yaml: no such file"):
        open_data(npz_file, SPEC, tmp_path / "none.yaml")


def test_no_files():
    with pytest.raises(InputError, match="no log file given"):
        read_logs([], npz_map(), SPEC)


def test_pieces_too_short_for_a_frame_are_counted_where_a_log_is_cut_in_time(tmp_path):
    time = 0.01 * np.arange(200)
    path = write_csv(tmp_path / "a.csv", np.delete(time, np.arange(50, 90)))
    store = read_logs([path], csv_map(), SPEC)
    assert store.header.notes["gaps"]["count"] == 1
    assert store.header.notes["pieces_shorter_than_a_frame"] == 0

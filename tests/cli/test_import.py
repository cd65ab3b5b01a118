# SPDX-License-Identifier: Apache-2.0
"""`neurodyn import` and `neurodyn inspect` from end to end."""

import dataclasses
import json

import h5py
import msgspec
import numpy as np
import pytest

from neurodyn.cli.main import run
from neurodyn.data.store import Store

MAP = """
robot: cartpole
format: csv
time: t
q: {slide: {column: x, unit: mm}, pole: {column: a, unit: deg}}
qd: differentiate
control: {slide: {column: f}}
"""


@pytest.fixture
def log(tmp_path):
    time = 0.005 * np.arange(2000)
    rows = np.column_stack((time, 1e3 * np.sin(time), np.rad2deg(np.cos(2 * time)), np.sin(3 * time)))
    np.savetxt(tmp_path / "log.csv", rows, delimiter=",", header="t,x,a,f", comments="")
    (tmp_path / "map.yaml").write_text(MAP)
    return tmp_path / "log.csv"


def names_of(robot):
    from neurodyn import robots

    spec = robots.load(robot).spec
    return spec.q_names, spec.controls


def import_log(log, *extra):
    return run(
        ["import", str(log), "--reader", str(log.parent / "map.yaml"), "--out", str(log.parent / "log.h5"), *extra]
    )


@pytest.fixture(autouse=True)
def _map_with_the_names_of_the_cartpole(tmp_path, log):
    (slide, pole), (driven,) = names_of("cartpole")
    text = (
        MAP.replace("pole:", f"{pole}:")
        .replace("q: {slide", f"q: {{{slide}")
        .replace("control: {slide", f"control: {{{driven}")
    )
    (tmp_path / "map.yaml").write_text(text)


def test_import_then_inspect(log, tmp_path, capsys):
    assert import_log(log) == 0
    shown = capsys.readouterr().out
    assert "alignment:" in shown
    assert "log.h5" in shown
    assert run(["inspect", str(tmp_path / "log.h5"), "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["source"] == "log"
    assert found["coordinates"][0]["max"] == pytest.approx(1.0, abs=1e-3)
    assert (tmp_path / "log.png").is_file()


def test_a_log_that_a_check_fails_is_kept_and_said_by_exit_code_and_inspect(log, tmp_path, capsys):
    rows = np.loadtxt(log, delimiter=",", skiprows=1)
    rows[:, 1:] = rows[np.random.default_rng(0).permutation(len(rows)), 1:]
    np.savetxt(log, rows, delimiter=",", header="t,x,a,f", comments="")
    assert import_log(log) == 2
    told = capsys.readouterr()
    assert "order: fails: consecutive rows do not follow one another" in told.out
    assert "sort the rows" in told.err
    (found,) = [one for one in Store.open(tmp_path / "log.h5").header.findings if one.name == "order"]
    assert found.grade == "fails"
    assert run(["inspect", str(tmp_path / "log.h5")]) == 0
    assert "order: fails" in capsys.readouterr().out


def test_split_and_alignment_can_be_given(log, tmp_path):
    assert import_log(log, "--split", "test", "--alignment", "0.01") == 0
    store = Store.open(tmp_path / "log.h5")
    assert store.split.tolist() == [2]
    assert store.header.notes["alignment"]["chosen"] == 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["import", "LOG", "--reader", "dfki-z9", "--out", "OUT"],
            "unknown reader 'dfki-z9' (did you mean 'dfki-c1' or 'dfki-c0'?); valid: cube, dfki-a0",
        ),
        (["import", "LOG", "--reader", "cartpole", "--out", "OUT"], "declares no column map"),
        (["import", "LOG", "--reader", "MAP", "--robot", "nobody", "--out", "OUT"], "unknown robot 'nobody'"),
        (["import", "none.csv", "--reader", "MAP", "--out", "OUT"], "none.csv: no such file"),
        (["inspect", "OUT"], "no such file"),
        (["import", "LOG", "--out", "OUT"], "no robot is named for the logs; valid: --robot ROBOT, or --reader MAP"),
        (["import", "LOG", "--robot", "cartpole", "--out", "OUT"], "has no column that is named as the position of"),
        (["inspect", "MAP"], "is no log of a known format; valid: an npz file"),
        (["inspect", "PLAIN", "--robot", "cartpole"], "an HDF5 file, but no trajectory store; expected one written"),
        (["export", "OUT.h5"], "say in which format with --to; valid: lerobot, mcap"),
        (
            ["export", "OUT", "--to", "bag"],
            "unknown format 'bag'; valid: c, c-base-filter, cpp-header, isaaclab, lerobot",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2(log, tmp_path, capsys, arguments, message):
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["readings"] = [0.0, 1.0]
    places = {"LOG": log, "OUT": tmp_path / "out.h5", "MAP": tmp_path / "map.yaml", "PLAIN": tmp_path / "plain.h5"}
    assert run([str(places.get(word, word)) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.parametrize("value", ["nan", "2.5"])
def test_import_refuses_an_alignment_that_is_none(log, tmp_path, capsys, value):
    assert import_log(log, "--alignment", value) == 2
    assert "alignment" in capsys.readouterr().err
    assert not (tmp_path / "log.h5").exists()


def test_import_does_not_write_over_a_log(log, capsys):
    before = log.read_bytes()
    assert import_log(log, "--out", str(log)) == 2
    assert ".h5" in capsys.readouterr().err
    assert log.read_bytes() == before


def test_import_replaces_what_it_wrote_and_nothing_else(log, tmp_path, capsys):
    assert import_log(log) == 0
    assert import_log(log) == 0  # as one does who improves a column map
    out = tmp_path / "log.h5"
    store = Store.open(out)
    header = msgspec.structs.replace(store.header, source="teacher", simulator={})
    dataclasses.replace(store, header=header).write(out)
    for text in (out.read_bytes(), b"a log of somebody else's"):
        out.write_bytes(text)
        capsys.readouterr()
        assert import_log(log) == 2
        assert "already exists and holds " in capsys.readouterr().err
        assert out.read_bytes() == text


def test_a_raw_log_is_inspected_exported_and_imported_again(log, tmp_path, monkeypatch, capsys):
    pytest.importorskip("mcap")
    monkeypatch.chdir(tmp_path)
    assert import_log(log, "--split", "train") == 0
    assert run(["export", "log.h5", "--to", "mcap"]) == 0
    capsys.readouterr()
    assert run(["inspect", "log.mcap", "--robot", "cartpole", "--json", "found.json"]) == 0
    shown = capsys.readouterr().out
    slide, pole = names_of("cartpole")[0]
    assert "/joint_states sensor_msgs/msg/JointState" in shown
    assert "column map to start from: log.mcap.map.yaml" in shown
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["topics"][0]["rate_hz"] == pytest.approx(1 / Store.open("log.h5").header.spec.dt)
    text = (tmp_path / "log.mcap.map.yaml").read_text()
    assert f"{pole}: {{column: '/joint_states.position[{pole}]'}}" in text
    assert f"{slide}: {{column: '/joint_commands.effort[{slide}]'}}" in text
    for source in (["--robot", "cartpole"], ["--reader", "log.mcap.map.yaml"]):
        assert run(["import", "log.mcap", *source, "--out", "again.h5", "--split", "train", "--alignment", "0"]) == 0
        assert np.array_equal(Store.open("again.h5").frames, Store.open("log.h5").frames)
    assert run(["inspect", "log.mcap"]) == 0
    assert "already exists and is kept" in capsys.readouterr().out
    assert (tmp_path / "log.mcap.map.yaml").read_text() == text

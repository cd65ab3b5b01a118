# SPDX-License-Identifier: Apache-2.0
"""Headerless rows of legged robots: alignment, ends of episodes, a round trip, and what is refused."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, Status, StoreHeader
from neurodyn.data.readers import read_rows, write_rows
from neurodyn.data.row_layout import RowLayout
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter

_LAYOUT = RowLayout(
    robot="biped", dt=0.02, joints=("left", "right"), nominal=(0.5, -0.25), action_scale=0.5,
    contacts=("LF", "RF"), time_out=True,
)  # fmt: skip


def _rows(count: int, layout: RowLayout = _LAYOUT, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, len(layout.names))).astype(np.float32)
    for name in ("contacts", "termination", "time_out"):
        if name in layout.slices:
            rows[:, layout.slices[name]] = 0.0
    rows[::3, layout.slices["contacts"]] = 1.0
    return rows


def _write(path: Path, rows: np.ndarray) -> Path:
    np.savetxt(path, rows, fmt="%.9g", delimiter=",")
    return path


def _flag(rows: np.ndarray, name: str, at: list[int]) -> None:
    rows[at, _LAYOUT.slices[name].start] = 1.0


def test_widths_of_a_quadruped() -> None:
    layout = msgspec.structs.replace(
        _LAYOUT, joints=tuple(f"j{i}" for i in range(12)), nominal=(0.0,) * 12,
        contacts=tuple(f"c{i}" for i in range(8)), time_out=False, continuous=True,
    )  # fmt: skip
    assert len(layout.names) == 66
    assert list(layout.widths.values()) == [45, 12, 8, 1]
    assert (layout.spec.nq, layout.spec.nv, layout.spec.nu, layout.spec.nx, layout.spec.nc) == (12, 12, 12, 21, 8)


def test_actions_move_to_the_row_whose_state_they_act_on(tmp_path: Path) -> None:
    rows = _rows(10)
    _flag(rows, "termination", [3])
    _flag(rows, "time_out", [9])
    store = read_rows([_write(tmp_path / "log.csv", rows)], _LAYOUT)
    assert store.table["length"].tolist() == [3, 5]
    assert store.table["status"].tolist() == [Status.TERMINATED, Status.COMPLETE]
    nominal = np.array(_LAYOUT.nominal, np.float32)
    parts = _LAYOUT.slices
    for begin, length in zip(store.table["start"], store.table["length"], strict=True):
        during = store.control[begin : begin + length]
        produced = rows[begin + 1 : begin + length + 1, parts["action"]]
        np.testing.assert_allclose(during, nominal + 0.5 * produced, rtol=1e-6)
    np.testing.assert_allclose(store.q, rows[:, 9:11] + nominal, rtol=1e-6)
    np.testing.assert_allclose(store.qd, rows[:, 11:13], rtol=1e-6)
    np.testing.assert_allclose(store.channel, rows[:, [*range(9), 13, 14]], rtol=1e-6)
    np.testing.assert_array_equal(store.contact, rows[:, parts["contacts"]])


def test_round_trip(tmp_path: Path) -> None:
    rows = _rows(30)
    _flag(rows, "termination", [7, 21])
    _flag(rows, "time_out", [14, 29])
    first = read_rows([_write(tmp_path / "a.csv", rows)], _LAYOUT)
    write_rows(first, tmp_path / "b.csv", _LAYOUT)
    second = read_rows([tmp_path / "b.csv"], _LAYOUT)
    np.testing.assert_allclose(second.frames, first.frames, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(second.table, first.table)
    written = np.loadtxt(tmp_path / "b.csv", delimiter=",", dtype=np.float32)
    later = np.setdiff1d(np.arange(30), first.table["start"])  # actions of first rows are of no frame
    np.testing.assert_allclose(written[later], rows[later], rtol=1e-5, atol=1e-6)


def test_a_declared_length_ends_episodes_and_no_file_runs_into_the_next(tmp_path: Path) -> None:
    layout = msgspec.structs.replace(_LAYOUT, time_out=False, episode_length=4)
    one, two = _rows(10, layout), _rows(5, layout, seed=1)
    one[5, layout.slices["termination"]] = 1.0  # the second episode fails early, and the third begins after it
    files = [_write(tmp_path / "one.csv", one), _write(tmp_path / "two.csv", two)]
    store = read_rows(files, layout, split=Split.TEST)
    # Rows 0-3, 4-5, 6-9; then 0-3 of the second file, whose last row alone is no transition.
    assert store.table["length"].tolist() == [3, 1, 3, 3]
    ends = [Status.COMPLETE, Status.TERMINATED, Status.COMPLETE, Status.COMPLETE]
    assert store.table["status"].tolist() == ends
    assert store.table["run"].tolist() == [0, 0, 0, 1]
    assert set(store.table["split"].tolist()) == {Split.TEST}


def test_one_recording_is_one_episode(tmp_path: Path) -> None:
    layout = msgspec.structs.replace(_LAYOUT, time_out=False, continuous=True)
    store = read_rows([_write(tmp_path / "log.csv", _rows(12, layout))], layout)
    assert store.table["length"].tolist() == [11]
    assert store.table["status"].tolist() == [Status.LOG]


def _missing(rows: np.ndarray) -> str:
    lines = [",".join(f"{x:.6g}" for x in row) for row in rows]
    lines[4] = lines[4].replace(",", ",,", 1).rsplit(",", 1)[0]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lambda rows: "", "is empty; expected rows of 21 numbers"),
        (lambda rows: "a,b\n", r"row 0 has 2 columns; valid: 21 \(state 15, action 2, contacts 2, termination 1"),
        (_missing, "is no table of numbers"),
        (lambda rows: _text(rows, 3, 2, "nan"), "row 3 has nan as base_linear_velocity.z; expected a finite number"),
        (lambda rows: _text(rows, 3, 18, "0.5"), "row 3 has contacts other than 0 and 1"),
        (lambda rows: _text(rows, 3, 18, "0"), "no row says where an episode ends; declare episode_length"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text, message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text(_rows(8)))
    with pytest.raises(InputError, match=message) as error:
        read_rows([path], _LAYOUT)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def _text(rows: np.ndarray, row: int, column: int, value: str) -> str:
    cells = [[f"{x:.6g}" for x in line] for line in rows]
    cells[row][column] = value
    return "\n".join(",".join(line) for line in cells)


def test_missing_files_and_layouts_without_meaning_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_rows([tmp_path / "absent.csv"], _LAYOUT)
    with pytest.raises(ValueError, match="give one of time_out"):
        msgspec.structs.replace(_LAYOUT, continuous=True)
    with pytest.raises(ValueError, match="nominal has 1 values; valid: 2"):
        msgspec.structs.replace(_LAYOUT, nominal=(0.0,))


def test_rows_without_time_outs_cannot_hold_every_store(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store.h5", StoreHeader(spec=_LAYOUT.spec, source="log")) as writer:
        writer.append(
            np.zeros((2, 4, 2)), np.zeros((2, 4, 2)), np.zeros((2, 3, 2)), channel=np.zeros((2, 4, 11)),
            contact=np.zeros((2, 4, 2)), status=Status.COMPLETE,
        )  # fmt: skip
    store = Store.open(tmp_path / "store.h5")
    bare = msgspec.structs.replace(_LAYOUT, time_out=False)
    with pytest.raises(InputError, match="2 episodes end without a failure"):
        write_rows(store, tmp_path / "rows.csv", bare)
    write_rows(store, tmp_path / "rows.csv", msgspec.structs.replace(bare, episode_length=4))
    with pytest.raises(InputError, match="does not fit the layout: dt is"):
        write_rows(store, tmp_path / "rows.csv", msgspec.structs.replace(_LAYOUT, dt=0.01))

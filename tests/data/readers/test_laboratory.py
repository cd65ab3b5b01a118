# SPDX-License-Identifier: Apache-2.0
"""Logs as laboratories have them: lists in cells, JSON records, tensors, a file a stream, and columns by patterns."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn.core.config import from_dict, to_dict
from neurodyn.core.errors import InputError
from neurodyn.data.readers import ColumnMap, read_column_map, read_logs
from neurodyn.data.readers.column_map import READERS, LogFormat, recognise

from .conftest import SPEC, smooth_motion, write_csv

TIME = 0.02 * np.arange(101)
Q, QD, CONTROL = smooth_motion(TIME)
WHOLE = {
    "q": {"*": {"column": "q[*]"}}, "qd": {"*": {"column": "dq[*]"}}, "control": {"*": {"column": "tau[*]"}},
    "time": "t", "alignment": 0.0,
}  # fmt: skip


def rows():
    parts = zip(TIME.tolist(), Q.tolist(), QD.tolist(), CONTROL.tolist(), strict=True)
    return [{"t": t, "q": q, "dq": qd, "tau": tau} for t, q, qd, tau in parts]


def cells(path: Path) -> None:
    lines = [f'{one["t"]},"{one["q"]}","({one["dq"][0]} {one["dq"][1]})","{one["tau"]}"' for one in rows()]
    path.write_text("\n".join(["t,q,dq,tau", *lines]))


def tensors(path: Path) -> None:
    parts = {"t": TIME, "q": Q, "dq": QD, "tau": CONTROL}
    torch.save({"note": "a text", **{name: torch.from_numpy(value) for name, value in parts.items()}}, path)


def columns_as_lists(path: Path) -> None:
    path.write_text(json.dumps({"log": {"t": TIME.tolist(), "q": Q.tolist()}, "dq": QD.tolist(),
                                "tau": CONTROL.tolist(), "load": 0.2}))  # fmt: skip


WRITERS = {
    "csv": cells, "pt": tensors,
    "json": lambda path: path.write_text(json.dumps({"load": 0.2, "frames": rows()}, indent=1)),
}  # fmt: skip


@pytest.mark.parametrize("form", WRITERS)
def test_vectors_are_read_from_every_format(tmp_path: Path, form: str):
    WRITERS[form](path := tmp_path / f"log.{form}")
    assert recognise(path) == form
    store = read_logs([path], from_dict({**WHOLE, "format": form}, ColumnMap), SPEC, split="train")
    q, qd, control = store.episode(0)
    np.testing.assert_allclose(q, Q, atol=1e-6)
    np.testing.assert_allclose(qd, QD, atol=1e-6)
    np.testing.assert_allclose(control, CONTROL[:-1], atol=1e-5)


def test_what_stands_beside_json_records_holds_in_all_of_them(tmp_path: Path):
    columns_as_lists(path := tmp_path / "log.json")
    changes = {"format": "json", "q": {"*": {"column": "log.q[*]"}}, "time": "log.t"}
    mapped = from_dict({**WHOLE, **changes, "parameters": {"payload": {"column": "load"}}}, ColumnMap)
    store = read_logs([path], mapped, SPEC, split="train")
    np.testing.assert_allclose(store.episode(0)[0], Q, atol=1e-6)
    assert store.parameters is not None
    np.testing.assert_allclose(store.parameters, 0.2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('2.02,"[1, 2, 3]","[1, 2]","[1, 2]"', r"column 'q' holds a list of 3 in row 101 \(line 103\); expected 2"),
        ('2.02,"[1, 2]","[1, 2]"', r"row 101 \(line 103\) has 3 cells; expected 4, as in the header"),
        ('2.02,"[1, x]","[1, 2]","[1, 2]"', r"column 'q\[1\]' holds 'x' in row 101"),
    ],
)
def test_lists_in_cells_that_do_not_fit_are_refused(tmp_path: Path, line: str, said: str):
    cells(path := tmp_path / "log.csv")
    path.write_text(f"{path.read_text()}\n{line}\n")
    with pytest.raises(InputError, match=said):
        read_logs([path], from_dict({**WHOLE, "format": "csv"}, ColumnMap), SPEC, split="train")


def test_files_of_a_folder_are_the_streams_of_a_run(tmp_path: Path):
    """Commands have a file and a clock of their own."""
    folder = tmp_path / "take"
    folder.mkdir()
    write_csv(folder / "state.csv", TIME)
    later = 0.005 * np.arange(405) - 0.01
    lines = [f"{t},{a},{b}" for t, (a, b) in zip(later, smooth_motion(later)[2].tolist(), strict=True)]
    (folder / "command.csv").write_text("\n".join(["stamp,f,m", *lines]))
    assert recognise(folder) == "folder"
    reader = READERS["folder"]
    assert isinstance(reader, LogFormat)
    assert [topic.name for topic in reader.source(folder).topics()] == ["command", "state"]
    given = {
        "format": "folder", "time": "t", "alignment": 0.0,
        "q": {"lift": {"column": "state.x"}, "turn": {"column": "state.a"}},
        "qd": {"lift": {"column": "state.dx"}, "turn": {"column": "state.da"}},
        "control": {"lift": {"column": "command.f"}, "turn": {"column": "command.m"}},
    }  # fmt: skip
    store = read_logs([folder], from_dict(given, ColumnMap), SPEC, split="train")
    q, _, control = store.episode(0)
    np.testing.assert_allclose(q, Q, atol=1e-6)
    np.testing.assert_allclose(control, CONTROL[:-1], atol=0.012)  # means over the frames
    given["control"]["lift"]["column"] = "f"
    with pytest.raises(InputError, match=r"has no column 'f'.*for a run a file give the files \(command.csv, state"):
        read_logs([folder], from_dict(given, ColumnMap), SPEC, split="train")


def test_tensors_beside_code_are_not_read(tmp_path: Path):
    torch.save({"model": torch.nn.Linear(1, 1)}, tmp_path / "log.pt")
    with pytest.raises(InputError, match=r"cannot be read as plain tensors .*write it with torch\.save"):
        read_logs([tmp_path / "log.pt"], from_dict({**WHOLE, "format": "pt"}, ColumnMap), SPEC)


@pytest.mark.parametrize(
    ("names", "q", "said"),
    [
        ("pos_lift pos_turn", "pos_*", ""),
        ("pos_turn pos_lift", "pos_*", ""),  # by name
        ("q2 q1", "q*", ""),  # by number
        ("q1 q2 q3", "q*", "'q*' fits 3 columns (q1, q2, q3), for the joints lift, turn; valid: a column for each"),
        ("a b", "q*", "'q*' fits no column"),
        ("pos_lift pos_turn", "*_*", "'*_*' stands for 2 joints; valid: a column with one *"),
    ],
)
def test_patterns_are_columns_by_name_or_by_number(tmp_path: Path, names: str, q: str, said: str):
    columns = names.split()
    order = [1, 0] if columns[0] in ("pos_turn", "q2") else [0, 1, 0]
    lines = [",".join(map(str, [t, *(row[k] for k in order[: len(columns)]), *tau]))
             for t, row, tau in zip(TIME.tolist(), Q.tolist(), CONTROL.tolist(), strict=True)]  # fmt: skip
    (tmp_path / "log.csv").write_text("\n".join([",".join(["t", *columns, "u0", "u1"]), *lines]))
    path = tmp_path / "map.yaml"
    path.write_text(
        f'format: csv\ntime: t\nq: "{q}"\nqd: {{turn: differentiate, "*": differentiate}}\ncontrol: "u*"\n'
        "alignment: 0\n"
    )
    mapped = read_column_map(path)
    if said:
        with pytest.raises(InputError) as raised:
            read_logs([tmp_path / "log.csv"], mapped, SPEC, split="train")
        assert said in str(raised.value)
        return
    store = read_logs([tmp_path / "log.csv"], mapped, SPEC, split="train")
    np.testing.assert_allclose(store.episode(0)[0], Q, atol=1e-6)
    np.testing.assert_allclose(store.episode(0)[2], CONTROL[:-1], atol=1e-5)


def test_commands_of_actuators_are_named_as_such(tmp_path: Path):
    cells(path := tmp_path / "log.csv")
    mapped = from_dict({**WHOLE, "format": "csv", "control_kind": "command"}, ColumnMap)
    with pytest.raises(InputError, match="command is of a robot's own actuators, which 'arm' does not declare"):
        read_logs([path], mapped, SPEC)
    own = from_dict({**to_dict(SPEC), "control_kind": "command"}, type(SPEC))
    stored = read_logs([path], mapped, own, split="train").header.spec
    assert stored.control_kind == "command"


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([[0.0, 0.0], [1.0, 0.04]], ""),
        ([[100.0, -0.2], [-100.0, 0.2]], ""),
        ([[0.0, 0.0], [0.0, 0.04]], "points is .*two different"),
    ],
)
def test_a_gripper_may_count_in_its_own_way(tmp_path: Path, points: list[list[float]], said: str):
    (first, low), (last, high) = points
    size = (high - low) / (last - first or 1.0)
    rows = np.column_stack([TIME, first + (Q[:, 0] - low) / size, Q[:, 1], QD[:, 0] / size, QD[:, 1], CONTROL])
    np.savetxt(tmp_path / "log.csv", rows, delimiter=",", header="t,grip,turn,v0,v1,u0,u1", comments="")
    given = {
        "format": "csv", "time": "t", "alignment": 0.0, "control": {"*": {"column": "u*"}},
        "q": {"lift": {"column": "grip", "points": points}, "turn": {"column": "turn"}},
        "qd": {"lift": {"column": "v0", "scale": size}, "turn": {"column": "v1"}},
    }  # fmt: skip
    if said:
        with pytest.raises(InputError, match=said):
            from_dict(given, ColumnMap)
        return
    mapped = from_dict(given, ColumnMap)
    assert from_dict(to_dict(mapped), ColumnMap) == mapped
    q, qd, _ = read_logs([tmp_path / "log.csv"], mapped, SPEC, split="train").episode(0)
    np.testing.assert_allclose(q, Q, atol=1e-6)
    np.testing.assert_allclose(qd, QD, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scale": 2.0}, "points are given, and sign, scale or offset, too"),
        ({"where": "qd"}, "qd is points of lift; valid: `scale`"),
    ],
)
def test_points_stand_alone_and_for_positions(change: dict[str, float | str], said: str):
    given = {"format": "csv", "time": "t", "q": {"lift": {"column": "grip"}}, "qd": {"lift": {"column": "v"}}}
    where = change.pop("where", "q")
    given[where]["lift"] |= {"points": [[0, 0], [1, 0.04]], **change}
    with pytest.raises(InputError, match=said):
        from_dict(given, ColumnMap)

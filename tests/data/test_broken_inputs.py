# SPDX-License-Identifier: Apache-2.0
"""Whatever is wrong with a file, the answer is one line of `InputError`, and no file is left behind."""

import copy
import shutil
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neurodyn.core.errors import InputError
from neurodyn.data.readers import import_logs, read_column_map
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter

from .conftest import counting_batch, header
from .readers.conftest import MAPS, SPEC, npz_arrays, write_csv

FAST = settings(
    derandomize=True,  # HDF5's own reader can run for ever on some damage; what passes once passes always
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def refused(call, *arguments):
    """Check that a call raises InputError with one line, and nothing else."""
    with pytest.raises(InputError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert message
    assert "\n" not in message


def import_is_refused(folder, log, kind, tree=None):
    path = folder / "map.yaml"
    path.write_text(yaml.safe_dump(MAPS[kind] if tree is None else tree))
    out = folder / "out.h5"
    refused(lambda: import_logs([log], read_column_map(path), SPEC, out))
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        {"map.yaml", log.name} & {p.name for p in folder.iterdir()}
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "whole.h5"
    with StoreWriter(path, header()) as writer:
        writer.append(*counting_batch(6, 30))
    return path


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp())
    yield path
    shutil.rmtree(path)


def clear(folder):
    for path in folder.iterdir():
        path.unlink()


@FAST
@given(data=st.data())
def test_overwritten_stores(whole, folder, data):
    content = bytearray(whole.read_bytes())
    damage = data.draw(st.sampled_from(["garbage", "signature", "foreign"]))
    if damage == "garbage":
        content = bytearray(data.draw(st.binary(max_size=2000)))
    elif damage == "signature":
        content[data.draw(st.integers(0, 7))] ^= data.draw(st.integers(1, 255))
    else:
        content[:48] = data.draw(st.binary(min_size=48, max_size=48))
    path = folder / "x.h5"
    path.write_bytes(bytes(content))
    refused(Store.open, path)


def _delete_dataset(file, draw):
    del file[draw(st.sampled_from(["q", "qd", "control", "episodes", "committed"]))]


def _bad_value(file, draw):
    name = draw(st.sampled_from(["q", "qd", "control"]))
    file[name][draw(st.integers(0, 185)), 0] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))


def _bad_table(file, draw):
    table = file["episodes"][()]
    field, values = draw(
        st.sampled_from(
            [("start", [-1, 7]), ("length", [-1, 7, 10**6]), ("split", [3, -1]), ("status", [9]), ("run", [4])]
        )
    )
    table[field][draw(st.integers(1, 5))] = draw(st.sampled_from(values))
    file["episodes"][...] = table


def _bad_count(file, draw):
    file["committed"][...] = draw(st.sampled_from([(1, 0, 0), (1, 100, 6), (1, 10**9, 6), (1, 186, 5), (1, -5, -1)]))


def _bad_shape(file, draw):
    name = draw(st.sampled_from(["q", "qd", "control"]))
    del file[name]
    file[name] = draw(
        st.sampled_from([np.zeros(186, "f4"), np.zeros((186, 5), "f4"), np.zeros((186, 2)), np.zeros((3, 2), "f4")])
    )


def _bad_header(file, draw):
    name = draw(st.sampled_from(["header", "schema_version", "format"]))
    text = draw(st.sampled_from(["", "{}", "[1", '{"spec": 3}', "99"]))
    if name == "header":
        del file["header"]
        file.create_dataset("header", data=np.frombuffer(text.encode(), dtype=np.uint8))
    else:
        file.attrs[name] = text


@FAST
@given(
    data=st.data(),
    damage=st.sampled_from([_delete_dataset, _bad_value, _bad_table, _bad_count, _bad_shape, _bad_header]),
)
def test_stores_with_wrong_content(whole, folder, data, damage):
    path = folder / "x.h5"
    shutil.copy(whole, path)
    with h5py.File(path, "r+") as file:
        damage(file, data.draw)
    refused(Store.open, path)


WORDS = st.text(st.characters(codec="utf-8", exclude_characters=',"\r\n#', exclude_categories=["Nd", "Cc", "Zs"]))
CELLS = st.sampled_from(["", "nan", "inf", "-inf", "1.2.3", "0x1g"]) | WORDS.map("w".__add__)
CSV_DAMAGES = {
    "cell": lambda table, row, column, draw: table[row].__setitem__(column, draw(CELLS)),
    "short": lambda table, row, column, draw: table[row].pop(column),
    "long": lambda table, row, column, draw: table[row].append("1"),
    "rename": lambda table, row, column, draw: table[0].__setitem__(column, table[0][column] + "_other"),
    "drop": lambda table, row, column, draw: [line.pop(column) for line in table],
    "back": lambda table, row, column, draw: table[row].__setitem__(0, "-1" if row > 1 else "9"),
    "slow": lambda table, row, column, draw: [line.__setitem__(0, str(k)) for k, line in enumerate(table[1:])],
    "empty": lambda table, row, column, draw: table.clear(),
    "header": lambda table, row, column, draw: table.__delitem__(slice(1, None)),
}
"""What may be wrong with the cells of a table."""


@FAST
@given(data=st.data(), damage=st.sampled_from([*CSV_DAMAGES, "bytes"]))
def test_broken_csv(folder, data, damage):
    clear(folder)
    path = write_csv(folder / "log.csv", 0.02 * np.arange(12))
    table = [line.split(",") for line in path.read_text().split()]
    if damage == "bytes":
        path.write_bytes(b"\xff\xfe\x00" + data.draw(st.binary(max_size=300)))
    else:
        CSV_DAMAGES[damage](table, data.draw(st.integers(1, 11)), data.draw(st.integers(0, 6)), data.draw)
        path.write_text("\n".join(",".join(line) for line in table))
    import_is_refused(folder, path, "csv")


def _with_nan(array, draw):
    array = array.astype(float)
    array.flat[draw(st.integers(0, array.size - 1))] = np.nan
    return array


ARRAY_DAMAGES = {
    "nan": _with_nan,
    "text": lambda array, draw: array.astype(str),
    "flat": lambda array, draw: array.reshape(-1)[: len(array) - 1],
    "deep": lambda array, draw: array.reshape(-1, 1, 1),
    "short": lambda array, draw: array[:-1],
    "object": lambda array, draw: array.astype(object),
    "empty": lambda array, draw: array[:0],
}
FILE_DAMAGES = {
    "cut": lambda content, draw: content[: draw(st.integers(0, len(content) - 30))],
    "garbage": lambda content, draw: draw(st.binary(max_size=500)),
}


@FAST
@given(data=st.data(), damage=st.sampled_from(["drop", *ARRAY_DAMAGES, *FILE_DAMAGES]))
def test_broken_npz(folder, data, damage):
    clear(folder)
    arrays, path = npz_arrays(runs=2, rows=12), folder / "log.npz"
    name = data.draw(st.sampled_from(["time", "pos", "vel", "tau", "offsets"]))
    if damage == "drop":
        del arrays[name]
    elif damage in ARRAY_DAMAGES:
        arrays[name] = ARRAY_DAMAGES[damage](arrays[name], data.draw)
    np.savez(path, **arrays)
    if damage in FILE_DAMAGES:
        path.write_bytes(FILE_DAMAGES[damage](path.read_bytes(), data.draw))
    import_is_refused(folder, path, "npz")


UNITS = st.sampled_from(["furlong", "s", "radian", "V"]) | st.text("qwz", min_size=1)
WHAT, JOINTS = st.sampled_from(["q", "qd", "control"]), st.sampled_from(["lift", "turn"])
COLUMNS = st.sampled_from(["nowhere", "pos[9]", "pos[", "", [], 3, ["x", "zz"]])
TYPED, WRONG_TYPES = ["q", "qd", "control", "max_gap", "alignment", "format"], ["no", [1], {"a": 1}, None]
MAP_DAMAGES = {
    "key": lambda tree, draw: tree.pop(draw(st.sampled_from(["format", "time", "q", "qd", "control"]))),
    "unknown": lambda tree, draw: tree.update({draw(st.text("abcxyz_", min_size=9)): 1}),
    "joint": lambda tree, draw: tree[draw(WHAT)].pop(draw(JOINTS)),
    "extra": lambda tree, draw: tree[draw(WHAT)].update(wrist={"column": "x"}),
    "unit": lambda tree, draw: tree[draw(WHAT)][draw(JOINTS)].update(unit=draw(UNITS)),
    "column": lambda tree, draw: tree[draw(WHAT)][draw(JOINTS)].update(column=draw(COLUMNS)),
    "sign": lambda tree, draw: tree[draw(WHAT)][draw(JOINTS)].update(sign=draw(st.sampled_from([0, 2, "minus"]))),
    "type": lambda tree, draw: tree.update({draw(st.sampled_from(TYPED)): draw(st.sampled_from(WRONG_TYPES))}),
    "time": lambda tree, draw: tree.update(time=draw(st.sampled_from(["clock", "pos[5]", 3.5, ["t"]]))),
    "rate": lambda tree, draw: tree.update(rate=draw(st.sampled_from([-1, 0, 1, 500, "fast"]))),
}


@FAST
@given(data=st.data(), kind=st.sampled_from(["csv", "npz"]), damage=st.sampled_from([*MAP_DAMAGES]))
def test_broken_maps(folder, data, kind, damage):
    clear(folder)
    log, tree = folder / f"log.{kind}", copy.deepcopy(MAPS[kind])
    if kind == "csv":
        write_csv(log, 0.02 * np.arange(12))
    else:
        np.savez(log, **npz_arrays(runs=2, rows=12))
    MAP_DAMAGES[damage](tree, data.draw)
    import_is_refused(folder, log, kind, tree)

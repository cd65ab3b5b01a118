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
COLUMNS = ("t", "x", "a", "dx", "da", "f", "m")


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
def test_cut_or_overwritten_stores(whole, folder, data):
    content = bytearray(whole.read_bytes())
    damage = data.draw(st.sampled_from(["cut", "garbage", "signature", "foreign"]))
    if damage == "cut":
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    elif damage == "garbage":
        content = bytearray(data.draw(st.binary(max_size=2000)))
    elif damage == "signature":
        content[data.draw(st.integers(0, 7))] ^= data.draw(st.integers(1, 255))
    else:
        content[:48] = data.draw(st.binary(min_size=48, max_size=48))
    path = folder / "x.h5"
    path.write_bytes(bytes(content))
    refused(Store.open, path)


@FAST
@given(data=st.data())
def test_flipped_bytes_never_raise_anything_else(whole, folder, data):
    content = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path = folder / "x.h5"
    path.write_bytes(bytes(content))
    try:
        store = Store.open(path)
    except InputError:
        return
    assert np.isfinite(store.frames).all()


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


@FAST
@given(data=st.data())
def test_broken_csv(folder, data):
    clear(folder)
    path = write_csv(folder / "log.csv", 0.02 * np.arange(12))
    table = [line.split(",") for line in path.read_text().split()]
    row, column = data.draw(st.integers(1, 11)), data.draw(st.integers(0, 6))
    damage = data.draw(
        st.sampled_from(["cell", "short", "long", "rename", "drop", "back", "empty", "header", "bytes", "slow"])
    )
    if damage == "cell":
        words = st.text(
            st.characters(codec="utf-8", exclude_characters=',"\r\n#', exclude_categories=["Nd", "Cc", "Zs"])
        )
        table[row][column] = data.draw(
            st.sampled_from(["", "nan", "inf", "-inf", "1.2.3", "0x1g"]) | words.map("w".__add__)
        )
    elif damage == "short":
        del table[row][column]
    elif damage == "long":
        table[row].append("1")
    elif damage == "rename":
        table[0][column] += "_other"
    elif damage == "drop":
        table = [line[:column] + line[column + 1 :] for line in table]
    elif damage == "back":
        table[row][0] = "-1" if row > 1 else "9"
    elif damage == "slow":
        for index, line in enumerate(table[1:]):
            line[0] = str(index)
    keep = {"empty": 0, "header": 1}.get(damage, len(table))
    path.write_text("\n".join(",".join(line) for line in table[:keep]))
    if damage == "bytes":
        path.write_bytes(b"\xff\xfe\x00" + data.draw(st.binary(max_size=300)))
    import_is_refused(folder, path, "csv")


@FAST
@given(data=st.data())
def test_broken_npz(folder, data):
    clear(folder)
    arrays = npz_arrays(runs=2, rows=12)
    path = folder / "log.npz"
    name = data.draw(st.sampled_from(["time", "pos", "vel", "tau", "offsets"]))
    damage = data.draw(
        st.sampled_from(["drop", "nan", "text", "flat", "deep", "short", "object", "cut", "garbage", "empty"])
    )
    if damage == "drop":
        del arrays[name]
    elif damage == "nan":
        arrays[name] = arrays[name].astype(float)
        arrays[name].flat[data.draw(st.integers(0, arrays[name].size - 1))] = np.nan
    elif damage == "text":
        arrays[name] = arrays[name].astype(str)
    elif damage == "flat":
        arrays[name] = arrays[name].reshape(-1)[: len(arrays[name]) - 1]
    elif damage == "deep":
        arrays[name] = arrays[name].reshape(-1, 1, 1)
    elif damage == "short":
        arrays[name] = arrays[name][:-1]
    elif damage == "object":
        arrays[name] = arrays[name].astype(object)
    elif damage == "empty":
        arrays[name] = arrays[name][:0]
    np.savez(path, **arrays)
    if damage == "cut":
        content = path.read_bytes()
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 30))])
    elif damage == "garbage":
        path.write_bytes(data.draw(st.binary(max_size=500)))
    import_is_refused(folder, path, "npz")


@FAST
@given(data=st.data(), kind=st.sampled_from(["csv", "npz"]))
def test_broken_maps(folder, data, kind):
    clear(folder)
    log = folder / f"log.{kind}"
    if kind == "csv":
        write_csv(log, 0.02 * np.arange(12))
    else:
        np.savez(log, **npz_arrays(runs=2, rows=12))
    tree = copy.deepcopy(MAPS[kind])
    what = data.draw(st.sampled_from(["q", "qd", "control"]))
    joint = data.draw(st.sampled_from(["lift", "turn"]))
    damage = data.draw(
        st.sampled_from(["key", "unknown", "joint", "extra", "unit", "column", "sign", "type", "time", "rate"])
    )
    if damage == "key":
        del tree[data.draw(st.sampled_from(["format", "time", "q", "qd", "control"]))]
    elif damage == "unknown":
        tree[data.draw(st.text("abcxyz_", min_size=9))] = 1
    elif damage == "joint":
        del tree[what][joint]
    elif damage == "extra":
        tree[what]["wrist"] = {"column": "x"}
    elif damage == "unit":
        tree[what][joint]["unit"] = data.draw(
            st.sampled_from(["furlong", "s", "radian", "V"]) | st.text("qwz", min_size=1)
        )
    elif damage == "column":
        tree[what][joint]["column"] = data.draw(st.sampled_from(["nowhere", "pos[9]", "pos[", "", [], 3, ["x", "zz"]]))
    elif damage == "sign":
        tree[what][joint]["sign"] = data.draw(st.sampled_from([0, 2, "minus"]))
    elif damage == "type":
        tree[data.draw(st.sampled_from(["q", "qd", "control", "max_gap", "alignment", "format"]))] = data.draw(
            st.sampled_from(["no", [1], {"a": 1}, None])
        )
    elif damage == "time":
        tree["time"] = data.draw(st.sampled_from(["clock", "pos[5]", 3.5, ["t"]]))
    else:
        tree["rate"] = data.draw(st.sampled_from([-1, 0, 1, 500, "fast"]))
    import_is_refused(folder, log, kind, tree)

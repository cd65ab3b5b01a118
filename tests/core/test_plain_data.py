# SPDX-License-Identifier: Apache-2.0
"""Texts of users become plain data within stated limits, or one line; nothing hangs and nothing is constructed."""

import os
import time
from pathlib import Path

import pytest

from neurodyn.core.artifacts import read_json, read_tensors
from neurodyn.core.config import read_plain
from neurodyn.core.errors import InputError
from neurodyn.core.plain_data import MOST_DEPTH, parse_text

_LAUGHS = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("suffix", "text", "words"),
    [
        (".yaml", "a: 2024-13-45", "not readable as YAML"),
        (".yaml", "a: !!python/object/apply:os.system ['touch ran']", "not readable as YAML"),
        (".yaml", "[" * 5000, "nested too deeply"),
        (".yaml", "[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), "nested too deeply"),
        (".json", "[" * 100_000 + "]" * 100_000, "nested too deeply"),
        (".toml", "a = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        (".yaml", _LAUGHS, "stand for more than"),
        (".yaml", f"a: {'9' * 5000}", "not readable as YAML"),
        (".json", f'{{"a": [1, {1 << 70}]}}', r"a\[1\] is a whole number beyond 64 bits"),
        (".yaml", "a: {b: .nan}", r"a\.b is not a number"),
        (".json", '{"a": "x\\u0000y"}', "NUL"),
        (".yaml", "a: {b: 1, c: 2, b: 3}", "'b' is there more than once"),
        (".json", '{"a": [{"b": 1, "b": 3}]}', "'b' is there more than once"),
        (".toml", "a = 1\na = 2", "not readable as TOML"),
        (".yaml", "a: [1.0, 1.0e+300]", r"a\[1\] is 1e\+300, beyond single precision"),
    ],
)
def test_odd_texts_are_one_line(suffix: str, text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    start = time.process_time()
    with pytest.raises(InputError, match=words):
        parse_text(text, suffix, "file")
    assert time.process_time() - start < 5.0
    assert not list(tmp_path.iterdir())


def test_tables_may_share_what_is_written_once():
    text = "a: &a {b: 1, c: .inf}\nd: {<<: *a, b: 2}\ne: *a\n"
    assert parse_text(text, ".yaml", "file")["d"] == {"b": 2, "c": float("inf")}


def test_other_encodings_and_marks(tmp_path: Path):
    path = tmp_path / "a.yaml"
    path.write_bytes("a: 1\n".encode("utf-16"))
    with pytest.raises(InputError, match=r"a\.yaml: cannot be read"):
        read_plain(path)
    path.write_bytes("\ufeffa: 1\n".encode())
    assert read_plain(path) == {"a": 1}


def test_pipes_and_devices_are_not_read(tmp_path: Path):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    endless = tmp_path / "endless.json"
    endless.symlink_to("/dev/zero")
    for path in (pipe, endless):
        for read in (read_plain, read_json, read_tensors):
            with pytest.raises(InputError, match="is a pipe, device or socket, which is not read"):
                read(path)


def test_a_text_has_a_greatest_size(tmp_path: Path):
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match="expected a JSON file of at most"):
        read_json(tmp_path / "a.json")

# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of this machine."""

import tomllib
from pathlib import Path

import pytest
import torch
from benchmarks._gpu_checks import CHECKS

from neurodyn.cli import installation as doctor
from neurodyn.cli.main import run

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_it_names_versions_and_every_extra_of_users(capsys):
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert torch.__version__ in out
    assert "GPU" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert all(f"extra {extra}" in out for extra in doctor.extras())


def test_files_that_go_while_they_are_counted_count_nothing(tmp_path: Path):
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "a.o").write_bytes(bytes(7))
    (tmp_path / "kernel" / "gone").symlink_to(tmp_path / "nothing")
    assert doctor.size_of_folder(tmp_path) == 7
    assert doctor.size_of_folder(tmp_path / "nothing") == 0


def test_extras_are_those_of_the_project():
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    assert set(doctor.extras()) <= set(declared) - {"dev", "docs", "bench"}
    assert {"newton", "mujoco"} <= set(doctor.extras()["sim"])


def test_a_missing_package_and_a_full_disk_are_something_to_do(monkeypatch, tmp_path):
    there = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda package: None if package == "newton" else there(package))
    monkeypatch.setattr(doctor, "_LITTLE_DISK", 1e9)
    found = {one.what: one for one in doctor.findings()}
    assert found["extra sim"].advice == "pip install 'neurodyn[sim]'"
    assert "free some space" in found["disk"].advice
    assert not found["torch"].advice


def test_a_cache_that_cannot_be_written_is_something_to_do(monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    (cache,) = doctor._caches()
    assert cache.advice.startswith("make it writable")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, needs) in CHECKS.items() if not needs])
def test_what_needs_no_gpu_is_checked_without_one(name):
    assert CHECKS[name][0]().text


def test_flags_are_refused(capsys):
    assert run(["doctor", "--fast"]) == 2
    assert capsys.readouterr().err.startswith("neurodyn: doctor: ")


@pytest.mark.parametrize("verb", ["docter", "doktor"])
def test_it_is_found_by_a_typing_error(verb, capsys):
    assert run([verb]) == 2
    assert "did you mean 'doctor'?" in capsys.readouterr().err

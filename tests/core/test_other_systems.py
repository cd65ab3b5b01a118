# SPDX-License-Identifier: Apache-2.0
"""Everyday work where what only Linux has is missing: glibc's options, swapped names, /proc, affinity, open folders.

Also without the modules and functions of POSIX, in a process of its own, because other packages import them first.
"""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from neurodyn.cli.installation import findings
from neurodyn.cli.main import run
from neurodyn.core.artifacts import atomic_folder
from neurodyn.core.memory import keeping_memory
from neurodyn.core.provenance import processor
from neurodyn.core.workers import available_cores

ROD = """<mujoco><compiler angle="radian"/><worldbody><body pos="0 0 1"><joint name="hinge" axis="0 1 0"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".02" mass=".5"/></body></worldbody>
  <actuator><motor joint="hinge" ctrlrange="-2 2" ctrllimited="true"/></actuator></mujoco>"""


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch):
    """Another system: no /proc or /sys, no affinity, no library without a name, and folders that cannot be opened."""
    opens, read, exists, library = os.open, Path.read_text, Path.exists, ctypes.CDLL

    def hidden(path) -> bool:
        return str(path).startswith(("/proc/", "/sys/"))

    def refuse_folders(path, *arguments, **options):
        if isinstance(path, str | Path) and os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return opens(path, *arguments, **options)

    def refuse_hidden(path, *arguments, **options):
        if hidden(path):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return read(path, *arguments, **options)

    def refuse_nameless(name=None, *arguments, **options):
        if name is None:
            raise TypeError("a library has a name")
        return library(name, *arguments, **options)

    monkeypatch.setattr("shutil._use_fd_functions", False)  # as where folders cannot be opened
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "open", refuse_folders)
    monkeypatch.setattr(Path, "read_text", refuse_hidden)
    monkeypatch.setattr(Path, "exists", lambda path, **options: not hidden(path) and exists(path, **options))
    monkeypatch.setattr(ctypes, "CDLL", refuse_nameless)
    monkeypatch.setattr("neurodyn.core.memory.sys", SimpleNamespace(platform="darwin"))


@pytest.mark.usefixtures("elsewhere")
def test_folders_are_replaced_without_swapped_names(tmp_path):
    for text in ("one", "two"):
        with atomic_folder(tmp_path / "run") as folder:
            (folder / "file").write_text(text)
    assert (tmp_path / "run/file").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.usefixtures("elsewhere")
def test_the_machine_is_described_without_proc():
    assert available_cores() >= 1
    assert processor()
    with keeping_memory():
        pass
    assert {one.what: one.found for one in findings()}["memory"] == "unknown on this system"


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_a_robot_is_declared_compiled_and_simulated(tmp_path, monkeypatch):
    pytest.importorskip("mujoco", reason="the extra `mujoco` is not installed")
    monkeypatch.chdir(tmp_path)
    Path("rod.xml").write_text(ROD)
    assert run(["init", "rod.xml", "--out", "rod"]) == 0
    assert run(["hybrid", "./rod", "--out", "model"]) == 0
    assert run(["generate", "./rod", "--transitions", "200", "--out", "data.h5"]) == 0
    assert run(["inspect", "data.h5"]) == 0


_POSIX_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
_POSIX_FUNCTIONS = ("fork", "forkpty", "getgid", "getloadavg", "getuid", "mkfifo", "nice", "posix_fallocate", "sync")

_WITHOUT_POSIX = f"""
import os, sys
for name in {_POSIX_MODULES}:
    sys.modules[name] = None
for name in {(*_POSIX_FUNCTIONS, "sched_getaffinity")}:
    vars(os).pop(name, None)
from neurodyn.cli.main import run
codes = [run(line.split()) for line in (
    "init rod.xml --no-check --out rod", "generate ./rod --transitions 200 --out data.h5",
)]
sys.exit(any(codes))
"""


@pytest.mark.slow
def test_it_works_without_modules_and_functions_of_posix(tmp_path):
    pytest.importorskip("mujoco", reason="the extra `mujoco` is not installed")
    (tmp_path / "rod.xml").write_text(ROD)
    command = [sys.executable, "-c", _WITHOUT_POSIX]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


_GUARDED = {"cluster/workers.py": {"resource"}, "data/writer.py": {"posix_fallocate"}}
"""Modules and functions of POSIX in files that handle their absence."""


def test_modules_and_functions_of_posix_are_used_in_guarded_places_alone():
    source, found = Path(run.__code__.co_filename).parents[1], {}
    used = rf"^\s*(?:import|from) ({'|'.join(_POSIX_MODULES)})\b|\bos\.({'|'.join(_POSIX_FUNCTIONS)})\("
    for path in source.rglob("*.py"):
        if names := {one or other for one, other in re.findall(used, path.read_text(encoding="utf-8"), re.MULTILINE)}:
            found[path.relative_to(source).as_posix()] = names
    assert found == _GUARDED

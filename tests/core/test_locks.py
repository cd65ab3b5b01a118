# SPDX-License-Identifier: Apache-2.0
"""One writer for each target: who is second is refused by name, and locks of the dead are taken over."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from neurodyn.core.errors import InputError
from neurodyn.core.locks import exclusive

HOLD = """
import sys, time
from neurodyn.core.locks import exclusive
with exclusive(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def hold(target: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(target)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def take(target: Path) -> None:
    with exclusive(target):
        pass


def test_the_second_is_refused_and_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path):
    target = tmp_path / "run"
    (tmp_path / "alias").symlink_to(target)
    process = hold(target)
    for path in (target, tmp_path / "alias"):
        with pytest.raises(InputError, match=rf"is being written by process {process.pid} on .*since"):
            take(path)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (tmp_path / ".run.lock").exists()  # it had no time to remove it
    take(target)
    assert not (tmp_path / ".run.lock").exists()


def test_a_thread_may_hold_it_twice_and_another_thread_may_not(tmp_path: Path):
    refused: list[InputError] = []

    def other() -> None:
        try:
            take(tmp_path / "run")
        except InputError as error:
            refused.append(error)

    with exclusive(tmp_path / "run"):
        take(tmp_path / "run")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "another thread" in str(refused[0])
    other()
    assert len(refused) == 1


def test_nothing_is_left_behind(tmp_path: Path):
    take(tmp_path / "new" / "deep" / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["-", "/", "file/run", "a\0b"])
def test_what_cannot_be_written_is_bad_input(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(InputError):
        take(Path(target))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no file system without new files is at hand")
def test_where_no_lock_can_be_made_nobody_else_is_writing():
    with pytest.raises(InputError, match="/proc/run: cannot be written"):
        take(Path("/proc/run"))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="has no folder without files of its own")
def test_a_place_where_no_file_can_be_made_is_not_called_locked():
    with pytest.raises(InputError, match="/proc/x: cannot be written"), exclusive("/proc/x"):
        raise AssertionError

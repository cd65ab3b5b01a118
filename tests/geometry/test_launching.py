# SPDX-License-Identifier: Apache-2.0
"""Warp starts without a home, and keeps kernels where nobody else can put any."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neurodyn.geometry import launching

START = """
import warp
from neurodyn.geometry.launching import start_warp
start_warp()
print(warp.config.kernel_cache_dir)
"""
NOWHERE = "/proc/nowhere"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a folder in which nobody can make another")
def test_without_a_home_kernels_are_kept_among_temporary_files(tmp_path: Path) -> None:
    usual = {name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "WARP_CACHE_PATH")}
    done = subprocess.run(
        [sys.executable, "-c", START], env=usual | {"HOME": NOWHERE, "TMPDIR": str(tmp_path)}, check=True, text=True,
        capture_output=True,
    )  # fmt: skip
    kept = Path(done.stdout.strip())
    assert kept.is_dir()
    assert kept.is_relative_to(tmp_path)
    assert (tmp_path / kept.relative_to(tmp_path).parts[0]).stat().st_mode & 0o077 == 0


def test_a_folder_that_others_can_write_to_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = launching._private_temporary_folder()
    assert launching._private_temporary_folder() == first
    first.chmod(0o777)
    other = launching._private_temporary_folder()
    assert other != first
    assert other.stat().st_mode & 0o077 == 0
    first.rmdir()
    first.symlink_to(other)
    assert launching._private_temporary_folder() not in (first, other)

# SPDX-License-Identifier: Apache-2.0
"""The demo refuses settings before it spends time on its first stage; `make demo` runs it whole."""

import pytest

from neurodyn.cli.main import run


@pytest.mark.parametrize("flag", ["--minutes=-1", "--transitions=0", "--rollouts=0", "--seed=-1"])
def test_bad_settings_leave_nothing_behind(tmp_path, capsys, flag):
    assert run(["demo", flag, "--out", str(tmp_path / "demo")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "demo").exists()

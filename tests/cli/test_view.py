# SPDX-License-Identifier: Apache-2.0
"""`neurodyn view` writes where it is told, and refuses in one line."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn.cli.main import run
from neurodyn.report import recording_files


@pytest.fixture(autouse=True)
def _painted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recording_files, "pictures", lambda *_, **__: (np.zeros((4, 20, 40, 3), np.uint8), 0.05))


def test_the_default_is_a_page_in_the_run(trained_run: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["view", str(trained_run), "--seconds", "0.2"]) == 0
    assert (trained_run / "view.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert str(trained_run / "view.html") in capsys.readouterr().out


def test_the_name_of_the_file_says_what_it_is(trained_run: Path, tmp_path: Path):
    assert run(["view", str(trained_run), "--out", str(tmp_path / "a.gif")]) == 0
    assert (tmp_path / "a.gif").read_bytes()[:6] == b"GIF89a"


def test_the_format_can_be_said_instead(trained_run: Path, tmp_path: Path):
    assert run(["view", str(trained_run), "--out", str(tmp_path / "a.b"), "--format", "gif"]) == 0
    assert (tmp_path / "a.b").read_bytes()[:6] == b"GIF89a"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "a.avi"], "valid: a name that ends in .html, .mp4, .gif or .rrd"),
        (["--seconds", "0"], "--seconds is 0; valid: above 0"),
        (["--driven"], "recorded torques drive"),
        (["--format", "png"], "--format"),
        (["--live", "--out", "a.html"], "--live writes no file and draws no torques; leave out --out"),
        (["--dynamics", "hybrid"], "--dynamics and --port are for --live"),
    ],
)
def test_bad_input_ends_in_one_line(
    arguments: list[str], words: str, trained_run: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["view", str(trained_run), *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1

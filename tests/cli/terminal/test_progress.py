# SPDX-License-Identifier: Apache-2.0
"""Bars on terminals, lines elsewhere, and the time that is left."""

import contextlib
import io
import os
import subprocess
import sys
from time import sleep

import pytest

from neurodyn.cli.terminal import console
from neurodyn.cli.terminal import console as progress
from neurodyn.cli.terminal.console import Clock, ProgressBar
from neurodyn.core.progress import tracked

LONG = "training cartpole-swingup in pretrained:cartpole"


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(progress.time, "monotonic", made)
    return made


def test_the_time_left_follows_the_pace(time: Time):
    clock = Clock()
    assert clock.words == ""
    clock.update(0.0)
    time.now += 30
    clock.update(0.25)
    assert clock.left == pytest.approx(90)
    time.now += 20  # nothing new, but time passes
    assert clock.words == "1:10 left"
    time.now += 80  # a part that takes longer than all that was expected
    assert clock.words == ""
    clock.update(1.0)
    assert clock.words == "0:00 left"


def test_resumed_work_is_judged_by_its_own_pace(time: Time):
    clock = Clock()
    clock.update(0.5)
    time.now += 60
    clock.update(0.51)
    assert clock.words == "49:00 left"


def test_work_that_begins_anew_after_its_end_has_no_time_left_of_before(time: Time):
    clock = Clock()
    clock.update(0.0)
    time.now += 30
    clock.update(1.0)
    clock.update(0.5)
    assert clock.words == ""
    time.now += 10
    clock.update(0.75)
    assert clock.words == "0:10 left"


def test_a_file_gets_a_line_for_each_tenth(time: Time):
    out = io.StringIO()
    with ProgressBar("evaluating run", console.terminal(file=out)):
        for _ in tracked(range(100), "simulator"):
            time.now += 1
    lines = out.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[4] == "evaluating run:  40%  1:00 left  simulator"
    assert lines[-1] == "evaluating run: 100%  0:00 left  simulator"


def test_quick_work_prints_nothing(time: Time):
    out = io.StringIO()
    with ProgressBar("evaluating run", console.terminal(file=out)):
        for _ in tracked(range(100)):
            time.now += 0.01
    assert out.getvalue() == ""


def test_silent_work_is_said_to_go_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "_SOON", 0.05)
    monkeypatch.setattr(progress, "_SECONDS", 0.1)
    out = io.StringIO()
    with ProgressBar("compiling ant", console.terminal(file=out)) as bar:
        sleep(0.12)
        assert out.getvalue() == "compiling ant: 0:00 so far\n"
        bar.update(0.3, "kernels")
        sleep(0.2)
    lines = out.getvalue().splitlines()[1:]
    assert len(lines) >= 2  # the last word once more where nothing new comes
    assert all(line.startswith("compiling ant:  30%") and line.endswith("kernels") for line in lines)


@pytest.mark.parametrize("width", [60, 80])
def test_a_bar_fits_the_terminal(width: int):
    out = io.StringIO()
    where = console.terminal(file=out, force_terminal=True, color_system=None)
    where.width = width
    with ProgressBar(LONG, where) as bar:
        bar.update(0.0, "")
        bar.update(0.4, "held-out error 0.0123 rad after 0.5 s, return 1,234")
        assert bar._bar is not None
        paper = console.terminal(file=io.StringIO())
        paper.width = width
        paper.print(bar._bar[0].get_renderable())
        bar.update(0.5, "short")
        paper.print(bar._bar[0].get_renderable())
        bar.update(0.6, long := "noisy return 31.2, without noise 46.05, speed 0.04 of 0.59 m/s, 3% fail, no better")
        paper.print(bar._bar[0].get_renderable())
    lines = [line.rstrip() for line in paper.file.getvalue().splitlines()]
    assert len(lines) == 6
    assert " ".join(lines[4:]) == long
    assert max(map(len, lines)) <= width
    assert "40%" in lines[0]
    assert lines[0].endswith("left")
    assert lines[1] == "held-out error 0.0123 rad after 0.5 s, return 1,234"
    assert lines[2].endswith("short")


def test_a_dumb_terminal_gets_lines(time: Time, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "dumb")
    out = io.StringIO()
    with ProgressBar("checking ant", console.terminal(file=out, force_terminal=True)) as bar:
        time.now += 5
        bar.update(0.1, "rest")
    assert out.getvalue() == "checking ant:  10%  0:05 so far  rest\n"


def test_a_bar_within_another_takes_its_place_and_gives_it_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "_SOON", 0.05)
    out = io.StringIO()
    where = console.terminal(file=out, force_terminal=True)

    def shown(words: str = "") -> str:
        """Return what comes on the screen until the words have come, on a busy machine later."""
        for _ in range(100):
            sleep(0.3)
            text = out.getvalue()
            if words in text:
                break
        out.seek(0)
        out.truncate()
        return text

    with ProgressBar("policy train", where):
        assert "policy train" in shown("policy train")
        with ProgressBar("opening runs/ant", where):
            shown("opening runs/ant")  # and what is left of the outer one on the screen
            assert "policy train" not in shown("opening runs/ant")
        shown("policy train")
        assert "opening" not in shown("policy train")
    out.truncate(0)
    assert shown() == ""


TERMINAL = """
import sys, time
from neurodyn.cli import main
from neurodyn.cli.terminal import console
from neurodyn.core.registry import Registry
console._SOON = .1

def slow() -> None:
    \"\"\"Compute in silence.\"\"\"
    time.sleep(.6)
    print("done")

main.VERBS = Registry("verb", slow=main.Verb("silent", slow))
sys.exit(main.run(["slow"]))
"""


@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_verb_without_a_bar_says_at_a_terminal_that_it_is_at_work_and_leaves_no_codes_in_a_file(at_terminal: bool):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty() if at_terminal else os.pipe()
    done = subprocess.run(
        [sys.executable, "-c", TERMINAL], stdout=subprocess.PIPE, stderr=theirs, check=True, text=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
    )  # fmt: skip
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as screen:
        while part := screen.read(4096):
            said += part
    assert done.stdout == "done\n"
    assert (b"slow" in said and b"so far" in said) == at_terminal
    assert (b"\x1b" in said) == at_terminal

# SPDX-License-Identifier: Apache-2.0
"""Every mistake on the command line ends in one line on standard error and exit code 2."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neurodyn.cli.main import VERBS, Verb, main, run
from neurodyn.core.interruption import Interrupted
from neurodyn.core.workers import FORWARD_ONLY
from tests import plant

README = str(Path(plant.__file__))


def one_line(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    code = run([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert code == 2, captured
    assert captured.err.endswith("\n")
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("neurodyn: ")
    assert "Traceback" not in captured.out + captured.err
    return captured.err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_verb(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert all(f"  {verb} " in out for verb in VERBS)


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("neurodyn ")


def test_the_process_of_a_command_differentiates_nothing_through_newton(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(FORWARD_ONLY)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert os.environ[FORWARD_ONLY]


def test_an_unknown_verb_lists_the_valid_ones(capsys: pytest.CaptureFixture[str]):
    message = one_line(capsys, "trian")
    assert "'trian'" in message
    assert all(verb in message for verb in VERBS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "hexapod", "--data", "x.h5", "--out", "run"], ["'hexapod'", "cartpole"]),
        (["train", "cartpole", "--data", "x.h5", "--out", "run"], ["x.h5"]),
        (["train", "cartpole", "--data", "x.npz", "--out", "run"], ["x.npz"]),
        (["train", "cartpole", "--data", README, "--out", "run"], ["plant.py"]),
        (["finetune", "nowhere", "--data", "x.h5", "--out", "run"], ["nowhere"]),
        (["finetune", "pretrained:nothing", "--data", "x.h5", "--out", "run"], ["'nothing'"]),
        (["generate", "hexapod", "--transitions", "5", "--out", "x.h5"], ["'hexapod'"]),
        (["generate", "cartpole", "--transitions", "0", "--out", "x.h5"], ["transitions is 0"]),
        (["generate", "cartpole", "--transitions", "5", "--out", "x.csv"], ["x.csv", ".h5"]),
        (["generate", "cartpole", "--transitions", "5", "--out", "x.h5", "--seed", "-1"], ["seed is -1"]),
        (["inspect", "x.h5"], ["x.h5"]),
        (["inspect", README], ["plant.py"]),
        (["import", "x.npz", "--reader", "dfki-c1", "--out", "y.h5"], ["x.npz"]),
        (["import", "x.npz", "--reader", "nothing", "--out", "y.h5"], ["nothing"]),
        (["evaluate", "nowhere"], ["nowhere"]),
        (["evaluate", "pretrained:nothing"], ["'nothing'"]),
        (["view", "nowhere"], ["nowhere"]),
    ],
    ids=lambda value: " ".join(value).replace(README, "FILE"),
)
def test_bad_input_is_named(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    message = one_line(capsys, *arguments)
    assert all(word in message for word in words), message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--size", "huge"], ["'huge'", "small"]),
        (["--size", "nowhere.yaml"], ["nowhere.yaml"]),
        (["--minutes", "0"], ["minutes is 0"]),
        (["--minutes", "nan"], ["minutes is nan"]),
        (["--minutes", "1", "--steps", "5"], ["give one"]),
        (["--steps", "5", "--seed", "-1"], ["seed is -1"]),
    ],
    ids=str,
)
def test_bad_settings_of_a_training_are_named(
    flags: list[str], words: list[str], plant_file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    message = one_line(capsys, "train", "cartpole", "--data", plant_file, "--out", tmp_path / "run", *flags)
    assert all(word in message for word in words), message
    assert list(tmp_path.iterdir()) == []


def test_a_verb_that_is_interrupted_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def interrupted(json: Path | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(VERBS._entries, "robots", Verb("interrupted", interrupted))
    assert run(["robots"]) == 130
    assert capsys.readouterr().err == "neurodyn: interrupted; nothing unfinished is left\n"


def test_what_a_locale_has_no_characters_for_is_printed_as_a_question_mark():
    script = "import neurodyn.cli.main as cli; cli.run = lambda words: print('5 µs') or 0; cli.main([])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stdout.strip()) == (0, b"5 ?s"), done.stderr


@pytest.mark.parametrize(
    ("verb", "stop", "expected"),
    [
        (
            "generate",
            KeyboardInterrupt(),
            "interrupted; what was finished is kept; `neurodyn generate cartpole --transitions 10 --out 'a b'",
        ),
        (
            "train",
            Interrupted(130, "run: interrupted at step 3", resumes=True),
            "run: interrupted at step 3; `neurodyn train cartpole --data x",
        ),
        (
            "hybrid",
            Interrupted(130, "again: interrupted at step 3", resumes=True),
            "again: interrupted at step 3\n",
        ),
        ("hybrid", KeyboardInterrupt(), "interrupted; nothing unfinished is left\n"),
    ],
)
def test_a_verb_that_can_resume_names_the_command(
    verb: str, stop: KeyboardInterrupt, expected: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    @functools.wraps(VERBS[verb].call)
    def stopped(*arguments: object, **flags: object) -> None:
        raise stop

    monkeypatch.setitem(VERBS._entries, verb, Verb("stopped", stopped))
    arguments = {"generate": ["cartpole", "--transitions", "10"], "train": ["cartpole", "--data", "x.h5"]}
    assert run([verb, *arguments.get(verb, ["run"]), "--out", "a b"]) == 130
    text = capsys.readouterr().err
    assert f"neurodyn: {expected}" in text
    assert text.endswith("--out 'a b' --resume` goes on\n") == (verb != "hybrid")


def test_a_fault_of_ours_is_not_called_bad_input(monkeypatch: pytest.MonkeyPatch):
    def broken(json: Path | None = None) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(VERBS._entries, "robots", Verb("broken", broken))
    with pytest.raises(ZeroDivisionError):
        run(["robots"])


def test_a_network_that_nobody_registered_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]):
    assert run(["train", "cartpole", "--data", "x.h5", "--out", "run", "--net", "lstm"]) == 2
    assert capsys.readouterr().err == "neurodyn: unknown network 'lstm'; valid: gru, mlp, transformer\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "cartpole", "--transitions", "10", "--out", ""], "--out is empty"),
        (["generate", "cartpole", "--transitions", "10", "--out", "a\0b.h5"], "--out is not a text"),
        (["generate", "cartpole", "--transitions", "10", "--out", "a.h5", "--seed", str(1 << 64)], "below 2^63"),
        (["generate", "cartpole", "--transitions", "10", "--out", "a.h5", "--seed", "-1"], "seed is -1"),
        (["inspect", "pipe.csv"], "is a pipe, device or socket"),
        (["inspect", "/dev/zero"], "is a pipe, device or socket"),
        (["robots", "--json", "/dev/null"], "is a pipe, device or socket"),
        (["robots", "cartpole", "--json", "folder"], "is a folder"),
    ],
)
def test_arguments_that_nothing_can_be_are_refused_at_once(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.csv")
    Path("folder").mkdir()
    assert words in one_line(capsys, *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe.csv"]


def test_results_go_to_standard_output_and_tables_elsewhere(tmp_path: Path):
    command = [sys.executable, "-m", "neurodyn.cli.main", "robots", "cartpole", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout)["robot"] == "cartpole"
    assert "cartpole" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_full_standard_output_is_one_line(tmp_path: Path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "neurodyn.cli.main", "--version"], stdout=full, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "standard output: cannot be written" in done.stderr


@pytest.mark.parametrize("verb", ["--help", "robots"])
def test_a_reader_that_has_seen_enough_is_no_error(verb: str):
    reading, writing = os.pipe()
    os.close(reading)  # as `head` does
    command = [sys.executable, "-m", "neurodyn.cli.main", verb]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def greedy(json: Path | None = None) -> None:
        raise MemoryError("Unable to allocate 9 PiB")

    monkeypatch.setitem(VERBS._entries, "robots", Verb("greedy", greedy))
    assert "too little memory (Unable to allocate 9 PiB)" in one_line(capsys, "robots")


def test_a_path_that_the_system_refuses_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["adapt", "cartpole", "--data", "none.h5", "--out", str(tmp_path / ("x" * 300))]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.endswith("cannot be used (File name too long); give another path\n")


def test_a_refusal_wraps_in_a_terminal_and_is_one_line_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(["polcy"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) > 80
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["polcy"]) == 2
    rows = capsys.readouterr().err.splitlines()
    assert max(map(len, rows)) <= 80
    assert " ".join(row.strip() for row in rows) == line

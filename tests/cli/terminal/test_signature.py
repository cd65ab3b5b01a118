# SPDX-License-Identifier: Apache-2.0
"""Every verb's help, errors and examples follow from its signature and docstring."""

import shlex

import pytest

from neurodyn.cli.main import VERBS, Verb, run
from neurodyn.cli.terminal.help import help_text
from neurodyn.cli.terminal.signature import signature_of, split
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry


def every(verbs: Registry[Verb], before: str = "") -> dict[str, Verb]:
    found = {}
    for name, verb in verbs.items():
        called = verb.load()
        found |= every(called, f"{name} ") if isinstance(called, Registry) else {before + name: verb}
    return found


ALL = every(VERBS)


@pytest.mark.parametrize("name", ALL)
def test_every_argument_has_help_that_fits_80_columns(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    signature = signature_of(ALL[name].load())
    assert signature.summary
    assert [one.name for one in signature.parameters if not one.help] == []
    text = help_text(signature, f"neurodyn {name}")
    assert text.startswith(f"usage: neurodyn {name}")
    described, _, examples = text.partition("For example:")
    assert max(map(len, described.splitlines())) <= 80
    assert "None" not in described.replace("None of", "")
    assert all(f"neurodyn {name}" in line for line in examples.splitlines()[1:] if line and name != "completion")


@pytest.mark.parametrize("name", [name for name in ALL if name != "completion"])
def test_examples_have_only_flags_that_there_are(name: str):
    signature = signature_of(ALL[name].load())
    assert signature.examples, f"neurodyn {name} --help shows no example"
    for line in signature.examples:
        arguments = shlex.split(line, comments=True)[1 + len(name.split()) :]
        signature.require(f"neurodyn {name}", arguments)


def test_the_lists_of_verbs_fit_80_columns(capsys: pytest.CaptureFixture[str]):
    assert run(["--help"]) == run(["policy", "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def train(arguments: str) -> list[str]:
    """Return what is refused of the arguments of `neurodyn train`."""
    try:
        signature_of(VERBS["train"].load()).require("neurodyn train", shlex.split(arguments))
    except InputError as error:
        return str(error).split("; ")
    return []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("cartpole --data a.h5 --out run --mintues 3", ["unknown flag --mintues (did you mean '--minutes'?)"]),
        ("cartpole --data a.h5", ["missing --out (Run directory to write)"]),
        ("--data a.h5 b.h5 --out run", ["missing ROBOT (Name of a robot)"]),
    ],
)
def test_wrong_flags_are_named(arguments: str, words: list[str]):
    message = " ".join(train(arguments))
    assert message.startswith("train: ")
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    "arguments",
    [
        "cartpole --data a.h5 b.h5 --out run",
        "--data a.h5 --out run cartpole --resume --no-resume",
        "cartpole --data=a.h5 --out=run --shares .5 .5",
    ],
)
def test_right_flags_are_left_alone(arguments: str):
    assert train(arguments) == []


def test_numbers_below_zero_are_values():
    control = signature_of(VERBS["control"].load())
    given = split(control, ["a1", "--planner", "mpc", "--command", "-0.3", "-.1", "0"])
    assert given.flags["--command"] == ["-0.3", "-.1", "0"]
    assert given.words == ["a1"]
    assert given.open is None
    assert split(control, ["a1", "--json", "-"]).flags == {"--json": ["-"]}  # standard output

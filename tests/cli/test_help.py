# SPDX-License-Identifier: Apache-2.0
"""Every verb's help, errors and examples follow from its signature and docstring."""

import inspect
import shlex

import pytest

from neurodyn.cli.main import VERBS, every_verb, run
from neurodyn.cli.terminal.arguments import help_of, parse
from neurodyn.core.errors import InputError

ALL = every_verb()


def examples(name: str) -> list[str]:
    return help_of(ALL[name].call)[2].splitlines()


@pytest.mark.parametrize("name", ALL)
def test_every_argument_has_help_that_fits_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*name.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: neurodyn {name} ")
    assert all(line in text for line in examples(name))
    described = text[text.find("╭") :].splitlines()  # terminals break what stands above
    assert max(map(len, [*described, *(f"    {line}" for line in examples(name))])) <= 80
    assert "None" not in text.replace("None of", "")
    assert help_of(ALL[name].call)[1].keys() == inspect.signature(ALL[name].call).parameters.keys()


@pytest.mark.parametrize("name", [name for name in ALL if name != "completion"])
def test_examples_can_be_parsed(name: str):
    assert examples(name), f"neurodyn {name} --help shows no example"
    for line in examples(name):
        words = shlex.split(line, comments=True)
        assert words[: 1 + len(name.split())] == ["neurodyn", *name.split()]
        assert parse(ALL[name].call, f"neurodyn {name}", words[1 + len(name.split()) :]) is not None


def test_the_lists_of_verbs_fit_80_columns(capsys: pytest.CaptureFixture[str]):
    assert run(["--help"]) == run(["policy", "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("cartpole --data a.h5 --out run --mintues 3", ["unknown flag --mintues (did you mean '--minutes'?)"]),
        ("cartpole --data a.h5", ["missing --out: Run directory to write"]),
        ("cartpole", ["missing --data: HDF5 store", "; --out: Run directory to write"]),
        ("--data a.h5 b.h5 --out run", ["missing ROBOT: Name of a robot"]),
        ("cartpole --data --out run", ["missing --data"]),
        ("cartpole --data a.h5 --out run --minutes soon", ["--minutes is 'soon'; valid: a number"]),
        ("cartpole --data a.h5 --out run --shares a b", ["--shares is 'a'; valid: a number"]),
        ("cartpole --data a.h5 --out run --xyz", ["unknown flag --xyz; valid: --"]),
        ("cartpole --out run --dta a.h5", ["unknown flag --dta (did you mean '--data'?)"]),
        ("cartpole --data a.h5 --out run --minutes", ["--minutes has no value"]),
        ("cartpole twice --data a.h5 --out run", ["nothing is expected where twice stands"]),
    ],
)
def test_wrong_arguments_are_named_in_one_line(arguments: str, words: list[str]):
    with pytest.raises(InputError) as refused:
        parse(VERBS["train"].call, "neurodyn train", shlex.split(arguments))
    message = str(refused.value)
    assert message.startswith("train: ")
    assert message.endswith("(see neurodyn train --help)")
    assert "\n" not in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    "arguments",
    [
        "cartpole --data a.h5 b.h5 --out run",
        "--data a.h5 --out run cartpole --resume --no-resume",
        "cartpole --data=a.h5 --out=run --shares .5 .5",
    ],
)
def test_right_arguments_are_bound(arguments: str):
    bound = parse(VERBS["train"].call, "neurodyn train", shlex.split(arguments))
    assert bound is not None
    assert bound.args == ("cartpole",)
    assert bound.keywords["data"][0] == "a.h5"
    assert bound.keywords["minutes"] is None


def test_a_flag_of_several_values_that_is_given_again_adds_to_them():
    words = "adapt ant --data a.h5 --known a=1 b=2 --out run --known=c=3 --seed 1 --seed 2"
    bound = parse(VERBS["adapt"].call, "neurodyn adapt", shlex.split(words)[1:])
    assert bound is not None
    assert bound.keywords["known"] == ("a=1", "b=2", "c=3")
    assert (bound.args, str(bound.keywords["out"]), bound.keywords["seed"]) == (("ant",), "run", 2)


def test_a_flag_that_is_repeated_for_several_values_takes_one_each():
    words = "a --dynamics b --dynamics c --seed 3"
    bound = parse(VERBS["compare"].call, "neurodyn compare", shlex.split(words))
    assert bound is not None
    assert bound.keywords["dynamics"] == ("b", "c")


def test_numbers_below_zero_and_a_dash_are_values():
    control = "a1 --planner mpc --command -0.3 -.1 0 --json -"
    bound = parse(VERBS["control"].call, "neurodyn control", shlex.split(control))
    assert bound is not None
    assert bound.keywords["command"] == (-0.3, -0.1, 0.0)
    assert str(bound.keywords["json"]) == "-"  # standard output

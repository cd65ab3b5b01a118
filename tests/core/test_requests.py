# SPDX-License-Identifier: Apache-2.0
"""Requests: one struct is the signature, the help and the flags of a function."""

import importlib
import inspect
import pkgutil
from typing import Annotated, Any

import pytest
from tyro.conf import arg

import neurodyn
from neurodyn.cli.main import every_verb
from neurodyn.cli.terminal.arguments import help_of
from neurodyn.cli.terminal.flags import command
from neurodyn.core.config import Config
from neurodyn.core.requests import IN_PYTHON, Flag, accepts_request, arguments_of, field_docs, flag_of


class Common(Config, frozen=True, kw_only=True):
    """What both take."""

    seed: int = 0
    """Seed of
    everything."""
    show: Annotated["Unknown | None", IN_PYTHON] = None  # noqa: F821  # pyright: ignore
    """Called as it goes."""


class Toss(Common, frozen=True, kw_only=False):
    """A toss."""

    coin: Annotated[str | bytes, Flag(str)]
    """Name of a coin."""
    height: float = 1.0
    """Height [m]."""


class Rules(Config, frozen=True):
    """Rules of a toss."""

    bounces: int = 1000
    """Most bounces."""
    words: tuple[str, ...] = ()
    """Shouted."""
    hands: int = 2
    """Number of hands."""


@accepts_request(Toss)
def toss(request: Toss) -> Toss:
    """Toss a coin.

    Returns:
        What was asked.
    """
    return request


def test_a_function_takes_the_request_or_its_fields():
    asked = Toss("penny", 2.0, seed=3)
    assert toss(asked) is asked
    assert toss("penny", 2.0, seed=3) == asked
    assert toss(coin="penny", height=2.0, seed=3) == asked


def test_what_the_request_has_not_is_a_type_error():
    with pytest.raises(TypeError, match="colour"):
        toss("penny", colour="red")  # pyright: ignore
    with pytest.raises(TypeError, match="coin"):
        toss(height=2.0)  # pyright: ignore
    with pytest.raises(TypeError):
        toss("penny", 2.0, 3)  # pyright: ignore


def test_signature_and_docstring_are_those_of_the_request():
    signature = inspect.signature(toss)
    assert str(signature).startswith("(coin: str | bytes, height: float = 1.0, *, seed: int = 0, show: 'Unknown")
    assert signature.return_annotation is Toss
    text = inspect.getdoc(toss) or ""
    assert text.startswith("Toss a coin.\n\nReturns:")
    assert "\n\nArgs:\n    coin: Name of a coin.\n" in text
    assert "\n    seed: Seed of everything.\n" in text


def test_a_verb_has_the_fields_and_its_own_arguments_as_flags_with_their_help():
    seen = []

    @command(Toss)
    def verb(
        request: Toss, *, quiet: Annotated[bool, arg(help="Say nothing.")] = False, json: str | None = None
    ) -> None:
        """Toss.

        Example:
            toss penny
        """
        seen.append((request, quiet, json))

    parameters = inspect.signature(verb).parameters
    assert list(parameters) == ["coin", "height", "seed", "quiet", "json"]
    assert parameters["coin"].kind is inspect.Parameter.POSITIONAL_ONLY
    meanings = {
        "coin": "Name of a coin.",
        "height": "Height [m].",
        "seed": "Seed of everything.",
        "quiet": "Say nothing.",
    }
    assert help_of(verb) == ("Toss.", meanings, "toss penny")
    verb("penny", seed=2, quiet=True)
    assert seen == [(Toss("penny", seed=2), True, None)]


def requests() -> list[type]:
    """Return the requests of the package."""
    for module in pkgutil.walk_packages(neurodyn.__path__, "neurodyn."):
        if "requests" in module.name:
            importlib.import_module(module.name)
    found, left = [], [Config]
    while left:
        kinds = left.pop().__subclasses__()
        left += kinds
        found += [kind for kind in kinds if kind.__module__.startswith("neurodyn.")]
    return sorted({kind for kind in found if kind.__name__.endswith("Request")}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("request_type", requests(), ids=lambda kind: kind.__name__)
def test_every_field_of_a_request_is_documented_and_can_be_given_by_its_place(request_type: type):
    fields = arguments_of(request_type)
    assert field_docs(request_type).keys() >= {one.name for one in fields}
    assert {one.name for one in fields} == set(request_type.__struct_fields__)  # pyright: ignore
    required = [one for one in fields if one.default is one.empty]
    places = [one.name for one in fields if one.kind is one.POSITIONAL_OR_KEYWORD]
    made = request_type(*places, **{one.name: one.name for one in required if one.name not in places})
    assert [getattr(made, name) for name in places] == places


def verbs() -> list[Any]:
    """Return what all verbs call."""
    return [verb.call for verb in every_verb().values()]


def test_flags_are_the_fields_of_their_request():
    asked = [verb for verb in verbs() if hasattr(verb, "request")]
    assert asked
    for verb in asked:
        flags = inspect.signature(verb).parameters
        for one in arguments_of(verb.request):
            flag = flag_of(one.annotation)
            typed, name = flag is None or flag.kind is not None, (flag and flag.argument) or one.name
            assert (name in flags) == typed, (verb, one.name)
            if name in flags:
                assert flags[name].default == one.default


def test_fields_of_settings_are_flags_that_need_not_be_given():
    seen = []

    @command(Toss, settings=Rules, names=["bounces", "words"])
    def verb(request: Toss, **flags: Any) -> None:
        """Toss."""
        seen.append((request, flags))

    parameters = inspect.signature(verb).parameters
    assert list(parameters) == ["coin", "height", "seed", "bounces", "words"]
    assert parameters["bounces"].default is None
    assert help_of(verb)[1]["bounces"] == "Most bounces; by default 1,000."
    assert help_of(verb)[1]["words"] == "Shouted."
    verb("penny", bounces=None, words=())
    verb("penny", bounces=2, words=("a",))
    assert seen == [(Toss("penny"), {}), (Toss("penny"), {"bounces": 2, "words": ("a",)})]

# SPDX-License-Identifier: Apache-2.0
"""Arguments of a verb, from its signature and docstring: parsed by tyro, refused in one line."""

import contextlib
import functools
import inspect
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from neurodyn.core.errors import MOST_COUNT, MOST_TRANSITIONS, InputError, among, nearest, suggestion
from neurodyn.core.plain_data import require_regular
from neurodyn.core.seeds import require_seed

_KINDS = {int: "a whole number", float: "a number"}


class Argument:
    """A flag of a verb, or an argument (without `flags`).

    Attributes:
        name: Name in the signature.
        flags: Its spellings, such as "--resume" and "--no-resume".
        switch: Whether it takes no value.
        several: Whether it takes several values.
        required: Whether it must be given.
        metavar: Name of its value in the help, if its type has one of its own.
        choices: Values of its literals.
    """

    def __init__(self, given: inspect.Parameter) -> None:
        """Read a parameter of the verb."""
        parts, self.name = list(_parts(given.annotation)), given.name.strip("_")
        self.switch, self.several = bool in parts, any(get_origin(one) is tuple for one in parts)
        flag, paired = f"--{self.name.replace('_', '-')}", f"--no-{self.name.replace('_', '-')}"
        self.flags = [] if given.kind is given.POSITIONAL_ONLY else [flag, paired] if self.switch else [flag]
        self.required = given.default is given.empty
        self.metavar = next((text for one in parts if isinstance(text := getattr(one, "metavar", None), str)), "")
        self.choices = [one for one in parts if isinstance(one, str)]
        self._kinds = [] if str in parts or Path in parts else [kind for kind in _KINDS if kind in parts]

    def __str__(self) -> str:
        return self.flags[0] if self.flags else self.name.upper()

    def require(self, value: str) -> None:
        """Raise an InputError for a value of another type; types with a metavar read their values themselves."""
        if self.metavar or value in self.choices or not (self._kinds or self.choices):
            return
        for kind in self._kinds:
            with contextlib.suppress(ValueError):
                kind(value)
                return
        if self._kinds:
            valid = " or ".join([*(_KINDS[kind] for kind in self._kinds), *self.choices])
            raise InputError(f"{self} is {value!r}; valid: {valid}")
        raise InputError(f"{self} is {value!r}{among(value, self.choices)}")


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation, and the types, values and metadata in it."""
    yield annotation
    for one in get_args(annotation):
        yield from _parts(one)


def arguments_of_verb(verb: Callable[..., None]) -> list[Argument]:
    """Return the arguments and flags of a verb."""
    return [Argument(one) for one in inspect.signature(verb).parameters.values()]


def help_of(verb: Callable[..., None]) -> tuple[str, dict[str, str], str]:
    """Return a verb's description, the help of each argument, and its examples; arguments have theirs beside them."""
    import docstring_parser

    parsed = docstring_parser.parse(inspect.getdoc(verb) or "")
    meanings = {one.arg_name: " ".join((one.description or "").split()) for one in parsed.params}
    for name, one in inspect.signature(verb).parameters.items():
        beside = [text for text in (getattr(part, "help", None) for part in _parts(one.annotation)) if text]
        meanings |= {name: beside[0]} if beside else {}
    examples = "\n".join(one.description or "" for one in parsed.examples)
    return (parsed.description or "").strip(), meanings, examples


def parse(verb: Callable[..., None], command: str, words: Sequence[str]) -> "functools.partial[Any] | None":
    """Parse the arguments of a verb ("neurodyn train") without running it; None for --help.

    Raises:
        InputError: The arguments are wrong.
    """
    import tyro

    _require_text(words)
    words = _merge_repeated(verb, words)
    signature, (description, meanings, examples) = inspect.signature(verb), help_of(verb)
    bind, page = _binding(verb, meanings), io.StringIO()
    shown = "\n    ".join([f"{description}\n\nExample:", *examples.splitlines()]) if examples else description
    try:
        with contextlib.redirect_stderr(page):
            bound = tyro.cli(bind, args=list(words), prog=command, description=shown, config=_markers())
    except SystemExit as stop:
        if not stop.code:
            return None
        try:
            _require_sound(verb, words, meanings)
            reason = " ".join(page.getvalue().split())  # of a kind that only the parser knows
        except InputError as error:
            reason = error
        raise InputError(f"{command.partition(' ')[2]}: {reason} (see {command} --help)") from None
    given = signature.bind(*bound.args, **bound.keywords).arguments
    for one in arguments_of_verb(verb):
        if one.required and given.get(one.name) == ():
            raise InputError(f"{command.partition(' ')[2]}: missing {one} (see {command} --help)")
    return bound


def _binding(verb: Callable[..., None], meanings: Mapping[str, str]) -> Callable[..., "functools.partial[Any]"]:
    """Return a function with a verb's signature that only binds, so that the verb's own errors stay separate."""
    import tyro

    def bind(*args: Any, **kwargs: Any) -> "functools.partial[Any]":
        return functools.partial(verb, *args, **kwargs)

    bind.__signature__ = signature = inspect.signature(verb)  # type: ignore[attr-defined]
    bind.__annotations__ = {
        # No hint instead of "(default: None)".
        name: Annotated[one.annotation, tyro.conf.arg(
            help=meanings.get(name), help_behavior_hint="" if one.default in (None, ()) else None
        )]
        for name, one in signature.parameters.items()
    }  # fmt: skip
    return bind


def _markers() -> tuple[Any, ...]:
    import tyro

    return tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone


def completion_script(verbs: Mapping[str, Any], shell: str) -> str:
    """Return tyro's script that completes verbs, groups of verbs, flags and their values; `verbs` as in `cli.main`."""
    import tyro

    def choice(entries: Mapping[str, Any]) -> Any:
        calls = {
            name: group(verb.call) if isinstance(verb.call, Mapping) else _binding(verb.call, {})
            for name, verb in entries.items()
        }
        parts = [Annotated[Any, tyro.conf.subcommand(name, constructor=call)] for name, call in calls.items()]
        return Union[tuple(parts)]  # noqa: UP007

    def group(entries: Mapping[str, Any]) -> Callable[..., Any]:
        def bind(verb: Any) -> Any:
            return verb

        bind.__annotations__ = {"verb": tyro.conf.OmitSubcommandPrefixes[choice(entries)]}
        return bind

    page = io.StringIO()
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        script = ["--tyro-print-completion", shell]
        tyro.cli(choice(verbs), prog="neurodyn", args=script, config=_markers())
    return page.getvalue()


def _merge_repeated(verb: Callable[..., None], words: Sequence[str]) -> list[str]:
    """Add the values of a flag that takes several, and is given again, to those before, which the parser would drop."""
    from tyro.conf import UseAppendAction

    several: set[str] = set()
    for given in inspect.signature(verb).parameters.values():
        parts = list(_parts(given.annotation))
        any_number = any(get_origin(one) is tuple and Ellipsis in get_args(one) for one in parts)
        if any_number and not any(one in parts for one in get_args(UseAppendAction[int])[1:]):
            several.update(Argument(given).flags)
    groups: list[list[str]] = [[]]
    first: dict[str, list[str]] = {}
    current = groups[0]
    for word in words:
        flag, equals, value = word.partition("=")
        spelt = flag.replace("_", "-")
        if spelt in several:
            if spelt not in first:
                groups.append(first.setdefault(spelt, [flag]))
            current = first[spelt]
            current += [value] if equals else []
        elif flag.startswith("--"):
            current = [word]
            groups.append(current)
        else:
            current.append(word)
    return [word for group in groups for word in group]


_SAME_IDEA = {"--map": "--reader", "--reader": "--map"}
"""Flags that verbs call otherwise: a column map is written by `inspect` and read by `import`."""


def _require_sound(verb: Callable[..., None], words: Sequence[str], meanings: dict[str, str]) -> None:
    """Raise an InputError for the first unknown flag, wrong or missing value, or missing argument."""
    every = arguments_of_verb(verb)
    flags = {flag: one for one in every for flag in one.flags}
    places = [one for one in every if not one.flags]
    given: dict[str, int] = {}
    taking: Argument | None = None
    for word in words:
        flag, equals, value = word.partition("=")
        if flag.startswith("-") and not flag[1:2].isdigit() and flag[1:2] != "." and flag != "-":
            taking = flags.get(flag.replace("_", "-"))
            if taking is None:
                meant = _SAME_IDEA.get(flag)
                near = f" (did you mean {meant}?)" if meant in flags else suggestion(flag, flags)
                raise InputError(f"unknown flag {flag}{near or f'; valid: {nearest(flag, flags)}'}")
            given[taking.name] = 0
            if not equals:
                continue
            word = value
        if taking is None or taking.switch or (given[taking.name] and not taking.several):
            if not places:
                raise InputError(f"nothing is expected where {word} stands")
            taking = places[0] if places[0].several else places.pop(0)
        taking.require(word)
        given[taking.name] = given.get(taking.name, 0) + 1
    for one in every:
        if one.name in given and not given[one.name] and not (one.switch or one.several):
            raise InputError(f"{one} has no value; valid: one behind it")
    missing = [one for one in every if one.required and not given.get(one.name)]
    if missing:
        raise InputError("missing " + "; ".join(f"{one}: {meanings[one.name].rstrip('.')}" for one in missing))


def _require_text(words: Sequence[str]) -> None:
    """Refuse empty arguments and those with a NUL, which no file, name or number can contain."""
    for before, word in zip(["", *words], words, strict=False):
        if not word or "\0" in word:
            what = "empty" if not word else "not a text"
            raise InputError(f"{before or 'an argument'} is {what}; valid: a name, number or path")


def require_usable_values(bound: "functools.partial[Any]") -> None:
    """Refuse unusable values before any work: absurd counts and seeds, pipes and devices as files."""
    for name, value in [*enumerate(bound.args), *bound.keywords.items()]:
        flag, values = f"--{str(name).replace('_', '-')}", value if isinstance(value, tuple | list) else (value,)
        most = MOST_TRANSITIONS if name == "transitions" else MOST_COUNT
        if name == "seed" and isinstance(value, int):
            require_seed(value)
        elif isinstance(value, int) and value > most:
            raise InputError(f"{flag} is {value}; valid: at most {most:,}")
        if any(isinstance(one, float) and not math.isfinite(one) for one in values):
            raise InputError(f"{flag} is {value}; valid: a finite number")
        for one in values:
            if isinstance(one, Path | str) and one:
                require_regular(Path(one), "a file or folder")

# SPDX-License-Identifier: Apache-2.0
"""Arguments and flags of a verb, read from its signature and docstring: what its help, errors and completion say."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from neurodyn.core.errors import InputError, suggestion

_TYPES = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
_NAMED = {
    "data": "FILE", "starts": "FILE", "robot": "ROBOT", "task": "TASK", "run": "RUN", "base": "RUN", "policy": "POLICY",
    "dynamics": "DYNAMICS", "model": "DYNAMICS", "plant": "DYNAMICS", "ground": "GROUND", "kind": "KIND",
    "algorithm": "ALGORITHM", "planner": "PLANNER", "gait": "GAIT",
}  # fmt: skip
"""What values of type `str` are, by the name of the parameter."""


@dataclass(frozen=True)
class VerbParameter:
    """An argument or a flag.

    Attributes:
        name: "ROBOT" of an argument, "--out" of a flag.
        value: How its value is written, as "PATH" or "N"; empty of a switch.
        help: What it is, in words.
        count: Number of values; None for one or more.
        required: Whether it must be given.
        default: Value where it is not given.
        choices: All values there are, where they are known beforehand.
        switch: Whether it is a flag without a value.
        off: Name of the flag that switches it off; empty where there is none.
    """

    name: str
    value: str
    help: str
    count: int | None = 1
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    switch: bool = False
    off: str = ""

    @property
    def positional(self) -> bool:
        """Whether it is known by its place."""
        return not self.name.startswith("-")


@dataclass(frozen=True)
class Signature:
    """What a verb takes.

    Attributes:
        summary: What it does.
        parameters: Its arguments and flags.
        examples: Commands.
    """

    summary: str
    parameters: tuple[VerbParameter, ...]
    examples: tuple[str, ...] = ()

    @property
    def flags(self) -> dict[str, VerbParameter]:
        """Flags by name, those that switch off included."""
        named = [parameter for parameter in self.parameters if not parameter.positional]
        return {one.name: one for one in named} | {one.off: one for one in named if one.off}

    def require(self, command: str, arguments: Sequence[str]) -> None:
        """Refuse flags that there are not, and arguments that lack something required.

        Raises:
            InputError: There is such an argument, or something is missing.
        """
        verb, given = command.partition(" ")[2], split(self, arguments)
        for name in given.flags:
            if name not in self.flags and name not in ("-h", "--help"):
                meant = suggestion(name, self.flags)
                raise InputError(f"{verb}: unknown flag {name}{meant} (see {command} --help)")
        missing = [one for one in self.parameters if one.required and not given.has(one)]
        if missing:
            named = ", ".join(f"{one.name} ({_first_sentence(one.help)})" for one in missing)
            raise InputError(f"{verb}: missing {named} (see {command} --help)")


@dataclass
class Given:
    """Arguments as they were typed.

    Attributes:
        flags: Values of each flag.
        words: Values of no flag.
        open: The flag that the next word is a value of; None of none.
    """

    flags: dict[str, list[str]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    open: VerbParameter | None = None

    def has(self, parameter: VerbParameter) -> bool:
        """Return whether a parameter was given."""
        return bool(self.words) if parameter.positional else parameter.name in self.flags


def split(signature: Signature, arguments: Sequence[str]) -> Given:
    """Return which of some arguments belong to which flag."""
    found, flags, left, last = Given(), signature.flags, 0, ""
    for argument in arguments:
        if argument.startswith("-") and not re.match(r"-$|-\.?\d", argument):
            name, equals, value = argument.partition("=")
            last = name.replace("_", "-")
            flag = flags.get(last)
            found.flags.setdefault(last, [])
            left = 0 if flag is None or flag.switch else -1 if flag.count is None else flag.count
            if equals:
                found.flags[last].append(value)
                left = 0
        elif left:
            found.flags[last].append(argument)
            left -= 1
        else:
            found.words.append(argument)
    found.open = flags.get(last) if left else None
    return found


def signature_of(function: Callable[..., Any]) -> Signature:
    """Read the signature and the docstring of a verb."""
    summary, helps, examples = _docstring(inspect.getdoc(function) or "")
    given = inspect.signature(function).parameters.values()
    return Signature(summary, tuple(_parameter(one, helps) for one in given), examples)


def _parameter(given: inspect.Parameter, helps: Mapping[str, str]) -> VerbParameter:
    kinds, metadata = _unwrapped(given.annotation)
    metavar = next((m for one in metadata if isinstance(m := getattr(one, "metavar", None), str)), "")
    positional = given.kind is given.POSITIONAL_ONLY or any("Positional" in repr(one) for one in metadata)
    several, count = get_origin(kinds[0]) is tuple, 1
    if several:
        inner = get_args(kinds[0])
        count, kinds = None if Ellipsis in inner else len(inner), _unwrapped(inner[0])[0]
    literals = tuple(str(value) for kind in kinds for value in get_args(kind) if get_origin(kind) is Literal)
    choices = tuple(metavar[1:-1].split(",")) if metavar.startswith("{") else literals
    switch, name = kinds == (bool,), given.name.strip("_")
    types = [_TYPES.get(kind, "TEXT") for kind in kinds if get_origin(kind) is not Literal]
    value = metavar if metavar and not choices else "|".join((*types, *choices) if literals else choices or types)
    if value == "TEXT":
        value = _NAMED.get(name, value)
    flag = f"--{name.replace('_', '-')}"
    paired = switch and not any("PairsOff" in repr(one) for one in metadata)
    return VerbParameter(
        name=(metavar or name.upper()) if positional else flag,
        value="" if switch else value if several is False or count is None else " ".join([value] * count),
        help=helps.get(given.name, ""),
        count=count,
        required=given.default is given.empty,
        default=None if given.default is given.empty else given.default,
        choices=choices,
        switch=switch,
        off=f"--no-{flag[2:]}" if paired else "",
    )


def _unwrapped(annotation: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the types that a value may have, without None, and what they were annotated with."""
    if get_origin(annotation) is Annotated:
        kinds, metadata = _unwrapped(annotation.__origin__)
        return kinds, (*annotation.__metadata__, *metadata)
    if get_origin(annotation) in (Union, UnionType):
        parts = [_unwrapped(one) for one in get_args(annotation) if one is not type(None)]
        return tuple(kind for kinds, _ in parts for kind in kinds), tuple(m for _, more in parts for m in more)
    return (annotation,), ()


def _docstring(text: str) -> tuple[str, dict[str, str], tuple[str, ...]]:
    """Return what a docstring says first, of each argument, and as examples."""
    summary, *sections = re.split(r"^(Args|Examples?|Raises):\n", text, flags=re.MULTILINE)
    by_name = dict(zip(sections[::2], sections[1::2], strict=True))
    helps: dict[str, str] = {}
    for entry in re.split(r"^ {4}(?=\w+:)", by_name.get("Args", ""), flags=re.MULTILINE):
        name, _, said = entry.partition(":")
        if said:
            helps[name] = " ".join(said.split())
    examples = by_name.get("Example", by_name.get("Examples", ""))
    return summary.strip(), helps, tuple(line.strip() for line in examples.splitlines() if line.strip())


def _first_sentence(text: str) -> str:
    return re.split(r"[.;:,](?:\s|$)", text, maxsplit=1)[0]

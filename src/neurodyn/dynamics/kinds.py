# SPDX-License-Identifier: Apache-2.0
"""Kinds of dynamics: one record each, to which every room adds what it does with that kind."""

from dataclasses import dataclass, field
from typing import Any

from neurodyn.core.errors import InputError, choices
from neurodyn.core.registry import Registry


@dataclass(frozen=True)
class Kind:
    """One kind of dynamics.

    Attributes:
        name: As config.json of a model and `--kind` have it.
        title: In words, for messages and pages.
        parts: What rooms can do with models of this kind, by what it is ("train", "evaluate", "export" ...); a text
            "module:attribute" is imported when it is first asked for.
    """

    name: str
    title: str
    parts: Registry[Any] = field(default_factory=lambda: Registry("part"))

    def add(self, part: str, entry: Any) -> None:
        """Add what can be done with models of this kind.

        Raises:
            InputError: It is there already.
        """
        self.parts.add(part, entry)

    def part(self, part: str, where: str) -> Any:
        """Return what can be done with models of this kind.

        Args:
            part: What is to be done.
            where: Whose wish that is, for the error message: a run, or a flag.

        Raises:
            InputError: That cannot be done with them; the message names the kinds with which it can.
        """
        if part not in self.parts:
            able = choices(kind.title for kind in KINDS.values() if part in kind.parts)
            raise InputError(f"{where}: a {self.title} cannot {part}; valid: {able}")
        return self.parts[part]


KINDS: Registry[Kind] = Registry(
    "kind of dynamics",
    **{
        "analytic": Kind("analytic", "simulator"),
        "hybrid": Kind("hybrid", "hybrid model"),
        "neural": Kind("neural", "neural model"),
        "world-model": Kind("world-model", "world model"),
    },
)
"""All kinds of dynamics."""

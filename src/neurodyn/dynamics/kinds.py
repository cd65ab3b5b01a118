# SPDX-License-Identifier: Apache-2.0
"""Kinds of dynamics: one record each, to which every room adds what it can do with that kind.

| part | added by | what it is |
|---|---|---|
| artifact | dynamics | an `Artifact`: how models are written and read |
| simulate | dynamics | makes dynamics of a declared robot, without a run: `(robot, *, device) -> Dynamics` |
| export | dynamics | a `Frame` of a model, for ONNX: `(model) -> Frame` |
| solver | solvers | a solver of Newton: `(model, run) -> SolverBase` |
| train, finetune, settings, plan training, plan finetuning | learn | see `learn.kinds` |
| evaluate, report, record | evaluate, report | |
| refit | policy | fits models in `policy online`: a `policy.online.refit.Refit` |
"""

from dataclasses import dataclass, field
from typing import Any

from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry


@dataclass(frozen=True)
class Kind:
    """One kind of dynamics.

    Attributes:
        name: Its name in config.json and in `--kind`.
        title: The same in words, for messages and pages.
        parts: What can be done with models of this kind, by name.
    """

    name: str
    title: str
    parts: Registry[Any] = field(default_factory=lambda: Registry("part"))

    def add(self, part: str, entry: Any) -> None:
        """Add a part, or the text "module:attribute" that says where it is.

        Raises:
            InputError: There is one already.
        """
        self.parts.add(part, entry)

    def part(self, part: str, where: str) -> Any:
        """Return a part.

        Args:
            part: Name of the part.
            where: The run that holds the model, for the error message.

        Raises:
            InputError: This kind has no such part; the message names the kinds that have it.
        """
        if part not in self.parts:
            able = " or ".join(f"a {kind.title}" for kind in KINDS.values() if part in kind.parts)
            raise InputError(f"{where}: holds a {self.title}; valid here: {able or '(none)'}")
        return self.parts[part]


KINDS: Registry[Kind] = Registry(
    "kind of dynamics",
    analytic="neurodyn.dynamics.analytic:KIND",
    neural="neurodyn.dynamics.neural:KIND",
    hybrid="neurodyn.dynamics.hybrid:KIND",
    **{"world-model": "neurodyn.dynamics.world_model:KIND"},
    nerd="neurodyn.interop.nerd:KIND",
)
"""All kinds of dynamics."""

# SPDX-License-Identifier: Apache-2.0
"""Kinds of dynamics, and operations on models that only some kinds have.

A `Kind` holds what this room needs of one. Each further operation (training, export, a solver of Newton, ...) is a
`KindOperation` in the room that implements it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from neurodyn.core.errors import InputError, choices
from neurodyn.core.registry import Registry

if TYPE_CHECKING:
    from neurodyn.dynamics.interface import Dynamics
    from neurodyn.robots import Robot

T = TypeVar("T")


class Simulate(Protocol):
    """Makes dynamics of a declared robot, without a run."""

    def __call__(self, robot: "Robot", *, device: str) -> "Dynamics": ...  # noqa: D102


@dataclass(frozen=True)
class Kind:
    """One kind of dynamics.

    Attributes:
        name: Its name in config.json and in `--kind`.
        title: Its name in words, for messages and pages.
        artifact: Returns its `Artifact`: how its models are written and read; None if it has no files.
        simulate: Makes dynamics of a declared robot; None if its models come from a run.
    """

    name: str
    title: str
    artifact: Callable[[], Any] | None = None
    simulate: Simulate | None = None


KINDS: Registry[Kind] = Registry("kind of dynamics")
"""All kinds of dynamics; `neurodyn.dynamics` registers the ones that ship with the package."""


def is_simulated(name: str) -> bool:
    """Return whether a name is that of a kind whose dynamics need a declared robot but no run."""
    return name in KINDS and KINDS[name].simulate is not None


def simulate(kind: str, robot: "Robot", *, device: str = "cpu") -> "Dynamics":
    """Return dynamics of a declared robot on a device; raise an InputError for a kind that needs a run."""
    make = KINDS[kind].simulate
    if make is None:
        raise InputError(f"{kind!r}: needs a run; valid without one: {choices(filter(is_simulated, KINDS))}")
    return make(robot, device=device)


class KindOperation(Registry[T]):
    """An operation on models, by the name of the kind."""

    def of(self, kind: str, where: str | Path = "") -> T:
        """Return the operation for a kind; raise an InputError if it has none, see `require_kind`."""
        require_kind(kind, self, where)
        return self[kind]


def require_kind(kind: str, valid: Iterable[str], where: str | Path = "") -> None:
    """Refuse a model of a kind that is not valid in some place.

    Args:
        kind: Kind of the model.
        valid: The valid kinds.
        where: The run that holds the model, for the message.

    Raises:
        InputError: The kind is none of them; the message names them.
    """
    if kind not in valid:
        titles = " or ".join(f"a {KINDS[name].title}" for name in KINDS if name in valid)
        raise InputError(f"{where}: holds a {KINDS[kind].title}; valid here: {titles or '(none)'}")

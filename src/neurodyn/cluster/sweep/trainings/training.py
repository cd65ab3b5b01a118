# SPDX-License-Identifier: Apache-2.0
"""A training that a sweep can repeat: what it takes, its settings, how it is run, and how it is judged.

Figures are of validation data. Test data are left to `neurodyn evaluate`.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from neurodyn.core.config import Config
from neurodyn.evaluate.runs.comparison import Figure

Paths = str | tuple[str, ...]


class Training(ABC):
    """A verb that makes a run folder.

    Attributes:
        arguments: Its arguments; those with the name of a flag mean the same.
        what: What the figure is that trials are chosen by.
    """

    arguments: ClassVar[type[Config]]
    what: ClassVar[str]

    @abstractmethod
    def settings(self, given: Any) -> Config:
        """Return its settings before any is changed, with all that is given read and checked.

        Raises:
            InputError: A file is missing or malformed, or does not fit the others.
        """

    @abstractmethod
    def settings_type(self, given: Any) -> type[Config]:
        """Return the type of its settings."""

    @abstractmethod
    def run(self, given: Any, settings: Any, out: Path, *, resume: bool) -> None:
        """Train, or go on with a run that was killed.

        Raises:
            InputError: The result cannot be used, or something of that does not fit.
        """

    @abstractmethod
    def figure(self, given: Any, out: Path) -> Figure:
        """Return the figure of a finished run by which it is chosen."""

    def weights(self, given: Any, out: Path) -> int:
        """Return the number of weights of a finished run's model."""
        from neurodyn.dynamics.files.artifact import load
        from neurodyn.nets.size import weights_in

        return weights_in(load(out).parameters())


def paths_of(data: Paths) -> tuple[str, ...]:
    """Return the paths of one or several files."""
    return (data,) if isinstance(data, str) else data

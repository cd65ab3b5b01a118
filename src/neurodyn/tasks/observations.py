# SPDX-License-Identifier: Apache-2.0
"""Observations as named groups of terms: the name, the values and the noise of some columns in one place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.dynamics.quantities import Quantities

if TYPE_CHECKING:
    from neurodyn.tasks.task import Memory

POLICY, CRITIC = "policy", "critic"
"""Group that the policy and its critic see; group that PPO's critic sees beside it."""


def each(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return a text for each name, which replaces its braces, such as "{}_velocity"."""
    return tuple(text.format(name) for name in names)


@dataclass(frozen=True)
class ObservationTerm:
    """One term of an observation, with `scale` times its clipped values.

    Attributes:
        name: Name of the term.
        value: Name of a quantity, or a function of the quantities and the task's memory; values have shape [worlds,
            columns], or [worlds] for one column. By default the quantity with the term's name.
        columns: Names of its columns; by default one column with the term's name.
        noise: Half the width of the uniform noise added to each column in training, after scaling.
        scale: Factor on the values.
        clip: Range to which values are clipped before scaling; None for none.
    """

    name: str
    value: "str | Callable[[Quantities, Memory], Tensor]" = ""
    columns: tuple[str, ...] = ()
    noise: float = 0.0
    scale: float = 1.0
    clip: tuple[float, float] | None = None

    @property
    def quantity(self) -> str | None:
        """Name of the quantity that it shows; None for a function."""
        return (self.value or self.name) if isinstance(self.value, str) else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return self.columns or (self.name,)

    def __call__(self, quantities: Quantities, memory: "Memory") -> Tensor:
        """Return the values without noise, shape [worlds, columns].

        Raises:
            InputError: The number of columns differs from that of the names.
        """
        value = self.value
        values = quantities[value or self.name] if isinstance(value, str) else value(quantities, memory)
        values = values if values.ndim > 1 else values[:, None]
        if values.shape[-1] != len(self.names):
            raise InputError(
                f"observation term {self.name!r}: has {values.shape[-1]} columns; valid here: {len(self.names)}, one "
                "for each of its names"
            )
        values = values if self.clip is None else values.clamp(*self.clip)
        return values if self.scale == 1.0 else self.scale * values


class ObservationGroup:
    """Terms side by side, in order.

    Attributes:
        terms: The terms.
        columns: Names of all columns.
        noise: Half the width of the noise of each column in training; empty if no term has any.
    """

    def __init__(self, terms: Sequence[ObservationTerm]) -> None:
        self.terms = tuple(terms)
        self.columns = tuple(name for term in self.terms for name in term.names)
        noise = tuple(term.noise for term in self.terms for _ in term.names)
        self.noise = noise if any(noise) else ()

    def __call__(self, quantities: Quantities, memory: "Memory") -> Tensor:
        """Return the values of all columns without noise, shape [worlds, columns]."""
        return torch.cat([term(quantities, memory) for term in self.terms], dim=-1)

# SPDX-License-Identifier: Apache-2.0
"""Observations as named groups of terms: the name, the values and the noise of some columns in one place.

Terms are functions of named quantities and of the task's memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.dynamics.quantities import Quantities

POLICY, CRITIC, SENSED = "policy", "critic", "sensed"
"""Group that the policy and its critic see; group that PPO's critic sees beside it; further terms of policies that see
sensors."""


def each(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return a text for each name, which replaces its braces, such as "{}_velocity"."""
    return tuple(text.format(name) for name in names)


@dataclass(frozen=True)
class Memory:
    """Memory of a task for a batch of worlds.

    Attributes:
        action: The last action, shape [worlds, actions]; zero at a start.
        command: The command of the robot, shape [worlds, commands].
        joint_velocity: Joint velocities one frame ago [rad/s or m/s], shape [worlds, nj].
        air_time: Time that each foot has been in the air [s], shape [worlds, feet].
        frame: Frames since the start, shape [worlds], int64.
    """

    action: Tensor
    command: Tensor
    joint_velocity: Tensor
    air_time: Tensor
    frame: Tensor

    def rows(self, index: Tensor) -> "Memory":
        """Return some of the worlds, as `State.rows`."""
        return Memory(**{name: values[index] for name, values in vars(self).items()})

    @classmethod
    def concatenate(cls, parts: Sequence["Memory"]) -> "Memory":
        """Return the worlds of several memories one after another, as `State.concatenate`."""
        return cls(**{name: torch.cat([getattr(part, name) for part in parts]) for name in vars(parts[0])})

    def renew(self, mask: Tensor, fresh: "Memory") -> "Memory":
        """Return this memory with the values of `fresh` where `mask` is true, shape [worlds]."""
        values = {}
        for field in fields(self):
            old, new = getattr(self, field.name), getattr(fresh, field.name)
            chosen = torch.where(mask if old.ndim == 1 else mask[:, None], new, old) if old.numel() else old
            values[field.name] = chosen
        return Memory(**values)


Values = Callable[[Quantities, Memory], Tensor]
"""From quantities and the task's memory to values, shape [worlds, columns]."""


@dataclass(frozen=True)
class ObservationTerm:
    """One term of an observation, with `scale` times its clipped values.

    Attributes:
        name: Name of the term.
        value: Name of a quantity, or a function of the quantities and the task's memory with values of shape [worlds,
            columns]. By default the quantity with the term's name.
        columns: Names of its columns; by default one column with the term's name.
        noise: Half the width of the uniform noise added to each column in training, after scaling.
        scale: Factor on the values.
        clip: Range to which values are clipped before scaling; None for none.
        sensor: What a robot has to know it (`tasks.sensing.KNOWLEDGE`), such as "encoder" or "command"; "" if that
            follows from a known quantity or name, or if no sensor on board gives it.
        bias: Half the width of an offset of each column, drawn per episode in training.
        delay: Time by which its values are late in training [s].
        rate: Values per second, each held until the next [Hz]; None for one in every frame.
    """

    name: str
    value: str | Values = ""
    columns: tuple[str, ...] = ()
    noise: float = 0.0
    scale: float = 1.0
    clip: tuple[float, float] | None = None
    sensor: str = ""
    bias: float = 0.0
    delay: float = 0.0
    rate: float | None = None

    @property
    def source(self) -> str | Values:
        """Quantity or function of its values before clipping and scaling."""
        return self.value or self.name

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return self.columns or (self.name,)

    def adjust(self, values: Tensor) -> Tensor:
        """Return values clipped and scaled."""
        values = values if self.clip is None else values.clamp(*self.clip)
        return values if self.scale == 1.0 else self.scale * values


ObservationTerms = Mapping[str, Sequence[ObservationTerm]]
"""Terms by group."""


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
        self._sources = [term.source for term in self.terms]
        self._adjusted = [
            (place, term) for place, term in enumerate(self.terms) if term.clip is not None or term.scale != 1.0
        ]

    def __call__(self, quantities: Quantities, memory: Memory) -> Tensor:
        """Return the values of all columns without noise, shape [worlds, columns].

        Raises:
            InputError: A term has another number of columns than names.
        """
        parts = [
            quantities[source] if isinstance(source, str) else source(quantities, memory) for source in self._sources
        ]
        for place, term in self._adjusted:
            parts[place] = term.adjust(parts[place])
        observation = torch.cat(parts, dim=-1)
        if observation.shape[-1] != len(self.columns):
            term, width = next(
                (term, part.shape[-1])
                for term, part in zip(self.terms, parts, strict=True)
                if part.shape[-1] != len(term.names)
            )
            raise InputError(
                f"observation term {term.name!r} has {width} columns; valid: {len(term.names)}, one for each name"
            )
        return observation

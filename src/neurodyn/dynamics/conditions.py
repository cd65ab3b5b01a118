# SPDX-License-Identifier: Apache-2.0
"""Quantities of the robot that a network takes as inputs: one network for a family of robots."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from neurodyn.core.config import Config
from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.batch import Environment, WorldParameters
from neurodyn.geometry.tensors import index

if TYPE_CHECKING:
    from neurodyn.data.mixture import Mixture


class Condition(Config, frozen=True):
    """A quantity that a network takes as an input.

    Attributes:
        name: Name of the quantity.
        value: Value for worlds without their own (`Environment.parameters`).
        lower: Minimum in the training data.
        upper: Maximum in the training data.
    """

    name: str
    value: float
    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            raise ValueError(f"condition {self.name!r}: range is {self.lower:g} to {self.upper:g}; valid: ascending")


class ConditionInputs(nn.Module):
    """Inputs of a network from quantities of the robot, scaled to -1 to 1 over the range of the training data.

    Attributes:
        specs: The quantities.
        names: Their names.
        values: Values of worlds without their own, shape [conditions].
    """

    values: Tensor
    _middle: Tensor
    _gain: Tensor

    def __init__(self, specs: Sequence[Condition]) -> None:
        super().__init__()
        self.specs = tuple(specs)
        self.names = tuple(spec.name for spec in specs)
        lower, upper = (torch.tensor([getattr(spec, end) for spec in specs]) for end in ("lower", "upper"))
        self.register_buffer("values", torch.tensor([spec.value for spec in specs]), persistent=False)
        self.register_buffer("_middle", 0.5 * (lower + upper), persistent=False)
        self.register_buffer("_gain", 2.0 / (upper - lower), persistent=False)

    def __len__(self) -> int:
        return len(self.specs)

    def forward(self, environment: Environment | None, batch: torch.Size) -> Tensor:
        """Return the inputs of worlds, which run along the first axis of `batch`, shape [*batch, conditions]."""
        inputs = self.normalise(self.of_worlds(environment))
        return inputs.view(len(inputs), *(1,) * (len(batch) - 1), -1).expand(*batch, -1) if batch else inputs[0]

    def normalise(self, numbers: Tensor) -> Tensor:
        """Return the inputs for values, shape [..., conditions]."""
        return (numbers - self._middle) * self._gain

    def of_worlds(self, environment: Environment | None) -> Tensor:
        """Return the values in an environment, shape [worlds, conditions], or [1, conditions] for all worlds."""
        given = None if environment is None else environment.parameters
        if given is None:
            return self.values[None]
        numbers = given.numbers.to(self.values)
        if given.names == self.names:
            return numbers
        places = index(tuple(self.names.index(name) for name in given.names), self.values)
        return self.values.expand(given.worlds, -1).index_copy(1, places, numbers)

    def require(self, names: Sequence[str], owner: str) -> None:
        """Raise an `InputError` for a quantity that is not among the conditions; `owner` begins the message."""
        for name in names:
            if name not in self.names:
                raise InputError(
                    f"{owner}: its networks do not know parameter {name!r}; valid: {choices(self.names) or 'none'}"
                )


def world_parameters(conditions: Sequence[Condition], numbers: Tensor | None) -> Environment | None:
    """Return an environment with values of all conditions, shape [worlds, conditions]; None without any."""
    if numbers is None or not conditions:
        return None
    return Environment(parameters=WorldParameters(tuple(one.name for one in conditions), numbers))


def known_conditions(mixture: "Mixture", conditions: Sequence[Condition]) -> "Mixture":
    """Return data with only those parameters that are conditions of a model; without any if some data lack one.

    Data without parameters use the model's own values.
    """
    names = [one.name for one in conditions]
    whole = all(name in store.header.parameters for store in mixture.stores for name in names)
    return replace(mixture, stores=tuple(store.differing_in(names if whole else ()) for store in mixture.stores))


def fitted_conditions(mixture: "Mixture") -> tuple[Condition, ...]:
    """Return the parameters of data as conditions, with the ranges of the training episodes and declared values.

    Raises:
        InputError: A parameter is the same in all episodes, so that nothing can be learned about it.
    """
    from neurodyn.data.header import Split  # loads HDF5, which loading a model does not need
    from neurodyn.data.split import episodes_of

    if not mixture.header.parameters:
        return ()
    own = [(store.parameters, episodes_of(store, Split.TRAIN)) for store in mixture.stores]
    values = np.concatenate([numbers[episodes] for numbers, episodes in own if numbers is not None])
    conditions = []
    for (name, declared), column in zip(mixture.header.parameters.items(), values.T, strict=True):
        lower, upper = float(column.min()), float(column.max())
        if not lower < upper:
            raise InputError(f"condition {name!r} is {lower:g} in all training episodes; valid: one that differs")
        conditions.append(Condition(name=name, value=declared, lower=lower, upper=upper))
    return tuple(conditions)


def with_values(conditions: Sequence[Condition], values: Mapping[str, float], owner: str) -> tuple[Condition, ...]:
    """Return conditions with other values for worlds without their own; errors: see `ConditionInputs.require`."""
    ConditionInputs(conditions).require(tuple(values), owner)
    return tuple(
        Condition(name=one.name, value=float(values.get(one.name, one.value)), lower=one.lower, upper=one.upper)
        for one in conditions
    )

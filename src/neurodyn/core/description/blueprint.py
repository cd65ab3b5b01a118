# SPDX-License-Identifier: Apache-2.0
"""Blueprints: a hybrid model's networks, the quantities they act on, and the physical structure they preserve."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from neurodyn.core.activations import require_activation
from neurodyn.core.config import Config
from neurodyn.core.errors import require
from neurodyn.core.registry import Registry


@dataclass(frozen=True)
class Structure:
    """A physical structure imposed on a network's effect."""

    outputs: Callable[[int], int]
    """Number of network outputs as a function of the number of quantities."""
    start: float = 0.0
    """Scale of the last layer's initial weights; above 0 if effects are quadratic in the outputs, because the gradient
    vanishes at 0."""
    least: int = 1
    """Minimum number of quantities."""


_START = 0.1

FREE = "free"
STRUCTURES: Registry[Structure] = Registry(
    "structure",
    free=Structure(lambda n: n),
    dissipative=Structure(lambda n: n * (n + 1) // 2, _START),
    gyroscopic=Structure(lambda n: n * (n - 1) // 2, least=2),
    passive=Structure(lambda n: n * n, _START),
    conservative=Structure(lambda n: 1),
    inertial=Structure(lambda n: n * (n + 1) // 2, _START),
)
"""Structures by name; "free" imposes none."""


class Augmentation(Config, frozen=True):
    """One network of a hybrid model."""

    quantities: tuple[str, ...]
    """Names of the quantities it acts on, one output each."""
    inputs: tuple[str, ...]
    """Names of its inputs; "NAME@AGE" is a quantity AGE seconds ago."""
    mode: Literal["add", "scale", "replace"] = "add"
    """"add" the outputs to the quantities, "scale" the quantities by one plus the outputs, or "replace" them."""
    structure: str = FREE
    """Physical property guaranteed for any weights (`multibody.structures`): "free" for none, "dissipative",
    "gyroscopic" or "passive" forces, "conservative" torques, "inertial" additions to the mass matrix."""
    hidden: tuple[int, ...] = (16, 16)
    """Widths of its hidden layers; empty for a linear map."""
    activation: str = "tanh"
    input_scale: tuple[float, ...] = ()
    """Divisor of each input; empty for ones."""
    output_scale: tuple[float, ...] = ()
    """Factor on each output; empty for ones."""
    memory: int = 0
    """Size of a hidden state, which is also an input; see `multibody.scope`."""
    memory_time: float = 0.02
    """Shortest time constant of the hidden state [s]."""
    shared: str = ""
    """Name of its weights; networks with the same name and equal widths share weights. Empty for its own."""

    def __post_init__(self) -> None:
        for what in ("quantities", "inputs"):
            names = getattr(self, what)
            if not names:
                raise ValueError(f"an augmentation has no {what}; name at least one")
            if len(set(names)) < len(names):
                raise ValueError(f"an augmentation lists one of its {what} twice: {', '.join(names)}")
        wide = all(width >= 1 for width in self.hidden)
        require(wide, "hidden", list(self.hidden), "widths of at least 1, or nothing for a linear map")
        given = f"{self.memory} with memory_time {self.memory_time:g}"
        fine = self.memory >= 0 and 0 < self.memory_time < math.inf
        require(fine, "memory", given, "a number of at least 0 and a time above 0 [s]")
        require_activation(self.activation, "value")
        self._require_structure()
        for name in self.inputs:
            split_age(name.removesuffix(")"))
        for what, names in (("input_scale", self.inputs), ("output_scale", self.quantities)):
            scales = getattr(self, what)
            fine = len(scales) in (0, len(names)) and all(0 < abs(s) < math.inf for s in scales)
            require(fine, what, list(scales), f"{len(names)} finite numbers other than 0")

    def _require_structure(self) -> None:
        STRUCTURES.require(self.structure)
        least = STRUCTURES[self.structure].least
        if len(self.quantities) < least:
            raise ValueError(
                f"structure {self.structure} is of at least {least} quantities, not {len(self.quantities)}"
            )
        if self.structure != FREE and self.mode != "add":
            raise ValueError(f"mode is {self.mode!r} with structure {self.structure}; valid with it: add")

    @property
    def outputs(self) -> int:
        """Number of outputs, not counting those that drive a memory."""
        return STRUCTURES[self.structure].outputs(len(self.quantities))

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of all layers, including inputs and outputs."""
        return (len(self.inputs) + self.memory, *self.hidden, self.outputs + 2 * self.memory)

    @property
    def remembers(self) -> bool:
        """Whether it depends on earlier steps, through a memory or delayed inputs."""
        return self.memory > 0 or any("@" in name or name.startswith("innovation.") for name in self.inputs)

    @property
    def weights(self) -> int:
        """Number of weights: for each layer a row-major matrix [out, in], then its bias [out]."""
        return sum(b * (a + 1) for a, b in zip(self.widths, self.widths[1:], strict=False))


def split_age(name: str) -> tuple[str, float]:
    """Split an input into quantity and age [s]: "qd.elbow@0.01" is a velocity 10 ms ago."""
    quantity, at, text = name.partition("@")
    if not at:
        return quantity, 0.0
    try:
        age = float(text)
    except ValueError:
        age = math.nan
    if not (quantity and 0 < age < math.inf):
        raise ValueError(f"input {name!r} is malformed; valid: NAME, or NAME@AGE with an age above 0 [s]")
    return quantity, age


class Blueprint(Config, frozen=True):
    """All networks of a hybrid model."""

    augmentations: tuple[Augmentation, ...] = ()
    """The networks; at most one acts on each quantity."""

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for augmentation in self.augmentations:
            for name in augmentation.quantities:
                if name in seen:
                    raise ValueError(f"two augmentations act on {name!r}; valid: one, with all the inputs")
                seen.add(name)
        owners: dict[str, Augmentation] = {}
        for augmentation in self.augmentations:
            owner = owners.setdefault(augmentation.shared, augmentation)
            alike = (owner.widths, owner.structure) == (augmentation.widths, augmentation.structure)
            if augmentation.shared and not alike:
                raise ValueError(
                    f"networks share the weights {augmentation.shared!r} and have widths {list(owner.widths)} and "
                    f"{list(augmentation.widths)}; valid: equal numbers of inputs, hidden units and quantities, and "
                    "one structure"
                )

    @property
    def owners(self) -> tuple[Augmentation, ...]:
        """Networks that own weights, in order; of those that share weights, the first."""
        return tuple(one for index, one in enumerate(self.augmentations) if self._owner(index) == index)

    @property
    def firsts(self) -> tuple[int, ...]:
        """Index of the first weight of each network."""
        begin, firsts = 0, []
        for index, augmentation in enumerate(self.augmentations):
            owner = self._owner(index)
            firsts.append(begin if owner == index else firsts[owner])
            begin += augmentation.weights if owner == index else 0
        return tuple(firsts)

    @property
    def weights(self) -> int:
        """Number of weights of all networks, in their order."""
        return sum(augmentation.weights for augmentation in self.owners)

    def _owner(self, index: int) -> int:
        """Return the index of the network that owns the weights of network `index`."""
        name = self.augmentations[index].shared
        if not name:
            return index
        return next(k for k, one in enumerate(self.augmentations) if one.shared == name)

# SPDX-License-Identifier: Apache-2.0
r"""Search spaces of the least squares: coordinates of the free quantities.

`SearchSpace` has scaled physical values. `CoordinateSpace` has prior standard deviations: a quantity that cannot be
negative is log-normal around its nominal value $v_0$, shifted by a size s below which it does not matter, so that a
nominal 0 is a valid start:

$$v = (v_0 + s)\,e^{\sigma x} - s$$

A quantity with either sign is normal, $v = v_0 + \sigma x$. A coordinate may act on several quantities: the mass of a
limb scales the masses and inertias of its links, and the payload of a base adds a body to it, so that all values are
physically consistent inertias (Wensing, Kim and Slotine 2018).
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.description.mechanism import INERTIA_ENTRIES, Mechanism
from neurodyn.dynamics.hybrid.parameters import Parameters, size_of


class BoxedSpace:
    """Coordinates x of free quantities, between bounds.

    Attributes:
        names: Names of the coordinates.
        lower: Lower bounds, shape [n].
        upper: Upper bounds, shape [n].
        nominal: Coordinates of the nominal values, shape [n].
    """

    names: tuple[str, ...]
    lower: Tensor
    upper: Tensor
    nominal: Tensor

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values of all free quantities, shape [..., quantities]."""
        raise NotImplementedError

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of all coordinates, also those that are held."""
        return self.names

    def whole(self, x: Tensor) -> Tensor:
        """Return all coordinates, also those that are held, shape [..., all coordinates]."""
        return x

    def values_of_whole(self, whole: Tensor) -> Tensor:
        """Return the physical values at all coordinates, also those that are held, shape [..., quantities]."""
        return self.values(whole)

    def clip(self, x: Tensor) -> Tensor:
        """Return the nearest coordinates within the bounds."""
        return torch.minimum(torch.maximum(x, self.lower), self.upper)

    def at_active_bound(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Return which coordinates lie on a bound that a descent step would cross, bool, shape [..., n]."""
        return ((x <= self.lower) & (gradient > 0)) | ((x >= self.upper) & (gradient < 0))


class SearchSpace(BoxedSpace):
    """Scaled coordinates, value = size x, except for full inertias.

    Attributes:
        fixed: Coordinates that are held constant, bool, shape [n].
    """

    def __init__(self, quantities: Parameters) -> None:
        self._quantities = quantities
        specs = quantities.specs
        self.names = tuple(spec.name for spec in specs)
        self._size = torch.tensor([size_of(spec) for spec in specs], dtype=torch.float64)
        self._block = torch.zeros(len(specs), dtype=torch.bool)
        self._block[[index for block in quantities.blocks for index in block]] = True
        lower = [-math.inf if spec.lower is None else spec.lower for spec in specs]
        upper = [math.inf if spec.upper is None else spec.upper for spec in specs]
        self.lower = self._bound(lower, -math.inf)
        self.upper = self._bound(upper, math.inf)
        self.nominal = self.of(quantities.nominal)
        self.fixed = torch.zeros(len(specs), dtype=torch.bool)

    def fixing(self, column: int) -> "SearchSpace":
        """Return this space with one coordinate fixed."""
        space = copy.copy(self)
        space.fixed = self.fixed.clone()
        space.fixed[column] = True
        return space

    def _bound(self, values: list[float], otherwise: float) -> Tensor:
        return torch.where(self._block, otherwise, torch.tensor(values, dtype=torch.float64) / self._size)

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values of coordinates, shape [..., n]."""
        if not self._block.any():
            return x * self._size
        return torch.where(self._block, self._quantities(x), x * self._size)

    def of(self, values: Tensor) -> Tensor:
        """Return the coordinates of physical values, shape [..., n]."""
        x = values / self._size
        return torch.where(self._block, self._quantities.raw_of(values), x) if self._block.any() else x

    def at_active_bound(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Return which coordinates are fixed, or lie on a bound that a descent step would cross."""
        return self.fixed | super().at_active_bound(x, gradient)


class FixedSpace(BoxedSpace):
    """An empty search space: quantities keep their values, only initial states are searched."""

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self.names = ()
        self.lower = self.upper = self.nominal = values.new_zeros(0)

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values, shape [..., n]."""
        return self._values.expand(*x.shape[:-1], len(self._values))


_MOST = 8.0
"""Bound of the search, in standard deviations."""


@dataclass(frozen=True)
class Coordinate:
    """One fitted number.

    Attributes:
        name: Name of the quantity, or of the coordinate, such as "payload.mass" or "leg.mass_scale".
        nominal: Declared value; for a payload, the start of the search.
        width: Prior standard deviation: of its logarithm, or if `signed` of itself.
        size: Size s below which a positive quantity does not matter; 0 for a plain log-normal one.
        signed: Whether it may have either sign.
        quantities: Quantities of the mechanism with this value; empty if `CoordinateSpace` knows what it acts on.
        least: Lower bound; None for none, or 0 if the quantity cannot be negative.
        most: Upper bound; None for none.
        unit: Unit of the value.
        declared: Declared value if it differs from `nominal`; None for `nominal`.
    """

    name: str
    nominal: float
    width: float
    size: float = 0.0
    signed: bool = False
    quantities: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    unit: str = ""
    declared: float | None = None

    @property
    def declared_value(self) -> float:
        """Declared value."""
        return self.nominal if self.declared is None else self.declared

    def value(self, x: Tensor) -> Tensor:
        """Return values of coordinates of any shape."""
        if self.signed:
            return self.nominal + self.width * x
        return self.nominal + (self.nominal + self.size) * torch.expm1(self.width * x)  # exactly nominal at 0

    def of(self, value: float) -> float:
        """Return the coordinate of a value, infinite if there is none."""
        if self.signed:
            return (value - self.nominal) / self.width
        share = (value + self.size) / (self.nominal + self.size)
        return math.log(share) / self.width if share > 0.0 else -math.inf

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the coordinate."""
        least = self.least if self.least is not None or self.signed else 0.0
        lower = -_MOST if least is None else max(-_MOST, self.of(least))
        return lower, _MOST if self.most is None else min(_MOST, self.of(self.most))


MASS_SCALE = "mass_scale"
PAYLOAD = ("payload.mass", "payload.x", "payload.y", "payload.z", "payload.radius")


class CoordinateSpace(BoxedSpace):
    """Coordinates of a mechanism's free quantities; the search starts at the declared values.

    Attributes:
        coordinates: The coordinates.
        quantities: Names of the physical quantities, in the order of `values`.
        declared: Coordinates of the declared values, shape [n].
    """

    def __init__(
        self, mechanism: Mechanism, coordinates: Sequence[Coordinate], limbs: Mapping[str, Sequence[str]],
        declared: Mapping[str, float],
    ) -> None:  # fmt: skip
        """Prepare the coordinates.

        Args:
            mechanism: The mechanism as declared.
            coordinates: The free coordinates.
            limbs: Links of each coordinate "LIMB.mass_scale", by limb.
            declared: Declared values of all quantities.
        """
        self.coordinates = tuple(coordinates)
        self.names = tuple(one.name for one in coordinates)
        self._declared, self._limbs = dict(declared), {name: tuple(links) for name, links in limbs.items()}
        self._base = mechanism.links[0].joint.name
        self._index = {name: k for k, name in enumerate(self.names)}
        self.payload = PAYLOAD[0] in self._index
        self.lower, self.upper = (torch.tensor(bound, dtype=torch.float64) for bound in self._bounds())
        self.declared = self.clip(
            torch.tensor([one.of(one.declared_value) for one in coordinates], dtype=torch.float64)
        )
        self.nominal = torch.zeros(len(self.names), dtype=torch.float64).clamp(self.lower, self.upper)
        self.quantities = tuple(self._quantities())

    def _bounds(self) -> tuple[list[float], list[float]]:
        ranges = [one.range for one in self.coordinates]
        return [low for low, _ in ranges], [high for _, high in ranges]

    def _quantities(self) -> list[str]:
        names = dict.fromkeys(name for one in self.coordinates for name in one.quantities)
        for limb in self._limbs:
            if f"{limb}.{MASS_SCALE}" in self._index:
                for link in self._limbs[limb]:
                    names |= dict.fromkeys(_inertial(link))
        if self.payload:
            names |= dict.fromkeys([*_inertial(self._base), *(f"{self._base}.com.{axis}" for axis in "xyz")])
        return list(names)

    def value(self, name: str, x: Tensor) -> Tensor:
        """Return the value of one coordinate, from coordinates of shape [..., n]."""
        index = self._index[name]
        return self.coordinates[index].value(x[..., index])

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values of `quantities`, shape [..., quantities], from coordinates [..., n]."""
        values: dict[str, Tensor] = {}
        for one in self.coordinates:
            for name in one.quantities:
                values[name] = self.value(one.name, x)
        for limb, links in self._limbs.items():
            if f"{limb}.{MASS_SCALE}" not in self._index:
                continue
            scale = self.value(f"{limb}.{MASS_SCALE}", x)
            for link in links:
                values |= {name: values.get(name, self._declared[name]) * scale for name in _inertial(link)}
        if self.payload:
            values |= self._with_payload(x, values)
        return torch.stack([values[name] for name in self.quantities], -1) if self.quantities else x[..., :0]

    def _with_payload(self, x: Tensor, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return mass, centre and inertia of the base with its payload, a ball at a point in the base's body frame."""
        base, declared = self._base, self._declared

        def base_value(name: str) -> Tensor:
            return values.get(f"{base}.{name}", x.new_full(x.shape[:-1], declared[f"{base}.{name}"]))

        mass, (added, *position, radius) = base_value("mass"), (self.value(name, x) for name in PAYLOAD)
        total = mass + added
        centre = [base_value(f"com.{axis}") for axis in "xyz"]
        joint = [(mass * c + added * p) / total for c, p in zip(centre, position, strict=True)]
        inertia = dict(zip(INERTIA_ENTRIES, (base_value(f"inertia.{entry}") for entry in INERTIA_ENTRIES), strict=True))
        arm = [p - c for p, c in zip(position, centre, strict=True)]
        reduced, ball = mass * added / total, added * radius.square()
        square = sum((a.square() for a in arm), torch.zeros_like(mass))
        result = {f"{base}.mass": total, **{f"{base}.com.{axis}": c for axis, c in zip("xyz", joint, strict=True)}}
        for entry in INERTIA_ENTRIES:
            i, j = ("xyz".index(letter) for letter in entry)
            moved = reduced * ((square if i == j else 0.0) - arm[i] * arm[j])
            result[f"{base}.inertia.{entry}"] = inertia[entry] + moved + (ball if i == j else 0.0)
        return result


class PartOfSpace(BoxedSpace):
    """Some coordinates of a space, with the others held; a `Space` of least squares.

    Attributes:
        kept: Indices of the coordinates, shape [n].
        names: Their names.
        lower: Lower bounds, shape [n].
        upper: Upper bounds, shape [n].
        nominal: Start of the search, shape [n].
    """

    def __init__(self, space: BoxedSpace, kept: Tensor, held: Tensor) -> None:
        """Prepare the coordinates.

        Args:
            space: The whole space.
            kept: Indices of the searched coordinates, shape [n].
            held: Values of all coordinates, of which those of the others count, shape [coordinates of `space`].
        """
        self._space, self.kept, self._held = space, kept, held
        self.names = tuple(space.names[k] for k in kept.tolist())
        self.lower, self.upper, self.nominal = space.lower[kept], space.upper[kept], space.nominal[kept]

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of the coordinates of the whole space."""
        return self._space.all_names

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values of the whole space's quantities, shape [..., quantities]."""
        return self._space.values(self._of_space(x))

    def values_of_whole(self, whole: Tensor) -> Tensor:
        """Return the physical values at coordinates of the whole space, shape [..., quantities]."""
        return self._space.values_of_whole(whole)

    def whole(self, x: Tensor) -> Tensor:
        """Return the coordinates of the whole space, shape [..., coordinates of the whole space]."""
        return self._space.whole(self._of_space(x))

    def _of_space(self, x: Tensor) -> Tensor:
        whole = self._held.expand(*x.shape[:-1], -1).clone()
        whole[..., self.kept] = x
        return whole


def _inertial(link: str) -> list[str]:
    return [f"{link}.mass", *(f"{link}.inertia.{entry}" for entry in INERTIA_ENTRIES)]

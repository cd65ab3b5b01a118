# SPDX-License-Identifier: Apache-2.0
r"""Coordinates of a worn robot's quantities, each in prior standard deviations.

A quantity that cannot be negative is log-normal around its declared value $v_0$, shifted by a size s below which it
does not matter, so that a declared 0 is a valid start:

$$v = (v_0 + s)\,e^{\sigma x} - s$$

A quantity with either sign is normal, $v = v_0 + \sigma x$. A coordinate may act on several quantities: the mass of a
limb scales the masses and inertias of its links, and the payload of a base adds a body to it, so that all values are
physically consistent inertias (Wensing, Kim and Slotine 2018).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.description.mechanism import INERTIA_ENTRIES, Mechanism
from neurodyn.identify.search_space import BoxedSpace

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
        return (self.nominal + self.size) * torch.exp(self.width * x) - self.size

    def of(self, value: float) -> float:
        """Return the coordinate of a value, infinite if there is none."""
        if self.signed:
            return (value - self.nominal) / self.width
        share = (value + self.size) / (self.nominal + self.size)
        return math.log(share) / self.width if share > 0.0 else -math.inf

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the coordinate."""
        lower = -_MOST if self.signed else max(-_MOST, self.of(0.0))
        return lower, _MOST if self.most is None else min(_MOST, self.of(self.most))


MASS_SCALE = "mass_scale"
PAYLOAD = ("payload.mass", "payload.x", "payload.y", "payload.z", "payload.radius")


class CoordinateSpace(BoxedSpace):
    """Coordinates of a mechanism's free quantities; the search starts at the declared values.

    Attributes:
        coordinates: The coordinates.
        quantities: Names of the physical quantities, in the order of `values`.
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
                values |= {name: self._declared[name] * scale for name in _inertial(link)}
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
        centre = [x.new_full(x.shape[:-1], declared[f"{base}.com.{axis}"]) for axis in "xyz"]
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
    """Some coordinates of a space, with the others at their nominal values; a `Space` of least squares.

    Attributes:
        kept: Indices of the coordinates, shape [n].
        names: Their names.
        lower: Lower bounds, shape [n].
        upper: Upper bounds, shape [n].
        nominal: Start of the search, shape [n].
    """

    def __init__(self, space: CoordinateSpace, kept: Tensor) -> None:
        self._space, self.kept = space, kept
        self.names = tuple(space.names[k] for k in kept.tolist())
        self.lower, self.upper, self.nominal = space.lower[kept], space.upper[kept], space.nominal[kept]

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values of the whole space's quantities, shape [..., quantities]."""
        whole = self._space.nominal.expand(*x.shape[:-1], -1).clone()
        whole[..., self.kept] = x
        return self._space.values(whole)


def _inertial(link: str) -> list[str]:
    return [f"{link}.mass", *(f"{link}.inertia.{entry}" for entry in INERTIA_ENTRIES)]

# SPDX-License-Identifier: Apache-2.0
r"""Search spaces of the least squares: coordinates of the free quantities.

`SearchSpace` has scaled physical values. `CoordinateSpace` has prior standard deviations: a quantity that cannot be
negative is log-normal around its nominal value $v_0$, shifted by a size s below which it does not matter, so that a
nominal 0 is a valid start:

$$v = (v_0 + s)\,e^{\sigma x} - s$$

A quantity with either sign is normal, $v = v_0 + \sigma x$. A coordinate may act on several quantities: the mass of a
limb scales the masses and inertias of its links, and a payload adds a body to a link (`bodies`), so that all values are
physically consistent inertias (Wensing, Kim and Slotine 2018).
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from neurodyn.core.description.mechanism import INERTIA_ENTRIES, Mechanism
from neurodyn.dynamics.hybrid.parameters import Parameters, size_of
from neurodyn.identify.unknowns.bodies import BodyTensors, stretch, with_ball, with_moment
from neurodyn.identify.unknowns.torque_scale import scaled_coordinates


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

    @property
    def rates(self) -> Tensor:
        """Growth of the logarithm of each value by its coordinate, 0 for values linear in it, shape [n]."""
        return torch.zeros_like(self.lower)

    def moved(self, x: Tensor, change: Tensor) -> Tensor:
        """Return coordinates after a step along which values change linearly, within the bounds.

        Motion is linear in most quantities, so that valleys of costs (another gain with another friction and inertia)
        are straight in values, and curved in their logarithms.
        """
        growth, rates = (self.rates * change).clamp_min(_LEAST_GROWTH), self.rates.clamp_min(1e-12)
        return self.clip(x + torch.where(self.rates > 0.0, torch.log1p(growth) / rates, change))

    def unseen(self, x: Tensor) -> Tensor | None:
        """Return a direction in which no roll-out changes, from coordinates x, of x's shape; None for none."""
        return None

    def reach(self, x: Tensor, most: float) -> tuple[Tensor, Tensor]:
        """Return the least and the largest step (`moved`) from coordinates x, to bounds or by `most`, of x's shape."""
        rates = self.rates.clamp_min(1e-12)
        ends = ((bound - x).clamp(-most, most) for bound in (self.lower, self.upper))
        low, high = (torch.where(self.rates > 0.0, torch.expm1(rates * end) / rates, end) for end in ends)
        return low, high

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


_SCALINGS, _MOST_SCALING = 5, 0.3
"""Steps to the likely scale, and the longest one of its logarithm."""
_LEAST_GROWTH = -0.99
"""Least relative change of a value in a step."""

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
        guessed: Whether declarations often hold a placeholder, so that a log may widen the prior (`widened`).
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
    guessed: bool = False

    @property
    def declared_value(self) -> float:
        """Declared value."""
        return self.nominal if self.declared is None else self.declared

    def value(self, x: Tensor) -> Tensor:
        """Return values of coordinates of any shape; at a bound of the value, exactly that."""
        return self._alone(x[..., None])[..., 0]

    @cached_property
    def _alone(self) -> "_ValuesOfAll":
        return _ValuesOfAll([self])

    def of(self, value: float) -> float:
        """Return the coordinate of a value, infinite if there is none."""
        if self.signed:
            return (value - self.nominal) / self.width
        share = (value + self.size) / (self.nominal + self.size)
        return math.log(share) / self.width if share > 0.0 else -math.inf

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of the coordinate."""
        least, most = self.least_value, self.most
        lower = -_MOST if least is None else max(-_MOST, self.of(least))
        return lower, _MOST if most is None else min(_MOST, self.of(most))

    @property
    def least_value(self) -> float | None:
        """Lower bound of the value; None for none."""
        return self.least if self.least is not None or self.signed else 0.0

    def widened(self, x: float) -> "Coordinate":
        """Return this coordinate with a prior wide enough for a value that a log places x deviations away."""
        return replace(self, width=self.width * max(1.0, abs(x)))


class _ValuesOfAll:
    """Values of coordinates, all at once."""

    def __init__(self, coordinates: Sequence[Coordinate]) -> None:
        def column(of: Callable[[Coordinate], float]) -> Tensor:
            return torch.tensor([of(one) for one in coordinates], dtype=torch.float64)

        def reached(one: Coordinate, bound: float | None, never: float) -> float:
            return one.of(bound) if bound is not None and abs(one.of(bound)) < _MOST else never

        self._signed = torch.tensor([one.signed for one in coordinates], dtype=torch.bool)
        self._nominal, self._width = column(lambda one: one.nominal), column(lambda one: one.width)
        self._grown = column(lambda one: one.nominal + one.size)
        self._lower = column(lambda one: reached(one, one.least_value, -math.inf))
        self._upper = column(lambda one: reached(one, one.most, math.inf))
        self._least, self._most = column(lambda one: one.least_value or 0.0), column(lambda one: one.most or 0.0)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the values, shape [..., n], of coordinates [..., n]."""
        moved = self._width * x
        grown = self._grown * torch.expm1(torch.where(self._signed, 0.0, moved))  # exactly nominal at 0
        value = self._nominal + torch.where(self._signed, moved, grown)
        value = torch.where(x <= self._lower, self._least, value)
        return torch.where(x >= self._upper, self._most, value)


IMPLAUSIBLE = 3.0
"""Deviations of its prior from the declared value beyond which a value stands in for something else."""
MASS_SCALE = "mass_scale"
INERTIA_SCALE = "inertia_scale"
"""Factor on all entries of a link's inertia about its centre."""
EXTENT = ("extent.x", "extent.y", "extent.z")
"""Factors on a link's extents, on which its inertia depends (`bodies.stretch`)."""
PAYLOAD = ("payload.mass", "payload.x", "payload.y", "payload.z", "payload.radius")
ADDED = ("added.mass", "added.x", "added.y", "added.z")
"""Mass [kg] and first moment [kg m] added to a link, in whose first order a payload or a moved centre is seen."""


class CoordinateSpace(BoxedSpace):
    """Coordinates of a mechanism's free quantities; the search starts at the declared values.

    Attributes:
        coordinates: The coordinates.
        known: Further coordinates with a value that the user knows.
        quantities: Names of the physical quantities, in the order of `values`.
        declared: Coordinates of the declared values, shape [n].
        carrier: Joint of the link with the payload; empty without one.
    """

    def __init__(
        self, mechanism: Mechanism, coordinates: Sequence[Coordinate], limbs: Mapping[str, Sequence[str]],
        declared: Mapping[str, float], *, known: Sequence[tuple[Coordinate, float]] = (), carrier: str = "",
        spare: Sequence[str] = (), recorded: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Prepare the coordinates.

        Args:
            mechanism: The mechanism as declared.
            coordinates: The free coordinates.
            limbs: Links of each coordinate "LIMB.mass_scale", by limb.
            declared: Declared values of all quantities.
            known: Further coordinates, each with its value.
            carrier: Joint of the link with the payload; empty for the first.
            spare: Further quantities of `values`, on which other coordinates of the same model may act.
            recorded: Quantities of `values` that the log gives by run; nothing acts on them.
        """
        self.coordinates, self.known = tuple(coordinates), tuple(known)
        self._values_of_all = _ValuesOfAll(coordinates)
        self.names = tuple(one.name for one in coordinates)
        self._declared, self._limbs = dict(declared), {name: tuple(links) for name, links in limbs.items()}
        self._index = {name: k for k, name in enumerate(self.names)}
        self._recorded = tuple(recorded)
        self._known = {one.name: value for one, value in known}
        self.carrier = (carrier or mechanism.links[0].joint.name) if self.has(PAYLOAD[0]) else ""
        driven = {name: drive for name, drive in mechanism.drives.items() if not drive.constrains}
        self._torques = [self._index[name] for name in scaled_coordinates(self.names, driven, self._limbs, self._known)]
        self._added = [name for name in mechanism.names if f"{name}.{ADDED[0]}" in self._index]
        self._scaled = [name for name in mechanism.names if self.has(f"{name}.{INERTIA_SCALE}")]
        self._stretched = [name for name in mechanism.names if self.has(f"{name}.{EXTENT[0]}")]
        self.lower, self.upper = (torch.tensor(bound, dtype=torch.float64) for bound in self._bounds())
        self.declared = self.clip(
            torch.tensor([one.of(one.declared_value) for one in coordinates], dtype=torch.float64)
        )
        self.nominal = torch.zeros(len(self.names), dtype=torch.float64).clamp(self.lower, self.upper)
        self.quantities = tuple(dict.fromkeys([*spare, *self._quantities(), *recorded]))

    @property
    def rates(self) -> Tensor:
        """Growth of the logarithm of each value by its coordinate, 0 for values with either sign."""
        return torch.tensor([0.0 if one.signed else one.width for one in self.coordinates], dtype=torch.float64)

    def unseen(self, x: Tensor) -> Tensor | None:
        """Return the direction of a common scale of masses and torques, by its logarithm; None if it is known."""
        if not self._torques:
            return None
        direction = torch.zeros_like(x)
        for k in self._torques:
            one, value = self.coordinates[k], self.coordinates[k].value(x[..., k])
            direction[..., k] = value / (one.width * (1.0 if one.signed else value + one.size))
        return direction

    def scaled(self, x: Tensor, factor: float) -> Tensor:
        """Return coordinates [n] with all masses and torques multiplied by a factor, within bounds."""
        moved = x.clone()
        for k in self._torques:
            moved[k] = self.coordinates[k].of(float(self.coordinates[k].value(x[k])) * factor)
        return self.clip(moved)

    def with_likely_scale(self, x: Tensor, among: Tensor | None = None) -> Tensor:
        """Return coordinates [n] with the common scale of masses and torques that the priors expect.

        Only those `among` move, bool, shape [n], by default all.
        """
        if among is not None:
            return torch.where(among, self.with_likely_scale(x), x)
        for _ in range(_SCALINGS):
            if (direction := self.unseen(x)) is None:
                return x
            change = -float(direction @ x) / max(float(direction @ direction), 1e-12)
            x = self.scaled(x, math.exp(min(max(change, -_MOST_SCALING), _MOST_SCALING)))
        return x

    def _bounds(self) -> tuple[list[float], list[float]]:
        ranges = [one.range for one in self.coordinates]
        return [low for low, _ in ranges], [high for _, high in ranges]

    def _quantities(self) -> list[str]:
        every = (*self.coordinates, *(one for one, _ in self.known))
        names = dict.fromkeys(name for one in every for name in one.quantities)
        for limb in self._limbs:
            if self.has(f"{limb}.{MASS_SCALE}"):
                for link in self._limbs[limb]:
                    names |= dict.fromkeys(_inertial(link))
        for link in {self.carrier, *self._added} - {""}:
            names |= dict.fromkeys(inertial_quantities(link))
        for link in (*self._scaled, *self._stretched):
            names |= dict.fromkeys(_inertial(link))
        return list(names)

    def value(self, name: str, x: Tensor) -> Tensor:
        """Return the value of one coordinate, from coordinates of shape [..., n]."""
        if name in self._known:
            return x.new_full(x.shape[:-1], self._known[name])
        index = self._index[name]
        return self.coordinates[index].value(x[..., index])

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values of `quantities`, shape [..., quantities], from coordinates [..., n]."""
        values, every = dict[str, Tensor](), self._values_of_all(x).unbind(-1)

        def of(name: str) -> Tensor:
            return self.value(name, x) if name in self._known else every[self._index[name]]

        for one in (*self.coordinates, *(one for one, _ in self.known)):
            values |= dict.fromkeys(one.quantities, of(one.name))
        for limb, links in self._limbs.items():
            if not self.has(f"{limb}.{MASS_SCALE}"):
                continue
            scale = of(f"{limb}.{MASS_SCALE}")
            for link in links:
                values |= {name: values.get(name, self._declared[name]) * scale for name in _inertial(link)}
        for link in self._scaled:
            scale = of(f"{link}.{INERTIA_SCALE}")
            values |= {name: values.get(name, self._declared[name]) * scale for name in _moments(link)}
        for link in self._stretched:
            factors = [of(f"{link}.{what}") for what in EXTENT]
            inertia = stretch(self._body(link, x, values).inertia, factors)
            values |= {f"{link}.inertia.{entry}": value for entry, value in inertia.items()}
        if self.carrier:
            mass, *place, radius = (of(name) for name in PAYLOAD)
            values |= with_ball(self._body(self.carrier, x, values), mass, place, radius).quantities(self.carrier)
        for link in self._added:
            mass, *moment = (of(f"{link}.{what}") for what in ADDED)
            values |= with_moment(self._body(link, x, values), mass, moment).quantities(link)
        rows = [values[name] if name in values else self._constant(name, x) for name in self.quantities]
        return torch.stack(rows, -1) if rows else x[..., :0]

    def extended(self, mechanism: Mechanism, more: Sequence[Coordinate]) -> "CoordinateSpace":
        """Return this space with further coordinates after its own, which act on the same quantities.

        Those that were known are so no longer.
        """
        free = {one.name for one in more}
        return CoordinateSpace(
            mechanism, (*self.coordinates, *more), self._limbs, self._declared, carrier=self.carrier,
            known=[one for one in self.known if one[0].name not in free], spare=self.quantities,
            recorded=self._recorded,
        )  # fmt: skip

    @property
    def widths(self) -> dict[str, float]:
        """Prior standard deviation of each coordinate."""
        return {one.name: one.width for one in self.coordinates}

    def with_widths(self, widths: Mapping[str, float]) -> "CoordinateSpace":
        """Return this space with other prior standard deviations where some are given."""
        return self._with([replace(one, width=widths.get(one.name, one.width)) for one in self.coordinates])

    @property
    def acting(self) -> tuple[str, ...]:
        """Quantities on which coordinates act."""
        return tuple(dict.fromkeys(self._quantities()))

    @property
    def lean(self) -> "CoordinateSpace":
        """This space without spare quantities."""
        space = copy.copy(self)
        space.quantities = tuple(dict.fromkeys([*self.acting, *self._recorded]))
        return space

    def has(self, name: str) -> bool:
        """Return whether a coordinate is free or known."""
        return name in self._index or name in self._known

    def _constant(self, name: str, x: Tensor) -> Tensor:
        return x.new_full(x.shape[:-1], self._declared[name])

    def _body(self, link: str, x: Tensor, values: Mapping[str, Tensor]) -> BodyTensors:
        """Return a link's body, without what is added to it."""

        def value(name: str) -> Tensor:
            return values[f"{link}.{name}"] if f"{link}.{name}" in values else self._constant(f"{link}.{name}", x)

        inertia = {entry: value(f"inertia.{entry}") for entry in INERTIA_ENTRIES}
        return BodyTensors(value("mass"), [value(f"com.{axis}") for axis in "xyz"], inertia)

    def widened(self, x: Tensor, beyond: float) -> "tuple[CoordinateSpace, Tensor]":
        """Return this space with wider priors of guessed quantities that are `beyond` so many deviations, and its x.

        So do others that reach the bound of the search, which is no bound of their values; not masses, for which
        something heavy that the model lacks is the likelier reason.
        """
        x, changed = x.clone(), list(self.coordinates)
        for k, one in enumerate(self.coordinates):
            reached = abs(float(x[k]))
            bounded = reached > _MOST - 1e-6 and not one.name.endswith(MASS_SCALE)
            if (one.guessed and reached > beyond) or bounded:
                changed[k] = one.widened(float(x[k]))
                x[k] = x[k] * one.width / changed[k].width
        space = self._with(changed)
        return space, space.clip(x)

    def converted(self, x: Tensor, other: "CoordinateSpace") -> Tensor:
        """Return coordinates of another space that differs by the widths of priors, shape [..., n]."""
        widths, before = (
            torch.tensor([one.width for one in space.coordinates], dtype=x.dtype) for space in (self, other)
        )
        return self.clip(x * before / widths)

    def _with(self, coordinates: Sequence[Coordinate]) -> "CoordinateSpace":
        space = copy.copy(self)
        space.coordinates, space._values_of_all = tuple(coordinates), _ValuesOfAll(coordinates)
        space.lower, space.upper = (torch.tensor(bound, dtype=torch.float64) for bound in space._bounds())
        declared = [one.of(one.declared_value) for one in coordinates]
        space.declared = space.clip(torch.tensor(declared, dtype=torch.float64))
        return space


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

    @property
    def rates(self) -> Tensor:
        """Rates of the kept coordinates in the whole space."""
        return self._space.rates[self.kept]

    def unseen(self, x: Tensor) -> Tensor | None:
        """Return the direction in the whole space; None if coordinates are held that it would change."""
        direction = self._space.unseen(self._of_space(x))
        if direction is None or int((direction != 0.0).sum()) > int((direction[..., self.kept] != 0.0).sum()):
            return None
        return direction[..., self.kept]

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


def inertial_quantities(link: str) -> list[str]:
    """Return the quantities of a link's mass, centre and inertia."""
    return [*_inertial(link), *(f"{link}.com.{axis}" for axis in "xyz")]


def _inertial(link: str) -> list[str]:
    return [f"{link}.mass", *_moments(link)]


def _moments(link: str) -> list[str]:
    return [f"{link}.inertia.{entry}" for entry in INERTIA_ENTRIES]

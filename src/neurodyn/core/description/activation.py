# SPDX-License-Identifier: Apache-2.0
"""States between the commands of actuators and their forces, and the curves of muscles."""

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from neurodyn.core.config import Config
from neurodyn.core.errors import require


class DriveState(Config, frozen=True):
    """State between the command of an actuator and its force, as MuJoCo's activation; it starts at zero.

    Attributes:
        kind: "integrator" (the state is the integral of the command), "filter" (a first-order lag by Euler steps),
            "filterexact" (a first-order lag, integrated exactly), or "muscle" (a lag whose time constant depends on
            state and command, Millard et al. 2013, doi:10.1115/1.4023390).
        time_constant: Time constant of a lag, that of activation of a muscle [s].
        release: Time constant of deactivation of a muscle [s].
        smoothing: Range of the command above the state over which one turns into the other; 0 for a switch.
        range: Least and greatest value; None for no limits.
        early: Whether the force follows the state at the end of a step instead of its start.
    """

    kind: Literal["integrator", "filter", "filterexact", "muscle"]
    time_constant: float | None = None
    release: float | None = None
    smoothing: float = 0.0
    range: tuple[float, float] | None = None
    early: bool = False

    def __post_init__(self) -> None:
        takes = {"integrator": (), "muscle": ("time_constant", "release")}.get(self.kind, ("time_constant",))
        for name in ("time_constant", "release"):
            value = getattr(self, name)
            if name in takes:
                fits = value is not None and 0 < value < math.inf
                require(fits, name, value, "a finite number above 0 [s]")
            else:
                require(value is None, name, value, f"nothing: {_ARTICLE[self.kind]} has none")
        fits = 0 <= self.smoothing < math.inf and (self.kind == "muscle" or not self.smoothing)
        require(fits, "smoothing", self.smoothing, "a finite number of at least 0, for a muscle alone")
        require_range("range", self.range)

    def quantities(self) -> dict[str, float]:
        """Return its numbers by name."""
        given = {"time_constant": self.time_constant, "release": self.release}
        return {name: value for name, value in given.items() if value is not None}

    def with_quantities(self, named: Mapping[str, float]) -> "DriveState":
        """Return the state with other values of them."""
        return msgspec.structs.replace(self, **{name: named[name] for name in self.quantities()})


_ARTICLE = {"integrator": "an integrator", "filter": "a filter", "filterexact": "a filter", "muscle": "a muscle"}


class Muscle(Config, frozen=True):
    r"""Curves of a muscle that contracts, as MuJoCo's: its force is $-F\,(a f_l(L) f_v(V) + f_p(L))$.

    L is the length over the optimal one $L_0$, V the rate over $v_{max} L_0$. $f_l$ is 1 at the optimum and 0 outside
    of `shortest` to `longest`; $f_v$ is 0 at V = -1, 1 at rest and `eccentric` from V = `eccentric` - 1; $f_p$ is 0
    below the optimum, and `passive` / 2 halfway from there to `longest`.

    Attributes:
        force: Peak force F at rest [N].
        lengths: Least and greatest length of the muscle and its tendon [m].
        spans: What L is at these two.
        shortest: Least L with an active force.
        longest: Greatest L with an active force.
        speed: Rate of the greatest contraction $v_{max}$, in optimal lengths [1/s].
        passive: Passive force at `longest`, in F.
        eccentric: Active force while it is drawn out, in F.
    """

    force: float
    lengths: tuple[float, float]
    spans: tuple[float, float] = (0.75, 1.05)
    shortest: float = 0.5
    longest: float = 1.6
    speed: float = 1.5
    passive: float = 1.3
    eccentric: float = 1.2

    def __post_init__(self) -> None:
        require_range("muscle: lengths", self.lengths)
        require_range("muscle: spans", self.spans)
        for name in ("force", "speed", "passive"):
            value = getattr(self, name)
            least = value >= 0 if name == "passive" else value > 0
            require(least and value < math.inf, f"muscle: {name}", value, "a finite number above 0")
        require(self.shortest < 1.0, "muscle: shortest", self.shortest, "a number below 1")
        require(1.0 < self.longest < math.inf, "muscle: longest", self.longest, "a finite number above 1")
        require(1.0 < self.eccentric < math.inf, "muscle: eccentric", self.eccentric, "a finite number above 1")

    def quantities(self) -> dict[str, float]:
        """Return its numbers by name."""
        found = {name: float(getattr(self, name)) for name in _CURVES}
        for name in ("lengths", "spans"):
            found |= {f"{name}.{end}": x for end, x in zip(_ENDS, getattr(self, name), strict=True)}
        return {f"muscle.{name}": value for name, value in found.items()}

    def with_quantities(self, named: Mapping[str, float]) -> "Muscle":
        """Return the muscle with other values of them."""
        changes: dict[str, float | tuple[float, ...]] = {name: named[f"muscle.{name}"] for name in _CURVES}
        for name in ("lengths", "spans"):
            changes[name] = tuple(named[f"muscle.{name}.{end}"] for end in _ENDS)
        return msgspec.structs.replace(self, **changes)


_CURVES = ("force", "shortest", "longest", "speed", "passive", "eccentric")
_ENDS = ("lower", "upper")


def require_range(name: str, given: object) -> None:
    """Raise a ValueError for a range whose ends do not rise; anything but a tuple passes."""
    if isinstance(given, tuple):
        require(given[0] < given[1], name, list(given), "a lower number before a greater one")

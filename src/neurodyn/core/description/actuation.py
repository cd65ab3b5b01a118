# SPDX-License-Identifier: Apache-2.0
"""Where a drive acts other than at its own joint: links, ball and free joints, frames, cranks, contacts.

Each place defines a length l; the drive's law acts on l, and its force is applied along the derivative of l. Actuator
states and muscle curves lie between commands and forces.
"""

import math
from typing import Literal

from neurodyn.core.config import Config
from neurodyn.core.description.record import HasQuantities, Path, components, require_fields
from neurodyn.core.description.scene import IDENTITY, Pose, Vector3
from neurodyn.core.errors import require


class DriveState(Config, HasQuantities, frozen=True):
    """State between an actuator's command and its force, like MuJoCo's activation; it starts at zero."""

    kind: Literal["integrator", "filter", "filterexact", "muscle"]
    """"integrator" (the state is the integral of the command), "filter" (a first-order lag by Euler steps),
    "filterexact" (a first-order lag, integrated exactly), or "muscle" (a lag whose time constant depends on state and
    command, Millard et al. 2013, doi:10.1115/1.4023390)."""
    time_constant: float | None = None
    """Time constant of a lag, or of a muscle's activation [s]."""
    release: float | None = None
    """Time constant of a muscle's deactivation [s]."""
    smoothing: float = 0.0
    """Range of command minus state over which activation and deactivation blend; 0 for a hard switch."""
    range: tuple[float, float] | None = None
    """Limits of the state; None for none."""
    early: bool = False
    """Whether the force uses the state at the end of a step instead of its start."""

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

    def paths(self) -> dict[str, Path]:
        """See `HasQuantities.paths`."""
        return {name: (name,) for name in ("time_constant", "release") if getattr(self, name) is not None}


_ARTICLE = {"integrator": "an integrator", "filter": "a filter", "filterexact": "a filter", "muscle": "a muscle"}


class Muscle(Config, HasQuantities, frozen=True):
    r"""Force curves of a muscle, as in MuJoCo: the force is $-F\,(a f_l(L) f_v(V) + f_p(L))$.

    L is the length over the optimal one $L_0$, V the rate over $v_{max} L_0$. $f_l$ is 1 at the optimum and 0 outside
    of `shortest` to `longest`; $f_v$ is 0 at V = -1, 1 at rest and `eccentric` from V = `eccentric` - 1 on; $f_p$ is 0
    below the optimum, and `passive` / 2 halfway between the optimum and `longest`.
    """

    force: float
    """Peak force F at rest [N]."""
    lengths: tuple[float, float]
    """Shortest and longest length of muscle and tendon [m]."""
    spans: tuple[float, float] = (0.75, 1.05)
    """L at these two lengths."""
    shortest: float = 0.5
    """Least L with an active force."""
    longest: float = 1.6
    """Greatest L with an active force."""
    speed: float = 1.5
    """Maximum contraction rate $v_{max}$, in optimal lengths [1/s]."""
    passive: float = 1.3
    """Passive force at `longest`, as a multiple of F."""
    eccentric: float = 1.2
    """Active force while lengthening, as a multiple of F."""

    def __post_init__(self) -> None:
        require_range("muscle: lengths", self.lengths)
        require_range("muscle: spans", self.spans)
        require_fields(self, "muscle", above=("force", "speed"), least=("passive",))
        require(self.shortest < 1.0, "muscle: shortest", self.shortest, "a number below 1")
        require(1.0 < self.longest < math.inf, "muscle: longest", self.longest, "a finite number above 1")
        require(1.0 < self.eccentric < math.inf, "muscle: eccentric", self.eccentric, "a finite number above 1")

    def paths(self) -> dict[str, Path]:
        """See `HasQuantities.paths`."""
        names = ("force", "shortest", "longest", "speed", "passive", "eccentric")
        ends = [components(f"muscle.{name}", (name,), ("lower", "upper")) for name in ("lengths", "spans")]
        return {f"muscle.{name}": (name,) for name in names} | ends[0] | ends[1]


def require_range(name: str, given: object) -> None:
    """Raise a ValueError for a range whose ends do not increase; anything but a tuple passes."""
    if isinstance(given, tuple):
        require(given[0] < given[1], name, list(given), "a lower number before a greater one")


PLACES = ("transmission", "tendons", "wrench", "turning", "between", "crank", "adhesion", "pivot")
"""Fields of a drive that say where it acts."""


class BodyWrench(Config, frozen=True):
    """Force and moment on a link per unit of actuator force, in the link's body frame. The length is 0."""

    link: str
    point: Vector3 = (0.0, 0.0, 0.0)
    """Point of application [m]."""
    force: Vector3 = (0.0, 0.0, 0.0)
    """Force [1]."""
    moment: Vector3 = (0.0, 0.0, 0.0)
    """Moment [m]."""

    def __post_init__(self) -> None:
        require_fields(self, "wrench", finite=("point", "force", "moment"))


class TurningJoint(Config, frozen=True):
    """Force and moment across a ball or free joint per unit of actuator force.

    The length of a ball joint is the component of its rotation vector along the moment; that of a free joint is 0.
    """

    joint: str
    moment: Vector3 = (0.0, 0.0, 0.0)
    """Moment [1]."""
    force: Vector3 = (0.0, 0.0, 0.0)
    """Force at the origin of a free joint's body, in world axes [1]."""
    in_parent: bool = False
    """Whether the moment is in the axes of the joint's parent instead of the link's."""

    def __post_init__(self) -> None:
        require_fields(self, "turning", finite=("moment", "force"))


class FrameOffset(Config, frozen=True):
    """Drive length from a frame's position and rotation vector in a reference frame, each weighted by factors."""

    link: str = ""
    """Joint that names the link of the frame; empty for the world."""
    frame: Pose = IDENTITY
    """The frame in the link's body, or in the world."""
    reference: str = ""
    """Joint that names the link of the reference frame; empty for the world."""
    reference_frame: Pose = IDENTITY
    """The reference frame, in that link's body or in the world."""
    along: Vector3 = (0.0, 0.0, 0.0)
    """Factors on the position [1]."""
    about: Vector3 = (0.0, 0.0, 0.0)
    """Factors on the rotation vector [m/rad or 1]."""

    def __post_init__(self) -> None:
        frames = ("frame", "reference_frame")
        require_fields(self, "between", finite=("along", "about", *frames), unit=frames)
        require(any((*self.along, *self.about)), "between: along and about", 0, "a factor other than 0")


class Pivot(Config, frozen=True):
    """A point of a link that is held in place while the command is 1, and free while it is 0: a stance foot, a hand.

    Where it begins to hold, the point stops at once: a plastic impact.
    """

    link: str
    """Joint that names the link."""
    point: Vector3 = (0.0, 0.0, 0.0)
    """The point in the link's body [m]."""

    def __post_init__(self) -> None:
        require_fields(self, "pivot", finite=("point",))


class SliderCrank(Config, frozen=True):
    """A slider connected to a pin by a rod; the length is the slider's position times a factor."""

    rod: float
    """Length of the rod [m]."""
    link: str = ""
    """Joint that names the link of the pin; empty for the world."""
    point: Vector3 = (0.0, 0.0, 0.0)
    """The pin in the link's body, or in the world [m]."""
    slider: str = ""
    """Joint that names the link that guides the slider; empty for the world."""
    origin: Vector3 = (0.0, 0.0, 0.0)
    """Point where the slider's position is 0, in that link's body, or in the world [m]."""
    axis: Vector3 = (0.0, 0.0, 1.0)
    """Unit vector of the sliding direction."""
    factor: float = 1.0
    """Factor on the position [1]."""

    def __post_init__(self) -> None:
        finite = ("point", "origin", "axis", "factor")
        require_fields(self, "crank", finite=finite, above=("rod [m]",), unit=("axis",))
        require(self.factor != 0, "crank: factor", self.factor, "a number other than 0")


def links_of(place: BodyWrench | Pivot | TurningJoint | FrameOffset | SliderCrank | str) -> tuple[str, ...]:
    """Return the links of a place, named by their joints; empty for the world."""
    match place:
        case BodyWrench() | Pivot():
            return (place.link,)
        case TurningJoint():
            return (place.joint,)
        case FrameOffset():
            return (place.link, place.reference)
        case SliderCrank():
            return (place.link, place.slider)
    return (place,)


def require_factors(name: str, given: dict[str, float]) -> None:
    """Raise a ValueError unless there is at least one factor and all are finite and nonzero."""
    fits = bool(given) and all(math.isfinite(x) and x != 0 for x in given.values())
    require(fits, name, given, "a finite factor other than 0 for each of its joints or tendons")

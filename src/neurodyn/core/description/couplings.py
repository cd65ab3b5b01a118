# SPDX-License-Identifier: Apache-2.0
"""Tendons and equality constraints of a mechanism as plain data, with MuJoCo's semantics."""

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Config
from neurodyn.core.description.contacts import ConstraintParameters, softness_paths
from neurodyn.core.description.record import (
    Bound,
    HasQuantities,
    Path,
    components,
    require_distinct,
    require_fields,
    require_known,
    require_word,
)
from neurodyn.core.description.scene import IDENTITY, Pose, Vector3
from neurodyn.core.errors import require

TENDON, EQUALITY = "tendon.", "equality."
"""Name prefixes of their quantities: "tendon.NAME.stiffness", "equality.NAME.solref.timeconst"."""

Polynomial = tuple[float, float, float, float, float]
"""Coefficients of a polynomial, lowest power first."""


class SidePoint(Config, frozen=True):
    """A point that marks the side on which a tendon passes an obstacle."""

    link: str
    """Name of the link that carries it; empty for the world."""
    point: Vector3
    """Position in the frame of that link's body, or of the world [m]."""


class Obstacle(Config, frozen=True):
    """A sphere or an infinite cylinder that a tendon wraps around."""

    kind: Literal["sphere", "cylinder"]
    link: str
    """Name of the link that carries it; empty for the world."""
    pose: Pose
    """Pose in the frame of that link's body, or of the world; a cylinder lies along z."""
    radius: float
    """Radius [m]."""
    side: SidePoint | UnsetType = UNSET
    """Point outside the obstacle on the side where the tendon passes; unset for the shorter path."""

    def __post_init__(self) -> None:
        require_fields(self, "obstacle", above=("radius [m]",))


class Waypoint(Config, frozen=True):
    """A point that a spatial tendon passes."""

    link: str
    """Name of the link that carries it; empty for the world."""
    point: Vector3
    """Position in the frame of that link's body, or of the world [m]."""
    around: Obstacle | UnsetType = UNSET
    """Obstacle wrapped on the way to the next point; unset for none."""


class Strand(Config, frozen=True):
    """A section of a spatial tendon between two pulleys."""

    points: tuple[Waypoint, ...]
    """Its waypoints, at least two."""
    divisor: float = 1.0
    """Divisor of its length: number of parallel strands behind the pulley."""

    def __post_init__(self) -> None:
        require(len(self.points) >= 2, "strand: points", len(self.points), "at least 2")
        require_fields(self, "strand", above=("divisor",))
        last = self.points[-1].around
        require(last is UNSET, "strand: obstacle after the last point", last, "one between two points")


class Tendon(Config, HasQuantities, frozen=True):
    """A tendon whose length is a linear function of joint positions (fixed) or of a string through points (spatial)."""

    name: str
    joints: dict[str, float] = msgspec.field(default_factory=dict)
    """Fixed tendon: moment arm of each single-axis joint [m/rad or 1]."""
    strands: tuple[Strand, ...] = ()
    stiffness: float = 0.0
    """Stiffness of its spring [N/m]."""
    damping: float = 0.0
    """Damping along its length [N s/m]."""
    armature: float = 0.0
    """Inertia along its length [kg]."""
    friction: float = 0.0
    """Dry friction along its length [N]."""
    slack: tuple[float, float] = (0.0, 0.0)
    """Range of lengths within which the spring is slack [m]."""
    lower: float | None = None
    """Lower length limit [m]; None for none."""
    upper: float | None = None
    """Upper length limit [m]; None for none."""
    margin: float = 0.0
    """Distance at which a limit starts to act [m]."""
    limit: ConstraintParameters = ConstraintParameters()
    friction_softness: ConstraintParameters = ConstraintParameters()
    effort_range: tuple[float, float] | UnsetType = UNSET
    """Limits of the total drive force along it [N]; unset for none."""
    stiffness_square: float = 0.0
    """Stiffness increase per unit of elongation [N/m^2]."""
    stiffness_cube: float = 0.0
    """Stiffness increase per unit of squared elongation [N/m^3]."""
    damping_square: float = 0.0
    """Damping increase per unit of absolute rate [N s^2/m^2]."""
    damping_cube: float = 0.0
    """Damping increase per unit of squared rate [N s^3/m^3]."""

    def __post_init__(self) -> None:
        where = f"tendon {self.name!r}"
        require_word(self.name, where, "@() ")
        parts = [bool(self.joints), bool(self.strands)]
        require(sum(parts) == 1, f"{where}: joints or strands", parts.count(True), "one of them")
        least = ("stiffness", "damping", "armature", "friction", "margin")
        require_fields(self, where, least=least, finite=("joints", "slack"))
        wraps = any(point.around is not UNSET for strand in self.strands for point in strand.points)
        require(not (wraps and self.armature), f"{where}: armature", self.armature, "0 with obstacles")
        limits = (self.lower, self.upper)
        for what, pair in (("slack", self.slack), ("limits", limits), ("effort_range", self.effort_range or limits)):
            lower, upper = pair
            fine = lower is None or upper is None or lower <= upper
            require(fine, f"{where}: {what}", list(pair), "the lower one first")

    @property
    def limited(self) -> bool:
        """Whether its length is limited."""
        return self.lower is not None or self.upper is not None

    @property
    def links(self) -> list[str]:
        """Names of the joints, or of the links of waypoints and obstacles, that it acts on; empty for the world."""
        points = [point for strand in self.strands for point in strand.points]
        obstacles = [point.around for point in points if point.around is not UNSET]
        sides = [one.side for one in obstacles if one.side is not UNSET]
        return list(self.joints) or [one.link for one in (*points, *obstacles, *sides)]

    def _scalars(self) -> list[str]:
        limits = [what for what in ("lower", "upper") if getattr(self, what) is not None]
        curved = [what for what in _CURVED if getattr(self, what)]
        return ["stiffness", "damping", "armature", "friction", *limits, *(["margin"] if limits else []), *curved]

    def paths(self) -> dict[str, Path]:
        """See `HasQuantities.paths`."""
        start = f"{TENDON}{self.name}"
        paths: dict[str, Path] = {f"{start}.{what}": (what,) for what in self._scalars()}
        paths |= components(f"{start}.slack", ("slack",), ("lower", "upper"))
        paths |= {f"{start}.arm.{joint}": ("joints", joint) for joint in self.joints}
        if self.limited:
            paths |= softness_paths(("limit",), f"{start}.limit_solref", f"{start}.limit_solimp")
        return paths | softness_paths(("friction_softness",), f"{start}.friction_solref", f"{start}.friction_solimp")

    def bounds(self) -> dict[str, Bound]:
        """Return the bounds of quantities whose bounds do not follow from their names."""
        bounds: dict[str, Bound] = {f"{TENDON}{self.name}.{x}": (None, None) for x in _CURVED if getattr(self, x)}
        return bounds | ({f"{TENDON}{self.name}.margin": (0.0, None)} if self.limited else {})


_CURVED = ("stiffness_square", "stiffness_cube", "damping_square", "damping_cube")
"""Parameters that are quantities only where nonzero, of either sign."""


EqualityKind = Literal["joint", "tendon", "connect", "weld"]
"""What an equality constrains: joint positions, tendon lengths, points, or body frames."""


class Equality(Config, HasQuantities, frozen=True):
    """An equality constraint.

    Of joints and tendons, $x_1 - r_1 = c_0 + c_1 d + c_2 d^2 + c_3 d^3 + c_4 d^4$ with $d = x_2 - r_2$; with one joint
    or tendon, $x_1 - r_1 = c_0$. "connect" pins a point of one body to the other, "weld" fixes two body frames
    together.
    """

    name: str
    kind: EqualityKind
    """What it constrains."""
    first: str
    """Name of a single-axis joint, a tendon, or a link, depending on the kind; an empty link is the world."""
    second: str = ""
    """Name of the other one; for joints and tendons, empty for a constant."""
    polynomial: Polynomial = (0.0, 1.0, 0.0, 0.0, 0.0)
    """$c_0$ to $c_4$."""
    reference: tuple[float, float] = (0.0, 0.0)
    """$r_1$ and $r_2$ [m or rad]."""
    first_frame: Pose = IDENTITY
    """Frame in the first link's body, or in the world; "connect" uses only its origin."""
    second_frame: Pose = IDENTITY
    """Frame in the second link's body, or in the world."""
    first_centre: Vector3 | UnsetType = UNSET
    """Point of the first body at which its inverse weight is evaluated; unset for its centre of mass [m]."""
    second_centre: Vector3 | UnsetType = UNSET
    """The same for the second body."""
    torque_scale: float = 1.0
    """"weld" only: length that weights rotations against translations [m]."""
    softness: ConstraintParameters = ConstraintParameters()

    def __post_init__(self) -> None:
        where = f"equality {self.name!r}"
        require_word(self.name, where, "@() ")
        scalar = self.kind in ("joint", "tendon")
        require(bool(self.first or (self.second and not scalar)), f"{where}: first", repr(self.first), "a name")
        require(self.first != self.second, f"{where}: second", repr(self.second), "another one than the first")
        frames = ("first_frame", "second_frame")
        require_fields(self, where, finite=("polynomial", "reference", "torque_scale", *frames), unit=frames)

    def paths(self) -> dict[str, Path]:
        """See `HasQuantities.paths`."""
        start = f"{EQUALITY}{self.name}"
        if self.kind in ("joint", "tendon"):
            paths: dict[str, Path] = {f"{start}.c{n}": ("polynomial", n) for n in range(5 if self.second else 1)}
        else:
            paths = components(f"{start}.first", ("first_frame",), "xyz")
            paths |= components(f"{start}.second", ("second_frame",), "xyz")
            paths |= {f"{start}.torque_scale": ("torque_scale",)} if self.kind == "weld" else {}
        return paths | softness_paths(("softness",), f"{start}.solref", f"{start}.solimp")


def require_couplings(
    tendons: Sequence[Tendon], equalities: Sequence[Equality], joints: Collection[str], links: Collection[str]
) -> None:
    """Raise a ValueError for tendons and equalities with unknown references or duplicate names.

    `joints` are the names of the single-axis joints, `links` those of all links.
    """
    names = [tendon.name for tendon in tendons]
    require_distinct("tendon", names)
    require_distinct("equality", [one.name for one in equalities])
    what = "a joint, link or tendon"
    for tendon in tendons:
        require_known(f"tendon {tendon.name!r}: {what}", tendon.links, joints if tendon.joints else ("", *links))
    known = {"joint": joints, "tendon": names, "connect": ("", *links), "weld": ("", *links)}
    for one in equalities:
        scalar = one.kind in ("joint", "tendon")
        ends = [one.first] if scalar and not one.second else [one.first, one.second]
        require_known(f"equality {one.name!r}: {what}", ends, known[one.kind])

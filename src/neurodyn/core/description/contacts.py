# SPDX-License-Identifier: Apache-2.0
"""Contact geometry of a robot as plain data: contact points, shapes, pairs of bodies, and MuJoCo's soft constraints."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Config
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
from neurodyn.core.description.scene import Pose, Vector3
from neurodyn.core.description.spec import HasJointKind, HasJoints, JointKind
from neurodyn.core.errors import require
from neurodyn.core.registry import Registry


class ChainJoint(Config, HasJointKind, frozen=True):
    """One movable joint of the kinematic tree; fixed joints are merged into the frames."""

    name: str
    kind: JointKind
    parent: int
    """Index of the joint that moves the parent body; -1 for the world."""
    parent_frame: Pose
    """Joint frame in the parent body (in the world for parent -1)."""
    child_frame: Pose
    """Joint frame in the child body."""
    axis: Vector3
    """Unit axis of a joint with one degree of freedom in the joint frame; zero for other kinds."""
    pitch: float | UnsetType = UNSET
    """Translation of a screw joint along its axis per angle [m/rad]; unset for other kinds."""

    def __post_init__(self) -> None:
        if (self.kind == "screw") != (self.pitch is not UNSET):
            raise ValueError(f"joint {self.name!r}: pitch is for screw joints, and required there [m/rad]")

    @property
    def shares(self) -> tuple[float, float]:
        """Rotation about the axis, and translation along it, per coordinate of a joint with one degree of freedom."""
        if self.kind == "prismatic":
            return 0.0, 1.0
        return 1.0, self.pitch or 0.0

    @property
    def moves_like(self) -> JointKind:
        """Kind of joint that moves like this one: with one degree of freedom, by `shares` instead of by the name."""
        if not self.scalar:
            return self.kind
        turns, slides = self.shares
        return "prismatic" if not turns else "screw" if slides else "revolute"


class ContactPoint(Config, frozen=True):
    """One contact point of the robot."""

    name: str
    """Label of the shape and number of the point on it, for example "front_left_foot/0"."""
    joint: int
    """Index of the joint whose child body carries the point."""
    point: Vector3
    """Position in that body's frame [m]."""
    radius: float
    """Radius of the shape around the point [m]; 0 for corners and vertices."""
    axis: Vector3 | None = None
    """For an end of a capsule: its axis in that body's frame; None for other shapes."""

    @property
    def shape(self) -> str:
        """Label of the shape that carries the point."""
        return self.name.rpartition("/")[0] or self.name


class ContactPointLayout(Config, HasJoints, frozen=True, rename={"contact_points": "probes"}):
    """All contact points of a robot."""

    aliases: ClassVar[Mapping[str, str]] = {"contact_points": "probes"}  # old files use the former key

    joints: tuple[ChainJoint, ...]
    """Movable joints, in the order of the robot's coordinates."""
    contact_points: tuple[ContactPoint, ...]
    """Contact points, in the order of the network's inputs."""
    base_com: Vector3 = (0.0, 0.0, 0.0)
    """Centre of mass of the first joint's child body in its frame [m]; a free joint's linear velocity is that of this
    point."""
    coms: dict[str, Vector3] | UnsetType = UNSET
    """The same for further free joints, by joint; unset for none."""

    def differences(self, other: "ContactPointLayout", tolerance: float = 1e-5) -> list[str]:
        """List in words how `other` differs from this layout."""
        mine, theirs = [p.name for p in self.contact_points], [p.name for p in other.contact_points]
        if mine != theirs:
            missing = [name for name in mine if name not in theirs]
            extra = [name for name in theirs if name not in mine]
            words = [f"lacks {missing[:3]}" if missing else "", f"has {extra[:3]} more" if extra else ""]
            detail = ", ".join(word for word in words if word) or "in another order"
            return [f"{len(theirs)} contact points instead of {len(mine)} ({detail})"]
        differences = []
        for a, b in zip(self.contact_points, other.contact_points, strict=True):
            distance = max(abs(x - y) for x, y in zip((*a.point, a.radius), (*b.point, b.radius), strict=True))
            if a.joint != b.joint or distance > tolerance:
                differences.append(f"contact point {a.name!r} is at {list(b.point)} instead of {list(a.point)}")
        return differences


SPREAD_CONTACTS, MOST_CONTACTS = 4, 8
"""Contacts of a shape with a heightfield that MuJoCo Warp keeps, and most contacts of a link: in plain MuJoCo a foot
smaller than a cell has two or three, seldom six; in MuJoCo Warp more than four need shapes that overlap."""


class RoundedBox(Config, frozen=True):
    """All points within `radius` of a box: a sphere if all half extents are 0, a capsule if only the third is not."""

    name: str
    joint: int
    """Index of the joint whose child body carries it."""
    place: Pose
    """Pose in that body's frame."""
    half: Vector3
    """Half extents [m]."""
    radius: float
    """Radius [m]."""
    contacts: int = SPREAD_CONTACTS
    """Maximum number of its contacts with a heightfield: `SPREAD_CONTACTS` that are far apart, as in MuJoCo Warp; if
    greater all, as in plain MuJoCo, unless there are more than that."""

    def __post_init__(self) -> None:
        known = SPREAD_CONTACTS <= self.contacts <= MOST_CONTACTS
        require(known, f"shape {self.name!r}: contacts", self.contacts, f"{SPREAD_CONTACTS} to {MOST_CONTACTS}")
        require_fields(self, f"shape {self.name!r}", least=("half [m]", "radius [m]"))


Point2 = tuple[float, float]
"""Position in the x-y plane of a body [m]."""

_MOST_POINTS = 400

ABOVE_ZERO = ("anisotropy", "slip_speed")
"""Parameters of a support that must be positive."""

LEAST_PARAMETER = 1e-6
"""Lower bound of these parameters in identification."""


class BodyShape(Config, frozen=True):
    """A convex shape fixed to a link, in its body frame."""

    link: str
    """Name of the link, i.e. of the joint that moves it."""
    kind: Literal["sphere", "box", "polygon"]
    """"sphere", "box" along the axes of the body, or "polygon": an infinite prism along the body's z axis, for planar
    motion."""
    position: Vector3 = (0.0, 0.0, 0.0)
    """Centre of a sphere or box [m]; 0 for a polygon."""
    radius: float = 0.0
    """Radius of a sphere, or rounding radius of the others [m]."""
    half: Vector3 | None = None
    """Half extents of a box [m]."""
    vertices: tuple[Point2, ...] = ()
    """Corners of a polygon, counterclockwise, in the body's x and y [m]."""

    def __post_init__(self) -> None:
        where = f"{self.kind} of {self.link!r}"
        above = ("half [m]", "radius [m]") if self.kind == "sphere" else ("half [m]",)
        require_fields(self, where, finite=("position [m]",), least=("radius [m]",), above=above)
        boxed = (self.half is not None) == (self.kind == "box")
        require(boxed, f"{where}: half", self.half, "half edges of a box, and of nothing else")
        if bool(self.vertices) != (self.kind == "polygon"):
            raise ValueError(f"{where}: it has {len(self.vertices)} vertices; valid: those of a polygon, and no others")
        if self.vertices:
            require_convex(self.vertices, where)
            at = list(self.position)
            require(not any(at), f"{where}: position", at, "0, the vertices are its place")

    @property
    def corners(self) -> tuple[Vector3, ...]:
        """Points tested for contact with another shape: the centre of a sphere, or the corners."""
        x, y, z = self.position
        if self.half is not None:
            a, b, c = self.half
            signs = [(i, j, k) for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)]
            return tuple((x + i * a, y + j * b, z + k * c) for i, j, k in signs)
        return tuple((*vertex, 0.0) for vertex in self.vertices) or (self.position,)


class BodyContact(Config, frozen=True):
    """Two shapes that can touch. The reported force acts on the first, its reaction on the second."""

    name: str
    """Name, as in "contact.NAME.friction"."""
    first: BodyShape
    """Shape whose corners are named in reports, for example the tip of a pusher."""
    second: BodyShape
    """The other shape, for example the object; contact position, normal and slip are in its body frame."""
    quantities: dict[str, float] = msgspec.field(default_factory=dict)
    """Parameters that override the contact model's ("friction", "stiffness" ...), and "margin", the distance at which
    contact begins [m]."""

    def __post_init__(self) -> None:
        require_word(self.name, "body contact")
        if self.first.link == self.second.link:
            raise ValueError(f"body contact {self.name!r}: both shapes are of {self.first.link!r}; valid: two links")
        require_fields(self, f"body contact {self.name!r}", finite=("quantities",))

    @property
    def points(self) -> tuple[tuple[str, Vector3, bool], ...]:
        """Name and position of each point tested for contact, and whether it is on the first shape.

        Corners of either shape are tested against the other; a sphere is tested by its centre. Crossing edges of two
        boxes are not detected.
        """
        spheres = [shape.kind == "sphere" for shape in (self.first, self.second)]
        points = []
        if spheres[0] or not spheres[1]:
            points += [(point, True) for point in self.first.corners]
        if not spheres[0]:
            points += [(point, False) for point in self.second.corners]
        if len(points) == 1:
            return ((self.name, *points[0]),)
        return tuple((f"{self.name}/{index}", *one) for index, one in enumerate(points))


class Support(Config, HasQuantities, frozen=True):
    """The face on which a body slides on a horizontal plane, and its friction there."""

    name: str
    """Name, as in "support.NAME.friction"."""
    link: str
    """Name of the link; the z axis of its body frame is vertical and its mass sets the normal load."""
    outline: tuple[Point2, ...]
    """Corners of the face, counterclockwise, in the body's x and y [m]."""
    spacing: float = 0.02
    """Grid spacing of the points that sample the face [m]."""
    friction: float = 0.3
    """Coefficient of friction along the world's x axis."""
    anisotropy: float = 1.0
    """Ratio of friction along the world's y axis to that along x, as on grained wood."""
    slip_speed: float = 0.01
    """Speed at which friction is within 0.1 % of its Coulomb value [m/s]."""
    centre: Point2 = (0.0, 0.0)
    """Centre of pressure relative to the middle of the points, to first order [m]."""
    rim: float = 0.0
    """Excess of the pressure at the rim over that at the middle; 0 for uniform pressure."""

    def __post_init__(self) -> None:
        where = f"support {self.name!r}"
        require_word(self.name, "support")
        require_convex(self.outline, where)
        above = ("spacing [m]", *ABOVE_ZERO)
        require_fields(self, where, above=above, least=("friction",), finite=("centre", "rim"))
        xs, ys = zip(*self.outline, strict=True)
        count = (max(xs) - min(xs)) * (max(ys) - min(ys)) / self.spacing**2
        require(count <= _MOST_POINTS, f"{where}: spacing", self.spacing, f"one with at most {_MOST_POINTS} points")

    @property
    def points(self) -> tuple[Point2, ...]:
        """Centres of the grid cells within the outline; the middle of the outline if there are none."""
        xs, ys = zip(*self.outline, strict=True)
        columns, rows = _middles(min(xs), max(xs), self.spacing), _middles(min(ys), max(ys), self.spacing)
        within = tuple((x, y) for y in rows for x in columns if _inside(self.outline, (x, y)))
        return within or ((sum(xs) / len(xs), sum(ys) / len(ys)),)

    def paths(self) -> dict[str, Path]:
        """See `HasQuantities.paths`."""
        start = f"support.{self.name}"
        values: dict[str, Path] = {f"{start}.{what}": (what,) for what in ("friction", *ABOVE_ZERO)}
        return values | components(f"{start}.centre", ("centre",), "xy") | {f"{start}.rim": ("rim",)}

    def bounds(self) -> dict[str, Bound]:
        """Return the bounds of quantities whose bounds do not follow from their names."""
        return {f"support.{self.name}.{what}": (LEAST_PARAMETER, None) for what in ABOVE_ZERO}


def require_convex(outline: tuple[Point2, ...], where: str) -> None:
    """Raise a ValueError unless corners form a convex polygon, counterclockwise."""
    valid = "three or more corners of a convex polygon, against the hands of a clock [m]"
    require(len(outline) >= 3, f"{where}: corners", len(outline), valid)
    require(all(math.isfinite(x) for corner in outline for x in corner), f"{where}: corners", list(outline), valid)
    for a, b, c in zip(outline, outline[1:] + outline[:1], outline[2:] + outline[:2], strict=True):
        turn = (b[0] - a[0]) * (c[1] - b[1]) - (b[1] - a[1]) * (c[0] - b[0])
        require(turn > 0, f"{where}: corners", list(outline), valid)


def require_bodies(pairs: Sequence[BodyContact], supports: Sequence[Support], links: Sequence[str]) -> None:
    """Raise a ValueError unless contacts and supports have distinct names and existing links."""
    require_distinct("body contact", [one.name for one in pairs])
    require_distinct("support", [one.name for one in supports])
    for pair in pairs:
        require_known(f"body contact {pair.name!r}: link", (pair.first.link, pair.second.link), links)
    for one in supports:
        require_known(f"support {one.name!r}: link", (one.link,), links)


def _middles(least: float, most: float, spacing: float) -> list[float]:
    count = max(1, round((most - least) / spacing))
    return [least + (index + 0.5) * (most - least) / count for index in range(count)]


def _inside(outline: tuple[Point2, ...], point: Point2) -> bool:
    x, y = point
    sides = zip(outline, outline[1:] + outline[:1], strict=True)
    return all((b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0]) >= -1e-12 for a, b in sides)


Cone = Literal["pyramidal", "elliptic"]
"""Friction cone: a pyramid with four edges, or the exact circular cone."""

SOLREF = ("timeconst", "dampratio")
"""Names of the solref parameters."""

SOLIMP = ("d0", "dwidth", "width", "midpoint", "power")
"""Names of the solimp parameters."""


class ConstraintParameters(Config, frozen=True):
    """Softness of a constraint, as in MuJoCo."""

    solref: tuple[float, float] = (0.02, 1.0)
    """Time constant [s] and damping ratio of the constraint as a spring-damper on a unit mass; or, if both are at most
    zero, minus its stiffness and damping [1/s^2, 1/s]."""
    solimp: tuple[float, float, float, float, float] = (0.9, 0.95, 0.001, 0.5, 2.0)
    """Impedance at zero violation and beyond `width` (between 0 and 1), width [m or rad], midpoint (fraction of the
    width) and power of the curve between them."""

    def __post_init__(self) -> None:
        time, ratio = self.solref
        standard = time > 0 and ratio > 0
        valid = "a time constant [s] and a damping ratio above 0, or a stiffness and a damping, both negative"
        require((standard or (time <= 0 and ratio <= 0)) and math.isfinite(time + ratio), "solref", self.solref, valid)
        first, last, width, midpoint, power = self.solimp
        shares = all(0 < share < 1 for share in (first, last, midpoint))
        valid = "d0, dwidth and midpoint between 0 and 1, a width above 0 and a power of at least 1"
        require(shares and 0 < width < math.inf and 1 <= power < math.inf, "solimp", self.solimp, valid)


def constraint_quantities(solref: str, solimp: str, parameters: ConstraintParameters) -> dict[str, float]:
    """Return the values of a constraint's parameters by quantity name, e.g. "contact.solref.timeconst".

    `solref` prefixes the first two parameters ("contact.solref", for example), `solimp` the other five.
    """
    values = (*parameters.solref, *parameters.solimp)
    return dict(zip(softness_paths((), solref, solimp), values, strict=True))


def softness_paths(field: Path, solref: str, solimp: str) -> dict[str, Path]:
    """Return the paths of the quantities of a `ConstraintParameters` in a field, named as `constraint_quantities`."""
    return components(solref, (*field, "solref"), SOLREF) | components(solimp, (*field, "solimp"), SOLIMP)


class ShapeProperty(Config, frozen=True):
    """A soft-contact parameter that a shape can override; the ground adopts the value of the robot's shape."""

    attribute: str
    """MuJoCo's attribute of a geom that holds it, in MJCF and (after "geom_") in a compiled model."""
    column: int = 0
    """Its index in the attribute."""

    def __post_init__(self) -> None:
        damps = self.attribute == "solref" or (self.attribute, self.column) == ("solimp", 1)
        valid = "another number, because the solver has one damping for all contacts"
        require(not damps, "shape property", f"{self.attribute}[{self.column}]", valid)


SHAPE_PROPERTIES: Registry[ShapeProperty] = Registry(
    "contact property of shapes", friction=ShapeProperty(attribute="friction")
)
"""Properties by name, as in "contact.NAME" for all shapes and "contact.SHAPE.NAME" for a single one."""


class SoftConstraints(Config, frozen=True):
    """Soft constraints of a mechanism."""

    cone: Cone = "pyramidal"
    impratio: float = 1.0
    """Ratio of the impedances of friction and normal force; 1 for equal ones."""
    friction: float = 1.0
    """Coefficient of friction between robot and ground."""
    frictions: dict[str, float] = msgspec.field(default_factory=dict)
    """Friction of shapes with their own coefficient, by shape name."""
    numbers: dict[str, float] | UnsetType = UNSET
    """Other `SHAPE_PROPERTIES`, for all shapes and for shapes with their own, by quantity name."""
    contact: ConstraintParameters = ConstraintParameters()
    limits: dict[str, ConstraintParameters] = msgspec.field(default_factory=dict)
    """Softness of joint limits, by joint; MuJoCo's defaults for others."""
    joint_friction: dict[str, ConstraintParameters] = msgspec.field(default_factory=dict)
    """Softness of joint friction, by joint; MuJoCo's defaults for others."""
    follows_capsules: bool | UnsetType = UNSET
    """Whether the friction pyramid of a capsule upright on the ground is aligned with the capsule, as in MuJoCo's C
    library; unset for MuJoCo Warp's rule, which aligns it with the world's axes."""
    limit_margins: dict[str, float] | UnsetType = UNSET
    """Distance at which a joint's limits start to act, by joint; unset for 0 [rad or m]."""
    flat_sides: bool | UnsetType = UNSET
    """Whether flat sides and straight edges in contact get up to four contact points (MuJoCo's `multiccd`); unset for
    one."""
    implicit: bool | UnsetType = UNSET
    """Whether tendon and drive damping and the gyroscopic moment of single free bodies are integrated implicitly in the
    velocity, like joint damping: true for MuJoCo's implicitfast, not for its Euler. Unset for drives alone."""
    damping: Literal["explicit"] | UnsetType = UNSET
    """"explicit" if joint damping is integrated explicitly as well: MuJoCo's Euler with `eulerdamp` disabled; unset
    otherwise."""
    free_point: Literal["origin"] | UnsetType = UNSET
    """Point of a free body whose velocity is integrated and whose acceleration constraints act on: "origin" of its
    frame, as in MuJoCo; unset for its nominal centre of mass."""

    def __post_init__(self) -> None:
        require_fields(self, above=("impratio",), least=("friction", "frictions", "limit_margins"), finite=("numbers",))

    def with_property(self, name: str, common: float, own: dict[str, float]) -> "SoftConstraints":
        """Return a copy with a property of `SHAPE_PROPERTIES` set; `own` holds per-shape overrides."""
        if name == "friction":
            return msgspec.structs.replace(self, friction=common, frictions=own)
        added = {f"contact.{name}": common} | {f"contact.{shape}.{name}": value for shape, value in own.items()}
        return msgspec.structs.replace(self, numbers=(self.numbers or {}) | added)

    def quantities(self) -> dict[str, float]:
        """Return the values of the `SHAPE_PROPERTIES` by quantity name."""
        own = {f"contact.{shape}.friction": value for shape, value in self.frictions.items()}
        return {"contact.friction": self.friction, **own, **(self.numbers or {})}

    def own(self, name: str) -> set[str]:
        """Return the names of the shapes with their own value of a property."""
        start, end = "contact.", f".{name}"
        names = (one for one in self.quantities() if one.endswith(end) and one != f"contact{end}")
        return {one.removeprefix(start).removesuffix(end) for one in names}

    def quantity(self, name: str, shape: str) -> str:
        """Return the quantity name of a shape's property."""
        return f"contact.{shape}.{name}" if shape in self.own(name) else f"contact.{name}"

# SPDX-License-Identifier: Apache-2.0
"""A mechanism as plain data (a tree of rigid links, joints and contact points), and the fingerprint of a built one."""

import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Config
from neurodyn.core.description.contacts import (
    BodyContact,
    ChainJoint,
    ContactPoint,
    RoundedBox,
    SoftConstraints,
    Support,
    require_bodies,
)
from neurodyn.core.description.couplings import Equality, Tendon, require_couplings
from neurodyn.core.description.drive import ACTUATOR, Drive, bounds
from neurodyn.core.description.elements import ForceElement, Medium, require_elements
from neurodyn.core.description.record import (
    Bound,
    HasQuantities,
    Path,
    components,
    require_distinct,
    require_fields,
    require_known,
)
from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.shape_contacts import (
    ContactSurface,
    GroundShape,
    Hull,
    ShapeContact,
    require_shape_contacts,
)
from neurodyn.core.description.spec import JOINT_PROPERTIES, HasJoints
from neurodyn.core.errors import require

Inertia = tuple[float, float, float, float, float, float]
"""Inertia about the centre of mass in body axes: xx, yy, zz, xy, xz, yz [kg m^2]."""

INERTIA_ENTRIES = ("xx", "yy", "zz", "xy", "xz", "yz")
"""Names of the entries of a link's inertia, in order."""

_SCALARS = ("mass", *JOINT_PROPERTIES, "rest", "lower", "upper", "limit_stiffness", "limit_damping")
_CURVED = ("stiffness_square", "stiffness_cube", "damping_square", "damping_cube", "carried")
"""Parameters of a link that are quantities only where nonzero, of either sign."""


class Link(Config, HasQuantities, frozen=True):
    """A movable joint and the rigid body it moves, with everything fixed to that body."""

    joint: ChainJoint
    """The joint; it names the link, and its child frame is in the link's body frame."""
    mass: float
    """Mass [kg]."""
    com: Vector3
    """Centre of mass in the body frame [m]."""
    inertia: Inertia
    """Inertia about the centre of mass."""
    armature: float = 0.0
    """Rotor inertia added to the joint [kg m^2 or kg]."""
    damping: float = 0.0
    """Viscous friction of the joint [N m s/rad or N s/m]."""
    friction: float = 0.0
    """Coulomb friction of the joint [N m or N]."""
    stiffness: float = 0.0
    """Stiffness of the joint spring [N m/rad or N/m]."""
    rest: float = 0.0
    """Rest position of that spring [rad or m]."""
    lower: float | None = None
    """Lower limit [rad or m]; None for none."""
    upper: float | None = None
    """Upper limit [rad or m]; None for none."""
    limit_stiffness: float = 0.0
    """Stiffness of the limits [N m/rad or N/m]."""
    limit_damping: float = 0.0
    """Damping beyond the limits [N m s/rad or N s/m]."""
    effort_range: tuple[float, float] | UnsetType = UNSET
    """Limits of the total drive torque on the joint [N m or N]; unset for none."""
    stiffness_square: float = 0.0
    """Stiffness increase per unit of elongation [N m/rad^2 or N/m^2]."""
    stiffness_cube: float = 0.0
    """Stiffness increase per unit of squared elongation [N m/rad^3 or N/m^3]."""
    damping_square: float = 0.0
    """Damping increase per unit of speed [N m s^2/rad^2 or N s^2/m^2]."""
    damping_cube: float = 0.0
    """Damping increase per unit of squared speed [N m s^3/rad^3 or N s^3/m^3]."""
    rest_pose: tuple[float, ...] | UnsetType = UNSET
    """Rest position coordinates of the spring of a ball or free joint; unset for no spring."""
    carried: float = 0.0
    """Mass whose weight is compensated, as by a counterbalance [kg]."""
    carried_at: Vector3 = (0.0, 0.0, 0.0)
    """Position of that mass in the body frame [m]."""
    drives_carry: bool = False
    """Whether the joint's drives provide the compensation, within `effort_range`."""
    slides_alone: bool = False
    """Whether it is a single body with sliding joints only, whose inverse weight in soft constraints follows from its
    mass in all directions (MuJoCo's body_simple)."""

    def __post_init__(self) -> None:
        where = f"link {self.joint.name!r}"
        least = (*JOINT_PROPERTIES, "limit_stiffness", "limit_damping")
        require_fields(self, where, above=("mass [kg]",), least=least, finite=(*_CURVED, "com", "inertia"))
        if self.rest_pose is not UNSET:
            fits = len(self.rest_pose) == self.joint.nq and not self.joint.scalar
            fits = fits and abs(math.hypot(*self.rest_pose[-4:]) - 1.0) < 1e-6
            valid = "the position of a ball or free joint, with a unit quaternion"
            require(fits, f"{where}: rest_pose", list(self.rest_pose), valid)
        if self.lower is not None and self.upper is not None:
            require(self.lower <= self.upper, f"{where}: lower", self.lower, f"at most the upper limit, {self.upper}")
        if self.effort_range is not UNSET:
            rises = self.effort_range[0] < self.effort_range[1]
            require(rises, f"{where}: effort_range", list(self.effort_range), "rising numbers")
        if self.joint.scalar:
            require_fields(self.joint, where, unit=("axis",))

    def paths(self) -> dict[str, Path]:
        """See `HasQuantities.paths`; a free joint has some quantities only where they are nonzero."""
        name, joint = self.joint.name, self.joint
        curved = [what for what in _CURVED if getattr(self, what)]
        free = ("mass", *(what for what in JOINT_PROPERTIES if getattr(self, what)))
        scalars = (*(free if joint.kind == "free" else _SCALARS), *curved)
        paths: dict[str, Path] = {f"{name}.{x}": (x,) for x in scalars if getattr(self, x) is not None}
        paths |= components(f"{name}.com", ("com",), "xyz") | components(
            f"{name}.inertia", ("inertia",), INERTIA_ENTRIES
        )
        paths |= components(f"{name}.origin", ("joint", "parent_frame"), "xyz")
        return paths | (components(f"{name}.axis", ("joint", "axis"), "xyz") if joint.scalar else {})

    def bounds(self) -> dict[str, Bound]:
        """Return the bounds of quantities whose bounds do not follow from their names."""
        return {f"{self.joint.name}.{what}": (None, None) for what in _CURVED if getattr(self, what)}

    def with_quantities(self, named: Mapping[str, float]) -> "Link":
        """Return a copy with other values of its quantities; the axis is normalised."""
        name = f"{self.joint.name}.axis"
        axis = {f"{name}.{part}": named[f"{name}.{part}"] for part in "xyz"} if self.joint.scalar else {}
        length = math.hypot(*axis.values())
        return super().with_quantities({**named, **{part: x / length for part, x in axis.items()}})


class Mechanism(Config, HasJoints, frozen=True):
    """A tree of links."""

    links: tuple[Link, ...]
    """The links, parents first, in the order of the coordinates."""
    gravity: Vector3 = (0.0, 0.0, -9.81)
    """Gravity in world axes [m/s^2]."""
    points: tuple[ContactPoint, ...] = ()
    """Contact points; each is carried by the link of its joint."""
    constraints: SoftConstraints = SoftConstraints()
    """Softness of contacts, limits and joint friction as soft constraints."""
    shapes: tuple[RoundedBox, ...] = ()
    """Shapes that can touch the ground, for soft contacts between shapes; empty if the robot has shapes other than
    spheres, capsules and boxes."""
    drives: dict[str, Drive] = msgspec.field(default_factory=dict)
    """Drives from command to torque, by joint, and the robot's actuators by name; other joints take torques."""
    body_contacts: tuple[BodyContact, ...] = ()
    """Pairs of bodies that can touch each other."""
    supports: tuple[Support, ...] = ()
    """Bodies that slide on a horizontal plane."""
    elements: tuple[ForceElement, ...] | UnsetType = UNSET
    """Passive force elements between joints or points; unset for none."""
    tendons: tuple[Tendon, ...] | UnsetType = UNSET
    """Tendons; unset for none."""
    equalities: tuple[Equality, ...] | UnsetType = UNSET
    """Equality constraints; unset for none."""
    surfaces: tuple[ContactSurface, ...] | UnsetType = UNSET
    """Friction and softness of contacts of shapes; unset for none."""
    shape_contacts: tuple[ShapeContact, ...] | UnsetType = UNSET
    """Pairs of shapes on two links that can touch, in soft contacts; unset for none."""
    ground_shapes: dict[str, GroundShape] | UnsetType = UNSET
    """Per-shape overrides of `constraints` in soft contacts with the ground, by shape name; unset for none. Either all
    or none of them have a surface."""
    hulls: dict[str, Hull] | UnsetType = UNSET
    """Convex hulls of the meshes among these shapes, by name; unset for none."""
    reference: tuple[float, ...] | UnsetType = UNSET
    """Positions at which soft constraints evaluate their inverse weights, MuJoCo's qpos0; unset for 0."""
    medium: Medium | UnsetType = UNSET
    """Medium that resists the links' motion; unset for none."""
    hidden: int | UnsetType = UNSET
    """Number of joints at the end of the tree that appear in no state or log: springs within links, revolute, with
    unrotated frames. Unset for none."""

    def __post_init__(self) -> None:
        names = self.names
        require_distinct("link", names)
        for index, joint in enumerate(self.joints):
            where, valid = f"link {joint.name!r}: its parent", "the number of a link before it, or -1 for the world"
            require(-1 <= joint.parent < index, where, joint.parent, f"{valid} (closed loops are no tree)")
            require(joint.kind != "free" or joint.parent == -1, where, joint.parent, "-1 for a free joint")
        for what, carried in (("point", self.points), ("shape", self.shapes)):
            for one in carried:
                valid = f"0 to {len(self.links) - 1}"
                require(0 <= one.joint < len(self.links), f"{what} {one.name!r}: its link", one.joint, valid)
        scalar = [joint.name for joint in self.joints if joint.scalar]
        turning = [joint.name for joint in self.joints if not joint.scalar]
        tendons = [tendon.name for tendon in self.tendons or ()]
        for name, drive in self.drives.items():
            require_known("drives: a joint", drive.joints if drive.acts_elsewhere else (name,), scalar)
            require_known(f"drives: tendon of {name!r}", drive.tendons or (), tendons)
            known = turning if drive.turning is not UNSET else names
            known = ("", *known) if drive.between is not UNSET or drive.crank is not UNSET else known
            require_known(f"drives: link of {name!r}", drive.links, known)
        require_known(
            "medium: link of a body", [body.link for body in self.medium.bodies] if self.medium else (), names
        )
        require_bodies(self.body_contacts, self.supports, names)
        require_elements(self.elements or (), names)
        if self.reference is not UNSET:
            fine = len(self.reference) == self.nq and all(map(math.isfinite, self.reference))
            require(fine, "reference", list(self.reference), f"{self.nq} finite numbers, one per position")
        require_shape_contacts(
            self.shape_contacts or (), self.surfaces or (), self.ground_shapes or {}, self.hulls or {}, names
        )
        require_couplings(self.tendons or (), self.equalities or (), scalar, names)
        require_fields(self, finite=("gravity [m/s^2]",))

    @property
    def grounded(self) -> bool:
        """Whether ground contacts use surfaces."""
        return any(shape.surface for shape in (self.ground_shapes or {}).values())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the links."""
        return tuple(link.joint.name for link in self.links)

    @property
    def joints(self) -> tuple[ChainJoint, ...]:
        """The joints of the links."""
        return tuple(link.joint for link in self.links)

    @property
    def _parts(self) -> dict[str, tuple[Any, ...]]:
        """Fields whose entries have quantities, in the order of these, but for gravity and drives."""
        return {
            name: getattr(self, name) or () for name in ("supports", "elements", "tendons", "equalities", "surfaces")
        }

    def quantities(self) -> dict[str, float]:
        """Return the nominal value of every quantity by its name, in a fixed order."""
        values = {name: value for link in self.links for name, value in link.quantities().items()}
        values |= {f"gravity.{axis}": float(x) for axis, x in zip("xyz", self.gravity, strict=True)}
        for name, drive in self.drives.items():
            values |= {f"{ACTUATOR}{name}.{what}": value for what, value in drive.quantities().items()}
        for one in (*chain.from_iterable(self._parts.values()), *([self.medium] if self.medium else ())):
            values |= one.quantities()
        return values

    def bounds(self) -> dict[str, Bound]:
        """Return lower and upper bounds of quantities whose bounds do not follow from their names."""
        limits = {
            f"{ACTUATOR}{name}.{what}": bounds(what, drive)
            for name, drive in self.drives.items()
            for what in drive.quantities()
        }
        parts = chain(self.links, *(part for name, part in self._parts.items() if name != "equalities"))
        for one in (*parts, *([self.medium] if self.medium else ())):
            limits |= one.bounds()
        return limits

    def with_quantities(self, values: Mapping[str, float]) -> "Mechanism":
        """Return a copy with other values of quantities; unknown names are ignored, bad values raise a ValueError."""
        named = {**self.quantities(), **values}
        drives = {}
        for name, drive in self.drives.items():
            numbers = {what: named[f"{ACTUATOR}{name}.{what}"] for what in drive.quantities()}
            drives[name] = drive.with_quantities(numbers)
        parts = {name: tuple(one.with_quantities(named) for one in part) for name, part in self._parts.items() if part}
        return msgspec.structs.replace(
            self, links=tuple(link.with_quantities(named) for link in self.links), drives=drives,
            gravity=tuple(named[f"gravity.{axis}"] for axis in "xyz"),
            medium=self.medium and self.medium.with_quantities(named), **parts,
        )  # fmt: skip


Vector = tuple[float, ...]


class JointPrint(Config, frozen=True):
    """One joint as built, named without the articulation or world prefix, with one value per degree of freedom.

    `kind` is that of a movable joint, or "fixed". `axis` holds the axes in the joint frame, flattened, shape [3 *
    axes]. `parent_pose` and `child_pose` are the joint frame in the parent and child bodies [x y z, qx qy qz qw]; for a
    root joint `parent_pose` is only its tilt relative to gravity, empty if upright, because position and heading are
    not part of the identity. Limits are in rad or m; armature [kg m^2 or kg], damping, friction, stiffness,
    `limit_stiffness` and `limit_damping` as in `Link`.
    """

    name: str
    kind: str
    axis: Vector
    parent_pose: Vector
    child_pose: Vector
    lower: Vector
    upper: Vector
    armature: Vector
    damping: Vector
    friction: Vector
    stiffness: Vector
    limit_stiffness: Vector
    limit_damping: Vector


class BodyPrint(Config, frozen=True):
    """One body as built: mass [kg], centre of mass [m] and row-major inertia [kg m^2], shape [9], in body axes."""

    name: str
    mass: float
    com: Vector
    inertia: Vector


class Fingerprint(Config, frozen=True):
    """Identity of an articulation, and the gravity in its simulation [m/s^2], shape [3]."""

    joints: tuple[JointPrint, ...]
    bodies: tuple[BodyPrint, ...]
    gravity: Vector

    def differences(self, other: "Fingerprint", tolerance: float = 1e-4) -> list[str]:
        """List in words how `other` differs from this articulation; values are compared with a relative `tolerance`."""
        mine, theirs = [j.name for j in self.joints], [j.name for j in other.joints]
        if mine != theirs:
            return [f"joint order is {theirs} instead of {mine}"]
        differences = []
        for a, b in zip(self.joints, other.joints, strict=True):
            differences += _field_differences(f"joint {a.name!r}", a, b, tolerance)
        mine, theirs = [b.name for b in self.bodies], [b.name for b in other.bodies]
        if mine != theirs:
            return [*differences, f"bodies are {theirs} instead of {mine}"]
        for a, b in zip(self.bodies, other.bodies, strict=True):
            differences += _field_differences(f"body {a.name!r}", a, b, tolerance)
        if not _close(self.gravity, other.gravity, tolerance):
            differences.append(f"gravity is {_show(other.gravity)} instead of {_show(self.gravity)}")
        return differences


def _field_differences(what: str, a: Config, b: Config, tolerance: float) -> list[str]:
    differences = []
    for field in a.__struct_fields__:
        mine, theirs = getattr(a, field), getattr(b, field)
        same = mine == theirs if isinstance(mine, str) else _close(mine, theirs, tolerance)
        if not same:
            differences.append(f"{field.replace('_', ' ')} of {what} is {_show(theirs)} instead of {_show(mine)}")
    return differences


def _close(a: float | Vector, b: float | Vector, tolerance: float) -> bool:
    left, right = (value if isinstance(value, tuple) else (value,) for value in (a, b))
    if len(left) != len(right):
        return False
    scale = max((abs(x) for x in (*left, *right) if math.isfinite(x)), default=0.0)
    return all(x == y or abs(x - y) <= tolerance * scale + 1e-9 for x, y in zip(left, right, strict=True))


def _show(value: str | float | Vector) -> str:
    if isinstance(value, tuple):
        return "[" + " ".join(f"{x:.6g}" for x in value) + "]"
    return value if isinstance(value, str) else f"{value:.6g}"

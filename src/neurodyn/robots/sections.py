# SPDX-License-Identifier: Apache-2.0
"""Sections of a robot's declaration (simulator, ranges, controller, contact, grounds, contact points).

Also expands its short forms: patterns of joint names as keys, and joints that share an entry.
"""

import math
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import msgspec

from neurodyn.core.config import Config, expand_keys, require_numbers
from neurodyn.core.description.contacts import ChainJoint
from neurodyn.core.description.drive_tables import read_drives
from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.spec import COORDINATES
from neurodyn.core.errors import InputError, require

Interval = tuple[float, float]
"""Lower and upper bound."""

MOST_SUBSTEPS = 10_000
"""Maximum number of solver steps in a frame; with more, a simulator would seem to hang."""


class Fluid(Config, frozen=True):
    """A medium at rest that fills all space; MuJoCo's fluid forces on boxes with the links' inertias."""

    density: float
    """Density [kg/m^3]."""
    viscosity: float
    """Dynamic viscosity [Pa s]."""

    def __post_init__(self) -> None:
        for name in ("density", "viscosity"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"fluid: {name}", value, "a finite number of at least 0")


class SimulatorConfig(Config, frozen=True):
    """The reference simulator."""

    solver: Literal["featherstone", "mujoco", "mujoco-c"] = "featherstone"
    """"featherstone" (no contacts, no Coulomb friction), "mujoco" (MuJoCo Warp, in Newton), or "mujoco-c" (plain
    MuJoCo, on a CPU)."""
    substeps: int = 4
    """Solver steps in one frame."""
    mass_matrix_interval: int = 1
    """Featherstone: substeps between updates of the mass matrix; divides `substeps`."""
    iterations: int | None = None
    """MuJoCo: maximum number of iterations of the constraint solver; None for its default."""
    integrator: Literal["euler", "implicitfast"] | None = None
    """MuJoCo: integrator; None for its default."""
    fluid: Fluid | None = None
    """MuJoCo: the medium around the robot; None for the asset's, if any."""

    def __post_init__(self) -> None:
        require(1 <= self.substeps <= MOST_SUBSTEPS, "substeps", self.substeps, f"1 to {MOST_SUBSTEPS:,}")
        require_numbers(self, above=("iterations",))
        if self.mass_matrix_interval < 1 or self.substeps % self.mass_matrix_interval:
            raise ValueError(
                f"mass_matrix_interval is {self.mass_matrix_interval}; valid: a divisor of substeps ({self.substeps})"
            )
        if self.solver != "featherstone" and self.mass_matrix_interval != 1:
            raise ValueError(f"mass_matrix_interval is an option of featherstone; remove it for {self.solver}")
        for name in ("iterations", "integrator", "fluid"):
            if self.solver == "featherstone" and getattr(self, name) is not None:
                raise ValueError(f"{name} is an option of mujoco; remove it for featherstone")


class Ranges(Config, frozen=True):
    """Intervals by joint name."""

    q: dict[str, Interval] = msgspec.field(default_factory=dict)
    """Positions [rad or m], except those of free and ball joints."""
    qd: dict[str, Interval] = msgspec.field(default_factory=dict)
    """Velocities [rad/s or m/s]; free and ball joints by coordinate, e.g. "root.vx" (zero if not given)."""
    control: dict[str, Interval] = msgspec.field(default_factory=dict)
    """Torques or forces [N m or N]; only for sampling."""
    height: Interval | None = None
    """Height of a floating base's origin above the ground below it [m]."""
    tilt: float = 0.0
    """Maximum angle between a floating base's z axis and the vertical [rad]; the heading is uniform."""
    rotation: float | None = None
    """Maximum rotation angle of a floating base about a random axis [rad], instead of tilt and heading; None for tilt
    and heading."""


class Gains(Config, frozen=True):
    """A PD controller: torques kp (target - q) - kd qd, evaluated at the start of a frame."""

    kp: Interval
    """Range of stiffnesses for data, one per trajectory [N m/rad or N/m]."""
    kd: Interval
    """Range of dampings for data, one per trajectory [N m s/rad or N s/m]."""
    spread: float
    """Maximum deviation of data targets from the nominal pose [rad or m]."""
    hold: tuple[float, float]
    """Stiffness and damping with which evaluation holds the nominal pose."""

    def __post_init__(self) -> None:
        for name in ("kp", "kd"):
            lower, upper = getattr(self, name)
            if not 0 <= lower <= upper < math.inf:
                raise ValueError(f"gains: {name} is [{lower:g}, {upper:g}]; valid: 0 <= lower <= upper")
        require(0 <= self.spread < math.inf, "gains: spread", self.spread, "a finite number of at least 0")
        sound = all(0 <= gain < math.inf for gain in self.hold)
        require(sound, "gains: hold", list(self.hold), "finite numbers of at least 0")


class ContactMaterial(Config, frozen=True):
    """The contact material of robot and ground; fields that are None keep the asset's value."""

    friction: float | None = None
    """Coefficient of Coulomb friction between robot and ground."""
    stiffness: float | None = None
    """Contact stiffness over effective mass [1/s^2]; 2500 is MuJoCo's default."""
    damping: float | None = None
    """Contact damping over effective mass [1/s]; 100 is MuJoCo's default. Below 2 sqrt(stiffness), a body bounces."""

    def __post_init__(self) -> None:
        fits = self.friction is None or 0 <= self.friction < math.inf
        require(fits, "material: friction", self.friction, "a finite number of at least 0")
        for name in ("stiffness", "damping"):
            _require_positive(f"material: {name}", getattr(self, name))


class GroundSampling(Config, frozen=True):
    """Sampling of grounds: a declared ground at a random pose for each trajectory."""

    ground: str
    """Name of the ground in `grounds`."""
    height: Interval = (0.0, 0.0)
    """Range of its vertical offset [m]."""
    tilt: float = 0.0
    """Maximum tilt about a random horizontal axis [rad]."""
    extent: float = 0.0
    """Maximum shift along its x and y, so that robots stand on different parts of it [m]."""
    absent: float = 0.0
    """Share of trajectories with the ground far below."""

    def __post_init__(self) -> None:
        check_interval("ground_sampling: height", self.height)
        require(0 <= self.tilt < math.pi / 2, "ground_sampling: tilt", self.tilt, "at least 0 and below pi/2 [rad]")
        require(0 <= self.extent < math.inf, "ground_sampling: extent", self.extent, "at least 0 [m]")
        require(0 <= self.absent <= 1, "ground_sampling: absent", self.absent, "between 0 and 1")


class EndEffector(Config, frozen=True):
    """The end effector of a robot."""

    joint: str
    """Name of the joint whose child body carries the point."""
    point: Vector3
    """Position in that body's frame [m]."""
    joints: tuple[ChainJoint, ...] = ()
    """All moving joints of the robot as built, in the order of its coordinates, so that no simulator is needed; empty
    for the joints of the contact points of the robot's dynamics."""

    def __post_init__(self) -> None:
        names = [joint.name for joint in self.joints]
        if names and self.joint not in names:
            raise ValueError(f"end_effector: joint is {self.joint!r}; valid: {', '.join(names)}")


class ContactPointSelection(Config, frozen=True):
    """The selection of contact points."""

    shapes: tuple[str, ...] = ("*",)
    """Shell patterns of the labels of collision shapes or of their bodies."""
    spacing: float | None = None
    """Maximum distance between points along a capsule's or cylinder's axis and a box's edges, in radii (half edges for
    boxes); None for end points and corners alone."""
    vertices: int = 16
    """Maximum number of points on one mesh."""
    margin: float | None = None
    """Distance below which a contact point enters the network's inputs [m]; None for four radii, at least 0.12 m."""
    distinct: bool = False
    """Whether to leave out redundant contact points: a sphere inside another one of the same body, and a sphere about
    the joint that connects it to an equal sphere of another body."""

    def __post_init__(self) -> None:
        if not self.shapes:
            raise ValueError("contact_points: shapes is empty; valid: patterns of labels, as ['*'] for all shapes")
        require_numbers(self)
        require(self.vertices >= 1, "contact_points: vertices", self.vertices, "at least 1")
        for name in ("spacing", "margin"):
            _require_positive(f"contact_points: {name}", getattr(self, name))


def _require_positive(what: str, value: float | None) -> None:
    require(value is None or 0 < value < math.inf, what, value, "a finite number above 0")


class Legs(Config, frozen=True):
    """Feet, standing height and swinging joints of a robot with a floating base."""

    feet: tuple[str, ...]
    """Names, among `contacts`, of the bodies on which it stands."""
    height: float
    """Height of the base's origin above the ground in the nominal pose [m]."""
    swing: tuple[str, ...] = ()
    """Joints that move a foot forwards and backwards."""

    def __post_init__(self) -> None:
        require(bool(self.feet), "legs: feet", "empty", "names of at least one of `contacts`")
        require(0 < self.height < math.inf, "legs: height", self.height, "a finite number above 0 [m]")


class Encoders(Config, frozen=True):
    """Errors of the encoders of all joints, in the observations of policies that see sensors."""

    noise: float | None = None
    """Standard deviation of positions [rad or m]; None for the usual one."""
    velocity_noise: float | None = None
    """Standard deviation of velocities [rad/s or m/s]; None for the usual one."""
    bias: float | None = None
    """Standard deviation of the offsets of positions between episodes [rad or m]; None for the usual one."""
    delay: float = 0.0
    """Time from a motion to its reading [s]."""
    rate: float | None = None
    """Readings per second [Hz]; None for one in every frame."""

    def __post_init__(self) -> None:
        for name in ("noise", "velocity_noise", "bias", "delay"):
            value = getattr(self, name)
            require(value is None or 0 <= value < math.inf, f"encoders: {name}", value, "a finite number of at least 0")
        _require_positive("encoders: rate [Hz]", self.rate)


def matching(label: str, patterns: Iterable[str]) -> bool:
    """Return whether a label matches one of the shell patterns."""
    return any(fnmatchcase(label, pattern) for pattern in patterns)


def check_interval(what: str, interval: Interval) -> None:
    """Raise ValueError if an interval is reversed or not finite; `what` names it."""
    lower, upper = interval
    if not (math.isfinite(lower) and math.isfinite(upper)):
        raise ValueError(f"{what} is [{lower:g}, {upper:g}]; valid: two finite numbers")
    if not lower <= upper:
        raise ValueError(f"{what} is [{lower:g}, {upper:g}]; valid: the lower bound first")


def choose(name: str, values: dict[str, float]) -> float | None:
    """Return the value of a name, or else of the first shell pattern that it matches; None for none."""
    if name in values:
        return values[name]
    return next((value for pattern, value in values.items() if fnmatchcase(name, pattern)), None)


_RANGES = {"sampling": ("q", "qd", "control"), "reset": ("q", "qd"), "range": ("q", "qd")}


def expand(data: Any, where: str) -> Any:
    """Return the plain data of the declaration in the file `where` with all short forms expanded.

    A plain name overrides every pattern, and a later pattern an earlier one. Other errors in the data are left to the
    declaration's checks.

    Raises:
        InputError: A pattern matches nothing, or a joint has both `name` and `names`.
    """
    if not isinstance(data, dict) or not isinstance(data.get("joints"), list):
        return data
    joints = [single for entry in data["joints"] for single in _singles(entry, where)]
    if not all(map(_is_named, joints)):  # patterns would match too little
        return {**data, "joints": joints}
    scalars = [joint["name"] for joint in joints if len(COORDINATES[joint["kind"]].qd) == 1]
    rates = [joint["name"] + suffix for joint in joints for suffix in COORDINATES[joint["kind"]].qd]
    whole = {**data, "joints": joints}
    for key in ("actuated", "nominal"):
        if key in whole:
            whole[key] = expand_keys(whole[key], scalars, f"{where}: {key}")
    controls = list(whole["actuated"]) if isinstance(whole.get("actuated"), dict) else []
    if "drives" in whole:
        drives = read_drives(whole["drives"], Path(where).parent)
        whole["drives"] = expand_keys(drives, controls, f"{where}: drives")
    names = {"q": scalars, "qd": rates, "control": controls}
    for section, fields in _RANGES.items():
        if isinstance(whole.get(section), dict):
            whole[section] = {
                key: expand_keys(value, names[key], f"{where}: {section}.{key}") if key in fields else value
                for key, value in whole[section].items()
            }
    return whole


def _is_named(joint: Any) -> bool:
    """Return whether an entry of `joints` has a valid name and kind."""
    return isinstance(joint, dict) and isinstance(joint.get("name"), str) and joint.get("kind") in list(COORDINATES)


def _singles(entry: Any, where: str) -> list[Any]:
    """Expand an entry of `joints` to one per name."""
    if not isinstance(entry, dict) or "names" not in entry:
        return [entry]
    names = entry["names"]
    if "name" in entry or not isinstance(names, list) or not names:
        raise InputError(f"{where}: joints: {entry} needs one of `name: JOINT` and `names: [JOINT, ...]`")
    shared = {key: value for key, value in entry.items() if key != "names"}
    return [{"name": name, **shared} for name in names]

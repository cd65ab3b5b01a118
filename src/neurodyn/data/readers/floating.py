# SPDX-License-Identifier: Apache-2.0
"""Free and ball joints, whose logged pose has a quaternion or three angles: their columns and conventions.

Logs disagree on whether a quaternion's scalar comes first or last, on the axes that angles are about, and on whether a
velocity is in world or body axes. These are declared and checked: the angular velocity must fit the differences of the
rotation better than under any other convention. A log may track another frame than the body's, in another world than
the robot's. A base that nothing tracks is `UNMEASURED`.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Config
from neurodyn.core.description.scene import IDENTITY, Pose, Vector3
from neurodyn.core.description.spec import JointPlace, JointSpec, StateSpec
from neurodyn.core.errors import InputError, notice

Axes = Literal["world", "body"]
Order = Literal["xyzw", "wxyz"]
Names = str | tuple[str | float, ...]

UNMEASURED = "unmeasured"
"""In place of the columns of a floating base whose pose and velocity no sensor of the log tells."""

_ORDERS: tuple[Order, ...] = ("xyzw", "wxyz")
_AXES: tuple[Axes, ...] = ("world", "body")
_WIDTHS = {"position": 3, "quaternion": 4, "angles": 3, "linear_velocity": 3, "angular_velocity": 3}
_SEQUENCE = re.compile(r"(?!.?(.)\1)(?:[xyz]{3}|[XYZ]{3})")
"""Three axes, no two neighbours of which are equal."""
_NORM = 0.01
_STILL = 0.05
_MISFIT, _ROUGH, _STEADY = 0.5, 0.1, 0.5
_SPAN = 12
"""Rows over which velocities are compared with a noisy pose."""


class FloatingColumns(Config, frozen=True):
    """Columns of a free joint, or of a ball joint, which has no position and linear velocity.

    A single name stands for an array with the required number of columns (npz); a list names each column. A number in a
    list stands for a value that does not change and is not logged, such as the height of a robot on wheels.

    Attributes:
        quaternion: Rotation, body to world; empty for angles.
        order: Whether the scalar of the quaternion is last ("xyzw") or first ("wxyz"); required with it.
        angles: Rotation as three angles, in the order of `sequence`.
        sequence: Axes of the angles: of the world in lower case (roll, pitch, yaw is "xyz"), of the turned body in
            upper case (yaw, pitch, roll is "ZYX"); required with them.
        angles_unit: Unit of the angles; empty for rad.
        angular_velocity: Angular velocity; empty to differentiate the poses.
        angular_axes: Axes of the angular velocity; required with it. For a ball joint, "world" means the parent's axes.
        position: Position of the body's origin in the world; empty for a ball joint.
        linear_velocity: Linear velocity; empty for a ball joint, and without an angular velocity.
        linear_axes: Axes of the linear velocity.
        linear_of: Point whose linear velocity is logged.
        center_of_mass: Point in the body's frame that a linear velocity becomes that of [m], the centre of mass; unset
            for the asset's (`with_centers`), or the origin where no asset is read.
        position_unit: Unit of the position; empty for m.
        linear_unit: Unit of the linear velocity; empty for m/s.
        angular_unit: Unit of the angular velocity; empty for rad/s.
        frame: Pose of the tracked frame, of a marker for example, in the body's: x, y, z [m], then a quaternion with
            its scalar last. Velocities of the "origin" and in "body" axes are those of that frame.
        world: Pose of the log's world in the robot's, whose z points up.
    """

    quaternion: Names = ()
    order: Order | None = None
    angles: Names = ()
    sequence: str = ""
    angles_unit: str = ""
    angular_velocity: Names = ()
    angular_axes: Axes | None = None
    position: Names = ()
    linear_velocity: Names = ()
    linear_axes: Axes = "world"
    linear_of: Literal["center_of_mass", "origin"] = "center_of_mass"
    center_of_mass: Vector3 | UnsetType = UNSET
    position_unit: str = ""
    linear_unit: str = ""
    angular_unit: str = ""
    frame: Pose = IDENTITY
    world: Pose = IDENTITY

    def __post_init__(self) -> None:
        for name, width in _WIDTHS.items():
            given = getattr(self, name)
            if isinstance(given, tuple) and given and len(given) != width:
                angles = " (roll, pitch, yaw are `angles`)" if (name, len(given)) == ("quaternion", 3) else ""
                raise ValueError(f"{name} lists {len(given)} columns; valid: {width}{angles}, or the name of an array")
            if isinstance(given, tuple) and given and not any(isinstance(one, str) for one in given):
                raise ValueError(f"{name} lists numbers alone; valid: at least one column")
        if bool(self.quaternion) == bool(self.angles):
            raise ValueError("give either quaternion and its order, or angles and their sequence")
        if bool(self.quaternion) != bool(self.order) or bool(self.angles) != bool(self.sequence):
            need = "an order, xyzw or wxyz" if self.quaternion else "a sequence, such as xyz (of roll, pitch, yaw)"
            raise ValueError(f"{'quaternion' if self.quaternion else 'angles'} and nothing else needs {need}")
        if self.angles and not _SEQUENCE.fullmatch(self.sequence):
            raise ValueError(
                f"sequence is {self.sequence!r}; valid: three axes, of the world (xyz: roll, pitch, yaw) or of the "
                "turned body (ZYX: yaw, pitch, roll)"
            )
        for name in ("frame", "world"):
            norm = float(np.linalg.norm(getattr(self, name)[3:]))
            if not abs(norm - 1.0) <= _NORM:
                raise ValueError(f"{name} has a quaternion of norm {norm:.4g}; valid: x, y, z [m], then a unit "
                                 "quaternion, scalar last")  # fmt: skip
        if bool(self.angular_velocity) != bool(self.angular_axes):
            raise ValueError("give both angular_velocity and angular_axes (world or body), or neither")
        if not self.angular_velocity and not self.linear_velocity:
            return  # velocities come from the poses
        if bool(self.position) != bool(self.linear_velocity) or not self.angular_velocity:
            raise ValueError("give both position and linear_velocity (a free joint), or neither (a ball joint)")

    @property
    def arrays(self) -> dict[str, int]:
        """Number of columns of each array that is referenced as a whole."""
        given = ((getattr(self, name), width) for name, width in _WIDTHS.items())
        return {names: width for names, width in given if isinstance(names, str)}

    @property
    def reading(self) -> str:
        """How the columns of the rotation are read, as a map says it."""
        return f"order: {self.order}" if self.quaternion else f"sequence: {self.sequence}"

    @property
    def center(self) -> Vector3:
        """The centre of mass, or the origin if it is unset [m]."""
        return (0.0, 0.0, 0.0) if self.center_of_mass is UNSET else self.center_of_mass

    def q_columns(self) -> list[tuple[str | float, str]]:
        """Return column, or value, and unit of each position coordinate, in Newton's order (scalar last).

        Angles stand in the places of the quaternion that `quaternions_of` makes of them, the last one twice.
        """
        angles = _element_names(self.angles, 3) if self.angles else ()
        quaternion = (*angles, angles[-1]) if angles else _element_names(self.quaternion, 4)
        if self.order == "wxyz":
            quaternion = (*quaternion[1:], quaternion[0])
        position = _element_names(self.position, 3) if self.position else ()
        return [(name, self.position_unit) for name in position] + [(name, "") for name in quaternion]

    def qd_columns(self) -> list[tuple[str | float, str]]:
        """Return column, or value, and unit of each velocity coordinate, linear ones first."""
        linear = _element_names(self.linear_velocity, 3) if self.linear_velocity else ()
        angular = [(name, self.angular_unit) for name in _element_names(self.angular_velocity, 3)]
        return [(name, self.linear_unit) for name in linear] + angular


def quaternions_of(declared: FloatingColumns, angles: np.ndarray) -> np.ndarray:
    """Return the quaternions, scalar last, of angles [rad], shapes [N, 4] and [N, 3]."""
    from scipy.spatial.transform import Rotation  # slow to import, and few logs need it

    good = np.isfinite(angles).all(axis=1)
    turns = np.full((len(angles), 4), np.nan)
    if good.any():
        turns[good] = Rotation.from_euler(declared.sequence, angles[good]).as_quat()
    return turns


def to_body(floating: dict[str, FloatingColumns], spec: StateSpec, q: np.ndarray, qd: np.ndarray | None = None) -> None:
    """Convert poses [N, nq] of tracked frames in the log's world to those of the bodies in the robot's, in place.

    Velocities [N, nv], which are in the log's world axes, get the robot's.
    """
    from scipy.spatial.transform import Rotation  # slow to import, and few logs need it

    for joint, place in _places(spec):
        declared = floating.get(joint.name)
        if declared is None or declared.frame == declared.world == IDENTITY:
            continue
        world, mount = (Rotation.from_quat(pose[3:]) for pose in (declared.world, declared.frame))
        turn = world * Rotation.from_quat(q[:, place.quaternion]) * mount.inv()
        q[:, place.quaternion] = turn.as_quat()
        make_continuous(q[:, place.quaternion])
        if joint.kind == "free":
            origin = slice(place.q.start, place.q.start + 3)
            q[:, origin] = world.apply(q[:, origin]) + declared.world[:3] - turn.apply(declared.frame[:3])
        for part in () if qd is None else ((place.linear, place.angular) if joint.kind == "free" else (place.angular,)):
            qd[:, part] = world.apply(qd[:, part])  # type: ignore[index]


def to_newton(floating: dict[str, FloatingColumns], spec: StateSpec, q: np.ndarray, qd: np.ndarray) -> None:
    """Convert velocities [N, nv] from the declared axes and point to world axes and the centre of mass, in place.

    Quaternions in q [N, nq] are normalised.
    """
    for joint, place in _places(spec):
        declared = floating.get(joint.name)
        if declared is None:
            continue
        quaternion = q[:, place.quaternion]
        quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
        if not declared.angular_velocity:
            continue
        if declared.angular_axes == "body":
            qd[:, place.angular] = rotate(quaternion, qd[:, place.angular])
        if joint.kind != "free":
            continue
        if declared.linear_axes == "body":
            qd[:, place.linear] = rotate(quaternion, qd[:, place.linear])
        if declared.linear_of == "origin":
            qd[:, place.linear] += np.cross(qd[:, place.angular], _arm(declared, quaternion))


def normalise(spec: StateSpec, q: np.ndarray) -> np.ndarray:
    """Normalise quaternions, in place, and return the positions."""
    for _, place in _places(spec):
        quaternion = q[:, place.quaternion]
        quaternion /= np.linalg.norm(quaternion, axis=1, keepdims=True)
    return q


def velocities_of(spec: StateSpec, q: np.ndarray, slopes: np.ndarray, centers: Mapping[str, Vector3]) -> np.ndarray:
    """Convert time derivatives of positions [N, nq] to velocities in Newton's convention, shape [N, nv].

    For a quaternion, w = 2 q' (x) conj(q). `centers` are centres of mass in the frame of each free joint's body [m], by
    joint; the origin by default.
    """
    qd = np.empty((len(q), spec.nv))
    dof = 0
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if joint.scalar:
            qd[:, dof] = slopes[:, place.q][:, 0]
        else:
            quaternion = q[:, place.quaternion] / np.linalg.norm(q[:, place.quaternion], axis=1, keepdims=True)
            rate, axis = slopes[:, place.quaternion], quaternion[:, :3]
            turning = 2.0 * (quaternion[:, 3:] * rate[:, :3] - rate[:, 3:] * axis - np.cross(rate[:, :3], axis))
            qd[:, place.angular] = turning
            if joint.kind == "free":
                arm = rotate(quaternion, np.broadcast_to(centers.get(joint.name, (0.0, 0.0, 0.0)), (len(q), 3)))
                qd[:, place.linear] = slopes[:, place.q][:, :3] + np.cross(turning, arm)
        dof += joint.nv
    return qd


def check_quaternions(floating: dict[str, FloatingColumns], spec: StateSpec, q: np.ndarray, where: str) -> None:
    """Raise an InputError for quaternions whose norm deviates from 1 by more than 1 %."""
    for joint, place in _places(spec):
        if joint.name not in floating:
            continue
        norm = np.linalg.norm(q[:, place.quaternion], axis=1)
        bad = np.abs(norm - 1.0) > _NORM
        if bad.any():
            row = int(np.argmax(bad))
            lost = "; where tracking was lost, leave its values empty, with `missing: gap`" if norm[row] == 0.0 else ""
            raise InputError(
                f"{where}: the quaternion of {joint.name!r} in row {row} has norm {norm[row]:.4g} ({int(bad.sum())} "
                f"such rows); expected unit quaternions: check the columns that `floating` names for it{lost}"
            )


def check_readings(
    floating: dict[str, FloatingColumns], spec: StateSpec, q: np.ndarray, qd: np.ndarray, steps: np.ndarray, where: str
) -> None:
    """Raise an InputError unless velocities fit the pose differences best in the declared order and axes.

    Bodies that hardly move pass, and so do velocities that fit over `_SPAN` rows: noise of the pose does not add up
    there, as that of a motion capture's rotation beside a gyroscope. Quaternions in q [N, nq] have the scalar last
    under the declared order, qd [N, nv] is in the declared axes, and `steps` [N - 1] are times from each row to the
    next [s], NaN between different runs.
    """
    for joint, place in _places(spec):
        declared = floating.get(joint.name)
        if declared is not None and declared.angular_velocity:
            for one in _comparisons(declared, q[:, place.q], qd[:, place.qd], steps):
                _judge(one, joint.name, where)


def fitting_conventions(declared: FloatingColumns, q: np.ndarray, qd: np.ndarray, steps: np.ndarray) -> dict[str, str]:
    """Return conventions of velocities, and of the quaternion, that fit a pose's differences where the declared do not.

    Shapes and conventions are those of `check_readings`, of a single joint. Of angular velocities they are told first,
    and of linear ones once those of angular ones fit.
    """
    for one in _comparisons(declared, q, qd, steps):
        best = _Reading.of(one.by_span[0], one.declared)
        if not best.fits and best.least <= _ROUGH * best.speed:
            return dict(part.split(": ") for part in best.best.split(", "))
    return {}


class _Comparison(NamedTuple):
    """A velocity beside the differences of its pose: misfits and speeds of each reading, over one row and several."""

    by_span: list[dict[str, tuple[float, float]]]
    declared: str
    what: str
    unit: str
    units: str


def _comparisons(
    declared: FloatingColumns, q: np.ndarray, qd: np.ndarray, steps: np.ndarray
) -> Iterator[_Comparison]:  # fmt: skip
    rows = np.flatnonzero(np.isfinite(steps) & (steps > 0))
    if not len(rows):
        return
    quaternion, mean = q[:, -4:], 0.5 * (qd[rows] + qd[rows + 1])
    turning = mean[:, -3:]
    angular = [_angular_misfits(declared, quaternion, turning, rows, steps[rows], span) for span in (1, _SPAN)]
    words = f"{declared.reading}, angular_axes: {declared.angular_axes}"
    yield _Comparison(angular, words, "angular velocity", "rad/s", "angular_unit")
    if mean.shape[1] > 3:
        rate = (q[rows + 1, :3] - q[rows, :3]) / steps[rows, None]
        quaternion = quaternion[rows]
        turning = turning if declared.angular_axes == "world" else rotate(quaternion, turning)
        arm = np.cross(turning, _arm(declared, quaternion))
        linear = [_linear_misfits(quaternion, mean[:, :3], rate, arm, span) for span in (1, _SPAN)]
        words = f"linear_axes: {declared.linear_axes}, linear_of: {declared.linear_of}"
        yield _Comparison(linear, words, "linear velocity", "m/s", "linear_unit and position_unit")


def continuous_signs(spec: StateSpec, q: np.ndarray) -> None:
    """Flip signs of quaternions, in place, so that none jumps to its negative from one row to the next."""
    for _, place in _places(spec):
        make_continuous(q[:, place.quaternion])


def make_continuous(quaternion: np.ndarray) -> None:
    """Flip signs of quaternions [N, 4], in place; see `continuous_signs`."""
    jumps = (quaternion[1:] * quaternion[:-1]).sum(axis=1) < 0
    quaternion[1:] *= np.where(np.cumsum(jumps) % 2, -1.0, 1.0)[:, None]


def rotate(quaternion: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Rotate vectors by unit quaternions (scalar last), shapes [N, 3] and [N, 4]."""
    axis, scalar = quaternion[:, :3], quaternion[:, 3:]
    turned = 2.0 * np.cross(axis, vector)
    return vector + scalar * turned + np.cross(axis, turned)


def rotation_between(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the rotation vectors of second first^-1 in world axes [rad], shape [N, 3]; scalar last."""
    a, b = first / np.linalg.norm(first, axis=1, keepdims=True), second / np.linalg.norm(second, axis=1, keepdims=True)
    # second * conjugate(first)
    vector = a[:, 3:] * b[:, :3] - b[:, 3:] * a[:, :3] - np.cross(b[:, :3], a[:, :3])
    scalar = (a * b).sum(axis=1)
    vector, scalar = np.where(scalar[:, None] < 0, -vector, vector), np.abs(scalar)
    sine = np.linalg.norm(vector, axis=1)
    angle = 2.0 * np.arctan2(sine, scalar)
    return vector * np.where(sine > 1e-12, angle / np.maximum(sine, 1e-12), 2.0)[:, None]


def _arm(declared: FloatingColumns, quaternion: np.ndarray) -> np.ndarray:
    """Return the vector from the tracked origin to the centre of mass in the log's axes [m], shape [N, 3]."""
    from scipy.spatial.transform import Rotation  # slow to import, and few logs need it

    away = np.subtract(declared.center, declared.frame[:3])
    arm = Rotation.from_quat(declared.frame[3:]).inv().apply(away) if declared.frame != IDENTITY else away
    return rotate(quaternion, np.broadcast_to(arm, (len(quaternion), 3)))


def _angular_misfits(
    declared: FloatingColumns, quaternion: np.ndarray, velocity: np.ndarray, rows: np.ndarray, steps: np.ndarray,
    span: int,
) -> dict[str, tuple[float, float]]:  # fmt: skip
    """Return median misfit and median speed for each convention of quaternion order and axes."""
    misfits = {}
    for (reading, read), axes in product(_readings(declared, quaternion).items(), _AXES):
        rate = rotation_between(read[rows], read[rows + 1]) / steps[:, None]
        logged = velocity if axes == "world" else rotate(read[rows], velocity)
        misfits[f"{reading}, angular_axes: {axes}"] = _misfit(logged, rate, span)
    return misfits


def _readings(declared: FloatingColumns, quaternion: np.ndarray) -> dict[str, np.ndarray]:
    """Return the quaternions that the same columns would be under each reading, the declared one included."""
    from scipy.spatial.transform import Rotation  # slow to import, and few logs need it

    if declared.quaternion:  # reading the other order permutes (x, y, z, w) cyclically
        shift = 1 if declared.order == "wxyz" else -1
        return {f"order: {o}": np.roll(quaternion, shift * (o != declared.order), axis=1) for o in _ORDERS}
    good, other = np.isfinite(quaternion).all(axis=1), np.full_like(quaternion, np.nan)
    with warnings.catch_warnings():  # of angles that have several solutions
        warnings.simplefilter("ignore")
        angles = Rotation.from_quat(quaternion[good]).as_euler(declared.sequence)
    swapped = declared.sequence.swapcase()
    other[good] = Rotation.from_euler(swapped, angles).as_quat()
    return {declared.reading: quaternion, f"sequence: {swapped}": other}


def _linear_misfits(
    quaternion: np.ndarray, velocity: np.ndarray, rate: np.ndarray, arm: np.ndarray, span: int
) -> dict[str, tuple[float, float]]:
    """Return median misfit and median speed for each convention of axes and point.

    `rate` is the velocity of the origin and `rate + arm` that of the centre of mass, in world axes.
    """
    points = {"origin": rate, "center_of_mass": rate + arm}
    return {
        f"linear_axes: {axes}, linear_of: {of}": _misfit(
            velocity if axes == "world" else rotate(quaternion, velocity), points[of], span
        )
        for axes, of in product(_AXES, points)
    }


def _misfit(logged: np.ndarray, rate: np.ndarray, span: int) -> tuple[float, float]:
    """Return the median distance between two velocities, and the median speed, over the faster half of the rows.

    Both are means over `span` rows.
    """
    whole = len(logged) // span * span
    if whole:
        logged, rate = (x[:whole].reshape(-1, span, 3).mean(1) for x in (logged, rate))
    # Pose noise makes a body at rest appear to move, so only a tenth of the differentiated speed counts.
    speed = np.maximum(np.linalg.norm(logged, axis=1), 0.1 * np.linalg.norm(rate, axis=1))
    fast = speed >= np.median(speed)
    return float(np.median(np.linalg.norm(logged - rate, axis=1)[fast])), float(np.median(speed[fast]))


class _Reading(NamedTuple):
    """The declared reading of a velocity beside the best one: misfits, speed, and whether it is beaten clearly."""

    misfit: float
    speed: float
    best: str
    least: float
    beaten: bool

    @classmethod
    def of(cls, misfits: dict[str, tuple[float, float]], declared: str) -> "_Reading":
        """Judge the declared one of several readings."""
        misfit, speed = misfits[declared]
        best = min(misfits, key=lambda reading: misfits[reading][0])
        least = misfits[best][0]
        beaten = misfit > min(max(2.0 * least, 0.1 * speed), max(10.0 * least, 0.01 * speed))
        return cls(misfit, speed, best, least, beaten)

    @property
    def fits(self) -> bool:
        """Whether the declared reading fits, or the body hardly moves."""
        return self.speed < _STILL or (self.misfit <= _MISFIT * self.speed and not self.beaten)


def _judge(comparison: _Comparison, joint: str, where: str) -> None:
    by_span, declared, what, unit, units = comparison
    judged = [_Reading.of(misfits, declared) for misfits in by_span]
    if any(one.fits for one in judged):
        closest = min(judged, key=lambda one: one.misfit / max(one.speed, _STILL))
        steady = judged[-1].misfit > _STEADY * judged[0].misfit  # noise would have averaged out
        if steady and closest.misfit > _ROUGH * max(closest.speed, _STILL):
            notice(
                f"{where}: the {what} of {joint!r} fits the differences of its pose only roughly (median misfit "
                f"{closest.misfit:.2g} {unit} at {closest.speed:.2g} {unit}); check that the pose is that of the body, "
                "not of a marker or sensor on it (whose place is its `frame`)"
            )
        return
    misfit, speed, best, least, beaten = judged[0]
    if beaten and least <= _MISFIT * speed:
        trouble = f"but '{best}' would fit ({least:.2g} {unit}); correct the column map"
    else:
        trouble = f"and nor does another order, axes or point; check `{units}`, the times, and the columns"
    raise InputError(
        f"{where}: the {what} of {joint!r} does not fit the differences of its pose as '{declared}' (median misfit "
        f"{misfit:.2g} {unit} at {speed:.2g} {unit}), {trouble}"
    )


def _places(spec: StateSpec) -> list[tuple[JointSpec, JointPlace]]:
    """Return the joints with a quaternion, and their columns in q and qd."""
    return [(joint, place) for joint, place in zip(spec.joints, spec.places, strict=True) if not joint.scalar]


def _element_names(names: Names, width: int) -> tuple[str | float, ...]:
    return names if isinstance(names, tuple) else tuple(f"{names}[{index}]" for index in range(width))

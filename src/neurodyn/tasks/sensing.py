# SPDX-License-Identifier: Apache-2.0
"""What a robot's own sensors tell of a task: the policy's observation terms and, for its critic, everything else.

Every task is written in quantities of the state. Its terms that a sensor, the user or the policy itself knows stay in
the policy's group (`ObservationTerm.sensor`); gyroscope and gravity direction (in the axes of the IMU), encoders and
last action are added where they are missing; the critic sees all terms of the state, without noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import torch
from torch import Tensor

from neurodyn.core.description.sensors import Sensor
from neurodyn.core.errors import InputError, among, unknown
from neurodyn.dynamics.quantities import Quantities
from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import constant, index
from neurodyn.robots import Robot
from neurodyn.tasks.observations import CRITIC, POLICY, SENSED, Memory, ObservationTerm, ObservationTerms, each

GYROSCOPE, GRAVITY = "gyroscope", "gravity"
"""Readings of an IMU in its axes: angular velocity [rad/s], and direction of gravity (of its attitude filter)."""


@dataclass(frozen=True)
class Knowledge:
    """How a robot knows an observation term.

    Attributes:
        instrument: What is late or slow together: "delay.INSTRUMENT" and "rate.INSTRUMENT"
            (`policy.worlds.disturbances`); "" if nothing is.
        noise: Half the width of its usual uniform noise, if neither task nor robot declare it.
        bias: Half the width of its usual offset, drawn per episode.
    """

    instrument: str = ""
    noise: float = 0.0
    bias: float = 0.0


KNOWLEDGE: Mapping[str, Knowledge] = {
    GYROSCOPE: Knowledge(GYROSCOPE, noise=0.2, bias=0.02),
    GRAVITY: Knowledge(GRAVITY, noise=0.05, bias=0.02),
    "heading": Knowledge(GRAVITY, noise=0.02, bias=0.05),
    "encoder": Knowledge("encoder", noise=0.01, bias=0.01),
    "encoder_rate": Knowledge("encoder", noise=0.5),
    "camera": Knowledge("camera"),
    "command": Knowledge(),
    "clock": Knowledge(),
    "action": Knowledge(),
}
"""Ways to know a term. Noise of IMU and encoders: mjlab's velocity task; a heading is that of an attitude filter."""
_OF_QUANTITY = {
    "base_angular_velocity": GYROSCOPE, "projected_gravity": GRAVITY, "joint_position": "encoder",
    "joint_velocity": "encoder_rate", "command": "command", "last_action": "action",
}  # fmt: skip
"""How quantities and terms of these names are known."""
_OF_ARMS = {"end_effector_position": "encoder", "end_effector_velocity": "encoder_rate"}
_IMU_KINDS, _ATTITUDE_KINDS = ("imu", "gyroscope"), ("orientation", "pose")
_ROOT_3 = 3.0**0.5
"""Half the width of a uniform distribution, per standard deviation."""


def sensed_terms(robot: Robot, terms: ObservationTerms, actions: Sequence[str]) -> ObservationTerms:
    """Return the terms of policies that see only sensors, and of their critics.

    Args:
        robot: The declared robot.
        terms: The task's terms, in which policies see the state.
        actions: Names of the components of an action.

    Raises:
        InputError: A term names an unknown sensor, or the robot's IMU is on no link.
    """
    given, more = terms[POLICY], terms.get(SENSED, ())
    planar = base_joints(robot)
    imu = Imu.of(robot, planar)
    known = [(term, knows) for term in (*given, *more) if (knows := _knows(term, robot))]
    if planar:  # their terms hold joints without encoders
        known = [(term, knows) for term, knows in known if "encoder" not in knows]
    kept = [(term, knows) for term, knows in known if knows not in (GYROSCOPE, GRAVITY)]
    seen = [] if imu is None else [(imu.term(name), name) for name in (GYROSCOPE, GRAVITY)]
    names = {knows for _, knows in kept}
    seen += kept
    seen += [(term, knows) for term, knows in _encoders(robot, planar) if knows not in names]
    if "action" not in names:
        columns = each("last_action.{}", actions)
        seen.append((ObservationTerm("last_action", lambda now, memory: memory.action, columns), "action"))
    clean = tuple(replace(term, noise=0.0) for term in (*given, *terms.get(CRITIC, ())))
    return {POLICY: tuple(_with_errors(term, knows, robot) for term, knows in seen), CRITIC: clean}


def base_joints(robot: Robot) -> tuple[str, ...]:
    """Return the joints that stand for a floating base, such as x, z and pitch of a planar runner, without encoders.

    They are the leading joints that nothing drives, if one of them slides: they carry the whole robot.
    """
    driven = set(robot.joint_efforts())
    leading = tuple(takewhile(lambda joint: robot.fixed_base and joint.name not in driven, robot.joints))
    slides = len(leading) < len(robot.joints) and any(joint.kind == "prismatic" for joint in leading)
    return tuple(joint.name for joint in leading) if slides else ()


def _knows(term: ObservationTerm, robot: Robot) -> str:
    """Return how a robot knows a term; "" if it does not."""
    named = {**_OF_QUANTITY, **(_OF_ARMS if robot.fixed_base else {})}
    knows = term.sensor or (named.get(term.source) if isinstance(term.source, str) else named.get(term.name)) or ""
    if knows and knows not in KNOWLEDGE:
        raise unknown(f"sensor of observation term {term.name!r}", knows, KNOWLEDGE)
    return knows


def _encoders(robot: Robot, without: Sequence[str]) -> list[tuple[ObservationTerm, str]]:
    """Return terms of the positions and velocities of all joints with encoders."""
    q, qd = _joint_columns(robot)
    given = (("joint_position", q, "{}", "encoder"), ("joint_velocity", qd, "{}_velocity", "encoder_rate"))
    return [(_of_joints(kind, names, without, text), knows) for kind, names, text, knows in given if names]


def _joint_columns(robot: Robot) -> tuple[list[str], list[str]]:
    """Return the names of the columns of "joint_position" and "joint_velocity"."""
    joints = [joint for joint in robot.spec.joints if joint.kind != "free"]
    return [name for joint in joints for name in joint.q_names], [name for joint in joints for name in joint.qd_names]


def _of_joints(kind: str, names: Sequence[str], without: Sequence[str], text: str) -> ObservationTerm:
    kept = tuple(place for place, name in enumerate(names) if name not in without)
    columns = each(text, [names[place] for place in kept])
    if len(kept) == len(names):
        return ObservationTerm(kind, columns=columns)
    return ObservationTerm(kind, lambda now, memory: now[kind].index_select(-1, index(kept, now[kind])), columns)


def _with_errors(term: ObservationTerm, knows: str, robot: Robot) -> ObservationTerm:
    """Return a term with the errors of its sensor: as the robot declares them, or the task, or as is usual."""
    usual, declared, scale = KNOWLEDGE[knows], _declared(robot, knows), abs(term.scale)
    noise, bias = term.noise or scale * usual.noise, term.bias or scale * usual.bias
    if declared is None:
        return replace(term, sensor=usual.instrument, noise=noise, bias=bias)
    return replace(
        term, sensor=usual.instrument, noise=noise if declared.noise is None else scale * declared.noise,
        bias=bias if declared.bias is None else scale * declared.bias, delay=declared.delay, rate=declared.rate,
    )  # fmt: skip


@dataclass(frozen=True)
class _Declared:
    """Errors that a robot declares for a sensor; half widths, None if it does not."""

    noise: float | None
    bias: float | None
    delay: float
    rate: float | None


def _declared(robot: Robot, knows: str) -> _Declared | None:
    if knows in ("encoder", "encoder_rate"):
        encoders, rates = robot.encoders, knows == "encoder_rate"
        if encoders is None:
            return None
        noise = encoders.velocity_noise if rates else encoders.noise
        bias = 0.0 if rates else encoders.bias
        return _Declared(_half(noise), _half(bias), encoders.delay, encoders.rate)
    sensor = _first(robot, _IMU_KINDS if knows == GYROSCOPE else _ATTITUDE_KINDS if knows == GRAVITY else ())
    if sensor is None:
        return None
    noise = None if not sensor.noises else sensor.noises[-1] if knows == GRAVITY else sensor.noises[0]
    biases = sensor.bias if isinstance(sensor.bias, tuple) else (sensor.bias,)
    bias = biases[-1] if knows == GRAVITY else biases[0]
    return _Declared(_half(noise), _half(bias or None), sensor.delay, sensor.rate)


def _half(deviation: float | None) -> float | None:
    return None if deviation is None else _ROOT_3 * deviation


def _first(robot: Robot, kinds: Sequence[str]) -> Sensor | None:
    return next((sensor for sensor in robot.sensors.values() if sensor.kind in kinds), None)


_Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class _Turn:
    """A joint between base and IMU: its columns among joint positions and velocities, and its frames."""

    place: int
    speed: int
    before: _Matrix
    after: _Matrix
    axis: tuple[float, ...]


@dataclass(frozen=True)
class Imu:
    r"""A robot's IMU, on its base or, behind joints with encoders, on another link.

    With the rotation $R_c = R\,F\,e^{[a]q}\,T^T$ of a joint's child body and that of the sensor in it, $S$, vectors
    $v$ of the base read $S^T R_c^T v$, and angular velocities add $T a \dot q$ along the way.

    Attributes:
        mount: Rotation from sensor to body axes, as rows; None for the identity.
        path: Joints from the base (or world) to its link.
        down: Direction of gravity in the world, for robots whose base is bolted; None for floating bases.
    """

    mount: _Matrix | None
    path: tuple[_Turn, ...] = ()
    down: tuple[float, ...] | None = None

    @classmethod
    def of(cls, robot: Robot, base: Sequence[str] = ()) -> "Imu | None":
        """Return the declared IMU, else one on the base, whose last joint is that of `base`; None for a bolted robot.

        Raises:
            InputError: There is no such link, or a joint before it has several degrees of freedom.
        """
        sensor = _first(robot, _IMU_KINDS)
        if sensor is None and not robot.spec.floating and not base:
            return None
        names = [joint.name for joint in robot.joints]
        link = (base[-1] if base else names[0]) if sensor is None or not sensor.link else sensor.link
        if link not in names:
            raise InputError(f"robot {robot.name!r}: its IMU is on no link {link!r}{among(link, names)}")
        still = sensor is None or sensor.quaternion == (0.0, 0.0, 0.0, 1.0)
        mount = None if sensor is None or still else _matrix(sensor.quaternion)
        size = sum(x * x for x in robot.gravity) ** 0.5
        down = None if robot.spec.floating else tuple(x / size for x in robot.gravity)
        return cls(mount, () if down is None and link == names[0] else _path(robot, link), down)

    def term(self, name: str) -> ObservationTerm:
        """Return the term of its reading `GYROSCOPE` or `GRAVITY`, which robots may give as a quantity of this name."""
        return ObservationTerm(name, Reading(name, self), each(f"{name}.{{}}", "xyz"))

    def read(self, now: Quantities) -> Tensor:
        """Return angular velocity [rad/s] and direction of gravity in sensor axes, shape [worlds, 2, 3]."""
        position = now["joint_position"] if self.path else None
        if self.down is None:
            rows = torch.stack([now["base_angular_velocity"], now["projected_gravity"]], 1)
        else:
            like = now["joint_position"]
            rows = constant(((0.0, 0.0, 0.0), self.down), like).expand(len(like), 2, 3)
        for turn in self.path:
            assert position is not None
            axis = constant(turn.axis, position)
            spun = rotation.matrix(rotation.exponential(position[:, turn.place, None] * axis))
            rows = rotation.rotate_rows(rotation.rotate_rows(rows, constant(turn.before, rows)), spun)
            own = now["joint_velocity"][:, turn.speed, None] * axis
            rows = rotation.rotate_rows(torch.stack([rows[:, 0] + own, rows[:, 1]], 1), constant(turn.after, rows))
        return rows if self.mount is None else rotation.rotate_rows(rows, constant(self.mount, rows))


@dataclass(frozen=True)
class Reading:
    """Values of an IMU's reading: as measured, else as the state implies.

    Attributes:
        name: Its name, `GYROSCOPE` or `GRAVITY`.
        imu: The IMU.
    """

    name: str
    imu: Imu

    def __call__(self, now: Quantities, memory: Memory) -> Tensor:
        """Return the reading, shape [worlds, 3]."""
        if self.name in now:
            return now[self.name]
        if not self.imu.path and self.imu.mount is None and self.imu.down is None:
            return now["base_angular_velocity" if self.name == GYROSCOPE else "projected_gravity"]
        return now.derive("imu", self.imu.read)[:, int(self.name == GRAVITY)]


def _path(robot: Robot, link: str) -> tuple[_Turn, ...]:
    """Return the joints between the base and a link.

    Raises:
        InputError: One of them has several degrees of freedom.
    """
    from neurodyn.sim.simulators import articulation

    joints, (q, qd) = articulation(robot).joints, _joint_columns(robot)
    number, path = next(i for i, joint in enumerate(joints) if joint.name == link), []
    while number >= 0 and joints[number].kind != "free":
        joint = joints[number]
        if not joint.scalar:
            raise InputError(f"robot {robot.name!r}: its IMU is behind joint {joint.name!r}; valid: joints of one axis")
        turns = joint.shares[0]
        path.append(
            _Turn(
                q.index(joint.name), qd.index(joint.name),
                _matrix(joint.parent_frame[3:]), tuple(zip(*_matrix(joint.child_frame[3:]), strict=True)),
                tuple(turns * x for x in joint.axis),
            )
        )  # fmt: skip
        number = joint.parent
    return tuple(reversed(path))


def _matrix(quaternion: Sequence[float]) -> _Matrix:
    size = sum(x * x for x in quaternion) ** 0.5
    return tuple(tuple(row) for row in rotation.quaternion_matrix([x / size for x in quaternion]))

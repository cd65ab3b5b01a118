# SPDX-License-Identifier: Apache-2.0
"""Robots without motion capture: encoders and an IMU in place of the pose and velocity of their base.

Such a robot returns the positions (and velocities) of its joints, `ANGULAR_VELOCITY`, and `ORIENTATION` or `DIRECTION`,
in the axes of its IMU. Policies of sensors (`tasks.sensing`) need no more. Rewards and failures often do: a stand-in
for a robot returns its whole state as `TRUTH`, by which its episodes are scored; those of other robots are not.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.description.sensors import Stream
from neurodyn.core.errors import InputError
from neurodyn.data.readers.floating import UNMEASURED
from neurodyn.data.readers.sensor_columns import SensorColumns
from neurodyn.dynamics.batch import State, Step
from neurodyn.dynamics.quantities import Quantities, StateReader
from neurodyn.geometry import rotation
from neurodyn.robots import Robot
from neurodyn.tasks import Task
from neurodyn.tasks.sensing import GRAVITY, GYROSCOPE, Imu

ANGULAR_VELOCITY, SPECIFIC_FORCE, ORIENTATION, DIRECTION, TRUTH = (
    "angular_velocity", "specific_force", "orientation", "gravity", "truth",
)  # fmt: skip
"""Values that a robot without a tracked base returns: of its gyroscope [rad/s] and, if it has one, accelerometer (mean
over the frame before) [m/s^2]; rotation from IMU to world by its attitude filter (scalar last), or direction of
gravity; of stand-ins, the true q and qd, side by side. All but the truth in axes of the IMU."""
STREAMS = (Stream(name="imu", kind="imu", averaged=(SPECIFIC_FORCE,)), Stream(name="attitude", kind="orientation"))
"""Streams of its logs."""
FORCE_COLUMNS = slice(3, 6)
"""Columns of the specific force among theirs; in a log, a row has the mean over the frame that begins there."""
UNKNOWN = ("base_position", "base_height", "base_linear_velocity", "contact", "contact_height", "contact_speed")
"""Quantities that are not measured."""
_STILL = 1e-6


@dataclass(frozen=True)
class SensedReading:
    """Readings of a robot without motion capture.

    Attributes:
        gyroscope: Angular velocity, axes of the IMU [rad/s], shape [3].
        gravity: Direction of gravity, axes of the IMU, shape [3].
        attitude: Rotation from the IMU to a world whose heading is 0 at the start, scalar last, shape [4].
        force: Mean specific force over the frame before, axes of the IMU [m/s^2], shape [3]; NaN without an
            accelerometer.
        truth: Whole state of a stand-in; None for robots.
    """

    gyroscope: Tensor
    gravity: Tensor
    attitude: Tensor
    force: Tensor
    truth: State | None

    @property
    def measured(self) -> Tensor:
        """Columns of `STREAMS`, shape [1, columns]."""
        return torch.cat([self.gyroscope, self.force, self.attitude])[None]


@dataclass(frozen=True)
class SensedFrame:
    """What is sensed at the start of a frame, with the command sent in it: of the joints behind the base."""

    q: tuple[float, ...]
    qd: tuple[float, ...]
    control: tuple[float, ...]
    reading: SensedReading


class SensedBase:
    """Follows a base by its IMU: what is sensed of it, and a state with what is not at rest at the start.

    Attributes:
        reading: The last readings; None before the first.
        known: Whether states of the base are estimated while the robot moves.
        frames: What was sensed in the episode so far; complete once the robot has stopped.
    """

    def __init__(self, robot: Robot) -> None:
        """Prepare for a robot.

        Raises:
            InputError: It has no floating base, or its IMU is on another link.
        """
        imu = Imu.of(robot) if robot.spec.floating else None
        if imu is None or imu.path:
            raise InputError(
                f"robot {robot.name!r}: its base is {UNMEASURED!r}; valid: one with a floating base and an IMU on it"
            )
        mount = torch.tensor(imu.mount or ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), dtype=torch.float32)
        self._from_base = rotation.conjugate(rotation.from_matrix(mount[None])[0])  # to axes of the IMU
        self._spec = robot.spec
        height = robot.legs.height if robot.legs is not None else sum(robot.reset.height or (0.0, 0.0)) / 2.0
        self._place = torch.tensor([0.0, 0.0, height])
        self.reading: SensedReading | None = None
        self.known = False
        self.frames: list[SensedFrame] = []
        self._heading, self._first, self._time = 0.0, None, 0.0

    def restart(self) -> None:
        """Begin an episode, whose heading starts at 0."""
        self.reading, self._first, self._heading = None, None, 0.0
        self.frames = []

    def keep(self, q: Sequence[float], qd: Sequence[float], control: Sequence[float]) -> None:
        """Keep what is sensed at the start of a frame."""
        if self.reading is not None:
            self.frames.append(SensedFrame(tuple(q), tuple(qd), tuple(control), self.reading))

    def read(self, values: Mapping[str, list[float]], time: float) -> None:
        """Take the readings of a frame.

        Args:
            values: Values by name.
            time: Time of the readings [s].

        Raises:
            InputError: One is missing, or has another number of values, or one that is not finite.
        """
        given = {name: _vector(values, name, 3) for name in (ANGULAR_VELOCITY, DIRECTION) if name in values}
        if ANGULAR_VELOCITY not in given:
            raise InputError(f"has no {ANGULAR_VELOCITY!r}; valid: 3 finite numbers, in axes of the IMU [rad/s]")
        spin = given[ANGULAR_VELOCITY]
        if ORIENTATION in values:
            attitude = torch.nn.functional.normalize(_vector(values, ORIENTATION, 4), dim=-1)
        elif DIRECTION in given:
            down = torch.nn.functional.normalize(given[DIRECTION], dim=-1)
            self._heading -= float(spin @ down) * (time - self._time if self.reading is not None else 0.0)
            attitude = _upright(down, self._heading)
        else:
            raise InputError(f"has neither {ORIENTATION!r} nor {DIRECTION!r}; valid: one of them, in axes of the IMU")
        self._time = time
        if self._first is None:
            ahead = rotation.rotate(rotation.multiply(attitude, self._from_base), torch.tensor([1.0, 0.0, 0.0]))
            self._first = _about_vertical(-math.atan2(float(ahead[1]), float(ahead[0])))
        attitude = rotation.multiply(self._first, attitude)
        gravity = rotation.rotate(rotation.conjugate(attitude), torch.tensor([0.0, 0.0, -1.0]))
        force = _vector(values, SPECIFIC_FORCE, 3) if SPECIFIC_FORCE in values else torch.full((3,), math.nan)
        self.reading = SensedReading(spin, gravity, attitude, force, self._truth(values))

    def _truth(self, values: Mapping[str, list[float]]) -> State | None:
        if TRUTH not in values:
            return None
        whole = _vector(values, TRUTH, self._spec.nq + self._spec.nv)
        return State(whole[None, : self._spec.nq], whole[None, self._spec.nq :])

    def complete(self, q: Sequence[float], qd: Sequence[float]) -> tuple[list[float], list[float]]:
        """Return positions and velocities of all joints: those of the base as far as they are sensed, else at rest."""
        assert self.reading is not None
        base = rotation.multiply(self.reading.attitude, self._from_base)
        spin = rotation.rotate(self.reading.attitude, self.reading.gyroscope)
        return [*self._place.tolist(), *base.tolist(), *q], [0.0, 0.0, 0.0, *spin.tolist(), *qd]

    def leave_out(self, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions and velocities with NaN in the columns of the unmeasured base."""
        joint = self._spec.joints[0]
        q, qd = q.clone(), qd.clone()
        q[..., : joint.nq] = qd[..., : joint.nv] = math.nan
        return q, qd


def _vector(values: Mapping[str, list[float]], name: str, width: int) -> Tensor:
    numbers = values[name]
    if len(numbers) != width or not all(map(math.isfinite, numbers)):
        raise InputError(f"{name!r} is {numbers}; valid: {width} finite numbers")
    return torch.tensor(numbers, dtype=torch.float32)


def _about_vertical(angle: float) -> Tensor:
    return torch.tensor([0.0, 0.0, math.sin(0.5 * angle), math.cos(0.5 * angle)])


def _upright(down: Tensor, heading: float) -> Tensor:
    """Return the rotation that takes a direction of gravity to the world's, by the shortest way, then a heading."""
    axis = torch.linalg.cross(down, torch.tensor([0.0, 0.0, -1.0]))
    size, angle = float(axis.norm()), math.atan2(float(axis.norm()), float(-down[2]))
    turn = angle / size * axis if size > _STILL else torch.tensor([angle, 0.0, 0.0])
    return rotation.multiply(_about_vertical(heading), rotation.exponential(turn))


class SensedReader(StateReader):
    """Reads the quantities of a robot without motion capture, and those by which its episodes are judged."""

    def __init__(self, reader: StateReader, base: SensedBase) -> None:
        """Wrap the reader of a tracked robot."""
        self._reader, self._base = reader, base
        self.measured = reader.measured

    def read(self, state: State, step: Step | None = None, torque: Tensor | None = None) -> Quantities:
        """Return the quantities of the last readings; unknown ones are refused, and NaN where rewards read them."""
        sensed, reading = self._reader.read(state, step, torque), self._base.reading
        if reading is None:  # a rehearsal
            return sensed
        if self._base.known:
            now = sensed.replacing({})
            now.judged = sensed if reading.truth is None else self._reader.read(reading.truth, step, torque)
            return now
        readings = {GYROSCOPE: reading.gyroscope[None], GRAVITY: reading.gravity[None]}
        given = {name: lambda of, value=value: value for name, value in readings.items()}
        unknown = [name for name in UNKNOWN if name in sensed]
        now = sensed.replacing({**given, **{name: _refusal(name) for name in unknown}})
        if reading.truth is None:
            now.judged = sensed.replacing({name: _missing(name) for name in unknown})
        else:
            now.judged = self._reader.read(reading.truth, step, torque)
        return now


def _refusal(name: str):  # noqa: ANN202
    def refuse(of: Quantities) -> Tensor:
        raise InputError(
            f"{name!r} is not measured without motion capture; valid: a policy trained with --observe sensors"
        )

    return refuse


def _missing(name: str):  # noqa: ANN202
    def missing(of: Quantities) -> Tensor:
        width = {"base_height": 1}.get(name, 3 if name.startswith("base") else len(of.contact_names))
        return torch.full((len(of.state.q), width), math.nan)

    return missing


def why_not_scored(task: Task) -> str:
    """Return in words why episodes of a robot without motion capture cannot be scored; "" if they can."""
    needed = [name for name in task.needs if name in UNKNOWN] + (["contact"] if task.contacts else [])
    return (
        f"episodes are not scored, because these are not measured: {', '.join(dict.fromkeys(needed))}" if needed else ""
    )


def columns_of(names: Sequence[str]) -> dict[str, SensorColumns]:
    """Return the sensors in the columns of a robot's log."""

    def of(name: str, count: int) -> tuple[str, ...]:
        return tuple(f"{name}.{k}" for k in range(count))

    spin: dict[str, str | tuple[str, ...]] = {ANGULAR_VELOCITY: of(ANGULAR_VELOCITY, 3)}
    if f"{SPECIFIC_FORCE}.0" in names:
        columns = {**spin, SPECIFIC_FORCE: of(SPECIFIC_FORCE, 3)}
        measured = {"imu": SensorColumns(kind="imu", columns=columns, means_before=(SPECIFIC_FORCE,))}
    else:
        measured = {"imu": SensorColumns(kind="gyroscope", columns=spin)}
    if f"{ORIENTATION}.0" in names:
        measured["attitude"] = SensorColumns(kind="orientation", columns={"quaternion": of(ORIENTATION, 4)})
    return measured

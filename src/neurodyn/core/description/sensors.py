# SPDX-License-Identifier: Apache-2.0
"""Sensors other than joint encoders: their streams in a log, and their mounting on the robot.

A *stream* is part of a log: named columns of one kind of sensor. A *sensor* says what they measure: a link, position
and axes in its body frame, noise and delay. Streams travel with data; sensors are declared with a robot or in the
settings of an identification. The two are matched by name.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from neurodyn.core.config import Config
from neurodyn.core.description.record import require_fields
from neurodyn.core.description.scene import Vector3
from neurodyn.core.errors import InputError, choices, require
from neurodyn.core.registry import Registry

Quaternion = tuple[float, float, float, float]

QUATERNION = "quaternion"
"""Name of the part of a reading that is a rotation: four values (scalar last), three residuals."""


class Part(Config, frozen=True):
    """One quantity of a reading."""

    name: str
    components: tuple[str, ...]
    """Names of the components; empty for one value per joint of the stream."""
    unit: str

    @property
    def residuals(self) -> tuple[str, ...]:
        """Names of the components of the difference of two readings."""
        return ("rx", "ry", "rz") if self.name == QUATERNION else self.components


_XYZ = ("x", "y", "z")
_POSITION, _ROTATION = (
    Part(name="position", components=_XYZ, unit="m"),
    Part(name=QUATERNION, components=(*_XYZ, "w"), unit="1"),
)
_SPIN = Part(name="angular_velocity", components=_XYZ, unit="rad/s")
MEAN = "specific_force"
"""Name of the quantity that may be averaged over frames."""
_SPECIFIC_FORCE = Part(name=MEAN, components=_XYZ, unit="m/s^2")
_VELOCITY = Part(name="linear_velocity", components=_XYZ, unit="m/s")
_FORCE, _TORQUE = Part(name="force", components=_XYZ, unit="N"), Part(name="torque", components=_XYZ, unit="N m")


@dataclass(frozen=True)
class SensorKind:
    """A kind of sensor."""

    parts: tuple[Part, ...]
    """Quantities of a reading, in order."""
    function: Callable[..., list[Any]] | None = None
    """Traced function from a step and the sensor's frame to the reading (see `multibody.sensors.SensorFunction`). None
    in a kind whose function `multibody.sensors` adds, and in one that is not compared."""
    compared: bool = True
    """Whether readings are compared with a model's; else they only help to estimate the states of a base."""
    forces: tuple[str, ...] = ()
    """Quantities that depend on the forces in a step, not only on its state."""


SENSOR_KINDS: Registry[SensorKind] = Registry(
    "kind of sensor",
    position=SensorKind((_POSITION,)),
    orientation=SensorKind((_ROTATION,)),
    pose=SensorKind((_POSITION, _ROTATION)),
    gyroscope=SensorKind((_SPIN,)),
    accelerometer=SensorKind((_SPECIFIC_FORCE,), forces=(MEAN,)),
    imu=SensorKind((_SPIN, _SPECIFIC_FORCE), forces=(MEAN,)),
    odometry=SensorKind((_VELOCITY, _SPIN)),
    contact_force=SensorKind((_FORCE,), forces=("force",)),
    wrench=SensorKind((_FORCE, _TORQUE), forces=("force", "torque")),
    joint_torque=SensorKind((Part(name="torque", components=(), unit="N m"),), forces=("torque",)),
    foot_force=SensorKind((Part(name="force", components=(), unit="N"),), forces=("force",)),
    foot_switch=SensorKind((Part(name="contact", components=(), unit="1"),), compared=False),
    magnetometer=SensorKind((Part(name="field", components=_XYZ, unit="1"),), compared=False),
    command=SensorKind((Part(name="held", components=(), unit="1"),), compared=False),
)
"""Kinds of sensors by name."""


class Stream(Config, frozen=True):
    """Readings of one sensor in a log."""

    name: str
    kind: str
    joints: tuple[str, ...] = ()
    """Joints of a stream of joint torques or commands, or those that move the feet of its forces or switches; empty for
    other kinds."""
    averaged: tuple[str, ...] = ()
    """Quantities whose readings are means over the frame that begins at their row, not values at its begin."""

    def __post_init__(self) -> None:
        SENSOR_KINDS.require(self.kind)
        for name in self.averaged:
            known = [part.name for part in SENSOR_KINDS[self.kind].parts if part.name == MEAN]
            if name not in known:
                raise ValueError(
                    f"sensor {self.name!r}: averaged names {name!r}; valid: {choices(known) if known else '(none)'}"
                )
        if not self.name or "." in self.name:
            raise ValueError(f"sensor {self.name!r}: valid: a name without dots")
        per_joint = any(not part.components for part in SENSOR_KINDS[self.kind].parts)
        if per_joint != bool(self.joints):
            need = "needs joints" if per_joint else "has no joints"
            raise ValueError(f"sensor {self.name!r}: a {self.kind} {need}")

    @property
    def parts(self) -> tuple[Part, ...]:
        """Quantities of a reading."""
        return tuple(
            part if part.components else msgspec.structs.replace(part, components=self.joints)
            for part in SENSOR_KINDS[self.kind].parts
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names of a reading, for example "imu.specific_force.z"."""
        return tuple(f"{self.name}.{part.name}.{x}" for part in self.parts for x in part.components)

    @property
    def units(self) -> tuple[str, ...]:
        """Units of the columns of a reading."""
        return tuple(part.unit for part in self.parts for _ in part.components)

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the components of the difference of two readings, for example "tip.quaternion.rx"."""
        return tuple(f"{self.name}.{part.name}.{x}" for part in self.parts for x in part.residuals)

    @property
    def width(self) -> int:
        """Number of columns of a reading."""
        return len(self.columns)


def stream_columns(streams: tuple[Stream, ...]) -> tuple[str, ...]:
    """Return the names of the columns of several streams, side by side."""
    return tuple(column for stream in streams for column in stream.columns)


def places_of(stream: Stream, streams: tuple[Stream, ...]) -> list[int]:
    """Return the places of the columns of a stream among those of several, side by side."""
    names = stream_columns(streams)
    return [names.index(column) for column in stream.columns]


class Sensor(Config, frozen=True):
    """A sensor on a robot."""

    kind: str
    """A name in `SENSOR_KINDS`."""
    link: str = ""
    """Link that carries it, by the joint that moves the link; empty for the first link."""
    position: Vector3 = (0.0, 0.0, 0.0)
    """Position in the body frame of the link [m]."""
    quaternion: Quaternion = (0.0, 0.0, 0.0, 1.0)
    """Rotation from sensor axes to body axes, scalar last."""
    axes: Literal["sensor", "world"] = "sensor"
    """Axes of velocities, accelerations and forces: those of the "sensor" or of the "world"."""
    noise: float | tuple[float, ...] = ()
    """Standard deviation of each column of a reading, or one per quantity; empty to estimate it."""
    delay: float = 0.0
    """Time from an event to its log entry [s]."""
    bias: float | tuple[float, ...] = 0.0
    """Standard deviation of the readings' offset between runs: one number, one per quantity, or one per column."""
    rate: float | None = None
    """Readings per second [Hz]; None for one in every frame."""
    side: Literal["motor", "link"] = "motor"
    """Joint torque only: at the "motor", before friction and rotor inertia, or at the "link"."""
    stream: str = ""
    """Name of its stream in the log; empty for the sensor's name."""

    def __post_init__(self) -> None:
        SENSOR_KINDS.require(self.kind)
        require_fields(self, finite=("position [m]", "delay [s]"))
        unit = abs(math.hypot(*self.quaternion) - 1.0) < 1e-3
        require(unit, "quaternion", list(self.quaternion), "a unit quaternion [x, y, z, w]")
        positive = all(0 < size < math.inf for size in self.noises)
        require(positive, "noise", list(self.noises), "standard deviations above 0, or none, to estimate them")
        biases = [*self.bias] if isinstance(self.bias, tuple) else [self.bias]
        require(all(0 <= size < math.inf for size in biases), "bias", biases, "standard deviations of at least 0")
        require(self.rate is None or 0 < self.rate < math.inf, "rate", self.rate, "readings per second, above 0 [Hz]")

    @property
    def noises(self) -> tuple[float, ...]:
        """Given standard deviations."""
        return self.noise if isinstance(self.noise, tuple) else (float(self.noise),)


Sensors = Mapping[str, Sensor]
"""Sensors by name."""


def channel_noise(name: str, sensor: Sensor, stream: Stream) -> tuple[float, ...] | None:
    """Return the standard deviation of each component of the difference of two readings; None if not given."""
    given, parts = sensor.noises, stream.parts
    if not given:
        return None
    if len(given) == len(stream.channels):
        return given
    if len(given) == 1:
        given = given * len(parts)
    if len(given) != len(parts):
        raise InputError(
            f"sensor {name!r}: noise has {len(sensor.noises)} numbers; valid: one for each of "
            f"{', '.join(part.name for part in parts)}, or {len(stream.channels)}, by component"
        )
    return tuple(size for size, part in zip(given, parts, strict=True) for _ in part.residuals)


def stream_of(name: str, sensor: Sensor, streams: tuple[Stream, ...]) -> int:
    """Return the index of a sensor's stream, or raise an InputError if there is none of its kind."""
    wanted, names = sensor.stream or name, [stream.name for stream in streams]
    if wanted not in names:
        raise InputError(
            f"sensor {name!r}: the data hold no stream {wanted!r}; valid: {choices(names) if names else '(none)'}: "
            "import the log with `measured` in its column map"
        )
    stream = streams[names.index(wanted)]
    if stream.kind != sensor.kind:
        raise InputError(f"sensor {name!r}: is of kind {sensor.kind!r}, but the data hold a {stream.kind!r} there")
    return names.index(wanted)

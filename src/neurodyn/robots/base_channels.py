# SPDX-License-Identifier: Apache-2.0
"""Logs of a floating base as world models learn them: what is measured of it as channels, in place of its pose."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from neurodyn.core.description.sensors import Sensor, Stream, places_of
from neurodyn.core.description.spec import Channel
from neurodyn.core.errors import InputError
from neurodyn.data.readers.column_map import is_log
from neurodyn.data.readers.floating import rotate
from neurodyn.data.store import IN_MEMORY, Store
from neurodyn.robots.data import open_robot_data
from neurodyn.robots.declaration import Robot

_XYZ = ("x", "y", "z")
_SPINS = ("imu", "gyroscope")


def open_measured_data(robot: Robot, data: str | Path, *, memory: int = IN_MEMORY) -> Store:
    """Open `--data` for a world model: a store of any measurements, or a log; see `open_robot_data`.

    The pose of a floating base gives way to what its sensors say (`with_sensed_channels`), or to the motion that was
    tracked (`with_tracked_channels`).
    """
    store = open_robot_data(robot, data, base=False) if is_log(Path(data)) else Store.open(data, memory=memory)
    if store.header.base == "unmeasured":
        return with_sensed_channels(robot, store, str(data))
    return with_tracked_channels(store) if store.header.spec.floating else store


def with_tracked_channels(store: Store) -> Store:
    """Return a log of a tracked base as world models learn it: its velocities and the direction of gravity as channels.

    Where the robot stands and where it heads are left out; `dynamics.world_model.base_path` integrates them again.
    """
    header, q, qd = store.header, np.asarray(store.q, float), np.asarray(store.qd, float)
    turned = q[:, 3:7] / np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    to_base = turned * [-1.0, -1.0, -1.0, 1.0]
    angular = rotate(to_base, qd[:, 3:6])
    down = rotate(to_base, np.broadcast_to([0.0, 0.0, -1.0], (len(q), 3)))
    linear = rotate(to_base, qd[:, :3]) - np.cross(angular, np.array(header.base_com))
    parts = {("base_linear_velocity", "m/s"): linear, ("base_angular_velocity", "rad/s"): angular}
    return _with_base(store, {**parts, ("projected_gravity", "1"): down})


def with_sensed_channels(robot: Robot, store: Store, where: str) -> Store:
    """Return a log of an unmeasured base as world models learn it: joints, and what sensors say of the base.

    In place of the pose stand channels in axes of the base: its angular velocity, the direction of gravity and, with
    odometry, its linear velocity. Nothing is estimated.

    Raises:
        InputError: It has no gyroscope or no attitude, or rows without their readings.
    """
    header = store.header
    declared = dict(robot.sensors) | header.sensors
    sensors = {one.stream or name: one for name, one in declared.items()}
    spin = next((one for one in header.streams if one.kind in _SPINS), None)
    attitude = next((one for one in header.streams if one.kind == "orientation"), None)
    if spin is None or attitude is None or store.measured is None:
        kinds = ", ".join(f"{one.name} ({one.kind})" for one in header.streams) or "none"
        raise InputError(
            f"{where}: its base is unmeasured, and a world model needs its angular velocity and the direction of "
            f"gravity; its streams are {kinds}; valid: a gyroscope or imu, and an orientation"
        )
    imu = sensors.get(spin.name, Sensor(kind=spin.kind))

    def read(stream: Stream) -> np.ndarray:
        assert store.measured is not None
        return np.asarray(store.measured, float)[:, places_of(stream, header.streams)]

    angular = _in_base(imu, read(spin)[:, :3])
    own = sensors.get(attitude.name, Sensor(kind="orientation", quaternion=imu.quaternion))
    to_sensor = read(attitude) * [-1.0, -1.0, -1.0, 1.0]  # from the world
    down = rotate(to_sensor, np.broadcast_to([0.0, 0.0, -1.0], (len(to_sensor), 3)))
    parts = {("base_angular_velocity", "rad/s"): angular, ("projected_gravity", "1"): _in_base(own, down)}
    if (way := next((one for one in header.streams if one.kind == "odometry"), None)) is not None:
        sensor = sensors.get(way.name, Sensor(kind="odometry"))
        velocity = _in_base(sensor, read(way)[:, :3]) - np.cross(angular, np.array(sensor.position))
        parts = {("base_linear_velocity", "m/s"): velocity, **parts}
    channels = np.concatenate(list(parts.values()), 1)
    for column, name in zip(channels.T, (f"{name}.{x}" for name, _ in parts for x in _XYZ), strict=True):
        if not np.isfinite(column).all():
            raise InputError(
                f"{where}: {name} has no reading in {int((~np.isfinite(column)).sum())} of {len(column)} rows; valid: "
                "sensors that read in every frame"
            )
    return _with_base(store, parts)


def _with_base(store: Store, parts: Mapping[tuple[str, str], np.ndarray]) -> Store:
    """Return a log with vectors in axes of the base, by name and unit, as channels in place of its pose."""
    header, first = store.header, store.header.spec.joints[0]
    described = tuple(Channel(f"{name}.{x}", unit, "base") for name, unit in parts for x in _XYZ)
    spec = msgspec.structs.replace(
        header.spec, joints=header.spec.joints[1:], channels=(*described, *header.spec.channels)
    )
    rows = [
        store.q[:, first.nq :], store.qd[:, first.nv :], store.control, *parts.values(), store.channel, store.contact
    ]  # fmt: skip
    frames = np.concatenate([np.asarray(part, np.float32) for part in rows], 1)
    plain = msgspec.structs.replace(header, spec=spec, streams=(), sensors={}, base="measured", mechanism=None)
    return dataclasses.replace(store, header=plain, frames=frames, measured=None, spread=None)


def _in_base(sensor: Sensor, vectors: np.ndarray) -> np.ndarray:
    """Return vectors [N, 3] in axes of the base that are in those of a sensor."""
    return rotate(np.broadcast_to(np.array(sensor.quaternion), (len(vectors), 4)), vectors)

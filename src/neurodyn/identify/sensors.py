# SPDX-License-Identifier: Apache-2.0
"""Sensors of a log, and their free quantities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import torch
from msgspec import UNSET

from neurodyn.core.description.parameter import Bounds, Parameter, select_parameters
from neurodyn.core.description.sensors import SENSOR_KINDS, Sensor
from neurodyn.core.errors import InputError
from neurodyn.data.command_parts import KIND as COMMAND_PARTS
from neurodyn.data.header import StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.hybrid.readings import sensor_quantities
from neurodyn.identify.fit.readings import ComparedReadings, bound_delays, mount_sensors
from neurodyn.identify.fit.residuals import Point, Residuals
from neurodyn.identify.result import SensorErrors
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.robots import Robot
from neurodyn.robots.data import drives_of_log


@dataclass(frozen=True)
class LogSensors:
    """Sensors of a log, and the free quantities of model and sensors.

    Attributes:
        store: The log.
        sensors: Sensors whose readings are compared, by name.
        model: Free quantities of the model, among them those of its drives.
        mounting: Free quantities of the sensors.
        unused: Streams of the log without a sensor.
    """

    store: Store
    sensors: Mapping[str, Sensor]
    model: tuple[Parameter, ...]
    mounting: tuple[Parameter, ...]
    unused: tuple[str, ...]

    @classmethod
    def of(
        cls,
        robot: Robot,
        store: Store,
        settings: IdentificationSettings,
        nominal: Mapping[str, float],
        asked: Sequence[str],
        bounds: Bounds,
    ) -> "LogSensors":
        """Match the streams of a log with sensors, and select the free quantities that the user asked for.

        `nominal` and `bounds` are the values and default bounds of the model's quantities.

        Raises:
            InputError: A sensor's stream is missing, nothing is compared, or a quantity is unknown.
        """
        streams = store.header.streams
        stream_names = {stream.name for stream in streams}
        sensors = {n: s for n, s in robot.sensors.items() if (s.stream or n) in stream_names} | settings.sensors
        sensors = {name: sensor for name, sensor in sensors.items() if SENSOR_KINDS[sensor.kind].compared}
        mounted = mount_sensors(sensors, streams)
        if not (settings.positions or settings.velocities or sensors):
            raise InputError(
                "identification: positions and velocities are both left out, and there are no sensors; valid: at least "
                "one of them"
            )
        mounting = sensor_quantities(mounted)
        specs = select_parameters({**nominal, **mounting}, asked, bounds)
        horizon = settings.horizon
        used = {sensor.stream or name for name, sensor in sensors.items()}
        return cls(
            store, sensors, tuple(s for s in specs if s.name in nominal),
            bound_delays([s for s in specs if s.name in mounting and s.name not in nominal], horizon),
            tuple(sorted({one.name for one in streams if one.kind != COMMAND_PARTS} - used)),
        )  # fmt: skip

    @property
    def specs(self) -> tuple[Parameter, ...]:
        """All free quantities, in the order of the search coordinates."""
        return (*self.model, *self.mounting)

    def measured(self, dynamics: HybridDynamics, windows: Windows) -> ComparedReadings | None:
        """Return the sensor readings in windows; None without sensors.

        Raises:
            InputError: See `ComparedReadings.of`.
        """
        if not self.sensors:
            return None
        return ComparedReadings.of(dynamics, self.sensors, self.store.header.streams, windows, self.mounting)

    def errors(self, residuals: Residuals, point: Point, windows: Windows) -> dict[str, SensorErrors]:
        """Return the errors of sensors in windows, with roll-outs from the logged states, by channel.

        Those with nominal values stand beside those with the values of the first set of a point.

        Raises:
            InputError: See `ComparedReadings.of`.
        """
        return sensor_errors(residuals.with_windows(windows, self.measured(residuals.dynamics, windows)), point)


def sensor_errors(residuals: Residuals, point: Point) -> dict[str, SensorErrors]:
    """Return the errors of sensors by channel, with nominal values and with those of the first set of a point."""
    measured = residuals.measured
    assert measured is not None
    both = torch.stack([residuals.space.nominal, point.x[0]])
    errors = residuals.errors(residuals.start(both))[..., -len(measured.channels) :]
    nominal, identified = measured.deviations(errors).tolist()
    noise = residuals.scale[-len(measured.channels) :].tolist()
    return {
        name: SensorErrors(nominal=before, identified=after, noise=size)
        for name, before, after, size in zip(measured.channels, nominal, identified, noise, strict=True)
    }


def behind_log(robot: Robot, header: StoreHeader, settings: IdentificationSettings) -> Robot:
    """Return a robot whose controls are those of a log: for targets, behind the drives of the settings or the log.

    Their laws are evaluated once a frame unless they say otherwise.

    Raises:
        InputError: Drives are given for a log of torques, or those of a log of targets are not known.
    """
    kind = header.spec.control_kind
    if kind != "target" or kind == robot.command:
        if settings.drives:
            raise InputError(
                f"identification: drives are given, but the data hold each {kind} that acted; valid: no drives, or a "
                "log of targets (`control_kind: target` in its column map)"
            )
        return robot
    if settings.torque_offset:
        raise InputError("torque_offset is that of logs of torques; valid: 0 where drives follow targets")
    drives = drives_of_log(robot, msgspec.structs.replace(header, drives=settings.drives or header.drives))
    held = {
        name: msgspec.structs.replace(drive, updates=1) if drive.updates is UNSET else drive
        for name, drive in drives.items()
    }
    return robot.behind(held) if held else robot

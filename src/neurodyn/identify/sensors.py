# SPDX-License-Identifier: Apache-2.0
"""Sensors and controller of a log, and their free quantities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from neurodyn.core.description.drive import Controller
from neurodyn.core.description.parameter import Bounds, Parameter, select_parameters
from neurodyn.core.description.sensors import Sensor
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.dynamics.hybrid.closed_loop import ClosedLoop, DrivenModel
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.hybrid.readings import sensor_quantities
from neurodyn.identify.readings import ComparedReadings, bounded_delays, mounted_sensors
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.learn.fit_windows import FitWindows
from neurodyn.robots import Robot


@dataclass(frozen=True)
class LogSensors:
    """Sensors and controller of a log, and the free quantities of model, controller and sensors.

    Attributes:
        store: The log; its controls are torques, or targets of the controller.
        sensors: Sensors whose readings are compared, by name.
        controller: Controller that turns targets into torques; None for a log of torques.
        model: Free quantities of the model.
        gains: Free gains of the controller.
        mounting: Free quantities of the sensors.
        unused: Streams of the log without a sensor.
    """

    store: Store
    sensors: Mapping[str, Sensor]
    controller: Controller | None
    model: tuple[Parameter, ...]
    gains: tuple[Parameter, ...]
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
            InputError: A sensor's stream is missing, nothing is compared, the controls are targets and no controller is
                known, or a quantity is unknown.
        """
        streams = store.header.streams
        stream_names = {stream.name for stream in streams}
        sensors = {n: s for n, s in robot.sensors.items() if (s.stream or n) in stream_names} | settings.sensors
        mounted = mounted_sensors(sensors, streams)
        if not (settings.positions or settings.velocities or sensors):
            raise InputError(
                "identification: positions and velocities are both left out, and there are no sensors; valid: at least "
                "one of them"
            )
        store, controller = _closed(store, settings, robot)
        gains = {} if controller is None else controller.gains(robot.spec.controls)
        mounting = sensor_quantities(mounted)
        specs = select_parameters({**nominal, **gains, **mounting}, asked, bounds)
        horizon = settings.horizon
        return cls(
            store, sensors, controller, tuple(s for s in specs if s.name in nominal),
            tuple(s for s in specs if s.name in gains),
            bounded_delays([s for s in specs if s.name in mounting and s.name not in nominal], horizon),
            tuple(sorted(stream_names - {sensor.stream or name for name, sensor in sensors.items()})),
        )  # fmt: skip

    @property
    def specs(self) -> tuple[Parameter, ...]:
        """All free quantities, in the order of the search coordinates."""
        return (*self.model, *self.gains, *self.mounting)

    def driven(self, model: HybridDynamics) -> DrivenModel:
        """Return the model as driven by the log's controls: alone, or with the controller."""
        return model if self.controller is None else ClosedLoop(model, self.controller, self.gains)

    def measured(self, dynamics: DrivenModel, windows: FitWindows) -> ComparedReadings | None:
        """Return the sensor readings in windows; None without sensors.

        Raises:
            InputError: See `ComparedReadings.of`.
        """
        if not self.sensors:
            return None
        return ComparedReadings.of(dynamics.plant, self.sensors, self.store.header.streams, windows, self.mounting)


def _closed(store: Store, settings: IdentificationSettings, robot: Robot) -> tuple[Store, Controller | None]:
    """Return the log with controls in the robot's terms, and the controller that acts on its targets."""
    controller, spec = settings.controller or store.header.controller, store.header.spec
    if spec.control_kind == robot.spec.control_kind:
        if settings.controller is not None:
            raise InputError(
                f"identification: a controller is given, but the data hold each {spec.control_kind} that acted; valid: "
                "no controller, or a log of targets (`control_kind: target` in its column map)"
            )
        return store, None
    if spec.control_kind != "target":
        return store, None  # rejected later, with all other differences
    if controller is None:
        raise InputError(
            f"the data of {robot.name!r} hold targets of a controller; valid: `controller` in the settings, or in the "
            "log's column map, or data with torques"
        )
    if settings.torque_offset:
        raise InputError("torque_offset is that of logs of torques; valid: 0 where a controller is simulated")
    header = msgspec.structs.replace(store.header, spec=msgspec.structs.replace(spec, control_kind="torque"))
    return replace(store, header=header), controller

# SPDX-License-Identifier: Apache-2.0
"""What logs hold of the sensors of a floating base, at the times that readings are of."""

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.sensors import Sensor, Stream, places_of
from neurodyn.core.errors import InputError
from neurodyn.data.header import StoreHeader
from neurodyn.data.store import Store
from neurodyn.dynamics.interface import Dynamics
from neurodyn.estimate.beside_imu import MEASUREMENTS
from neurodyn.estimate.inertial import upright
from neurodyn.estimate.sensed import SensedRun
from neurodyn.estimate.settings import EstimationSettings, ImuMounting, SensorBeside
from neurodyn.geometry import rotation


def sensed_runs(
    store: Store, dynamics: Dynamics, settings: EstimationSettings
) -> tuple[list[SensedRun], EstimationSettings]:
    """Return the readings of a log, and the settings with what robot and log say of its IMU.

    Raises:
        InputError: It is not a log of the model's robot, or has no gyroscope and accelerometer.
    """
    spec, header = dynamics.spec, store.header
    if differences := spec.differences(header.spec):
        raise InputError(f"log of {header.robot!r}: does not fit the model: {'; '.join(differences[:3])}")
    imu = _stream(header, "imu", where=f"log of {header.robot!r}")
    declared = ({} if dynamics.robot is None else dict(dynamics.robot.sensors)) | header.sensors
    sensors = {sensor.stream or name: sensor for name, sensor in declared.items()}
    mounted = settings.imu or sensors.get(imu.name) or Sensor(kind="imu")
    force = "after" if "specific_force" in imu.averaged else settings.specific_force
    settings = msgspec.structs.replace(settings, imu=mounted, specific_force=force)
    beside = {
        stream.name: SensorBeside(stream=stream, sensor=sensors.get(stream.name, Sensor(kind=stream.kind)))
        for stream in header.streams
        if stream.kind in MEASUREMENTS and _on_base(sensors.get(stream.name), header)
    }
    beside = {name: _touching(one, store) for name, one in beside.items()}
    settings = msgspec.structs.replace(settings, beside=beside | settings.beside)
    attitudes = [stream for stream in header.streams if stream.kind == "orientation"]
    attitude = next((x for x in attitudes if _on_base(sensors.get(x.name), header)), None)
    runs = []
    for episode in range(len(store.table)):
        rows = slice(int(store.offsets[episode]), int(store.offsets[episode + 1]))
        assert store.measured is not None  # it has streams
        read = np.asarray(store.measured[rows], float)

        def part(stream: Stream, read: np.ndarray = read) -> np.ndarray:
            sensor = mounted if stream is imu else sensors.get(stream.name)
            values = read[:, places_of(stream, header.streams)]
            return values if sensor is None else _early(values, sensor.delay / spec.dt)

        inertial = part(imu)
        turned = None if attitude is None else _in_axes_of_imu(part(attitude), sensors.get(attitude.name), mounted)
        arrays = (store.q[rows, 7:], store.qd[rows, 6:], store.control[rows], inertial[:, :3], inertial[:, 3:])
        others = {name: torch.from_numpy(part(one.stream)) for name, one in beside.items()}
        level = upright(torch.from_numpy(inertial[:1, 3:]).nan_to_num(), ImuMounting.of(mounted))[0]
        if turned is not None and bool(turned[0].isfinite().all()):
            to_imu = rotation.conjugate(torch.tensor(mounted.quaternion, dtype=torch.float64))
            level = rotation.multiply(turned[0], to_imu)
        for name, one in beside.items():
            if one.stream.kind == "magnetometer":
                others[name] = _with_north(others[name], level, one.sensor)
        tensors = [torch.tensor(array, dtype=torch.float64) for array in arrays]
        runs.append(SensedRun(*tensors, attitude=turned, beside=others))
    return runs, settings


def _early(values: np.ndarray, late: float) -> np.ndarray:
    """Return readings of a sensor that is some frames late at the time they are of, linearly between frames."""
    if not late:
        return values
    rows = np.arange(len(values)) + late
    before = np.clip(np.floor(rows).astype(int), 0, len(values) - 1)
    after = np.clip(before + 1, 0, len(values) - 1)
    share = (rows - np.floor(rows))[:, None]
    return (1.0 - share) * values[before] + (share * values[after] if share.any() else 0.0)


_FOOT_SHARE = 0.1
"""Share of a foot's largest usual force beyond which it touches the ground."""


def _touching(one: SensorBeside, store: Store) -> SensorBeside:
    """Return a sensor with the reading beyond which a foot touches: of forces, a share of the largest usual one."""
    if one.stream.kind != "foot_force" or store.measured is None:
        return one
    read = np.asarray(store.measured)[:, places_of(one.stream, store.header.streams)]
    known = read[np.isfinite(read)]
    usual = float(np.quantile(known, 0.95)) if len(known) else 0.0
    return msgspec.structs.replace(one, touching=_FOOT_SHARE * usual)


def _with_north(field_read: Tensor, start: Tensor, sensor: Sensor) -> Tensor:
    """Return readings of a magnetic field with its heading in a run's first reading, shape [frames, 4]."""
    known = field_read.isfinite().all(-1)
    first = field_read[int(known.double().argmax())].nan_to_num()
    axes = rotation.multiply(start, torch.tensor(sensor.quaternion, dtype=torch.float64))
    x, y, _ = rotation.rotate(axes, first).unbind(-1)
    return torch.cat([field_read, torch.atan2(y, x).expand(len(field_read), 1)], 1)


def _on_base(sensor: Sensor | None, header: StoreHeader) -> bool:
    return sensor is None or sensor.link in ("", header.spec.joints[0].name)


def _stream(header: StoreHeader, kind: str, where: str) -> Stream:
    known = {stream.name: stream.kind for stream in header.streams}
    for stream in header.streams:
        if stream.kind == kind:
            return stream
    listed = ", ".join(f"{name} ({one})" for name, one in known.items()) or "none"
    raise InputError(
        f"{where}: the states of its base need an IMU, and its streams are {listed}; valid: one of kind imu"
    )


def _in_axes_of_imu(read: np.ndarray, sensor: Sensor | None, imu: Sensor) -> Tensor:
    """Return attitudes of the IMU, of a sensor of orientation with its own axes or, undeclared, those of the IMU."""
    attitude = torch.from_numpy(read)
    if sensor is None:
        return attitude
    own, wanted = (torch.tensor(one.quaternion, dtype=torch.float64) for one in (sensor, imu))
    change = rotation.multiply(rotation.conjugate(own), wanted)
    return rotation.multiply(attitude, change.expand(attitude.shape))

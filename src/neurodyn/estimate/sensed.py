# SPDX-License-Identifier: Apache-2.0
"""What a robot senses along a run: encoders, an IMU, commands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.sensors import Sensor, Stream, stream_columns
from neurodyn.core.errors import InputError
from neurodyn.data.header import StoreHeader
from neurodyn.data.store import Store
from neurodyn.dynamics.interface import Dynamics
from neurodyn.estimate.settings import EstimationSettings
from neurodyn.geometry import rotation


@dataclass(frozen=True)
class SensedRun:
    """Readings of a robot with a floating base, one row per frame; NaN for none.

    Attributes:
        q: Positions of the joints after the base [rad or m], shape [frames, nq - 7].
        qd: Their velocities, shape [frames, nv - 6].
        control: Controls of the frame that begins in a row, shape [frames, nu].
        angular_velocity: Of the gyroscope, in its axes [rad/s], shape [frames, 3].
        specific_force: Of the accelerometer, in its axes [m/s^2], shape [frames, 3].
        attitude: Rotation from the IMU to the world by the IMU's own filter, scalar last, shape [frames, 4]; its
            heading may drift. None for none.
    """

    q: Tensor
    qd: Tensor
    control: Tensor
    angular_velocity: Tensor
    specific_force: Tensor
    attitude: Tensor | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                object.__setattr__(self, field.name, torch.as_tensor(value).double())
        counts = {len(getattr(self, field.name)) for field in fields(self) if getattr(self, field.name) is not None}
        if len(counts) != 1 or min(counts) < 2:
            raise InputError(f"readings of a run have {sorted(counts)} rows; valid: equally many, at least 2")
        for name in ("angular_velocity", "specific_force"):
            object.__setattr__(self, name, _between_readings(getattr(self, name), name))

    @property
    def frames(self) -> int:
        """Number of rows."""
        return len(self.q)

    def until(self, frame: int) -> "SensedRun":
        """Return the rows before one."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return SensedRun(**{name: None if x is None else x[:frame] for name, x in parts.items()})  # pyright: ignore[reportArgumentType]


def _between_readings(values: Tensor, name: str) -> Tensor:
    """Return readings of an IMU with rows without one filled linearly in time."""
    known = values.isfinite().all(-1)
    if known.all():
        return values
    if known.sum() < 2:
        raise InputError(f"{name}: {int(known.sum())} rows of a run have a reading; valid: an IMU that reads along it")
    rows = np.arange(len(values))
    there = rows[known.numpy()]
    columns = [np.interp(rows, there, column[there]) for column in values.numpy().T]
    return torch.from_numpy(np.stack(columns, -1))


@dataclass(frozen=True)
class SensedBatch:
    """Runs side by side, shorter ones padded with their last row. Fields as in `SensedRun`, shape [runs, frames, ...].

    Attributes:
        lengths: Rows of each run, shape [runs].
    """

    q: Tensor
    qd: Tensor
    control: Tensor
    angular_velocity: Tensor
    specific_force: Tensor
    attitude: Tensor | None
    lengths: Tensor

    @classmethod
    def of(cls, runs: Sequence[SensedRun]) -> "SensedBatch":
        """Put runs side by side; those without attitudes only with others without."""
        longest = max(run.frames for run in runs)

        def joined(name: str) -> Tensor | None:
            parts = [getattr(run, name) for run in runs]
            if any(part is None for part in parts):
                return None
            padded = [torch.cat([x, x[-1:].expand(longest - len(x), -1)]) for x in parts]
            return torch.stack(padded)

        names = [field.name for field in fields(SensedRun)]
        return cls(**{name: joined(name) for name in names}, lengths=torch.tensor([run.frames for run in runs]))  # pyright: ignore[reportArgumentType]

    def _each(self, function: Callable[[Tensor], Tensor]) -> "SensedBatch":
        names = [field.name for field in fields(SensedRun)]
        parts = {name: getattr(self, name) for name in names}
        parts = {name: None if x is None else function(x) for name, x in parts.items()}
        return SensedBatch(**parts, lengths=self.lengths)  # pyright: ignore[reportArgumentType]

    def frame(self, index: int) -> "SensedBatch":
        """Return one frame."""
        return self._each(lambda x: x[:, index : index + 1])

    def repeated(self, times: int) -> "SensedBatch":
        """Return each run several times."""
        return self._each(lambda x: x.repeat_interleave(times, 0))

    def followed(self, other: "SensedBatch") -> "SensedBatch":
        """Return these frames and later ones of the same runs."""
        later = iter([x for field in fields(SensedRun) if (x := getattr(other, field.name)) is not None])
        return self._each(lambda x: torch.cat([x, next(later)], 1))

    @property
    def valid(self) -> Tensor:
        """Whether a row is one of the run's, shape [runs, frames]."""
        return torch.arange(self.q.shape[1]) < self.lengths[:, None]


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
    attitudes = [stream for stream in header.streams if stream.kind == "orientation"]
    attitude = next((x for x in attitudes if _on_base(sensors.get(x.name), header)), None)
    names = stream_columns(header.streams)
    runs = []
    for episode in range(len(store.table)):
        rows = slice(int(store.offsets[episode]), int(store.offsets[episode + 1]))
        assert store.measured is not None  # it has streams
        read = np.asarray(store.measured[rows], float)

        def part(stream: Stream, read: np.ndarray = read) -> np.ndarray:
            return read[:, [names.index(column) for column in stream.columns]]

        inertial = part(imu)
        turned = None if attitude is None else _in_axes_of_imu(part(attitude), sensors.get(attitude.name), mounted)
        arrays = (store.q[rows, 7:], store.qd[rows, 6:], store.control[rows], inertial[:, :3], inertial[:, 3:])
        runs.append(SensedRun(*[torch.tensor(array, dtype=torch.float64) for array in arrays], attitude=turned))
    return runs, settings


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

# SPDX-License-Identifier: Apache-2.0
"""Columns of sensors other than joint encoders, under the key `measured` of a column map.

    measured:
      imu:
        kind: imu
        columns:
          angular_velocity: [/imu.angular_velocity.x, /imu.angular_velocity.y, /imu.angular_velocity.z]
          specific_force: [/imu.linear_acceleration.x, /imu.linear_acceleration.y, /imu.linear_acceleration.z]

Readings keep their own clock. A frame gets a linearly interpolated reading if the log has one within half a frame, or
the mean of those until the next frame for quantities that are `averaged`; otherwise NaN. Non-finite readings are
dropped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np

from neurodyn.core.config import Config
from neurodyn.core.description.sensors import QUATERNION, SENSOR_KINDS, Stream
from neurodyn.core.errors import InputError, suggestion
from neurodyn.data.readers.floating import make_continuous
from neurodyn.data.readers.source import LogPart, RunRows, factor
from neurodyn.data.smoothing import linear_integral

_NORM = 0.01
_STILL = 100
"""Equal readings of a rotation from which on it is none."""


class SensorColumns(Config, frozen=True):
    """Columns of one sensor.

    Attributes:
        kind: Kind of sensor: a name in `core.description.sensors.SENSOR_KINDS`.
        columns: Columns of each quantity, in order; one name stands for a whole array.
        units: Unit of each quantity not in SI units.
        sign: -1 for quantities with the opposite sign, for example a force on the sensor instead of on the robot.
        order: Order of a quaternion.
        joints: Joints of a joint torque's columns; joints that move the feet of columns of foot forces or switches.
        threshold: Of foot switches: the reading from which on a foot is in contact, in the unit of its columns.
        averaged: Quantities that become means over each frame, such as a specific force with impacts in it.
        means_before: Quantities whose readings are means over the frame before their time already.
    """

    kind: str
    columns: dict[str, str | tuple[str, ...]]
    units: dict[str, str] = msgspec.field(default_factory=dict)
    sign: dict[str, Literal[1, -1]] = msgspec.field(default_factory=dict)
    order: Literal["xyzw", "wxyz"] = "xyzw"
    joints: tuple[str, ...] = ()
    threshold: float | None = None
    averaged: tuple[str, ...] = ()
    means_before: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        SENSOR_KINDS.require(self.kind)
        if both := set(self.averaged) & set(self.means_before):
            raise ValueError(f"{both.pop()} is named by averaged and means_before; valid: one of them")
        if self.threshold is not None and self.kind != "foot_switch":
            raise ValueError(f"threshold is given for a {self.kind}; valid for: foot_switch")
        parts = [part.name for part in SENSOR_KINDS[self.kind].parts]
        for what, named in (("columns", self.columns), ("units", self.units), ("sign", self.sign)):
            for name in named:
                if name not in parts:
                    raise ValueError(
                        f"{what} names {name!r}{suggestion(name, parts)}; quantities of a {self.kind}: "
                        f"{', '.join(parts)}"
                    )
        for name in parts:
            if name not in self.columns:
                raise ValueError(f"columns has no {name!r}; quantities of a {self.kind}: {', '.join(parts)}")

    def stream(self, name: str) -> Stream:
        """Return the store's stream for these columns."""
        return Stream(name=name, kind=self.kind, joints=self.joints, averaged=(*self.averaged, *self.means_before))

    def columns_of(self, name: str) -> list[tuple[str, ...]]:
        """Return the columns of each quantity, or raise an InputError if their number differs from its components."""
        names = []
        for part in self.stream(name).parts:
            given, count = self.columns[part.name], len(part.components)
            columns = (given,) if isinstance(given, str) and count == 1 else given
            columns = columns if isinstance(columns, tuple) else tuple(f"{given}[{i}]" for i in range(count))
            if len(columns) != count:
                raise InputError(
                    f"measured: {name!r} has {len(columns)} columns of {part.name}; valid: {count}, of "
                    f"{', '.join(part.components)}"
                )
            names.append(columns)
        return names


@dataclass(frozen=True)
class SensorReadings:
    """Readings of one sensor in a run: increasing times [s], shape [M], and finite values in SI units [M, numbers].

    `quaternion` gives the columns of a rotation, empty for none; `averaged` those that become means over frames,
    `before` those that are means over the frame before.
    """

    time: np.ndarray
    value: np.ndarray
    quaternion: slice
    averaged: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    def at(self, times: np.ndarray, dt: float) -> np.ndarray:
        """Return readings at the frames, shape [T, columns], NaN without one within half a frame."""
        values = np.full((len(times), self.value.shape[1]), np.nan)
        if not len(self.time):
            return values
        after = np.clip(np.searchsorted(self.time, times), 0, len(self.time) - 1)
        before = np.maximum(after - 1, 0)
        near = np.minimum(np.abs(self.time[after] - times), np.abs(times - self.time[before])) <= 0.5 * dt * (1 + 1e-6)
        near &= (times >= self.time[0] - 1e-4 * dt) & (times <= self.time[-1] + 1e-4 * dt)
        for column in range(self.value.shape[1]):
            values[near, column] = np.interp(times[near], self.time, self.value[:, column])
        if self.averaged:
            values[:, self.averaged] = self._means(times, dt)
        if self.before:
            values[:, self.before] = replace(self, before=(), averaged=()).at(times + dt, dt)[:, self.before]
        turns = values[:, self.quaternion]
        if turns.shape[1]:
            turns /= np.maximum(np.linalg.norm(turns, axis=1, keepdims=True), 1e-12)
        return values

    def _means(self, times: np.ndarray, dt: float) -> np.ndarray:
        """Return the means of averaged columns over the frames that begin at `times`, NaN where readings are sparse."""
        columns, count = np.array(self.averaged), len(times)
        if len(self.time) < 2:
            return np.full((count, len(columns)), np.nan)
        value = self.value[:, columns]
        ends = times + dt
        means = (linear_integral(self.time, value, ends) - linear_integral(self.time, value, times)) / dt
        inside = (times >= self.time[0] - 1e-4 * dt) & (ends <= self.time[-1] + 1e-4 * dt)
        pauses = np.flatnonzero(np.diff(self.time) > 1.5 * dt)
        broken = np.searchsorted(self.time[pauses + 1], times, side="right") < np.searchsorted(self.time[pauses], ends)
        means[~inside | broken] = np.nan
        return means


def measured_names(measured: Mapping[str, SensorColumns]) -> Iterable[str]:
    """Return the names of all sensor columns."""
    return (column for name, one in measured.items() for columns in one.columns_of(name) for column in columns)


def measured_streams(measured: Mapping[str, SensorColumns]) -> tuple[Stream, ...]:
    """Return the store's streams for the sensor columns; raise an InputError if joints are missing or misplaced."""
    try:
        return tuple(one.stream(name) for name, one in measured.items())
    except ValueError as error:
        raise InputError(f"measured: {error}") from None


def read_measured(
    measured: Mapping[str, SensorColumns], part: LogPart, run: RunRows, where: str
) -> tuple[SensorReadings, ...]:
    """Return each sensor's readings in a run; raise an InputError for a wrong unit, quaternion or order of times."""
    return tuple(_read(name, one, part, run, where) for name, one in measured.items())


def _read(name: str, one: SensorColumns, part: LogPart, run: RunRows, where: str) -> SensorReadings:
    blocks, place, quaternion, averaged, before = [], 0, slice(0, 0), [], []
    lists = one.columns_of(name)
    time = part.series[lists[0][0]].time
    for quantity, columns in zip(one.stream(name).parts, lists, strict=True):
        size = factor(one.units.get(quantity.name, ""), quantity.unit, f"{where}: {quantity.name} of {name!r}")
        size *= one.sign.get(quantity.name, 1)
        values = [_on(part, column, time) for column in columns]
        if quantity.name == QUATERNION:
            values = [*values[1:], values[0]] if one.order == "wxyz" else values
            quaternion = slice(place, place + 4)
        blocks += [size * value for value in values]
        averaged += range(place, place + len(columns)) if quantity.name in one.averaged else ()
        before += range(place, place + len(columns)) if quantity.name in one.means_before else ()
        place += len(columns)
    rows = np.arange(*run.rows.indices(len(time)))
    time, value = time[rows], np.stack(blocks, axis=1)[rows]
    if (np.diff(time) < 0).any():
        row = int(np.argmin(np.diff(time))) + 1
        raise InputError(
            f"{where}: time of {name!r} goes backwards in run {run.name!r} ({time[row - 1]:.6g} s to {time[row]:.6g} "
            "s); sort the rows, or use the times of the log (`clock: log`)"
        )
    if one.threshold is not None:
        value = np.where(np.isfinite(value), (value >= one.threshold).astype(float), np.nan)
    good = np.isfinite(value).all(axis=1) & np.concatenate(([True], np.diff(time) > 0))[: len(time)]
    time, value = time[good], value[good]
    _check_turns(value[:, quaternion], name, where)
    return SensorReadings(time, value, quaternion, tuple(averaged), tuple(before))


def _on(part: LogPart, column: str, time: np.ndarray) -> np.ndarray:
    series = part.series[column]
    return series.value if series.time is time else np.interp(time, series.time, series.value)


def _check_turns(turns: np.ndarray, name: str, where: str) -> None:
    """Check that quaternions are unit, and make their signs continuous, in place."""
    if not turns.shape[1] or not len(turns):
        return
    norm = np.linalg.norm(turns, axis=1)
    bad = np.abs(norm - 1.0) > _NORM
    if bad.any():
        raise InputError(
            f"{where}: the quaternion of {name!r} has norm {norm[bad][0]:.4g} ({int(bad.sum())} such rows); expected "
            "unit quaternions: check its columns"
        )
    if len(turns) > _STILL and (turns == turns[0]).all():
        raise InputError(
            f"{where}: the quaternion of {name!r} never changes; leave out a sensor that does not measure it"
        )
    make_continuous(turns)

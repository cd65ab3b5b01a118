# SPDX-License-Identifier: Apache-2.0
"""Sensor readings of a log: their noise, and their errors against roll-outs, with bias, delay and missing readings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.parameter import Parameter
from neurodyn.core.description.sensors import QUATERNION, Part, Sensors, Stream, channel_noise, stream_of
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import Environment, State, Trajectory
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.hybrid.readings import MATRIX, MountedSensor, SensorModel, mean_force
from neurodyn.geometry import rotation

_LONGEST = 0.1
"""Default upper bound of a delay [s]."""

_LEAST_SHARE = 0.01
"""Minimum noise, as a share of the size of the readings, as a contact force is zero most of the time."""

LEAST = 1e-6
"""Minimum standard deviation; logs are stored in single precision."""
EXACT = 1e-5
"""Noise of positions below which a log is that of a simulator, with exact initial states [rad or m]."""
MEDIAN = 0.6745
"""Median of |x| for a standard normal x."""


def mount_sensors(sensors: Sensors, streams: Sequence[Stream]) -> tuple[MountedSensor, ...]:
    """Return sensors with the layout of their readings.

    Raises:
        InputError: The data lack a sensor's stream or hold one of another kind, or a noise vector has the wrong length.
    """
    mounted = []
    for name, sensor in sensors.items():
        stream = streams[stream_of(name, sensor, tuple(streams))]
        channel_noise(name, sensor, stream)
        mounted.append(MountedSensor(name, sensor, msgspec.structs.replace(stream, name=name)))
    return tuple(mounted)


def bound_delays(parameters: Sequence[Parameter], horizon: float) -> tuple[Parameter, ...]:
    """Return parameters with default bounds on delays: 0 to 0.1 s, at most half of the horizon."""
    bounded = []
    for spec in parameters:
        if spec.name.endswith(".delay"):
            lower = min(0.0, spec.nominal) if spec.lower is None else spec.lower
            longest = max(min(_LONGEST, 0.5 * horizon), spec.nominal)
            spec = msgspec.structs.replace(spec, lower=lower, upper=longest if spec.upper is None else spec.upper)
        bounded.append(spec)
    return tuple(bounded)


@dataclass(frozen=True)
class ComparedReadings:
    """Sensor readings that roll-outs are compared with.

    Attributes:
        observation: Sensor model.
        free: Free quantities of the sensors.
        channels: Names of the error components of all sensors.
        readings: Readings at the start of each frame, NaN if missing, shape [W, T, numbers].
        compared: Which errors count, shape [W, T, channels].
        noise: Standard deviation of each channel, given or estimated, shape [channels].
        given: Which of them are given, shape [channels].
        ahead: Frames by which predictions must extend beyond readings with a negative delay, shape [channels].
        columns: Columns of the readings among those of the log.
    """

    observation: SensorModel
    free: tuple[Parameter, ...]
    channels: tuple[str, ...]
    readings: Tensor
    compared: Tensor
    noise: Tensor
    given: Tensor
    ahead: Tensor
    columns: tuple[int, ...]

    @classmethod
    def of(
        cls,
        dynamics: HybridDynamics,
        sensors: Sensors,
        streams: Sequence[Stream],
        windows: Windows,
        free: Sequence[Parameter] = (),
    ) -> "ComparedReadings":
        """Return the readings of sensors in windows, with the sensors' `free` quantities.

        Raises:
            InputError: The data lack a stream or its readings, a sensor names an unknown link, or a delay exceeds the
                windows.
        """
        mounted = mount_sensors(sensors, streams)
        observation = SensorModel(dynamics, mounted, tuple(spec.name for spec in free))
        columns = _columns(sensors, streams)
        assert windows.readings is not None
        readings = windows.readings[:, :-1][..., columns]
        compared, ahead = _compared(mounted, free, readings, dynamics.spec.dt)
        noises = [channel_noise(one.name, one.sensor, one.stream) for one in mounted]
        estimated = _estimated(mounted, readings)
        given = [noise is not None for noise, one in zip(noises, mounted, strict=True) for _ in one.stream.channels]
        listed = [
            size
            for noise, one, guess in zip(noises, mounted, estimated, strict=True)
            for size in (guess if noise is None else noise)
        ]
        return cls(
            observation, tuple(free), tuple(c for one in mounted for c in one.stream.channels), readings, compared,
            torch.tensor(listed, dtype=torch.float64), torch.tensor(given), ahead, tuple(columns),
        )  # fmt: skip

    def along(self, windows: Windows) -> "ComparedReadings":
        """Return the readings of the same sensors in other windows of the log, with the same noise.

        Raises:
            InputError: They hold no reading of a sensor.
        """
        assert windows.readings is not None
        readings = windows.readings[:, :-1][..., list(self.columns)]
        compared, ahead = _compared(self.observation.mounted, self.free, readings, self.observation.dt)
        return replace(self, readings=readings, compared=compared, ahead=ahead)

    def on(self, dynamics: HybridDynamics) -> "ComparedReadings":
        """Return the same readings, predicted from states of another model of the robot."""
        return replace(self, observation=self.observation.on(dynamics))

    @property
    def count(self) -> int:
        """Number of compared errors."""
        return int(self.compared.sum())

    def rows(self, rows: Tensor) -> "ComparedReadings":
        """Return the readings of some windows."""
        return replace(self, readings=self.readings[rows], compared=self.compared[rows])

    def within(self, frames: int) -> "ComparedReadings":
        """Return the readings of the first frames that roll-outs of this length can predict."""
        predicted = torch.arange(frames)[:, None] < frames - self.ahead
        return replace(self, readings=self.readings[:, :frames], compared=self.compared[:, :frames] & predicted)

    def errors(
        self,
        path: Trajectory,
        torque: Tensor,
        parameters: Tensor,
        values: Tensor,
        weights: Tensor,
        environment: Environment | None,
        rows: Tensor,
        memory: Tensor | None = None,
    ) -> Tensor:
        """Return the errors of N roll-outs, zero where they are not compared, shape [N, T, channels].

        `torque` [N, T, nu] acts in their frames; `parameters` and `values` [N, ...] are the free quantities of model
        and sensors; the environment has one ground pose per frame, and per state `more`; `rows` [N] are the windows;
        `memory` [N, T + 1, ...] is that of the roll-outs' drives and networks.
        """
        worlds, frames = torque.shape[:2]
        if self.more:  # from states at both ends of a frame
            torque, frames = torch.cat([torque, torque[:, -1:]], 1), frames + 1
        state = State(path.q[:, :frames].flatten(0, 1), path.qd[:, :frames].flatten(0, 1))

        def repeated(x: Tensor) -> Tensor:
            return x[:, None].expand(-1, frames, -1).flatten(0, 1)

        seen = self.observation(
            state, torque.flatten(0, 1), repeated(parameters), repeated(values), weights, environment,
            None if memory is None else memory[:, :frames].flatten(0, 1),
        ).view(worlds, frames, -1)  # fmt: skip
        seen = self._over_frames(seen, self.observation.gravity(environment)) if self.more else seen
        errors = self._differences(self._delayed(seen, values), values, self.readings[rows])
        return torch.where(self.compared[rows], errors, 0.0)

    def deviations(self, errors: Tensor) -> Tensor:
        """Return the root mean square of each channel's compared errors, [S, W, T, channels] to [S, channels]."""
        squares = torch.where(self.compared, errors.square(), 0.0).sum((1, 2))
        return (squares / self.compared.sum((0, 1)).clamp_min(1)).sqrt()

    def robust(self, errors: Tensor) -> Tensor:
        """Return a robust scale of each channel's compared errors [W, T, channels], at least its given noise.

        Roll-outs err by more than the noise of a good sensor, such as that of motor torques after an impact, whose
        given noise would outweigh all others.
        """
        sizes = []
        for channel in range(len(self.channels)):
            present = errors[..., channel][self.compared[..., channel]].abs()
            if not len(present):  # all frames of the window precede the delay
                sizes.append(self.noise[channel])
                continue
            size = torch.maximum(present.median() / MEDIAN, 0.1 * present.square().mean().sqrt())
            sizes.append(size.clamp_min(1e-9))
        found = torch.stack(sizes)
        return torch.where(self.given, torch.maximum(self.noise, found), found)

    @property
    def more(self) -> int:
        """Number of states beyond those at the begins of frames, from which means over frames are made: 1 or 0."""
        return int(any(one.stream.averaged for one in self.observation.mounted))

    def _over_frames(self, seen: Tensor, gravity: Tensor) -> Tensor:
        """Return readings of T frames from observations of T + 1 states, with means over frames."""
        parts, first = [], 0
        for one in self.observation.mounted:
            for part, width in zip(one.stream.parts, one.widths, strict=True):
                own = seen[..., first : first + width]
                first += width
                means = part.name in one.stream.averaged
                parts.append(mean_force(own, gravity, self.observation.dt, one.sensor.axes) if means else own[:, :-1])
        return torch.cat(parts, -1)

    def _value(self, name: str, values: Tensor) -> Tensor | float:
        """Return a sensor's quantity: its free values, shape [N], or its constant."""
        names = self.observation.free
        return values[:, names.index(name)] if name in names else self.observation.constants[name]

    def _delayed(self, seen: Tensor, values: Tensor) -> Tensor:
        parts, first = [], 0
        for one in self.observation.mounted:
            width = sum(_width(part) for part in one.stream.parts)
            sensor_readings = seen[..., first : first + width]
            first += width
            delay = self._value(f"{one.name}.delay", values)
            if isinstance(delay, Tensor) or delay != 0.0:
                sensor_readings = interpolate(
                    sensor_readings, torch.as_tensor(delay, dtype=sensor_readings.dtype) / self.observation.dt
                )
            parts.append(sensor_readings)
        return torch.cat(parts, -1)

    def _differences(self, seen: Tensor, values: Tensor, readings: Tensor) -> Tensor:
        parts, first, column, channel = [], 0, 0, 0
        for one in self.observation.mounted:
            for part in one.stream.parts:
                width = _width(part)
                predicted = seen[..., first : first + width]
                logged = readings[..., column : column + len(part.components)]
                error = rotation_error(predicted, logged) if part.name == QUATERNION else predicted - logged
                names = self.channels[channel : channel + error.shape[-1]]
                biases = [self._value(f"{one.name}.bias.{name.partition('.')[2]}", values) for name in names]
                if any(isinstance(bias, Tensor) or bias for bias in biases):
                    listed = [torch.as_tensor(bias, dtype=error.dtype).expand(len(error)) for bias in biases]
                    error = error + torch.stack(listed, -1)[:, None]
                parts.append(error)
                first, column, channel = first + width, column + len(part.components), channel + error.shape[-1]
        return torch.cat(parts, -1)


def _width(part: Part) -> int:
    """Return the number of values of a quantity, with means over frames in place of what they are made of."""
    return MATRIX if part.name == QUATERNION else len(part.components)


def interpolate(values: Tensor, delay: Tensor) -> Tensor:
    """Return values [N, T, channels] delayed by `delay` frames ([] or [N]), by cubic interpolation."""
    worlds, frames, width = values.shape
    position = torch.arange(frames, dtype=values.dtype) - delay.expand(worlds)[:, None]
    position = position.clamp(0.0, frames - 1.0)
    left = position.detach().floor().clamp_max(max(frames - 2, 0))
    s = (position - left)[..., None]
    index = left.long()[..., None] + torch.arange(-1, 3)
    gathered = [values.gather(1, index[..., k].clamp(0, frames - 1)[..., None].expand(-1, -1, width)) for k in range(4)]
    before, here, there, after = gathered
    # Extrapolate linearly beyond the first and the last frame.
    before = torch.where((index[..., 0] < 0)[..., None], 2 * here - there, before)
    after = torch.where((index[..., 3] > frames - 1)[..., None], 2 * there - here, after)
    slope, next_slope = 0.5 * (there - before), 0.5 * (after - here)
    change = there - here
    return here + s * (slope + s * (3 * change - 2 * slope - next_slope + s * (slope + next_slope - 2 * change)))


def rotation_error(predicted: Tensor, logged: Tensor) -> Tensor:
    """Return the rotation vectors of R_log^T R for predicted matrices, nearly orthonormal, and logged quaternions."""
    orientation = rotation.from_matrix(predicted.unflatten(-1, (3, 3)))
    known = torch.where(torch.isfinite(logged), logged, logged.new_tensor([0.0, 0.0, 0.0, 1.0]))
    return rotation.logarithm(rotation.multiply(rotation.conjugate(rotation.normalise(known)), orientation))


def _columns(sensors: Sensors, streams: Sequence[Stream]) -> list[int]:
    starts = [0]
    for stream in streams:
        starts.append(starts[-1] + stream.width)
    columns: list[int] = []
    for name, sensor in sensors.items():
        index = stream_of(name, sensor, tuple(streams))
        columns += range(starts[index], starts[index + 1])
    return columns


def _compared(
    mounted: Sequence[MountedSensor], free: Sequence[Parameter], readings: Tensor, dt: float
) -> tuple[Tensor, Tensor]:
    """Return a mask of the compared errors, shape [W, T, channels], and `ComparedReadings.ahead`, shape [channels]."""
    frames, masks, column = readings.shape[1], [], 0
    ahead: list[int] = []
    bounds = {spec.name: (spec.lower, spec.upper) for spec in free}
    for one in mounted:
        sensor_readings = readings[..., column : column + one.stream.width]
        column += one.stream.width
        present = torch.isfinite(sensor_readings).all(-1)
        if not bool(present.any()):
            raise InputError(
                f"sensor {one.name!r}: the windows hold no reading of it; valid: data in which it was logged"
            )
        delay = one.sensor.delay
        lower, upper = bounds.get(f"{one.name}.delay", (delay, delay))
        late, early = max(upper or 0.0, 0.0), max(-(lower or 0.0), 0.0)
        first, beyond = math.ceil(late / dt - 1e-9), math.ceil(early / dt - 1e-9)
        last = frames - 1 - beyond
        if first > last:
            raise InputError(
                f"sensor {one.name!r}: a delay of {late or -early:g} s is longer than windows of {frames * dt:g} s; "
                f"valid: delays below {(frames - 1) * dt:g} s, or a longer horizon"
            )
        frame = torch.arange(frames)
        present = present & (frame >= first) & (frame <= last)
        if not bool(present.any()):
            raise InputError(
                f"sensor {one.name!r}: no reading is left {late or -early:g} s after a window begins; valid: shorter "
                "delays, or a longer horizon"
            )
        masks.append(present[..., None].expand(*present.shape, len(one.stream.channels)))
        ahead += [beyond] * len(one.stream.channels)
    return torch.cat(masks, -1), torch.tensor(ahead)


def _estimated(mounted: Sequence[MountedSensor], readings: Tensor) -> list[list[float]]:
    """Return the noise of each channel by sensor, from fourth differences of the readings."""
    noises, column = [], 0
    for one in mounted:
        sizes: list[float] = []
        for part in one.stream.parts:
            part_readings = readings[..., column : column + len(part.components)]
            column += len(part.components)
            sizes += _part_noise(part_readings, turns=part.name == QUATERNION)
        noises.append(sizes)
    return noises


def _part_noise(readings: Tensor, *, turns: bool) -> list[float]:
    differences, sizes = [], []
    for window in readings:
        rows = window[torch.isfinite(window).all(-1)]
        if turns and len(rows) > 1:
            first = rotation.conjugate(rotation.normalise(rows[:1]))
            rows = rotation.logarithm(rotation.multiply(first.expand_as(rows), rotation.normalise(rows)))
        elif turns:
            rows = rows[:, :3]
        sizes.append(rows)
        if len(rows) > 4:
            differences.append(rows.diff(n=4, dim=0))
    values = torch.cat(sizes)
    spread = (values - values.mean(0)).square().mean(0).sqrt()
    least = (_LEAST_SHARE * spread.square().mean().sqrt()).clamp_min(1e-6)
    if not differences:
        return torch.maximum(0.1 * spread, least).tolist()
    middle = torch.cat(differences).abs().median(0).values
    return torch.maximum(middle / (MEDIAN * 70.0**0.5), least).tolist()


@dataclass(frozen=True)
class Noise:
    """Standard deviations of a log's noise by degree of freedom.

    Attributes:
        q: Noise of the positions [rad or m], shape [nv].
        qd: Noise of the velocities [rad/s or m/s], shape [nv].
    """

    q: Tensor
    qd: Tensor

    @property
    def joined(self) -> Tensor:
        """Noise of positions, then of velocities, shape [2 nv]."""
        return torch.cat([self.q, self.qd])


def estimate_noise(spec: StateSpec, windows: Windows) -> Noise:
    """Return the noise of windows from differences of states: at least 1e-6; 1e-3 for fewer than four frames.

    Jerk, as of stairs of commands, raises differences of high order, and readings at rest, which repeat, have none. So
    frames are parted by their motion, and the parts with the least differences count that do not rest. Where a joint
    moves by one step of its encoder a frame, the error of rounding lasts, which differences do not show: one part with
    fewer than the others does not count by itself. The steps of an encoder are noise, too: a step over the root of 12.
    Coordinates of a floating base that never change, as height and tilt of a robot on wheels whose log has only x, y
    and the heading, are assumed (`_ASSUMED`).
    """
    if windows.frames < 4:
        least = torch.full((spec.nv,), 1e-3, dtype=torch.float64)
        return Noise(least, least)
    steps = position_difference(spec, windows.q[:, 1:], windows.q[:, :-1]), windows.qd.diff(dim=1)
    sizes = [_sized(changes, 3) for changes in steps]
    if spec.floating:
        for size, changes, assumed in zip(sizes, steps, _ASSUMED, strict=True):
            still = (changes[..., :6].abs() <= _STUCK).all(0).all(0)
            size[:6] = torch.where(still & ~still.all(), torch.tensor(assumed, dtype=size.dtype), size[:6])
    return Noise(*sizes)


_PARTS = 5
"""Parts of frames by motion."""
_LEAST_ROWS, _ALIKE = 40, 1.5
"""Least frames of a part, and ratio of differences up to which parts have the same noise."""
_LASTING = 1
"""Parts in which a joint may move by about one step of its encoder a frame."""
_STUCK = 1e-7
"""Change of a reading that repeats, which single precision may leave [rad or m]."""
_ASSUMED = (3 * (5e-3,) + 3 * (2e-2,), 3 * (5e-2,) + 3 * (2e-1,))
"""Noise of coordinates of a base that a log assumes: positions [m], rotations [rad], and their velocities [1/s]."""
_ON_GRID, _OFF = 0.95, 0.05
"""Share of the changes that are whole steps of an encoder, and by how much of a step they may differ from it."""


def _sized(steps: Tensor, order: int) -> Tensor:
    """Return the noise of channels from their changes between frames [W, T, n], differentiated again, shape [n]."""
    differences = steps.diff(n=order, dim=1).abs()
    motion = steps.unfold(1, order + 1, 1).sum(-1).abs()
    same = (steps.abs() <= _STUCK).unfold(1, order + 1, 1)
    moves = ~same.all(-1)
    sizes = []
    for k in range(steps.shape[-1]):
        rows = moves[..., k]
        size, speed = differences[..., k][rows], motion[..., k][rows]
        parts = [size] if len(size) < _PARTS * _LEAST_ROWS else [size[p] for p in speed.argsort().chunk(_PARTS)]
        found = sorted(_trimmed(part) for part in parts if len(part))
        alike = [one for one in found if one <= _ALIKE * found[min(_LASTING, len(found) // 2)]]
        least = sum(alike) / max(1, len(alike)) / 70.0**0.5
        sizes.append(max(least, _step(steps[..., k]) / 12.0**0.5, LEAST))
    return torch.tensor(sizes, dtype=torch.float64)


def _trimmed(sizes: Tensor) -> float:
    """Return the standard deviation of normal numbers from the least four fifths of their sizes.

    A median would jump between multiples of an encoder's step.
    """
    return float(sizes.sort().values[: max(1, round(0.8 * len(sizes)))].mean()) / 0.5586


def _step(steps: Tensor) -> float:
    """Return the step of an encoder whose readings often repeat, or change by whole steps; 0 where they do not."""
    sizes = steps.abs().flatten()
    changed = sizes[sizes > _STUCK]
    if len(changed) == 0:
        return 0.0
    step = changed.sort().values[int(0.02 * len(changed))]
    counts = changed / step
    whole = float(((counts - counts.round()).abs() < _OFF).double().mean())
    grid = whole > _ON_GRID and float(step) > _STUCK / _OFF
    return float(step) if grid or len(changed) <= 0.8 * len(sizes) else 0.0


def noise_of(spec: StateSpec, q: tuple[float, ...], qd: tuple[float, ...], windows: Windows) -> Noise:
    """Return the given noise, or an estimate if none is given.

    Raises:
        InputError: The number of values does not match the degrees of freedom.
    """
    estimated = estimate_noise(spec, windows)
    noise = []
    for name, numbers, other in (("noise_q", q, estimated.q), ("noise_qd", qd, estimated.qd)):
        if numbers and len(numbers) not in (1, spec.nv):
            raise InputError(f"{name}: {len(numbers)} numbers; valid: one, or {spec.nv}, by degree of freedom")
        noise.append(torch.tensor(numbers, dtype=torch.float64).expand(spec.nv).clone() if numbers else other)
    return Noise(*noise)

# SPDX-License-Identifier: Apache-2.0
"""What a robot senses along a run: encoders, an IMU, commands."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError


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
        beside: Readings of other sensors of the base by the names of `EstimationSettings.beside`, shape [frames, ...].
    """

    q: Tensor
    qd: Tensor
    control: Tensor
    angular_velocity: Tensor
    specific_force: Tensor
    attitude: Tensor | None = None
    beside: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _OWN:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, torch.as_tensor(value).double())
        counts = {len(getattr(self, name)) for name in _OWN if getattr(self, name) is not None}
        counts |= {len(values) for values in self.beside.values()}
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
        parts = {name: getattr(self, name) for name in _OWN}
        beside = {name: values[:frame] for name, values in self.beside.items()}
        return SensedRun(**{name: None if x is None else x[:frame] for name, x in parts.items()}, beside=beside)  # pyright: ignore[reportArgumentType]


_OWN = tuple(one.name for one in fields(SensedRun) if one.name != "beside")
"""Arrays that all runs have, but for attitudes."""


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
    beside: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Sequence[SensedRun]) -> "SensedBatch":
        """Put runs side by side; those without attitudes only with others without."""
        longest = max(run.frames for run in runs)

        def join(parts: Sequence[Tensor | None]) -> Tensor | None:
            if any(part is None for part in parts):
                return None
            padded = [torch.cat([x, x[-1:].expand(longest - len(x), -1)]) for x in parts if x is not None]
            return torch.stack(padded)

        shared = [name for name in runs[0].beside if all(name in run.beside for run in runs)]
        beside = {name: torch.as_tensor(join([run.beside[name] for run in runs])).double() for name in shared}
        own = {name: join([getattr(run, name) for run in runs]) for name in _OWN}
        return cls(**own, lengths=torch.tensor([run.frames for run in runs]), beside=beside)  # pyright: ignore[reportArgumentType]

    def _each(self, function: Callable[[Tensor], Tensor]) -> "SensedBatch":
        parts = {name: getattr(self, name) for name in _OWN}
        parts = {name: None if x is None else function(x) for name, x in parts.items()}
        beside = {name: function(values) for name, values in self.beside.items()}
        return SensedBatch(**parts, lengths=self.lengths, beside=beside)  # pyright: ignore[reportArgumentType]

    def frame(self, index: int) -> "SensedBatch":
        """Return one frame."""
        return self._each(lambda x: x[:, index : index + 1])

    def repeated(self, times: int) -> "SensedBatch":
        """Return each run several times."""
        return self._each(lambda x: x.repeat_interleave(times, 0))

    def followed(self, other: "SensedBatch") -> "SensedBatch":
        """Return these frames and later ones of the same runs."""
        later = iter([*(x for name in _OWN if (x := getattr(other, name)) is not None), *other.beside.values()])
        return self._each(lambda x: torch.cat([x, next(later)], 1))

    @property
    def valid(self) -> Tensor:
        """Whether a row is one of the run's, shape [runs, frames]."""
        return torch.arange(self.q.shape[1]) < self.lengths[:, None]

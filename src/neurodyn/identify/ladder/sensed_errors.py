# SPDX-License-Identifier: Apache-2.0
"""Errors of roll-outs where the base is unmeasured: those of joints, and of what its sensors would have read."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.identify.fit.readings import ComparedReadings


@dataclass(frozen=True, eq=False)
class SensedErrors(RolloutErrors):
    """Roll-outs of T frames compared with joints and readings of sensors.

    Attributes:
        measured: The readings.
        dynamics: Model whose bodies carry the sensors.
        nothing: Errors of readings that count as none, shape [worlds, T, channels]; None for no errors.
    """

    measured: ComparedReadings = field(kw_only=True)
    dynamics: HybridDynamics = field(kw_only=True)
    nothing: Tensor | None = field(kw_only=True, default=None)

    @cached_property
    @torch.no_grad()
    def sensed(self) -> Tensor:
        """Errors of readings at the begin of each frame, 0 where there is none, shape [worlds, T, channels]."""
        worlds, dynamics = self.truth.q.shape[0], self.dynamics
        values = dynamics.physical().detach().expand(worlds, -1)
        torques = values.new_zeros(worlds, self.frames, dynamics.spec.nu)  # readings of motion do not depend on them
        errors = self.measured.errors(
            self.predicted, torques, values, values[:, :0], dynamics.weights.detach(), None, torch.arange(worlds)
        )
        return errors if self.nothing is None else errors - self.nothing

    @property
    def judged(self) -> Tensor:
        """Signed errors of joints, then of readings, shape [worlds, T, n]."""
        return torch.cat([self.tangents[..., self.known_tangents], self.sensed], -1)

    @property
    def known_tangents(self) -> slice:
        """Columns of `tangents` without the base, of which the truth is an estimate."""
        return slice(self.spec.joints[0].nv, None)

    @property
    def known_errors(self) -> slice:
        """Columns of `errors` without position and orientation of the base."""
        return slice(2, None)

    @property
    def doubted_names(self) -> tuple[str, ...]:
        """Names of joints, then of what sensors read ("imu.angular_velocity")."""
        return (*self.names[self.known_errors], *(name for name, _, _ in self._parts))

    @property
    def doubted(self) -> Tensor:
        """Sizes of errors of joints, then of readings, 0 where there is none, shape [worlds, T, n]."""
        read = [self.sensed[..., columns].norm(dim=-1) for _, _, columns in self._parts]
        return torch.cat([self.errors[..., self.known_errors], torch.stack(read, -1)], -1)

    @cached_property
    def _parts(self) -> list[tuple[str, str, slice]]:
        """What sensors read: its name, its unit, and its columns of `sensed`."""
        parts, column = list[tuple[str, str, slice]](), 0
        for one in self.measured.observation.mounted:
            for part in one.stream.parts:
                columns = slice(column, column + len(part.residuals))
                column, unit = columns.stop, "rad" if part.name == "quaternion" else part.unit
                parts.append((f"{one.name}.{part.name}", unit, columns))
        return parts

    def rows(self, rows: Tensor | slice) -> "SensedErrors":
        """Return some of the roll-outs."""
        kept = torch.arange(len(self.truth.q))[rows]
        return replace(
            self, predicted=self.predicted.rows(rows), truth=self.truth.rows(rows), measured=self.measured.rows(kept),
            nothing=None if self.nothing is None else self.nothing[kept],
        )  # fmt: skip

    def by_group(self, frames: Sequence[int]) -> dict[str, list[float | None]]:
        """Return mean errors at horizons: over joints, and of each quantity of each sensor; None without any."""
        whole = super().by_group(frames)
        groups = {name: errors for name, errors in whole.items() if not name.startswith("base")}
        for name, unit, columns in self._parts:
            error = self.sensed[self.finite][..., columns].norm(dim=-1)
            there = self.measured.compared[self.finite][..., columns].all(-1)
            groups[f"{name} [{unit}]"] = [
                float(error[:, frame - 1][there[:, frame - 1]].mean()) if there[:, frame - 1].any() else None
                for frame in frames
            ]
        return groups


def beside_readings(errors: RolloutErrors, dynamics: HybridDynamics, store: Store, windows: Windows) -> RolloutErrors:
    """Return errors of roll-outs along windows of a log; if its base is estimated, those of its sensors."""
    header = store.header
    if header.base == "measured":
        return errors
    moving = {name: one for name, one in header.sensors.items() if one.kind != "joint_torque"}  # no roll-out's memory
    measured = ComparedReadings.of(dynamics, moving, header.streams, windows)
    fields = {name: getattr(errors, name) for name in RolloutErrors.__dataclass_fields__}
    return SensedErrors(**fields, measured=measured, dynamics=dynamics)

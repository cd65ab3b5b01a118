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
    """

    measured: ComparedReadings = field(kw_only=True)
    dynamics: HybridDynamics = field(kw_only=True)

    @cached_property
    @torch.no_grad()
    def sensed(self) -> Tensor:
        """Errors of readings at the begin of each frame, 0 where there is none, shape [worlds, T, channels]."""
        worlds, dynamics = self.truth.q.shape[0], self.dynamics
        values = dynamics.physical().detach().expand(worlds, -1)
        nothing = values.new_zeros(worlds, self.frames, dynamics.spec.nu)  # readings of motion do not depend on it
        return self.measured.errors(
            self.predicted, nothing, values, values[:, :0], dynamics.weights.detach(), None, torch.arange(worlds)
        )

    @property
    def judged(self) -> Tensor:
        """Signed errors of joints, then of readings, shape [worlds, T, n]."""
        return torch.cat([self.tangents[..., self.spec.joints[0].nv :], self.sensed], -1)

    def rows(self, rows: Tensor | slice) -> "SensedErrors":
        """Return some of the roll-outs."""
        kept = torch.arange(len(self.truth.q))[rows]
        return replace(
            self, predicted=self.predicted.rows(rows), truth=self.truth.rows(rows), measured=self.measured.rows(kept)
        )

    def by_group(self, frames: Sequence[int]) -> dict[str, list[float | None]]:
        """Return mean errors at horizons: over joints, and of each quantity of each sensor; None without any."""
        whole = super().by_group(frames)
        groups = {name: errors for name, errors in whole.items() if not name.startswith("base")}
        column = 0
        for one in self.measured.observation.mounted:
            for part in one.stream.parts:
                columns = slice(column, column + len(part.residuals))
                column = columns.stop
                error = self.sensed[self.finite][..., columns].norm(dim=-1)
                there = self.measured.compared[self.finite][..., columns].all(-1)
                unit = "rad" if part.name == "quaternion" else part.unit
                groups[f"{one.name}.{part.name} [{unit}]"] = [
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

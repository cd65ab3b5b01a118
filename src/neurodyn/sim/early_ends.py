# SPDX-License-Identifier: Apache-2.0
"""Early termination of trajectories that leave plausible bounds, and refusal of data in which too many do."""

import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.config import Config
from neurodyn.core.errors import InputError
from neurodyn.data.header import Status
from neurodyn.robots import Robot, locate
from neurodyn.robots.plausible import PlausibleBounds

MOST_IMPLAUSIBLE = 0.05
"""Maximum share of trajectories that become implausible or not finite; data with more are refused.

Shipped robots have none under random torques; with wrong joint limits or steps, about half of the trajectories are.
"""

MOST_CUT = 0.5
"""Maximum share of trajectories that leave the robot's declared `range`; data with more are refused.

Such a range is meant to cut some trajectories, e.g. those that swing up under stiff random gains, but not most of them.
"""


class Departure(Config, frozen=True):
    """Trajectories that left the bounds by the same coordinate first."""

    coordinate: str  # for example "qd.ankle_1"
    trajectories: int  # their number
    value: float  # furthest outside; NaN if it was not finite
    lower: float
    upper: float
    unit: str  # of value and bounds [rad, m, rad/s or m/s]
    declared: bool  # whether the robot declares this bound as its `range`

    @property
    def words(self) -> str:
        """The departure in words."""
        if not math.isfinite(self.value):
            return f"{self.coordinate} is not finite in {self.trajectories}"
        bound = f"[{self.lower:.4g}, {self.upper:.4g}] {self.unit}"
        kind = "declared range" if self.declared else "plausible"
        return f"{self.coordinate} reaches {self.value:.4g} ({kind}: {bound}) in {self.trajectories}"


@dataclass(frozen=True)
class EarlyEnds:
    """Termination of each trajectory of a batch; all arrays have shape [E]."""

    lengths: np.ndarray  # numbers of valid transitions
    status: np.ndarray  # values of `data.header.Status`
    column: np.ndarray  # coordinate of (q, qd) by which it first left the bounds; -1 if it did not
    value: np.ndarray  # of that coordinate then


def early_ends(robot: str, bounds: PlausibleBounds, q: Tensor, qd: Tensor) -> EarlyEnds:
    """Terminate each trajectory before its first implausible or non-finite state.

    Positions have shape [E, T + 1, nq], velocities [E, T + 1, nv]. An initial state outside the bounds raises
    InputError with the name of the `robot`.
    """
    outside = bounds.outside(q, qd)
    if outside[:, 0].any():
        name, value = bounds.furthest(q[:, 0], qd[:, 0])
        raise InputError(
            f"robot {robot!r}: random states lie outside the declared range ({name} = {value:.4g}); keep `sampling` "
            "within `range`"
        )
    frames = outside.shape[1] - 1
    early = outside.any(1)
    first = torch.where(early, outside.int().argmax(1), frames + 1)
    rows, at = torch.arange(len(q)), first.clamp_max(frames)
    state = torch.cat([q[rows, at], qd[rows, at]], dim=-1)
    column = bounds.relative_excess(q[rows, at], qd[rows, at]).argmax(-1)
    broken = torch.where(state.isfinite().all(-1), Status.OUT_OF_RANGE, Status.NOT_FINITE)
    status = torch.where(early, broken, Status.COMPLETE)
    return EarlyEnds(
        lengths=(first - 1).numpy(),
        status=status.numpy().astype(np.int8),
        column=torch.where(early, column, -1).numpy(),
        value=state[rows, column].numpy(),
    )


@dataclass
class EarlyEndCount:
    """Counts early terminations of the `episodes` requested trajectories, and refuses data with too many."""

    robot: Robot
    bounds: PlausibleBounds
    episodes: int
    _values: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, ends: EarlyEnds, count: int) -> None:
        """Count the first `count` trajectories of a batch."""
        for column, value in zip(ends.column[:count].tolist(), ends.value[:count].tolist(), strict=True):
            if column >= 0:
                self._values[column].append(value)

    def require_few(self) -> None:
        """Raise InputError if the share of early terminations among all requested trajectories is too high."""
        for declared, most in ((False, MOST_IMPLAUSIBLE), (True, MOST_CUT)):
            found = [departure for departure in self.departures if departure.declared == declared]
            share = sum(departure.trajectories for departure in found) / self.episodes
            if share > most:
                raise InputError(self._refusal(found[0], share, most))

    @property
    def departures(self) -> tuple[Departure, ...]:
        """Departures by coordinate, the most frequent first."""
        found = [self._departure(column, values) for column, values in self._values.items()]
        return tuple(sorted(found, key=lambda departure: -departure.trajectories))

    def _departure(self, column: int, values: list[float]) -> Departure:
        spec, nq = self.robot.spec, self.robot.spec.nq
        position = column < nq
        name = (*spec.q_names, *spec.qd_names)[column]
        ranges = self.robot.range.q if position else self.robot.range.qd
        lower, upper = (*self.bounds.q, *self.bounds.qd)[column]
        worst = max(values, key=lambda value: math.inf if math.isnan(value) else max(value - upper, lower - value))
        return Departure(
            coordinate=f"{'q' if position else 'qd'}.{name}",
            trajectories=len(values),
            value=worst if math.isfinite(worst) else math.nan,
            lower=lower,
            upper=upper,
            unit=(*spec.q_units, *spec.qd_units)[column],
            declared=ranges.get(name) == (lower, upper) and math.isfinite(worst),
        )

    def _refusal(self, worst: Departure, share: float, most: float) -> str:
        change = (
            "widen its `range`, or narrow `sampling`"
            if worst.declared
            else "raise simulator.substeps, or mend its joint limits, armature or efforts"
        )
        return (
            f"robot {self.robot.name!r}: at least {share:.1%} of the trajectories leave plausible bounds (more than "
            f"{most:.0%} is refused): {worst.words}; {change}; `neurodyn check {locate(self.robot)}` says which"
        )

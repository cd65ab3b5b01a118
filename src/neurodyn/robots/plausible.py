# SPDX-License-Identifier: Apache-2.0
"""Bounds of plausible states, beyond which a simulator or a model has diverged.

Trajectories of data terminate there (`sim.generate`), episodes fail there (`policy.worlds.environment`), and `neurodyn
check` counts the worlds that leave them. They are the robot's declared `range`, and its joint limits for other
positions.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.robots.declaration import Joint, Robot
from neurodyn.robots.sections import Interval

LIMIT_SLACK = 0.5
"""Plausible violation of a joint limit, as a share of the joint's range: limits are stiff springs."""

_ROUNDING = 1e-6
_UNBOUNDED: Interval = (-math.inf, math.inf)


@dataclass(frozen=True)
class PlausibleBounds:
    """Bounds of plausible states [rad, m, rad/s or m/s], infinite where there are none."""

    q_names: tuple[str, ...]
    qd_names: tuple[str, ...]
    q: tuple[Interval, ...]
    qd: tuple[Interval, ...]
    channels: tuple[Interval, ...] = ()  # of a measured state, length nx

    @property
    def names(self) -> tuple[str, ...]:
        """Names of positions and velocities, e.g. "q.slider" and "qd.slider"."""
        return (*(f"q.{name}" for name in self.q_names), *(f"qd.{name}" for name in self.qd_names))

    def limits(self, like: Tensor, channels: int = 0) -> tuple[Tensor, Tensor]:
        """Return finite lower and upper bounds with a rounding margin, shape [nq + nv + channels] each.

        `like` sets dtype and device.
        """
        return self._limits(like.new_empty(0, len(self.q) + len(self.qd) + channels))

    def outside(self, q: Tensor, qd: Tensor, channels: Tensor | None = None, others: Tensor | None = None) -> Tensor:
        """Return which states are implausible or not finite, bool, shape [...].

        `others`, shape [..., n], are further numbers that must be finite.
        """
        values = torch.cat([part for part in (q, qd, channels, others) if part is not None], dim=-1)
        limits = self._cached.get((values.device, values.dtype, values.shape[-1])) or self._limits(values)
        return (values.clamp(*limits) != values).any(-1)  # NaN equals nothing

    def relative_excess(self, q: Tensor, qd: Tensor, channels: Tensor | None = None) -> Tensor:
        """Return the distance of each coordinate beyond its bounds over half their width, shape [..., nq + nv + nx].

        It is at most 0 inside, and infinite for non-finite values.
        """
        values = torch.cat([q, qd] if channels is None else [q, qd, channels], dim=-1)
        lower, upper = (bound[: values.shape[-1]] for bound in self._limits(values))
        bounds = q.new_tensor((*self.q, *self.qd, *self.channels))[: values.shape[-1]]
        half = (0.5 * (bounds[:, 1] - bounds[:, 0])).clamp_min(_ROUNDING).nan_to_num(posinf=1.0)
        return torch.where(values.isfinite(), torch.maximum(lower - values, values - upper) / half, math.inf)

    def furthest(self, q: Tensor, qd: Tensor) -> tuple[str, float]:
        """Return name and value of the coordinate furthest outside in a batch of states."""
        values = torch.cat([q, qd], dim=-1).flatten(0, -2)
        excess = self.relative_excess(q, qd).flatten(0, -2)
        row, column = divmod(int(excess.argmax()), excess.shape[1])
        return (*self.q_names, *self.qd_names)[column], float(values[row, column])

    def within(self, qd: tuple[Interval, ...]) -> "PlausibleBounds":
        """Return these bounds with given velocity bounds where there are none."""
        return replace(self, qd=tuple(new if old == _UNBOUNDED else old for old, new in zip(self.qd, qd, strict=True)))

    def of_spec(self, spec: StateSpec) -> "PlausibleBounds":
        """Return the bounds of a state with other coordinates, matched by name; other coordinates are unbounded."""
        q, qd = dict(zip(self.q_names, self.q, strict=True)), dict(zip(self.qd_names, self.qd, strict=True))
        return PlausibleBounds(
            q_names=spec.q_names,
            qd_names=spec.qd_names,
            q=tuple(q.get(name, _UNBOUNDED) for name in spec.q_names),
            qd=tuple(qd.get(name, _UNBOUNDED) for name in spec.qd_names),
            channels=(_UNBOUNDED,) * spec.nx,
        )

    def tighten(self, qd: tuple[Interval, ...], channels: tuple[Interval, ...]) -> "PlausibleBounds":
        """Return these bounds tightened by bounds of velocities and channels."""
        return replace(self, qd=_tighter(self.qd, qd), channels=_tighter(self.channels, channels))

    @cached_property
    def _cached(self) -> dict[tuple[torch.device, torch.dtype, int], tuple[Tensor, Tensor]]:
        return {}

    def _limits(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return finite lower and upper bounds with a rounding margin, cached per device and dtype."""
        key = (like.device, like.dtype, like.shape[-1])
        if key not in self._cached:
            named = (*self.q, *self.qd, *self.channels)
            bounds = torch.tensor(named, dtype=like.dtype).view(-1, 2)
            slack = _ROUNDING * bounds.abs().amax(-1).clamp_min(1.0).nan_to_num(posinf=1.0)
            others = bounds.new_full((max(0, like.shape[-1] - len(named)),), torch.finfo(like.dtype).max)
            lower, upper = (bounds[:, 0] - slack).nan_to_num(), (bounds[:, 1] + slack).nan_to_num()
            self._cached[key] = (
                torch.cat([lower, -others]).to(like.device), torch.cat([upper, others]).to(like.device)
            )  # fmt: skip
        return self._cached[key]


def declared_bounds(robot: Robot) -> PlausibleBounds:
    """Return a robot's declared `range`, and its joint limits widened by `LIMIT_SLACK`.

    Velocities without a declared range are unbounded; `sim.energies.plausible_bounds` derives bounds from efforts and
    masses.
    """
    spec, joints = robot.spec, {joint.name: joint for joint in robot.joints}
    return PlausibleBounds(
        q_names=spec.q_names,
        qd_names=spec.qd_names,
        q=tuple(robot.range.q.get(name) or _widen(joints.get(name)) for name in spec.q_names),
        qd=tuple(robot.range.qd.get(name, _UNBOUNDED) for name in spec.qd_names),
    )


def _widen(joint: Joint | None) -> Interval:
    """Return the limits of a joint, widened by `LIMIT_SLACK`."""
    if joint is None or joint.lower is None or joint.upper is None:
        return _UNBOUNDED
    slack = LIMIT_SLACK * (joint.upper - joint.lower)
    return (joint.lower - slack, joint.upper + slack)


def _tighter(one: tuple[Interval, ...], other: tuple[Interval, ...]) -> tuple[Interval, ...]:
    return tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))

# SPDX-License-Identifier: Apache-2.0
r"""Errors that last: what a model lacks shows in means over many frames, where the sensors' noise averages out.

In windows whose initial states are fitted within the noise, the errors of a model that holds the robot are that noise:
the mean over C frames has its deviation over $\sqrt C$. Dry friction, load and springs that a model lacks displace a
joint for as long as they act. An encoder that repeats its reading does not average out, so frames at rest are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.verdict import Finding
from neurodyn.data.windows import Blocks, blocks_of
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.identify.confidence.parameter_search import Searched
from neurodyn.identify.fit.readings import EXACT
from neurodyn.identify.fit.residuals import Point, Residuals
from neurodyn.identify.stages.growing_windows import Fitting, settled

_FRAMES, _SKIPPED = 10, 3
"""Frames of a mean, and those at the start of a window that are left out, as fitted initial states follow them."""
_STUCK, _MOVING = 1e-7, 0.5
"""Change of a reading that repeats [rad or m], and the share of frames in which it may not."""
_LEAST = 8
"""Fewest means of a joint that are judged."""
TIMES, MATTERS = (1.4, 2.2), 0.004
"""Deviations of means, relative to that of noise, from which on something is missing: of errors that matter, as they
are larger than a share of the declaration's after the longest horizon, and of any."""
LEARNABLE = 5.0
"""The same from which on networks are tried: they learn what remains of a search that ended early, too."""
_FOLLOWS = 0.3
"""Least correlation with a signal that is told."""
_SLOW = 0.02
"""Speed about which friction changes its sign [rad/s or m/s]."""
_TOLD = 3


@dataclass(frozen=True)
class LastingError:
    """Errors of a coordinate that last.

    Attributes:
        name: The coordinate.
        size: Their deviation beyond noise [rad or m].
        times: Deviation of means over frames, relative to that of the noise.
        follows: Signal that they correlate with most, in words, and the correlation; None for none.
        unit: Unit of the coordinate.
    """

    name: str
    size: float
    times: float
    follows: tuple[str, float] | None = None
    unit: str = "rad"

    @property
    def text(self) -> str:
        """The error in words."""
        after = "" if self.follows is None else f", with {self.follows[0]} (correlation {self.follows[1]:.2g})"
        return f"{self.name} by {self.size:.2g} {self.unit}, {self.times:.2g} times what noise leaves{after}"


def lasting_errors_of(fitting: Fitting, searched: Searched) -> list[LastingError]:
    """Return the errors that last in a finished fit; none with contacts or an unmeasured base."""
    measured = fitting.store.header.base == "measured"
    return lasting_errors(searched.residuals, searched.point) if measured and not fitting.touches else []


@torch.no_grad()
def lasting_errors(residuals: Residuals, point: Point) -> list[LastingError]:
    """Return the errors of each scalar joint that last, the largest beside noise first.

    Nothing of windows that are too short, and of joints that hardly move or whose readings have no noise.

    Args:
        residuals: Residuals of a fit, without contacts.
        point: Its solution, of which the first set counts.
    """
    windows, spec = residuals.windows, residuals.dynamics.spec
    count = (windows.frames - _SKIPPED) // _FRAMES
    if count < 1:
        return []
    free = residuals.with_free_starts()
    first = point.pick(torch.tensor([0]))
    errors = free.errors(settled(free, replace(first, initial=free.start(first.x).initial)))[0]
    steps = position_difference(spec, windows.q[:, 1:], windows.q[:, :-1])
    parts = [_means(one, count) for one in (errors[..., : spec.nv], steps / spec.dt, windows.q[:, 1:], windows.control)]
    moving = _means((steps.abs() > _STUCK).double(), count) >= _MOVING
    told = []
    for joint in spec.joints:
        k = spec.tangent_names.index(joint.tangent_names[0])
        noise, kept = float(residuals.noise.q[k]), moving[..., k] & parts[0][..., k].isfinite()
        if not joint.scalar or noise <= EXACT or int(kept.sum()) < _LEAST:
            continue
        error = parts[0][..., k].nan_to_num()
        variance = _typical(error.square(), kept, blocks_of(windows))
        size = max(0.0, variance - noise**2 / _FRAMES) ** 0.5
        follows = _followed(error[kept], {name: one[kept] for name, one in _signals(spec, joint, *parts[1:]).items()})
        unit = "m" if joint.kind == "prismatic" else "rad"
        told.append(LastingError(joint.name, size, (variance * _FRAMES) ** 0.5 / noise, follows, unit))
    return sorted(told, key=lambda one: -one.times)


def _means(values: Tensor, count: int) -> Tensor:
    """Return the means over `count` parts of windows, [W, T, n] to [W, count, n]."""
    return values[:, _SKIPPED : _SKIPPED + count * _FRAMES].double().unflatten(1, (count, _FRAMES)).mean(2)


def _typical(squares: Tensor, kept: Tensor, blocks: Blocks) -> float:
    """Return the mean of the kept ones of some squares [W, count], without the block where they are largest."""
    sums = blocks.sums(torch.stack([(squares * kept).sum(1), kept.sum(1).double()], 1))
    sums = sums[sums[:, 0].argsort()[:-1]] if len(sums) > 2 else sums
    return float(sums[:, 0].sum() / sums[:, 1].sum().clamp_min(1.0))


def _signals(spec: StateSpec, joint: JointSpec, speed: Tensor, q: Tensor, control: Tensor) -> dict[str, Tensor]:
    """Return signals of a joint that errors may follow, by name in words."""
    rate = speed[..., spec.tangent_names.index(joint.tangent_names[0])]
    position, direction = q[..., spec.q_names.index(joint.q_names[0])], torch.tanh(rate / _SLOW)
    signals = {"its speed": rate, "its position": position, "the direction of its motion": direction}
    if joint.name in spec.controls and spec.control_kind in ("target", "torque"):  # others are in units of their own
        command = control[..., spec.controls.index(joint.name)]
        load = command - position if spec.control_kind == "target" else command
        signals |= {"its load": load, "its load along its motion": load.abs() * direction}
    return signals


def _followed(error: Tensor, signals: dict[str, Tensor]) -> tuple[str, float] | None:
    """Return the signal that an error correlates with most, and by how much; None for too little."""
    pairs = {name: torch.stack([error, signal]) for name, signal in signals.items()}
    found = {name: abs(float(torch.corrcoef(pair)[0, 1])) for name, pair in pairs.items()}
    name, most = max(found.items(), key=lambda one: one[1])
    return (name, most) if most > _FOLLOWS else None


def of_lasting_errors(errors: Sequence[LastingError], declared: float, networks: str) -> list[Finding]:
    """Judge errors that last, beside those of the declaration after the longest horizon [rad or m].

    `networks` says what networks on top do or may do about it.
    """
    large = [one for one in errors if one.times > TIMES[0 if one.size > MATTERS * declared else 1]]
    if not large:
        return []
    told = "; ".join(one.text for one in large[:_TOLD])
    more = f" and {len(large) - _TOLD} more" if len(large) > _TOLD else ""
    return [
        Finding(
            "lasting", "warning", f"errors last over frames in which noise averages out: {told}{more}",
            "the model lacks a part there, such as friction, play or a spring, and values near it stand in for it; "
            f"{networks}",
        )
    ]  # fmt: skip

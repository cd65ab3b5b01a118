# SPDX-License-Identifier: Apache-2.0
"""Units that cannot be right: positions whose slope is not the velocity, and angles that no joint reaches."""

import math

import numpy as np

from neurodyn.core.description.spec import StateSpec
from neurodyn.data.readers.raw import RawRun

_ROWS = 50_000
_NEAR = 0.1
_FASTEST = 60.0
"""Speed that few joints reach for a twentieth of a log [rad/s]."""

_BEYOND = 0.35
"""How far beyond its limits a joint may be logged before its unit is doubted [rad]."""

_RATIOS = {
    180 / math.pi: "the position is in degrees, or the velocity in radians where degrees are declared",
    math.pi / 180: "the velocity is in degrees per second, or the position in radians where degrees are declared",
    math.pi / 30: "the velocity is in rpm",
    6.0: "the position is in degrees and the velocity in rpm",
    1e3: "the position is in mm",
    1e-3: "the velocity is in mm/s",
    -1.0: "position and velocity count in opposite directions (`sign`)",
}
"""What a ratio of the slope of a position to its velocity says."""


def unit_doubts(runs: list[RawRun], spec: StateSpec) -> list[str]:
    """Return a line for each joint whose logged unit cannot be right.

    Args:
        runs: Runs in what the column map takes for SI units.
        spec: The robot: its joints and their limits.
    """
    if not runs:
        return []
    run = max(runs, key=lambda r: len(r.time))
    rows = slice(0, _ROWS)
    slopes = np.gradient(run.q[rows], run.time[rows], axis=0) if len(run.time) > 2 else np.zeros_like(run.q[rows])
    lines = []
    for joint in spec.joints:
        if not joint.scalar:
            continue
        index = spec.q_names.index(joint.name)
        position, slope = run.q[rows, index], slopes[:, index]
        doubt = None
        if run.qd is not None:
            velocity = run.qd[:, spec.qd_names.index(joint.name)]
            if run.velocity_time is not None:
                velocity = np.interp(run.time[rows], run.velocity_time, velocity)
            ratio = by_ratio(slope, velocity[rows])
            words = next((w for known, w in _RATIOS.items() if ratio and abs(ratio / known - 1.0) < _NEAR), None)
            if words:
                doubt = f"its position changes {ratio:.3g} times as fast as its velocity says, as if {words}"
        if doubt is None and joint.kind == "revolute":
            doubt = _by_range(position, slope, joint.lower, joint.upper, joint.continuous)
        if doubt:
            lines.append(f"{run.name}: {joint.name!r}: {doubt}; check `unit` in the column map")
    return lines


def by_ratio(slope: np.ndarray, velocity: np.ndarray) -> float | None:
    """Return how many times as fast as its velocity a position changes; None where the two have little in common."""
    good = np.isfinite(slope) & np.isfinite(velocity)
    if good.sum() < 3:
        return None
    slope, velocity = slope[good], velocity[good]
    power, other, together = (float((a * b).mean()) for a, b in ((velocity,) * 2, (slope,) * 2, (slope, velocity)))
    if power <= 1e-12 or other <= 1e-12 or abs(together) < 0.8 * math.sqrt(power * other):
        return None
    return together / power


def _by_range(
    position: np.ndarray, slope: np.ndarray, lower: float | None, upper: float | None, continuous: bool
) -> str | None:
    """Return why an angle is doubted that is said to be in radians; None where it may be."""
    least, most = float(position.min()), float(position.max())
    as_degrees = f"positions from {least:.3g} to {most:.3g} rad"
    if lower is not None and upper is not None:
        outside = (position < lower - _BEYOND) | (position > upper + _BEYOND)
        if outside.mean() > 0.2 and math.radians(least) > lower - _BEYOND and math.radians(most) < upper + _BEYOND:
            return f"{as_degrees} leave its limits ({lower:.3g} to {upper:.3g} rad), but would not as degrees"
    elif not continuous and most - least > 4 * math.pi:
        return f"{as_degrees} are more than two turns of a joint that is not continuous; are they degrees?"
    if float(np.quantile(np.abs(slope), 0.95)) > _FASTEST:
        return f"{as_degrees} change by more than {_FASTEST:g} rad/s; are they degrees?"
    return None

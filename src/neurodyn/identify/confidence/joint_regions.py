# SPDX-License-Identifier: Apache-2.0
r"""Pairs of quantities of which logs tell a product, a ratio or a sum much better than either.

Relative deviations of positive quantities a and b are $\delta = \sigma (v + s) / v$ times those of their coordinates
(`search_space`), and those of $a b^{\pm1}$

$$\delta^2 = \delta_a^2 + \delta_b^2 \pm 2 \rho \delta_a \delta_b$$

with the correlation $\rho$ of the fit. Quantities with either sign and one unit have sums and differences instead.
"""

import math

from torch import Tensor

from neurodyn.core.description.parameter import student_t
from neurodyn.identify.fit.intervals import Identifiability
from neurodyn.identify.result import CONFIDENCE, JointRegion
from neurodyn.identify.unknowns.search_space import Coordinate, CoordinateSpace

_NARROWER = 0.25
"""Deviation of a combination, relative to the smaller one of its quantities, from which on it is told."""
_LINKED = 0.9
"""Correlation of coordinates that are looked at."""
_WIDE, _NARROW = 0.05, 0.5
"""Least relative deviation of both quantities, and largest one of the combination."""
_MOST = 8


def joint_regions(space: CoordinateSpace, x: Tensor, analysis: Identifiability) -> list[JointRegion]:
    """Return the combinations of two quantities that logs tell, but neither quantity, the best told first.

    Args:
        space: Coordinates of the quantities.
        x: The optimum, shape [n].
        analysis: Identifiability there.
    """
    reach, regions = student_t(analysis.degrees, CONFIDENCE), list[tuple[float, JointRegion]]()
    deviations = analysis.deviations.clamp(max=1.0).tolist()
    for i, first in enumerate(space.coordinates):
        for j, second in enumerate(space.coordinates[:i]):
            linked = float(analysis.correlation[i, j])
            if abs(linked) < _LINKED or bool(analysis.bound[i] | analysis.bound[j]):
                continue
            if first.signed != second.signed or (first.signed and first.unit != second.unit):
                continue
            (own, a), (other, b) = (_values_at(space.coordinates[k], x[k], deviations[k]) for k in (i, j))
            left = math.sqrt(max(a * a + b * b - 2.0 * abs(linked) * a * b, 0.0))
            wide = first.signed or (min(a, b) > _WIDE and left < _NARROW)
            if not wide or left > _NARROWER * min(a, b):
                continue
            form, value = _combine(own, other, signed=first.signed, together=linked < 0.0)
            half = reach * (left if first.signed else left * abs(value))
            region = JointRegion(
                names=(first.name, second.name), form=form, value=value, interval=(value - half, value + half),
                unit=first.unit if first.signed else "",
            )  # fmt: skip
            regions.append((left / min(a, b), region))
    return [region for _, region in sorted(regions, key=lambda one: one[0])[:_MOST]]


def _values_at(one: Coordinate, x: Tensor, deviation: float) -> tuple[float, float]:
    """Return a coordinate's value and its deviation, relative if the quantity is positive."""
    value = float(one.value(x))
    if one.signed:
        return value, one.width * deviation
    return value, one.width * (value + one.size) / value * deviation if value > 0.0 else 0.0


def _combine(own: float, other: float, *, signed: bool, together: bool) -> tuple[str, float]:
    if signed:
        return ("sum", own + other) if together else ("difference", own - other)
    return ("product", own * other) if together else ("ratio", own / other)

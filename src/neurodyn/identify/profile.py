# SPDX-License-Identifier: Apache-2.0
r"""Profile likelihoods: how far costs rise as one quantity is moved and all else is fitted again.

Where the cost is the parabola on which intervals stand, the profile of a quantity is $(x - \hat x)^2 / \sigma^2$; where
it is flat to one side, or has a second valley, no interval about a point says what is known (Murphy and van der Vaart
2000, "On profile likelihood"). The profile is of the residuals as if they were white; the sandwich may be wider by a
factor, which the bound at which an interval ends takes with it.
"""

from collections.abc import Callable

import torch

from neurodyn.identify.intervals.identifiability import Identifiability, student_t
from neurodyn.identify.optimisers.least_squares import levenberg_marquardt
from neurodyn.identify.residuals import Point, Residuals
from neurodyn.identify.result import ProfileCurve
from neurodyn.identify.search_space import SearchSpace

_REACH = 1.5
"""How far a profile reaches, in half widths of the interval."""
_ITERATIONS = 10

Report = Callable[[int, int], bool]
"""Called with the quantities done and their number; ends the work where it returns true."""


@torch.no_grad()
def profiles(
    residuals: Residuals, point: Point, analysis: Identifiability, points: int, report: Report | None = None
) -> dict[str, ProfileCurve]:
    """Return the profile likelihood of each quantity that has an interval.

    Args:
        residuals: The residuals in the units of the fit.
        point: The solution.
        analysis: Its analysis.
        points: Values of each quantity.
        report: See `Report`.
    """
    point, space = point.pick(torch.tensor([0])), residuals.space
    if not isinstance(space, SearchSpace):
        return {}
    least = float(residuals.cost(point)[0])
    slope = residuals.chain(point.x)[0].diagonal()
    white = analysis.white
    half = student_t(analysis.degrees) * analysis.deviations
    curves: dict[str, ProfileCurve] = {}
    for k, name in enumerate(analysis.names):
        if not bool(torch.isfinite(half[k])) or bool(analysis.bound[k]) or float(half[k]) == 0.0:
            continue
        offsets = _REACH * float(half[k]) / float(slope[k]) * torch.linspace(-1.0, 1.0, points, dtype=torch.float64)
        x = point.x.expand(points, -1).clone()
        x[:, k] += offsets
        x = space.clipped(x)
        start = Point(x, *(part.expand(points, *part.shape[1:]).clone() for part in (point.local, point.initial)))
        fitted = levenberg_marquardt(residuals.with_space(space.fixing(k)), start, _ITERATIONS, tolerance=1e-6)
        rise = 2.0 * (fitted.cost - least) / analysis.variance
        curves[name] = ProfileCurve(
            values=residuals.values(fitted.point.x)[:, k].tolist(),
            rise=[float(value) if bool(torch.isfinite(value)) else None for value in rise],
            bound=float((half[k] / white[k]).square()),
        )
        if report is not None and report(k + 1, len(analysis.names)):
            break
    return curves

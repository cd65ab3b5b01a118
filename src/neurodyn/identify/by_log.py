# SPDX-License-Identifier: Apache-2.0
r"""Quantities that differ from log to log: their value in each, and how well it is known there.

$$v_j = x + s z_j$$

with the value x of all logs, the standard deviation s of what logs differ by (`per_log` of the settings), and the
offset z_j of log j. Both are known together: the variance is that of the sum.
"""

import torch

from neurodyn.identify.optimisers.least_squares import assemble, reduce
from neurodyn.identify.residuals import Point, Residuals
from neurodyn.identify.result import OfLog


def values_by_log(residuals: Residuals, point: Point, variance: float) -> dict[str, dict[str, OfLog]]:
    """Return the value of each quantity that differs from log to log, by its name and by log.

    Args:
        residuals: The residuals at their solution.
        point: The solution; its first set counts.
        variance: Variance of the residuals in their units.
    """
    names, logs = list(residuals.options.per_log), residuals.windows.logs
    if not names or not residuals.physical:
        return {}
    point = point.pick(torch.tensor([0]))
    matrix, gradient, _ = reduce(residuals, residuals.normal(point, physical=True))
    full = assemble(residuals, matrix, gradient, point, physical=True)[0][0]
    covariance = variance * torch.linalg.pinv(full, hermitian=True)
    values = residuals.values(point.x)[0]
    known, first = list(residuals.names), len(full) - len(logs) * residuals.locals
    found: dict[str, dict[str, OfLog]] = {}
    for place, name in enumerate(names):
        k, size = known.index(name), residuals.options.per_log[name]
        column = residuals.locals - len(names) + place
        found[name] = {}
        for log, label in enumerate(logs):
            own = first + log * residuals.locals + column
            total = covariance[k, k] + 2 * size * covariance[k, own] + size**2 * covariance[own, own]
            value = float(values[k] + size * point.local[0, log, column])
            found[name][label] = OfLog(value=value, deviation=float(total.clamp_min(0.0).sqrt()))
    return found

# SPDX-License-Identifier: Apache-2.0
"""L-BFGS on the parameters and the starting states together, with gradients of the compiled adjoint.

For one start of a smooth problem Levenberg-Marquardt is the better choice by far; this one needs no Jacobian, whose
cost grows with the number of parameters.
"""

import numpy as np
import torch

from neurodyn.identify.optimisers.least_squares import Solution, Stop
from neurodyn.identify.residuals import Point, Residuals


def lbfgs(
    residuals: Residuals,
    start: Point,
    iterations: int,
    *,
    tolerance: float = 1e-9,
    stop: Stop | None = None,
) -> Solution:
    """Minimise the cost of residuals from S starts, one after the other, within the bounds (L-BFGS-B of SciPy).

    Arguments as of `least_squares.levenberg_marquardt`.
    """
    parts = [
        _single(residuals, start.pick(torch.tensor([k])), iterations, tolerance, stop) for k in range(len(start.x))
    ]
    point = Point(*(torch.cat([getattr(p.point, name) for p in parts]) for name in ("x", "local", "initial")))
    return Solution(
        point,
        torch.cat([p.cost for p in parts]),
        torch.cat([p.damping for p in parts]),
        max(p.iterations for p in parts),
        torch.cat([p.converged for p in parts]),
    )


def _single(residuals: Residuals, start: Point, iterations: int, tolerance: float, stop: Stop | None) -> Solution:
    from scipy.optimize import minimize

    shapes = [part.shape for part in (start.x, start.local, start.initial)]
    cuts = np.cumsum([shape.numel() for shape in shapes])[:-1]
    done = 0

    def unpacked(vector: np.ndarray) -> Point:
        pieces = np.split(vector, cuts)
        x, local, initial = (torch.from_numpy(p.copy()).view(shape) for p, shape in zip(pieces, shapes, strict=True))
        return Point(x, local, initial)

    def packed(point: Point) -> np.ndarray:
        return torch.cat([part.flatten() for part in (point.x, point.local, point.initial)]).numpy()

    def value(vector: np.ndarray) -> tuple[float, np.ndarray]:
        cost, gradient = residuals.gradients(unpacked(vector))
        finite = bool(torch.isfinite(cost).all())
        return (float(cost), np.nan_to_num(packed(gradient))) if finite else (1e300, np.zeros_like(vector))

    def after(intermediate_result: object) -> None:
        nonlocal done
        done += 1
        cost = torch.tensor([float(intermediate_result.fun)], dtype=torch.float64)  # type: ignore[attr-defined]
        if stop is not None and stop(done, cost):
            raise StopIteration

    infinite = np.full(len(packed(start)) - residuals.parameters, np.inf)
    lower = np.concatenate([residuals.space.lower.numpy(), -infinite])
    upper = np.concatenate([residuals.space.upper.numpy(), infinite])
    bounds = list(zip(lower.tolist(), upper.tolist(), strict=True))
    options = {"maxiter": iterations, "ftol": tolerance, "gtol": 1e-9, "maxcor": 30}
    result = minimize(value, packed(start), jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=after)
    cost = torch.tensor([float(result.fun)], dtype=torch.float64)
    settled = torch.tensor([bool(result.success)])
    return Solution(unpacked(result.x), cost, torch.full_like(cost, 1e-2), int(result.nit), settled)

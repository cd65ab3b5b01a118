# SPDX-License-Identifier: Apache-2.0
r"""Unknown starts of windows, fitted window by window: given the quantities, windows do not depend on each other.

Near contacts a joint step in quantities and starts is far from linear in the starts. So they are settled by
Gauss-Newton steps of their own, each window with its own damping $\lambda$, and only where its cost falls,

$$z \leftarrow z - (J^T J + I + \lambda\,\mathrm{diag})^{-1} (J^T r + z),$$

and quantities are judged by the cost that is left then.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.data.windows import Windows
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.measures import displace
from neurodyn.identify.fit.residuals import Point, Residuals

_DAMPINGS = (1e-2, 1.0, 30.0)
NEARLY_LINEAR = (1e-6, 1.0)
"""Dampings for starts of a measured base, on which errors depend nearly linearly but where dry friction acts."""
_SMOOTHED, _FEWEST = 0.06, 5
"""Time over which parabolas are fitted to positions [s], and their fewest frames."""
_AROUND, _LEAST_AROUND = 0.04, 2
"""Time to each side of a first frame over which parabolas are fitted [s], and the fewest frames to a side."""
_PROBE, _PROBES, _LONGER = 0.3, 6, 1.5
"""First step of a probe [deviations], most steps, and how much longer each is than the one before."""
_DRAWS, _WIDTH = 8, 0.7
"""Starts that are drawn around that of a window, and how far [deviations]."""
_SETTLED = 2
"""Iterations of starts at each step of a probe."""


@torch.no_grad()
def settle_starts(
    residuals: Residuals, point: Point, iterations: int, dampings: Sequence[float] = _DAMPINGS
) -> tuple[Point, Tensor]:
    """Return a point whose starts fit their windows at its quantities, and the cost of each of its sets, shape [S].

    Of the `dampings` that are tried in an iteration the best counts, window by window.
    """
    costs = residuals.window_costs(point)
    for _ in range(iterations if residuals.initials else 0):
        matrix, gradient = residuals.by_starts(point)
        size = torch.diagonal(matrix, dim1=-2, dim2=-1)
        best, kept = costs, point.initial
        for damping in dampings:
            factor = torch.linalg.cholesky_ex(matrix + torch.diag_embed(damping * size))[0]
            change = torch.cholesky_solve(gradient[..., None], factor)[..., 0].nan_to_num()
            tried = replace(point, initial=point.initial - change)
            now = residuals.window_costs(tried)
            better = now < best
            best, kept = torch.where(better, now, best), torch.where(better[..., None], tried.initial, kept)
        point, costs = replace(point, initial=kept), best
    return point, costs.sum(1) + residuals.prior_cost(point)


@torch.no_grad()
def with_likely_starts(residuals: Residuals, point: Point) -> Point:
    """Return a point whose windows start where parabolas through their first positions do, if that costs less.

    A joint that dry friction holds leaves a search no slope to the start at rest, if its logged velocity is noise.
    """
    spec, windows, noise = residuals.dynamics.spec, residuals.windows, residuals.noise
    frames = min(max(_FEWEST, round(_SMOOTHED / spec.dt)), windows.frames)
    if frames < _FEWEST:
        return point
    moved = position_difference(spec, windows.q[:, : frames + 1], windows.q[:, :1]).double()
    time = spec.dt * torch.arange(frames + 1, dtype=torch.float64)
    place, speed, _ = torch.linalg.pinv(torch.stack([time**0, time, time**2], 1)).matmul(moved).unbind(1)
    scalar = torch.tensor([joint.scalar for joint in spec.joints for _ in joint.tangent_names])
    likely = torch.cat([place / noise.q, (speed - windows.qd[:, 0]) / noise.qd], -1) * torch.cat([scalar, scalar])
    tried = replace(point, initial=likely.to(point.initial).expand_as(point.initial))
    better = residuals.window_costs(tried) < residuals.window_costs(point)
    return replace(point, initial=torch.where(better[..., None], tried.initial, point.initial))


@torch.no_grad()
def smoothed_starts(spec: StateSpec, windows: Windows) -> Windows:
    """Return windows whose first states are those of parabolas through the positions around them.

    A difference of two positions is so noisy (.3 m/s and .9 rad/s of a base whose poses are known to 1 mm and 3 mrad
    every 5 ms) that errors of short windows tell of little else. Windows without enough frames before them stay.
    """
    past = windows.past
    sides = min(max(_LEAST_AROUND, round(_AROUND / spec.dt)), windows.frames, 0 if past is None else past.frames)
    if past is None or sides < _LEAST_AROUND:
        return windows
    q = torch.cat([past.q[:, past.frames - sides : past.frames], windows.q[:, : sides + 1]], 1)
    moved = position_difference(spec, q, windows.q[:, :1]).double()
    time = spec.dt * torch.arange(-sides, sides + 1, dtype=torch.float64)
    place, speed, _ = torch.linalg.pinv(torch.stack([time**0, time, time**2], 1)).matmul(moved).unbind(1)
    q, qd = windows.q.clone(), windows.qd.clone()
    q[:, 0], qd[:, 0] = displace(spec, q[:, 0], place.to(q)), speed.to(qd)
    return replace(windows, q=q, qd=qd)


@torch.no_grad()
def search_starts(residuals: Residuals, point: Point, generator: torch.Generator) -> tuple[Point, Tensor]:
    """Return a point whose starts are the best of some around its own, window by window, and settled; costs [S].

    With a foot that touches or does not, a window's cost has several minima in its start. A search that keeps to one of
    them finds costs rough (25 % too high and by 5 % rough in a Go1), and no step that lowers them.
    """
    sets, windows, size = point.initial.shape
    draws = torch.randn(_DRAWS, sets, windows, size, generator=generator, dtype=point.initial.dtype)
    drawn = torch.cat([point.initial[None], point.initial + _WIDTH * draws])
    x, local = (part.repeat(len(drawn), *[1] * (part.ndim - 1)) for part in (point.x, point.local))
    tried = Point(x, local, drawn.flatten(0, 1))
    best = residuals.window_costs(tried).view(-1, sets, windows).argmin(0)
    initial = drawn.gather(0, best[None, ..., None].expand(1, -1, -1, size))[0]
    return settle_starts(residuals, replace(point, initial=initial), 1)


@torch.no_grad()
def probe_coordinates(residuals: Residuals, point: Point, columns: Sequence[int]) -> Point:
    """Move coordinates of a point of one set, one by one, while the cost with settled starts falls; return the end.

    Where the base is unmeasured, heights are those of the floor that the estimate assumes: a softer one needs other
    starts in all windows, a valley with bends that no step along a tangent follows.
    """
    point, cost = settle_starts(residuals, point, 1)
    for column in columns:
        for direction in (1.0, -1.0):
            moved, step = False, direction * _PROBE
            for _ in range(_PROBES):
                x = point.x.clone()
                x[:, column] += step
                tried, now = settle_starts(residuals, replace(point, x=residuals.space.clip(x)), _SETTLED)
                if not float(now) < float(cost):
                    break
                point, cost, moved, step = tried, now, True, _LONGER * step
            if moved:
                break
    return point

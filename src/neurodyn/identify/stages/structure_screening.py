# SPDX-License-Identifier: Apache-2.0
r"""Screening of structures that a declaration may lack, at the optimum of a fit.

Each structure of `STRUCTURES` adds coordinates to the fit. One Jacobian screens all candidates: by how much a
Gauss-Newton step over the coordinates C of the fit and the columns K of a candidate lowers the cost,

$$\tfrac12 g_{CK}^T H_{CK}^{-1} g_{CK} - \tfrac12 g_C^T H_C^{-1} g_C$$

A large fit rolls that step out, as far from the optimum less may come true.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.registry import Registry
from neurodyn.data.header import Split
from neurodyn.identify.fit.least_squares import assemble, reduce
from neurodyn.identify.fit.residuals import Point, Residuals
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.settings import FitStage, IdentificationSettings
from neurodyn.identify.stages.drive_structures import (
    ELASTIC_JOINT,
    LOADED_FRICTION,
    PARALLEL_SPRING,
    STATED_GAINS,
    TILTED_BASE,
)
from neurodyn.identify.stages.growing_windows import LARGE, Fitting
from neurodyn.identify.stages.structure_kinds import (
    ADDED_PAYLOAD,
    EVERY,
    MOVED_CENTRE,
    OTHER_BODIES,
    StructureCandidate,
    StructureKind,
)
from neurodyn.identify.unknowns.search_space import CoordinateSpace

LEAST = 0.02
"""Share of the cost by which the screening must expect a structure to lower it."""
_WINDOWS = 48
"""Windows of the screening."""
_PARTS = (1.0, 0.5, 0.25)
"""Parts of a step that a large fit rolls out."""
_QUANTILE = 1.645
"""Deviations of the upper end of a 90 % interval."""


STRUCTURES: Registry[StructureKind] = Registry(
    "structure",
    gains=STATED_GAINS,
    payload=ADDED_PAYLOAD,
    centre=MOVED_CENTRE,
    friction=LOADED_FRICTION,
    tilt=TILTED_BASE,
    pull=PARALLEL_SPRING,
    elastic=ELASTIC_JOINT,
    bodies=OTHER_BODIES,
)
"""Structures that are tried."""


def describe(candidate: StructureCandidate) -> str:
    """Return a structure in words, such as "a payload on the link of wrist"."""
    return f"{STRUCTURES[candidate.kind].words} {'every joint' if candidate.place == EVERY else candidate.place}"


@dataclass(frozen=True, eq=False)
class Screened:
    """What the screening says of a candidate.

    Attributes:
        candidate: The candidate.
        share: Share of the cost that it is expected to save, in large fits as roll-outs along the step confirm.
        promise: The same by the step alone.
        gain: The expected decrease of the cost, of errors in standard deviations of noise or more.
        starts: First values of its coordinates, of which the best count.
        x: Where the coordinates of the fit go with it, shape [n].
        most: Upper end of the 90 % interval of the first of its columns, such as the mass of a payload [kg].
    """

    candidate: StructureCandidate
    share: float
    promise: float = 0.0
    gain: float = 0.0
    starts: Sequence[Mapping[str, float]] = ({},)
    x: Tensor | None = None
    most: float = 0.0


def candidates_for(model: FitModel, settings: IdentificationSettings) -> list[StructureCandidate]:
    """Return the candidates for a robot among the quantities that the settings free."""
    return [
        one
        for structure in STRUCTURES.values()
        if any(fnmatchcase(name, pattern) for name in structure.frees for pattern in settings.quantities)
        for one in structure.candidates(model)
    ]


def with_few_windows(stage: FitStage) -> FitStage:
    """Return a stage with few windows."""
    return FitStage(seconds=stage.seconds, windows=min(stage.windows, _WINDOWS), iterations=stage.iterations)


@torch.no_grad()
def screen(fitting: Fitting, stages: Sequence[FitStage], *, last: bool = False, asked: bool = True) -> list[Screened]:
    """Return the candidates with the largest share of a stage's cost that each would save, the best first.

    Candidates are those that are tried `last`, or the others; a payload alone unless they are `asked` for.
    """
    found: dict[tuple[str, str], Screened] = {}
    by_probe: dict[Any, list[StructureCandidate]] = {}
    for one in candidates_for(fitting.model, fitting.settings):
        kind = STRUCTURES[one.kind]
        if kind.screened and kind.last == last and (asked or kind is ADDED_PAYLOAD):
            by_probe.setdefault(kind.probe, []).append(one)
    for stage in stages:
        windows = fitting.windows(Split.TRAIN, with_few_windows(stage))
        own = fitting.residuals(windows)
        left = now = float(own.cost(fitting.start(own)))
        for probe, candidates in sorted(by_probe.items(), key=lambda one: one[0] is not None):
            more = list({one.name: one for candidate in candidates for one in candidate.columns}.values())
            wide = fitting.space.extended(fitting.model.mechanism, more)
            probed = fitting if probe is None else fitting.with_model(probe(fitting.model).with_space(wide))
            residuals = probed.residuals(windows).with_space(wide)
            nothing = fitting.x.new_tensor([one.of(one.declared_value) for one in more])
            point = fitting.start(residuals, torch.cat([fitting.x, nothing]))
            entries, left = _screened(fitting, residuals, point, wide, candidates, now, left)
            for entry in entries:
                key = entry.candidate.kind, entry.candidate.place
                before = found.get(key, entry)
                # Steps over short windows are nearly linear, and better starts where they show something.
                found[key] = entry if before.share < LEAST < entry.share else before
    return _ranked(found)


def _ranked(found: dict[tuple[str, str], Screened]) -> list[Screened]:
    """Return what the screening says of candidates, by kind and place, the most promising first."""
    for (kind, place), one in found.copy().items():  # a payload moves the centre of mass, too
        load = next((both for both in found if both[1] == place and STRUCTURES[both[0]] is ADDED_PAYLOAD), None)
        if STRUCTURES[kind] is MOVED_CENTRE and load is not None and one.share > found[load].share:
            found[load] = replace(found[load], share=one.share)
    best: dict[str, float] = {}
    for (kind, _), one in found.items():
        best[kind] = max(best.get(kind, 0.0), one.share)
    # A structure in one joint is simpler than the same in all, which cannot save less.
    return sorted(found.values(), key=lambda one: (-best[one.candidate.kind], one.candidate.place == EVERY, -one.share))


def _screened(
    fitting: Fitting, residuals: Residuals, point: Point, wide: CoordinateSpace,
    candidates: Sequence[StructureCandidate], now: float, left: float,
) -> tuple[list[Screened], float]:  # fmt: skip
    """Return what candidates save of the present cost, from the Jacobian at a point, and the cost without them.

    `left` is that cost so far.
    """
    matrix, gradient, _ = reduce(residuals, residuals.normal(point))
    full, right = (part[0] for part in assemble(residuals, matrix, gradient, point))
    space, cost, found = fitting.space, float(residuals.cost(point)), []
    if not math.isfinite(cost):
        return [], left
    lower, upper = (torch.cat([bound, wide.lower.new_full((len(right) - len(bound),), end)])
                    for bound, end in ((wide.lower, -torch.inf), (wide.upper, torch.inf)))  # fmt: skip
    x = torch.cat([point.x[0], right.new_zeros(len(right) - len(wide.names))])
    shared = [*range(len(space.names)), *range(len(wide.names), len(right))]
    large = len(space.names) > LARGE
    own = len(wide.names)
    before, moved = _gain(full, right, x, lower, upper, shared)
    before *= _realised(residuals, point, (moved - x)[:own], before)[0] if large else 1.0
    left = min(left, cost - before)
    for one in candidates:
        rows = [wide.names.index(column.name) for column in one.columns]
        gain, moved = _gain(full, right, x, lower, upper, [*shared, *rows])
        step, part = (moved - x)[:own], 1.0
        promise = (left - (cost - gain)) / now
        if large and promise >= LEAST:
            share, part = _realised(residuals, point, step, gain)
            gain *= share
        end = wide.moved(x[:own], part * step)
        values = {column.name: float(column.value(end[row])) for column, row in zip(one.columns, rows, strict=True)}
        starts = STRUCTURES[one.kind].starts(fitting.model, one.place, values)
        free = [*shared, *rows]
        deviation = (
            torch.linalg.pinv(full[free][:, free], hermitian=True)[len(shared), len(shared)].clamp_min(0.0).sqrt()
        )
        most = float(one.columns[0].value(end[rows[0]].clamp_min(0.0) + _QUANTILE * deviation))
        saved, along = left - (cost - gain), (end if large else moved)[: len(space.names)]
        found.append(Screened(one, saved / now, promise, saved, starts, along, most))
    return found, left


def _realised(residuals: Residuals, point: Point, step: Tensor, gain: float) -> tuple[float, float]:
    """Return the share of a step's predicted gain, at most 1, that roll-outs on the way have where it is best.

    And the part of the step that is best.
    """
    parts = torch.tensor(_PARTS, dtype=step.dtype)
    costs = residuals.cost(point.at(residuals.space.moved(point.x[0], parts[:, None] * step)))
    gains = (residuals.cost(point) - costs).nan_to_num(-torch.inf, neginf=-torch.inf)
    shares = gains / (max(gain, 1e-300) * (2.0 * parts - parts.square()))
    return float(shares.max().clamp(0.0, 1.0)), _PARTS[int(gains.argmax())]


def _gain(
    full: Tensor, right: Tensor, x: Tensor, lower: Tensor, upper: Tensor, rows: Sequence[int]
) -> tuple[float, Tensor]:
    """Return how much a Gauss-Newton step over some rows lowers the cost, and where it ends, shape [rows of x].

    Rows that the step would move across a bound are left out.
    """
    free = torch.zeros(len(x), dtype=torch.bool)
    free[list(rows)] = True
    while True:
        kept = torch.nonzero(free)[:, 0]
        g, h = right[kept], full[kept][:, kept]
        damped = h + 1e-9 * torch.diag(h.diagonal().clamp_min(1e-12))
        step = -torch.linalg.solve_ex(damped, g[:, None])[0][:, 0]
        moved = x.clone()
        moved[kept] += step
        out = free & (((x <= lower) & (moved < x)) | ((x >= upper) & (moved > x)))
        if not bool(out.any()):
            return float(-0.5 * g @ step), torch.minimum(torch.maximum(moved, lower), upper)
        free &= ~out

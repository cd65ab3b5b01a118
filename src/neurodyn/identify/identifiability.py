# SPDX-License-Identifier: Apache-2.0
r"""Identifiability of parameters from a log: singular values, insensitive directions, and confidence intervals.

All follow from the information matrix $F = J^T J$ at the solution, J the derivative of the residuals in units of their
standard deviations, after what is free for single windows and logs is eliminated (Schur complement). Singular values
are those of J with columns times the sizes of the parameters: 1 / s is the standard deviation with which a direction is
known, in sizes, for one standard deviation of noise.

Windows must not overlap. The covariance is the larger, parameter by parameter, of

$$\sigma^2 F^{-1} \qquad \text{and} \qquad F^{-1} \left(\sum_w s_w s_w^T\right) F^{-1}$$

with the variance $\sigma^2$ of the residuals, which is right for white noise, and the sandwich over the scores
$s_w = J_w^T r_w$ of windows (of logs, where there are ten or more), which also holds where residuals within a window
(a log) are correlated, as they are where the model is not quite that of the robot. Intervals are Student's t.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.identify.least_squares import assemble, reduce
from neurodyn.identify.residuals import Normal, Point, Residuals

CONFIDENCE = 0.95
ILL_CONDITIONED = 1e4
_NULL = 1e-7
_UNSEEN = 1e-2
_MANY = 10


@dataclass(frozen=True)
class Direction:
    """A combination of parameters, in units of their sizes.

    Attributes:
        singular_value: How strongly residuals move along it.
        deviation: Standard deviation with which it is known; 1 for not even its size.
        parts: Its components by name, largest first.
    """

    singular_value: float
    deviation: float
    parts: tuple[tuple[str, float], ...]

    @property
    def text(self) -> str:
        """The direction in words, for example "elbow.mass +0.71, shoulder.mass -0.71"."""
        return ", ".join(f"{name} {part:+.2f}" for name, part in self.parts)


@dataclass(frozen=True)
class Identifiability:
    """Identifiability of parameters from a log.

    Attributes:
        names: Names of the parameters.
        singular_values: Largest first, shape [n].
        condition: The largest over the least.
        insensitive: Directions that are not known to within their size, the worst last.
        unseen: Parameters that the log does not depend on at all.
        deviations: Standard deviations; infinite for parameters in an unseen direction, shape [n].
        degrees: Degrees of freedom of Student's t for intervals.
        variance: Variance of the residuals in their units.
    """

    names: tuple[str, ...]
    singular_values: tuple[float, ...]
    condition: float
    insensitive: tuple[Direction, ...]
    unseen: tuple[str, ...]
    deviations: Tensor
    degrees: int
    variance: float

    def intervals(self, values: Tensor, lower: Tensor, upper: Tensor) -> list[tuple[float, float] | None]:
        """Return the 95 % interval of each parameter within its bounds; None where it is unbounded."""
        from scipy.special import stdtrit

        width = float(stdtrit(max(1, self.degrees), 0.5 + 0.5 * CONFIDENCE)) * self.deviations
        low, high = torch.maximum(values - width, lower), torch.minimum(values + width, upper)
        return [(float(a), float(b)) if torch.isfinite(w) else None for a, b, w in zip(low, high, width, strict=True)]


def identifiability(residuals: Residuals, point: Point) -> Identifiability:
    """Analyse residuals at the first set of a point, usually the solution of a fit."""
    point = point.pick(torch.tensor([0]))
    normal = residuals.normal(point, physical=residuals.physical)
    information, scores = _information(residuals, normal, point)
    values = residuals.space.values(point.x)[0] if residuals.physical else point.x[0]
    sizes = torch.maximum(values.abs(), residuals.sizes if residuals.physical else torch.ones_like(values))
    scaled = sizes[:, None] * information * sizes
    free = residuals.parameters + point.local.numel() + point.initial.numel()
    variance = 2.0 * float(normal.cost) / max(1, residuals.count + point.local.numel() - free)
    powers, vectors = torch.linalg.eigh(0.5 * (scaled + scaled.mT))
    singular = powers.clamp_min(0.0).sqrt()
    strongest = max(float(singular.max()) if len(singular) else 0.0, 1e-300)
    null = singular <= _NULL * strongest
    inverse = vectors @ torch.diag(torch.where(null, 0.0, 1.0 / powers.clamp_min(1e-300))) @ vectors.mT
    clusters = _clusters(residuals, scores * sizes)
    sandwich = inverse @ clusters.mT @ clusters @ inverse * len(clusters) / max(1, len(clusters) - 1)
    std = torch.maximum(variance * inverse.diagonal(), sandwich.diagonal()).clamp_min(0.0).sqrt()
    lost = (vectors[:, null].abs() > 1e-3).any(1)
    deviation = variance**0.5 / singular.clamp_min(1e-300)
    names = residuals.space.names
    seen = scaled.diagonal().clamp_min(0.0).sqrt() > _UNSEEN
    return Identifiability(
        names=names,
        singular_values=tuple(float(s) for s in singular.flip(0)),
        condition=strongest / max(float(singular.min()), 1e-16 * strongest) if len(singular) else 1.0,
        insensitive=tuple(
            _direction(names, vectors[:, k], float(singular[k]), float(deviation[k]))
            for k in torch.nonzero((deviation > 1.0) | null)[:, 0].flip(0).tolist()
        ),
        unseen=tuple(name for name, visible in zip(names, seen, strict=True) if not visible),
        deviations=torch.where(lost, torch.inf, std * sizes),
        degrees=len(clusters) - 1,
        variance=variance,
    )


def require_seen(analysis: Identifiability, robot: str) -> None:
    """Refuse parameters on which the logs do not depend, with an InputError that names them."""
    if analysis.unseen:
        it, acts = ("it", "it acts") if len(analysis.unseen) == 1 else ("them", "they act")
        raise InputError(
            f"the data of {robot!r} cannot identify {', '.join(analysis.unseen)}: no roll-out depends on {it}; valid: "
            f"the other parameters, or data that move what {acts} on"
        )


def warning(analysis: Identifiability) -> str | None:
    """Return a line on directions to which the data are hardly sensitive; None where there are none."""
    if analysis.condition < ILL_CONDITIONED:
        return None
    unseen = "; ".join(direction.text for direction in analysis.insensitive[-3:])
    worst = f"; not seen: {unseen}" if unseen else ""
    return (
        f"ill-conditioned (condition number {analysis.condition:.1e}){worst}; values along such directions stay near "
        "where they started: identify fewer parameters together, or give data that tell them apart"
    )


def _information(residuals: Residuals, normal: Normal, point: Point) -> tuple[Tensor, Tensor]:
    """Return the information matrix of the parameters [n, n] and their scores by window [W, n]."""
    matrix, gradient, _ = reduce(residuals, normal)
    full, _ = assemble(residuals, matrix, gradient, point)
    nl = residuals.locals
    n = matrix.shape[-1] - nl
    full, scores = full[0], gradient[0, :, :n]
    if not nl:
        return full, scores
    own = torch.linalg.solve(full[n:, n:], full[n:, :n])
    blocks = own.view(-1, nl, n)[residuals.windows.log]
    scores = scores - (gradient[0, :, None, n:] @ blocks)[:, 0]
    return full[:n, :n] - full[:n, n:] @ own, scores


def _clusters(residuals: Residuals, scores: Tensor) -> Tensor:
    """Return the scores of independent windows (or logs), about their mean."""
    logs = len(residuals.windows.logs)
    if logs >= _MANY:
        scores = scores.new_zeros(logs, scores.shape[1]).index_add(0, residuals.windows.log, scores)
    return scores - scores.mean(0)


def _direction(names: tuple[str, ...], vector: Tensor, singular: float, deviation: float) -> Direction:
    vector = vector * torch.sign(vector[vector.abs().argmax()])
    order = vector.abs().argsort(descending=True).tolist()
    largest = float(vector.abs().max())
    parts = tuple((names[k], float(vector[k])) for k in order if abs(float(vector[k])) >= 0.2 * largest)
    return Direction(singular, deviation, parts)

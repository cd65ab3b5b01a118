# SPDX-License-Identifier: Apache-2.0
"""Identifiability of parameters from logs: singular values, unseen directions, confidence intervals by blocks."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neurodyn.core.description.parameter import student_t
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.data.windows import Blocks, blocks_of
from neurodyn.identify.fit.least_squares import (
    Weights,
    assemble,
    forgetting,
    levenberg_marquardt,
    move,
    reduce,
    step,
)
from neurodyn.identify.fit.residuals import Normal, Point, Residuals
from neurodyn.identify.result import CONFIDENCE
from neurodyn.identify.unknowns.priors import UnitPrior

ILL_CONDITIONED = 1e4
_NULL = 1e-6
"""Singular value of a null direction, for columns of length 1: finite differences are accurate to 1e-8."""
_UNSEEN = 1e-2
_TOLERANCE = 1.1
"""Ratio of errors to noise up to which noise may explain them, as it is estimated itself."""
_INFLATED = 10.0
"""Ratio of marginal to conditional standard deviation beyond which only a combination is identified."""


@dataclass(frozen=True)
class Direction:
    """A combination of parameters, in units of their sizes.

    Attributes:
        singular_value: Sensitivity of the residuals along it.
        deviation: Standard deviation along it; 1 means that not even the size is known.
        parts: Components by name, largest first.
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
    """Identifiability of parameters from logs.

    Attributes:
        names: Names of the parameters.
        singular_values: Singular values of the scaled Jacobian, largest first, shape [n].
        condition: Ratio of the largest to the smallest of them.
        insensitive: Directions with a standard deviation above the parameters' size, the worst last.
        without_effect: Combinations of parameters without any effect.
        unseen: Parameters without any effect.
        combined: Parameters that are known only in combination with others, and not to within their size.
        bound: Which parameters are held at a bound, bool, shape [n].
        deviations: Standard deviations, infinite for parameters in a direction without effect, shape [n]; at a bound
            inwards (`inward_deviations`).
        white: Standard deviations for uncorrelated residuals, shape [n].
        correlation: Correlation of the parameters for uncorrelated residuals, shape [n, n]; 0 off the diagonal for
            those at a bound.
        newton: Length of the next Gauss-Newton step in standard deviations, shape [n].
        degrees: Degrees of freedom of Student's t for intervals.
        variance: Variance of the scaled residuals.
        information: Information matrix of the logs, without priors, shape [n, n].
        moved: Part of the deviations that more of the same log would not reduce, shape [n]; None for none.
        unexplained: Share of the residuals' power that noise does not explain (`inflated`).
    """

    names: tuple[str, ...]
    singular_values: tuple[float, ...]
    condition: float
    insensitive: tuple[Direction, ...]
    without_effect: tuple[Direction, ...]
    unseen: tuple[str, ...]
    combined: tuple[str, ...]
    bound: Tensor
    deviations: Tensor
    white: Tensor
    correlation: Tensor
    newton: Tensor
    degrees: int
    variance: float
    information: Tensor
    moved: Tensor | None = None
    unexplained: float = 0.0

    @property
    def covariance(self) -> Tensor:
        """Covariance of the parameters for uncorrelated residuals, shape [n, n]."""
        return self.white[:, None] * self.correlation * self.white

    def widened(self, shifts: Tensor | None) -> "Identifiability":
        """Return the analysis with wider deviations: moves of the solution, shape [moves, n], count as further ones."""
        if shifts is None:
            return self
        moved = shifts.square().sum(0).sqrt()
        wider = (self.deviations.square() + moved.square()).sqrt()
        return replace(self, deviations=torch.where(self.bound, self.deviations, wider), moved=moved)

    def inflated(self, share: float) -> "Identifiability":
        """Return the analysis with wider deviations, for a `share` of the residuals' power that noise does not explain.

        What the model lacks may err alike in every block of data, so that their number does not lessen it.
        """
        wider = (1.0 + share * self.degrees) ** 0.5
        return replace(self, deviations=wider * self.deviations, white=wider * self.white, unexplained=share)

    def intervals(self, values: Tensor, lower: Tensor, upper: Tensor) -> list[tuple[float, float] | None]:
        """Return the 95 % interval of each parameter within its bounds; None where it is infinite."""
        width = student_t(self.degrees) * self.deviations
        low, high = torch.maximum(values - width, lower), torch.minimum(values + width, upper)
        return [(float(a), float(b)) if torch.isfinite(w) else None for a, b, w in zip(low, high, width, strict=True)]


@dataclass(frozen=True)
class NormalSystem:
    """Normal equations over the parameters alone.

    Attributes:
        information: Information matrix with priors, shape [n, n].
        prior: Precision of the priors, shape [n, n].
        gradient: Gradient of half the cost, shape [n].
        scores: Score of each window without priors, shape [W, n].
        by_window: Information of each window without priors, shape [W, n, n].
    """

    information: Tensor
    prior: Tensor
    gradient: Tensor
    scores: Tensor
    by_window: Tensor


def identifiability(residuals: Residuals, point: Point, unknown: Tensor | None = None) -> Identifiability:
    """Analyse residuals at the first set of a point, usually the solution of a fit.

    Args:
        residuals: The residuals.
        point: The point.
        unknown: Which parameters are free also on their bound, bool, shape [n]; None for none.
    """
    point = point.pick(torch.tensor([0]))
    normal = residuals.normal(point, physical=residuals.physical)
    system = _system(residuals, normal, point)
    names = residuals.space.names
    values = residuals.space.values(point.x)[0] if residuals.physical else point.x[0]
    sizes = torch.maximum(values.abs(), residuals.sizes if residuals.physical else torch.ones_like(values))
    free = residuals.parameters + point.local.numel() + point.initial.numel()
    variance = 2.0 * float(normal.cost) / max(1, residuals.count + point.local.numel() - free)
    scaled = sizes[:, None] * system.information * sizes
    powers, vectors = torch.linalg.eigh(0.5 * (scaled + scaled.mT))
    singular = powers.clamp_min(0.0).sqrt()
    strongest = max(float(singular.max()) if len(singular) else 0.0, 1e-300)
    deviation = variance**0.5 / singular.clamp_min(1e-300)
    lengths = scaled.diagonal().clamp_min(0.0).sqrt()
    without_effect = _without_effect(names, scaled, lengths)
    hidden = torch.tensor([any(name in dict(d.parts) for d in without_effect) for name in names], dtype=torch.bool)
    bound = residuals.space.at_active_bound(point.x[0], system.gradient)
    bound = bound if unknown is None else bound & ~unknown
    inverse = pseudo_inverse(system.information, bound)
    blocks = blocks_of(residuals.windows)
    scale = doubted_scale(residuals, point, bound)
    covariance = inverse @ (variance * (system.information - system.prior) + system.prior) @ inverse
    covariance = covariance + scale[:, None] * scale
    white = covariance.diagonal().clamp_min(0.0).sqrt()
    std = torch.maximum(white, (_sandwich(system, inverse, blocks).square() + scale.square()).sqrt())
    std = torch.where(bound, inward_deviations(system, bound, variance, blocks), std)
    alone = (variance / system.information.diagonal().clamp_min(1e-300)).sqrt()
    inflated = variance**0.5 * inverse.diagonal().clamp_min(0.0).sqrt() > _INFLATED * alone
    combined = (inflated & (std > sizes)) | hidden
    newton = (inverse @ system.gradient).abs() / std.clamp_min(1e-300)
    return Identifiability(
        names=names,
        singular_values=tuple(float(s) for s in singular.flip(0)),
        condition=strongest / max(float(singular.min()), 1e-16 * strongest) if len(singular) else 1.0,
        insensitive=tuple(
            _direction(names, vectors[:, k], float(singular[k]), float(deviation[k]))
            for k in torch.nonzero((deviation > 1.0) | (singular <= 1e-7 * strongest))[:, 0].flip(0).tolist()
        ),
        without_effect=without_effect,
        unseen=tuple(
            name
            # The size of a quantity that is 0 does not show how much it matters.
            for name, length, one, size in zip(names, lengths, values, sizes, strict=True)
            if length * (max(1.0, 1.0 / float(size)) if one == 0.0 else 1.0) <= _UNSEEN
        ),
        combined=tuple(name for name, only in zip(names, combined, strict=True) if only),
        bound=bound,
        deviations=torch.where(hidden, torch.inf, std),
        white=white,
        correlation=correlations(covariance),
        newton=torch.where(bound | hidden, 0.0, newton),
        degrees=blocks.count - 1,
        variance=variance,
        information=system.information - system.prior,
    )


def unexplained(residuals: Residuals, point: Point) -> float:
    """Return the share of the power of compared errors that noise does not explain, mean over channels."""
    beyond = (residuals.excess(point) / _TOLERANCE).clamp_min(1.0)
    return float((1.0 - beyond.square().reciprocal()).mean())


def doubted_scale(residuals: Residuals, point: Point, bound: Tensor) -> Tensor:
    r"""Return the deviation along a direction that no motion tells, beyond what priors say of it, shape [n].

    Priors alone place the solution x along that direction d, with variance 1 / |d|^2. If they disagree about it, its
    error is larger, by the Birge ratio of their residuals,

    $$b^2 = \max(1, \sum_k d_k^2 x_k^2 / |d|^2)$$

    and coordinates at a `bound`, which count as known elsewhere, do not tell it.
    """
    unseen = None if residuals.physical or residuals.locals else residuals.space.unseen(point.x[0])
    if unseen is None or not isinstance(residuals.prior, UnitPrior):
        return torch.zeros(residuals.parameters, dtype=torch.float64)
    weights = unseen.square()
    ratio = float((weights * residuals.off_prior(point.x)[0].square()).sum() / weights.sum())
    held = bool((weights[bound] > 0.0).any())
    more = max(ratio, 1.0) - (0.0 if held else 1.0)
    return torch.where(bound, 0.0, unseen * (more / weights.sum()) ** 0.5)


def shift_towards(residuals: Residuals, point: Point, errors: Tensor) -> Tensor:
    """Return how far the solution moves if the model's errors are others [1, W, T, channels], shape [n].

    One Gauss-Newton step, with the Jacobian of the model as it is.
    """
    normal, gradient_at = residuals.chord(point)
    gradients = gradient_at(point), gradient_at(point, errors)  # of one Jacobian, and so of its model's errors
    parts = [reduce(residuals, replace(normal, gradient=one)) for one in gradients]
    (full, before), (_, after) = (assemble(residuals, matrix, gradient, point) for matrix, gradient, _ in parts)
    return _newton_step(residuals, point, full[0], before[0], (after - before)[0])


def moves_of_starts(residuals: Residuals, point: Point) -> Tensor:
    """Return how far the solution moves for what windows with estimated starts have in common, shape [moves, n].

    The first move is what is left of the descent: contacts make costs rough, and a search ends before their minimum.
    The others are those by an error of all estimates at once, of one deviation in each direction: a wrong model errs
    alike in all windows, where errors of independent starts would cancel.
    """
    normal, first = residuals.normal(point), residuals.initials
    spread = residuals.windows.spread
    assert spread is not None
    roots = spread[:, 0]
    deviations = (roots @ roots.mT).diagonal(dim1=1, dim2=2).sqrt().median(0).values
    inverse = torch.linalg.pinv(roots)

    def solve(gradient: Tensor, without: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        matrix, reduced, _ = reduce(residuals, replace(normal, gradient=gradient))
        full, right = (part[0] for part in assemble(residuals, matrix, reduced, point))
        return _newton_step(residuals, point, full, right, right - without), right

    nothing = torch.zeros_like(normal.gradient)
    priors, moves = solve(nothing)[1], [solve(normal.gradient)[0]]
    for k in torch.nonzero(deviations > 0.0)[:, 0].tolist():
        pull = nothing.clone()
        pull[0, :, -first:] = -deviations[k] * inverse[..., k]
        moves.append(solve(pull, priors)[0])
    return torch.stack(moves)


def _newton_step(residuals: Residuals, point: Point, full: Tensor, right: Tensor, pull: Tensor) -> Tensor:
    """Return the step of coordinates [n] that undoes a pull; those that the gradient `right` keeps at bounds stay."""
    n, bound = residuals.parameters, torch.zeros_like(right, dtype=torch.bool)
    bound[:n] = residuals.space.at_active_bound(point.x[0], right[:n])
    return -(pseudo_inverse(full, bound) @ pull)[:n]


def correlations(covariance: Tensor) -> Tensor:
    """Return the correlations of a covariance, with 1 on the diagonal also for zero variances."""
    deviations = covariance.diagonal().clamp_min(0.0).sqrt()
    scale = deviations.clamp_min(1e-300)
    correlation = torch.where(deviations[:, None] * deviations > 0.0, covariance / scale / scale[:, None], 0.0)
    return correlation.clamp(-1.0, 1.0).fill_diagonal_(1.0)


def require_seen(analysis: Identifiability, robot: str) -> None:
    """Check that every parameter and combination of parameters affects the logs or has a prior.

    Raises:
        InputError: Some do not; the message names them.
    """
    if analysis.unseen:
        it, acts = ("it", "it acts") if len(analysis.unseen) == 1 else ("them", "they act")
        raise InputError(
            f"the data of {robot!r} cannot identify {', '.join(analysis.unseen)}: no roll-out depends on {it}; valid: "
            f"the other parameters, data that move what {acts} on, a range (NAME=LOWER:UPPER) where the value may be "
            "far from nominal, or a prior (prior: NAME=DEVIATION)"
        )
    if analysis.without_effect:
        raise InputError(
            f"the data of {robot!r} cannot tell apart {'; '.join(d.text for d in analysis.without_effect)}: no "
            "roll-out depends on this combination; valid: one of these parameters less, or a prior on one of them "
            "(prior: NAME=DEVIATION or NAME=20%), or data that tell them apart"
        )


def warning(analysis: Identifiability) -> str | None:
    """Return a warning on ill-conditioned parameters; None if there are none."""
    if analysis.condition < ILL_CONDITIONED:
        return None
    unseen = "; ".join(direction.text for direction in analysis.insensitive[-3:])
    worst = f"; not seen: {unseen}" if unseen else ""
    return (
        f"ill-conditioned (condition number {analysis.condition:.1e}){worst}; values along such directions stay near "
        "where they started: identify fewer parameters together, state a prior, or give data that tell them apart"
    )


def _system(residuals: Residuals, normal: Normal, point: Point) -> NormalSystem:
    matrix, gradient, _ = reduce(residuals, normal)
    full, right = assemble(residuals, matrix, gradient, point, physical=residuals.physical)
    nl = residuals.locals
    n = matrix.shape[-1] - nl
    full, right, scores = full[0], right[0], gradient[0, :, :n]
    prior = torch.zeros(n, n, dtype=full.dtype)
    if residuals.prior is not None:
        slope = residuals.prior_slope(point.x[:1], physical=residuals.physical)[0]
        prior = slope.mT @ slope
    if not nl:
        by_window = matrix[0]
        if not residuals.physical and (unseen := residuals.space.unseen(point.x[0])) is not None:
            only = forgetting(by_window.sum(0), unseen)
            by_window, scores = only @ by_window @ only.mT, scores @ only.mT
        return NormalSystem(full, prior, right, scores, by_window)
    elimination = torch.linalg.solve(full[n:, n:], full[n:, :n])
    by_window = elimination.view(-1, nl, n)[residuals.windows.log]
    scores = scores - (gradient[0, :, None, n:] @ by_window)[:, 0]
    information = matrix[0, :, :n, :n] - matrix[0, :, :n, n:] @ by_window
    return NormalSystem(
        full[:n, :n] - full[:n, n:] @ elimination, prior, right[:n] - right[n:] @ elimination, scores, information
    )


def pseudo_inverse(information: Tensor, bound: Tensor) -> Tensor:
    """Return the inverse [n, n] over the identified directions, zero for parameters at their `bound`.

    Columns are scaled to length 1 first.
    """
    lengths = information.diagonal().clamp_min(1e-300).sqrt()
    square = information / lengths[:, None] / lengths
    square = torch.where(bound[:, None] | bound, torch.diag(bound.to(square.dtype)), square)
    powers, vectors = torch.linalg.eigh(0.5 * (square + square.mT))
    inverse = vectors @ torch.diag(torch.where(powers > _NULL**2, 1.0 / powers.clamp_min(1e-300), 0.0)) @ vectors.mT
    return torch.where(bound[:, None] | bound, 0.0, inverse / lengths[:, None] / lengths)


_LEVERAGE = 0.9
"""Most leverage of a block that is corrected for: beyond it, one block alone tells, and a linear model says nothing."""


def _sandwich(system: NormalSystem, inverse: Tensor, blocks: Blocks) -> Tensor:
    """Return standard deviations from the spread of scores over independent blocks, shape [n].

    Cluster-robust with the small-sample correction of Bell and McCaffrey (2002): residuals of a block with leverage L
    are smaller by the root of 1 - L.
    """
    powers, axes = torch.linalg.eigh(0.5 * (inverse + inverse.mT))
    root = axes * powers.clamp_min(0.0).sqrt() @ axes.mT
    scores = blocks.sums(system.scores)
    by_block = blocks.sums(system.by_window.flatten(1)).view(-1, *system.prior.shape)
    leverage, within = torch.linalg.eigh(root @ by_block @ root)
    wider = (1.0 - leverage.clamp(0.0, _LEVERAGE)).rsqrt()
    own = (within.mT @ (root @ (scores - scores.mean(0))[..., None])) * wider[..., None]
    moves = (root @ (within @ own))[..., 0]
    covariance = moves.mT @ moves + inverse @ system.prior @ inverse
    return covariance.diagonal().clamp_min(0.0).sqrt()


def inward_deviations(system: NormalSystem, bound: Tensor, variance: float, blocks: Blocks) -> Tensor:
    r"""Return how far parameters at a `bound` may lie from it, as standard deviations, shape [n]; 0 for others.

    From their profile likelihood to second order: with the gradient g towards the bound, the curvature h along the
    valley of the others and the deviation s that a free parameter would have, the end t of an interval with quantile z
    is where

    $$g t + \tfrac12 h t^2 = \tfrac12 h z^2 s^2$$
    """
    deviations, z = torch.zeros_like(system.gradient), student_t(blocks.count - 1, CONFIDENCE)
    for k in torch.nonzero(bound)[:, 0].tolist():
        others = bound.clone()
        others[k] = False
        inverse = pseudo_inverse(system.information, others)
        if not float(inverse[k, k]) > 0.0:
            deviations[k] = torch.inf
            continue
        curvature, pull = 1.0 / inverse[k, k], system.gradient[k].abs()
        noise = inverse[k] @ (variance * (system.information - system.prior) + system.prior) @ inverse[k]
        free = torch.maximum(noise, _sandwich(system, inverse, blocks)[k].square())
        root = (pull.square() + (curvature * z).square() * free).sqrt()
        deviations[k] = (root - pull) / curvature / z
    return deviations


def _without_effect(names: tuple[str, ...], scaled: Tensor, lengths: Tensor) -> tuple[Direction, ...]:
    """Return combinations without effect, of parameters that each have an effect."""
    rows = torch.nonzero(lengths > _UNSEEN)[:, 0]
    if len(rows) < 2:
        return ()
    scale = lengths[rows]
    square = scaled[rows][:, rows] / scale[:, None] / scale
    powers, vectors = torch.linalg.eigh(0.5 * (square + square.mT))
    directions = []
    for k in torch.nonzero(powers <= _NULL**2)[:, 0].tolist():
        vector = torch.zeros(len(names), dtype=scaled.dtype)
        vector[rows] = vectors[:, k] / scale
        directions.append(_direction(names, vector / vector.norm(), 0.0, torch.inf))
    return tuple(directions)


def _direction(names: tuple[str, ...], vector: Tensor, singular: float, deviation: float) -> Direction:
    vector = vector * torch.sign(vector[vector.abs().argmax()])
    order = vector.abs().argsort(descending=True).tolist()
    largest = float(vector.abs().max())
    parts = tuple((names[k], float(vector[k])) for k in order if abs(float(vector[k])) >= 0.2 * largest)
    return Direction(singular, deviation, parts)


LEAST_BLOCKS = 5
"""Minimum number of blocks; five blocks give 126 distinct resamples."""
_ITERATIONS = 12
_SETTLED = 2.5e-3
"""Decrease of the cost below which a resample has converged: a step of 0.05 standard deviations."""
_DAMPING = 1e-5
_BYTES = 1 << 25
_FAILED = 0.1
"""Maximum share of resamples that may fail."""

Report = Callable[[int, int], bool]
"""Called with the number of finished resamples and their total; returns true to stop."""


@dataclass(frozen=True)
class Resamples:
    """Fits of resampled logs.

    Attributes:
        values: Values of the converged fits, shape [N, n].
        asked: Number of fitted resamples, including those that did not converge.
        blocks: The resampled blocks.
    """

    values: Tensor
    asked: int
    blocks: Blocks

    @property
    def enough(self) -> bool:
        """Whether at least 90 % of the resamples converged."""
        return len(self.values) >= (1.0 - _FAILED) * self.asked

    @property
    def deviations(self) -> Tensor:
        """Standard deviation of each parameter, shape [n]."""
        return self.values.std(0) * self._widening

    @property
    def _widening(self) -> float:
        return (self.blocks.count / (self.blocks.count - 1)) ** 0.5

    def intervals(self, values: Tensor, lower: Tensor, upper: Tensor) -> list[tuple[float, float]]:
        """Return the 95 % interval of each parameter around its fitted value, within its bounds."""
        reach = student_t(self.blocks.count - 1) * self._widening
        below, above = (_one_sided((self.values - values) * sign) for sign in (-1.0, 1.0))
        low, high = torch.maximum(values - reach * below, lower), torch.minimum(values + reach * above, upper)
        return list(zip(low.tolist(), high.tolist(), strict=True))


def require_blocks(residuals: Residuals) -> None:
    """Raise an InputError if there are too few blocks for a bootstrap."""
    blocks, windows = blocks_of(residuals.windows), residuals.windows
    if blocks.count < LEAST_BLOCKS:
        raise InputError(
            f"bootstrap: {len(windows.logs)} log(s) with {windows.count} window(s) of {windows.frames} frames are "
            f"{blocks.count} block(s) to draw from; valid: at least {LEAST_BLOCKS}: more logs, longer ones, or a "
            "shorter horizon"
        )


def bootstrap(
    residuals: Residuals, point: Point, count: int, *, seed: int = 0, report: Report | None = None
) -> Resamples:
    """Fit resampled logs.

    Args:
        residuals: The residuals, in the scaling of the fit.
        point: The solution.
        count: Number N of resamples.
        seed: Seed of the draws.
        report: See `Report`.
    """
    blocks, point = blocks_of(residuals.windows), point.pick(torch.tensor([0]))
    weights = draw_weights(residuals, blocks, count, torch.Generator().manual_seed(derive_seed(seed, "bootstrap")))
    # A group's Jacobian, its weighted copy and a difference of roll-outs fit into the processor's cache.
    columns = residuals.parameters + residuals.locals + residuals.initials
    row = 3 * 8 * residuals.windows.count * residuals.windows.frames * len(residuals.scale) * columns
    group = max(1, _BYTES // row)
    normal, values, done = residuals.normal(point), [], 0
    for first in range(0, count, group):
        rows = torch.arange(first, min(first + group, count))
        picked = weights.pick(rows)
        start = _first_step(residuals, point, normal, picked)
        solution = levenberg_marquardt(
            residuals, start, _ITERATIONS, tolerance=_SETTLED / residuals.count, weights=picked
        )
        good = solution.converged & torch.isfinite(solution.cost)
        values.append(residuals.values(solution.point.x[good]))
        done += len(rows)
        if report is not None and report(done, count):
            break
    return Resamples(torch.cat(values), done, blocks)


def _one_sided(distance: Tensor) -> Tensor:
    """Return the root mean square of the positive distances among [N, n], shape [n]."""
    positive = distance > 0.0
    return ((distance.square() * positive).sum(0) / positive.sum(0).clamp_min(1)).sqrt()


def _first_step(residuals: Residuals, point: Point, normal: Normal, weights: Weights) -> Point:
    """Return the resamples after a first step, for which all share the Jacobian at the solution.

    A resample whose cost does not fall stays at the solution.
    """
    sets = len(weights.windows)
    start = Point(*(part.expand(sets, *part.shape[1:]).clone() for part in vars(point).values()))
    repeated = Normal(*(part.expand(sets, *part.shape[1:]) for part in vars(normal).values()))
    damping = torch.full((sets,), _DAMPING, dtype=torch.float64)
    stepped = move(residuals, start, step(residuals, weights.normal(repeated), start, damping, weights))
    gains = torch.nonzero(weights.cost(residuals, stepped) < weights.cost(residuals, start))[:, 0]
    return start.put(gains, stepped.pick(gains))


def draw_weights(residuals: Residuals, blocks: Blocks, count: int, generator: torch.Generator) -> Weights:
    """Draw weights of resampled blocks, with random shifts of the priors."""
    drawn = torch.randint(blocks.count, (count, blocks.count), generator=generator)
    times = torch.zeros(count, blocks.count, dtype=torch.float64)
    times.scatter_add_(1, drawn, torch.ones_like(times))
    logs = torch.ones(count, len(residuals.windows.logs), dtype=torch.float64)
    if blocks.logs:  # free quantities of a log that was not drawn keep their prior
        logs = torch.where(times > 0.0, times, 1.0)
    width = 0 if residuals.prior is None else residuals.off_prior(residuals.space.nominal).shape[-1]
    shift = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return Weights(times[:, blocks.of_window], logs, shift)

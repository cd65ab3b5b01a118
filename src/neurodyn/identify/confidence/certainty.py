# SPDX-License-Identifier: Apache-2.0
"""Uncertainty of identified quantities: convergence, intervals, profile likelihoods, values by log, samples.

Posterior samples use Laplace's approximation: normal around the optimum, with the covariance of the fit.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.progress import stage
from neurodyn.identify.confidence.parameter_search import Convergence, Searched, curvature, far_minima, judge
from neurodyn.identify.fit.intervals import (
    Identifiability,
    Resamples,
    blocks_of,
    bootstrap,
    identifiability,
    student_t,
    unexplained,
)
from neurodyn.identify.fit.least_squares import assemble, levenberg_marquardt, reduce
from neurodyn.identify.fit.residuals import Point, Residuals
from neurodyn.identify.result import CONFIDENCE, IdentifiedParameter, InPriorDeviations, LogValue, ProfileCurve
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.identify.unknowns.priors import NORMAL
from neurodyn.identify.unknowns.search_space import Coordinate, CoordinateSpace, PartOfSpace, SearchSpace
from neurodyn.learn.loop import has_state
from neurodyn.sim.draws import SAMPLES, posterior_generator

_REACH = 1.5
"""Range of a profile, in half widths of the interval."""
_ITERATIONS = 10
_REFITS = 6
"""Iterations of a fit with held coordinates after stages, which end near the optimum."""
_SETTLED = 1e-7
"""Relative decrease of the cost below which it ends after a search without stages."""

Report = Callable[[int, int], bool]
"""Called with the number of finished quantities and their total; returns true to stop."""

_MANY = 10**6
"""Degrees of freedom with which Student's t is normal."""
_STATE = "bootstrap"
_DISAGREE = 2.0
"""Ratio of the interval widths by bootstrap and sandwich beyond which a warning is given."""


@torch.no_grad()
def profiles(
    residuals: Residuals, point: Point, analysis: Identifiability, points: int, report: Report | None = None
) -> dict[str, ProfileCurve]:
    """Return the profile likelihood of each quantity with a finite interval, at a number of `points`.

    `residuals` have the scaling of the fit; `analysis` is the identifiability at the solution `point`.
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
        x = space.clip(x)
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


Show = Callable[[str, int, int], bool]
"""Called with the name of the work, the amount done and the total; returns true to stop."""


@dataclass(frozen=True)
class Certainty:
    """Uncertainty of the result of a search.

    Attributes:
        analysis: Identifiability, with standard deviations.
        convergence: Whether the search converged.
        resamples: Bootstrap fits; None without a bootstrap.
        profiles: Profile likelihoods by name; None unless requested.
        blocks: Independent units of the data.
        derivatives: Whether the search used derivatives.
    """

    analysis: Identifiability
    convergence: Convergence
    resamples: Resamples | None
    profiles: dict[str, ProfileCurve] | None
    blocks: str
    derivatives: bool = True

    def identified_parameters(
        self, specs: Sequence[Parameter], values: Tensor, prior: dict[str, tuple[str, float]], together: Tensor | None
    ) -> list[IdentifiedParameter]:
        """Return the quantities with their intervals, or the reason for a missing interval.

        Args:
            specs: The free quantities.
            values: Their values, shape [n].
            prior: Kinds and widths of priors by name of the quantity.
            together: Values fitted together with networks, the model's own first; None without networks.
        """
        lower, upper = _bounds(specs, "lower", -torch.inf), _bounds(specs, "upper", torch.inf)
        sandwich = self.analysis.intervals(values, lower, upper)
        resampled = self.resamples is not None and self.resamples.enough
        drawn = self.resamples.intervals(values, lower, upper) if self.resamples is not None and resampled else None
        parameters = []
        for k, spec in enumerate(specs):
            why = self._why_not(k, spec, float(values[k]))
            kind, width = prior.get(spec.name, (NORMAL, UNSET))
            fast = sandwich[k]
            best = fast if drawn is None else drawn[k]
            both = drawn is not None and why is None and fast is not None
            parameters.append(
                IdentifiedParameter(
                    name=spec.name,
                    value=float(values[k]),
                    interval=None if why is not None or best is None else list(best),
                    why_not=UNSET if why is None else why,
                    sandwich=list(fast) if both and fast is not None else UNSET,
                    prior=width,
                    prior_kind=UNSET if kind == NORMAL else kind,
                    nominal=spec.nominal,
                    determined=why is None,
                    bound=bool(self.analysis.bound[k]),
                    with_networks=UNSET if together is None or k >= len(together) else float(together[k]),
                )
            )
        return parameters

    def warnings(self, parameters: Sequence[IdentifiedParameter]) -> list[str]:
        """Return warnings for the user."""
        lines = (
            [] if self.convergence.converged else [f"not converged: {self.convergence.reason}; there are no intervals"]
        )
        for entry in parameters:
            if entry.sandwich is not UNSET and entry.interval is not None:
                ratio = (entry.interval[1] - entry.interval[0]) / max(entry.sandwich[1] - entry.sandwich[0], 1e-300)
                if ratio > _DISAGREE or ratio < 1.0 / _DISAGREE:
                    lines.append(
                        f"the bootstrap's interval of {entry.name} is {ratio:.2g} times as wide as the sandwich's: "
                        "the cost is no parabola there"
                    )
        if self.resamples is not None and not self.resamples.enough:
            lines.append(f"{self._failure()}; there are no intervals")
        return lines

    def _failure(self) -> str:
        assert self.resamples is not None
        return (
            f"{self.resamples.asked - len(self.resamples.values)} of {self.resamples.asked} resamples did not converge"
        )

    def _why_not(self, k: int, spec: Parameter, value: float) -> str | None:
        if not self.convergence.converged:
            return "not converged"
        if bool(self.analysis.bound[k]):
            return f"on its {'lower' if value == spec.lower else 'upper'} bound"
        if not self.derivatives:
            return "found without derivatives, which intervals need"
        if spec.name in self.analysis.combined:
            return "seen in a combination only"
        if self.resamples is not None and not self.resamples.enough:
            return self._failure()
        return None if bool(torch.isfinite(self.analysis.deviations[k])) else "not seen"


def certainty(searched: Searched, settings: IdentificationSettings, run: Path, resume: bool, show: Show) -> Certainty:
    """Analyse the result of a search: convergence and, if it converged, the requested intervals and profiles.

    Resamples are stored in the folder `run`, and read from there with `resume`.
    """
    residuals, point = searched.residuals, searched.point
    analysis = _analyse(searched)
    if searched.stages:
        convergence = Convergence(True, f"of the stages, that of {searched.stage} fits held-out windows best")
        return Certainty(analysis, convergence, None, None, blocks_of(residuals.windows).text)
    smooth = curvature(residuals, point, analysis) if searched.end.derivatives else None
    convergence = judge(searched.end, analysis, smooth)
    if convergence.converged:
        convergence = far_minima(searched.ends, searched.costs, analysis) or convergence
    resamples = curves = None
    share = settings.bootstrap / max(settings.bootstrap + settings.profile * len(analysis.names), 1)
    if convergence.converged and settings.bootstrap:
        with stage(0.0, share):
            resamples = _resample(searched, residuals, settings, run, resume, show)
    if convergence.converged and settings.profile:
        with stage(share, 1.0):
            curves = profiles(
                residuals, point, analysis, settings.profile, lambda done, all_: show("profile likelihoods", done, all_)
            )
    return Certainty(
        analysis, convergence, resamples, curves, blocks_of(residuals.windows).text, searched.end.derivatives
    )


def _resample(
    searched: Searched, residuals: Residuals, settings: IdentificationSettings, run: Path, resume: bool, show: Show
) -> Resamples:
    if resume and has_state(run, _STATE):
        saved = artifacts.read_tree(run / "state", _STATE)
        return Resamples(saved["values"], int(saved["asked"]), blocks_of(residuals.windows))
    resamples = bootstrap(
        residuals, searched.point, settings.bootstrap, seed=settings.seed,
        report=lambda done, all_: show("bootstrap", done, all_),
    )  # fmt: skip
    artifacts.write_tree(run / "state", _STATE, {"values": resamples.values, "asked": resamples.asked})
    return resamples


def _bounds(specs: Sequence[Parameter], name: str, default: float) -> Tensor:
    return torch.tensor([default if getattr(s, name) is None else getattr(s, name) for s in specs], dtype=torch.float64)


def values_by_log(residuals: Residuals, point: Point, variance: float) -> dict[str, dict[str, LogValue]]:
    """Return the value of each quantity that varies between logs, by its name and by log.

    Uses the first set of the solution `point`; `variance` is that of the scaled residuals.
    """
    space, by_name = residuals.space, dict[str, dict[str, LogValue]]()
    for name, x, deviations in varying(residuals, point, variance):
        values = x, deviations
        if isinstance(space, CoordinateSpace):
            values = value_of(space.coordinates[space.names.index(name)], x, deviations)
        rows = zip(residuals.windows.logs, *(column.tolist() for column in values), strict=True)
        by_name[name] = {log: LogValue(value=value, deviation=deviation) for log, value, deviation in rows}
    return by_name


def varying(residuals: Residuals, point: Point, variance: float) -> list[tuple[str, Tensor, Tensor]]:
    """Return each quantity that varies between logs, its values (or coordinates) and their deviations, shape [logs]."""
    names, logs, space = residuals.options.per_log, residuals.windows.logs, residuals.space
    if not names or not (residuals.physical or isinstance(space, CoordinateSpace)):
        return []
    point = point.pick(torch.tensor([0]))
    matrix, gradient, _ = reduce(residuals, residuals.normal(point, physical=residuals.physical))
    full = assemble(residuals, matrix, gradient, point, physical=residuals.physical)[0][0]
    covariance = variance * torch.linalg.pinv(full, hermitian=True)
    x = residuals.values(point.x)[0] if residuals.physical else point.x[0]
    known, first = (
        list(residuals.names if residuals.physical else space.names),
        len(full) - len(logs) * residuals.locals,
    )
    columns = []
    for index, (name, size) in enumerate(names.items()):
        k, column = known.index(name), residuals.locals - len(names) + index
        own = first + column + residuals.locals * torch.arange(len(logs))
        total = covariance[k, k] + 2 * size * covariance[k, own] + size**2 * covariance[own, own]
        columns.append((name, x[k] + size * point.local[0, :, column], total.clamp_min(0.0).sqrt()))
    return columns


def value_of(coordinate: Coordinate, x: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value of a coordinate and its standard deviation, linear about it, from those of the coordinate."""
    step = 1e-4
    slope = (coordinate.value(x + step) - coordinate.value(x - step)) / (2.0 * step)
    return coordinate.value(x), slope.abs() * deviation


def coordinate_parameters(
    space: CoordinateSpace, x: Tensor, analysis: Identifiability, determined: Tensor
) -> list[IdentifiedParameter]:
    """Return quantities in prior standard deviations with 90 % intervals, undetermined ones with the prior's.

    Args:
        space: Their coordinates.
        x: Fitted coordinates, shape [n].
        analysis: Identifiability there.
        determined: Which of them the logs determine, bool, shape [n].
    """
    parameters, reach = [], student_t(analysis.degrees, CONFIDENCE)
    for k, one in enumerate(space.coordinates):
        known, (least, most) = bool(determined[k]), one.range
        declared = min(max(one.of(one.declared_value), least), most)
        deviation = analysis.deviations[k].clamp(max=1.0) if known else 1.0
        ends = [(x[k] + sign * reach * deviation).clamp(least, most) for sign in (-1.0, 1.0)]
        parameters.append(
            IdentifiedParameter(
                name=one.name, nominal=one.declared_value,
                value=float(one.value(x[k])) if known else one.declared_value,
                interval=[float(one.value(end)) for end in ends], determined=known, bound=bool(analysis.bound[k]),
                unit=one.unit,
                in_prior=InPriorDeviations(
                    value=float(x[k]) if known else declared, interval=[float(end) for end in ends],
                    bounds=[least, most], declared=declared, deviation=one.width,
                ),
            )
        )  # fmt: skip
    return parameters


def hold_undetermined(
    searched: Searched, analysis: Identifiability, settings: IdentificationSettings, kept: Collection[str] = ()
) -> tuple[Searched, Identifiability, Tensor]:
    """Hold coordinates that the logs do not determine at their declared values, and fit the others again.

    Of coordinates that the logs determine only together, such as a mass and its place, as few as possible are held. A
    bound is no answer where the log lets a coordinate be as far from it as its prior. The common scale of masses and
    torques holds none: their ratios count, and priors say how large they are (`with_likely_scale`).

    Args:
        searched: A fit of coordinates in prior standard deviations.
        analysis: Identifiability there.
        settings: Settings.
        kept: Coordinates that are not held, as held-out windows tell that they matter.

    Returns:
        The fit, its identifiability with all coordinates free, as the held ones remain unknown, and which of them the
            logs determine, bool, shape [n].
    """
    residuals, point, space = searched.residuals, searched.point, searched.residuals.space
    assert isinstance(space, CoordinateSpace)
    varies = torch.tensor([name in residuals.options.per_log for name in space.names], dtype=torch.bool)
    varies |= torch.tensor([name in kept for name in space.names], dtype=torch.bool)
    determined = varies | (deviations_of_ratios(space, point.x[0], analysis) < settings.undetermined_above)
    if not searched.stages:
        determined |= analysis.bound
    else:
        determined = _with_joint(analysis, determined, settings.undetermined_above)
    if bool(determined.all()):
        return searched, analysis, determined
    part = PartOfSpace(space, torch.nonzero(determined)[:, 0], space.declared)
    start = replace(point, x=part.clip(_conditional(point.x[0], analysis, determined, space.declared)[None, part.kept]))
    iterations, tolerance = (_REFITS, settings.progress) if searched.stages else (settings.iterations, _SETTLED)
    held = levenberg_marquardt(residuals.with_space(part), start, iterations, tolerance=tolerance).point
    whole = part.whole(held.x)
    if not residuals.options.base:  # no motion tells the scale of masses and torques, and the fit may drift along it
        whole = space.with_likely_scale(whole[0], determined)[None]
    fitted = replace(searched, point=replace(held, x=whole))
    return fitted, _analyse(fitted, ~determined), determined


def _analyse(searched: Searched, unknown: Tensor | None = None) -> Identifiability:
    """Return the identifiability at a solution; of a fit in stages with what its model may err beside noise."""
    residuals, point = searched.residuals, searched.point
    analysis = identifiability(residuals, point, unknown)
    if searched.stages:
        analysis = analysis.inflated(unexplained(residuals, point))
    return analysis.widened(searched.shifts)


def deviations_of_ratios(space: CoordinateSpace, x: Tensor, analysis: Identifiability) -> Tensor:
    """Return the deviations of coordinates [n], of masses and torques at the common scale that priors expect.

    Holding one of them as declared would give all others the scale that it happens to have.
    """
    if (scale := space.unseen(x)) is None:
        return analysis.deviations
    covariance = analysis.covariance
    along = covariance @ scale
    left = covariance.diagonal() - along.square() / (scale @ along).clamp_min(1e-12)
    return analysis.deviations * (left / covariance.diagonal().clamp_min(1e-12)).clamp(0.0, 1.0).sqrt()


def _with_joint(analysis: Identifiability, determined: Tensor, above: float) -> Tensor:
    """Return the determined coordinates and those that are, given declared values of the others, bool, shape [n].

    Of coordinates that are determined only together, all would be held. Instead those are fitted, one after the other,
    that the logs tell best with the other ones as declared.
    """
    covariance = analysis.covariance
    determined = determined.clone()
    while not bool(determined.all()):
        held = torch.nonzero(~determined)[:, 0]
        precision = torch.linalg.pinv(covariance[held][:, held], hermitian=True).diagonal()
        alone = precision.clamp_min(1e-12).rsqrt()
        best = int(alone.argmin())
        if float(alone[best]) >= above:
            break
        determined[held[best]] = True
    return determined


def _conditional(x: Tensor, analysis: Identifiability, determined: Tensor, declared: Tensor) -> Tensor:
    """Return coordinates with undetermined ones declared, and the mean of the others given these, shape [n]."""
    covariance = analysis.covariance
    change = torch.linalg.pinv(covariance[~determined][:, ~determined], hermitian=True) @ (declared - x)[~determined]
    moved = torch.where(determined, x, declared)
    moved[determined] += covariance[determined][:, ~determined] @ change
    return moved


def posterior_sample(
    space: CoordinateSpace,
    x: Tensor,
    analysis: Identifiability,
    count: int = SAMPLES,
    seed: int = 0,
    spread: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return posterior samples of the quantities behind coordinates.

    Args:
        space: The coordinates, each in prior standard deviations.
        x: The optimum, shape [coordinates].
        analysis: Identifiability there.
        count: Number of samples.
        seed: Seed of the samples.
        spread: Standard deviation of each coordinate between logs, shape [coordinates]; None for one log.

    Returns:
        Values by name of the quantity, shape [samples], float32. Directions that the logs do not determine keep the
            prior's
        width; coordinates at a bound stay there.
    """
    wider = student_t(analysis.degrees, CONFIDENCE) / student_t(_MANY, CONFIDENCE)
    deviations = torch.where(analysis.bound, 0.0, (wider * analysis.deviations).clamp(max=1.0))
    powers, axes = torch.linalg.eigh(0.5 * (analysis.correlation + analysis.correlation.mT))
    root = axes * powers.clamp_min(0.0).sqrt()
    half = torch.randn((count + 1) // 2, len(x), generator=posterior_generator(seed), dtype=x.dtype)
    noise = torch.cat([half, -half])[:count]  # about the model's values: for each sample there is its mirror image
    rows = x + deviations * (noise @ root.mT)
    if spread is not None:
        rows = rows + spread * torch.randn(rows.shape, generator=posterior_generator(seed + 1), dtype=x.dtype)
    rows = rows.clamp(space.lower, space.upper)
    return {name: column.float() for name, column in zip(space.quantities, space.values(rows).unbind(-1), strict=True)}

# SPDX-License-Identifier: Apache-2.0
r"""What a declaration may lack: structures that are tried where a fit asks for them.

A fit asks if a quantity ends at a bound or at an implausible value, or if the held-out rest is large beside the noise.
Each structure of `STRUCTURES` adds coordinates to the fit. One Jacobian at the optimum screens all candidates: by how
much a Gauss-Newton step over the coordinates C of the fit and the columns K of a candidate lowers the cost,

$$\tfrac12 g_{CK}^T H_{CK}^{-1} g_{CK} - \tfrac12 g_C^T H_C^{-1} g_C$$

A large fit rolls that step out, as far from the optimum less may come true. The best ones are fitted, and kept if they
are better on held-out windows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.registry import Registry
from neurodyn.data.header import Split
from neurodyn.data.windows import Windows, blocks_of
from neurodyn.dynamics.rollout_errors import RolloutErrors, judge
from neurodyn.identify.confidence.parameter_search import kept_stage
from neurodyn.identify.fit.least_squares import assemble, reduce
from neurodyn.identify.fit.residuals import Point, Residuals
from neurodyn.identify.ladder.rungs import held_out_errors, held_out_windows, noise_errors
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.result import TriedStructure
from neurodyn.identify.settings import FitStage, IdentificationSettings
from neurodyn.identify.stages.drive_structures import ELASTIC_JOINT, LOADED_FRICTION, STATED_GAINS, TILTED_BASE
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.identify.stages.structure_kinds import (
    ADDED_PAYLOAD,
    EVERY,
    MOVED_CENTRE,
    OTHER_BODIES,
    StructureCandidate,
    StructureKind,
)
from neurodyn.identify.unknowns.search_space import CoordinateSpace

IMPLAUSIBLE = 3.0
"""Standard deviations of a prior beyond which a value is implausible."""
_ROUNDS, _TRIALS = 2, 3
"""Most structures that are kept, and most that are fitted for each."""
_WINDOWS = 48
"""Windows of the screening."""
_LEAST = 0.02
"""Share of the cost by which the screening must expect a structure to lower it."""
_REST = 3.0
"""Ratio of held-out errors to those of a perfect model under the sensors' noise above which a fit asks."""
_FEW = 3
"""Driven joints up to which springs are tried in each; of more, in the one that errs most."""
_SHARE = 0.8
"""Largest share of the error with which a structure is kept that no screening asked for."""
_MANY = 30
"""Coordinates of a fit beyond which only one structure, and a payload, are tried in a round, no springs, and fits take
no more time."""
_PATIENT = 25
"""Most iterations of a fit with a structure of drives over the longest windows, of which it takes twice as many."""


STRUCTURES: Registry[StructureKind] = Registry(
    "structure",
    gains=STATED_GAINS,
    payload=ADDED_PAYLOAD,
    centre=MOVED_CENTRE,
    friction=LOADED_FRICTION,
    tilt=TILTED_BASE,
    elastic=ELASTIC_JOINT,
    bodies=OTHER_BODIES,
)
"""Structures that are tried."""


def describe(candidate: StructureCandidate) -> str:
    """Return a structure in words, such as "a payload on the link of wrist"."""
    return f"{STRUCTURES[candidate.kind].words} {'every joint' if candidate.place == EVERY else candidate.place}"


@dataclass
class StructureSearch:
    """Search of structures after a fit.

    Attributes:
        fitting: The fit so far, replaced by the one with a structure that is kept.
        kept: The structures that are kept.
        tried: What was tried, in words, with its share of the error.
        costs: Held-out cost of the stages, with that of the stage that a structure was fitted on.
    """

    fitting: Fitting
    kept: list[StructureCandidate] = field(default_factory=list)
    tried: list[TriedStructure] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)
    _begin: Tensor | None = None
    _asked: list[str] | None = None
    _errors_of_kept: dict[int, "_HeldOutErrors"] = field(default_factory=dict)

    def run(self, costs: Mapping[str, float]) -> "StructureSearch":
        """Try structures while the fit asks for them; `costs` are those of its stages."""
        self.costs = dict(costs)
        for _ in range(_ROUNDS):
            if not self._reasons or not self._round():
                break
        if not self._large and self._reasons:
            self._round_of_springs()
        if self._reasons:
            self._round(last=True)
        return self

    @property
    def _reasons(self) -> list[str]:
        """Why the fit asks for another structure."""
        if self._asked is None:
            self._asked = asks(self.fitting)
        return self._asked

    def _settle(self) -> None:
        """Fit as patiently as with a structure, so that none is kept for what more iterations find."""
        before, stage = self.fitting.kept, self.fitting.stages[-1]
        self._begin = before.x
        self.fitting.refine(_patient(stage, self.fitting.space))
        after = self.fitting.held_out_cost()
        if after < before.cost:
            self.costs[list(self.costs)[-1]] = after
            self._forget()
        else:
            self.fitting.restore(before)

    def _forget(self) -> None:
        """Forget what is known of the fit before this one."""
        self._asked = None
        self._errors_of_kept = {}

    def _round(self, *, last: bool = False) -> bool:
        """Fit the best candidates of the screening, or those that are tried last; return whether the best is kept."""
        chosen = self._chosen(last=last)
        if chosen and self._begin is None and not self.tried:
            self._settle()
            if not self._reasons:
                return False
            chosen = chosen if self._large else self._chosen(last=last)
        return self._keep([self._try(*one) for one in chosen])

    def _chosen(self, *, last: bool) -> list[tuple[StructureCandidate, float, dict[str, float]]]:
        """Return the candidates to fit, with the share that each may save, and first values."""
        tried = {one.name for one in self.tried}
        ranked: list[tuple[StructureCandidate, float, dict[str, float]]] = []
        for one in screen(self.fitting, self._stages, last=last):
            simple = [other[0].kind for other in ranked if other[0].place != EVERY]
            if describe(one[0]) not in tried and (one[0].place == EVERY or one[0].kind not in simple):
                ranked.append(one)
        chosen = [one for one in ranked if one[1] >= _LEAST]
        if self._large:  # of a payload, whose effect others make up for, one looks in any case
            chosen = chosen[:1] + [one for one in chosen[1:] if STRUCTURES[one[0].kind] is ADDED_PAYLOAD][:1]
        return chosen[:_TRIALS]

    def _round_of_springs(self) -> None:
        """Fit what the screening does not tell of, and keep the best."""
        fitting = self.fitting
        worst = self._errors().errors.errors[:, -1].nanmean(0)
        joints = [name for name in fitting.spec.controls if name in fitting.spec.tangent_names]  # rotors are none
        order = sorted(joints, key=lambda name: -float(worst[fitting.spec.tangent_names.index(name)]))
        few = joints if len(joints) <= _FEW else order[:1]
        self._keep([
            self._try(one, 0.0, {})
            for one in candidates_for(fitting.model, fitting.settings)
            if not STRUCTURES[one.kind].screened and one.place in few
        ])  # fmt: skip

    def _try(self, candidate: StructureCandidate, gain: float, start: Mapping[str, float]) -> "_Trial":
        """Fit a candidate, and judge it by held-out roll-outs."""
        trial, costs = fit_with(self.fitting, candidate, start, self._stages, self._begin)
        # Springs settle for longer, and both are judged on the same windows.
        before = self._errors(max(self.fitting.past, trial.past))
        after = held_out_errors(trial.current(), trial.store, before.windows)
        judgement = judge(before.errors, after, before.frames, blocks_of(before.windows))
        told = TriedStructure(
            name=describe(candidate), kept=judgement.kept, share=judgement.share, reason=judgement.reason,
            asked_by=list(self._reasons), expected=gain,
        )  # fmt: skip
        return _Trial(candidate, trial, costs, told)

    def _keep(self, trials: Sequence["_Trial"]) -> bool:
        """Keep the best of trials, if one is better than the fit."""
        screened = STRUCTURES[trials[0].candidate.kind].screened if trials else True
        most = 1.0 if screened else _SHARE
        better = [one for one in trials if one.told.kept and (one.told.share or 0.0) < most]
        best = min(better, key=lambda one: one.told.share or 0.0, default=None)
        self.tried += [one.told if one is best else msgspec.structs.replace(one.told, kept=False) for one in trials]
        if best is None:
            return False
        names = {stage: name for name, stage in zip(self.costs, self.fitting.stages, strict=True)}
        self.costs |= {names[stage]: cost for stage, cost in best.costs.items()}
        self.fitting, self._begin = best.fitting, None
        self._forget()
        self.kept.append(best.candidate)
        return True

    @property
    def _large(self) -> bool:
        """Whether a fit has so many coordinates that few structures are tried."""
        return len(self.fitting.space.names) > _MANY

    @property
    def _stages(self) -> list[FitStage]:
        """The stage of the fit, and the longest one, which sees what takes its time to matter."""
        return list(dict.fromkeys([self.fitting.stage_of(self.costs), self.fitting.stages[-1]]))

    def _errors(self, past: int | None = None) -> "_HeldOutErrors":
        """Return the fit's errors of held-out roll-outs, with some frames of `past` before them."""
        past = self.fitting.past if past is None else past
        if past not in self._errors_of_kept:
            windows, frames = _held_out(self.fitting, past)
            errors = held_out_errors(self.fitting.current(), self.fitting.store, windows)
            self._errors_of_kept[past] = _HeldOutErrors(windows, frames, errors)
        return self._errors_of_kept[past]


@dataclass(frozen=True)
class _HeldOutErrors:
    """Errors along held-out windows, with the horizons at which they are compared [frames]."""

    windows: Windows
    frames: list[int]
    errors: RolloutErrors


@dataclass(frozen=True)
class _Trial:
    """A fit with a candidate, its held-out costs by stage, and what is said of it."""

    candidate: StructureCandidate
    fitting: Fitting
    costs: dict[FitStage, float]
    told: TriedStructure


def asks(fitting: Fitting) -> list[str]:
    """Return why a fit asks for another structure: what is at a bound or implausible, and what is unexplained."""
    space, x = fitting.space, fitting.x
    at_bound = (x <= space.lower + 1e-9) & (space.lower > -0.5 * torch.inf) | (x >= space.upper - 1e-9)
    reasons = []
    for k, one in enumerate(space.coordinates):
        physical = one.least_value is not None and float(x[k]) <= float(space.lower[k]) and space.lower[k] > -7.9
        if physical:  # zero friction or delay is plausible
            continue
        if bool(at_bound[k]):
            reasons.append(f"{one.name} is at a bound")
        elif abs(float(x[k])) > IMPLAUSIBLE:
            reasons.append(f"{one.name} is {abs(float(x[k])):.1f} deviations from its declared value")
    reasons += _unexplained(fitting)
    return reasons


def _unexplained(fitting: Fitting) -> list[str]:
    """Return in words how far the errors of held-out roll-outs are above those of a perfect model under noise."""
    settings = fitting.settings
    windows, frames = _held_out(fitting, fitting.past)
    errors = held_out_errors(fitting.current(), fitting.store, windows)
    floor = noise_errors(fitting.dynamics, fitting.store, windows, fitting.past, fitting.noise)
    both, worst = errors.finite & floor.finite, (0.0, "", 0.0)
    if not bool(both.any()):
        return ["no held-out roll-out is finite"]
    for frame, seconds in zip(frames, settings.seconds, strict=False):
        ratios = errors.errors[both, frame - 1].mean(0) / floor.errors[both, frame - 1].mean(0).clamp_min(1e-12)
        ratio, k = torch.max(torch.nan_to_num(ratios), 0)
        worst = max(worst, (float(ratio), errors.names[int(k)], seconds))
    rest, name, seconds = worst
    return [f"the error of {name} after {seconds:.2g} s is {rest:.1f} times noise"] if rest > _REST else []


def _held_out(fitting: Fitting, past: int) -> tuple[Windows, list[int]]:
    """Return held-out windows of a fit after some frames of `past`, and its horizons [frames]."""
    settings = fitting.settings
    return held_out_windows(fitting.store, Split.VALIDATION, past, settings.seconds, settings.rollouts_each)


@torch.no_grad()
def screen(
    fitting: Fitting, stages: Sequence[FitStage], *, last: bool = False
) -> list[tuple[StructureCandidate, float, dict[str, float]]]:
    """Return the candidates with the largest share of a stage's cost that each would save, and first values.

    The best is first. Candidates are those that are tried `last`, or the others.
    """
    found: dict[tuple[str, str], tuple[StructureCandidate, float, dict[str, float]]] = {}
    by_probe: dict[Any, list[StructureCandidate]] = {}
    for one in candidates_for(fitting.model, fitting.settings):
        if STRUCTURES[one.kind].screened and STRUCTURES[one.kind].last == last:
            by_probe.setdefault(STRUCTURES[one.kind].probe, []).append(one)
    for probe, candidates in by_probe.items():
        more = list({one.name: one for candidate in candidates for one in candidate.columns}.values())
        wide = fitting.space.extended(fitting.model.mechanism, more)
        probed = fitting if probe is None else fitting.with_model(probe(fitting.model).with_space(wide))
        for stage in stages:
            residuals = probed.residuals(probed.windows(Split.TRAIN, replace_windows(stage))).with_space(wide)
            point = fitting.start(residuals, torch.cat([fitting.x, fitting.x.new_zeros(len(more))]))
            now = float(residuals.cost(point))
            if probe is not None:  # its own quantities may have an effect already
                own = fitting.residuals(fitting.windows(Split.TRAIN, replace_windows(stage)))
                now = float(own.cost(fitting.start(own)))
            for entry in _screened(fitting, residuals, point, wide, candidates, now):
                key = entry[0].kind, entry[0].place
                before = found.get(key, entry)
                # Steps over short windows are nearly linear, and better starts where they show something.
                found[key] = entry if before[1] < _LEAST < entry[1] else before
    best: dict[str, float] = {}
    for (kind, _), (_, gain, _) in found.items():
        best[kind] = max(best.get(kind, 0.0), gain)
    # A structure in one joint is simpler than the same in all, which cannot save less.
    return sorted(found.values(), key=lambda one: (-best[one[0].kind], one[0].place == EVERY, -one[1]))


def _screened(
    fitting: Fitting, residuals: Residuals, point: Point, wide: CoordinateSpace,
    candidates: Sequence[StructureCandidate], now: float,
) -> list[tuple[StructureCandidate, float, dict[str, float]]]:  # fmt: skip
    """Return candidates with what they save of the present cost, and first values, from the Jacobian at a point."""
    matrix, gradient, _ = reduce(residuals, residuals.normal(point))
    full, right = (part[0] for part in assemble(residuals, matrix, gradient, point))
    space, cost, found = fitting.space, float(residuals.cost(point)), []
    if not math.isfinite(cost):
        return []
    lower, upper = (torch.cat([bound, wide.lower.new_full((len(right) - len(bound),), end)])
                    for bound, end in ((wide.lower, -torch.inf), (wide.upper, torch.inf)))  # fmt: skip
    x = torch.cat([point.x[0], right.new_zeros(len(right) - len(wide.names))])
    shared = [*range(len(space.names)), *range(len(wide.names), len(right))]
    large = len(space.names) > _MANY
    before, moved = _gain(full, right, x, lower, upper, shared)
    before *= _realised(residuals, point, moved, before) if large else 1.0
    for one in candidates:
        rows = [wide.names.index(column.name) for column in one.columns]
        gain, moved = _gain(full, right, x, lower, upper, [*shared, *rows])
        if large and gain - before >= _LEAST * now:
            gain *= _realised(residuals, point, moved, gain)
        values = {column.name: float(column.value(moved[row])) for column, row in zip(one.columns, rows, strict=True)}
        start = STRUCTURES[one.kind].start(fitting.model, one.place, values)
        found.append((one, (gain - before) / now, start))
    return found


def _realised(residuals: Residuals, point: Point, moved: Tensor, gain: float) -> float:
    """Return the share of a predicted gain, at most 1, that roll-outs along the step to it have where it is best."""
    x = point.x[0]
    parts = torch.tensor([1.0, 0.5, 0.25], dtype=x.dtype)
    costs = residuals.cost(point.at(residuals.space.clip(x + parts[:, None] * (moved[: len(x)] - x))))
    predicted = max(gain, 1e-300) * (2.0 * parts - parts.square())
    return float(((residuals.cost(point) - costs) / predicted).max().clamp(0.0, 1.0))


def candidates_for(model: FitModel, settings: IdentificationSettings) -> list[StructureCandidate]:
    """Return the candidates for a robot among the quantities that the settings free."""
    return [
        one
        for structure in STRUCTURES.values()
        if any(fnmatchcase(name, pattern) for name in structure.frees for pattern in settings.quantities)
        for one in structure.candidates(model)
    ]


def _patient(stage: FitStage, space: CoordinateSpace) -> FitStage:
    if len(space.names) > _MANY:
        return stage
    return msgspec.structs.replace(stage, windows=2 * stage.windows, iterations=_PATIENT)


def replace_windows(stage: FitStage) -> FitStage:
    """Return a stage with few windows."""
    return FitStage(seconds=stage.seconds, windows=min(stage.windows, _WINDOWS), iterations=stage.iterations)


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


def with_structure(
    model: FitModel, candidate: StructureCandidate, space: CoordinateSpace, settings: IdentificationSettings
) -> FitModel:
    """Return a robot with a candidate, with the priors of a space and the same quantities of the engine."""
    built = STRUCTURES[candidate.kind].build(model, candidate.place)
    words = " and ".join(filter(None, (model.structure, describe(candidate))))
    built = replace(built, structure=words).in_prior_deviations(settings, spare=space.quantities)
    assert built.space is not None
    return built.with_space(built.space.with_widths(space.widths))


def fit_with(
    fitting: Fitting, candidate: StructureCandidate, start: Mapping[str, float], stages: Sequence[FitStage],
    begin: Tensor | None = None,
) -> tuple[Fitting, dict[FitStage, float]]:  # fmt: skip
    """Return the fit with a candidate, from where the fit without it ended, and its held-out cost by stage.

    It is that of the stage that is kept (`kept_stage`). `begin` are other coordinates of the fit to begin with: what
    more iterations found without the candidate stands in for it.
    """
    begin = fitting.x if begin is None else begin
    model = with_structure(fitting.model, candidate, fitting.space, fitting.settings)
    trial = fitting.with_model(model)
    space, own = trial.space, fitting.space.names
    trial.x = space.declared.clone()
    for k, one in enumerate(space.coordinates):
        if one.name in own:
            trial.x[k] = begin[own.index(one.name)]
        elif one.name in start:
            trial.x[k] = one.of(start[one.name])
    # What the missing structure has driven far away begins anew.
    fresh = torch.tensor([name not in own for name in space.names])
    trial.x = space.clip(torch.where((trial.x.abs() > IMPLAUSIBLE) & ~fresh, space.declared, trial.x))
    begun, ends = trial.x, []
    of_drives = STRUCTURES[candidate.kind].probe is not None or not STRUCTURES[candidate.kind].screened
    stages = stages if of_drives else stages[:1]  # bodies show in short windows, whose fits are better conditioned
    for stage in stages:
        trial.x, trial.local = begun.clone(), dict(fitting.local)
        trial.refine(_patient(stage, space) if of_drives and stage == fitting.stages[-1] else stage)
        ends.append((trial.held_out_cost(), trial.x, trial.local))
    costs = {stage: cost for stage, (cost, _, _) in zip(stages, ends, strict=True)}
    _, trial.x, trial.local = ends[list(costs).index(kept_stage(costs))]
    trial.ends = torch.stack([x for _, x, _ in ends])
    return trial, costs

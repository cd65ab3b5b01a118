# SPDX-License-Identifier: Apache-2.0
r"""What a declaration may lack: structures that are tried where a fit asks for them.

A fit asks if a quantity ends at a bound or at an implausible value, or if the held-out rest is large beside the noise;
if it does not, the screening of a payload asks.
Each structure of `STRUCTURES` adds coordinates to the fit. One Jacobian at the optimum screens all candidates: by how
much a Gauss-Newton step over the coordinates C of the fit and the columns K of a candidate lowers the cost,

$$\tfrac12 g_{CK}^T H_{CK}^{-1} g_{CK} - \tfrac12 g_C^T H_C^{-1} g_C$$

A large fit rolls that step out, as far from the optimum less may come true. The best ones are fitted, and kept if they
are better on held-out windows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.registry import Registry
from neurodyn.data.header import Split
from neurodyn.data.windows import Windows, blocks_of
from neurodyn.dynamics.rollout_errors import RolloutErrors, judge
from neurodyn.identify.confidence.parameter_search import Searched, kept_stage
from neurodyn.identify.fit.least_squares import assemble, reduce
from neurodyn.identify.fit.residuals import Point, Residuals
from neurodyn.identify.ladder.rungs import held_out_errors, held_out_windows, noise_errors
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.result import TriedStructure, UnseenPayload
from neurodyn.identify.settings import FitStage, IdentificationSettings
from neurodyn.identify.stages.drive_structures import ELASTIC_JOINT, LOADED_FRICTION, STATED_GAINS, TILTED_BASE
from neurodyn.identify.stages.growing_windows import Fitting, settled
from neurodyn.identify.stages.lasting_errors import TIMES, lasting_errors
from neurodyn.identify.stages.structure_kinds import (
    ADDED_PAYLOAD,
    EVERY,
    MOVED_CENTRE,
    OTHER_BODIES,
    StructureCandidate,
    StructureKind,
)
from neurodyn.identify.unknowns.quantities import carriers
from neurodyn.identify.unknowns.search_space import IMPLAUSIBLE, MASS_SCALE, PAYLOAD, Coordinate, CoordinateSpace

_ROUNDS, _TRIALS = 2, 3
"""Most structures that are kept, and most that are fitted for each, besides other places of a payload."""
_WINDOWS = 48
"""Windows of the screening."""
_LEAST = 0.02
"""Share of the cost by which the screening must expect a structure to lower it."""
_SIGNIFICANT = 20.0
"""Decrease of the cost, as half a chi-square of a few coordinates, from which on a payload is tried for what a fit asks
though its share is small: where noise is most of the cost, that says nothing.
"""
_DOUBTED, _MATTERS = 0.8, 0.1
"""Share of what a structure has to save of held-out errors to be kept, from which on it is doubted if it is not; least
share of errors that it then saves.
"""
_REST = 3.0
"""Ratio of held-out errors to those of a perfect model under the sensors' noise above which a fit asks."""
_EVIDENCE = 10.0
"""Cost of priors that a payload saves from which on it is kept though it predicts no better than other masses."""
_NOTABLE, _QUANTILE = 0.02, 1.645
"""Payload that matters, as a share of the robot's mass, and the deviations of the upper end of a 90 % interval."""
_FEW = 3
"""Driven joints up to which springs are tried in each; of more, in the one that errs most, of large fits beside noise.
"""
_SHARES = (1.0, 0.5, 2.0, 4.0)
"""Masses with which a payload begins in another place, relative to that in the one before."""
_SHARE = 0.8
"""Largest share of the error with which a structure is kept that no screening asked for."""
_MANY = 30
"""Coordinates of a fit beyond which only one structure, payloads in two places (in others if that leaves implausible
masses) and one spring are tried in a round, and fits take no more time."""
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


def by_error(joints: Sequence[str], errors: RolloutErrors) -> list[str]:
    """Return joints in the order of their mean errors at the end of roll-outs, the largest first."""
    ends = dict(zip(errors.names, errors.errors[:, -1].nanmean(0).tolist(), strict=True))
    return sorted(joints, key=lambda name: -ends[name])


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
        late: Says that the time for it is over; None for no limit.
        unseen: The heaviest payload that the log does not exclude, of a fit without one; None for less than matters.
    """

    fitting: Fitting
    kept: list[StructureCandidate] = field(default_factory=list)
    tried: list[TriedStructure] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)
    late: Callable[[], bool] | None = None
    unseen: UnseenPayload | None = None
    _begin: Tensor | None = None
    _asked: list[str] | None = None
    _loads: list[Screened] = field(default_factory=list)
    _errors_of_kept: dict[int, "_HeldOutErrors"] = field(default_factory=dict)

    def run(self, costs: Mapping[str, float]) -> "StructureSearch":
        """Try structures while the fit asks for them; `costs` are those of its stages."""
        self.costs = dict(costs)
        for _ in range(_ROUNDS):
            if self._is_late or not self._round():
                break
        if self._reasons:
            self._round_of_springs()
        if self._reasons:
            self._round(last=True)
        return self

    def look_again(self, finished: Fitting, searched: Searched) -> bool:
        """Try those that were not tried yet where a finished fit asks for them; return whether one is kept.

        It does if masses of links are implausible, for a payload that lowers its cost or for another place of the one
        that is kept, or for a spring or friction with load where errors of a joint last. Its short steps and its scale
        show what longer steps and an earlier scale hid. `fitting` is the fit that was finished, or the one with what is
        kept: with the longer steps, to be finished again.
        """
        if self._is_late:
            return False
        lasting = _joints_whose_errors_last(finished, searched)
        self.fitting.x, self.fitting.scale, self._begin = finished.x, finished.scale, None
        share = self.fitting.held_out_cost() / max(self.costs[kept_stage(self.costs)], 1e-300)
        self.costs = {name: share * cost for name, cost in self.costs.items()}  # in the other scale
        self._forget()
        kept = _has_implausible_masses(finished) and (self._move_payload() or self._round(nearer=True))
        kept = kept or self._fit_best(self._promising_payload(), nearer=True)
        return (bool(lasting) and self._round_of_springs(lasting[:1])) or kept

    @property
    def _is_late(self) -> bool:
        return self.late is not None and self.late()

    @property
    def _reasons(self) -> list[str]:
        """Why the fit asks for another structure; nothing once it is late."""
        if self._is_late:
            return []
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

    def _round(self, *, last: bool = False, nearer: bool = False) -> bool:
        """Fit the best candidates of the screening, or those that are tried last; return whether the best is kept.

        A payload that outweighs the robot does not count. Of other places of a payload, and with `nearer` of all, those
        count that bring values nearer to the declared ones.
        """
        asked, chosen = self._reasons, self._chosen(last=last)
        if chosen and self._begin is None and not self.tried:
            self._settle()
            if asked and not self._reasons:
                return False
            chosen = chosen if self._large else self._chosen(last=last)
        return self._fit_best(chosen, nearer=nearer)

    @property
    def _kinds(self) -> list[StructureKind]:
        """Kinds of the structures that are kept."""
        return [STRUCTURES[one.kind] for one in self.kept]

    def _move_payload(self) -> bool:
        """Fit the payload that was kept on other links, from its mass; return whether another place is better.

        With the fit's first long steps, masses of links may have made up for a wrong one.
        """
        model, space = self.fitting.model, self.fitting.space
        if ADDED_PAYLOAD not in self._kinds:
            return False
        mass, before = float(space.value(PAYLOAD[0], self.fitting.x)), list(self.kept)
        mass = max(mass, _NOTABLE * _mass(self.fitting))
        starts = dict[str, list[dict[str, float]]]()
        for link in model.mechanism.links:
            if link.joint.name in carriers(model.mechanism) and link.joint.name != model.carrier:
                centre = dict(zip(PAYLOAD[1:4], link.com, strict=True))
                starts[link.joint.name] = [{PAYLOAD[0]: share * mass, **centre} for share in _SHARES]
        others, self._loads = [StructureCandidate("payload", place, ()) for place in starts], []
        moved = self._fit_best([Screened(one, 0.0, starts=starts[one.place]) for one in others], nearer=True)
        if moved:
            self.kept = [one for one in before if STRUCTURES[one.kind] is not ADDED_PAYLOAD] + self.kept[len(before) :]
        return moved

    def _promising_payload(self) -> list[Screened]:
        """Return the payload of which the screening says that it lowers the cost most, if by clearly more than noise.

        None where one was kept, or another centre of mass, which does the same, or where contacts hide it.
        """
        alike = MOVED_CENTRE in self._kinds or OTHER_BODIES in self._kinds
        if alike or self.fitting.touches or self.fitting.space.has(PAYLOAD[0]):
            return []
        loads = screen(self.fitting, self._stages, asked=False)
        best = max(loads, key=attrgetter("gain"), default=None)
        return [] if best is None or best.gain < _SIGNIFICANT else [best]

    def _fit_best(self, chosen: Sequence[Screened], *, nearer: bool) -> bool:
        """Fit candidates, and a payload in other places where that is asked for; return whether the best is kept."""
        trials = [self._try(one) for one in chosen]
        others = [self._try(one) for one in self._other_places(trials)]
        counted = [self._counted(one, nearer=nearer) for one in trials]
        return self._keep(counted + [self._counted(one, nearer=True) for one in others])

    def _counted(self, trial: "_Trial", *, nearer: bool) -> "_Trial":
        """Return a trial, refused with a payload that outweighs the robot or, if asked, with values no `nearer`."""
        far = nearer and _off_priors(trial.fitting) >= _off_priors(self.fitting)
        return trial.refused() if far or _outweighs(trial.fitting) else trial

    def _other_places(self, trials: Sequence["_Trial"]) -> list[Screened]:
        """Return a payload on the links where none was tried, if with the best one masses of links are implausible.

        They make up for a payload in the wrong place.
        """
        loads = [one for one in trials if STRUCTURES[one.candidate.kind] is ADDED_PAYLOAD]
        best = min((one for one in loads if one.told.kept), key=lambda one: one.told.share or 0.0, default=None)
        if best is None or self._is_late or not _has_implausible_masses(best.fitting):
            return []
        tried = [one.candidate.place for one in loads]
        return [one for one in self._loads if one.candidate.place not in tried]

    def _chosen(self, *, last: bool) -> list[Screened]:
        """Return the candidates to fit."""
        tried = {one.name for one in self.tried}
        found = screen(self.fitting, self._stages, last=last, asked=bool(self._reasons))
        self._bound_payload(found)
        found = [one for one in found if describe(one.candidate) not in tried]
        ranked: list[Screened] = []
        for one in found:
            kind, place = one.candidate.kind, one.candidate.place
            simple = [other.candidate.kind for other in ranked if other.candidate.place != EVERY]
            if place == EVERY or kind not in simple:
                ranked.append(one)
        chosen = [one for one in ranked if one.share >= _LEAST]
        if self._large:
            chosen = chosen[:1]
            # Of a payload, for whose effect others make up, one looks in any case, also where a step leads too far.
            loads = [one for one in found if STRUCTURES[one.candidate.kind] is ADDED_PAYLOAD and self._reasons]
            for best in (max(loads, key=size, default=None) for size in (attrgetter("share"), attrgetter("promise"))):
                if best is not None and best not in chosen and (best.promise >= _LEAST or best.gain >= _SIGNIFICANT):
                    chosen.append(best)
        return chosen[:_TRIALS]

    def _bound_payload(self, found: Sequence[Screened]) -> None:
        """Note the heaviest payload that the screening does not exclude; the log tells none where one is free."""
        self._loads = loads = [one for one in found if STRUCTURES[one.candidate.kind] is ADDED_PAYLOAD]
        if loads or self.fitting.space.has(PAYLOAD[0]):
            most = max(loads, key=attrgetter("most"), default=None)
            self.unseen = None
            if most is not None and most.most > _NOTABLE * _mass(self.fitting):
                self.unseen = UnseenPayload(joint=most.candidate.place, mass=most.most)

    def _round_of_springs(self, lasting: Sequence[str] = ()) -> bool:
        """Fit what the screening does not tell of, and keep the best; of large fits only where much is unexplained.

        In joints whose errors are `lasting`, friction that grows with load is tried beside springs.
        """
        fitting = self.fitting
        joints = [name for name in fitting.spec.controls if name in fitting.spec.tangent_names]  # rotors are none
        if lasting:
            few = list(lasting)
        elif self._large:
            few = [name for _, name, _ in _unexplained(fitting) if name in joints]
        else:
            few = joints if len(joints) <= _FEW else by_error(joints, self._errors().errors)[:1]
        tried = {one.name for one in self.tried}
        return self._keep([
            self._try(
                Screened(one, share=0.0, starts=STRUCTURES[one.kind].starts(fitting.model, one.place, {})), lasting
            )
            for one in candidates_for(fitting.model, fitting.settings)
            if (not STRUCTURES[one.kind].screened or (lasting and STRUCTURES[one.kind] is LOADED_FRICTION))
            and one.place in few and describe(one) not in tried
        ])  # fmt: skip

    def _try(self, screened: Screened, lasting: Sequence[str] = ()) -> "_Trial":
        """Fit a candidate, and judge it by held-out roll-outs; a payload, or for `lasting` errors, by costs, too.

        Those are so fine that a spring makes up for long steps of the engine.
        """
        candidate = screened.candidate
        trial, costs = fit_with(self.fitting, screened, self._stages, self._begin)
        # Springs settle for longer, and both are judged on the same windows.
        before = self._errors(max(self.fitting.past, trial.past))
        after = held_out_errors(trial.current(), trial.store, before.windows)
        judgement = judge(before.errors, after, before.frames, blocks_of(before.windows))
        errors = replace(before, errors=after)
        worse, finer, plausible = not judgement.kept and errors.worse_than(before), None, False
        if not judgement.kept and not worse:
            payload = STRUCTURES[candidate.kind] is ADDED_PAYLOAD
            finer = share_of_held_out_cost(self.fitting, trial) if payload or lasting else None
            plausible = payload and _off_priors(self.fitting) - _off_priors(trial) > _EVIDENCE
        reason = judgement.reason
        if finer is not None:
            reason += f", but {finer:.2f} of held-out costs from fitted starts, clearly better"
        elif plausible:
            reason += ", but with it values are nearer to the declared ones"
        told = TriedStructure(
            name=describe(candidate), kept=judgement.kept or finer is not None or plausible, share=judgement.share,
            reason=reason,
            asked_by=[f"errors of {name} last" for name in lasting] or self._reasons
            or [f"the screening alone, by {screened.share:.1%} of the cost"],
            expected=screened.share,
            doubted=judgement.open and screened.share >= _LEAST
            and 1.0 - (judgement.share or 1.0) > max(_DOUBTED * judgement.needed, _MATTERS),
        )  # fmt: skip
        return _Trial(candidate, trial, costs, told, errors, finer, plausible)

    def _keep(self, trials: Sequence["_Trial"]) -> bool:
        """Keep the best of trials, if one is better than the fit."""
        most = {kind: 1.0 if structure.screened else _SHARE for kind, structure in STRUCTURES.items()}
        better = [one for one in trials if one.by_errors and (one.told.share or 0.0) < most[one.candidate.kind]]
        best = min(better, key=lambda one: one.told.share or 0.0, default=None)
        if best is None:
            best = min((one for one in trials if one.finer is not None), key=lambda one: one.finer or 0.0, default=None)
        if best is None:
            likely = (one for one in trials if one.plausible)
            best = min(likely, key=lambda one: _off_priors(one.fitting), default=None)
        if best is not None and STRUCTURES[best.candidate.kind] is MOVED_CENTRE:  # which a payload moves, too
            loads = (one for one in better if STRUCTURES[one.candidate.kind] is ADDED_PAYLOAD)
            best = next((one for one in loads if not one.errors.worse_than(best.errors)), best)
        names = {one.told.name for one in trials}
        self.tried = [one for one in self.tried if one.name not in names]
        self.tried += [one.told if one is best else msgspec.structs.replace(one.told, kept=False) for one in trials]
        if best is None:
            return False
        self.tried = [
            msgspec.structs.replace(one, doubted=False) for one in self.tried
        ]  # what is kept explains it, too
        stages = {stage: name for name, stage in zip(self.costs, self.fitting.stages, strict=True)}
        self.costs |= {stages[stage]: cost for stage, cost in best.costs.items()}
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

    def worse_than(self, other: "_HeldOutErrors") -> bool:
        """Return whether other errors along the same windows are smaller by more than chance."""
        return judge(self.errors, other.errors, self.frames, blocks_of(self.windows)).kept


@dataclass(frozen=True)
class _Trial:
    """A fit with a candidate, its held-out costs by stage, what is said of it, and its errors.

    If errors alone do not tell, `finer` is the share of the held-out cost from fitted starts if that is clearly less,
    and `plausible` says that it predicts as well as the fit without it, with values that the priors expect.
    """

    candidate: StructureCandidate
    fitting: Fitting
    costs: dict[FitStage, float]
    told: TriedStructure
    errors: _HeldOutErrors
    finer: float | None = None
    plausible: bool = False

    @property
    def by_errors(self) -> bool:
        """Whether it is kept for its errors."""
        return self.told.kept and self.finer is None and not self.plausible

    def refused(self) -> "_Trial":
        """Return the trial, not to be kept."""
        return replace(self, told=msgspec.structs.replace(self.told, kept=False), finer=None, plausible=False)


def share_of_held_out_cost(fitting: Fitting, other: Fitting) -> float | None:
    """Return the share of the cost of held-out windows that another fit leaves, if it is clearly less; None if not.

    Noise of logged starts, which is most of the errors of a good model, is not in costs from fitted ones. Half a
    chi-square of noise is the unit of what is clear, times the ratio of the cost to that of noise.
    """
    windows = max(fitting, other, key=lambda one: one.past).windows(Split.VALIDATION, fitting.stages[-1])
    both = [(one, one.residuals(windows).with_free_starts()) for one in (fitting, other)]
    before, after = (float(free.window_costs(settled(free, one.begin(free))).sum()) for one, free in both)
    needed = _SIGNIFICANT * max(1.0, before / (0.5 * both[0][1].count))
    return after / before if math.isfinite(before) and before - after > needed else None


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
    rests = _unexplained(fitting)
    return reasons + [f"the error of {name} after {s:.2g} s is {rest:.1f} times noise" for rest, name, s in rests]


def _off_priors(fitting: Fitting) -> float:
    """Return the cost of the priors of a fit's coordinates."""
    return 0.5 * float(fitting.x.square().sum())


def _has_implausible_masses(fitting: Fitting) -> bool:
    names = zip(fitting.space.names, fitting.x.tolist(), strict=True)
    return any(name.endswith(f".{MASS_SCALE}") and abs(x) > IMPLAUSIBLE for name, x in names)


def _joints_whose_errors_last(fitting: Fitting, searched: Searched) -> list[str]:
    """Return the driven joints whose errors last, the largest beside noise first; none with contacts."""
    if fitting.touches or fitting.store.header.base != "measured":
        return []
    found = lasting_errors(searched.residuals, searched.point)
    return [one.name for one in found if one.times > TIMES[0] and one.name in fitting.spec.controls]


def _outweighs(fitting: Fitting) -> bool:
    """Return whether a payload is heavier than the robot."""
    space = fitting.space
    return space.has(PAYLOAD[0]) and float(space.value(PAYLOAD[0], fitting.x)) > _mass(fitting)


def _mass(fitting: Fitting) -> float:
    """Return the declared mass of the robot [kg]."""
    return sum(link.mass for link in fitting.model.mechanism.links)


def _unexplained(fitting: Fitting) -> list[tuple[float, str, float]]:
    """Return how far errors of held-out roll-outs are above those of a perfect model under noise, where they are most.

    A list of one ratio with its coordinate and horizon [s], or of none.
    """
    settings = fitting.settings
    windows, frames = _held_out(fitting, fitting.past)
    errors = held_out_errors(fitting.current(), fitting.store, windows)
    floor = noise_errors(fitting.dynamics, fitting.store, windows, fitting.past, fitting.noise)
    both, worst = errors.finite & floor.finite, (0.0, "", 0.0)
    if not bool(both.any()):
        return [(math.inf, "every coordinate", settings.seconds[0])]
    for frame, seconds in zip(frames, settings.seconds, strict=False):
        ratios = errors.errors[both, frame - 1].mean(0) / floor.errors[both, frame - 1].mean(0).clamp_min(1e-12)
        ratio, k = torch.max(torch.nan_to_num(ratios), 0)
        worst = max(worst, (float(ratio), errors.names[int(k)], seconds))
    return [worst] if worst[0] > _REST else []


def _held_out(fitting: Fitting, past: int) -> tuple[Windows, list[int]]:
    """Return held-out windows of a fit after some frames of `past`, and its horizons [frames]."""
    settings = fitting.settings
    return held_out_windows(fitting.store, Split.VALIDATION, past, settings.seconds, settings.rollouts_each)


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
        windows = fitting.windows(Split.TRAIN, replace_windows(stage))
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
                found[key] = entry if before.share < _LEAST < entry.share else before
    for (kind, place), one in list(found.items()):  # a payload moves the centre of mass, too
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
    large = len(space.names) > _MANY
    before, moved = _gain(full, right, x, lower, upper, shared)
    before *= _realised(residuals, point, moved, before) if large else 1.0
    left = min(left, cost - before)
    for one in candidates:
        rows = [wide.names.index(column.name) for column in one.columns]
        gain, moved = _gain(full, right, x, lower, upper, [*shared, *rows])
        for column, row in zip(one.columns, rows, strict=True):
            moved[row] = _linear(column, x[row], moved[row])
        promise = (left - (cost - gain)) / now
        if large and promise >= _LEAST:
            gain *= _realised(residuals, point, moved, gain)
        values = {column.name: float(column.value(moved[row])) for column, row in zip(one.columns, rows, strict=True)}
        starts = STRUCTURES[one.kind].starts(fitting.model, one.place, values)
        free = [*shared, *rows]
        deviation = (
            torch.linalg.pinv(full[free][:, free], hermitian=True)[len(shared), len(shared)].clamp_min(0.0).sqrt()
        )
        most = float(one.columns[0].value(moved[rows[0]].clamp_min(0.0) + _QUANTILE * deviation))
        saved = left - (cost - gain)
        found.append(Screened(one, saved / now, promise, saved, starts, moved[: len(space.names)], most))
    return found, left


def _linear(one: Coordinate, x: Tensor, moved: Tensor) -> float:
    """Return where a coordinate has the value of a step that is linear in it, not in its logarithm: as effects are."""
    if one.signed:
        return float(moved)
    value, least = one.value(x), one.least_value or 0.0
    return one.of(max(float(value + one.width * (value + one.size) * (moved - x)), least))


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
    built, words = STRUCTURES[candidate.kind].build(model, candidate.place), describe(candidate)
    moved = describe(replace(candidate, place=model.carrier)) if STRUCTURES[candidate.kind] is ADDED_PAYLOAD else ""
    if moved and moved in model.structure:
        words = model.structure.replace(moved, words)
    elif model.structure:
        words = f"{model.structure} and {words}"
    built = replace(built, structure=words).in_prior_deviations(settings, spare=space.quantities)
    assert built.space is not None
    return built.with_space(built.space.with_widths(space.widths))


def fit_with(
    fitting: Fitting, screened: Screened, stages: Sequence[FitStage], begin: Tensor | None = None
) -> tuple[Fitting, dict[FitStage, float]]:
    """Return the fit with a candidate, from where the fit without it ended, and its held-out cost by stage.

    It is that of the stage that is kept (`kept_stage`). `begin` are other coordinates of the fit to begin with: what
    more iterations found without the candidate stands in for it.
    """
    candidate = screened.candidate
    begin = fitting.x if begin is None else begin
    model = with_structure(fitting.model, candidate, fitting.space, fitting.settings)
    trial = fitting.with_model(model)
    space, own = trial.space, fitting.space.names

    def begun_from(there: Tensor, start: Mapping[str, float]) -> Tensor:
        x = space.declared.clone()
        for k, one in enumerate(space.coordinates):
            if one.name in start:
                x[k] = one.of(start[one.name])
            elif one.name in own:
                x[k] = there[own.index(one.name)]
        return x

    fresh = torch.tensor([name not in own for name in space.names])
    # What the missing structure has driven far away begins anew; of drives where the screening says, if that is better.
    begun = torch.stack([begun_from(begin, start) for start in screened.starts])
    begun = torch.where((begun.abs() > IMPLAUSIBLE) & ~fresh, space.declared, begun)
    of_drives = STRUCTURES[candidate.kind].probe is not None or not STRUCTURES[candidate.kind].screened
    if of_drives and screened.x is not None:
        begun = torch.cat([begun, torch.stack([begun_from(screened.x, start) for start in screened.starts])])
    begun, ends = space.clip(begun), []
    if len(begun) > 1:
        few = trial.residuals(trial.windows(Split.TRAIN, replace_windows(stages[0])))
        begun = begun[few.cost(trial.start(few, begun[0]).at(begun)).argmin()][None]
    stages = stages if of_drives else stages[:1]  # bodies show in short windows, whose fits are better conditioned
    for stage in stages:
        trial.x, trial.local = begun[0].clone(), dict(fitting.local)
        if few := trial.fewer(stage):
            trial.refine(few)
        trial.refine(_patient(stage, space) if of_drives and stage == fitting.stages[-1] else stage)
        ends.append((trial.held_out_cost(), trial.x, trial.local))
    costs = {stage: cost for stage, (cost, _, _) in zip(stages, ends, strict=True)}
    _, trial.x, trial.local = ends[list(costs).index(kept_stage(costs))]
    trial.ends = torch.stack([x for _, x, _ in ends])
    return trial, costs

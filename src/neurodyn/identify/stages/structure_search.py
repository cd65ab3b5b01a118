# SPDX-License-Identifier: Apache-2.0
"""What a declaration may lack: structures that are tried where a fit asks for them.

A fit asks if a quantity ends at a bound or at an implausible value, or if the held-out rest is large beside the noise;
if it does not, the screening of a payload asks. Those that the screening (`structure_screening`) finds best are fitted,
and kept if they are better on held-out windows and have an effect, or at least open there and values that stood in for
them become plausible.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from operator import attrgetter

import msgspec
import torch
from torch import Tensor

from neurodyn.data.header import Split
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.identify.confidence.parameter_search import kept_stage
from neurodyn.identify.ladder.rungs import HeldOutErrors, noise_errors
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.result import TriedStructure, UnseenPayload
from neurodyn.identify.settings import FitStage, IdentificationSettings
from neurodyn.identify.stages.drive_structures import LOADED_FRICTION, PARALLEL_SPRING
from neurodyn.identify.stages.fit_judge import has_effect, held_out_of
from neurodyn.identify.stages.growing_windows import LARGE, Fitting
from neurodyn.identify.stages.lasting_errors import TIMES, LastingError
from neurodyn.identify.stages.structure_kinds import (
    ADDED_PAYLOAD,
    EVERY,
    MOVED_CENTRE,
    OTHER_BODIES,
    StructureCandidate,
    StructureKind,
    payload_starts,
)
from neurodyn.identify.stages.structure_screening import (
    LEAST,
    STRUCTURES,
    Screened,
    candidates_for,
    describe,
    screen,
    with_few_windows,
)
from neurodyn.identify.unknowns.quantities import carriers
from neurodyn.identify.unknowns.search_space import IMPLAUSIBLE, MASS_SCALE, PAYLOAD, CoordinateSpace

_ROUNDS, _TRIALS = 2, 3
"""Most structures that are kept, and most that are fitted for each, besides other places of a payload."""
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
_NOTABLE = 0.02
"""Payload that matters, as a share of the robot's mass."""
_FEW = 3
"""Driven joints up to which springs are tried in each; of more, in the one that errs most, of large fits beside noise.
"""
_SHARE = 0.8
"""Largest share of the error with which a structure is kept that no screening asked for."""
_EVEN = 1.005
"""Share of the error up to which errors are the same, and one is kept with which fewer values are implausible."""
_NOTHING = 0.05
"""Prior deviations by which values of a structure differ from the declared ones at least."""
_IN_JOINTS = (LOADED_FRICTION, PARALLEL_SPRING)
"""Screened structures that are tried where errors of a joint last, too. Their values trade with those of the drive."""
_PATIENT = 25
"""Most iterations of a fit with a structure of drives over the longest windows, of which it takes twice as many."""
_ENOUGH = 120
"""Windows that tell structures apart: of long logs, a part of a stage's has as many."""
_HOPELESS, _HOPELESS_SPRING = 0.995, 0.9
"""Ratio of the cost of a part of the windows to that of the fit without a structure, after a fit to that part, from
which on it is not fitted to all; of structures that no screening asked for, which have to save more."""


def by_error(joints: Sequence[str], errors: RolloutErrors) -> list[str]:
    """Return joints in the order of their mean errors at the end of roll-outs, the largest first."""
    ends = dict(zip(errors.names, errors.errors[:, -1].nanmean(0).tolist(), strict=True))
    return sorted(joints, key=lambda name: -ends[name])


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
    _errors_of_kept: dict[int, HeldOutErrors] = field(default_factory=dict)
    _context: int | None = None
    _trials: dict[str, "_Trial"] = field(default_factory=dict)

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

    def look_again(self, finished: Fitting, lasting: Sequence[LastingError]) -> bool:
        """Try those that were not tried yet where a finished fit asks for them; return whether one is kept.

        It does if masses of links are implausible, for a payload that lowers its cost or for another place of the one
        that is kept, or for a spring or friction with load where errors of a joint last. Its short steps and its scale
        show what longer steps and an earlier scale hid. `fitting` is the fit that was finished, or the one with what is
        kept: with the longer steps, to be finished again.
        """
        if self._is_late:
            return False
        joints = [one.name for one in lasting if one.times > TIMES[0] and one.name in self.fitting.spec.controls]
        self.fitting.x, self.fitting.scale, self._begin = finished.x, finished.scale, None
        share = self.fitting.held_out_cost() / max(self.costs[kept_stage(self.costs)], 1e-300)
        self.costs = {name: share * cost for name, cost in self.costs.items()}  # in the other scale
        self._forget()
        implausible, loads = _has_implausible_masses(finished), self._promising_payload()
        if not (implausible or loads or joints):
            return False
        self._settle()  # longer steps of the engine ask for other values
        kept = implausible and (self._move_payload() or self._round(nearer=True))
        kept = kept or self._fit_best(loads, nearer=True)
        return (bool(joints) and self._round_of_springs(joints[:1])) or kept

    @property
    def _is_late(self) -> bool:
        return self.late is not None and self.late()

    @property
    def _reasons(self) -> list[str]:
        """Why the fit asks for another structure; nothing once it is late."""
        if self._is_late:
            return []
        if self._asked is None:
            self._asked = asks(self.fitting, self._errors())
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
        self._asked = self._context = None
        self._errors_of_kept, self._trials = {}, {}

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
        others, self._loads = list[Screened](), []
        for link in model.mechanism.links:
            if (place := link.joint.name) in carriers(model.mechanism) and place != model.carrier:
                starts = payload_starts(model, place, mass, [mass * at for at in link.com])
                others.append(Screened(StructureCandidate("payload", place, ()), 0.0, starts=starts))
        moved = self._fit_best(others, nearer=True)
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
        chosen = [one for one in ranked if one.share >= LEAST]
        if self._large:
            chosen = chosen[:1]
            # Of a payload, for whose effect others make up, one looks in any case, also where a step leads too far.
            loads = [one for one in found if STRUCTURES[one.candidate.kind] is ADDED_PAYLOAD and self._reasons]
            for best in (max(loads, key=size, default=None) for size in (attrgetter("share"), attrgetter("promise"))):
                if best is not None and best not in chosen and (best.promise >= LEAST or best.gain >= _SIGNIFICANT):
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

        In joints whose errors are `lasting`, friction that grows with load and springs beside drives are tried, too.
        """
        fitting = self.fitting
        joints = [name for name in fitting.spec.controls if name in fitting.spec.tangent_names]  # rotors are none
        if lasting:
            few = list(lasting)
        elif self._large:
            few = [name for _, name, _ in _unexplained(fitting, self._errors()) if name in joints]
        else:
            few = joints if len(joints) <= _FEW else by_error(joints, self._errors().errors)[:1]
        tried = {one.name for one in self.tried}
        return self._keep([
            self._try(
                Screened(one, share=0.0, starts=STRUCTURES[one.kind].starts(fitting.model, one.place, {})), lasting
            )
            for one in candidates_for(fitting.model, fitting.settings)
            if (not STRUCTURES[one.kind].screened or (lasting and STRUCTURES[one.kind] in _IN_JOINTS))
            and one.place in few and describe(one) not in tried
        ])  # fmt: skip

    def _try(self, screened: Screened, lasting: Sequence[str] = ()) -> "_Trial":
        """Fit a candidate, and judge it by held-out roll-outs; once from the same values beside the same fit."""
        key = f"{describe(screened.candidate)} from {[sorted(one.items()) for one in screened.starts]}"
        if key not in self._trials:
            self._trials[key] = self._fit_and_judge(screened, lasting)
        return self._trials[key]

    def _fit_and_judge(self, screened: Screened, lasting: Sequence[str]) -> "_Trial":
        """Return a candidate's fit with its judgement."""
        candidate = screened.candidate
        trial, costs = fit_with(self.fitting, screened, self._stages, self._begin)
        asked_by = [f"errors of {name} last" for name in lasting] or self._reasons or [
            f"the screening alone, by {screened.share:.1%} of the cost"
        ]  # fmt: skip
        if not math.isfinite(min(costs.values())):
            told = TriedStructure(
                name=describe(candidate), kept=False, share=None, reason="a part of the windows costs hardly less",
                asked_by=asked_by, expected=screened.share,
            )  # fmt: skip
            return _Trial(candidate, trial, costs, told, self._errors())
        # Springs settle for longer, and both are judged on the same windows.
        past = max(self.fitting.past, trial.past)
        before = self._errors(past)
        errors, _ = held_out_of(trial, past, self._context)
        judgement = before.judge(errors)
        # Values that stood in for a structure say so where errors leave it open, and where its effect is uncertain.
        fewer = len(_implausible(self.fitting)) - len(_implausible(trial))
        even = judgement.kept or (judgement.open and (judgement.share or 1.0) < _EVEN)
        acts = fewer > 0 and even and self._differs(trial, candidate)
        why = f", and {fewer} fewer of the values are implausible with it" if acts else ""
        if judgement.kept and not acts:
            without = self.fitting if STRUCTURES[candidate.kind] in _IN_JOINTS else None
            acts = has_effect(trial, self._effects(trial, candidate), kept_stage(costs), without)
            why = "" if acts else ", but its quantities do not differ from nothing"
        told = TriedStructure(
            name=describe(candidate), kept=acts, share=judgement.share, reason=judgement.reason + why,
            asked_by=asked_by, expected=screened.share,
            doubted=judgement.open and screened.share >= LEAST
            and 1.0 - (judgement.share or 1.0) > max(_DOUBTED * judgement.needed, _MATTERS),
        )  # fmt: skip
        return _Trial(candidate, trial, costs, told, errors)

    def _effects(self, trial: Fitting, candidate: StructureCandidate) -> list[str]:
        """Return the coordinates of a structure, in a fit with it, that are as declared where it has no effect."""
        patterns = STRUCTURES[candidate.kind].effects
        return [
            name for name in trial.space.names if any(fnmatchcase(name, pattern) for pattern in patterns)
            and (name in PAYLOAD or name not in self.fitting.space.names)  # a payload may be that of another place
        ]  # fmt: skip

    def _differs(self, trial: Fitting, candidate: StructureCandidate) -> bool:
        """Return whether a fit uses a structure: without effect, it is not what makes other values plausible.

        A payload without mass has no effect in any place.
        """
        names = self._effects(trial, candidate)
        rows = [trial.space.names.index(name) for name in names if PAYLOAD[0] not in names or name == PAYLOAD[0]]
        return not rows or bool(((trial.x - trial.space.declared)[rows].abs() > _NOTHING).any())

    def _keep(self, trials: Sequence["_Trial"]) -> bool:
        """Keep the best of trials, if one is better than the fit."""
        most = {kind: _EVEN if structure.screened else _SHARE for kind, structure in STRUCTURES.items()}
        better = [one for one in trials if one.told.kept and (one.told.share or 0.0) < most[one.candidate.kind]]
        best = min(better, key=lambda one: one.told.share or 0.0, default=None)
        if best is not None and STRUCTURES[best.candidate.kind] is MOVED_CENTRE:  # which a payload moves, too
            loads = (one for one in better if STRUCTURES[one.candidate.kind] is ADDED_PAYLOAD)
            best = next((one for one in loads if not one.errors.judge(best.errors).kept), best)
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
        """Whether a fit has so many coordinates that few structures are tried.

        In a round these are one structure, payloads in two places (in others if that leaves implausible masses) and
        one spring, whose fits take no more time.
        """
        return len(self.fitting.space.names) > LARGE

    @property
    def _stages(self) -> list[FitStage]:
        """The stage of the fit, and the longest one, which sees what takes its time to matter."""
        return list(dict.fromkeys([self.fitting.stage_of(self.costs), self.fitting.stages[-1]]))

    def _errors(self, past: int = 0) -> HeldOutErrors:
        """Return the fit's errors of held-out roll-outs, with some frames of `past` before them."""
        past = max(past, self.fitting.past)
        if past not in self._errors_of_kept:
            self._errors_of_kept[past], self._context = held_out_of(self.fitting, past, self._context)
        return self._errors_of_kept[past]


@dataclass(frozen=True)
class _Trial:
    """A fit with a candidate, its held-out costs by stage, what is said of it, and its errors."""

    candidate: StructureCandidate
    fitting: Fitting
    costs: dict[FitStage, float]
    told: TriedStructure
    errors: HeldOutErrors

    def refused(self) -> "_Trial":
        """Return the trial, not to be kept."""
        return replace(self, told=msgspec.structs.replace(self.told, kept=False))


def asks(fitting: Fitting, held_out: HeldOutErrors) -> list[str]:
    """Return why a fit asks for another structure: what is at a bound or implausible, and what is unexplained."""
    rests = _unexplained(fitting, held_out)
    return _implausible(fitting) + [f"the error of {name} after {s:.2g} s is {rest:.1f} times noise"
                                    for rest, name, s in rests]  # fmt: skip


def _implausible(fitting: Fitting) -> list[str]:
    """Return which values of a fit are at a bound, or far from the declared ones, in words."""
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
    return reasons


def _off_priors(fitting: Fitting) -> float:
    """Return the cost of the priors of a fit's coordinates."""
    return 0.5 * float(fitting.x.square().sum())


def _has_implausible_masses(fitting: Fitting) -> bool:
    names = zip(fitting.space.names, fitting.x.tolist(), strict=True)
    return any(name.endswith(f".{MASS_SCALE}") and abs(x) > IMPLAUSIBLE for name, x in names)


def _outweighs(fitting: Fitting) -> bool:
    """Return whether a payload is heavier than the robot."""
    space = fitting.space
    return space.has(PAYLOAD[0]) and float(space.value(PAYLOAD[0], fitting.x)) > _mass(fitting)


def _mass(fitting: Fitting) -> float:
    """Return the declared mass of the robot [kg]."""
    return sum(link.mass for link in fitting.model.mechanism.links)


def _unexplained(fitting: Fitting, held_out: HeldOutErrors) -> list[tuple[float, str, float]]:
    """Return how far errors of held-out roll-outs are above those of a perfect model under noise, where they are most.

    A list of one ratio with its coordinate and horizon [s], or of none.
    """
    settings, errors = fitting.settings, held_out.errors
    floor = noise_errors(fitting.current(), fitting.store, held_out.windows, fitting.past, fitting.noise)
    both, worst = errors.finite & floor.finite, (0.0, "", 0.0)
    if not bool(both.any()):
        return [(math.inf, "every coordinate", settings.seconds[0])]
    for frame, seconds in zip(held_out.frames, settings.seconds, strict=False):
        ratios = errors.doubted[both, frame - 1].mean(0) / floor.doubted[both, frame - 1].mean(0).clamp_min(1e-12)
        ratio, k = torch.max(torch.nan_to_num(ratios), 0)
        worst = max(worst, (float(ratio), errors.doubted_names[int(k)], seconds))
    return [worst] if worst[0] > _REST else []


def _patient(stage: FitStage, space: CoordinateSpace) -> FitStage:
    if len(space.names) > LARGE:
        return stage
    return msgspec.structs.replace(stage, windows=2 * stage.windows, iterations=_PATIENT)


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

    It is that of the stage that is kept (`kept_stage`), and infinite where a part of the windows costs hardly less than
    without the candidate, which then is not fitted to all. `begin` are other coordinates of the fit to begin with: what
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
        few = trial.residuals(trial.windows(Split.TRAIN, with_few_windows(stages[0])))
        begun = begun[few.cost(trial.start(few, begun[0]).at(begun)).argmin()][None]
    stages = stages if of_drives else stages[:1]  # bodies show in short windows, whose fits are better conditioned
    least = _HOPELESS if STRUCTURES[candidate.kind].screened else _HOPELESS_SPRING
    for stage in stages:
        trial.x, trial.local = begun[0].clone(), dict(fitting.local)
        patient = _patient(stage, space) if of_drives and stage == fitting.stages[-1] else stage
        enough = False
        if few := trial.fewer(stage):
            enough = trial.windows(Split.TRAIN, few).count >= _ENOUGH
            trial.refine(msgspec.structs.replace(few, iterations=patient.iterations) if enough else few)
            if trial.stage_cost(few) >= least * fitting.stage_cost(few, begin):
                ends.append((math.inf, trial.x, trial.local))
                continue
        if not enough:
            trial.refine(patient)
        ends.append((trial.held_out_cost(), trial.x, trial.local))
    costs = {stage: cost for stage, (cost, _, _) in zip(stages, ends, strict=True)}
    _, trial.x, trial.local = ends[list(costs).index(kept_stage(costs))]
    trial.ends = torch.stack([x for _, x, _ in ends])
    return trial, costs

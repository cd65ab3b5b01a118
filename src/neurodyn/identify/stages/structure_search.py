# SPDX-License-Identifier: Apache-2.0
r"""What a declaration may lack: structures that are tried where a fit asks for them.

A fit asks if a quantity ends at a bound or at an implausible value, or if the held-out rest is large beside the noise.
Each structure of `STRUCTURES` adds coordinates to the fit. One Jacobian at the optimum screens all candidates: by how
much a Gauss-Newton step over the coordinates C of the fit and the columns K of a candidate lowers the cost,

$$\tfrac12 g_{CK}^T H_{CK}^{-1} g_{CK} - \tfrac12 g_C^T H_C^{-1} g_C$$

The best ones are fitted, and kept if they are better on held-out windows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from neurodyn.core.registry import Registry
from neurodyn.data.header import Split
from neurodyn.data.windows import blocks_of
from neurodyn.dynamics.rollout_errors import RolloutErrors, judge
from neurodyn.identify.fit.least_squares import assemble, reduce
from neurodyn.identify.ladder.rungs import FRAMES, Ladder, beyond_noise, held_out_errors, held_out_windows
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.result import TriedStructure
from neurodyn.identify.settings import FitStage, IdentificationSettings
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.identify.unknowns.quantities import (
    body_coordinates,
    carriers,
    gyration,
    payload_spread,
    reach,
    turning_links,
)
from neurodyn.identify.unknowns.search_space import ADDED, EXTENT, INERTIA_SCALE, PAYLOAD, Coordinate, CoordinateSpace

IMPLAUSIBLE = 3.0
"""Standard deviations of a prior beyond which a value is implausible."""
_ROUNDS, _TRIALS = 2, 2
"""Most structures that are kept, and most that are fitted for each."""
_WINDOWS = 48
"""Windows of the screening."""
_LEAST = 0.02
"""Share of the cost by which the screening must expect a structure to lower it."""
_HEAVY = 0.1
"""Prior deviation of an added mass, as a share of the robot's; its first moment is that at a tenth of the reach."""
_LIGHTEST = 0.01
"""Least mass that a payload begins with, as a share of the link's."""
_WITHIN = 1.5
"""Prior deviations within which a payload's place begins."""
_CENTRE = 0.5
"""Prior deviation of a centre of mass, in radii of gyration."""


@dataclass(frozen=True)
class StructureCandidate:
    """A structure at one place.

    Attributes:
        kind: Its entry of `STRUCTURES`.
        place: Joint of the link.
        columns: Names of the coordinates that stand for it in the screening.
    """

    kind: str
    place: str
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """The structure in words."""
        return f"{STRUCTURES[self.kind].words} {self.place}"


@dataclass(frozen=True)
class StructureKind:
    """A kind of structure.

    Attributes:
        words: Begin of its name, before the place.
        candidates: Returns its candidates for a robot.
        build: Returns the robot with it, without coordinates yet.
        start: Returns first values of its coordinates from the screening's step, by name of the column.
    """

    words: str
    candidates: Callable[[FitModel], list[StructureCandidate]]
    build: Callable[[FitModel, str], FitModel]
    start: Callable[[FitModel, str, Mapping[str, float]], dict[str, float]]


STRUCTURES: Registry[StructureKind] = Registry("structure")


def _added(link: str, *, mass: bool) -> tuple[str, ...]:
    return tuple(f"{link}.{what}" for what in (ADDED if mass else ADDED[1:]))


def _payloads(model: FitModel) -> list[StructureCandidate]:
    assert model.space is not None
    if model.space.has(PAYLOAD[0]):
        return []
    return [StructureCandidate("payload", link, _added(link, mass=True)) for link in carriers(model.mechanism)]


def _payload_start(model: FitModel, link: str, step: Mapping[str, float]) -> dict[str, float]:
    mass, *moment = (step[name] for name in _added(link, mass=True))
    # The moment is known better than the mass, which trades with those of links: no lighter than a tool within reach
    # with this moment.
    index = model.mechanism.names.index(link)
    farthest = _WITHIN * payload_spread(model.mechanism, index) + math.hypot(*model.mechanism.links[index].com)
    mass = max(mass, math.hypot(*moment) / farthest, _LIGHTEST * model.mechanism.links[index].mass)
    return {"payload.mass": mass} | {f"payload.{axis}": h / mass for axis, h in zip("xyz", moment, strict=True)}


STRUCTURES.add(
    "payload",
    StructureKind(
        "a payload on the link of", _payloads, lambda model, link: replace(model, carrier=link), _payload_start
    ),
)


def _centres(model: FitModel) -> list[StructureCandidate]:
    assert model.space is not None
    links = model.mechanism.names[: len(model.mechanism.names) - (model.mechanism.hidden or 0)]
    known = {*model.space.names, *(one.name for one, _ in model.space.known)}
    return [
        StructureCandidate("centre", link, _added(link, mass=False))
        for link in links
        if link != model.space.carrier and f"{link}.com.x" not in known
    ]


def _with_centre(model: FitModel, link: str) -> FitModel:
    body = model.mechanism.links[model.mechanism.names.index(link)]
    more = [
        Coordinate(
            f"{link}.com.{axis}", body.com[k], _CENTRE * gyration(body), signed=True,
            quantities=(f"{link}.com.{axis}",), unit="m",
        )
        for k, axis in enumerate("xyz")
    ]  # fmt: skip
    return replace(model, more=(*model.more, *more))


def _centre_start(model: FitModel, link: str, step: Mapping[str, float]) -> dict[str, float]:
    body = model.mechanism.links[model.mechanism.names.index(link)]
    moments = [step[name] for name in _added(link, mass=False)]
    return {
        f"{link}.com.{axis}": place + h / body.mass
        for axis, place, h in zip("xyz", body.com, moments, strict=True)
    }  # fmt: skip


STRUCTURES.add("centre", StructureKind("another centre of mass of the link of", _centres, _with_centre, _centre_start))


def _bodies(model: FitModel) -> list[StructureCandidate]:
    """Return other centres and inertias of all links as one candidate."""
    assert model.space is not None
    known = {*model.space.names, *(one.name for one, _ in model.space.known)}
    names = [model.mechanism.names[index] for index in turning_links(model.mechanism)]
    names = [name for name in names if f"{name}.{INERTIA_SCALE}" not in known and f"{name}.{EXTENT[0]}" not in known]
    columns = tuple(column for name in names for column in _added(name, mass=False))
    return [StructureCandidate(BODIES, ", ".join(names), columns)] if names else []


def _with_bodies(model: FitModel, place: str) -> FitModel:
    known = {one.name for one in model.more}
    more = [
        one
        for name in place.split(", ")
        for one in body_coordinates(model.mechanism, model.mechanism.names.index(name))
        if one.name not in known
    ]
    return replace(model, more=(*model.more, *more))


BODIES = "bodies"
"""The structure that is tried last: it frees more than the others, and explains what they do."""
STRUCTURES.add(
    BODIES,
    StructureKind("other centres of mass and inertias of the links of", _bodies, _with_bodies, lambda *_: {}),
)


@dataclass
class StructureSearch:
    """Search of structures after a fit.

    Attributes:
        fitting: The fit so far, replaced by the one with a structure that is kept.
        kept: The structures that are kept.
        tried: What was tried, in words, with its share of the error.
    """

    fitting: Fitting
    kept: list[StructureCandidate] = field(default_factory=list)
    tried: list[TriedStructure] = field(default_factory=list)

    def run(self, costs: Mapping[str, float]) -> "StructureSearch":
        """Try structures while the fit asks for them; `costs` are those of its stages."""
        stage = self.fitting.stage_of(costs)
        for _ in range(_ROUNDS):
            reasons = asks(self.fitting)
            if not reasons or not self._round(stage, reasons):
                break
        if reasons := asks(self.fitting):
            self._round(stage, reasons, last=True)
        return self

    def _round(self, stage: FitStage, reasons: Sequence[str], *, last: bool = False) -> bool:
        """Fit the best candidates, or the one that is tried last; return whether one is kept."""
        errors = self._errors(self.fitting)
        tried = {one.name for one in self.tried}
        ranked = [
            one for one in screen(self.fitting, stage) if one[0].name not in tried and (one[0].kind == BODIES) == last
        ]
        for candidate, gain, start in ranked[:_TRIALS]:
            if gain < _LEAST and not last:  # inertias are not among the columns of the screening
                break
            trial = fit_with(self.fitting, candidate, start, stage)
            after = self._errors(trial)
            frames = [frame for frame, _ in errors]
            judgement = judge(errors[0][1], after[0][1], frames, self._blocks)
            self.tried.append(
                TriedStructure(
                    name=candidate.name, kept=judgement.kept, share=judgement.share, reason=judgement.reason,
                    asked_by=list(reasons), expected=gain,
                )
            )  # fmt: skip
            if judgement.kept:
                self.fitting = trial
                self.kept.append(candidate)
                return True
        return False

    def _errors(self, fitting: Fitting) -> list[tuple[int, RolloutErrors]]:
        """Return the errors of held-out roll-outs, once for each horizon [frames]."""
        settings = fitting.settings
        windows, frames = held_out_windows(
            fitting.store, Split.VALIDATION, fitting.past, settings.seconds, settings.rollouts_each
        )
        self._blocks = blocks_of(windows)
        fitting.dynamics.physical.set_values(fitting.space.values(fitting.x).detach())
        errors = held_out_errors(fitting.dynamics, fitting.store, windows)
        return [(frame, errors) for frame in frames]


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
    settings = fitting.settings
    fitting.dynamics.physical.set_values(space.values(x).detach())
    rest = Ladder(fitting.store, fitting.past, settings).unexplained(fitting.dynamics, fitting.noise)
    if beyond_noise(rest, fitting.spec, fitting.noise, FRAMES * fitting.spec.dt, settings.networks_from):
        worst = rest[0]
        reasons.append(f"the error of {worst.name} is {(worst.error or 0.0) / max(worst.noise, 1e-12):.1f} times noise")
    return reasons


@torch.no_grad()
def screen(fitting: Fitting, stage: FitStage) -> list[tuple[StructureCandidate, float, dict[str, float]]]:
    """Return the candidates with the share of the cost that each would save, and first values; the best first."""
    candidates = candidates_for(fitting.model, fitting.settings)
    columns = list(dict.fromkeys(name for one in candidates for name in one.columns))
    if not columns:
        return []
    space, wide = fitting.space, _widened(fitting, columns)
    windows = fitting.windows(Split.TRAIN, replace_windows(stage))
    residuals = fitting.residuals(windows)
    begun = fitting.start(residuals)
    point = replace(begun, x=torch.cat([begun.x, begun.x.new_zeros(1, len(columns))], -1))
    residuals = residuals.with_space(wide)
    matrix, gradient, _ = reduce(residuals, residuals.normal(point))
    full, right = (part[0] for part in assemble(residuals, matrix, gradient, point))
    n, more = len(space.names), list(range(len(wide.names), len(right)))
    before, cost, found = _gain(full, right, space, begun.x[0], more, 0)[0], float(residuals.cost(point)), []
    for one in candidates:
        rows = [n + columns.index(name) for name in one.columns]
        gain, step = _gain(full, right, space, begun.x[0], [*more, *rows], len(rows))
        values = {
            name: wide.coordinates[row].width * float(value)
            for name, row, value in zip(one.columns, rows, step, strict=True)
        }
        start = STRUCTURES[one.kind].start(fitting.model, one.place, values)
        found.append((one, (gain - before) / cost, start))
    return sorted(found, key=lambda entry: -entry[1])


def candidates_for(model: FitModel, settings: IdentificationSettings) -> list[StructureCandidate]:
    """Return the candidates for a robot among the quantities that the settings free."""
    return [
        one
        for kind, structure in STRUCTURES.items()
        if any(fnmatchcase(f"{kind}.mass", pattern) for pattern in settings.quantities)
        for one in structure.candidates(model)
    ]


def replace_windows(stage: FitStage) -> FitStage:
    """Return a stage with few windows."""
    return FitStage(seconds=stage.seconds, windows=min(stage.windows, _WINDOWS), iterations=stage.iterations)


def _widened(fitting: Fitting, columns: Sequence[str]) -> CoordinateSpace:
    """Return the space of a fit with the columns of a screening after its own."""
    mechanism = fitting.model.mechanism
    total = sum(link.mass for link in mechanism.links)
    size = 0.1 * max(reach(mechanism), gyration(mechanism.links[0]))
    more = [
        Coordinate(name, 0.0, _HEAVY * total * (1.0 if name.endswith(ADDED[0]) else size), signed=True)
        for name in columns
    ]
    return fitting.space.extended(mechanism, more)


def _gain(
    full: Tensor, right: Tensor, space: CoordinateSpace, x: Tensor, more: list[int], last: int
) -> tuple[float, Tensor]:
    """Return how much a Gauss-Newton step lowers the cost, and its `last` entries.

    It is over the coordinates of a space at x, but for those that it would move across a bound, and over `more` rows.
    """
    free = torch.ones(len(x), dtype=torch.bool)
    while True:
        rows = [*torch.nonzero(free)[:, 0].tolist(), *more]
        g, h = right[rows], full[rows][:, rows]
        damped = h + 1e-9 * torch.diag(h.diagonal().clamp_min(1e-12))
        step = -torch.linalg.solve_ex(damped, g[:, None])[0][:, 0]
        moved = x.clone()
        moved[free] += step[: int(free.sum())]
        out = free & (((x <= space.lower) & (moved < x)) | ((x >= space.upper) & (moved > x)))
        if not bool(out.any()):
            return float(-0.5 * g @ step), step[len(step) - last :]
        free &= ~out


def with_structure(
    model: FitModel, candidate: StructureCandidate, space: CoordinateSpace, settings: IdentificationSettings
) -> FitModel:
    """Return a robot with a candidate, with the priors of a space and the same quantities of the engine."""
    built = STRUCTURES[candidate.kind].build(model, candidate.place)
    words = f"{model.structure} and {candidate.name}" if model.structure else candidate.name
    built = replace(built, structure=words).in_prior_deviations(settings, spare=space.quantities)
    assert built.space is not None
    return built.with_space(built.space.with_widths(space.widths))


def fit_with(fitting: Fitting, candidate: StructureCandidate, start: Mapping[str, float], stage: FitStage) -> Fitting:
    """Return the fit with a candidate, from where the fit without it ended."""
    model = with_structure(fitting.model, candidate, fitting.space, fitting.settings)
    trial = fitting.with_model(model)
    space, own = trial.space, fitting.space.names
    trial.x = space.declared.clone()
    for k, one in enumerate(space.coordinates):
        if one.name in own:
            trial.x[k] = fitting.x[own.index(one.name)]
        elif one.name in start:
            trial.x[k] = one.of(start[one.name])
    # What the missing structure has driven far away begins anew.
    fresh = torch.tensor([name not in own for name in space.names])
    trial.x = space.clip(torch.where((trial.x.abs() > IMPLAUSIBLE) & ~fresh, space.declared, trial.x))
    trial.refine(stage)
    return trial

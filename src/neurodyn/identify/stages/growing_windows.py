# SPDX-License-Identifier: Apache-2.0
"""Fit in stages: short windows first, then longer ones, each from the previous solution.

Levenberg-Marquardt with a robust loss, in coordinates scaled to prior standard deviations (`search_space`). Motors and
springs settle in the frames before a window. Other structures are tested on a few windows first. Joint limits, which
are numerous, join in the last stage.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import msgspec
import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.errors import InputError, nearest
from neurodyn.data.command_parts import part_count
from neurodyn.data.header import CONTROL, Split
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.confidence.parameter_search import Searched, SearchEnd, kept_stage
from neurodyn.identify.fit.intervals import moves_of_starts, shift_towards
from neurodyn.identify.fit.least_squares import levenberg_marquardt
from neurodyn.identify.fit.readings import EXACT, ComparedReadings, noise_of
from neurodyn.identify.fit.residuals import Point, ResidualOptions, Residuals
from neurodyn.identify.fit.window_starts import (
    NEARLY_LINEAR,
    probe_coordinates,
    search_starts,
    settle_starts,
    with_likely_starts,
)
from neurodyn.identify.ladder.initial_states import look_ahead, of_positions
from neurodyn.identify.ladder.rungs import environments_of
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.settings import FitStage, IdentificationSettings
from neurodyn.identify.stages.gain_scan import guessed_gains, scan_gains
from neurodyn.identify.stages.stage_windows import StageWindows, near_limits, past_frames, stage_frames, tells_little
from neurodyn.identify.unknowns.delay_trades import dampings_traded, delays_traded, other_delays
from neurodyn.identify.unknowns.priors import UnitPrior
from neurodyn.identify.unknowns.quantities import LIMITS
from neurodyn.identify.unknowns.search_space import MASS_SCALE, CoordinateSpace, PartOfSpace
from neurodyn.identify.unknowns.search_start import first_coordinates

_WORST = 1e300
"""Cost of a roll-out that is not finite, which JSON can hold."""
_SHARE = 0.25
"""Initial scale of a channel, as a share of the declared model's errors."""

FINE = 1.25e-3
"""Steps of the engine with which a fit without contacts ends, if the settings do not say [s]: damping that is implicit
in a step of the engine acts half a step late, which a fit takes for another delay."""
_COARSE = 5e-4
"""Steps of the engine from which derivatives are taken where its own are shorter [s]: those of stiff contacts."""
_FINER = 2
"""Steps of the engine in place of one, to see what its length does to the solution."""
_STARTS, _STARTS_OF_BASE = 2, 2
"""Iterations of a fit of initial states alone, which is nearly linear; searches of
those of an unmeasured base, which is not."""
_FAR = 3.0
"""Deviations from a declared value beyond which its prior is widened, if it may be a placeholder."""
_WIDE = 100
"""Most coordinates that a search moves of a fit that ends with derivatives of its short steps."""
LARGE = 30
"""Coordinates of a fit beyond which its searches take much of the time, so that one which another follows ends early,
and few structures are tried (`StructureSearch`)."""
_SETTLED = 5e-4
"""Relative decrease of the cost below which the last stage ends: along valleys that the priors close, costs differ by
little."""
_TRADES = 3
"""Most searches of a stage, each from another delay."""
_WARM, _LEAST_WARM = 3, 12
"""Share of the windows with which long fits begin, and the least that are enough."""
_MORE = 8
"""Iterations of a fit that goes on, after a stage, with more that is free."""
_HOPS, _HOPPED = 3, 4
"""Most other delays from which a search is tried, and its iterations."""
_NEAR_COST = 30.0
"""Cost above the least one up to which the end of a search from another delay is a minimum to look at again."""
_TRADED, _LEAST_TRADED = 4, 12
"""Of so many windows one is rolled out for the choice of another delay, and at least so many."""

_SURE = (f".{MASS_SCALE}", ".armature", ".bias")
"""Suffixes of what declarations know better than payload, motors and floor."""

ProgressReport = Callable[[str, int, float], None]
"""Called after an iteration with the stage, the iteration and the cost."""


@dataclass(frozen=True)
class KeptFit:
    """Coordinates of a search, what varies between logs, its values there, and the cost per held-out window."""

    x: Tensor
    per_log: dict[str, float]
    local: dict[str, Tensor]
    cost: float


class Fitting:
    """Fits one structure to a log.

    Attributes:
        model: The structure.
        dynamics: Its dynamics.
        tangent, doubled: Its dynamics with longer steps, for derivatives (None for `dynamics`), and with steps twice as
            long, to extrapolate from (None for none).
        space, x: Coordinates of its free quantities, and those of the search so far, shape [n].
        past: Frames before a window in which motors and springs settle.
        drawn: Windows of the stages.
        stages: Stages of the search.
        noise, scale: Noise of the log's states, and the divisor of the errors of each channel, shape [channels].
        environments: Ground and gravity of windows.
        per_log: Coordinates that vary between logs, with the standard deviation of the difference.
        local: Their values in each log, by its name, in these deviations, shape [coordinates that vary].
        groups: Groups of runs that count as logs; empty for each run by itself.
        ends: Coordinates at the ends of the stages, shape [stages, n].
        apart: Moves to other minima of the cost, which as likely hold the robot, shape [minima, n] (`hop`).
        before: Coordinates that a fit to an earlier estimate of the base found, or that of a walk with longer steps of
            the engine, shape [n]; None for none.
    """

    def __init__(
        self,
        model: FitModel,
        store: Store,
        settings: IdentificationSettings,
        threads: int,
        report: ProgressReport | None = None,
        *,
        scaled_like: "Fitting | None" = None,
    ) -> None:
        """Prepare a fit.

        Args:
            model: The structure.
            store: The log.
            settings: Settings.
            threads: CPU threads.
            report: See `ProgressReport`.
            scaled_like: A fit of another structure, whose error scale is used, and whose current coordinates if both
                have the same ones. None for a scale from the errors of the declared values.
        """
        self.model, self.store, self.settings, self._report = model, store, settings, report
        assert model.space is not None
        self.space, self.dynamics = model.space, model.dynamics(store, threads)
        self.spec = model.robot.spec
        self.tangent = self._coarse()
        self.doubled: HybridDynamics | None = None
        self.environments = environments_of(store, self.dynamics)
        self.past = past_frames(self.dynamics, settings, store)
        self.x = first_coordinates(self.space)
        self._starts = [self.x]  # delay and other slowness of motors trade, and the search may end near its start
        if (measured := first_coordinates(self.space, store.header.delays.get(CONTROL))).ne(self.x).any():
            self._starts.append(measured)
        self.per_log = self._varying(settings.per_log)
        self.local: dict[str, Tensor] = {}
        self.groups: tuple[str, ...] = ()
        self.ends, self.apart = self.x[None], self.x.new_zeros(0, len(self.x))
        self.before: Tensor | None = None
        self._alone = False
        self._begun: dict[int, Tensor] = {}
        self.drawn = StageWindows(store, settings, self.past, touches=self.touches)
        self.stages = self.drawn.stages
        early = torch.tensor([not name.endswith(LIMITS) for name in self.space.names], dtype=torch.bool)
        self._early = torch.nonzero(early if bool(early.any()) else ~early)[:, 0]
        q = self.windows(Split.TRAIN, self.stages[-1]).q.flatten(0, 1)
        self._seen = torch.nonzero(early | near_limits(self.space, self.spec, q, _FAR))[:, 0]
        windows = self.windows(Split.TRAIN, FitStage(0.25, settings.screen, 1))
        self.noise = noise_of(self.spec, settings.noise_q, settings.noise_qd, windows)
        self._measured = compared_readings(self.dynamics, store, windows)
        self._velocities = settings.velocities and not look_ahead(store) and not of_positions(store)
        free = settings.initial == "free" or of_positions(store)  # differences are too noisy to begin with
        self._free_starts = free and bool((self.noise.q > EXACT).any())
        if scaled_like is not None:
            self.scale = scaled_like.scale
            if scaled_like.space.names == self.space.names:
                self.x = scaled_like.x
                self._starts = [self.x]
            return
        self.scale = self._least
        first = self.residuals(self._few)
        point = first.start(self.x[None])
        self._require_finite(first, point)
        self.scale = torch.maximum(_SHARE * first.robust(settled(first, point)), self._least)

    @property
    def _least(self) -> Tensor:
        """Noise of each channel, shape [channels]."""
        own = self.noise.joined
        return own if self._measured is None else torch.cat([own, self._measured.noise])

    def _varying(self, per_log: Mapping[str, float]) -> dict[str, float]:
        """Return the coordinates that names or patterns say vary between logs."""
        varying: dict[str, float] = {}
        for pattern, deviation in per_log.items():
            names = [name for name in self.space.names if fnmatchcase(name, pattern)]
            if not names:
                raise InputError(
                    f"per_log: {pattern!r} is no free quantity; valid: {nearest(pattern, self.space.names)}"
                )
            varying |= dict.fromkeys(names, deviation)
        return varying

    @property
    def kept(self) -> "KeptFit":
        """The coordinates of the search so far, and their cost per held-out window."""
        return KeptFit(self.x.clone(), dict(self.per_log), dict(self.local), self.held_out_cost())

    def restore(self, kept: "KeptFit") -> None:
        """Go back to earlier coordinates."""
        self.x, self.per_log, self.local = kept.x, kept.per_log, kept.local

    def held_out_cost(self) -> float:
        """Return the cost of each held-out window of the last stage at the coordinates of the search."""
        held_out = self.residuals(self.windows(Split.VALIDATION, self.stages[-1]))
        return float(held_out.cost(self.start(held_out))) / held_out.windows.count

    def vary(self, names: Iterable[str], deviation: float = 1.0) -> None:
        """Let coordinates vary between logs, about those of the search so far."""
        self.per_log = self.per_log | {
            name: self.per_log.get(name, deviation) for name in names
        }  # earlier fits keep theirs
        self.local = {}

    def begin(self, residuals: Residuals, x: Tensor | None = None) -> Point:
        """Return the point of the search, or at other coordinates, from the logged initial states."""
        point = residuals.start((self.x if x is None else x)[None])
        for k, log in enumerate(residuals.windows.logs):
            if log in self.local:
                point.local[0, k] = self.local[log]
        return point

    def start(self, residuals: Residuals, x: Tensor | None = None, *, afresh: bool = False) -> Point:
        """Return the point of the search at its coordinates, or others, with what varies between the logs so far.

        Initial states are fitted: as logged, their noise would count as errors of the model, and damped models, which
        forget it, would fit better. Those of the same windows before are a start, unless they are fitted `afresh`.
        """
        point = self.begin(residuals, x)
        known = None if afresh else self._begun.get(id(residuals.windows))
        if known is not None and known.shape == point.initial.shape:
            point = settled(residuals, replace(point, initial=known), again=True)
        else:
            point = settled(residuals, point)
        self._note_starts(residuals, point)
        return point

    def _note_starts(self, residuals: Residuals, point: Point) -> None:
        """Keep the initial states of windows that come again."""
        if residuals.initials and residuals.options.base and self.drawn.holds(residuals.windows):
            self._begun[id(residuals.windows)] = point.initial[:1]

    @property
    def touches(self) -> bool:
        """Whether the robot may touch a ground."""
        return self.model.touches(self.store.header)

    @property
    def walks(self) -> bool:
        """Whether it may, and its base floats or is unmeasured: contacts then come and go in every window."""
        return self._measured is not None or self.model.walks(self.store.header)

    def _require_finite(self, residuals: Residuals, point: Point) -> None:
        if not bool(torch.isfinite(residuals.errors(point)).all(-1).all(-1).any()):
            raise InputError(
                f"log of {self.spec.robot!r}: no roll-out of the declared robot stays finite from any of its states; "
                "valid: a log of this robot, in its units (neurodyn inspect shows what it holds)"
            )

    def windows(self, split: Split, stage: FitStage) -> Windows:
        """Return the windows of a stage, with the commands before them."""
        return self.drawn.windows(split, stage, self.groups)

    def _searched(self, stage: FitStage) -> Tensor:
        """Return the coordinates that a search of a stage moves: others leave every roll-out as it is."""
        return self._seen if stage == self.stages[-1] else self._early

    def residuals(self, windows: Windows, *, one_sided: bool = True, among: Tensor | None = None) -> Residuals:
        """Return the residuals of windows, over all coordinates or some `among` them, by their indices."""
        space = self.space if among is None else PartOfSpace(self.space, among, self.space.nominal)
        settings = self.settings
        options = ResidualOptions(
            settings.positions, self._velocities, settings.huber, self._frees_starts(windows), settings.torque_offset,
            self.per_log, one_sided=one_sided, base=self._measured is None, near=self.walks,
        )  # fmt: skip
        measured = None if self._measured is None else self._measured.along(windows)
        return Residuals(
            self.dynamics, windows, self.noise, options, measured=measured, scale=self.scale,
            environments=self.environments, space=space, prior=UnitPrior(), tangent=self.tangent,
            doubled=self.doubled,
        )  # fmt: skip

    def _frees_starts(self, windows: Windows) -> bool:
        """Whether initial states are free: not those of short windows, which then tell next to nothing of the rest."""
        return self._free_starts and windows.frames >= self.drawn.last_frames

    @property
    def _screened(self) -> Tensor:
        """Coordinates that a screening moves.

        Of a robot on its legs, not what declarations know best: from far away, links and rotors would take up the mass
        of a payload and the lag of motors, and the search would not come back (`_SURE`).
        """
        if not self.walks:
            return self._early
        unsure = torch.tensor([not self.space.names[k].endswith(_SURE) for k in self._early.tolist()])
        return self._early[unsure] if bool(unsure.any()) else self._early

    def screen(self, bar: float = math.inf) -> float:
        """Search on a few windows, and return the cost of each; stop if it cannot fall below a `bar`.

        The first search is from the declared values, and from a measured delay of motors; the better one is kept.
        """
        settings, windows = self.settings, self._few
        residuals = self.residuals(windows, among=self._screened)
        count, starts, self._starts = residuals.windows.count, self._starts, [self.x]
        ends: list[tuple[float, Tensor]] = []
        for self.x in starts:
            cost = self._search(residuals, settings.screen_iterations, "structure", bar * count)
            ends.append((cost, self.x))
        cost, self.x = min(ends, key=lambda end: end[0])
        return cost / count

    @property
    def _few(self) -> Windows:
        """Windows of the screening."""
        return self.windows(Split.TRAIN, msgspec.structs.replace(self.settings.stages[0], windows=self.settings.screen))

    def stage_cost(self, stage: FitStage, x: Tensor | None = None) -> float:
        """Return the cost of a stage's windows at the coordinates of the search, or others."""
        residuals = self.residuals(self.windows(Split.TRAIN, stage))
        return float(residuals.cost(self.start(residuals, x)))

    def screened_cost(self) -> float:
        """Return the cost of each window of the screening at the coordinates of the search."""
        few = msgspec.structs.replace(self.settings.stages[0], windows=self.settings.screen)
        return self.stage_cost(few) / self._few.count

    def scan(self) -> "Fitting":
        """Return a fit that begins with other gains where declared ones are placeholders (`gain_scan`).

        Stated gains stay held unless the log tells that they are no better.
        """
        if self.model.stated:
            freed = self.with_model(self.model.with_stated((), self.settings))
            begun = freed.x
            return freed if not torch.equal(freed.scan().x, begun) else self
        before, last = self.x, self.stages[-1]
        if not (joints := guessed_gains(self.space)):
            return self
        few = msgspec.structs.replace(last, windows=min(last.windows, self.settings.screen))
        residuals = self.residuals(self.windows(Split.TRAIN, few))

        def cost(space: CoordinateSpace, x: Tensor) -> float:
            there = residuals.with_space(space)
            return float(there.cost(there.start(x[None])))

        self.space, self.x = scan_gains(self.space, self.x, joints, cost)
        self.model = self.model.with_space(self.space)
        self._starts = [torch.where(self.x == before, one, self.x) for one in self._starts]
        return self

    def with_model(self, model: FitModel) -> "Fitting":
        """Return a fit of another structure to the same log, in the same scale."""
        fitting = Fitting(model, self.store, self.settings, self.dynamics.threads, self._report, scaled_like=self)
        fitting.per_log, fitting.local = dict(self.per_log), dict(self.local)
        fitting.drawn.share(self.drawn)
        fitting._begun = dict(self._begun)
        return fitting

    @torch.no_grad()
    def consider(self, other: "Fitting") -> None:
        """Go on from the coordinates of another fit of the same structure if they cost less in the first stage."""
        if other.space.names != self.space.names or other.model.structure != self.model.structure:
            return
        residuals = self.residuals(self.windows(Split.TRAIN, self.stages[0]))
        tried = self.before = self.space.converted(other.x, other.space)
        mine, theirs = (float(residuals.cost(self.start(residuals, x))) for x in (self.x, tried))
        self.x = tried if theirs < mine else self.x

    def current(self) -> HybridDynamics:
        """Return the dynamics at the present coordinates."""
        self.dynamics.physical.set_values(self.space.values(self.x).detach())
        return self.dynamics

    def refine(self, stage: FitStage) -> None:
        """Search a stage from the present coordinates."""
        self._search_all(self.windows(Split.TRAIN, stage), stage, "structure")
        self.ends = self.x[None]

    def widen(self) -> None:
        """Widen the priors of guessed quantities that the log places far from their declared values.

        A short one tells of no other priors: with wide ones its noise decides the values.
        """
        if tells_little(self.store):
            return
        space, self.x = self.space.widened(self.x, _FAR)
        self.before = None if self.before is None else space.converted(self.before, self.space)
        self.space, self.model = space, self.model.with_space(space)

    def _search_all(self, windows: Windows, stage: FitStage, name: str) -> None:
        """Search a stage from the best delay around the present one, again while another one is better."""
        residuals, whole = self.residuals(windows, among=self._searched(stage)), self.residuals(windows)
        self.trade(whole)
        for _ in range(_TRADES):
            self._search(residuals, stage.iterations, name)
            if not self.trade(whole):
                break

    @torch.no_grad()
    def trade(self, residuals: Residuals) -> bool:
        """Move the delay, and with it what makes up for it, to where costs are lowest (`delay_trades`).

        Returns:
            Whether they fell by enough to search on.
        """
        if self.touches:
            return False
        tried = delays_traded(self.space, self.x).flatten(0, 1)
        if not len(tried):
            return False
        windows = residuals.windows.count
        few = residuals.of_windows(torch.arange(0, windows, max(1, min(_TRADED, windows // _LEAST_TRADED))))
        best = tried[int(few.cost(self.start(few).at(tried)).argmin())]
        point = self.start(residuals)
        if not float(residuals.cost(point.at(best[None]))) < (1.0 - self.settings.progress) * float(
            residuals.cost(point)
        ):
            return False
        self.x = best
        return True

    @torch.no_grad()
    def undamp(self, residuals: Residuals) -> None:
        """Give the damping of joints back to their servos where that costs less (`dampings_traded`)."""
        tried = dampings_traded(self.space, self.x)
        if not len(tried):
            return
        point = self.start(residuals)
        better = tried[residuals.cost(point.at(tried)) < float(residuals.cost(point))]
        if len(better):
            together = self.x + (better - self.x).sum(0)
            tried = torch.cat([better, together[None]])
            self.x = tried[int(residuals.cost(point.at(tried)).argmin())]

    def probe(self, residuals: Residuals) -> None:
        """Move each coordinate of the floor by itself while the cost falls (`probe_coordinates`)."""
        columns = residuals.space.kept if isinstance(residuals.space, PartOfSpace) else torch.arange(len(self.x))
        floor = [n for n, k in enumerate(columns.tolist()) if self.space.names[k].startswith("contact.")]
        self.x = self.x.clone()
        self.x[columns] = probe_coordinates(residuals, self.start(residuals, self.x[columns]), floor).x[0]

    def fewer(self, stage: FitStage) -> FitStage | None:
        """Return a stage with a part of its windows: the first iterations, from far away, need few; None if all do."""
        if stage.windows < _WARM * _LEAST_WARM:
            return None
        return msgspec.structs.replace(stage, windows=stage.windows // _WARM)

    def rescale(self, stage: FitStage | None = None) -> None:
        """Rescale each channel by its remaining errors in a stage, by default the first: it errs more in some."""
        residuals = self.residuals(self.windows(Split.TRAIN, stage or self.stages[0]))
        self.scale = torch.maximum(residuals.robust(self.start(residuals)), self._least)

    def run(self) -> Searched:
        """Search stage by stage; keep the stage that fits held-out windows best, in one scale of the channels."""
        last, ends, costs = self.stages[-1], {}, {}
        self.rescale()
        space, first = self.space, self.x
        for stage in self.stages:
            name = f"{stage_frames(stage, self.spec.dt)} frames"
            windows = self.windows(Split.TRAIN, stage)
            if stage == last and self._frees_starts(windows):
                self.x = self.space.converted(first, space)
            if stage == last:
                self.rescale(stage)
            if self._measured is not None:
                self.probe(self.residuals(windows, among=self._searched(stage)))
            if stage == last and not self.per_log and (few := self.fewer(stage)):
                self._search(self.residuals(self.windows(Split.TRAIN, few), among=self._seen), stage.iterations, name)
                self.hop(stage)
            self._search_all(windows, stage, name)
            ends[name] = self.space, self.x, self.local
            if stage != last:
                self.widen()
        ends = {name: (self.space.converted(x, space), local) for name, (space, x, local) in ends.items()}
        if self._measured is not None:  # what drifted along no roll-out's concern stays where the priors expect it
            ends = {name: (self.space.with_likely_scale(x), local) for name, (x, local) in ends.items()}
        for name, (self.x, self.local) in ends.items():
            costs[name] = min(self.held_out_cost(), _WORST)
        if min(costs.values()) >= _WORST:
            raise InputError(
                f"log of {self.spec.robot!r}: no fit has a finite cost on held-out episodes; valid: a log of this "
                "robot, in its units (neurodyn inspect shows what it holds)"
            )
        self.x, self.local = ends[kept_stage(costs)]
        self.ends = torch.stack([x for x, _ in ends.values()])
        return self.end(costs)

    def again(self, costs: dict[str, float], iterations: int = _MORE, *, near: bool = False) -> Searched:
        """Search the kept stage further, from where it ended, and return its result; if `near` will do, to near it."""
        name, stage = kept_stage(costs), self.stage_of(costs)
        residuals = self.residuals(self.windows(Split.TRAIN, stage), among=self._searched(stage))
        self._search(residuals, iterations, name, near=near)
        return self.end(costs)

    def stage_of(self, costs: Mapping[str, float]) -> FitStage:
        """Return the stage that is kept of those with some held-out costs (`kept_stage`)."""
        return self.stages[list(costs).index(kept_stage(costs))]

    def end(self, costs: dict[str, float]) -> Searched:
        """Return the current coordinates as the result of the stage that is kept."""
        stage = self.stage_of(costs)
        residuals = self.residuals(self.windows(Split.TRAIN, stage))
        nothing = self.x.new_zeros(0, len(self.space.quantities))
        end = SearchEnd(settled=True, moved=True, iterations=stage.iterations)
        return Searched(residuals, self.start(residuals, afresh=True), end, nothing, nothing[:, 0], costs)

    def shorten(self, searched: Searched) -> Searched:
        """Search the kept stage of a result further with short steps of the engine, if its own are longer."""
        substeps = self.finest
        if substeps <= self.model.engine.substeps:
            return searched
        self.x = self.space.with_likely_scale(self.x)
        self.shorten_steps(substeps)
        stage = self.stage_of(searched.stages)
        self.rescale(stage)  # what was missing, such as a payload, made some channels count for less than they tell
        self.undamp(self.residuals(self.windows(Split.TRAIN, stage)))
        near = not self.touches and LARGE < len(self._seen) <= _WIDE  # `finish` then searches on
        return self.again(dict(searched.stages), near=near)

    def finish(self, searched: Searched) -> Searched:
        """Search the kept stage of a result further by derivatives of its short steps, and return its shifts, too."""
        if self.doubled is not None and self.take_own_derivatives():
            stage = self.stage_of(searched.stages)
            self.rescale(stage)
            self.hop(stage)
            searched = self.again(dict(searched.stages))
        return self.end_with_shifts(searched)

    def hop(self, stage: FitStage) -> None:
        """Go to where a short search over a part of the windows, from another delay, ends lower than one from here.

        Dry friction and stairs of commands make costs rough along the valley of `delays_traded`, and a search ends in
        the nearest of its minima.
        """
        if self._alone:
            return
        begin, local = self.x, self.local
        residuals = self.residuals(self.windows(Split.TRAIN, self.fewer(stage) or stage), among=self._seen)
        whole = residuals.with_space(self.space)
        others = [] if self.touches else other_delays(self.space, begin, lambda x: whole.cost(self.start(whole).at(x)))
        ends: list[tuple[float, Tensor, dict[str, Tensor]]] = []
        for start in (begin, *others[:_HOPS]) if others else ():
            self.x, self.local, bar = start, local, min((cost for cost, *_ in ends), default=math.inf)
            ends.append((self._search(residuals, _HOPPED, "another delay", bar), self.x, self.local))
        costs = torch.tensor([cost for cost, *_ in ends], dtype=torch.float64)
        self._alone = int((costs < costs.min() + _NEAR_COST).sum()) < 2 if ends else True
        if ends:
            best = int(costs.argmin())
            self.x, self.local = ends[best][1:] if best else (begin, local)
            self.apart = _likely_moves(torch.stack([x for _, x, _ in ends]), costs, 2.0 * costs.min() / residuals.count)

    @property
    def finest(self) -> int:
        """Steps of the engine in a frame with which `finish` ends.

        The present ones if given, where the base is unmeasured, or where contacts are of other kinds than a walk's.
        """
        own = self.model.engine.substeps
        even = math.lcm(own, 2)  # half as many have to be whole, and hold a log's commands
        given = self.settings.substeps is not UNSET or self._measured is not None
        kept = given or (self.touches and not self.walks)
        return own if kept else max(own, math.ceil(self.spec.dt / FINE / even) * even)

    def _coarse(self) -> HybridDynamics | None:
        """Return the dynamics with steps that derivatives need not be shorter than; None for those of the fit.

        Those of a walking robot with motion capture have twice the steps, too, where roll-outs have shorter ones than
        declared (`with_likely_steps`): they cost half as much, and the search ends where the roll-outs say.
        """
        substeps, parts = self.model.engine.substeps, part_count(self.store.header)
        fewer = [n for n in range(parts, substeps, parts) if substeps % n == 0 and self.spec.dt <= n * _COARSE]
        declared = self.settings.engine(self.model.robot).substeps
        if declared < substeps and self.store.header.base == "measured" and self.model.walks(self.store.header):
            fewer = fewer or [max(declared, substeps // 2)]
        return self.model.with_substeps(fewer[0]).dynamics(self.store, self.dynamics.threads) if fewer else None

    def take_own_derivatives(self) -> bool:
        """Take derivatives from steps twice as long as the short ones, and return so, unless they cost too much."""
        own = len(self._seen) <= _WIDE
        if own:
            self.tangent = self.doubled or self.dynamics
        return own

    def shorten_steps(self, substeps: int) -> None:
        """Take so many steps of the engine in a frame, and derivatives, which cost most, still from longer ones."""
        threads = self.dynamics.threads
        if self.touches:  # contacts that come and go in a step forbid to extrapolate
            self.model = self.model.with_substeps(substeps)
            self.dynamics = self.model.dynamics(self.store, threads)
            self.tangent = self._coarse()
            return
        self.tangent = self.dynamics
        self.doubled = self.tangent
        if substeps != 2 * self.model.engine.substeps:
            self.doubled = self.model.with_substeps(substeps // 2).dynamics(self.store, threads)
        self.model = self.model.with_substeps(substeps)
        self.dynamics = self.model.dynamics(self.store, threads)

    def end_with_shifts(self, searched: Searched) -> Searched:
        """Return a result with how far the solution moves with other stages, and with shorter steps of the engine.

        A model without errors has the same solution for windows of all lengths, up to noise; each counts as it is
        likely on held-out windows. Errors of the engine's first-order integrator fall with the length of its steps.
        Where they are extrapolated to none, the move to steps of a millisecond counts: drives of robots take such
        steps, too. With an estimated base the solution also moves with the estimate (`moves_of_starts`), and from one
        to the next; that of a walk from longer steps to short ones, by more than its derivatives say.
        """
        shifts = self.apart
        if self.touches:  # else a window in which a foot comes or goes tells more than the rest of the log
            searched = replace(searched, residuals=searched.residuals.past_jumps())
        if len(self.ends) == len(searched.stages):
            held_out = self.residuals(self.windows(Split.VALIDATION, self.stages[-1]))
            costs = held_out.windows.count * torch.tensor(list(searched.stages.values()), dtype=torch.float64)
            shifts = torch.cat([_likely_moves(self.ends, costs, 2.0 * costs.min() / held_out.count), shifts])
        if self._measured is not None:
            shifts = torch.cat([shifts, moves_of_starts(searched.residuals, searched.point)])
        if self.before is not None:
            shifts = torch.cat([shifts, (self.x - self.before)[None]])
        if self.doubled is None:
            substeps, other = self.model.engine.substeps, self.tangent  # longer steps that are there tell as much
            if other is None:
                other = self.model.with_substeps(_FINER * substeps).dynamics(self.store, self.dynamics.threads)
            errors = searched.residuals.with_dynamics(other).errors(searched.point)
            moved = shift_towards(searched.residuals, searched.point, errors)
            moved = moved / (1.0 - substeps / other.config.substeps)
        else:
            plain = searched.residuals.with_dynamics(self.dynamics)
            moved = shift_towards(searched.residuals, searched.point, plain.errors(searched.point))
        return replace(searched, shifts=torch.cat([shifts, moved[None]]))

    def _search(
        self, residuals: Residuals, iterations: int, name: str, bar: float = math.inf, *, near: bool = False
    ) -> float:
        columns = residuals.space.kept if isinstance(residuals.space, PartOfSpace) else torch.arange(len(self.x))
        start = self.start(residuals, self.x[columns])
        before, last = float(residuals.cost(start)), residuals.windows.frames >= self.drawn.last_frames and not near
        stuck = False

        def stop(iteration: int, cost: Tensor) -> bool:
            nonlocal before, stuck
            now = float(cost)
            share, before = now / max(before, 1e-300), now
            if last and share == 1.0 and not stuck:  # no step was short enough yet
                stuck = True
                return False
            stuck = False
            # The relative decrease of a search's cost shrinks: at this rate it would end above the bar.
            hopeless = iteration > 1 and now * share ** (iterations - iteration) > bar
            done = share > 1.0 - (_SETTLED if last else self.settings.progress) or hopeless
            if self._report is not None:
                self._report(name, iteration, now)
            return done

        solution = levenberg_marquardt(residuals, start, iterations, stop=stop)
        self.x = self.x.clone()
        self.x[columns] = solution.point.x[0]
        self._note_starts(residuals, solution.point)
        if self.per_log:
            self._centre(residuals.windows.logs, solution.point.local[0])
        return float(solution.cost)

    def _centre(self, logs: Sequence[str], local: Tensor) -> None:
        """Keep what varies between logs, with its mean over them as the shared value: data tell nothing of that sum."""
        for column, (name, size) in enumerate(self.per_log.items()):
            k, mean = self.space.names.index(name), local[:, column].mean()
            shared = self.x[k] + size * mean
            if self.space.lower[k] <= shared <= self.space.upper[k]:
                self.x[k] = shared
                local[:, column] -= mean
        self.local = dict(zip(logs, local, strict=True))


def _likely_moves(ends: Tensor, costs: Tensor, variance: Tensor) -> Tensor:
    """Return moves from the best of several minima [m, n] to the others, each times the root of its share.

    Their squares sum to the variance of a mixture of the minima about the best one, with the likelihood of each as its
    share, from costs [m] of residuals of a `variance`.
    """
    likely = torch.exp((costs.min() - costs) / variance.clamp_min(1.0))
    return (likely / likely.sum()).sqrt()[:, None] * (ends - ends[costs.argmin()])


def compared_readings(dynamics: HybridDynamics, store: Store, windows: Windows) -> ComparedReadings | None:
    """Return the readings that are compared in place of the states of an estimated base; None where it is measured."""
    header = store.header
    if header.base == "measured":
        return None
    return ComparedReadings.of(dynamics, header.sensors, header.streams, windows)


def settled(residuals: Residuals, point: Point, *, again: bool = False) -> Point:
    """Return a point whose free initial states fit the windows at its coordinates; `again` if they did nearby."""
    if not residuals.initials:
        return point
    if not residuals.options.base:
        point, generator = settle_starts(residuals, point, 1)[0], torch.Generator().manual_seed(0)
        for _ in range(_STARTS_OF_BASE):
            point, _ = search_starts(residuals, point, generator)
        return point
    likely = with_likely_starts(residuals, point)
    return settle_starts(residuals, likely, 1 if again else _STARTS, NEARLY_LINEAR)[0]

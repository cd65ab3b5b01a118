# SPDX-License-Identifier: Apache-2.0
"""The ladder from a declaration to a model of the robot: each rung is kept only if it beats the one below.

Rungs are compared on the log, by open-loop roll-outs of whole held-out episodes, and a rung is kept if it is better by
more than chance, given the spread over episodes. The errors of the last rung are reported by coordinate.

The last rung has networks for unmodelled effects on top of a fitted mechanism: a torque at each joint, with memory.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.progress import tracked
from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, blocks_of, select_windows
from neurodyn.dynamics.batch import RecordedEnvironments, Trajectory
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.measures import displace
from neurodyn.dynamics.rollout_errors import Judgement, RolloutErrors, judge
from neurodyn.dynamics.rollouts import context_of, truth_of
from neurodyn.identify.fit.readings import EXACT, Noise
from neurodyn.identify.ladder.initial_states import Start, estimate_starts
from neurodyn.identify.ladder.motion_likeness import SECONDS, motion_likeness
from neurodyn.identify.ladder.references import TrainedReference, baseline_errors
from neurodyn.identify.ladder.sensed_errors import SensedErrors, beside_readings
from neurodyn.identify.result import MotionLikeness, Reference, Rung, UnexplainedCoordinate
from neurodyn.identify.settings import IdentificationSettings

DECLARED, IDENTIFIED, NETWORKS = "declared", "identified", "networks"
_EPISODES_PER_QUANTITY = 2
"""Training episodes for each fitted quantity from which on they settle what validation episodes leave open."""
_CONTEXTS, _STARTS = (2, 3, 5), 80
"""Past frames to which initial states are fitted that are tried beside those of the settings, and most starts of each.
"""
FRAMES = 3
"""Frames of the roll-outs whose errors are reported as unexplained."""


def held_out_windows(
    store: Store, split: int, past: int, seconds: Sequence[float], each: int
) -> tuple[Windows, list[int]]:
    """Return windows of a split with `past` frames before them, and the horizons [frames] that its episodes reach.

    `each` is the largest number of windows per episode. Episodes shorter than all horizons are forecast to their ends.
    """
    episodes, dt = episodes_of(store, split), store.header.spec.dt
    longest = int(store.lengths[episodes].max()) - past
    if longest < 1:
        raise InputError(
            f"log of {store.header.robot!r}: its held-out episodes are shorter than {past + 1} frames; "
            "valid: longer ones"
        )
    frames = [max(1, round(s / dt)) for s in seconds]
    fitting = [frame for frame in frames if frame <= longest] or [longest]
    windows = select_windows(store, split, past + max(fitting), most=each * len(episodes))
    return windows.after(past), list(dict.fromkeys(fitting))


def reaching_past(store: Store, past: int, wished: int, seconds: Sequence[float]) -> int:
    """Return the number of frames before held-out windows, `wished` or fewer.

    They leave room for the longest of the horizons that fits into the episodes.
    """
    dt = store.header.spec.dt
    longest = min(
        int(store.lengths[store.episodes(split)].max())
        for split in (Split.VALIDATION, Split.TEST)
        if len(store.episodes(split))
    )
    frames = [max(1, round(s / dt)) for s in seconds]
    return max(past, min(wished, longest - max([frame for frame in frames if frame < longest], default=1)))


@torch.no_grad()
def held_out_errors(dynamics: HybridDynamics, store: Store, windows: Windows) -> RolloutErrors:
    """Roll out a model along held-out windows, with motors settled by the commands before.

    Where the base is estimated, errors are those of joints and sensors (`SensedErrors`).
    """
    errors = RolloutErrors(dynamics.spec, settle_and_roll_out(dynamics, store, windows), truth_of(windows))
    return beside_readings(errors, dynamics, store, windows)


def settle_and_roll_out(dynamics: HybridDynamics, store: Store, windows: Windows) -> Trajectory:
    """Return roll-outs along windows, after all commands of their past."""
    context = context_of(windows, None if dynamics.memory else 0)
    where = environments_of(store, dynamics).of(windows)
    return dynamics.simulate(context, windows.commands, dynamics.physical().detach(), dynamics.weights.detach(), where)


@torch.no_grad()
def noise_errors(
    dynamics: HybridDynamics, store: Store, windows: Windows, past: int, noise: Noise, seed: int = 0
) -> RolloutErrors:
    """Return the errors that a perfect model would have along windows, because first and last states are measured.

    It is the difference of roll-outs from the logged states and from those with noise, and the noise at its end. Where
    the base is estimated, it starts as far off as the estimate is doubted, and readings of sensors have their noise.
    """
    windows = settling(windows, past)
    random = torch.Generator().manual_seed(derive_seed(seed, "noise"))

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64)

    offset, faster = (noise.joined * drawn(windows.count, 2 * dynamics.spec.nv)).chunk(2, -1)
    if (spread := windows.spread) is not None:
        base = torch.einsum("wij,wj->wi", spread[:, 0].double(), drawn(windows.count, spread.shape[-1]))
        for one, part in zip((offset, faster), base.chunk(2, -1), strict=True):
            one[:, : part.shape[1]] = part
    q, qd = windows.q.clone(), windows.qd.clone()
    q[:, 0], qd[:, 0] = displace(dynamics.spec, q[:, 0], offset), qd[:, 0] + faster
    path, moved = (settle_and_roll_out(dynamics, store, one) for one in (windows, replace(windows, q=q, qd=qd)))
    shift = noise.q * drawn(*moved.qd.shape)
    if spread is not None:
        shift[..., : spread.shape[2] // 2] = 0.0
    errors = RolloutErrors(dynamics.spec, replace(moved, q=displace(dynamics.spec, moved.q, shift)), path)
    own = beside_readings(replace(errors, predicted=path), dynamics, store, windows)
    if not isinstance(own, SensedErrors):
        return errors
    read = own.measured.noise * drawn(*own.sensed.shape) * own.measured.compared
    return replace(own, predicted=errors.predicted, nothing=own.sensed - read)


def settling(windows: Windows, past: int) -> Windows:
    """Return windows with no more than `past` frames before them."""
    before = windows.past
    if before is None or before.frames <= past:
        return windows
    return replace(windows, past=before.cut(before.frames - past) if past else None)


def environments_of(store: Store, dynamics: HybridDynamics) -> RecordedEnvironments:
    """Return the environments of a log; a log that names no ground was recorded on the robot's own."""
    names = dynamics.own_quantities if store.header.of_robot else ()
    if store.header.scene is not None:
        return RecordedEnvironments(store, names=names)
    return RecordedEnvironments.like(dynamics.home, store, names)


@dataclass(frozen=True)
class HeldOutErrors:
    """Errors of a model along held-out windows, with the horizons at which models are compared [frames]."""

    windows: Windows
    frames: list[int]
    errors: RolloutErrors

    def judge(self, above: "HeldOutErrors") -> Judgement:
        """Return whether another model is better along the same windows, by more than the spread over stretches."""
        return judge(self.errors, above.errors, self.frames, blocks_of(self.windows))


@dataclass(frozen=True)
class Climb:
    """Models compared on held-out episodes.

    Attributes:
        rungs: The ladder.
        references: Models beside it.
        seconds: Horizons [s].
        frames: Horizons [frames].
        errors: Roll-outs along validation windows by model, of the ladder and trained references.
        shown: The same along test windows; along those for validation if there are none.
        windows: The validation windows.
    """

    rungs: list[Rung]
    references: list[Reference]
    seconds: tuple[float, ...]
    frames: list[int]
    errors: dict[str, RolloutErrors]
    shown: dict[str, RolloutErrors]
    windows: Windows


@dataclass(frozen=True)
class Ladder:
    """Models of a robot compared on held-out episodes of a log.

    Attributes:
        store: The log.
        past: Frames before a window in which motors settle.
        settings: Settings of the identification.
        noise: Noise of the sensors if initial states are estimated from past frames; None if they are as logged.
        fitted: Number of fitted quantities of the identified rung; 0 for many.
        tracked: A log with motion capture that judges, too, where the base of `store` is unmeasured; None for none.
        context: Past frames to which initial states are fitted, at most those of the settings; None for these.
        estimated: How they are estimated.
    """

    store: Store
    past: int
    settings: IdentificationSettings
    noise: Noise | None = None
    fitted: int = 0
    tracked: Store | None = None
    context: int | None = None
    estimated: Start = "past"

    @property
    def start(self) -> Start:
        """How initial states are found."""
        return "logged" if self.noise is None else self.estimated

    def climb(self, rungs: Mapping[str, HybridDynamics], beside: Sequence[TrainedReference] = ()) -> Climb:
        """Judge models, from the declaration up, on validation episodes; also report test episodes.

        Args:
            rungs: The models by name.
            beside: Models that are compared, and never chosen.
        """
        store, spec, each = self.store, self.store.header.spec, self.settings.rollouts_each
        context = 0 if self.noise is None else self.settings.context
        wished = max([context, *map(self._past_of, rungs.values()), *(one.context for one in beside)])
        past = reaching_past(store, self.past, wished, self.settings.seconds)
        windows, frames = held_out_windows(store, Split.VALIDATION, past, self.settings.seconds, each)
        seconds = tuple(frame * spec.dt for frame in frames)
        tests = None
        if self.split is Split.TEST:
            tests = held_out_windows(store, Split.TEST, past, seconds, each)
        entries: list[Rung] = []
        errors: dict[str, RolloutErrors] = {}
        shown: dict[str, RolloutErrors] = {}
        best: tuple[RolloutErrors, RolloutErrors | None] | None = None
        captured = None if self.tracked is None else captured_windows(self.tracked, past, seconds, each)
        for name, dynamics in tracked(rungs.items(), "held-out episodes"):
            errors[name] = own = self._errors(dynamics, windows)
            shown[name] = own if tests is None else self._errors(dynamics, tests[0])
            seen = None
            if captured is not None and self.tracked is not None:
                seen = held_out_errors(dynamics, self.tracked, settling(captured[0], self.past))
            judgement = Judgement(True, 1.0, "as declared")
            if best is not None:
                judgement = judge(best[0], own, frames, blocks_of(windows))
                if judgement.open and name == IDENTIFIED:
                    judgement = self._judged_on_more(judgement, rungs[DECLARED], dynamics, past, seconds)
                if captured is not None and seen is not None and best[1] is not None:
                    second = judge(best[1], seen, captured[1], blocks_of(captured[0]))
                    judgement = both_judged(judgement, second)
            base = {} if captured is None or seen is None else of_base(seen, captured[1], frames)
            entries.append(
                Rung(
                    name=name, kept=judgement.kept, reason=judgement.reason, errors=own.by_group(frames) | base,
                    test={} if tests is None else shown[name].by_group(tests[1]) | base,
                    share=UNSET if best is None else judgement.share, finite_fraction=own.finite_fraction,
                    motion=self._likeness(dynamics),
                )
            )  # fmt: skip
            best = (own, seen) if judgement.kept else best
        for one in beside:
            errors[one.name] = own = one.errors(store, windows)
            shown[one.name] = own if tests is None else one.errors(store, tests[0])
        others = {name: one for name, one in errors.items() if name not in rungs} | baseline_errors(errors[DECLARED])
        tested = shown | baseline_errors(shown[DECLARED])
        spent = {one.name: one.cpu_seconds for one in beside}
        references = [
            Reference(
                name=name, errors=one.by_group(frames),
                test={} if tests is None else tested[name].by_group(tests[1]),
                finite_fraction=one.finite_fraction, cpu_seconds=spent.get(name, 0.0),
            )
            for name, one in others.items()
        ]  # fmt: skip
        return Climb(entries, references, seconds, frames, errors, shown, windows)

    def behind(self, dynamics: HybridDynamics, beside: Sequence[TrainedReference]) -> bool:
        """Return whether one of the models beside the ladder predicts validation episodes better at any horizon."""
        if not beside:
            return False
        held = self.held_out(dynamics, *(one.context for one in beside))
        own = held.errors.by_group(held.frames)
        others = [one.errors(self.store, held.windows).by_group(held.frames) for one in beside]
        return any(is_better(theirs[group], own[group]) for theirs in others for group in own)

    def with_best_context(self, dynamics: HybridDynamics) -> "Ladder":
        """Return the ladder with the past frames to which initial states are fitted where a model then errs least.

        Many frames average out noise of positions; few leave out more of what the model lacks. States as logged are
        kept.
        """
        if self.noise is None:
            return self
        windows, frames = self._validation(dynamics)
        few = windows.rows(torch.arange(0, windows.count, -(-windows.count // _STARTS)))
        most = self.settings.context
        errors = {most: replace(self, context=most)._errors(dynamics, few)}
        usual = errors[most].judged[errors[most].finite]
        scale = usual.abs().mean((0, 1)).clamp_min(1e-9)

        def error(context: int) -> float:
            own = errors[context] if context in errors else replace(self, context=context)._errors(dynamics, few)
            if not bool(own.finite.any()):
                return math.inf
            sizes = own.judged[own.finite][:, [frame - 1 for frame in frames]].abs()
            return float((sizes / scale).mean()) / float(own.finite.double().mean())

        tried = [context for context in _CONTEXTS if context < self.settings.context]
        return replace(self, context=min([self.settings.context, *tried], key=error))

    def with_best_starts(self, dynamics: HybridDynamics, noise: Noise) -> "Ladder":
        """Return the ladder with the initial states from which a model errs least.

        Where they are as logged, those estimated from past positions and velocities are taken if roll-outs from them
        are better beyond the spread: a single velocity is as noisy as its sensor.
        """
        measured = self.store.header.base == "measured" and bool((noise.q > EXACT).any())
        if self.noise is not None or not measured or self.settings.start == "logged":
            return self.with_best_context(dynamics)
        filtered = replace(self, noise=noise, estimated="filtered").with_best_context(dynamics)
        logged = self.held_out(dynamics, self.settings.context)
        return filtered if logged.judge(filtered.held_out(dynamics)).kept else self

    def held_out(self, dynamics: HybridDynamics, *contexts: int) -> HeldOutErrors:
        """Return the errors of a model along validation windows, after the frames that it and others need."""
        windows, frames = self._validation(dynamics, *contexts)
        return HeldOutErrors(windows, frames, self._errors(dynamics, windows))

    def _validation(self, dynamics: HybridDynamics, *contexts: int) -> tuple[Windows, list[int]]:
        """Return validation windows after the frames that a model and others need, and the horizons [frames]."""
        store, seconds = self.store, self.settings.seconds
        wished = max([0 if self.noise is None else self.settings.context, self._past_of(dynamics), *contexts])
        past = reaching_past(store, self.past, wished, seconds)
        return held_out_windows(store, Split.VALIDATION, past, seconds, self.settings.rollouts_each)

    def _judged_on_more(
        self, judgement: Judgement, below: HybridDynamics, above: HybridDynamics, past: int, seconds: Sequence[float]
    ) -> Judgement:  # fmt: skip
        """Return a judgement that validation episodes leave open, as training episodes settle it.

        The fit saw these; but of few quantities beside many episodes, its errors there are hardly too small.
        """
        count = len(self.store.episodes(Split.TRAIN))
        if not self.fitted or count < _EPISODES_PER_QUANTITY * self.fitted:
            return judgement
        windows, frames = held_out_windows(self.store, Split.TRAIN, past, seconds, self.settings.rollouts_each)
        before, after = (HeldOutErrors(windows, frames, self._errors(one, windows)) for one in (below, above))
        more = before.judge(after)
        return replace(more, reason=f"{judgement.reason}; on training episodes {more.reason}")

    def _likeness(self, dynamics: HybridDynamics) -> dict[str, MotionLikeness]:
        """Return how a model moves under the commands of held-out episodes; nothing where the base is measured."""
        if self.store.header.base == "measured":
            return {}
        longest = int(self.store.lengths[self.store.episodes(self.split)].max()) - self.past
        seconds = min(SECONDS, longest * self.store.header.spec.dt)
        windows, _ = held_out_windows(self.store, self.split, self.past, (seconds,), _LONG)
        errors = held_out_errors(dynamics, self.store, windows)
        return motion_likeness(errors) if isinstance(errors, SensedErrors) else {}

    @torch.no_grad()
    def _errors(self, dynamics: HybridDynamics, windows: Windows) -> RolloutErrors:
        """Return the errors of a model along windows, from logged or estimated initial states."""
        own, known = self._past_of(dynamics), windows.past
        settled = settling(windows, own)
        if self.noise is None or known is None:
            return held_out_errors(dynamics, self.store, settled)
        context = self.settings.context if self.context is None else self.context
        context, where = min(context, known.frames), environments_of(self.store, dynamics)
        history = min(own, known.frames)
        begun = estimate_starts(dynamics, windows, context, self.estimated, self.noise, where, history=history)
        errors = held_out_errors(dynamics, self.store, replace(begun, past=settled.past))
        if self.store.header.base != "measured":
            return errors
        # Windows began where the log says, whatever a model estimates.
        logged = torch.cat([settled.q[:, :1].to(errors.truth.q), errors.truth.q[:, 1:]], 1)
        return replace(errors, truth=replace(errors.truth, q=logged))

    def _past_of(self, dynamics: HybridDynamics) -> int:
        """Return the frames before a window in which the motors and networks of a model settle."""
        return max(self.past, dynamics.config.context)

    @property
    def split(self) -> Split:
        """Split of the episodes whose roll-outs are shown."""
        return Split.TEST if len(self.store.episodes(Split.TEST)) else Split.VALIDATION

    @torch.no_grad()
    def rest(self, dynamics: HybridDynamics) -> tuple[Windows, Tensor]:
        """Return validation windows of a few frames, and the errors of positions at their end, shape [W, nv]."""
        spec, each = self.store.header.spec, 4 * self.settings.rollouts_each
        past = reaching_past(self.store, self.past, self._past_of(dynamics), (FRAMES * spec.dt,))
        windows, _ = held_out_windows(self.store, Split.VALIDATION, past, (FRAMES * spec.dt,), each)
        return windows, held_out_errors(dynamics, self.store, windows).tangents[:, -1]

    def unexplained(self, dynamics: HybridDynamics, noise: Noise) -> list[UnexplainedCoordinate]:
        """Return the errors of roll-outs of a few frames by coordinate, the least explained first."""
        (windows, errors), spec = self.rest(dynamics), self.store.header.spec
        every = unexplained_coordinates(spec, windows, errors, _touching(dynamics, self.store, windows), noise)
        unseen = () if self.store.header.base == "measured" else spec.joints[0].tangent_names
        return [one for one in every if one.name not in unseen]


def captured_windows(store: Store, past: int, seconds: Sequence[float], each: int) -> tuple[Windows, list[int]]:
    """Return windows of all episodes of a log with motion capture, which no fit saw, and the horizons that fit."""
    longest = int(store.lengths.max()) - past
    frames = [frame for frame in (max(1, round(s / store.header.spec.dt)) for s in seconds) if frame <= longest]
    if not frames:
        raise InputError(
            f"log of {store.header.robot!r} with motion capture: its episodes are shorter than {past + 1} frames; "
            "valid: longer ones"
        )
    return select_windows(store, None, past + max(frames), most=each * len(store.table)).after(past), frames


def is_better(errors: Sequence[float | None], than: Sequence[float | None]) -> bool:
    """Return whether errors are smaller than others at any horizon; None are those of roll-outs that diverged."""
    return any(a is not None and (b is None or a < b) for a, b in zip(errors, than, strict=True))


def both_judged(sensed: Judgement, captured: Judgement) -> Judgement:
    """Return the judgement by sensors, which a log with motion capture overrules if it errs more there."""
    share = math.inf if captured.share is None else captured.share
    return replace(
        sensed, kept=sensed.kept and share <= 1.0,
        reason=f"{sensed.reason}; {share:.2f} of the error with motion capture",
    )  # fmt: skip


def of_base(errors: RolloutErrors, known: Sequence[int], frames: Sequence[int]) -> dict[str, list[float | None]]:
    """Return mean errors of the base at horizons, None beyond those `known`."""
    groups = {name: found for name, found in errors.by_group(known).items() if name.startswith("base")}
    return {name: [found[k] if k < len(known) else None for k in range(len(frames))] for name, found in groups.items()}


_LONG = 4
"""Most roll-outs of each episode whose motion is compared (`motion_likeness`)."""
_LEAST = 0.3
"""Least correlation that is reported."""
_MOST = 3
_ENOUGH = 8
"""Least number of windows for splitting an error by contact."""


def unexplained_coordinates(
    spec: StateSpec, windows: Windows, errors: Tensor, touching: Tensor, noise: Noise
) -> list[UnexplainedCoordinate]:
    """Describe the errors at the end of windows by coordinate, the least explained first.

    Args:
        spec: Names of the coordinates.
        windows: The windows.
        errors: Errors of positions at their end [rad or m], shape [W, nv]; not finite where a roll-out diverged.
        touching: Whether a contact point is in the ground at the start of each window, bool, shape [W].
        noise: Noise of the log's states.
    """
    floor = 2.0**0.5 * noise.q  # noise at both ends of a window
    coordinates = []
    for joint in spec.joints:
        inputs = signals(spec, joint, windows)
        for name in joint.tangent_names:
            k = spec.tangent_names.index(name)
            finite = torch.isfinite(errors[:, k])
            error, contact = errors[finite, k], touching[finite]
            coordinates.append(
                UnexplainedCoordinate(
                    name=name, error=_rms(error) if len(error) else None, noise=float(floor[k]),
                    diverged=int((~finite).sum()), touching=_rms_of_rows(error, contact),
                    air=_rms_of_rows(error, ~contact),
                    with_signals=_correlations(error, {name: value[finite] for name, value in inputs.items()}),
                )
            )  # fmt: skip
    return sorted(coordinates, key=lambda one: (one.diverged, (one.error or 0.0) / max(one.noise, 1e-12)), reverse=True)


def beyond_noise(
    coordinates: Sequence[UnexplainedCoordinate], spec: StateSpec, noise: Noise, seconds: float, times: float
) -> bool:
    """Return whether an error after `seconds` exceeds `times` what noise of all states may explain.

    The noise of velocities is an upper bound: where motion is jerky, its own changes count as noise.
    """
    explained = dict(
        zip(spec.tangent_names, (2.0 * noise.q.square() + (seconds * noise.qd).square()).sqrt(), strict=True)
    )
    return any(one.diverged > 0 or (one.error or 0.0) > times * float(explained[one.name]) for one in coordinates)


def signals(spec: StateSpec, joint: JointSpec, windows: Windows) -> dict[str, Tensor]:
    """Return a joint's signals at the start of windows, which its error may depend on, by name, shape [W] each."""
    values = {f"q.{name}": windows.q[:, 0, spec.q_names.index(name)] for name in joint.q_names}
    for name in joint.qd_names:
        qd = windows.qd[:, 0, spec.qd_names.index(name)]
        values |= {f"qd.{name}": qd, f"sign(qd.{name})": qd.sign()}
    if joint.name in spec.controls:
        values[f"control.{joint.name}"] = windows.control[..., spec.controls.index(joint.name)].mean(1)
    return values


def _correlations(errors: Tensor, inputs: dict[str, Tensor]) -> dict[str, float]:
    correlations = {}
    for name, value in inputs.items():
        both = torch.stack([errors, value])
        if len(errors) > 1 and bool((both.std(1) > 1e-12).all()):
            correlations[name] = float(torch.corrcoef(both)[0, 1])
    strong = sorted((n for n, r in correlations.items() if abs(r) > _LEAST), key=lambda n: -abs(correlations[n]))
    return {name: correlations[name] for name in strong[:_MOST]}


def _touching(dynamics: HybridDynamics, store: Store, windows: Windows) -> Tensor:
    """Return whether a contact point is in the ground at the start of each window, bool, shape [W]."""
    layout = dynamics.contact_points
    ground = environments_of(store, dynamics).at(windows.ground).ground
    if layout is None or ground is None or not layout.contact_points:
        return torch.zeros(windows.count, dtype=torch.bool)
    from neurodyn.geometry.proximity import ProximityQuery

    readings = ProximityQuery(layout)(ground, windows.q[:, 0].float(), windows.qd[:, 0].float())
    radius = torch.tensor([point.radius for point in layout.contact_points])
    return ((readings.distance < radius) & readings.valid).any(-1)


def _rms_of_rows(errors: Tensor, rows: Tensor) -> float | None:
    return _rms(errors[rows]) if int(rows.sum()) >= _ENOUGH else None


def _rms(errors: Tensor) -> float:
    return float(errors.square().mean().sqrt())


NETWORKS_FROM = 100_000
"""Step number at which networks start in the metrics."""

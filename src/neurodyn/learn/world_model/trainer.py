# SPDX-License-Identifier: Apache-2.0
"""Learner of world models: the loss of forecasts from their own predictions, and validation on held-out episodes."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from neurodyn.core.seeds import derive_seed
from neurodyn.core.verdict import Finding, of_data, of_persistence
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, WindowSampler
from neurodyn.dynamics.batch import Window
from neurodyn.dynamics.conditions import world_parameters
from neurodyn.dynamics.ensemble import MARKS
from neurodyn.dynamics.guard import Fault, FaultHistory, report
from neurodyn.dynamics.known_inputs import quantiles
from neurodyn.dynamics.measures import PERSISTENCE
from neurodyn.dynamics.rollout_errors import Ranking, RolloutErrors, beside_baselines
from neurodyn.dynamics.rollouts import ControlSequence, RolloutBatch, context_of, follow, truth_of
from neurodyn.dynamics.world_model.model import WORLD_MODEL, MemberForecasts, WorldModel
from neurodyn.dynamics.world_model.termination import alarms_along, fitted_shift
from neurodyn.learn.budget import TrainState
from neurodyn.learn.devices import current_ranks, require_device
from neurodyn.learn.learner import Validation, WindowLearner
from neurodyn.learn.neural.validation import calibrate, coverage, fit_scales, saturate, widening
from neurodyn.learn.optimiser import MemberParameters, build_optimiser, trainable
from neurodyn.learn.samplers import EndingWindows, EpisodeSampler
from neurodyn.learn.world_model.settings import WorldPhase, WorldSettings


@dataclass(frozen=True)
class EventWeights:
    """Weights of the cross-entropies of contacts and, if predicted, termination.

    Attributes:
        positive: Weight of positive labels, shape [events].
        event: Weight of each event in the loss, shape [events].
    """

    positive: Tensor
    event: Tensor


@dataclass(frozen=True)
class WorldModelLoss:
    """Losses of the members, from windows with the members (or 1 for a shared trunk) as their first axis.

    Attributes:
        model: The model.
        phase: Phase of the training.
        settings: Settings of the training.
        change: Standard deviation of one frame's change, the unit of absolute errors, shape [size].
        weights: Weights of the events.
    """

    model: WorldModel
    phase: WorldPhase
    settings: WorldSettings
    change: Tensor
    weights: EventWeights

    def __call__(self, batch: Windows, ends: EndingWindows | None = None) -> Tensor:
        """Return the losses of whole windows, and of the termination in windows cut off by a failure, [members]."""
        loss = self.change.new_zeros(self.model.members)
        if batch.q.shape[1]:  # without its bad windows, a batch may consist of `ends` alone
            loss = loss + self._of_whole(batch)
        return loss if ends is None else loss + self._of_ends(ends)

    def _of_whole(self, batch: Windows) -> Tensor:
        model, first = self.model, self.phase.context
        states = model.observation.join(batch.q, batch.qd, batch.channels)
        loss = states.new_zeros(model.members)
        if first:
            inputs, top, hidden = model.read(states[:, :, :first], batch.control[:, :, :first])
            if self.phase.teach:
                forecasts = model.one_frame(states[:, :, :first], inputs, top)
                loss = loss + self.phase.teach * self._of_frames(forecasts, batch, states, slice(1, first + 1), False)
        else:
            hidden = model.net.begin(states.shape[1], states)
        isolate = self.phase.loss == "absolute"
        forecasts = model.follow(hidden, states[:, :, first], batch.control[:, :, first:], isolate=isolate)
        return loss + self._of_frames(forecasts, batch, states, slice(first + 1, None), True)

    def _of_frames(
        self, forecasts: MemberForecasts, batch: Windows, states: Tensor, frames: slice, grows: bool
    ) -> Tensor:
        """Return the losses over the frames that are predicted; `grows` is whether from predictions."""
        model, unit = self.model, self.model.scale / self.change
        error = (forecasts.states - states[:, :, frames]) / model.scale
        log_std = model.bound_log_std(forecasts.log_std, grows=grows)
        if self.phase.loss == "absolute":
            values = (error * unit).abs() + negative_log_likelihood(error.detach(), log_std, 0.0)
        else:
            values = negative_log_likelihood(error, log_std, self.settings.beta, unit)
        loss = values[..., model.varying].mean((1, 2, 3))
        return loss if forecasts.logits is None else loss + self._of_events(forecasts.logits, batch, frames)

    def _of_events(self, logits: Tensor, batch: Windows, frames: slice) -> Tensor:
        labels = []
        if batch.contacts is not None:
            labels.append(batch.contacts[:, :, frames])
        if self.model.terminates:
            assert batch.failed is not None  # a model predicts termination only if its data have it
            labels.append(batch.failed[:, :, frames, None].to(logits.dtype))
        truth = torch.cat(labels, -1).expand(self.model.members, -1, -1, -1)
        values = functional.binary_cross_entropy_with_logits(
            logits, truth, pos_weight=self.weights.positive, reduction="none"
        )
        return (values.mean((1, 2)) * self.weights.event).sum(-1)

    def _of_ends(self, ends: EndingWindows) -> Tensor:
        model, windows, first = self.model, ends.windows, self.phase.context
        states = model.observation.join(windows.q, windows.qd, windows.channels)
        hidden = model.net.begin(states.shape[1], states)
        if first:
            hidden = model.read(states[:, :, :first], windows.control[:, :, :first])[2]
        logits = model.follow(hidden, states[:, :, first], windows.control[:, :, first:]).logits
        assert logits is not None  # None only for models without termination
        assert windows.failed is not None  # None only for windows without failures
        assert windows.valid is not None  # None only for windows within an episode
        truth = windows.failed[:, :, first + 1 :].to(logits.dtype).expand(model.members, -1, -1)
        values = functional.binary_cross_entropy_with_logits(
            logits[..., -1], truth, pos_weight=self.weights.positive[-1], reduction="none"
        )
        # The mean over all frames of the forecast, as for whole windows; frames beyond the end count as zero.
        values = (values * windows.valid[:, :, first + 1 :]).mean((1, 2))
        return ends.weight * self.weights.event[-1] * values


def negative_log_likelihood(error: Tensor, log_std: Tensor, beta: float, unit: Tensor | float = 1.0) -> Tensor:
    """Return 1/2 (e / sigma)^2 + log sigma, times (sigma unit)^(2 beta), which has no gradient.

    Args:
        error: Errors e, any shape.
        log_std: Logarithms of the standard deviations sigma, in the unit of the errors.
        beta: Exponent; see `WorldSettings.beta`.
        unit: Factors that make the errors of coordinates comparable.
    """
    values = 0.5 * (error * torch.exp(-log_std)).square() + log_std
    return values * (torch.exp(log_std.detach()) * unit).pow(2.0 * beta) if beta else values


class WorldModelLearner(WindowLearner):
    """Trains a world model in place, and calibrates the best one on the held-out episodes."""

    def __init__(
        self,
        run: Path,
        model: WorldModel,
        data: Store | Mixture,
        settings: WorldSettings,
        change: Tensor,
        weights: EventWeights,
        *,
        device: str = "cpu",
    ) -> None:
        """Prepare a training of a model with its statistics; `change` and `weights`: see `WorldModelLoss`."""
        self.device = require_device(device)
        self._run, self._model = run, model.to(self.device)
        self._data, self._settings, self._change = Mixture.of(data), settings, change.to(self.device)
        self._weights = EventWeights(weights.positive.to(self.device), weights.event.to(self.device))
        self.schedule, self.clip = settings.schedule, settings.clip
        self._validation = WorldValidation(self._data, settings, self.device)

    def start_phase(self, phase: int) -> None:
        """Build optimiser and sampler of a phase."""
        settings, own = self._settings, self._settings.net.trunk == "own"
        self._phase = settings.phases[phase]
        self._loss = WorldModelLoss(self._model, self._phase, settings, self._change, self._weights)
        self._parameters = MemberParameters(self._model, self._model.members)
        groups = trainable(self._parameters.views, self._phase.rate)
        self.set_optimiser(build_optimiser(settings.optimiser, groups, weight_decay=settings.weight_decay))
        self._sampler = EpisodeSampler(
            self._data, self._phase.context, self._phase.forecast, members=self._model.members if own else 1,
            bootstrap=settings.bootstrap and own and self._model.members > 1,
            batch=self._phase.batch * current_ranks().count, seed=settings.seed, phase=phase, device=self.device,
            rows=current_ranks().rows,
        )  # fmt: skip

    def draw(self) -> None:
        """Draw whole windows, and windows cut off by a failure."""
        ends = self._sampler.draw_ends() if self._model.terminates else None
        if ends is not None:
            ends = EndingWindows(self._append_conditions(ends.windows), ends.weight)
        self._batch = (self._append_conditions(self._sampler.draw()), ends)

    def _append_conditions(self, batch: Windows) -> Windows:
        return replace(batch, control=self._model.with_conditions(batch.control, batch.parameters))

    def windows(self) -> int:
        """Return the number of windows of each member, those cut off by a failure last."""
        batch, ends = self._batch
        return batch.q.shape[1] + (0 if ends is None else ends.windows.q.shape[1])

    def keep_windows(self, rows: Tensor) -> None:
        """Replace the batch by the windows at some places of each member's batch."""
        batch, ends = self._batch
        whole = batch.q.shape[1]
        late = rows[rows >= whole] - whole
        if ends is not None:
            ends = EndingWindows(ends.windows.rows((slice(None), late)), ends.weight) if len(late) else None
        self._batch = (batch.rows((slice(None), rows[rows < whole])), ends)

    def report_breakdown(self, row: int) -> None:
        """Report a window on which the model, or its gradient, breaks down."""
        self.keep_windows(torch.tensor([row]))
        batch, ends = self._batch
        windows = batch if batch.q.shape[1] else ends.windows
        run_name, frames = f"training of a world model of {self._model.spec.robot!r}", windows.control.shape[2]
        control = windows.control[..., : self._model.spec.nu]  # without the conditions
        parts = (windows.q, windows.qd, control, windows.channels)
        # The first of the members' windows at this index that is not finite, or the first if all are.
        sound = torch.stack([x[:, 0].isfinite().all((-1, -2)) for x in parts if x is not None]).all(0)
        m = int(sound.int().argmin())
        q, qd, control, channels = (None if x is None else x[m] for x in parts)
        window = Window(q, qd, control, channels)  # pyright: ignore[reportArgumentType]
        fault = Fault(run_name, row, frames, "the gradient", None, None, None)
        report(fault, FaultHistory(self._model.spec, window))

    def loss(self) -> Tensor:
        """Return the loss of the batch, by member."""
        return self._loss(*self._batch)

    def verdicts(self, train_state: TrainState) -> list[Finding]:
        """Judge the amount of data, and the kept model beside trivial baselines."""
        verdicts = [of_data(*self._data.amount(Split.TRAIN))]
        if train_state.broken < 1.0:
            verdicts += self._validation.beside_baselines(WORLD_MODEL.load(self._run).to(self.device))
        return verdicts

    def validate(self, train_state: TrainState) -> Validation:
        """Roll out along held-out windows."""
        error = self._validation.measure(self._model)
        values = {
            "rollout": dict(zip(self._model.observation.names, error.columns, strict=True)),
            "within_two_sigma": error.coverage,
        }
        shown = f"held-out roll-out error: {error.ranking.error:.3g} standard deviations"
        return Validation.of_ranking(error.ranking, values, shown)

    def keep(self, train_state: TrainState) -> None:
        """Write the model to the run directory."""
        if train_state.step:  # a base model is already fitted
            self._model.fitted.fill_(True)
        WORLD_MODEL.save(self._run, self._model)

    def finish(self, train_state: TrainState) -> None:
        """Calibrate the best model on more held-out windows, and keep what it has seen."""
        best = WORLD_MODEL.load(self._run).to(self.device)
        if train_state.best_step or not best.known_inputs.fitted:  # a base that was kept has learned nothing
            best.remember_inputs(self._data, self._model, self._settings.seed)
        self._validation.calibrate(best)
        WORLD_MODEL.save(self._run, best)


_CALIBRATION = 1024
_FEW_EPISODES, _MOST_EPISODES = 8, 64
"""Held-out episodes below which bands widen by the spread between training episodes, and most of these."""
_MARKS = (1, 10, 50, 100)


@dataclass(frozen=True)
class WorldError:
    """Errors of open-loop roll-outs, means over all frames and finite roll-outs.

    Attributes:
        ranking: Share of roll-outs that are not finite, and the mean absolute error of the others over all coordinates,
            each over its standard deviation in the training data; that of a roll-out saturates at
            `validation.SATURATION`.
        columns: Mean absolute error of each coordinate, in its unit, shape [size].
        coverage: Share of the measurements within two standard deviations, by frame of the forecast.
    """

    ranking: Ranking
    columns: tuple[float, ...]
    coverage: dict[str, float]


class WorldValidation:
    """A fixed set of held-out windows, rolled out open loop."""

    def __init__(self, data: Store | Mixture, settings: WorldSettings, device: torch.device) -> None:
        """Draw the windows; without a held-out episode that is longer than the context, raise an InputError."""
        self._data = Mixture.of(data)
        longest = self._data.longest(Split.VALIDATION)
        self.context = settings.context
        self._frames = max(min(self.context + settings.validation_frames, longest), self.context + 1)
        self._settings, self._device = settings, device
        self._batch = self._draw(settings.validation_rollouts, "validation")

    @torch.no_grad()
    def measure(self, model: WorldModel) -> WorldError:
        """Roll the model out along the held-out windows."""
        compared = self._compare(model, self._batch)
        error, finite = compared.columns, compared.finite
        by_rollout = (error.abs() / model.state_scale)[..., model.varying].mean((1, 2))
        within = coverage(error[finite], _deviation(compared)[finite], 2.0)[:, model.varying].mean(-1)
        return WorldError(
            ranking=Ranking.of(saturate(by_rollout)),
            columns=tuple(error[finite].abs().mean((0, 1)).tolist()),
            coverage={str(mark): float(within[mark - 1]) for mark in _MARKS if mark <= len(within)},
        )

    @torch.no_grad()
    def beside_baselines(self, model: WorldModel) -> list[Finding]:
        """Judge the model beside trivial baselines on the held-out windows; without joints, all columns together."""
        compared = self._compare(model, self._batch)
        if model.spec.joints:
            return beside_baselines(compared)
        mine, theirs = (
            float((one.columns.abs() / model.state_scale)[one.finite][..., model.varying].mean())
            for one in (compared, compared.baseline(PERSISTENCE))
        )
        seconds = compared.frames * model.spec.dt
        return [of_persistence(mine, theirs, f"error in standard deviations up to {seconds:.3g} s ahead")]

    @torch.no_grad()
    def calibrate(self, model: WorldModel) -> None:
        """Fit the factors of the standard deviations, and the shift of the termination, to more windows.

        How much their histories contradict the model becomes the measure for other histories.

        Few held-out episodes are few motions: bands then widen by how much these differ (`validation.widening`).
        """
        model.calibration_scales.fill_(1.0)
        windows = self._draw(_CALIBRATION, "calibration")
        compared = self._compare(model, windows)
        held_out = sum(len(episodes_of(store, Split.VALIDATION)) for store in self._data.stores)
        wider = widening(self._by_run(model), held_out)[:, None] if held_out < _FEW_EPISODES else 1.0
        calibrate(model, compared.columns, _deviation(compared), wider)
        past, around = context_of(windows), world_parameters(model.conditions, windows.parameters)
        if isinstance(past, Window):
            model.known_inputs.contradictions = quantiles(model.contradiction(past, around))
        if model.terminates:
            model.termination_shift = 0.0
            alarms = alarms_along(model, self._data.stores, Split.VALIDATION, self.context)
            model.termination_shift = fitted_shift(alarms)

    def _draw(self, count: int, name: str) -> Windows:
        seed = derive_seed(self._settings.seed, name)
        return (
            MixtureSampler(
                self._data, self._frames, split=Split.VALIDATION, batch=count, seed=seed, device=self._device
            )
            .draw_together()
            .after(self.context)
        )

    def _by_run(self, model: WorldModel) -> Tensor:
        """Return the factor of each training episode, of all columns together, shape [episodes, marks]."""
        known = [
            (store, episode) for store in self._data.stores for episode in episodes_of(store, Split.TRAIN).tolist()
            if store.lengths[episode] >= self._frames
        ]  # fmt: skip
        known = known[:: max(1, -(-len(known) // _MOST_EPISODES))]
        factors = [torch.ones(0, len(MARKS), device=self._device)]
        for number, (store, episode) in enumerate(known):
            windows = WindowSampler(
                store, self._frames, batch=max(1, _CALIBRATION // len(known)), device=self._device,
                seed=derive_seed(self._settings.seed, "by run", number), episodes=np.array([episode]),
            ).draw().after(self.context)  # fmt: skip
            compared = self._compare(model, windows)
            error, spread = (
                x[..., model.varying].transpose(1, 2).flatten(0, 1)[..., None]
                for x in (compared.columns, _deviation(compared))
            )
            factors.append(fit_scales(error, spread).T)
        return torch.cat(factors)

    def _compare(self, model: WorldModel, windows: Windows) -> RolloutErrors:
        around = world_parameters(model.conditions, windows.parameters)
        starts = RolloutBatch(context_of(windows), ControlSequence(torque=windows.control), around)
        return RolloutErrors(model.spec, follow(model, starts), truth_of(windows))


def _deviation(compared: RolloutErrors) -> Tensor:
    """Return the predicted standard deviations of roll-outs, shape [worlds, T, size]."""
    aleatoric, epistemic = compared.predicted.aleatoric, compared.predicted.epistemic
    assert aleatoric is not None  # world models predict both
    assert epistemic is not None
    return torch.hypot(aleatoric, epistemic)

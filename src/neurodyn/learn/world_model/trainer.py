# SPDX-License-Identifier: Apache-2.0
"""Training of world models: windows of each member, their losses, validation by roll-out, calibration at the end."""

from pathlib import Path
from typing import Any

import torch

from neurodyn.data.store import Store
from neurodyn.dynamics.world_model.artifact import WORLD_MODEL
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.learn.devices import threads
from neurodyn.learn.loop import PhasedTraining, Position
from neurodyn.learn.metrics import MetricsLog, Progress
from neurodyn.learn.optimiser import build_optimiser
from neurodyn.learn.world_model.bootstrap import MemberSampler
from neurodyn.learn.world_model.loss import EventWeights, world_model_loss
from neurodyn.learn.world_model.member_parameters import MemberParameters
from neurodyn.learn.world_model.settings import WorldPhase, WorldSettings
from neurodyn.learn.world_model.validation import WorldValidation


class WorldTrainer(PhasedTraining):
    """Trains a world model; see `PhasedTraining`. At the end the best one is calibrated on the held-out episodes."""

    _sampler: MemberSampler

    def __init__(
        self,
        run: Path,
        model: WorldModel,
        store: Store,
        settings: WorldSettings,
        change: torch.Tensor,
        weights: EventWeights,
        *,
        device: str = "cpu",
    ) -> None:
        """Prepare a training.

        Args:
            run: Run directory.
            model: The model, with its statistics.
            store: The trajectories.
            settings: How to train.
            change: Standard deviation of one frame's change, shape [size].
            weights: Weights of contacts and termination.
            device: Torch device that trains.
        """
        super().__init__(run, model, store, settings, device=device)
        self._model, self._settings = model, settings
        self._change = change.to(self._device)
        self._weights = EventWeights(weights.positive.to(self._device), weights.event.to(self._device))
        self._validation = WorldValidation(store, settings, self._device)
        self._enter_phase()

    def run(self, progress: Progress | None = None) -> Position:
        """Train to the end of the budget; the best model is then calibrated on more held-out windows."""
        end = super().run(progress)
        with threads(self._settings.threads):
            best = WORLD_MODEL.load(self._run).to(self._device)
            self._validation.calibrate(best)
            WORLD_MODEL.save(self._run, best)
        return end

    @property
    def _phase(self) -> WorldPhase:
        return self._settings.phases[self._at.phase]

    def _enter_phase(self) -> None:
        phase, settings, own = self._phase, self._settings, self._settings.net.trunk == "own"
        self._parameters = MemberParameters(self._model, self._model.members)
        self._optimiser = build_optimiser(self._parameters.views, settings, phase)
        self._sampler = MemberSampler(
            self._store,
            phase.window,
            members=self._model.members if own else 1,
            bootstrap=settings.bootstrap and own and self._model.members > 1,
            batch=phase.batch,
            seed=settings.seed,
            phase=self._at.phase,
            device=self._device,
        )

    def _descend(self, phase: WorldPhase) -> torch.Tensor:
        self._model.zero_grad(set_to_none=True)
        batch = self._sampler.draw()
        losses = world_model_loss(self._model, batch, phase, self._settings, self._change, self._weights)
        losses.sum().backward()
        self._apply(self._parameters.take_gradients(self._settings.clip))
        return losses.detach().mean()

    def _stop_early(self) -> bool:
        patience = self._settings.patience
        return patience is not None and self._at.stale >= patience

    def _validate(self, metrics: MetricsLog, loss: float, rate: float, progress: Progress | None = None) -> None:
        at, error = self._at, self._validation.measure(self._model)
        at.stale += 1
        if error.score < at.best or at.step == 0:
            at.best, at.stale = error.score, 0
            self._model.fitted.fill_(at.step > 0)
            WORLD_MODEL.save(self._run, self._model)
        values: dict[str, Any] = {
            **self._standing(loss, rate, error.score),
            "rollout": dict(zip(self._model.observation.names, error.columns, strict=True)),
            "within_two_sigma": error.coverage,
        }
        metrics.write(at.step, **values)
        if progress is not None:
            progress.update(self._overall(), f"held-out roll-out error: {error.score:.3g} spreads")

# SPDX-License-Identifier: Apache-2.0
"""Training of neural dynamics: its windows, its loss, and validation by roll-out."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from neurodyn.core.seeds import derive_seed
from neurodyn.core.spec import StateSpec
from neurodyn.data.store import Store
from neurodyn.data.windows import WindowSampler
from neurodyn.dynamics.neural.artifact import NEURAL
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.learn.loop import PhasedTraining, Position, has_state
from neurodyn.learn.metrics import MetricsLog, Progress
from neurodyn.learn.neural.loss import Scale, training_loss
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.validation import Validation
from neurodyn.learn.optimiser import build_optimiser

__all__ = ["Position", "Trainer", "has_state"]


class Trainer(PhasedTraining):
    """Trains neural dynamics; see `PhasedTraining`."""

    _sampler: WindowSampler

    def __init__(
        self,
        run: Path,
        model: NeuralDynamics,
        store: Store,
        settings: Settings,
        scale: Scale,
        *,
        device: str = "cpu",
    ) -> None:
        super().__init__(run, model, store, settings, device=device)
        self._model = model
        self._settings, self._scale = settings, scale.to(self._device)
        self._validation = Validation(store, settings, self._device)
        self._environments = RecordedEnvironments(store, self._device)
        self._enter_phase()

    @property
    def _phase(self) -> Phase:
        return self._settings.phases[self._at.phase]

    def _enter_phase(self) -> None:
        phase, settings = self._phase, self._settings
        self._optimiser = build_optimiser(self._model.parameters(), settings, phase)
        self._sampler = WindowSampler(
            self._store,
            phase.window,
            batch=phase.batch,
            seed=derive_seed(settings.seed, "batches", self._at.phase),
            device=self._device,
        )

    def _descend(self, phase: Phase) -> torch.Tensor:
        self._optimiser.zero_grad(set_to_none=True)
        batch = self._sampler.draw()
        loss = training_loss(self._model, batch, phase, self._scale, self._environments.of(batch))
        loss.backward()
        self._apply(nn.utils.clip_grad_norm_(self._model.parameters(), self._settings.clip))
        return loss.detach()

    def _validate(self, metrics: MetricsLog, loss: float, rate: float, progress: Progress | None = None) -> None:
        at, error = self._at, self._validation.measure(self._model)
        if error.score < at.best or at.step == 0:
            at.best = error.score
            NEURAL.save(self._run, self._model)
        values: dict[str, Any] = {
            **self._standing(loss, rate, error.score),
            "rollout_q": dict(zip(self._model.spec.tangent_names, error.q, strict=True)),
            "rollout_qd": dict(zip(self._model.spec.qd_names, error.qd, strict=True)),
        }
        metrics.write(at.step, **values)
        if progress is not None:
            shown = "  ".join(f"{name} {value:.2g} {unit}" for name, value, unit in _by_size(self._model.spec, error.q))
            progress.update(self._overall(), f"held-out roll-out error: {shown}")


def _by_size(spec: StateSpec, errors: tuple[float, ...], most: int = 4) -> list[tuple[str, float, str]]:
    """Return name, error and unit of the positions; of many, the largest."""
    named = list(zip(spec.tangent_names, errors, spec.tangent_units, strict=True))
    return named if len(named) <= most else sorted(named, key=lambda entry: -entry[1])[:most]

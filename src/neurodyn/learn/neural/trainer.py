# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics in training: their windows, their loss, and validation by roll-out."""

from pathlib import Path
from typing import Any

from torch import Tensor

from neurodyn.core.seeds import derive_seed
from neurodyn.core.spec import StateSpec
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.store import Store
from neurodyn.data.stored_rows import IN_MEMORY
from neurodyn.dynamics.neural.artifact import NEURAL
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.learn.devices import require_device
from neurodyn.learn.learner import Validation, WindowLearner
from neurodyn.learn.loop import TrainState
from neurodyn.learn.neural.loss import Scale, training_loss
from neurodyn.learn.neural.settings import Settings
from neurodyn.learn.neural.validation import RolloutValidation
from neurodyn.learn.optimiser import build_optimiser, trainable


class NeuralLearner(WindowLearner):
    """Trains neural dynamics in place and keeps the best by held-out roll-outs."""

    def __init__(
        self,
        run: Path,
        model: NeuralDynamics,
        store: Store | Mixture,
        settings: Settings,
        scale: Scale,
        *,
        device: str = "cpu",
    ) -> None:
        self._device = require_device(device)
        self._run, self._model = run, model.to(self._device)
        self._data, self._settings, self._scale = Mixture.of(store), settings, scale.to(self._device)
        self.schedule, self.clip = settings.schedule, settings.clip
        self._validation = RolloutValidation(self._data, settings, self._device)
        self._environments = [RecordedEnvironments(part, self._device) for part in self._data.stores]

    def enter(self, phase: int) -> None:
        """Make optimiser and sampler of a phase."""
        self._phase, settings = self._settings.phases[phase], self._settings
        groups = trainable(self._model.parameters(), self._phase.rate)
        self.set_optimiser(build_optimiser(settings.optimiser, groups, weight_decay=settings.weight_decay))
        self._sampler = MixtureSampler(
            self._data,
            self._phase.window,
            batch=self._phase.batch,
            seed=derive_seed(settings.seed, "batches", phase),
            device=self._device,
            stream=IN_MEMORY,
        )

    def loss(self) -> Tensor:
        """Return the loss of the batch."""
        parts = [(batch, self._environments[number].of(batch)) for number, batch in self._batch]
        return training_loss(self._model, parts, self._phase, self._scale)

    def validate(self, at: TrainState) -> Validation:
        """Roll out along held-out windows."""
        error, spec = self._validation.measure(self._model), self._model.spec
        values = {
            "rollout_q": dict(zip(spec.tangent_names, error.q, strict=True)),
            "rollout_qd": dict(zip(spec.qd_names, error.qd, strict=True)),
        }
        shown = "  ".join(f"{name} {value:.2g} {unit}" for name, value, unit in _by_size(spec, error.q))
        return Validation(error.score, values, f"held-out roll-out error: {shown}")

    def finish(self, at: TrainState) -> None:
        """Say so where the network brought nothing."""
        base = self._validation.base_score(self._model)
        nothing = base is not None and at.best is not None and at.best >= base
        at.note = (
            "the network adds nothing to its base on held-out episodes: the base alone is as good" if nothing else ""
        )

    def closing(self, at: TrainState) -> dict[str, Any]:
        """Return the best score beside that of the base alone, where that leaves nothing out."""
        base = self._validation.base_score(self._model)
        return {} if base is None else {"base_score": base, "best_score": at.best}

    def keep(self, at: TrainState) -> None:
        """Write the model to the run directory."""
        NEURAL.save(self._run, self._model)


def _by_size(spec: StateSpec, errors: tuple[float, ...], most: int = 4) -> list[tuple[str, float, str]]:
    """Return name, error and unit of the positions; of many, the largest."""
    named = list(zip(spec.tangent_names, errors, spec.tangent_units, strict=True))
    return named if len(named) <= most else sorted(named, key=lambda entry: -entry[1])[:most]

# SPDX-License-Identifier: Apache-2.0
"""Validation of world models by roll-outs on held-out episodes, and their calibration."""

from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.store import Store
from neurodyn.data.windows import Batch
from neurodyn.dynamics.batch import Window
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.dynamics.world_model.termination import alarms_along, fitted_shift
from neurodyn.learn.neural.validation import WORST, calibrate, coverage
from neurodyn.learn.world_model.settings import WorldSettings

_CALIBRATION = 1024
_MARKS = (1, 10, 50, 100)


@dataclass(frozen=True)
class WorldError:
    """Errors of open-loop roll-outs, means over all frames and roll-outs.

    Attributes:
        score: Mean absolute error of all coordinates, each over its standard deviation in the training data. A roll-out
            counts with at most `validation.WORST`.
        columns: Mean absolute error of each coordinate, in its unit, shape [size].
        coverage: Share of the measurements within two standard deviations, by frame of the forecast.
    """

    score: float
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
        error, deviation = self._errors(model, self._batch)
        by_rollout = (error.abs() / model.state_scale)[..., model.varying].mean((1, 2))
        within = coverage(error, deviation, 2.0)[:, model.varying].mean(-1)
        return WorldError(
            score=float(by_rollout.nan_to_num(WORST, WORST).clamp_max(WORST).mean()),
            columns=tuple(error.abs().mean((0, 1)).tolist()),
            coverage={str(mark): float(within[mark - 1]) for mark in _MARKS if mark <= len(within)},
        )

    @torch.no_grad()
    def calibrate(self, model: WorldModel) -> None:
        """Fit the factors of the standard deviations, and the shift of the termination, to more windows."""
        model.calibration_scales.fill_(1.0)
        parts = self._draw(_CALIBRATION, "calibration")
        calibrate(model, *self._errors(model, parts))
        if model.terminates:
            model.termination_shift = 0.0
            alarms = alarms_along(model, self._data.stores, Split.VALIDATION, self.context)
            model.termination_shift = fitted_shift(alarms)

    def _draw(self, count: int, name: str) -> Batch:
        seed = derive_seed(self._settings.seed, name)
        return MixtureSampler(
            self._data, self._frames, split=Split.VALIDATION, batch=count, seed=seed, device=self._device
        ).draw_joined()

    def _errors(self, model: WorldModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return errors and predicted standard deviations, shape [worlds, T, size]."""
        first = self.context
        channels = None if batch.channels is None else batch.channels[:, : first + 1]
        past = Window(batch.q[:, : first + 1], batch.qd[:, : first + 1], batch.control[:, :first], channels)
        found = model.rollout(past, batch.control[:, first:])
        truth = model.observation.join(batch.q, batch.qd, batch.channels)[:, first + 1 :]
        error = model.observation.join(found.q, found.qd, found.channels)[:, 1:] - truth
        assert found.aleatoric is not None  # world models predict both
        assert found.epistemic is not None
        return error, torch.hypot(found.aleatoric, found.epistemic)

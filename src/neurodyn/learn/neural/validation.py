# SPDX-License-Identifier: Apache-2.0
"""Validation of neural dynamics by roll-outs on held-out episodes, and calibration of standard deviations."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.store import Store
from neurodyn.data.windows import Batch
from neurodyn.dynamics.batch import Environment, RecordedEnvironments, Trajectory, Window
from neurodyn.dynamics.coordinates import coordinate_difference, position_difference
from neurodyn.dynamics.ensemble import MARKS
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.learn.neural.settings import Settings

if TYPE_CHECKING:
    from neurodyn.dynamics.world_model.model import WorldModel

WITHIN_TWO = 0.9545
"""Share of a normal distribution within two standard deviations."""

_LEAST, _MOST = 1e-2, 1e3


def coverage(error: Tensor, deviation: Tensor, sigmas: float) -> Tensor:
    """Return the share of errors within `sigmas` predicted standard deviations, [worlds, T, size] -> [T, size]."""
    return (error.abs() <= sigmas * deviation).double().mean(0)


def fit_scales(error: Tensor, deviation: Tensor) -> Tensor:
    """Return factors on predicted standard deviations such that two of them cover `WITHIN_TWO` of the errors.

    Args:
        error: Errors of held-out roll-outs, shape [worlds, T, size].
        deviation: Predicted standard deviations without factors, of the same shape.

    Returns:
        Factors at `MARKS`, shape [marks, size]; marks beyond T have the factor at T.
    """
    frames, rows = error.shape[1], []
    for mark in MARKS:
        frame = min(mark, frames) - 1
        ratio = (error[:, frame].abs() / deviation[:, frame].clamp_min(1e-12)).double().nan_to_num(_MOST, _MOST)
        rows.append(torch.quantile(ratio, WITHIN_TWO, dim=0) / 2.0)
    return torch.stack(rows).clamp(_LEAST, _MOST).to(error.dtype)


@torch.no_grad()
def calibrate(model: "WorldModel | NeuralDynamics", error: Tensor, deviation: Tensor) -> None:
    """Store calibration factors in a model; arguments: see `fit_scales`."""
    model.calibration_scales.copy_(fit_scales(error, deviation))


_CALIBRATION = 512

WORST = 10.0
"""Largest score of a roll-out, in standard deviations of the training data."""

NEGLIGIBLE = 1e-3
"""Negligible error of a roll-out, in standard deviations of the training data."""


@dataclass(frozen=True)
class RolloutError:
    """Errors of open-loop roll-outs, means over all frames and roll-outs.

    Attributes:
        score: Mean absolute error of all coordinates, each over its standard deviation in the training data. The error
            of a roll-out is clipped at `WORST`, also if it is not finite. With a whole base the score is at least that
            of the base, times the geometric mean over roll-outs of the ratio of their errors: a model with a lower
            score than the base is better on average and in most roll-outs.
        q: Mean absolute error of each position [rad or m], by degree of freedom, shape [nv].
        qd: Mean absolute error of each velocity [rad/s or m/s], shape [nv].
    """

    score: float
    q: tuple[float, ...]
    qd: tuple[float, ...]


class RolloutValidation:
    """A fixed set of held-out windows, rolled out open loop."""

    def __init__(self, store: Store | Mixture, settings: Settings, device: torch.device | None = None) -> None:
        data = Mixture.of(store)
        self._context = max(phase.context for phase in settings.phases)
        frames = min(self._context + settings.validation_frames, data.longest(Split.VALIDATION))
        self._data, self._frames, self._device = data, max(frames, self._context + 1), device or "cpu"
        self._seed = settings.seed
        self._parts = self._draw(settings.validation_rollouts, "validation")
        self._q_scale = self._position_scale(data, device)
        self._qd_scale = _deviation(data.sampled_columns("qd", Split.TRAIN), device)
        self._of_base: Tensor | None = None

    def measure(self, model: NeuralDynamics) -> RolloutError:
        """Roll the model out along the held-out windows."""
        errors, q, qd = self._rolled_out(model)
        score = score_of(errors, self._base_errors(model))
        return RolloutError(score, tuple(q.mean((0, 1)).tolist()), tuple(qd.mean((0, 1)).tolist()))

    def base_score(self, model: NeuralDynamics) -> float | None:
        """Return the score of the model's base alone; None without a base, or if the base is not whole."""
        base = self._base_errors(model)
        return None if base is None else float(base.mean())

    def _base_errors(self, model: NeuralDynamics) -> Tensor | None:
        """Return the errors of roll-outs of the base alone, shape [rollouts]."""
        if self._of_base is None and isinstance(model, NeuralDynamics) and model.encoding.base_is_whole:
            self._of_base, _, _ = self._rolled_out(model.base_alone())
        return self._of_base

    @torch.no_grad()
    def _rolled_out(self, model: NeuralDynamics) -> tuple[Tensor, Tensor, Tensor]:
        """Return the error of each roll-out [rollouts], and of its positions and velocities [rollouts, T, nv]."""
        errors = [self._errors(model, batch, environment) for batch, environment in self._parts]
        q, qd = (torch.cat(parts) for parts in zip(*errors, strict=True))
        errors = torch.cat([q / self._q_scale, qd / self._qd_scale], -1).mean((1, 2))
        return errors.nan_to_num(WORST, WORST).clamp_max(WORST), q, qd

    @torch.no_grad()
    def calibrate(self, model: NeuralDynamics) -> None:
        """Fit the factors of a model's epistemic standard deviation to other held-out windows."""
        model.calibration_scales.fill_(1.0)
        errors, spreads = [], []
        for batch, environment in self._draw(_CALIBRATION, "calibration"):
            predicted = self._rolled(model, batch, environment)
            assert predicted.epistemic is not None  # a model with members predicts it
            q = coordinate_difference(model.spec, predicted.q, batch.q[:, self._context :])
            errors.append(torch.cat([q, predicted.qd - batch.qd[:, self._context :]], -1)[:, 1:])
            spreads.append(predicted.epistemic)
        calibrate(model, torch.cat(errors), torch.cat(spreads))

    def _draw(self, count: int, name: str) -> list[tuple[Batch, Environment]]:
        seed = derive_seed(self._seed, name)
        sampler = MixtureSampler(
            self._data, self._frames, split=Split.VALIDATION, batch=count, seed=seed, device=self._device
        )
        environments = [
            RecordedEnvironments(part, self._device, tuple(part.header.parameters)) for part in self._data.stores
        ]
        return [(batch, environments[number].of(batch)) for number, batch in sampler.draw()]

    def _rolled(self, model: NeuralDynamics, batch: Batch, environment: Environment) -> Trajectory:
        first = self._context
        past = Window(batch.q[:, : first + 1], batch.qd[:, : first + 1], batch.control[:, :first])
        return model.rollout(past if first else past.present, batch.control[:, first:], environment)

    def _errors(self, model: NeuralDynamics, batch: Batch, environment: Environment) -> tuple[Tensor, Tensor]:
        """Return absolute errors of positions and velocities, shape [rollouts, T, nv]."""
        first, predicted = self._context, self._rolled(model, batch, environment)
        q = position_difference(model.spec, predicted.q, batch.q[:, first:])[:, 1:].abs()
        return q, (predicted.qd - batch.qd[:, first:])[:, 1:].abs()

    def _position_scale(self, data: Mixture, device: torch.device | None) -> Tensor:
        spec, first = data.header.spec, self._context
        if spec.nq == spec.nv:
            return _deviation(data.sampled_columns("q", Split.TRAIN), device)
        # The position of a floating base does not scale with its motion.
        q = torch.cat([batch.q for batch, _ in self._parts])
        moved = position_difference(spec, q[:, first + 1 :], q[:, first : first + 1])
        return moved.square().mean((0, 1)).sqrt().clamp_min(1e-6)


def score_of(errors: Tensor, base: Tensor | None) -> float:
    """Return the score (see `RolloutError`) from roll-out errors of a model and its whole base, both [rollouts]."""
    if base is None:
        return float(errors.mean())
    ratio = ((errors + NEGLIGIBLE) / (base + NEGLIGIBLE)).log().mean().exp()
    return float(torch.maximum(errors.mean(), ratio * base.mean()))


def _deviation(values: np.ndarray, device: torch.device | None) -> Tensor:
    return torch.from_numpy(values).double().std(0).float().clamp_min(1e-6).to(device or "cpu")

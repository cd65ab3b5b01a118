# SPDX-License-Identifier: Apache-2.0
"""Validation of neural dynamics by roll-outs on held-out episodes, and calibration of standard deviations."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.seeds import derive_seed
from neurodyn.core.verdict import Finding
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import RecordedEnvironments
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.ensemble import MARKS
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.rollout_errors import Ranking, RolloutErrors, beside_baselines
from neurodyn.dynamics.rollouts import roll_along, truth_of
from neurodyn.learn.neural.settings import Settings

if TYPE_CHECKING:
    from neurodyn.dynamics.world_model.model import WorldModel

NOMINAL, SIGMAS = 0.9, 1.6449
"""Share of errors that calibrated bands cover, and their half width in standard deviations of a normal distribution."""

_LEAST, _MOST = 1e-2, 1e3


def coverage(error: Tensor, deviation: Tensor, sigmas: float) -> Tensor:
    """Return the share of errors within `sigmas` predicted standard deviations, [worlds, T, size] -> [T, size]."""
    return (error.abs() <= sigmas * deviation).double().mean(0)


def fit_scales(error: Tensor, deviation: Tensor) -> Tensor:
    """Return factors on predicted standard deviations such that `SIGMAS` of them cover `NOMINAL` of the errors.

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
        rows.append(torch.quantile(ratio, NOMINAL, dim=0) / SIGMAS)
    return torch.stack(rows).clamp(_LEAST, _MOST).to(error.dtype)


def widening(by_run: Tensor, held_out: int) -> Tensor:
    """Return factors on bands that were fitted to few held-out runs, so that they cover `NOMINAL` of other runs, too.

    The factors of single runs are taken as log-normal, with a variance s^2 that is estimated from `by_run`. The factor
    of n held-out runs misses that of all runs with a variance of s^2 / n, and these runs together show only
    (1 - 1 / n) s^2 of the variance between runs. Errors of another run, in bands of all of them, thus are normal with a
    log-normal scale whose variance is 2 s^2 / n.

    Args:
        by_run: Factors of single runs, shape [runs, marks].
        held_out: Number n of held-out runs.

    Returns:
        Factors, shape [marks]; 1 for a single run, from which no spread can be told.
    """
    if len(by_run) < 2:
        return by_run.new_ones(by_run.shape[1])
    spread = by_run.double().log().std(0) * math.sqrt(2.0 / held_out)
    at = torch.linspace(-4.0, 4.0, 201, dtype=torch.float64)
    weight = torch.softmax(-0.5 * at.square(), 0)
    scale = torch.exp(-spread[:, None] * at)
    lower, upper = torch.ones_like(spread), torch.full_like(spread, _MOST)
    for _ in range(40):
        middle = (lower * upper).sqrt()
        covered = (torch.erf(SIGMAS / math.sqrt(2.0) * middle[:, None] * scale) * weight).sum(-1)
        lower, upper = torch.where(covered < NOMINAL, middle, lower), torch.where(covered < NOMINAL, upper, middle)
    return upper.to(by_run.dtype)


@torch.no_grad()
def calibrate(
    model: "WorldModel | NeuralDynamics", error: Tensor, deviation: Tensor, wider: Tensor | float = 1.0
) -> None:
    """Store calibration factors in a model, times `wider` ([marks, 1]); other arguments: see `fit_scales`."""
    model.calibration_scales.copy_(fit_scales(error, deviation) * wider)


_CALIBRATION = 512

SATURATION = 10.0
"""Error of a roll-out above which a larger one is no worse, in standard deviations of the training data."""

NEGLIGIBLE = 1e-3
"""Negligible error of a roll-out, in standard deviations of the training data."""


@dataclass(frozen=True)
class RolloutScore:
    """Errors of open-loop roll-outs, means over all frames and finite roll-outs.

    Attributes:
        ranking: Share of roll-outs that are not finite, and the mean absolute error of the others over all coordinates,
            each over its standard deviation in the training data; the error of a roll-out saturates at `SATURATION`.
            With a whole base the error is at least that of the base, times the geometric mean over roll-outs of the
            ratio of their errors: a model with a lower score than the base is better on average and in most roll-outs.
        q: Mean absolute error of each position [rad or m], by degree of freedom, shape [nv].
        qd: Mean absolute error of each velocity [rad/s or m/s], shape [nv].
    """

    ranking: Ranking
    q: tuple[float, ...]
    qd: tuple[float, ...]


def saturate(errors: Tensor) -> Tensor:
    """Return the errors of roll-outs, shape [rollouts], at most `SATURATION` where they are finite."""
    return torch.where(errors.isfinite(), errors.clamp_max(SATURATION), errors)


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

    def measure(self, model: NeuralDynamics) -> RolloutScore:
        """Roll the model out along the held-out windows."""
        scores, compared = self._roll_out(model)
        finite = torch.cat([one.finite for one in compared])
        q, qd = (
            torch.cat([getattr(one, name).abs() for one in compared])[finite].mean((0, 1)).tolist()
            for name in ("tangents", "velocities")
        )
        return RolloutScore(rank(scores, self._base_scores(model)), tuple(q), tuple(qd))

    def beside_baselines(self, model: NeuralDynamics) -> list[Finding]:
        """Judge the model beside trivial baselines on the held-out windows of the first store."""
        with torch.no_grad():
            return beside_baselines(_compare(model, *self._parts[0]))

    def base_ranking(self, model: NeuralDynamics) -> Ranking | None:
        """Return the rank of the model's base alone; None without a base, or if the base is not whole."""
        base = self._base_scores(model)
        return None if base is None else Ranking.of(base)

    def _base_scores(self, model: NeuralDynamics) -> Tensor | None:
        """Return the errors of roll-outs of the base alone, shape [rollouts]."""
        if self._of_base is None and isinstance(model, NeuralDynamics) and model.encoding.base_is_whole:
            self._of_base, _ = self._roll_out(model.base_alone())
        return self._of_base

    @torch.no_grad()
    def _roll_out(self, model: NeuralDynamics) -> tuple[Tensor, list[RolloutErrors]]:
        """Return the error of each roll-out in standard deviations, shape [rollouts], and the roll-outs by store."""
        compared = [_compare(model, *part) for part in self._parts]
        scaled = [torch.cat([e.tangents / self._q_scale, e.velocities / self._qd_scale], -1) for e in compared]
        errors = torch.cat([part.abs().mean((1, 2)) for part in scaled])
        return saturate(errors), compared

    @torch.no_grad()
    def calibrate(self, model: NeuralDynamics) -> None:
        """Fit the factors of a model's epistemic standard deviation to other held-out windows."""
        model.calibration_scales.fill_(1.0)
        errors, deviations = [], []
        for part in self._draw(_CALIBRATION, "calibration"):
            compared = _compare(model, *part)
            assert compared.predicted.epistemic is not None  # a model with members predicts it
            errors.append(compared.columns)
            deviations.append(compared.predicted.epistemic)
        calibrate(model, torch.cat(errors), torch.cat(deviations))

    def _draw(self, count: int, name: str) -> list[tuple[Windows, RecordedEnvironments]]:
        seed = derive_seed(self._seed, name)
        sampler = MixtureSampler(
            self._data, self._frames, split=Split.VALIDATION, batch=count, seed=seed, device=self._device
        )
        environments = [
            RecordedEnvironments(part, self._device, tuple(part.header.parameters)) for part in self._data.stores
        ]
        return [(batch.after(self._context), environments[number]) for number, batch in sampler.draw()]

    def _position_scale(self, data: Mixture, device: torch.device | None) -> Tensor:
        spec = data.header.spec
        if spec.nq == spec.nv:
            return _deviation(data.sampled_columns("q", Split.TRAIN), device)
        # The position of a floating base does not scale with its motion.
        q = torch.cat([windows.q for windows, _ in self._parts])
        motion = position_difference(spec, q[:, 1:], q[:, :1])
        return motion.square().mean((0, 1)).sqrt().clamp_min(1e-6)


def _compare(model: NeuralDynamics, windows: Windows, environments: RecordedEnvironments) -> RolloutErrors:
    return RolloutErrors(model.spec, roll_along(model, windows, environments), truth_of(windows))


def rank(errors: Tensor, base: Tensor | None) -> Ranking:
    """Return the rank (see `RolloutScore`) from roll-out errors of a model and its whole base, both [rollouts]."""
    ranking = Ranking.of(errors)
    if base is None:
        return ranking
    both = errors.isfinite() & base.isfinite()
    if not bool(both.any()):
        return ranking
    ratio = ((errors[both] + NEGLIGIBLE) / (base[both] + NEGLIGIBLE)).log().mean().exp()
    return Ranking(ranking.broken, max(ranking.error, float(ratio * base[both].mean())))


def _deviation(values: np.ndarray, device: torch.device | None) -> Tensor:
    return torch.from_numpy(values).double().std(0).float().clamp_min(1e-6).to(device or "cpu")

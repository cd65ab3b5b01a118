# SPDX-License-Identifier: Apache-2.0
"""Forecast errors by column, and calibration of the predicted standard deviations.

Coverage, rank correlation, behaviour out of distribution and with noise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.progress import tracked
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import State, Trajectory, present_state
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import RolloutBatch, context_of, truth_of
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.evaluate.records import (
    ColumnMeans,
    Coverage,
    DrawnOut,
    MemberCalibration,
    Noisy,
    OutOfDistribution,
    RankCorrelation,
)
from neurodyn.evaluate.rollouts import roll_along_log


@dataclass(frozen=True)
class ColumnErrors:
    """Errors of a model's roll-outs by state column, in the columns' units, with its predicted standard deviations.

    Attributes:
        compared: The roll-outs, with an epistemic standard deviation, and the measured or simulated motion.
        scale: Standard deviation of each column over the training data, shape [size].
        varying: Whether each column varies in the training data, shape [size].
    """

    compared: RolloutErrors
    scale: Tensor
    varying: Tensor

    @classmethod
    def of(cls, model: WorldModel | NeuralDynamics, path: Trajectory, truth: Trajectory) -> "ColumnErrors":
        """Compare roll-outs of a model with the truth."""
        scale = model.state_scale
        varying = model.varying if isinstance(model, WorldModel) else torch.ones_like(scale, dtype=torch.bool)
        return cls(RolloutErrors(model.spec, path, truth), scale, varying)

    @property
    def error(self) -> Tensor:
        """Predicted minus true state, shape [starts, T, size]."""
        return self.compared.columns

    @property
    def epistemic(self) -> Tensor:
        """Epistemic standard deviation, shape [starts, T, size]."""
        assert self.compared.predicted.epistemic is not None  # see `compared`
        return self.compared.predicted.epistemic

    @cached_property
    def std(self) -> Tensor:
        """Total standard deviation, shape [starts, T, size]."""
        aleatoric = self.compared.predicted.aleatoric
        return self.epistemic if aleatoric is None else torch.hypot(aleatoric, self.epistemic)

    @cached_property
    def finite(self) -> Tensor:
        """Whether errors and standard deviations of each roll-out are finite, shape [starts]."""
        return torch.isfinite(torch.cat([self.error, self.std], -1)).all(-1).all(-1)

    def in_scales(self, values: Tensor) -> Tensor:
        """Return the means over the columns of absolute values in units of `scale`, [..., size] to [...]."""
        return (values.abs() / self.scale)[..., self.varying].mean(-1)


def forecast_along(model: WorldModel, store: Store, starts: Windows) -> ColumnErrors:
    """Forecast along windows of a log, and compare with what was measured."""
    return ColumnErrors.of(model, roll_along_log(model, store, starts, BATCH), truth_of(starts))


def column_means(errors: RolloutErrors, frame: int, rows: Tensor, scale: Tensor, varying: Tensor) -> ColumnMeans:
    """Return the mean absolute errors at a frame over the finite roll-outs among `rows`, with the share of them.

    Args:
        errors: The roll-outs.
        frame: The frame, from 1.
        rows: Roll-outs to consider, bool, shape [starts].
        scale: Standard deviation of each column over the training data, shape [size].
        varying: Whether each column varies in the training data, shape [size].
    """
    kept = rows & errors.finite
    if not bool(kept.any()):
        return ColumnMeans(columns=None, q_mean=None, qd_mean=None, scaled=None, finite_fraction=0.0)
    columns, nq, nv = errors.columns[kept, frame - 1].abs().double().mean(0), errors.spec.nq, errors.spec.nv
    return ColumnMeans(
        columns=columns.tolist(),
        q_mean=float(columns[:nq].mean()),
        qd_mean=float(columns[nq : nq + nv].mean()),
        scaled=float((columns / scale)[varying].mean()),
        finite_fraction=float(kept.sum() / rows.sum()),
    )


def transform_history(model: WorldModel, starts: Windows, change: Callable[[Tensor], Tensor]) -> Windows:
    """Return windows with a transformed history, as vectors of measured columns, shape [starts, T + 1, size]."""
    past, split = context_of(starts, model.spec.context), model.observation.split
    states = model.observation.of_state(past)
    if isinstance(past, State):
        q, qd, channels = split(change(states[:, None]))
        history = None
    else:
        q, qd, channels = split(change(states))
        history = Windows(q, qd, past.torque, channels=channels)
    later = None if channels is None or starts.channels is None else (channels, starts.channels)
    q, qd, channels = (
        None if pair is None else torch.cat([pair[0][:, -1:], pair[1][:, 1:]], 1)
        for pair in ((q, starts.q), (qd, starts.qd), later)
    )
    return replace(starts, q=q, qd=qd, channels=channels, past=history)


BATCH = 1024
"""Forecasts of a world model at once."""
_NOISE = (0.01, 0.03, 0.1)
FACTORS = (1.5, 2.0, 3.0)
"""Factors that scale states away from their mean, out of the data's distribution."""
CALIBRATION_FRAMES = (1, 10, 50, 100, 200)
"""Horizons of calibration [frames]."""


def ranks(values: Tensor) -> Tensor:
    """Return the rank of each value, ties sharing their mean rank, shape [n], float64."""
    ordered, order = values.double().sort()
    _, inverse, counts = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    mean = last - (counts.double() - 1) / 2
    rank = torch.empty_like(ordered)
    rank[order] = mean[inverse]
    return rank


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Return Spearman's rank correlation of two vectors of shape [n]; 0 if one is constant."""
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    size = float(x.norm() * y.norm())
    return float(x @ y) / size if size > 0 else 0.0


def chance_above(a: Tensor, b: Tensor) -> float:
    """Return the probability that a value of `a` exceeds one of `b` (area under the ROC curve); ties count half."""
    ordered = ranks(torch.cat([a, b]))
    n, m = len(a), len(b)
    return (float(ordered[:n].sum()) - n * (n + 1) / 2) / (n * m)


def coverage_at(errors: ColumnErrors, mark: int) -> Coverage:
    """Return the fraction of true values within one and two standard deviations (.683 and .954 for a normal)."""
    error, std = errors.error[errors.finite, mark - 1], errors.std[errors.finite, mark - 1]
    means, columns = [], []
    for sigmas in (1, 2):
        within = (error.abs() <= sigmas * std).double().mean(0)
        means.append(float(within[errors.varying].mean()) if len(error) else None)
        columns.append(within.tolist() if len(error) else None)
    return Coverage(
        seconds=mark * errors.compared.spec.dt, one_sigma=means[0], one_sigma_columns=columns[0], two_sigma=means[1],
        two_sigma_columns=columns[1],
    )  # fmt: skip


def ranks_at(errors: ColumnErrors, mark: int) -> RankCorrelation:
    """Return the rank correlation of error and standard deviation at a horizon."""
    parts = (errors.error, errors.epistemic, errors.std)
    error, epistemic, std = (errors.in_scales(x[errors.finite, mark - 1]) for x in parts)
    if len(error) < 3:
        return RankCorrelation(epistemic_rank=None, total_rank=None)
    return RankCorrelation(
        seconds=mark * errors.compared.spec.dt,
        epistemic_rank=rank_correlation(epistemic, error),
        total_rank=rank_correlation(std, error),
        mean=float(epistemic.mean()),
    )


def out_of_distribution(model: WorldModel, store: Store, starts: Windows) -> OutOfDistribution:
    """Return a world model's epistemic standard deviation on states scaled away from their mean."""
    in_distribution = _epistemic(model, store, starts, 1.0)
    return scaled_away(in_distribution, {factor: _epistemic(model, store, starts, factor) for factor in FACTORS})


def scaled_away(in_distribution: Tensor, beyond: Mapping[float, Tensor]) -> OutOfDistribution:
    """Return epistemic standard deviations relative to in-distribution ones, by scale factor."""
    if not len(in_distribution):
        return OutOfDistribution(usual_median=None)
    by_factor = {}
    for factor, values in beyond.items():
        if len(values):
            ratio = float(values.median() / in_distribution.median().clamp_min(1e-12))
            by_factor[f"{factor:g}"] = DrawnOut(ratio=ratio, chance_above_usual=chance_above(values, in_distribution))
    return OutOfDistribution(usual_median=float(in_distribution.median()), by_factor=by_factor)


def with_noise(model: WorldModel, store: Store, starts: Windows, marks: list[int], seed: int) -> dict[str, Noisy]:
    """Return errors with noise on the history, by noise level in standard deviations of the columns."""
    by_level = {}
    for size in tracked((0.0, *_NOISE)):
        generator = torch.Generator().manual_seed(seed)

        def noisy(x: Tensor, size: float = size, generator: torch.Generator = generator) -> Tensor:
            return x + size * model.state_scale * torch.randn(x.shape, generator=generator) if size else x

        path = roll_along_log(model, store, transform_history(model, starts, noisy), BATCH)
        done = RolloutErrors(model.spec, path, truth_of(starts))
        by_level[f"{size:g}"] = Noisy(
            finite_fraction=float(done.finite.double().mean()),
            marks={str(m): column_means(done, m, done.finite, model.state_scale, model.varying) for m in marks},
        )
    return by_level


def _epistemic(model: WorldModel, store: Store, starts: Windows, factor: float) -> Tensor:
    """Return the epistemic standard deviation after one frame, mean over scaled columns, shape [finite starts].

    States are scaled away from their mean by `factor`.
    """

    def draw_out(states: Tensor) -> Tensor:
        mean = states.mean((0, 1))
        return mean + factor * (states - mean)

    once = transform_history(model, starts, draw_out).until(1)
    path = roll_along_log(model, store, once, BATCH)
    assert path.epistemic is not None  # a world model predicts it
    values = (path.epistemic[:, 0] / model.state_scale)[:, model.varying].mean(-1)
    return values[values.isfinite()]


def member_calibration(
    model: Dynamics, path: Trajectory, truth: Trajectory, starts: RolloutBatch
) -> MemberCalibration | UnsetType:
    """Return the calibration of roll-outs `path`; UNSET for a model that is not an ensemble.

    `starts` are the first starts, with their controls.
    """
    if path.epistemic is None or not isinstance(model, NeuralDynamics):
        return UNSET
    errors, frames = ColumnErrors.of(model, path, truth), path.epistemic.shape[1]
    marks = sorted({mark for mark in CALIBRATION_FRAMES if mark <= frames} | {frames})
    return MemberCalibration(
        members=model.members,
        coverage={str(mark): coverage_at(errors, mark) for mark in marks},
        epistemic={str(mark): ranks_at(errors, mark) for mark in marks},
        out_of_distribution=_out_of_distribution(model, truth, starts),
    )


@torch.no_grad()
def _out_of_distribution(model: NeuralDynamics, truth: Trajectory, starts: RolloutBatch) -> OutOfDistribution:
    """Return the one-frame epistemic standard deviation for joints and velocities scaled away from their mean.

    States are taken halfway along the true paths, where they no longer depend on the robot's initial placement.
    """
    count, frame = present_state(starts.past).worlds, (truth.q.shape[1] - 1) // 2
    state, control = State(truth.q[:count, frame], truth.qd[:count, frame]), starts.drive.at(frame)

    def epistemic(factor: float) -> Tensor:
        drawn = _scale_away(model.spec, state, factor)
        _, step = model.step_(model.begin(drawn, starts.environment), drawn, control)
        assert step.epistemic is not None  # all members see all worlds
        values = (step.epistemic / model.state_scale).mean(-1)
        return values[values.isfinite()]

    return scaled_away(epistemic(1.0), {factor: epistemic(factor) for factor in FACTORS})


def _scale_away(spec: StateSpec, state: State, factor: float) -> State:
    """Return states scaled away from their mean; poses of a base and of ball joints stay unchanged."""
    q, qd, joints = state.q.clone(), state.qd, [spec.q_names.index(joint.name) for joint in spec.joints if joint.scalar]
    centre = q[:, joints].mean(0)
    q[:, joints] = centre + factor * (q[:, joints] - centre)
    return replace(state, q=q, qd=qd.mean(0) + factor * (qd - qd.mean(0)))

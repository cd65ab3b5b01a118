# SPDX-License-Identifier: Apache-2.0
"""Forecast errors by column, and calibration of the predicted standard deviations.

Coverage, rank correlation, behaviour out of distribution and with noise.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.progress import counted, tracked
from neurodyn.dynamics.batch import State, Trajectory, Window, present_state
from neurodyn.dynamics.coordinates import coordinate_difference
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.dynamics.world_model.observation import WorldObservation
from neurodyn.evaluate.records import (
    ColumnMeans,
    Coverage,
    DrawnOut,
    MemberCalibration,
    Noisy,
    OutOfDistribution,
    RankCorrelation,
)
from neurodyn.evaluate.rollouts import Recorded, RolloutBatch, roll_out

M = TypeVar("M", WorldModel, NeuralDynamics)


@dataclass(frozen=True)
class ColumnErrors(Generic[M]):
    """Predicted and true motion from the same starts, by state column, in the columns' units.

    Attributes:
        model: The model, which predicts an epistemic standard deviation.
        path: Predicted motion.
        truth: Measured or simulated motion.
    """

    model: M
    path: Trajectory
    truth: Trajectory

    @property
    def epistemic(self) -> Tensor:
        """Epistemic standard deviation, shape [starts, T, size]."""
        assert self.path.epistemic is not None  # see `model`
        return self.path.epistemic

    @property
    def scale(self) -> Tensor:
        """Standard deviation of each column over the training data, shape [size]."""
        return self.model.state_scale

    @property
    def dt(self) -> float:
        """Frame time [s]."""
        return self.model.spec.dt


class Forecasts(ColumnErrors[WorldModel]):
    """Forecasts of a world model and the measured motion."""

    @classmethod
    def along(cls, model: WorldModel, starts: Recorded, batches: Iterable[RolloutBatch] | None = None) -> "Forecasts":
        """Forecast from all starts, or from `batches` instead."""
        batches = measured_starts(model, starts) if batches is None else batches
        return cls(model, roll_out(model, counted(iter(batches), len(starts.windows))).path, starts.truth)

    @cached_property
    def error(self) -> Tensor:
        """Predicted minus measured state, shape [starts, T, size]."""
        observation = self.model.observation
        states, truth = (observation.join(x.q, x.qd, x.channels)[:, 1:] for x in (self.path, self.truth))
        return difference(observation, states, truth)

    @cached_property
    def persistence(self) -> Tensor:
        """Errors of the persistence baseline, shape [starts, T, size]."""
        truth = self.model.observation.join(self.truth.q, self.truth.qd, self.truth.channels)
        return difference(self.model.observation, truth[:, :1].expand_as(truth[:, 1:]), truth[:, 1:])

    @cached_property
    def std(self) -> Tensor:
        """Calibrated total standard deviation, shape [starts, T, size]."""
        assert self.path.aleatoric is not None  # a world model predicts it
        return torch.hypot(self.path.aleatoric, self.epistemic)

    @cached_property
    def finite(self) -> Tensor:
        """Whether each forecast is finite, shape [starts]."""
        return torch.isfinite(self.error).all(-1).all(-1)

    @property
    def varying(self) -> Tensor:
        """Whether each column varies in the training data, shape [size]."""
        return self.model.varying

    def means(self, errors: Tensor) -> ColumnMeans:
        """Return mean absolute errors over the starts from errors of shape [starts, size]."""
        if not len(errors):
            return ColumnMeans(columns=None, q_mean=None, qd_mean=None, scaled=None)
        columns = errors.abs().double().mean(0)
        columns = columns.nan_to_num(posinf=torch.finfo(torch.float64).max)
        nq, nv = self.model.spec.nq, self.model.spec.nv
        return ColumnMeans(
            columns=columns.tolist(),
            q_mean=float(columns[:nq].mean()),
            qd_mean=float(columns[nq : nq + nv].mean()),
            scaled=float((columns / self.model.state_scale)[self.model.varying].mean()),
        )


class MemberErrors(ColumnErrors[NeuralDynamics]):
    """Errors of a neural-dynamics ensemble."""

    @cached_property
    def error(self) -> Tensor:
        """Predicted minus true state, shape [starts, T, size]."""
        path, truth = self.path, self.truth
        q = coordinate_difference(self.model.spec, path.q[:, 1:], truth.q[:, 1:])
        return torch.cat([q, path.qd[:, 1:] - truth.qd[:, 1:]], -1)

    @property
    def std(self) -> Tensor:
        """Total standard deviation, equal to the epistemic one."""
        return self.epistemic

    @cached_property
    def finite(self) -> Tensor:
        """Whether each roll-out is finite, shape [starts]."""
        return torch.isfinite(torch.cat([self.error, self.epistemic], -1)).all(-1).all(-1)

    @property
    def varying(self) -> Tensor:
        """All columns, shape [size]."""
        return torch.ones_like(self.scale, dtype=torch.bool)


def measured_starts(model: WorldModel, starts: Recorded) -> Iterator[RolloutBatch]:
    """Yield starts of a world model's forecasts; of the log's environments it only gets its conditions."""
    names = tuple(one.name for one in model.conditions)
    return starts.batches(model.spec.context, environments=False, names=names)


def changed(model: WorldModel, starts: Recorded, change: Callable[[Tensor], Tensor]) -> Iterator[RolloutBatch]:
    """Yield starts with transformed histories, as vectors of measured columns, shape [worlds, T + 1, size]."""
    for batch in measured_starts(model, starts):
        past = _history(batch.past)
        q, qd, channels = model.observation.split(change(model.observation.join(past.q, past.qd, past.channels)))
        yield replace(batch, past=Window(q, qd, past.torque, channels))


def _history(past: State | Window) -> Window:
    if isinstance(past, Window):
        return past
    none = past.q.new_empty(past.worlds, 0, 0)
    return Window(past.q[:, None], past.qd[:, None], none, None if past.channels is None else past.channels[:, None])


def difference(observation: WorldObservation, x: Tensor, reference: Tensor) -> Tensor:
    """Return x - reference with continuous angles modulo 2 pi, shape [..., size]."""
    error = x - reference
    for column in observation.continuous.tolist():
        error[..., column] = torch.remainder(error[..., column] + torch.pi, 2 * torch.pi) - torch.pi
    return error


_NOISE = (0.01, 0.03, 0.1)
FACTORS = (1.5, 2.0, 3.0)
"""Factors that scale states away from their mean, out of the data's distribution."""
MARKS = (1, 10, 50, 100, 200)
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
    joined = ranks(torch.cat([a, b]))
    n, m = len(a), len(b)
    return (float(joined[:n].sum()) - n * (n + 1) / 2) / (n * m)


CalibrationErrors = Forecasts | MemberErrors
"""Errors with predicted standard deviations."""


def coverage_at(errors: CalibrationErrors, mark: int) -> Coverage:
    """Return the fraction of true values within one and two standard deviations (.683 and .954 for a normal)."""
    error, std = errors.error[errors.finite, mark - 1], errors.std[errors.finite, mark - 1]
    means, columns = [], []
    for sigmas in (1, 2):
        within = (error.abs() <= sigmas * std).double().mean(0)
        means.append(float(within[errors.varying].mean()) if len(error) else None)
        columns.append(within.tolist() if len(error) else None)
    return Coverage(
        seconds=mark * errors.dt, one_sigma=means[0], one_sigma_columns=columns[0], two_sigma=means[1],
        two_sigma_columns=columns[1],
    )  # fmt: skip


def ranks_at(errors: CalibrationErrors, mark: int) -> RankCorrelation:
    """Return the rank correlation of error and standard deviation at a horizon."""
    rows, scale = errors.finite, errors.scale
    error, epistemic, std = (
        (x[rows, mark - 1].abs() / scale)[:, errors.varying].mean(-1)
        for x in (errors.error, errors.epistemic, errors.std)
    )
    if len(error) < 3:
        return RankCorrelation(epistemic_rank=None, total_rank=None)
    return RankCorrelation(
        seconds=mark * errors.dt,
        epistemic_rank=rank_correlation(epistemic, error),
        total_rank=rank_correlation(std, error),
        mean=float(epistemic.mean()),
    )


def out_of_distribution(model: WorldModel, starts: Recorded) -> OutOfDistribution:
    """Return a world model's epistemic standard deviation on states scaled away from their mean."""
    in_distribution = _epistemic(model, starts, 1.0)
    return drawn_out(in_distribution, {factor: _epistemic(model, starts, factor) for factor in FACTORS})


def drawn_out(in_distribution: Tensor, beyond: Mapping[float, Tensor]) -> OutOfDistribution:
    """Return epistemic standard deviations relative to in-distribution ones, by scale factor."""
    if not len(in_distribution):
        return OutOfDistribution(usual_median=None)
    by_factor = {}
    for factor, values in beyond.items():
        if len(values):
            ratio = float(values.median() / in_distribution.median().clamp_min(1e-12))
            by_factor[f"{factor:g}"] = DrawnOut(ratio=ratio, chance_above_usual=chance_above(values, in_distribution))
    return OutOfDistribution(usual_median=float(in_distribution.median()), by_factor=by_factor)


def with_noise(model: WorldModel, starts: Recorded, marks: list[int], seed: int) -> dict[str, Noisy]:
    """Return errors with noise on the history, by noise level in standard deviations of the columns."""
    by_level = {}
    for size in tracked((0.0, *_NOISE)):
        generator = torch.Generator().manual_seed(seed)

        def noisy(x: Tensor, size: float = size, generator: torch.Generator = generator) -> Tensor:
            return x + size * model.state_scale * torch.randn(x.shape, generator=generator) if size else x

        done = Forecasts.along(model, starts, changed(model, starts, noisy))
        by_level[f"{size:g}"] = Noisy(
            finite_fraction=float(done.finite.double().mean()),
            marks={str(m): done.means(done.error[done.finite, m - 1]) for m in marks},
        )
    return by_level


def _epistemic(model: WorldModel, starts: Recorded, factor: float) -> Tensor:
    """Return the epistemic standard deviation after one frame, mean over scaled columns, shape [finite starts].

    States are scaled away from their mean by `factor`.
    """

    def drawn(states: Tensor) -> Tensor:
        mean = states.mean((0, 1))
        return mean + factor * (states - mean)

    once = (replace(batch, drive=batch.drive.until(1)) for batch in changed(model, starts, drawn))
    path = roll_out(model, once).path
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
    errors, frames = MemberErrors(model, path, truth), path.epistemic.shape[1]
    marks = sorted({mark for mark in MARKS if mark <= frames} | {frames})
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
        drawn = _drawn_out(model.spec, state, factor)
        _, step = model.step_(model.begin(drawn, starts.environment), drawn, control)
        assert step.epistemic is not None  # all members see all worlds
        values = (step.epistemic / model.state_scale).mean(-1)
        return values[values.isfinite()]

    return drawn_out(epistemic(1.0), {factor: epistemic(factor) for factor in FACTORS})


def _drawn_out(spec: StateSpec, state: State, factor: float) -> State:
    """Return states scaled away from their mean; poses of a base and of ball joints stay unchanged."""
    q, qd, joints = state.q.clone(), state.qd, [spec.q_names.index(joint.name) for joint in spec.joints if joint.scalar]
    centre = q[:, joints].mean(0)
    q[:, joints] = centre + factor * (q[:, joints] - centre)
    return replace(state, q=q, qd=qd.mean(0) + factor * (qd - qd.mean(0)))

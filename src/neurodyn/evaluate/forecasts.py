# SPDX-License-Identifier: Apache-2.0
"""Errors of forecasts and their predicted standard deviations, by column."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

import torch
from torch import Tensor

from neurodyn.core.progress import counted
from neurodyn.dynamics.batch import State, Trajectory, Window
from neurodyn.dynamics.coordinates import coordinate_difference
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.dynamics.world_model.observation import WorldObservation
from neurodyn.evaluate.recorded import Recorded
from neurodyn.evaluate.records import ColumnMeans
from neurodyn.evaluate.rollouts import RolloutBatch, roll_out

M = TypeVar("M", WorldModel, NeuralDynamics)


@dataclass(frozen=True)
class ColumnErrors(Generic[M]):
    """Predicted motion beside the true one from the same starts, by column of the state, in the columns' units.

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
    """Forecasts of a world model beside the measured motion."""

    @classmethod
    def along(cls, model: WorldModel, starts: Recorded, batches: Iterable[RolloutBatch] | None = None) -> "Forecasts":
        """Forecast from all starts, or from `batches` in their place."""
        batches = starts.batches(model.spec.context, environments=False) if batches is None else batches
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
        """Which forecasts are finite, shape [starts]."""
        return torch.isfinite(self.error).all(-1).all(-1)

    @property
    def varying(self) -> Tensor:
        """Which columns vary in the training data, shape [size]."""
        return self.model.varying

    def means(self, errors: Tensor) -> ColumnMeans:
        """Return mean absolute errors over starts for errors of shape [starts, size]."""
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
    """Errors of neural dynamics with several members."""

    @cached_property
    def error(self) -> Tensor:
        """Predicted minus true state, shape [starts, T, size]."""
        path, truth = self.path, self.truth
        q = coordinate_difference(self.model.spec, path.q[:, 1:], truth.q[:, 1:])
        return torch.cat([q, path.qd[:, 1:] - truth.qd[:, 1:]], -1)

    @property
    def std(self) -> Tensor:
        """Total standard deviation, which is the epistemic one."""
        return self.epistemic

    @cached_property
    def finite(self) -> Tensor:
        """Which roll-outs are finite, shape [starts]."""
        return torch.isfinite(torch.cat([self.error, self.epistemic], -1)).all(-1).all(-1)

    @property
    def varying(self) -> Tensor:
        """All columns, shape [size]."""
        return torch.ones_like(self.scale, dtype=torch.bool)


def changed(model: WorldModel, starts: Recorded, change: Callable[[Tensor], Tensor]) -> Iterator[RolloutBatch]:
    """Yield starts whose histories are transformed as vectors of measured columns, shape [worlds, T + 1, size]."""
    for batch in starts.batches(model.spec.context, environments=False):
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

# SPDX-License-Identifier: Apache-2.0
"""Losses of neural dynamics: teacher forcing, and forecasts from the model's own states."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.data.windows import Batch
from neurodyn.dynamics.interface import Control, Environment, State, Window
from neurodyn.dynamics.members import Groups
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.tangent import position_difference
from neurodyn.learn.neural.settings import Phase


@dataclass(frozen=True)
class Scale:
    """Standard deviation of one frame's change, the unit of a forecast's errors.

    Attributes:
        dq: Standard deviation of position changes [rad or m], shape [nv].
        dqd: Standard deviation of velocity changes [rad/s or m/s], shape [nv].
    """

    dq: Tensor
    dqd: Tensor

    def to(self, device: torch.device) -> "Scale":
        """Return the scale on another device."""
        return Scale(self.dq.to(device), self.dqd.to(device))


@dataclass(frozen=True)
class Part:
    """Windows that were recorded in one environment, each at a pose of its own.

    Attributes:
        batch: The windows.
        environment: Where they were recorded; None for the model's own.
        members: The member that learns from each window, shape [B]; None for a model of one network.
    """

    batch: Batch
    environment: Environment | None = None
    members: Tensor | None = None


def training_loss(model: NeuralDynamics, parts: Sequence[Part], phase: Phase, scale: Scale) -> Tensor:
    """Return the loss of the windows of all parts in a phase of training, shape [members].

    Each member has as many of the windows as any other, and learns from these alone.
    """
    errors_of = _forecast_errors if phase.forecast else _teacher_forced_errors
    errors = torch.cat([errors_of(model, part, phase, scale) for part in parts])
    weights = None if phase.balance is None else _weights([part.batch for part in parts], phase.balance, scale)
    by_member = _by_member(model, parts)
    return _mean(by_member(errors), None if weights is None else by_member(weights))


def total_weight(model: NeuralDynamics, parts: Sequence[Part], phase: Phase, scale: Scale) -> Tensor | None:
    """Return the sum of the weights by which the loss takes its mean, shape [members]; None where there are none."""
    if phase.balance is None:
        return None
    return _by_member(model, parts)(_weights([part.batch for part in parts], phase.balance, scale)).sum(-1)


def _by_member(model: NeuralDynamics, parts: Sequence[Part]) -> Callable[[Tensor], Tensor]:
    """Return what sorts values of windows by the members that learn from them, [B] -> [members, B / members]."""
    members = [part.members for part in parts if part.members is not None]
    if not members:
        return lambda values: values[None]
    return Groups.of(torch.cat(members), model.members, parts[0].batch.q.device).gather


def _teacher_forced_errors(model: NeuralDynamics, part: Part, phase: Phase, scale: Scale) -> Tensor:
    """Return the mean errors of windows in one-frame predictions from true states, in normalised units, shape [B]."""
    batch, q, qd = part.batch, part.batch.q, part.batch.qd
    base_prediction, prediction = model(q[:, :-1], qd[:, :-1], batch.control, part.environment, part.members)
    target = model.encoding.target(base_prediction, q[:, 1:], qd[:, 1:])
    return _measure(prediction - model.predictor.normalise_target(target), phase).mean((1, 2))


def _forecast_errors(model: NeuralDynamics, part: Part, phase: Phase, scale: Scale) -> Tensor:
    """Return the mean errors of states predicted in a row, in units of one frame's change, shape [B].

    The first `phase.context` frames of a window are history; the rest are forecast.
    """
    batch, first, frames = part.batch, phase.context, part.batch.control.shape[1]
    past = Window(batch.q[:, : first + 1], batch.qd[:, : first + 1], batch.control[:, :first])
    carry = model.begin(past if first else past.present, part.environment, members=part.members, alone=True)
    state = past.present
    total = batch.q.new_zeros(batch.q.shape[0])
    for t in range(first, frames):
        carry, step = model.step(carry, state, Control(torque=batch.control[:, t]))
        state = step.state
        total = total + _state_error(model, state, State(batch.q[:, t + 1], batch.qd[:, t + 1]), phase, scale)
    return total / (frames - first)


def _state_error(model: NeuralDynamics, state: State, truth: State, phase: Phase, scale: Scale) -> Tensor:
    position = position_difference(model.spec, state.q, truth.q) / scale.dq
    velocity = (state.qd - truth.qd) / scale.dqd
    return _measure(torch.cat([position, velocity], dim=-1), phase).mean(-1)


def _weights(batches: Sequence[Batch], balance: float, scale: Scale) -> Tensor:
    """Return weights of windows by how little happens in them, shape [B]."""
    qd = torch.cat([batch.qd for batch in batches])
    change = ((qd[:, 1:] - qd[:, :-1]) / scale.dqd).abs().mean((1, 2))
    return 1 / (change + balance)


def _mean(errors: Tensor, weights: Tensor | None) -> Tensor:
    """Return mean errors, weighed where weights are given, [members, B] -> [members]."""
    return errors.mean(-1) if weights is None else (weights * errors).sum(-1) / weights.sum(-1)


def _measure(error: Tensor, phase: Phase) -> Tensor:
    return error.abs() if phase.loss == "absolute" else error.square()

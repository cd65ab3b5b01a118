# SPDX-License-Identifier: Apache-2.0
"""The loss of world models: forecasts from the members' own predictions, with calibrated standard deviations.

The standard deviation of a frame is trained by the normal likelihood of the error at that frame of the forecast. It
has a term in log sigma, so that it can neither collapse nor run away; the error enters it as a number, so that a member
cannot lower its loss by varying what it could predict.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from neurodyn.data.windows import Batch
from neurodyn.dynamics.world_model.carry import Forecast
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.learn.world_model.ends import Ends
from neurodyn.learn.world_model.settings import WorldPhase, WorldSettings


@dataclass(frozen=True)
class EventWeights:
    """How much rarer classes weigh in the cross-entropies.

    Attributes:
        positive: Weight of positive labels (contacts, then termination where it is predicted), shape [events].
        event: Weight of each event in the loss, shape [events].
    """

    positive: Tensor
    event: Tensor


def world_model_loss(
    model: WorldModel,
    batch: Batch,
    phase: WorldPhase,
    settings: WorldSettings,
    change: Tensor,
    weights: EventWeights,
    ends: Ends | None = None,
) -> Tensor:
    """Return the losses of the members, shape [members].

    Args:
        model: The model.
        batch: Windows with the members (or 1, where they share a trunk) as their first axis.
        phase: Phase of the training.
        settings: Settings of the training.
        change: Standard deviation of one frame's change, the unit of absolute errors, shape [size].
        weights: Weights of the events.
        ends: Windows that a failure cuts off, for the termination's loss.
    """
    first, loss = phase.context, change.new_zeros(model.members)
    if batch.q.shape[1]:  # none, where all that is left of a batch are ends
        loss = loss + _whole_loss(model, batch, phase, settings, change, weights)
    return loss if ends is None else loss + _ends_loss(model, ends, first, weights)


def _whole_loss(
    model: WorldModel, batch: Batch, phase: WorldPhase, settings: WorldSettings, change: Tensor, weights: EventWeights
) -> Tensor:
    """Return the losses of the members over windows that lie within their episodes, shape [members]."""
    states, first = model.observation.join(batch.q, batch.qd, batch.channels), phase.context
    loss = states.new_zeros(model.members)
    if first:
        inputs, top, hidden = model.read(states[:, :, :first], batch.control[:, :, :first])
        if phase.teach:
            found = one_frame(model, states[:, :, :first], inputs, top)
            loss = loss + phase.teach * _frames_loss(
                model, found, batch, slice(1, first + 1), False, phase, settings, change, weights
            )
    else:
        hidden = model.net.begin(states.shape[1], states)
    isolate = phase.loss == "absolute"
    found = model.follow(hidden, states[:, :, first], batch.control[:, :, first:], isolate=isolate)
    return loss + _frames_loss(model, found, batch, slice(first + 1, None), True, phase, settings, change, weights)


def one_frame(model: WorldModel, states: Tensor, inputs: Tensor, top: Tensor) -> Forecast:
    """Return the predictions of each next frame from measured states.

    Args:
        model: The model.
        states: State vectors, shape [streams, worlds, T, size].
        inputs: As of `WorldModel.read`.
        top: As of `WorldModel.read`.
    """
    frames = inputs.shape[1:3]
    wide, flat = inputs.flatten(1, 2), top.flatten(1, 2)
    means = model.net.means(wide, flat).unflatten(1, frames).transpose(1, 2)
    log_std = model.net.log_stds(flat.detach()).unflatten(1, frames).transpose(1, 2)
    logits = model.net.event_logits(flat)
    return Forecast(
        states + torch.addcmul(model.shift, means, model.scale),
        log_std,
        None if logits is None else logits.unflatten(1, frames).transpose(1, 2),
    )


def _frames_loss(
    model: WorldModel,
    found: Forecast,
    batch: Batch,
    frames: slice,
    forecast: bool,
    phase: WorldPhase,
    settings: WorldSettings,
    change: Tensor,
    weights: EventWeights,
) -> Tensor:
    """Return the losses of the members over the frames of windows that `found` predicts, shape [members]."""
    states = model.observation.join(batch.q, batch.qd, batch.channels)
    error = (found.states - states[:, :, frames]) / model.scale
    log_std = model.bounded(found.log_std, grows=forecast)
    unit = model.scale / change
    if phase.loss == "absolute":
        values = (error * unit).abs() + negative_log_likelihood(error.detach(), log_std, 0.0)
    else:
        values = negative_log_likelihood(error, log_std, settings.beta, unit)
    loss = values[..., model.varying].mean((1, 2, 3))
    if found.logits is not None:
        loss = loss + _event_loss(model, found.logits, batch, frames, weights)
    return loss


def negative_log_likelihood(error: Tensor, log_std: Tensor, beta: float, unit: Tensor | float = 1.0) -> Tensor:
    """Return 1/2 (e / sigma)^2 + log sigma, weighed by (sigma unit)^(2 beta), which is taken as a number.

    Args:
        error: Errors, any shape.
        log_std: Logarithms of the standard deviations, in the unit of the errors.
        beta: Exponent; see `WorldSettings.beta`.
        unit: By what errors are multiplied to compare coordinates.
    """
    values = 0.5 * (error * torch.exp(-log_std)).square() + log_std
    if not beta:
        return values
    return values * (torch.exp(log_std.detach()) * unit).pow(2.0 * beta)


def _ends_loss(model: WorldModel, ends: Ends, first: int, weights: EventWeights) -> Tensor:
    """Return what the windows that a failure cuts off add to the termination's cross-entropy, shape [members]."""
    windows = ends.windows
    states = model.observation.join(windows.q, windows.qd, windows.channels)
    hidden = model.net.begin(states.shape[1], states)
    if first:
        hidden = model.read(states[:, :, :first], windows.control[:, :, :first])[2]
    logits = model.follow(hidden, states[:, :, first], windows.control[:, :, first:]).logits
    assert logits is not None  # of a model that terminates
    assert windows.failed is not None  # of windows that end in a failure
    truth = windows.failed[:, :, first + 1 :].to(logits.dtype).expand(model.members, -1, -1)
    values = functional.binary_cross_entropy_with_logits(
        logits[..., -1], truth, pos_weight=weights.positive[-1], reduction="none"
    )
    # The mean over the frames of a forecast, as of the other windows; those beyond the end count nothing.
    values = (values * windows.valid[:, :, first + 1 :]).mean((1, 2))
    return ends.weight * weights.event[-1] * values


def _event_loss(model: WorldModel, logits: Tensor, batch: Batch, frames: slice, weights: EventWeights) -> Tensor:
    labels = []
    if batch.contacts is not None:
        labels.append(batch.contacts[:, :, frames])
    if model.terminates:
        assert batch.failed is not None  # a model terminates only if its data do
        labels.append(batch.failed[:, :, frames, None].to(logits.dtype))
    truth = torch.cat(labels, -1).expand(model.members, -1, -1, -1)
    values = functional.binary_cross_entropy_with_logits(logits, truth, pos_weight=weights.positive, reduction="none")
    return (values.mean((1, 2)) * weights.event).sum(-1)

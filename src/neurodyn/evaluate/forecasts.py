# SPDX-License-Identifier: Apache-2.0
"""Open-loop forecasts of a world model along recorded windows, and their errors, column by column.

Prediction k is compared with recorded state k: a forecast starts in the recorded state at the start of frame 0, and the
recorded control of frame k leads from state k to state k + 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, all_windows, window_starts
from neurodyn.dynamics.interface import Trajectory, Window
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.dynamics.world_model.observation import Observation


@dataclass(frozen=True)
class Forecasts:
    """Errors of the forecasts from many starts, in the units of the columns.

    Attributes:
        error: Predicted less true state, shape [starts, T, size].
        spread: Predicted, calibrated standard deviation, likewise.
        epistemic: The part of it in which the members disagree, likewise.
        held: Errors of holding the first state, likewise.
        group: Group of each start, shape [starts]; -1 where there is none.
    """

    error: Tensor
    spread: Tensor
    epistemic: Tensor
    held: Tensor
    group: np.ndarray

    @property
    def finite(self) -> Tensor:
        """Which forecasts are finite to their end, shape [starts]."""
        return torch.isfinite(self.error).all(-1).all(-1)


def windows_of(store: Store, split: int | None, length: int, most: int) -> list[Windows]:
    """Return windows of `length` frames, at most about `most`, spread evenly over all starts of a split.

    Raises:
        InputError: No episode is long enough.
    """
    episodes = store.episodes() if split is None else episodes_of(store, split)
    total = len(window_starts(store, episodes, length))
    return list(all_windows(store, length, split=split, stride=max(1, -(-total // most)), batch=1024))


@torch.no_grad()
def forecast(
    model: WorldModel, windows: list[Windows], context: int, *, noise: float = 0.0, seed: int = 0
) -> Forecasts:
    """Forecast along windows.

    Args:
        model: The model.
        windows: Windows of one length.
        context: Frames of them that are history; the model is shown the last `model.spec.context` of these.
        noise: Standard deviation of normal noise on what the model is shown, in the spread of each column over the
            training data.
        seed: Seed of the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for batch in windows:
        truth = model.observation.join(batch.q, batch.qd, batch.channels)
        first = context - min(context, model.spec.context)
        past = truth[:, first : context + 1]
        if noise:
            past = past + noise * model.state_scale * torch.randn(past.shape, generator=generator)
        found = model.rollout(
            window(model.observation, past, batch.control[:, first:context]), batch.control[:, context:]
        )
        parts.append(_errors(model.observation, found, truth[:, context:], batch.group))
    return Forecasts(
        *(torch.cat([getattr(part, name) for part in parts]) for name in ("error", "spread", "epistemic", "held")),
        group=np.concatenate([part.group for part in parts]),
    )


def window(observation: Observation, states: Tensor, control: Tensor) -> Window:
    """Return state vectors, shape [worlds, T + 1, size], and controls as history."""
    q, qd, channels = observation.split(states)
    return Window(q, qd, control, channels)


def difference(observation: Observation, x: Tensor, reference: Tensor) -> Tensor:
    """Return x - reference, angles that turn without end modulo 2 pi, shape [..., size]."""
    error = x - reference
    for column in observation.continuous.tolist():
        error[..., column] = torch.remainder(error[..., column] + torch.pi, 2 * torch.pi) - torch.pi
    return error


def column_means(model: WorldModel, errors: Tensor) -> dict[str, Any]:
    """Return mean absolute errors: by column, of positions, of velocities, and of all columns in their spreads."""
    if not len(errors):
        return {"columns": None, "q_mean": None, "qd_mean": None, "spreads": None}
    columns = errors.abs().double().mean(0)
    columns = columns.nan_to_num(posinf=torch.finfo(torch.float64).max)
    nq, nv = model.spec.nq, model.spec.nv
    return {
        "columns": columns.tolist(),
        "q_mean": float(columns[:nq].mean()),
        "qd_mean": float(columns[nq : nq + nv].mean()),
        "spreads": float((columns / model.state_scale)[model.varying].mean()),
    }


def _errors(observation: Observation, found: Trajectory, truth: Tensor, group: np.ndarray) -> Forecasts:
    assert found.aleatoric is not None  # a world model predicts both
    assert found.epistemic is not None
    states = observation.join(found.q, found.qd, found.channels)[:, 1:]
    return Forecasts(
        error=difference(observation, states, truth[:, 1:]),
        spread=torch.hypot(found.aleatoric, found.epistemic),
        epistemic=found.epistemic,
        held=difference(observation, truth[:, :1].expand_as(truth[:, 1:]), truth[:, 1:]),
        group=group,
    )

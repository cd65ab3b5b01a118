# SPDX-License-Identifier: Apache-2.0
"""The roll-out error on held-out episodes: what a training is steered by, instead of its loss.

One-frame errors get worse while roll-outs improve, so checkpoints are chosen by this error.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.seeds import derive_seed
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.store import Split, Store
from neurodyn.data.windows import Batch
from neurodyn.dynamics.interface import Environment, Window
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.dynamics.tangent import position_difference
from neurodyn.learn.neural.settings import Settings

WORST = 10.0
"""Score of a roll-out that leaves all bounds, in standard deviations of the training data."""


@dataclass(frozen=True)
class RolloutError:
    """Errors of open-loop roll-outs, means over all frames and roll-outs.

    Attributes:
        score: Mean absolute error of all coordinates, each over its standard deviation in the training data. A roll-out
            counts with at most `WORST`, one that is not finite with just that.
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
        sampler = MixtureSampler(
            data,
            max(frames, self._context + 1),
            split=Split.VALIDATION,
            batch=settings.validation_rollouts,
            seed=derive_seed(settings.seed, "validation"),
            device=device or "cpu",
        )
        environments = [RecordedEnvironments(part, device or "cpu") for part in data.stores]
        self._parts = [(batch, environments[number].of(batch)) for number, batch in sampler.draw()]
        self._q_scale = self._position_scale(data, device)
        self._qd_scale = _deviation(data.sampled_columns("qd", Split.TRAIN), device)

    @torch.no_grad()
    def measure(self, model: NeuralDynamics) -> RolloutError:
        """Roll the model out along the held-out windows."""
        found = [self._errors(model, batch, environment) for batch, environment in self._parts]
        q, qd = (torch.cat(parts) for parts in zip(*found, strict=True))
        errors = torch.cat([q / self._q_scale, qd / self._qd_scale], -1).mean((1, 2))
        return RolloutError(
            score=float(errors.nan_to_num(WORST, WORST).clamp_max(WORST).mean()),
            q=tuple(q.mean((0, 1)).tolist()),
            qd=tuple(qd.mean((0, 1)).tolist()),
        )

    def _errors(self, model: NeuralDynamics, batch: Batch, environment: Environment) -> tuple[Tensor, Tensor]:
        """Return absolute errors of positions and velocities, shape [rollouts, T, nv]."""
        first = self._context
        past = Window(batch.q[:, : first + 1], batch.qd[:, : first + 1], batch.control[:, :first])
        predicted = model.rollout(past if first else past.present, batch.control[:, first:], environment)
        q = position_difference(model.spec, predicted.q, batch.q[:, first:])[:, 1:].abs()
        return q, (predicted.qd - batch.qd[:, first:])[:, 1:].abs()

    def _position_scale(self, data: Mixture, device: torch.device | None) -> Tensor:
        spec, first = data.header.spec, self._context
        if spec.nq == spec.nv:
            return _deviation(data.sampled_columns("q", Split.TRAIN), device)
        # Where a floating base stands says nothing about how far it moves.
        q = torch.cat([batch.q for batch, _ in self._parts])
        moved = position_difference(spec, q[:, first + 1 :], q[:, first : first + 1])
        return moved.square().mean((0, 1)).sqrt().clamp_min(1e-6)


def _deviation(values: np.ndarray, device: torch.device | None) -> Tensor:
    return torch.from_numpy(values).double().std(0).float().clamp_min(1e-6).to(device or "cpu")

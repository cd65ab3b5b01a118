# SPDX-License-Identifier: Apache-2.0
"""What a model's networks have seen: which inputs are far from the training data, and which histories contradict it.

Members of an ensemble that share their data may agree where none has seen any. So each model keeps a sample of its
network inputs, which hold state, control and quantities of the robot, and *refuses* what is unlike them:

- Inputs farther from the nearest training frame than 99 % of the held-out frames are.
- In world models, a history that their forecasts over one frame contradict more than 99 % of the held-out ones: another
  robot, or one that changed, may move through known states.

Thresholds are those of held-out episodes, of which 1 to 2 % are therefore refused.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neurodyn.dynamics.batch import Control, RecordedEnvironments, State

if TYPE_CHECKING:
    from neurodyn.data.header import Split
    from neurodyn.data.mixture import Mixture
    from neurodyn.dynamics.interface import Dynamics

ACCEPTED = 0.99
"""Share of the held-out inputs, and of the held-out histories, that a model accepts."""

_KNOWN, _TRIED = 2048, 2048
"""Numbers of training frames to compare with, and of held-out frames that set the distances."""
_SHARES = 201
"""Number of quantiles that are kept of distances and contradictions."""
_ROWS = 1024


class KnownInputs(nn.Module):
    """A sample of the normalised network inputs of training frames, and how far held-out frames lie from it.

    Empty until fitted; loading weights of another size replaces it, loading those without it leaves it empty.

    Attributes:
        frames: Inputs of training frames, shape [frames, inputs].
        distances: Quantiles of the distance of held-out frames to the nearest of `frames`, from 0 to 1, shape [shares].
        contradictions: Quantiles of `WorldModel.contradiction` of held-out histories; empty where it is not measured.
    """

    frames: Tensor
    distances: Tensor
    contradictions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frames", torch.zeros(0, 0))
        self.register_buffer("distances", torch.zeros(0))
        self.register_buffer("contradictions", torch.zeros(0))

    @property
    def fitted(self) -> bool:
        """Whether there are distances to compare with."""
        return len(self.distances) > 0

    @classmethod
    def of(cls, dynamics: "Dynamics", log: "Mixture", seed: int = 0) -> "KnownInputs | None":
        """Draw frames of a log; None if the dynamics read no frames, or no frames are held out."""
        known = cls()
        known.learn(dynamics, log, seed)
        return known if known.fitted else None

    def learn(self, dynamics: "Dynamics", log: "Mixture", seed: int = 0) -> None:
        """Draw frames of a log; without any that the dynamics read, or without held-out ones, nothing changes."""
        from neurodyn.data.header import Split  # loads HDF5, which loading a model does not need

        frames = sampled_inputs(dynamics, log, Split.TRAIN, _KNOWN, seed)
        held_out = None if frames is None else sampled_inputs(dynamics, log, Split.VALIDATION, _TRIED, seed + 1)
        if frames is not None and held_out is not None:
            self.fit(frames, held_out)

    @torch.no_grad()
    def fit(self, frames: Tensor, held_out: Tensor) -> None:
        """Keep training frames beside some that are known, and measure held-out ones, shape [frames, inputs] each."""
        earlier = self.frames[:: max(1, len(self.frames) // _KNOWN)]
        self.frames = torch.cat([earlier, frames]) if len(earlier) else frames.clone()
        self.distances = quantiles(self.distance(held_out))

    @torch.no_grad()
    def distance(self, inputs: Tensor) -> Tensor:
        """Return the distance of inputs to the nearest known frame, shape [...] of [..., inputs]; infinite for NaN."""
        rows = inputs.detach().to(self.frames).flatten(0, -2)
        parts = [torch.cdist(part, self.frames).amin(1) for part in rows.split(_ROWS)]
        return torch.cat(parts).nan_to_num(math.inf).view(inputs.shape[:-1])

    def outside(self, inputs: Tensor, accepted: float = ACCEPTED) -> Tensor:
        """Return whether inputs are farther than the share `accepted` of the held-out frames, bool, shape [...]."""
        return self.distance(inputs) > _at(self.distances, accepted)

    def contradicted(self, values: Tensor, accepted: float = ACCEPTED) -> Tensor:
        """Return whether contradictions are larger than the share `accepted` of the held-out ones, bool."""
        return ~(values <= _at(self.contradictions, accepted))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        for name in self._buffers:
            if prefix + name not in state_dict:  # weights of before
                return
            setattr(self, name, torch.empty_like(state_dict[prefix + name], device=self.frames.device))
        super()._load_from_state_dict(dict(state_dict), prefix, *args, **kwargs)


def quantiles(values: Tensor) -> Tensor:
    """Return evenly spaced quantiles of values, from 0 to 1, shape [shares]."""
    return values.float().quantile(torch.linspace(0.0, 1.0, _SHARES, device=values.device))


def sampled_inputs(dynamics: "Dynamics", log: "Mixture", split: "Split", count: int, seed: int) -> Tensor | None:
    """Return normalised network inputs of random frames of a split, shape [about count, inputs].

    None if the dynamics have no network, or no frames are in the split.
    """
    from neurodyn.data.windows import WindowSampler

    names, targets, parts = [one.name for one in dynamics.conditions], dynamics.spec.control_kind != "torque", []
    for store, share in zip(log.stores, log.shares, strict=True):
        number = round(share * count)
        if not number or not (store.table["split"] == split).any():
            continue
        batch = WindowSampler(store, 1, split=split, batch=number, seed=seed, device=dynamics.device).draw()
        channels = None if batch.channels is None else batch.channels[:, 0]
        environment = None
        if names or not dynamics.measured:
            surroundings = not dynamics.measured
            environment = RecordedEnvironments(store, dynamics.device, names, surroundings=surroundings).of(batch)
        control = Control(target=batch.control[:, 0]) if targets else Control(torque=batch.control[:, 0])
        inputs = dynamics.network_inputs(State(batch.q[:, 0], batch.qd[:, 0], channels), control, environment)
        if inputs is None:
            return None
        parts.append(inputs.detach())
    return torch.cat(parts) if parts else None


def _at(sorted_values: Tensor, share: float) -> Tensor:
    return sorted_values[round(share * (len(sorted_values) - 1))]

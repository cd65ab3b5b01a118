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
from typing import Any

import torch
from torch import Tensor, nn

ACCEPTED = 0.99
"""Share of the held-out inputs, and of the held-out histories, that a model accepts."""

KNOWN = 2048
"""Training frames of a log to compare with."""
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

    @torch.no_grad()
    def fit(self, frames: Tensor, held_out: Tensor) -> None:
        """Keep training frames beside some that are known, and measure held-out ones, shape [frames, inputs] each."""
        earlier = self.frames[:: max(1, len(self.frames) // KNOWN)]
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


def _at(sorted_values: Tensor, share: float) -> Tensor:
    return sorted_values[round(share * (len(sorted_values) - 1))]

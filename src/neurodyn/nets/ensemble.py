# SPDX-License-Identifier: Apache-2.0
"""An ensemble that predicts a distribution, with all members computed in one batched pass.

Each member has a trunk (recurrent, or without memory) and heads for the mean, the logarithm of the standard deviation,
and events (logits). With a shared trunk only the heads are separate, which is cheaper but gives less disagreement.

Hidden states have the axes [streams, rows, width]. There is one stream per member if members have separate trunks or
follow separate paths, and a single one if a shared trunk reads the same inputs for all members.
"""

import itertools
from collections.abc import Iterable
from typing import Literal, cast

from torch import Tensor, nn

from neurodyn.core.activations import ACTIVATIONS, require_activation
from neurodyn.core.config import Config, require_numbers
from neurodyn.nets.gru import Hidden
from neurodyn.nets.members import MemberGRU, MemberLinear
from neurodyn.nets.networks import TRUNKS, require_size


class EnsembleConfig(Config, frozen=True):
    """Kind and size of an ensemble."""

    kind: str = "gru"
    """Layers of the trunk: "gru" (recurrent) or "mlp" (no memory)."""
    members: int = 5
    """Number of members."""
    trunk: Literal["own", "shared"] = "own"
    """"own" for independent members, "shared" for one trunk with all heads."""
    width: int = 256
    """Size of a hidden state or layer of the trunk."""
    depth: int = 2
    """Number of layers of the trunk."""
    head: int = 128
    """Size of the hidden layer of each head."""
    skip: bool = True
    """Whether each member's mean has a linear skip connection from its inputs."""
    clip: float | None = 10.0
    """Bound on normalised inputs in standard deviations; None for none."""
    activation: str = "silu"
    """Activation of the hidden layer of each head."""

    def __post_init__(self) -> None:
        TRUNKS.require(self.kind)
        require_activation(self.activation, "function")
        require_numbers(self, above=("members", "width", "depth", "head", "clip"))
        require_size((self.width, self.width, self.head), depth=self.depth, copies=self.members)


class Ensemble(nn.Module):
    """Trunks and heads of all members, from normalised inputs to normalised outputs.

    Attributes:
        config: Kind and size.
        inputs: Size of an input vector.
        outputs: Size of the mean and of the standard deviation.
        events: Number of logits.
    """

    def __init__(self, config: EnsembleConfig, inputs: int, outputs: int, events: int) -> None:
        super().__init__()
        self.config, self.inputs, self.outputs, self.events = config, inputs, outputs, events
        self.activation = ACTIVATIONS[config.activation].apply
        self.trunks = config.members if config.trunk == "own" else 1
        layer = TRUNKS[config.kind]
        sizes = [inputs] + [config.width] * config.depth
        self.trunk = nn.ModuleList(layer(self.trunks, a, b) for a, b in itertools.pairwise(sizes))
        self.mean_hidden = MemberLinear(config.members, config.width, config.head)
        self.mean = MemberLinear(config.members, config.head, outputs)
        self.spread_hidden = MemberLinear(config.members, config.width, config.head)
        self.log_std = MemberLinear(config.members, config.head, outputs)
        self.event_hidden = MemberLinear(config.members, config.width, config.head) if events else None
        self.logits = MemberLinear(config.members, config.head, events) if events else None
        self.skip = MemberLinear(config.members, inputs, outputs) if config.skip else None
        self.mean.zero()
        self.log_std.zero()
        if self.skip is not None:
            self.skip.zero()

    @property
    def recurrent(self) -> bool:
        """Whether the trunk has a memory."""
        return TRUNKS[self.config.kind].recurrent

    def begin(self, rows: int, like: Tensor) -> Hidden:
        """Return zero hidden states, with the device and type of `like`."""
        if not self.recurrent:
            return ()
        return tuple(like.new_zeros(self.trunks, rows, self.config.width) for _ in self.trunk)

    def apart(self, hidden: Hidden) -> Hidden:
        """Return hidden states with one stream per member, so that members can follow separate paths."""
        return tuple(h.expand(self.config.members, -1, -1) for h in hidden)

    def warm(self, x: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """Read a sequence of inputs, shape [streams, time, rows, inputs]; one stream if all trunks read the same.

        Returns:
            Inputs of the heads, shape [streams, time, rows, width], and the final hidden states.
        """
        x = x.expand(self.trunks, -1, -1, -1) if x.shape[0] == 1 else x
        if not self.recurrent:
            return self._feed(x.flatten(1, 2)).unflatten(1, x.shape[1:3]), ()
        last = []
        for layer, h in zip(self.trunk, hidden, strict=True):
            x = layer(x, h)
            last.append(x[:, -1])
        return x, tuple(last)

    def advance(self, x: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """Read one frame; see `warm`. Shapes [streams, rows, inputs] and [streams, rows, width]."""
        if not self.recurrent:
            return self._feed(x), ()
        streams = hidden[0].shape[0]
        x = x.expand(streams, -1, -1) if x.shape[0] == 1 else x
        merge = self.trunks == 1 and streams > 1  # with one set of weights, streams are further rows
        after = []
        for layer, h in zip(cast(Iterable[MemberGRU], self.trunk), hidden, strict=True):
            x = layer.step(_as_rows(x), _as_rows(h)).unflatten(1, (streams, -1))[0] if merge else layer.step(x, h)
            after.append(x)
        return x, tuple(after)

    def means(self, x: Tensor, top: Tensor) -> Tensor:
        """Return the members' means from inputs and the output of the trunk, shape [members, rows, outputs]."""
        mean = self.mean(self.activation(self.mean_hidden(top)))
        return mean if self.skip is None else mean + self.skip(x)

    def log_stds(self, top: Tensor) -> Tensor:
        """Return logarithms of the members' standard deviations, shape [members, rows, outputs]."""
        return self.log_std(self.activation(self.spread_hidden(top)))

    def event_logits(self, top: Tensor) -> Tensor | None:
        """Return logits of events, shape [members, rows, events]; None without events."""
        if self.logits is None or self.event_hidden is None:
            return None
        return self.logits(self.activation(self.event_hidden(top)))

    def _feed(self, x: Tensor) -> Tensor:
        for layer in self.trunk:
            x = layer(x)
        return x


def _as_rows(x: Tensor) -> Tensor:
    return x.reshape(1, -1, x.shape[-1])

# SPDX-License-Identifier: Apache-2.0
"""Registries, configuration and size limits of networks; does not import torch."""

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from neurodyn.core.activations import require_activation
from neurodyn.core.config import Config, require_numbers
from neurodyn.core.errors import InputError, choices, require
from neurodyn.core.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor


MOST_WEIGHTS = 200_000_000
"""Largest number of weights, unless the environment variable NEURODYN_MOST_WEIGHTS sets another."""

_LAYER = 1000
"""Weights added per layer to the count, because many tiny layers are slow too."""


def require_size(widths: Sequence[int], *, depth: int = 1, copies: int = 1, what: str = "net") -> None:
    """Raise an InputError if `copies` networks with layers of `widths`, each `depth` times, have too many weights."""
    text = os.environ.get("NEURODYN_MOST_WEIGHTS", str(MOST_WEIGHTS))
    if not text.isdecimal():
        raise InputError(f"NEURODYN_MOST_WEIGHTS is {text!r}; valid: a whole number")
    count = copies * depth * (_LAYER * len(widths) + sum(a * b for a, b in pairwise(widths)))
    if count > int(text):
        raise InputError(
            f"{what} has about {count:,} weights; valid: at most {int(text):,} (the environment variable "
            "NEURODYN_MOST_WEIGHTS sets another limit)"
        )


def weights_in(parameters: "Iterable[Tensor]") -> int:
    """Return the number of weights in the parameters of a model or a policy."""
    return sum(parameter.numel() for parameter in parameters)


# ruff: noqa: D102  # the members of a protocol are documented in the class that it stands for


class NetworkClass(Protocol):
    """What a configuration needs of the class of a network; members: see `SequenceNet`."""

    least_depth: int

    def check(self, config: "NetConfig") -> None: ...

    def memory(self, config: "NetConfig") -> int: ...

    def build(self, config: "NetConfig", inputs: int, outputs: int) -> Any: ...


NETWORKS: Registry[NetworkClass] = Registry("network")
"""Sequence networks by name; `neurodyn.nets` registers the ones that ship with the package, as for those below."""
MEMBER_NETWORKS: Registry[Callable[[Sequence[Any]], Any]] = Registry("network with members")
"""Combinations of a list of networks into one with members, by the name of their kind."""
TRUNKS: Registry[Any] = Registry("network of an ensemble")
"""Layers of an ensemble's trunk by name: modules of (members, inputs, outputs) with an attribute `recurrent`."""


class NetConfig(Config, frozen=True):
    """Kind and size of a network."""

    kind: str = "mlp"
    """Name of a network: "mlp" (no memory), "gru" (recurrent), "transformer" (sliding-window attention)."""
    width: int = 128
    """Size of a hidden layer, hidden state or residual stream."""
    depth: int = 3
    """Number of hidden layers, recurrent layers or blocks."""
    activation: str = "silu"
    """Activation of hidden layers (GRU: of the head; a transformer's are fixed)."""
    heads: int = 4
    """Attention heads (transformer); the width must be a multiple of twice this number."""
    window: int = 10
    """Attention window of a block in frames, including the current one (transformer)."""
    head: int = 64
    """Size of a hidden layer before the output (GRU and transformer); 0 for none."""
    warmup: int = 10
    """Frames of history that build up the hidden state (GRU)."""
    skip: bool = True
    """Whether the predictor has a linear skip connection from input to output."""
    clip: float | None = None
    """Bound on normalised inputs in standard deviations; None for none. With contacts, inputs are zero most of the time
    and far beyond their standard deviation otherwise."""

    def __post_init__(self) -> None:
        net = NETWORKS[self.kind]
        require_activation(self.activation, "function")
        require(self.depth >= net.least_depth, "depth", self.depth, f"at least {net.least_depth} in a {self.kind}")
        require_numbers(self, above=("width", "window", "heads", "clip"))
        require_size((self.width, self.width, self.head), depth=max(1, self.depth))
        net.check(self)

    @property
    def memory(self) -> int:
        """Frames of history that the network needs."""
        return NETWORKS[self.kind].memory(self)


def require_members(config: NetConfig, members: int) -> None:
    """Raise an InputError if this kind of network does not support the number of members."""
    if members < 1:
        raise InputError(f"members is {members}; valid: at least 1")
    if members > 1 and config.kind not in MEMBER_NETWORKS:
        able = choices(MEMBER_NETWORKS)
        raise InputError(f"members is {members}, but a {config.kind} has only one; valid: 1, or as network {able}")

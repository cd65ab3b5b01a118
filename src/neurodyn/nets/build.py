# SPDX-License-Identifier: Apache-2.0
"""Networks from configurations, so that a saved model is a configuration and a flat dictionary of tensors."""

from typing import Literal

from neurodyn.core.config import Config
from neurodyn.core.errors import InputError
from neurodyn.nets.gru import GRU
from neurodyn.nets.mlp import MLP, Activation
from neurodyn.nets.predictor import Predictor
from neurodyn.nets.sequence import SequenceNet
from neurodyn.nets.transformer import Transformer


class NetConfig(Config, frozen=True):
    """Kind and size of a network.

    Attributes:
        kind: "mlp" (no memory), "gru" (recurrent) or "transformer" (sliding-window attention).
        width: Size of a hidden layer, hidden state or stream.
        depth: Number of hidden layers, recurrent layers or blocks.
        activation: Activation of hidden layers (of the head, for a GRU; a transformer has its own).
        heads: Attention heads (transformer); width must be a multiple of twice this number.
        window: Frames that see each other in a block, the present one included (transformer).
        head: Size of one hidden layer before the output (GRU and transformer); 0 for none.
        warmup: Frames of history that suffice to build up the hidden state (GRU).
        skip: Whether the predictor has a linear short cut from input to output.
        clip: Normalised inputs are cut off at this many standard deviations; None for never. A robot with contacts
            has inputs that are zero most of the time and far beyond their standard deviation when they are not.
    """

    kind: Literal["mlp", "gru", "transformer"] = "mlp"
    width: int = 128
    depth: int = 3
    activation: Activation = "silu"
    heads: int = 4
    window: int = 10
    head: int = 64
    warmup: int = 10
    skip: bool = True
    clip: float | None = None

    def __post_init__(self) -> None:
        """Refuse sizes that make no network."""
        least = {"width": 1, "depth": 0 if self.kind == "mlp" else 1, "window": 1, "head": 0, "warmup": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise InputError(f"net.{name} is {getattr(self, name)}; expected at least {bound}")
        if self.clip is not None and not self.clip > 0:
            raise InputError(f"net.clip is {self.clip}; expected a number above 0")
        if self.kind == "transformer" and (self.heads < 1 or self.width % (2 * self.heads)):
            raise InputError(f"net.width is {self.width} with {self.heads} heads; expected a multiple of 2 x heads")


def build_net(config: NetConfig, inputs: int, outputs: int) -> SequenceNet:
    """Build the network that `config` describes, with random weights, between vectors of these sizes."""
    head = (config.head,) if config.head else ()
    if config.kind == "mlp":
        return MLP(inputs, outputs, (config.width,) * config.depth, config.activation)
    if config.kind == "gru":
        return GRU(
            inputs, outputs, config.width, config.depth, head=head, activation=config.activation, warmup=config.warmup
        )
    return Transformer(inputs, outputs, config.width, config.depth, config.heads, config.window, head=head)


def build_predictor(config: NetConfig, inputs: int, outputs: int) -> Predictor:
    """Build a predictor around the network that `config` describes; it is to be fitted or loaded."""
    return Predictor(build_net(config, inputs, outputs), skip=config.skip, clip=config.clip)

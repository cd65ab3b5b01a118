# SPDX-License-Identifier: Apache-2.0
"""Networks from configurations, so that a saved model is a configuration and a flat dictionary of tensors."""

from neurodyn.core.config import Config, require_numbers
from neurodyn.core.errors import InputError, choices
from neurodyn.nets.mlp import Activation
from neurodyn.nets.networks import MEMBER_NETWORKS, NETWORKS
from neurodyn.nets.predictor import Predictor
from neurodyn.nets.sequence import SequenceNet
from neurodyn.nets.size import require_size


class NetConfig(Config, frozen=True):
    """Kind and size of a network.

    Attributes:
        kind: Name of a network: "mlp" (no memory), "gru" (recurrent), "transformer" (sliding-window attention).
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

    kind: str = "mlp"
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
        net = NETWORKS[self.kind]
        least_of = {"width": 1, "depth": net.least_depth, "window": 1, "head": 0, "warmup": 0}
        for name, least in least_of.items():
            if getattr(self, name) < least:
                raise InputError(f"net.{name} is {getattr(self, name)}; expected at least {least}")
        if self.clip is not None and not self.clip > 0:
            raise InputError(f"net.clip is {self.clip}; expected a number above 0")
        require_numbers(self, above=("heads",))
        require_size((self.width, self.width, self.head), depth=max(1, self.depth))
        net.check(self)

    @property
    def memory(self) -> int:
        """Frames of history that the network needs."""
        return NETWORKS[self.kind].memory(self)


def require_members(config: NetConfig, members: int) -> None:
    """Refuse a number of members that networks of a kind cannot have.

    Raises:
        InputError: They cannot.
    """
    if members < 1:
        raise InputError(f"members is {members}; valid: at least 1")
    if members > 1 and config.kind not in MEMBER_NETWORKS:
        able = choices(MEMBER_NETWORKS)
        raise InputError(f"members is {members}, but a {config.kind} has only one; valid: 1, or as network {able}")


def build_net(config: NetConfig, inputs: int, outputs: int) -> SequenceNet:
    """Build the network that `config` describes, with random weights.

    Args:
        config: Kind and size.
        inputs: Size of an input vector.
        outputs: Size of an output vector.
    """
    return NETWORKS[config.kind].build(config, inputs, outputs)


def build_predictor(config: NetConfig, inputs: int, outputs: int, members: int = 1) -> Predictor:
    """Build a predictor around the network that `config` describes; it is to be fitted or loaded.

    Args:
        config: Kind and size.
        inputs: Size of an input vector.
        outputs: Size of an output vector.
        members: Number of networks in it, each with random weights of its own.

    Raises:
        InputError: There are to be several, and networks of this kind have no form with members.
    """
    require_members(config, members)
    nets = [build_net(config, inputs, outputs) for _ in range(members)]
    net = nets[0] if members == 1 else MEMBER_NETWORKS[config.kind](nets)
    predictor = Predictor(net, skip=config.skip, clip=config.clip)
    predictor.config = config
    return predictor

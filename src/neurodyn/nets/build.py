# SPDX-License-Identifier: Apache-2.0
"""Networks from configurations, so that a saved model is a configuration and a flat dictionary of tensors."""

from neurodyn.nets.networks import MEMBER_NETWORKS, NETWORKS, NetConfig, require_members
from neurodyn.nets.predictor import Predictor
from neurodyn.nets.sequence import SequenceNet


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

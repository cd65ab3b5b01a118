# SPDX-License-Identifier: Apache-2.0
"""Networks without physics: normaliser, MLP, recurrent net, cached transformer, and the predictor around them."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.nets.ensemble import Ensemble, EnsembleConfig
    from neurodyn.nets.gru import GRU
    from neurodyn.nets.members import MemberLinear
    from neurodyn.nets.mlp import MLP
    from neurodyn.nets.networks import MEMBER_NETWORKS, NETWORKS, TRUNKS, NetConfig
    from neurodyn.nets.normaliser import Normaliser
    from neurodyn.nets.predictor import Predictor, build_net, build_predictor
    from neurodyn.nets.sequence import SequenceNet
    from neurodyn.nets.transformer import Transformer

__all__ = [
    "GRU", "MEMBER_NETWORKS", "MLP", "NETWORKS", "TRUNKS", "Ensemble", "EnsembleConfig", "MemberLinear", "NetConfig",
    "Normaliser", "Predictor", "SequenceNet", "Transformer", "build_net", "build_predictor",
]  # fmt: skip

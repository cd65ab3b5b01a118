# SPDX-License-Identifier: Apache-2.0
"""Networks without physics: normaliser, MLP, recurrent net, cached transformer, and the predictor around them."""

from typing import Any

import lazy_loader

from neurodyn.core.registry import Later
from neurodyn.nets.networks import MEMBER_NETWORKS, NETWORKS, TRUNKS

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _mlp() -> Any:
    from neurodyn.nets.mlp import MLP

    return MLP


def _gru() -> Any:
    from neurodyn.nets.gru import GRU

    return GRU


def _transformer() -> Any:
    from neurodyn.nets.transformer import Transformer

    return Transformer


def _members() -> Any:
    from neurodyn.nets import members

    return members


def _member_nets() -> Any:
    from neurodyn.nets import member_nets

    return member_nets


NETWORKS.add("mlp", Later(_mlp))
NETWORKS.add("gru", Later(_gru))
NETWORKS.add("transformer", Later(_transformer))
MEMBER_NETWORKS.add("mlp", Later(lambda: _member_nets().MemberMLP))
MEMBER_NETWORKS.add("gru", Later(lambda: _member_nets().MemberRecurrent))
TRUNKS.add("gru", Later(lambda: _members().MemberGRU))
TRUNKS.add("mlp", Later(lambda: _members().MemberLayer))

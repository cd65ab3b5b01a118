# SPDX-License-Identifier: Apache-2.0
"""Which networks there are; each is imported when it is first asked for."""

from typing import TYPE_CHECKING, Any

from neurodyn.core.registry import Registry

if TYPE_CHECKING:
    from neurodyn.nets.member_nets import MemberNet
    from neurodyn.nets.sequence import SequenceNet

NETWORKS: "Registry[type[SequenceNet]]" = Registry(
    "network",
    mlp="neurodyn.nets.mlp:MLP",
    gru="neurodyn.nets.gru:GRU",
    transformer="neurodyn.nets.transformer:Transformer",
)
"""Sequence networks by name."""

MEMBER_NETWORKS: "Registry[type[MemberNet]]" = Registry(
    "network with members", mlp="neurodyn.nets.member_nets:MemberMLP", gru="neurodyn.nets.member_nets:MemberRecurrent"
)
"""How several networks of a kind are computed in one pass: made of a list of them, by the name of their kind."""

TRUNKS: Registry[Any] = Registry(
    "network of an ensemble", gru="neurodyn.nets.members:MemberGRU", mlp="neurodyn.nets.members:MemberLayer"
)
"""Layers of an ensemble's trunks by name: modules of (members, inputs, outputs), which are `recurrent` or not."""

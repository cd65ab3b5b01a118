# SPDX-License-Identifier: Apache-2.0
"""Which networks there are; each is imported when it is first asked for."""

from typing import TYPE_CHECKING, Any

from neurodyn.core.registry import Registry

if TYPE_CHECKING:
    from neurodyn.nets.sequence import SequenceNet

NETWORKS: "Registry[type[SequenceNet]]" = Registry(
    "network",
    mlp="neurodyn.nets.mlp:MLP",
    gru="neurodyn.nets.gru:GRU",
    transformer="neurodyn.nets.transformer:Transformer",
)
"""Sequence networks by name."""

TRUNKS: Registry[Any] = Registry(
    "network of an ensemble", gru="neurodyn.nets.members:MemberGRU", mlp="neurodyn.nets.members:MemberLayer"
)
"""Layers of an ensemble's trunks by name: modules of (members, inputs, outputs), which are `recurrent` or not."""

# SPDX-License-Identifier: Apache-2.0
"""What a world model carries from frame to frame, and what its members forecast."""

from dataclasses import dataclass

from torch import Tensor

from neurodyn.nets.ensemble import Hidden


@dataclass(frozen=True)
class WorldCarry:
    """History of a batch of worlds.

    Attributes:
        hidden: Hidden states of the members, shape [streams, worlds, width] each.
        member: The member whose prediction each world follows, shape [worlds]; None where all follow the mean of all.
    """

    hidden: Hidden
    member: Tensor | None


@dataclass(frozen=True)
class Forecast:
    """Roll-outs in which every member follows its own mean.

    Attributes:
        states: State vectors after each frame, shape [members, worlds, T, size].
        log_std: Logarithm of the predicted standard deviation in units of `WorldModel.scale`, likewise.
        logits: Of contacts and, last, of termination, shape [members, worlds, T, events]; None where there are neither.
    """

    states: Tensor
    log_std: Tensor
    logits: Tensor | None

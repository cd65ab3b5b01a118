# SPDX-License-Identifier: Apache-2.0
"""What the network or the networks of a model say of a frame."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor


class Outputs(NamedTuple):
    """Outputs of a frame.

    Attributes:
        followed: Those that lead to the next state, shape [worlds, outputs].
        members: Those of all members, where they have all seen the worlds, shape [members, worlds, outputs].
    """

    followed: Tensor
    members: Tensor | None = None


Predict = Callable[[Tensor, Any], tuple[Outputs, Any]]
"""One frame of a model's networks in torch, from inputs and memory."""

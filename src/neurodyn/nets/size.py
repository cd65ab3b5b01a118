# SPDX-License-Identifier: Apache-2.0
"""The size of networks, and its limit: a number with a nought too many is refused before memory or patience is out."""

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from neurodyn.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

MOST_WEIGHTS = 200_000_000
"""Weights of a network, unless the environment variable NEURODYN_MOST_WEIGHTS says otherwise."""

_LAYER = 1000
"""What a layer counts beside its weights: many tiny layers take long, too."""


def require_size(widths: Sequence[int], *, depth: int = 1, copies: int = 1, what: str = "net") -> None:
    """Refuse a network of too many weights.

    Args:
        widths: Sizes of consecutive layers.
        depth: How often they are repeated.
        copies: How many such networks there are: members of an ensemble.
        what: The network, for the message.

    Raises:
        InputError: There are more weights than the limit.
    """
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
    """Return the number of weights in the parameters of a model, or of a policy."""
    return sum(parameter.numel() for parameter in parameters)

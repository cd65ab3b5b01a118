# SPDX-License-Identifier: Apache-2.0
"""Tracing, reverse differentiation and compilation of scalar expressions, independent of mechanics."""

from neurodyn.multibody.trace.expression import (
    Expression,
    Graph,
    Loop,
    Scalar,
    absolute,
    apply_loop,
    arctan2,
    cos,
    exp,
    log,
    maximum,
    minimum,
    safe_sqrt,
    select_less,
    sin,
    softplus,
    tanh,
)
from neurodyn.multibody.trace.reverse import pull_back
from neurodyn.multibody.trace.source import map_in_loop

__all__ = [
    "Expression", "Graph", "Loop", "Scalar", "absolute", "apply_loop", "arctan2", "cos", "exp", "log", "map_in_loop",
    "maximum", "minimum", "pull_back", "safe_sqrt", "select_less", "sin", "softplus", "tanh",
]  # fmt: skip

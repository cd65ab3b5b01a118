# SPDX-License-Identifier: Apache-2.0
"""What controllers do: from targets and states to torques, batched and differentiable; one kind a file.

A law remembers nothing: windows of a log begin anywhere, and an integral at their start is not logged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from neurodyn.core.registry import Registry


@dataclass(frozen=True)
class Driven:
    """Driven joints as a controller sees them.

    Attributes:
        q: Positions [rad or m], shape [worlds, nu].
        qd: Velocities, likewise.
        error: Target less position, the shorter way round where a joint turns without end.
        target: The target.
    """

    q: Tensor
    qd: Tensor
    error: Tensor
    target: Tensor


Law = Callable[[Driven, Mapping[str, Tensor]], Tensor]
"""From joints and gains by name, shape [worlds, nu], to torques [N m or N], likewise."""

LAWS: Registry[Law] = Registry(
    "controller",
    pd="neurodyn.dynamics.controllers.pd:law",
    velocity="neurodyn.dynamics.controllers.velocity:law",
)
"""Laws by the kind of controller; gains are in `core.description.controllers.GAINS`."""

__all__ = ["LAWS", "Driven", "Law"]

# SPDX-License-Identifier: Apache-2.0
"""The one interface of all dynamics: analytic, hybrid, neural, and world models.

A `Dynamics` steps a batch of worlds. It has no hidden mutable state: whatever history a kind of dynamics
needs lives in the carry that the caller holds, and the state that is passed to `step` wins over anything
the carry remembers, because simulators hand their own state to every step and users edit it.
"""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.geometry.array_shapes import Controls, WorldMask

if TYPE_CHECKING:
    from neurodyn.dynamics.quantities import Quantities

__all__ = [
    "Carry", "Control", "Dynamics", "Environment", "State", "Step", "Trajectory", "Window", "present_state",
]  # fmt: skip

Carry = Any
"""History of a batch of worlds; its type is private to each kind of dynamics."""


@runtime_checkable
class Dynamics(Protocol):
    """A batch of worlds that can be stepped; torch tensors in, torch tensors out.

    Attributes:
        spec: Names, order, units and dt of state and control; frames of context that help a prediction.
        differentiable: Whether gradients flow through `step` and `rollout`.
    """

    spec: StateSpec
    differentiable: bool

    def begin(self, context: State | Window, environment: Environment | None = None) -> Carry:
        """Return the carry of a batch of worlds whose history is `context` (a bare state has none)."""
        ...

    def step(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Predict one frame from `state` under `control`; the carry that is passed in stays valid."""
        ...

    def reset(self, carry: Carry, context: State | Window, mask: WorldMask) -> Carry:
        """Begin anew in the worlds where `mask` is true, shape [worlds]; the others stay bitwise alone."""
        ...

    def rollout(
        self, context: State | Window, controls: Controls, environment: Environment | None = None
    ) -> Trajectory:
        """Predict T frames under torques `controls` [N m or N], shape [worlds, T, nu]."""
        ...

    def quantities(
        self,
        state: State,
        step: Step | None = None,
        *,
        torque: Tensor | None = None,
        environment: Environment | None = None,
    ) -> "Quantities":
        """Return what is known of a state by name (`dynamics.quantities`), computed when it is asked for.

        Args:
            state: The state.
            step: The prediction that ended in it; None at a start.
            torque: Torques that acted during the frame that ended [N m or N], shape [worlds, nu]; None where unknown.
            environment: What the worlds are in, as for `begin`.
        """
        ...

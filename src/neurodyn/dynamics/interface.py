# SPDX-License-Identifier: Apache-2.0
"""The interface of all dynamics: analytic, hybrid, neural and world models.

`Dynamics` step a batch of worlds and have no hidden mutable state. The caller holds the history as a carry. The state
passed to `step` takes precedence over it, because simulators pass their own state to every step and users edit it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.mechanism import Fingerprint
from neurodyn.core.description.spec import StateSpec
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.dynamics.conditions import Condition
from neurodyn.dynamics.measures import ComparedRollouts
from neurodyn.dynamics.quantities import Quantities, StateReader
from neurodyn.geometry.tensors import Controls, WorldMask
from neurodyn.robots import Robot

__all__ = ["Carry", "Control", "Dynamics", "Environment", "State", "Step", "Trajectory", "Window", "present_state"]

Carry = Any
"""History of a batch of worlds. Its type is private to each kind of dynamics."""


@runtime_checkable
class Dynamics(Protocol):
    """Steps a batch of worlds; takes and returns torch tensors.

    `neurodyn.dynamics.base.BaseDynamics` implements most of it.

    Attributes:
        spec: Names, order, units and dt of state and control, and the number of useful context frames.
        kind: Name of the kind of dynamics (`neurodyn.dynamics.kinds`).
        differentiable: Whether gradients flow through `step` and `rollout`.
        measured: Whether the state is what a log measures, in the environment of that log. Otherwise it is the state of
            a simulator.
        fingerprint: Identity of the articulation; None if unknown.
    """

    spec: StateSpec
    kind: str
    differentiable: bool
    measured: bool
    fingerprint: Fingerprint | None

    @property
    def network(self) -> str:
        """What computes a step, in one word: "gru", "identified" ..."""
        ...

    @property
    def caveat(self) -> str:
        """What these dynamics are not, though their kind suggests it; empty for nothing."""
        ...

    @property
    def robot(self) -> Robot | None:
        """The declaration of the robot; None if there is none."""
        ...

    @property
    def device(self) -> str:
        """Device of inputs and outputs."""
        ...

    @property
    def contacts_of_simulator(self) -> bool:
        """Whether the contact points may be all of the simulator's, instead of the declared ones."""
        ...

    @property
    def contact_points(self) -> ContactPointLayout | None:
        """Points that are measured against the ground; None if the dynamics feel none."""
        ...

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Quantities of the robot that are inputs of its networks, in which worlds may differ."""
        ...

    @property
    def floating(self) -> bool:
        """Whether the base floats."""
        ...

    def parameters(self) -> Iterator[Tensor]:
        """Return the trainable tensors."""
        ...

    @property
    def trained(self) -> bool:
        """Whether the dynamics are ready for use; false for a model with random weights."""
        ...

    @property
    def training_range(self) -> TrainingRange | None:
        """Range of motion in the training data; None if there are none or it is unknown."""
        ...

    @property
    def from_logs(self) -> bool:
        """Whether logs of the robot made the model, which are the truth about it then, not its declared simulator."""
        ...

    @property
    def uncertain(self) -> bool:
        """Whether `step` returns an epistemic standard deviation."""
        ...

    @property
    def epistemic_scale(self) -> Tensor | None:
        """Standard deviation of the training states, shape [nq + nv + nx], which scales the epistemic uncertainty."""
        ...

    def held_out(self) -> "tuple[Dynamics, Dynamics, str] | None":
        """Return what policies train in, what judges them and its name: a part that they never train in, if any."""
        ...

    def network_inputs(self, state: State, control: Control, environment: Environment | None = None) -> Tensor | None:
        """Return what a network reads of a frame, normalised, shape [worlds, inputs]; None without a network."""
        ...

    def resolve_environment(self, environment: Environment | None) -> Environment:
        """Return the environment with defaults filled in; for None, the default environment.

        Raises:
            InputError: The dynamics do not support its gravity or ground.
        """
        ...

    def begin(self, context: State | Window, environment: Environment | None = None) -> Carry:
        """Return the carry of a batch of worlds with the history `context`; a `State` is a start without history."""
        ...

    def imagine(
        self, context: State | Window, environment: Environment | None = None, *, uncertainty: bool = False
    ) -> Carry:
        """Return the carry of worlds for imagined roll-outs of a policy; see `begin`.

        In an ensemble each world follows one member, in turn, so that the policy experiences every member. Steps return
        their `uncertainty` only if asked to.
        """
        ...

    def step(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Predict one frame from `state` under `control`. The given carry stays valid."""
        ...

    def step_(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Predict one frame without gradients, as fast as possible. The given carry may be overwritten."""
        ...

    def reset(self, carry: Carry, context: State | Window, mask: WorldMask) -> Carry:
        """Restart the worlds where `mask` is true, shape [worlds]; the others stay bitwise the same."""
        ...

    def rollout(
        self, context: State | Window, controls: Controls, environment: Environment | None = None
    ) -> Trajectory:
        """Predict T frames under torques `controls` [N m or N], shape [worlds, T, nu]."""
        ...

    def with_drives(self, drives: Mapping[str, Drive]) -> "Dynamics | None":
        """Return the same dynamics with drives by joint inside, whose commands are then the controls.

        None for dynamics that drives can only be put in front of; `dynamics.driven.commanded` does either.
        """
        ...

    def compare(
        self,
        truth: "Dynamics | Trajectory",
        context: State | Window,
        controls: Controls,
        environment: Environment | None = None,
    ) -> ComparedRollouts:
        """Compare a roll-out with other dynamics of the robot, or with a recorded trajectory, without gradients.

        Args:
            truth: Other dynamics, which start from the same states; or a recorded trajectory from these states.
            context: History of the worlds.
            controls: Torques [N m or N], shape [worlds, T, nu].
            environment: Environment of both; None for the default of these dynamics.

        Raises:
            InputError: The recorded trajectory has other worlds or coordinates, or is shorter.
            MismatchError: The other dynamics have other joints, controls or another dt.
        """
        ...

    def quantities(
        self,
        state: State,
        step: Step | None = None,
        *,
        torque: Tensor | None = None,
        environment: Environment | None = None,
    ) -> Quantities:
        """Return the named quantities of a state (`dynamics.quantities`), each computed on access.

        Args:
            state: The state.
            step: The prediction that led to it; None for an initial state.
            torque: Torques during that frame [N m or N], shape [worlds, nu]; None if unknown.
            environment: Environment of the worlds, as for `begin`.
        """
        ...

    def reader(self, environment: Environment | None = None) -> StateReader:
        """Return a reader of quantities in one environment: `quantities` for loops, with the set-up done once."""
        ...


class MeasuredDynamics(Dynamics, Protocol):
    """Dynamics of measured states, whose history costs a warm-up that can be shared between worlds."""

    def graft(self, carry: Carry, mask: WorldMask, source: Carry, chosen: Tensor) -> Carry:
        """Replace the history of the worlds where `mask` is true, shape [worlds]; `carry` stays valid.

        World w gets row `chosen[w]` of the histories `source`.
        """
        ...

# SPDX-License-Identifier: Apache-2.0
"""The one interface of all dynamics: analytic, hybrid, neural, and world models.

A `Dynamics` steps a batch of worlds. It has no hidden mutable state: history lives in the carry that the caller holds,
and the state that is passed to `step` overrides it, because simulators hand their own state to every step and users
edit it.
"""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.mechanism import Fingerprint
from neurodyn.core.description.spec import StateSpec
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.dynamics.measures import ComparedRollouts
from neurodyn.dynamics.quantities import Quantities, StateReader
from neurodyn.geometry.tensors import Controls, WorldMask
from neurodyn.robots import Robot

__all__ = ["Carry", "Control", "Dynamics", "Environment", "State", "Step", "Trajectory", "Window", "present_state"]

Carry = Any
"""History of a batch of worlds; its type is private to each kind of dynamics."""


@runtime_checkable
class Dynamics(Protocol):
    """A batch of worlds that can be stepped; torch tensors in, torch tensors out.

    `neurodyn.dynamics.base` has what all kinds have in common.

    Attributes:
        spec: Names, order, units and dt of state and control; frames of context that help a prediction.
        kind: Name of the kind of dynamics (`neurodyn.dynamics.kinds`).
        differentiable: Whether gradients flow through `step` and `rollout`.
        measured: Whether the state is what a log measures, in the environment of that log. Otherwise it is the state of
            a simulator.
        fingerprint: The articulation that the dynamics are of; None where that is unknown.
    """

    spec: StateSpec
    kind: str
    differentiable: bool
    measured: bool
    fingerprint: Fingerprint | None

    @property
    def network(self) -> str:
        """What computes a step, in a word: "gru", "identified" ..."""
        ...

    @property
    def robot(self) -> Robot | None:
        """The declaration of the robot; None where there is none."""
        ...

    @property
    def device(self) -> str:
        """Device of the tensors that it takes."""
        ...

    @property
    def contacts_of_simulator(self) -> bool:
        """Whether its contact points may be all that the simulator has, instead of those that the robot declares."""
        ...

    @property
    def contact_points(self) -> ContactPointLayout | None:
        """Points that are measured against the ground; None where it feels none."""
        ...

    @property
    def floating(self) -> bool:
        """Whether the base floats."""
        ...

    def parameters(self) -> Iterator[Tensor]:
        """Return what can be trained."""
        ...

    @property
    def trained(self) -> bool:
        """Whether it is ready for use: no model with random weights."""
        ...

    @property
    def training_range(self) -> TrainingRange | None:
        """Range of motion in the data that it was made from; None where there are none, or that is unknown."""
        ...

    @property
    def uncertain(self) -> bool:
        """Whether steps have an epistemic standard deviation."""
        ...

    @property
    def epistemic_scale(self) -> Tensor | None:
        """Unit of the epistemic standard deviation: that of the states in the training data, shape [nq + nv + nx]."""
        ...

    def resolve_environment(self, environment: Environment | None) -> Environment:
        """Return the environment with what it leaves open filled in; None for the default one.

        Raises:
            InputError: It asks for a gravity or a ground that the dynamics do not know.
        """
        ...

    def begin(self, context: State | Window, environment: Environment | None = None) -> Carry:
        """Return the carry of a batch of worlds whose history is `context` (a bare state has none)."""
        ...

    def imagine(
        self, context: State | Window, environment: Environment | None = None, *, uncertainty: bool = False
    ) -> Carry:
        """Return the carry of worlds in which a policy acts, as of `begin`.

        Of an ensemble, the worlds follow its members in turn, so that the policy meets what any of them believes.

        Args:
            context: History of the worlds.
            environment: What they are in.
            uncertainty: Whether steps have to say how uncertain they are, where the dynamics know.
        """
        ...

    def step(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Predict one frame from `state` under `control`; the carry that is passed in stays valid."""
        ...

    def step_(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Predict one frame without gradients, as fast as possible; the carry that is passed in is used up."""
        ...

    def reset(self, carry: Carry, context: State | Window, mask: WorldMask) -> Carry:
        """Begin anew in the worlds where `mask` is true, shape [worlds]; the others stay bitwise alone."""
        ...

    def rollout(
        self, context: State | Window, controls: Controls, environment: Environment | None = None
    ) -> Trajectory:
        """Predict T frames under torques `controls` [N m or N], shape [worlds, T, nu]."""
        ...

    def compare(
        self,
        truth: "Dynamics | Trajectory",
        context: State | Window,
        controls: Controls,
        environment: Environment | None = None,
    ) -> ComparedRollouts:
        """Roll out beside other dynamics of the robot, or beside what was recorded, without gradients.

        Args:
            truth: Other dynamics, which start from the same states; or a recorded trajectory from these.
            context: History of the worlds.
            controls: Torques [N m or N], shape [worlds, T, nu].
            environment: What both are in; None for the default of these dynamics.

        Returns:
            Both, with errors by joint; `plot()` draws them, and notebooks show a table.

        Raises:
            InputError: The recorded trajectory is of other worlds or coordinates, or shorter.
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
        """Return what is known of a state by name (`dynamics.quantities`), computed when it is asked for.

        Args:
            state: The state.
            step: The prediction that ended in it; None at a start.
            torque: Torques that acted during the frame that ended [N m or N], shape [worlds, nu]; None where unknown.
            environment: What the worlds are in, as for `begin`.
        """
        ...

    def reader(self, environment: Environment | None = None) -> StateReader:
        """Return what reads quantities off states in one environment: what `quantities` looks up, once for a loop."""
        ...


class MeasuredDynamics(Dynamics, Protocol):
    """Dynamics of what a log measures, whose history takes a warm-up to read: it can be read for many at a time."""

    def graft(self, carry: Carry, mask: WorldMask, source: Carry, chosen: Tensor) -> Carry:
        """Give some worlds the history of others.

        Args:
            carry: History of all worlds; it stays valid.
            mask: Worlds that begin anew, shape [worlds].
            source: Histories to take from.
            chosen: Row of `source` for each world, read where `mask` is true, shape [worlds].
        """
        ...

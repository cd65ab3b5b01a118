# SPDX-License-Identifier: Apache-2.0
"""The one interface of all dynamics: analytic, hybrid, neural, and world models.

A `Dynamics` steps a batch of worlds. It has no hidden mutable state: whatever history a kind of dynamics
needs lives in the carry that the caller holds, and the state that is passed to `step` wins over anything
the carry remembers, because simulators hand their own state to every step and users edit it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from neurodyn.core.contact_points import ContactPointLayout
from neurodyn.core.fingerprint import Fingerprint
from neurodyn.core.spec import StateSpec
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Robot

if TYPE_CHECKING:
    from neurodyn.dynamics.quantities import Quantities

Carry = Any
"""History of a batch of worlds; its type is private to each kind of dynamics."""


@dataclass(frozen=True)
class State:
    """Generalised coordinates of a batch of worlds.

    Attributes:
        q: Positions [rad or m], shape [worlds, nq].
        qd: Velocities [rad/s or m/s], shape [worlds, nv].
        channels: Measured numbers beside them (`StateSpec.channels`), shape [worlds, nx]; None where there are none.
    """

    q: Tensor
    qd: Tensor
    channels: Tensor | None = None

    @property
    def worlds(self) -> int:
        """Number of worlds."""
        return self.q.shape[0]


@dataclass(frozen=True)
class Control:
    """What drives the robot during one frame: torques, PD targets, or both (they add up).

    Attributes:
        torque: Joint torques or forces [N m or N], shape [worlds, nu]; None for zero.
        target: PD targets [rad or m], shape [worlds, nu]; None without a PD controller.
        kp: Stiffness of the PD controller [N m/rad or N/m], shape [worlds, nu] or broadcastable.
        kd: Damping of the PD controller [N m s/rad or N s/m], shape [worlds, nu] or broadcastable.
    """

    torque: Tensor | None = None
    target: Tensor | None = None
    kp: Tensor | None = None
    kd: Tensor | None = None


@dataclass(frozen=True)
class Environment:
    """What a world is in.

    Attributes:
        gravity: Gravity [m/s^2], world axes, shape [3] or [worlds, 3]; None for the robot's own.
        ground: The shapes around the robot, seen by each world at a pose of its own; None for free space.
    """

    gravity: Tensor | None = None
    ground: Ground | None = None


@dataclass(frozen=True)
class Window:
    """Recent history of a batch of worlds: T frames that led to the present state.

    Attributes:
        q: Positions at the starts of the T frames and at their end [rad or m], shape [worlds, T + 1, nq].
        qd: Velocities, likewise [rad/s or m/s], shape [worlds, T + 1, nv].
        torque: Controls during the T frames: torques [N m or N], or what `StateSpec.control_kind` says, shape
            [worlds, T, nu].
        channels: Measured numbers beside them, shape [worlds, T + 1, nx]; None where there are none.
    """

    q: Tensor
    qd: Tensor
    torque: Tensor
    channels: Tensor | None = None

    @property
    def present(self) -> State:
        """The state at the end of the window."""
        return State(self.q[:, -1], self.qd[:, -1], None if self.channels is None else self.channels[:, -1])


@dataclass(frozen=True)
class Step:
    """One predicted frame, and what a kind of dynamics knows about it.

    Attributes:
        state: The state at the end of the frame.
        contacts: Probability that each body of `StateSpec.contacts` touches something, shape [worlds, nc]; None where
            that is not known.
        termination: Probability that the frame ended an episode (a fall), shape [worlds]; None where that is not known.
        epistemic: How far the members of an ensemble disagree on the mean: their standard deviation in each of
            [q, qd, channels], in the units of the state, shape [worlds, nq + nv + nx]; None of other dynamics.
        aleatoric: Standard deviation of the noise that is predicted, likewise.
    """

    state: State
    contacts: Tensor | None = None
    termination: Tensor | None = None
    epistemic: Tensor | None = None
    aleatoric: Tensor | None = None


@dataclass(frozen=True)
class Trajectory:
    """A roll-out: the first state and one more for each frame.

    Attributes:
        q: Positions [rad or m], shape [worlds, T + 1, nq].
        qd: Velocities [rad/s or m/s], shape [worlds, T + 1, nv].
        channels: Measured numbers beside them, shape [worlds, T + 1, nx]; None where there are none.
        aleatoric: Standard deviation of the predicted noise in [q, qd, channels], shape [worlds, T, nq + nv + nx]; None
            of dynamics that predict none.
        epistemic: Standard deviation of an ensemble's means, likewise.
    """

    q: Tensor
    qd: Tensor
    channels: Tensor | None = None
    aleatoric: Tensor | None = None
    epistemic: Tensor | None = None


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
    def contact_points(self) -> ContactPointLayout | None:
        """Points that are measured against the ground; None where it feels none."""
        ...

    @property
    def floating(self) -> bool:
        """Whether the base floats."""
        ...

    @property
    def trained(self) -> bool:
        """Whether it is ready for use: no model with random weights."""
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

    def step(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Predict one frame from `state` under `control`; the carry that is passed in stays valid."""
        ...

    def step_(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Predict one frame without gradients, as fast as possible; the carry that is passed in is used up."""
        ...

    def reset(self, carry: Carry, context: State | Window, mask: Tensor) -> Carry:
        """Begin anew in the worlds where `mask` is true, shape [worlds]; the others stay bitwise alone."""
        ...

    def rollout(self, context: State | Window, controls: Tensor, environment: Environment | None = None) -> Trajectory:
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


class MeasuredDynamics(Dynamics, Protocol):
    """Dynamics of what a log measures, whose history takes a warm-up to read: it can be read for many at a time."""

    def graft(self, carry: Carry, rows: Tensor, source: Carry, chosen: Tensor) -> Carry:
        """Give some worlds the history of others.

        Args:
            carry: History of all worlds; it stays valid.
            rows: Worlds that begin anew.
            source: Histories to take from.
            chosen: Row of `source` for each of `rows`.
        """
        ...


def present_state(context: State | Window) -> State:
    """Return the state in which a context ends."""
    return context.present if isinstance(context, Window) else context

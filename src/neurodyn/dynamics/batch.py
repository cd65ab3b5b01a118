# SPDX-License-Identifier: Apache-2.0
"""Batches of worlds: states, controls, environments, histories, predictions and roll-outs.

Built from torch tensors or numpy arrays, which become tensors (floats keep their dtype). Shapes and dtypes are checked
when one is built (`dynamics.batched`).
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.dynamics.batched import Batched
from neurodyn.geometry.ground import Ground


@dataclass(frozen=True, eq=False, repr=False)
class State(Batched):
    """Generalised coordinates of a batch of worlds.

    Attributes:
        q: Positions [rad or m], shape [worlds, nq].
        qd: Velocities [rad/s or m/s], shape [worlds, nv].
        channels: Measured numbers beside them (`StateSpec.channels`), shape [worlds, nx]; None where there are none.
    """

    q: Float[Tensor, "worlds nq"]
    qd: Float[Tensor, "worlds nv"]
    channels: Float[Tensor, "worlds nx"] | None = None

    def where(self, mask: Tensor, other: "State") -> "State":
        """Return these states where `mask` is true, shape [worlds], bool, and those of `other` elsewhere."""
        chosen, channels = mask[:, None], other.channels if self.channels is None else self.channels
        if self.channels is not None and other.channels is not None:
            channels = torch.where(chosen, self.channels, other.channels)
        return State.unchecked(
            q=torch.where(chosen, self.q, other.q), qd=torch.where(chosen, self.qd, other.qd), channels=channels
        )


@dataclass(frozen=True, eq=False, repr=False)
class Control(Batched):
    """What drives the robot during one frame: torques, PD targets, or both (they add up).

    Attributes:
        torque: Joint torques or forces [N m or N], shape [worlds, nu]; None for zero.
        target: PD targets [rad or m], shape [worlds, nu]; None without a PD controller.
        kp: Stiffness of the PD controller [N m/rad or N/m], shape [worlds, nu] or broadcastable.
        kd: Damping of the PD controller [N m s/rad or N s/m], shape [worlds, nu] or broadcastable.
    """

    torque: Float[Tensor, "worlds nu"] | None = None
    target: Float[Tensor, "worlds nu"] | None = None
    kp: Float[Tensor, "..."] | None = None
    kd: Float[Tensor, "..."] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Environment(Batched):
    """What a world is in.

    Attributes:
        gravity: Gravity [m/s^2], world axes, shape [3] or [worlds, 3]; None for the robot's own.
        ground: The shapes around the robot, seen by each world at a pose of its own; None for free space.
    """

    gravity: Float[Tensor, "3"] | Float[Tensor, "worlds 3"] | None = None
    ground: Ground | None = None

    def to(self, target: torch.device | torch.dtype | str) -> "Environment":
        """Return gravity and the poses of the ground on another device, or of another dtype."""
        moved, ground = super().to(target), self.ground
        if ground is None or ground.pose is None:
            return moved
        return replace(moved, ground=ground.posed(ground.pose.to(target)))


@dataclass(frozen=True, eq=False, repr=False)
class Window(Batched):
    """Recent history of a batch of worlds: T frames that led to the present state.

    Attributes:
        q: Positions at the starts of the T frames and at their end [rad or m], shape [worlds, T + 1, nq].
        qd: Velocities, likewise [rad/s or m/s], shape [worlds, T + 1, nv].
        torque: Controls during the T frames: torques [N m or N], or what `StateSpec.control_kind` says, shape
            [worlds, T, nu].
        channels: Measured numbers beside them, shape [worlds, T + 1, nx]; None where there are none.
    """

    q: Float[Tensor, "worlds states nq"]
    qd: Float[Tensor, "worlds states nv"]
    torque: Float[Tensor, "worlds states-1 nu"]
    channels: Float[Tensor, "worlds states nx"] | None = None

    @property
    def present(self) -> State:
        """The state at the end of the window."""
        return State(self.q[:, -1], self.qd[:, -1], None if self.channels is None else self.channels[:, -1])


@dataclass(frozen=True, eq=False, repr=False)
class Step(Batched):
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
    contacts: Float[Tensor, "worlds nc"] | None = None
    termination: Float[Tensor, " worlds"] | None = None
    epistemic: Float[Tensor, "worlds size"] | None = None
    aleatoric: Float[Tensor, "worlds size"] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory(Batched):
    """A roll-out: the first state and one more for each frame.

    Attributes:
        q: Positions [rad or m], shape [worlds, T + 1, nq].
        qd: Velocities [rad/s or m/s], shape [worlds, T + 1, nv].
        channels: Measured numbers beside them, shape [worlds, T + 1, nx]; None where there are none.
        aleatoric: Standard deviation of the predicted noise in [q, qd, channels], shape [worlds, T, nq + nv + nx]; None
            of dynamics that predict none.
        epistemic: Standard deviation of an ensemble's means, likewise.
    """

    q: Float[Tensor, "worlds states nq"]
    qd: Float[Tensor, "worlds states nv"]
    channels: Float[Tensor, "worlds states nx"] | None = None
    aleatoric: Float[Tensor, "worlds states-1 size"] | None = None
    epistemic: Float[Tensor, "worlds states-1 size"] | None = None

    def until(self, frames: int) -> "Trajectory":
        """Return the first `frames` frames."""
        states = {n: None if (x := getattr(self, n)) is None else x[:, : frames + 1] for n in ("q", "qd", "channels")}
        stds = {n: None if (x := getattr(self, n)) is None else x[:, :frames] for n in ("aleatoric", "epistemic")}
        return replace(self, **states, **stds)


def present_state(context: State | Window) -> State:
    """Return the state in which a context ends."""
    return context.present if isinstance(context, Window) else context

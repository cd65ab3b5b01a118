# SPDX-License-Identifier: Apache-2.0
"""Batched roll-outs of any dynamics from given starts."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control, Environment, State, Trajectory, Window, present_state
from neurodyn.dynamics.interface import Carry, Dynamics
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.evaluate.records import About
from neurodyn.nets.networks import weights_in


@dataclass(frozen=True)
class ControlSequence:
    """Torques, or targets and gains of a PD controller, for a batch of roll-outs.

    Attributes:
        torque: Torques or forces [N m or N], shape [worlds, T, nu]; None with a controller.
        target: Targets of the controller [rad or m], shape [worlds, T, nu]; None with torques.
        kp: Stiffness [N m/rad or N/m], shape [worlds, 1].
        kd: Damping [N m s/rad or N s/m], shape [worlds, 1].
    """

    torque: Tensor | None = None
    target: Tensor | None = None
    kp: Tensor | None = None
    kd: Tensor | None = None

    @property
    def frames(self) -> int:
        """Number of frames."""
        values = self.target if self.torque is None else self.torque
        return 0 if values is None else values.shape[1]

    def at(self, frame: int) -> Control:
        """Return the control of one frame."""
        if self.target is None:
            return Control(torque=None if self.torque is None else self.torque[:, frame])
        return Control(target=self.target[:, frame], kp=self.kp, kd=self.kd)

    def worlds(self, rows: slice | Tensor) -> "ControlSequence":
        """Return the controls of some of the roll-outs."""
        return ControlSequence(*(None if x is None else x[rows] for x in (self.torque, self.target, self.kp, self.kd)))

    def to(self, device: str) -> "ControlSequence":
        """Return the controls on another device."""
        return ControlSequence(
            *(None if x is None else x.to(device) for x in (self.torque, self.target, self.kp, self.kd))
        )

    def until(self, frame: int) -> "ControlSequence":
        """Return the controls of the first frames."""
        torque, target = (None if x is None else x[:, :frame] for x in (self.torque, self.target))
        return replace(self, torque=torque, target=target)


@dataclass(frozen=True)
class RolloutBatch:
    """Starts of roll-outs, one for each world.

    Attributes:
        past: Initial states, or histories that end in them.
        drive: Controls.
        environment: Environment of the worlds; None for the dynamics' own.
    """

    past: State | Window
    drive: ControlSequence
    environment: Environment | None = None

    def to(self, device: str) -> "RolloutBatch":
        """Return the starts on another device."""
        environment = None if self.environment is None else self.environment.to(device)
        return RolloutBatch(self.past.to(device), self.drive.to(device), environment)


@dataclass(frozen=True)
class RolloutResult:
    """Roll-outs from all starts.

    Attributes:
        path: States, including the initial ones.
        seconds: Wall time [s].
        cpu_seconds: CPU time [s].
    """

    path: Trajectory
    seconds: float
    cpu_seconds: float


@torch.no_grad()
def roll_out(dynamics: Dynamics, batches: Iterable[RolloutBatch]) -> RolloutResult:
    """Roll dynamics out from all starts, batch by batch to bound memory."""
    paths, wall, cpu = [], 0.0, 0.0
    for batch in batches:
        begin = time.perf_counter(), time.process_time()
        paths.append(follow(dynamics, batch))
        wall, cpu = wall + time.perf_counter() - begin[0], cpu + time.process_time() - begin[1]
    return RolloutResult(Trajectory.joined(paths), wall, cpu or wall)  # some clocks of CPU time tick every 10 ms


def follow(dynamics: Dynamics, batch: RolloutBatch) -> Trajectory:
    """Roll out under torques, or with a controller that acts on the predicted state.

    Dynamics run on their device; starts and roll-outs are on the CPU.
    """
    if torch.device(dynamics.device).type == "cpu":
        return _followed(dynamics, batch)
    return _followed(dynamics, batch.to(dynamics.device)).to("cpu")


def _followed(dynamics: Dynamics, batch: RolloutBatch) -> Trajectory:
    drive = batch.drive
    if drive.torque is not None:
        return dynamics.rollout(batch.past, drive.torque, batch.environment)
    carry, state = dynamics.begin(batch.past, batch.environment), present_state(batch.past)
    path = _controlled(dynamics, carry, state, drive)
    if not isinstance(dynamics, NeuralDynamics) or dynamics.members == 1:
        return path
    several = drive.worlds(dynamics.apart(path.worlds))
    each = _controlled(dynamics, *dynamics.begin_apart(batch.past, batch.environment), several)
    return replace(path, epistemic=dynamics.spread(each))


def _controlled(dynamics: Dynamics, carry: Carry, state: State, drive: ControlSequence) -> Trajectory:
    """Roll out with a controller; the in-place step of a network consumes the carry."""
    q, qd = [state.q], [state.qd]
    for frame in range(drive.frames):
        carry, step = dynamics.step_(carry, state, drive.at(frame))
        state = step.state
        q.append(state.q)
        qd.append(state.qd)
    return Trajectory(torch.stack(q, 1), torch.stack(qd, 1))


def about(model: Dynamics, horizon: int, rollouts: int, seed: int) -> About:
    """Return the subject of an evaluation."""
    return About(
        robot=model.spec.robot, kind=model.kind, network=model.network, parameters=weights_in(model.parameters()),
        horizon=horizon, rollouts=rollouts, seed=seed, dt=model.spec.dt,
    )  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
r"""What a model says about the base in a frame: its motion, and that of the joints, beside the readings.

From a base that moves with velocity v at height z, under the commands and with the joints as read, the model predicts
the change of the base's velocity, its angular velocity and the joints' velocities at the end of the frame: with its
contacts, which depend on v and z. Residuals are these minus what accelerometer, gyroscope and encoders say. So the
model's contact forces are the sensor of height and slip.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.batch import Control, Environment, State
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.linearisation import frame_after, velocity_gradients
from neurodyn.estimate.inertial import InertialSteps, spins, strapdown
from neurodyn.estimate.sensed import SensedBatch
from neurodyn.estimate.settings import ImuMounting
from neurodyn.estimate.track import ACCELEROMETER, GYROSCOPE, HEIGHT, SIZE, TURN, VELOCITY, BaseTrack, skew
from neurodyn.geometry import rotation

LIFT = 100.0
"""Height at which nothing touches the ground [m]."""


@dataclass(frozen=True)
class ModelResiduals:
    """Predictions of a model minus readings, of frames of a batch of runs.

    Attributes:
        residual: Change of the velocity of the centre of mass [m/s], angular velocity [rad/s], both in world axes, and
            joint velocities at the end of the frame, shape [runs, frames - 1, nv].
        jacobian: Derivative by the errors at its start, shape [runs, frames - 1, nv, SIZE].
    """

    residual: Tensor
    jacobian: Tensor


def states_of(track: BaseTrack, sensed: SensedBatch, spin: Tensor, arm: Tensor) -> State:
    """Return the states of the robot in all frames, above the world's origin, shape [runs * frames, ...].

    Args:
        track: States of the base.
        sensed: Readings of the joints.
        spin: Angular velocities in world axes [rad/s].
        arm: From the IMU to the base's centre of mass, in world axes [m].
    """
    place = torch.stack([torch.zeros_like(track.height)] * 2 + [track.height], -1)
    q = torch.cat([place, track.quaternion, sensed.q], -1)
    qd = torch.cat([track.velocity + torch.linalg.cross(spin, arm), spin, sensed.qd], -1)
    return State(q.flatten(0, 1), qd.flatten(0, 1))


class FrameModel:
    """Predictions of one frame by a model, and their derivatives."""

    def __init__(self, dynamics: Dynamics, mounting: ImuMounting) -> None:
        """Prepare predictions by dynamics that are differentiable, of a robot with an IMU."""
        self._dynamics, self._mounting = dynamics, mounting
        self._environment = dynamics.resolve_environment(None)
        gravity = self._environment.gravity
        assert gravity is not None  # the environment is resolved
        self.gravity = gravity.double().cpu()
        centre = dynamics.base_com
        assert centre is not None  # the base floats
        self.to_centre = centre.double().cpu() - mounting.position

    def arms(self, quaternion: Tensor) -> Tensor:
        """Return the way from the IMU to the base's centre of mass in world axes [m]."""
        return rotation.rotate(quaternion, self.to_centre.expand(*quaternion.shape[:-1], 3))

    def _command(self, control: Tensor) -> Control:
        torques = self._dynamics.spec.control_kind == "torque"
        return Control(torque=control) if torques else Control(target=control)

    def memories(self, track: BaseTrack, inertial: InertialSteps, sensed: SensedBatch) -> Tensor | None:
        """Return the memory of drives at the start of each frame, from commands and joints, [runs, frames - 1, ...]."""
        arm, spin = self.arms(track.quaternion), spins(track, inertial.spin, self._mounting)
        states, runs = states_of(track, sensed, spin, arm), len(sensed.q)
        q, qd = (x.view(runs, -1, x.shape[-1]) for x in (states.q, states.qd))
        carry = self._dynamics.begin(State(q[:, 0], qd[:, 0]), self._environment)
        if not getattr(self._dynamics, "memory", 0):
            return None
        kept = []
        for t in range(q.shape[1] - 1):
            kept.append(carry.memory)
            carry, _ = self._dynamics.step(carry, State(q[:, t], qd[:, t]), self._command(sensed.control[:, t]))
        first = torch.zeros_like(kept[1]) if kept[0] is None else kept[0]
        return torch.stack([first, *kept[1:]], 1)

    def pushes(self, track: BaseTrack, inertial: InertialSteps, sensed: SensedBatch, memories: Tensor | None) -> Tensor:
        """Return by how much the ground accelerates the base in each frame [m/s^2], shape [runs, frames].

        That is what the IMU says beyond the model's prediction in free flight, in which legs move the base too.
        """
        raised = replace(track, height=track.height + LIFT)
        beyond = self.values(raised, inertial, sensed, memories)[..., :3].norm(dim=-1) / inertial.dt
        return torch.cat([beyond, beyond[:, -1:]], 1)

    def errors(self, track: BaseTrack, inertial: InertialSteps, sensed: SensedBatch, carry: Any) -> tuple[Tensor, Any]:
        """Return predictions minus readings of the first frame of runs, without derivatives, and the carry after it."""
        arm, spin = self.arms(track.quaternion), spins(track, inertial.spin, self._mounting)
        states, runs = states_of(track, sensed, spin, arm), len(sensed.q)
        first = states.rows(torch.arange(runs) * sensed.q.shape[1])
        carry, step = self._dynamics.step(carry, first, self._command(sensed.control[:, 0]))
        return self._beside(step.state.qd[:, None], track, inertial, sensed)[0], carry

    def begin(self, sensed: SensedBatch, rows: int) -> Any:
        """Return the carry of a new run with `rows` rows for each run of a batch."""
        q = torch.zeros(rows * len(sensed.q), self._dynamics.spec.nq, dtype=torch.float64)
        q[:, 6], q[:, 7:] = 1.0, sensed.q[:, 0].repeat_interleave(rows, 0)
        return self._dynamics.begin(State(q, torch.zeros(len(q), self._dynamics.spec.nv).double()), self._environment)

    def _beside(
        self, predicted: Tensor, track: BaseTrack, inertial: InertialSteps, sensed: SensedBatch
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return residuals of predicted velocities; quaternions, angular velocity and specific force by the IMU."""
        quaternions, acceleration, force = strapdown(track, inertial, self._mounting, self.gravity)
        later = rotation.rotate(quaternions, (inertial.spin[:, 1:] - track.gyroscope[:, :-1]) @ self._mounting.matrix.T)
        swung = torch.linalg.cross(later, self.arms(quaternions))
        gained = predicted[..., :3] - track.velocity[:, :-1] - inertial.dt * acceleration - swung
        residual = torch.cat([gained, predicted[..., 3:6] - later, predicted[..., 6:] - sensed.qd[:, 1:]], -1)
        return residual, quaternions, later, force

    def on(self, mounting: ImuMounting) -> "FrameModel":
        """Return the predictions for an IMU at another place."""
        return FrameModel(self._dynamics, mounting)

    def _given(
        self, track: BaseTrack, inertial: InertialSteps, sensed: SensedBatch, memories: Tensor | None
    ) -> tuple[Dynamics, State, Tensor, Environment, Tensor | None]:
        """Return what predictions of all frames depend on: states, controls, environment and memory."""
        runs, frames = sensed.q.shape[:2]
        states = states_of(track, sensed, spins(track, inertial.spin, self._mounting), self.arms(track.quaternion))
        now = torch.arange(runs * frames).view(runs, frames)[:, :-1].flatten()
        memory = None if memories is None else memories.flatten(0, 1)
        return self._dynamics, states.rows(now), sensed.control[:, :-1].flatten(0, 1), self._environment, memory

    def values(self, track: BaseTrack, inertial: InertialSteps, sensed: SensedBatch, memories: Tensor | None) -> Tensor:
        """Return predictions minus readings without derivatives, shape [runs, frames - 1, nv]."""
        after = frame_after(*self._given(track, inertial, sensed, memories))
        return self._beside(after.qd.unflatten(0, (len(sensed.q), -1)), track, inertial, sensed)[0]

    def residuals(
        self, track: BaseTrack, inertial: InertialSteps, sensed: SensedBatch, memories: Tensor | None
    ) -> ModelResiduals:
        """Return predictions minus readings."""
        runs, frames = sensed.q.shape[:2]
        nv = self._dynamics.spec.nv
        after, rows = velocity_gradients(*self._given(track, inertial, sensed, memories))
        rows, predicted = (x.unflatten(0, (runs, frames - 1)) for x in (rows, after.qd))
        residual, quaternions, later, force = self._beside(predicted, track, inertial, sensed)
        arm, spin = self.arms(track.quaternion), spins(track, inertial.spin, self._mounting)
        to_base, arm_later = self._mounting.matrix, self.arms(quaternions)
        swung = torch.linalg.cross(later, arm_later)
        # Columns of the model: place, rotation, joints, then velocity of the centre of mass, spin, joints.
        by_velocity, by_spin = rows[..., nv : nv + 3], rows[..., nv + 3 : nv + 6]
        spin, arm = spin[:, :-1], arm[:, :-1]
        world, world_later = (rotation.matrix(x) @ to_base for x in (track.quaternion[:, :-1], quaternions))
        jacobian = torch.zeros(runs, frames - 1, nv, SIZE, dtype=torch.float64)
        jacobian[..., TURN] = rows[..., 3:6] - by_velocity @ skew(torch.linalg.cross(spin, arm)) - by_spin @ skew(spin)
        jacobian[..., VELOCITY] = by_velocity
        jacobian[..., HEIGHT] = rows[..., 2]
        jacobian[..., GYROSCOPE] = (by_velocity @ skew(arm) - by_spin) @ world
        jacobian[..., :3, TURN] += skew(inertial.dt * force + swung)
        jacobian[..., :3, VELOCITY] -= torch.eye(3, dtype=torch.float64)
        jacobian[..., :3, GYROSCOPE] -= skew(arm_later) @ world_later
        jacobian[..., :3, ACCELEROMETER] = inertial.dt * world
        jacobian[..., 3:6, TURN] += skew(later)
        jacobian[..., 3:6, GYROSCOPE] += world_later
        return ModelResiduals(residual, jacobian)

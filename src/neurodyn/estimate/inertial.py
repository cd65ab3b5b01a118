# SPDX-License-Identifier: Apache-2.0
r"""The motion of a base between two frames as its IMU feels it.

With the rotation $B$ from the IMU to the base, biases $b$ and frames of length h,

$$R_{t+1} = R_t \exp(h\,B(\bar\omega - b_\omega)), \quad v_{t+1} = v_t + h\,(\bar R B (\bar f - b_f) + g), \quad
z_{t+1} = z_t + \tfrac{h}{2}(\dot z_t + \dot z_{t+1}),$$

where $v$ is the velocity of the IMU, so that its place on the base does not enter, and $z$ the base's height above the
ground under it. Errors are those of `estimate.track` (Sola 2017, arXiv 1711.02508, section 7, global errors).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.estimate.sensed import SensedBatch
from neurodyn.estimate.settings import EstimationSettings, ImuMounting
from neurodyn.estimate.track import ACCELEROMETER, GYROSCOPE, HEIGHT, SIZE, TURN, VELOCITY, BaseTrack, skew
from neurodyn.geometry import rotation


@dataclass(frozen=True)
class InertialSteps:
    """Readings of an IMU as motion between frames.

    Attributes:
        spin: Angular velocity at each frame, as read, shape [runs, frames, 3].
        turn: Mean angular velocity to the next frame, as read, shape [runs, frames - 1, 3].
        force: Mean specific force to the next frame, as read, shape [runs, frames - 1, 3].
        turn_noise, velocity_noise: Standard deviations of the rotation [rad] and of the change of the velocity [m/s]
            over a frame, shape [runs, frames - 1, 1].
        dt: Length of a frame [s].
    """

    spin: Tensor
    turn: Tensor
    force: Tensor
    turn_noise: Tensor
    velocity_noise: Tensor
    dt: float

    @classmethod
    def of(cls, sensed: SensedBatch, settings: EstimationSettings, dt: float) -> "InertialSteps":
        """Return the motion of runs; see `EstimationSettings.specific_force`."""
        spin, force = sensed.angular_velocity, sensed.specific_force
        # A gyroscope that is read once a frame misses how its reading changes within it.
        unseen = (spin.diff(dim=1).norm(dim=-1, keepdim=True) / 6).square()
        turn_noise = dt * (settings.gyroscope_noise**2 + unseen).sqrt()
        missed = 0.0 * unseen
        if settings.specific_force == "instant":
            missed = (force.diff(dim=1).norm(dim=-1, keepdim=True) / 3).square()
            force = 0.5 * (force[:, 1:] + force[:, :-1])
        else:
            force = force[:, 1:] if settings.specific_force == "before" else force[:, :-1]
        turned = (unseen.sqrt() * dt * force.norm(dim=-1, keepdim=True)).square()
        velocity_noise = dt * (settings.accelerometer_noise**2 + missed + turned).sqrt()
        return cls(spin, 0.5 * (spin[:, 1:] + spin[:, :-1]), force, turn_noise, velocity_noise, dt)

    def repeated(self, times: int) -> "InertialSteps":
        """Return each run several times."""
        parts = (
            x.repeat_interleave(times, 0)
            for x in (self.spin, self.turn, self.force, self.turn_noise, self.velocity_noise)
        )
        return InertialSteps(*parts, dt=self.dt)

    @property
    def felt(self) -> Tensor:
        """Length of the specific force in the frame that begins in a row [m/s^2], shape [runs, frames]."""
        force = self.force.norm(dim=-1)
        return torch.cat([force, force[:, -1:]], 1)


def spins(track: BaseTrack, read: Tensor, mounting: ImuMounting) -> Tensor:
    """Return angular velocities of the base in world axes from those of the gyroscope, shape [runs, frames, 3]."""
    return rotation.rotate(track.quaternion, (read - track.gyroscope) @ mounting.matrix.T)


def upright(felt: Tensor, mounting: ImuMounting) -> Tensor:
    """Return the rotations of bases at rest, with heading 0, whose IMUs feel specific forces, shape [..., 3]."""
    up = torch.nn.functional.normalize(felt @ mounting.matrix.T, dim=-1)
    axis = torch.stack([up[..., 1], -up[..., 0], torch.zeros_like(up[..., 0])], -1)  # up x e_z
    size = axis.norm(dim=-1, keepdim=True)
    return rotation.exponential(axis / size.clamp_min(1e-9) * torch.atan2(size, up[..., 2:]))


def rises(track: BaseTrack, spin: Tensor, mounting: ImuMounting) -> Tensor:
    """Return the vertical velocity of the base's origin [m/s], shape [runs, frames]."""
    arm = rotation.rotate(track.quaternion, mounting.position.expand(spin.shape))
    return (track.velocity - torch.linalg.cross(spin, arm))[..., 2]


def strapdown(
    track: BaseTrack, inertial: InertialSteps, mounting: ImuMounting, gravity: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return quaternions after each frame, accelerations, and the specific forces in them, all in world axes.

    Shapes [runs, frames - 1, 4], and [runs, frames - 1, 3] twice [m/s^2].
    """
    now = track.quaternion[:, :-1]
    half = 0.5 * inertial.dt * ((inertial.turn - track.gyroscope[:, :-1]) @ mounting.matrix.T)
    step = rotation.exponential(half)
    middle = rotation.multiply(now, step)
    force = rotation.rotate(middle, (inertial.force - track.accelerometer[:, :-1]) @ mounting.matrix.T)
    return rotation.multiply(middle, step), force + gravity, force


@dataclass(frozen=True)
class InertialErrors:
    """States of neighbouring frames against the IMU's motion between them.

    Attributes:
        residual: State of the next frame minus the one that the IMU takes this frame's to, shape [runs, frames - 1,
            SIZE].
        here, following: Derivatives by the errors of both frames, shape [runs, frames - 1, SIZE, SIZE].
        noise: Standard deviations, shape [runs, frames - 1, SIZE].
    """

    residual: Tensor
    here: Tensor
    following: Tensor
    noise: Tensor

    def whitened(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return residuals and derivatives in units of the noise."""
        return self.residual / self.noise, self.here / self.noise[..., None], self.following / self.noise[..., None]


def inertial_errors(
    track: BaseTrack, inertial: InertialSteps, mounting: ImuMounting, settings: EstimationSettings, gravity: Tensor
) -> InertialErrors:
    """Return the errors of a track beside the motion that an IMU read."""
    dt, now = inertial.dt, track.quaternion[:, :-1]
    after, acceleration, force = strapdown(track, inertial, mounting, gravity)
    rise = rises(track, spins(track, inertial.spin, mounting), mounting)
    residual = torch.cat(
        [
            rotation.logarithm(rotation.multiply(track.quaternion[:, 1:], rotation.conjugate(after))),
            track.velocity.diff(dim=1) - dt * acceleration,
            (track.height.diff(dim=1) - 0.5 * dt * (rise[:, 1:] + rise[:, :-1]))[..., None],
            track.gyroscope.diff(dim=1),
            track.accelerometer.diff(dim=1),
        ],
        -1,
    )
    shape = residual.shape[:2]
    eye = torch.eye(SIZE, dtype=torch.float64)
    following = eye.expand(*shape, SIZE, SIZE).clone()
    here = -following
    to_world = rotation.matrix(now) @ mounting.matrix
    here[..., TURN, GYROSCOPE] = dt * to_world
    here[..., VELOCITY, TURN] = dt * skew(force)
    here[..., VELOCITY, ACCELEROMETER] = dt * to_world
    here[..., HEIGHT, 5] = following[..., HEIGHT, 5] = -0.5 * dt
    turned, gained = (noise.expand(*shape, 3) for noise in (inertial.turn_noise, inertial.velocity_noise))
    bias = dt**0.5 * torch.tensor([settings.gyroscope_drift] * 3 + [settings.accelerometer_drift] * 3).double()
    ground = torch.full((*shape, 1), settings.ground_noise * dt**0.5, dtype=torch.float64)
    noise = torch.cat([turned, gained, ground, bias.expand(*shape, 6)], -1)
    return InertialErrors(residual, here, following, noise)

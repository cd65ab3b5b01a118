# SPDX-License-Identifier: Apache-2.0
r"""States of a floating base along runs, and small errors of them.

An error is a vector of `NAMES`: a rotation $\theta$ in world axes, $R = \exp(\theta)\,\hat R$, and differences of
the velocity of the IMU (world axes), of the height of the base's origin above the ground, and of the IMU's biases.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from neurodyn.geometry import rotation

NAMES = (
    *(f"turn.{x}" for x in "xyz"), *(f"velocity.{x}" for x in "xyz"), "height",
    *(f"bias.angular_velocity.{x}" for x in "xyz"), *(f"bias.specific_force.{x}" for x in "xyz"),
)  # fmt: skip
"""Coordinates of an error: [rad], [m/s], [m], [rad/s] and [m/s^2]."""

TURN, VELOCITY, HEIGHT, GYROSCOPE, ACCELEROMETER = slice(0, 3), slice(3, 6), 6, slice(7, 10), slice(10, 13)
"""Columns of an error."""

SIZE = len(NAMES)


@dataclass(frozen=True)
class BaseTrack:
    """States of the base in a batch of runs.

    Attributes:
        quaternion: Rotation from the base to the world, scalar last, shape [runs, frames, 4].
        velocity: Velocity of the IMU in world axes [m/s], shape [runs, frames, 3].
        height: Height of the base's origin above the ground [m], shape [runs, frames].
        gyroscope: Bias of the gyroscope in its axes [rad/s], shape [runs, frames, 3].
        accelerometer: Bias of the accelerometer in its axes [m/s^2], shape [runs, frames, 3].
    """

    quaternion: Tensor
    velocity: Tensor
    height: Tensor
    gyroscope: Tensor
    accelerometer: Tensor

    def moved(self, error: Tensor) -> "BaseTrack":
        """Return the track with errors added, shape [runs, frames, SIZE]."""
        turned = rotation.multiply(rotation.exponential(error[..., TURN]), self.quaternion)
        return BaseTrack(
            rotation.normalise(turned),
            self.velocity + error[..., VELOCITY],
            self.height + error[..., HEIGHT],
            self.gyroscope + error[..., GYROSCOPE],
            self.accelerometer + error[..., ACCELEROMETER],
        )

    def each(self, function: Callable[[Tensor], Tensor]) -> "BaseTrack":
        """Return the track with a function applied to each array."""
        return BaseTrack(*(function(getattr(self, field.name)) for field in fields(self)))

    @staticmethod
    def concatenate(parts: Sequence["BaseTrack"]) -> "BaseTrack":
        """Return frames one after the other."""
        return BaseTrack(*(torch.cat([getattr(x, field.name) for x in parts], 1) for field in fields(BaseTrack)))

    def where(self, mask: Tensor, other: "BaseTrack") -> "BaseTrack":
        """Return this track for the runs in `mask`, shape [runs], and another one elsewhere."""
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return BaseTrack(*(torch.where(mask.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs))


def skew(vector: Tensor) -> Tensor:
    """Return the matrices of cross products, [v] u = v x u, shape [..., 3, 3]."""
    x, y, z = vector.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).unflatten(-1, (3, 3))

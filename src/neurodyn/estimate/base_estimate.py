# SPDX-License-Identifier: Apache-2.0
"""What is estimated of a floating base."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neurodyn.estimate.inertial import spins
from neurodyn.estimate.robust import ModelScatter
from neurodyn.estimate.track import ACCELEROMETER, GYROSCOPE, HEIGHT, TURN, VELOCITY, BaseTrack, skew
from neurodyn.geometry import rotation

if TYPE_CHECKING:
    from neurodyn.estimate.smoother import BaseProblem

ERRORS = (
    *(f"turn.{x}" for x in "xyz"), *(f"linear.{x}" for x in "xyz"), "height", *(f"angular.{x}" for x in "xyz"),
    *(f"bias.angular_velocity.{x}" for x in "xyz"), *(f"bias.specific_force.{x}" for x in "xyz"),
)  # fmt: skip
"""Coordinates of the covariance of an estimate: a small rotation in world axes [rad], velocity of the centre of mass
[m/s], height [m], angular velocity [rad/s], and biases of the IMU [rad/s, m/s^2]."""

_ON_GROUND = 5e-3
"""Height of a point below which it touches [m]."""


@dataclass(frozen=True)
class EstimatedRun:
    """States of a floating base along a run, in the convention of `StateSpec`.

    Heading and horizontal position are those of dead reckoning from (0, 0), because nothing measures them; the height
    is that above the ground under the base.

    Attributes:
        position: Of the base's origin [m], shape [frames, 3].
        quaternion: Rotation from the base to the world, scalar last, shape [frames, 4].
        linear: Velocity of the base's centre of mass in world axes [m/s], shape [frames, 3].
        angular: Angular velocity in world axes [rad/s], shape [frames, 3].
        covariance: Of the errors `ERRORS`, shape [frames, 16, 16].
        contacts: Whether a contact point of each shape touches the ground, shape [frames, shapes].
        angular_velocity_bias: Of the gyroscope, in its axes [rad/s], shape [frames, 3].
        specific_force_bias: Of the accelerometer, in its axes [m/s^2], shape [frames, 3].
    """

    position: Tensor
    quaternion: Tensor
    linear: Tensor
    angular: Tensor
    covariance: Tensor
    contacts: Tensor
    angular_velocity_bias: Tensor
    specific_force_bias: Tensor

    def after(self, frame: int) -> "EstimatedRun":
        """Return the states from a frame on."""
        return EstimatedRun(*(getattr(self, field.name)[frame:] for field in fields(self)))

    def deviation(self, name: str) -> Tensor:
        """Return the standard deviation of an error, shape [frames]."""
        index = ERRORS.index(name)
        return self.covariance[:, index, index].sqrt()


@dataclass(frozen=True)
class BaseEstimate:
    """States of a floating base along the runs of a log.

    Attributes:
        runs: The runs.
        shapes: Names of the shapes in `EstimatedRun.contacts`.
        errors: Names of the coordinates of the covariances.
        scatter: How far the model was trusted; None if it was not used.
    """

    runs: tuple[EstimatedRun, ...]
    shapes: tuple[str, ...]
    errors: tuple[str, ...] = ERRORS
    scatter: ModelScatter | None = None

    def __getitem__(self, index: int) -> EstimatedRun:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[EstimatedRun]:
        return iter(self.runs)


def estimate_of(
    problem: "BaseProblem", track: BaseTrack, covariance: Tensor, scatter: ModelScatter | None = None
) -> BaseEstimate:
    """Return an estimate from a track and the covariance of its errors, shape [runs, frames, SIZE, SIZE]."""
    spin = spins(track, problem.inertial.spin, problem.mounting)
    arm = problem.model.arms(track.quaternion)
    origin = rotation.rotate(track.quaternion, problem.mounting.position.expand(spin.shape))
    drift = track.velocity - torch.linalg.cross(spin, origin)
    way = 0.5 * problem.inertial.dt * (drift[:, 1:] + drift[:, :-1])[..., :2]
    place = torch.nn.functional.pad(way.cumsum(1), (0, 0, 1, 0))
    position = torch.cat([place, track.height[..., None]], -1)
    linear = track.velocity + torch.linalg.cross(spin, arm)
    spread = _spread(problem, track, covariance, spin, arm)
    shapes, touching = _touching(problem, track)
    parts = (position, track.quaternion, linear, spin, spread, touching, track.gyroscope, track.accelerometer)
    lengths = problem.sensed.lengths.tolist()
    runs = (EstimatedRun(*(part[k, :length] for part in parts)) for k, length in enumerate(lengths))
    return BaseEstimate(tuple(runs), shapes, scatter=scatter)


def _spread(problem: "BaseProblem", track: BaseTrack, covariance: Tensor, spin: Tensor, arm: Tensor) -> Tensor:
    """Return the covariance of `ERRORS` from that of a track's errors and the noise of the gyroscope."""
    world = rotation.matrix(track.quaternion) @ problem.mounting.matrix
    eye = torch.eye(3, dtype=torch.float64)
    change = torch.zeros(*covariance.shape[:2], len(ERRORS), covariance.shape[-1], dtype=torch.float64)
    change[..., :3, TURN] = change[..., 3:6, VELOCITY] = eye
    change[..., 6, HEIGHT] = 1.0
    change[..., 10:13, GYROSCOPE] = change[..., 13:, ACCELEROMETER] = eye
    change[..., 3:6, TURN], change[..., 7:10, TURN] = -skew(torch.linalg.cross(spin, arm)), -skew(spin)
    change[..., 3:6, GYROSCOPE], change[..., 7:10, GYROSCOPE] = skew(arm) @ world, -world
    read = torch.zeros(*covariance.shape[:2], len(ERRORS), 3, dtype=torch.float64)
    read[..., 3:6, :], read[..., 7:10, :] = -skew(arm), eye
    noise = problem.settings.gyroscope_noise**2
    return change @ covariance @ change.mT + noise * read @ read.mT


def _touching(problem: "BaseProblem", track: BaseTrack) -> tuple[tuple[str, ...], Tensor]:
    names = [point.shape for point in problem.legs.points]
    shapes = tuple(dict.fromkeys(names))
    low = problem.legs.heights(track) < _ON_GROUND
    groups = [[k for k, name in enumerate(names) if name == shape] for shape in shapes]
    return shapes, torch.stack([low[..., group].any(-1) for group in groups], -1)

# SPDX-License-Identifier: Apache-2.0
r"""Legs as odometers: while the base is held up, the lowest contact point stands on the ground.

This needs no model of contacts, and starts the estimation with one. When the ground pushes the base, its lowest point
with radius $\rho$ is at height $\rho$, within some softness, and nearly at rest, unless it slips; when nothing does,
its lowest point is not below the ground:

$$z + (R\,p)_z - \rho \approx 0, \qquad v + \omega \times R(p - r) + R\,\dot p \approx 0.$$
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.spec import places
from neurodyn.core.errors import InputError
from neurodyn.dynamics.interface import Dynamics
from neurodyn.estimate.sensed import SensedBatch
from neurodyn.estimate.settings import EstimationSettings, ImuMounting
from neurodyn.estimate.track import HEIGHT, SIZE, TURN, VELOCITY, BaseTrack, skew
from neurodyn.geometry import rotation
from neurodyn.multibody.link_kinematics import pose_in_parent

FLYING, FELT, HELD = 2.5, 5.0, 8.0
"""Accelerations of the base by the ground below which no point is in it, above which one is on it, and above which that
hardly moves [m/s^2]."""

_STEP = 1e-4  # of the central difference that moves the joints [s]


def estimable_points(dynamics: Dynamics) -> ContactPointLayout:
    """Return the contact points of dynamics by which the state of a floating base can be estimated.

    Raises:
        InputError: There is no floating base, there are no contact points, or joints with several axes.
    """
    layout, spec = dynamics.contact_points, dynamics.spec
    if not spec.floating or layout is None or any(not joint.scalar for joint in layout.joints[1:]):
        raise InputError(
            f"{dynamics.kind} dynamics of {spec.robot!r}: the states of its base cannot be estimated; valid: "
            "dynamics with a floating base, contact points, and joints of one axis behind the base"
        )
    return layout


class LegPoints:
    """Contact points of a robot in the frame of its base, along runs.

    Attributes:
        places: Positions [m], shape [runs, frames, points, 3].
        rates: Their velocities by the joints [m/s], of the same shape.
        points: Their names and shapes.
        radii: Radii of the shapes around the points [m], shape [points].
    """

    def __init__(self, layout: ContactPointLayout, sensed: SensedBatch) -> None:
        """Compute the points for the joints of runs."""
        shape = sensed.q.shape[:2]
        q, qd = (x.flatten(0, 1).numpy() for x in (sensed.q, sensed.qd))
        before, after = (_points(layout, q + step * qd) for step in (-_STEP, _STEP))
        self.places = torch.from_numpy(_points(layout, q)).unflatten(0, shape)
        self.rates = torch.from_numpy((after - before) / (2 * _STEP)).unflatten(0, shape)
        self.points = layout.contact_points
        self._joints = [layout.joints[point.joint].name for point in layout.contact_points]
        self.radii = torch.tensor([point.radius for point in layout.contact_points], dtype=torch.float64)

    def of_joint(self, joint: str) -> list[int]:
        """Return the points of the link that a joint moves.

        Raises:
            InputError: It has none.
        """
        if joint not in self._joints:
            known = ", ".join(dict.fromkeys(self._joints))
            raise InputError(f"a foot of joint {joint!r} has no contact point; valid: {known}")
        return [k for k, name in enumerate(self._joints) if name == joint]

    def heights(self, track: BaseTrack) -> Tensor:
        """Return the heights of the shapes above the ground [m], shape [runs, frames, points]."""
        up = rotation.matrix(track.quaternion)[..., 2:, :] @ self.places.mT
        return track.height[..., None] + up[..., 0, :] - self.radii


def _points(layout: ContactPointLayout, q: np.ndarray) -> np.ndarray:
    """Return all points in the base's frame, shape [n, points, 3], for positions of the joints after the base."""
    count, columns = len(q), places(layout.joints)
    poses: list[tuple[np.ndarray, np.ndarray]] = [(np.broadcast_to(np.eye(3), (count, 3, 3)), np.zeros((count, 3)))]
    for joint, place in zip(layout.joints[1:], columns[1:], strict=True):
        turn, origin = pose_in_parent(joint, q[:, place.q.start - 7 : place.q.stop - 7])
        above, start = poses[joint.parent]
        poses.append((above @ turn, start + np.einsum("nij,nj->ni", above, origin)))
    points = [poses[one.joint][1] + poses[one.joint][0] @ np.array(one.point) for one in layout.contact_points]
    return np.stack(points, 1)


def standing_residuals(
    track: BaseTrack, legs: LegPoints, spin: Tensor, pushed: Tensor, mounting: ImuMounting, settings: EstimationSettings
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return residuals of the lowest point, in units of their noise, and derivatives; zeros where nothing pushes.

    Args:
        track: States of the base.
        legs: Points of the robot.
        spin: Angular velocities of the base in world axes [rad/s].
        pushed: How much the ground accelerates the base [m/s^2] (`FrameModel.pushes`), shape [runs, frames].
        mounting: The IMU.
        settings: Height and speed of a standing foot.

    Returns:
        Height, shape [runs, frames, 1], and velocity, shape [runs, frames, 3], each with its derivatives.
    """
    (least, height), (swung, speed) = points_on_ground(track, legs, spin, mounting)
    known = (pushed > FELT) | ((pushed < FLYING) & (least[..., 0] < 0.0))
    on = known.double()[..., None] / settings.standing_height
    held = (pushed > HELD).double()[..., None] / settings.standing_speed
    return (least * on, height * on[..., None]), (swung * held, speed * held[..., None])


def points_on_ground(
    track: BaseTrack, legs: LegPoints, spin: Tensor, mounting: ImuMounting, among: Sequence[int] | None = None
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return height [m] and velocity [m/s] of the lowest of some points, or of all, each with its derivatives."""
    heights = legs.heights(track)
    if among is not None:
        others = torch.ones(heights.shape[-1], dtype=torch.bool)
        others[list(among)] = False
        heights = heights.masked_fill(others, torch.inf)
    lowest = heights.argmin(-1)
    chosen = lowest[..., None, None].expand(*lowest.shape, 1, 3)
    place, rate = (x.gather(2, chosen)[..., 0, :] for x in (legs.places, legs.rates))
    arm = rotation.rotate(track.quaternion, place - mounting.position)
    swung = torch.linalg.cross(spin, arm) + rotation.rotate(track.quaternion, rate)
    height = torch.zeros(*lowest.shape, 1, SIZE, dtype=torch.float64)
    height[..., 0, HEIGHT] = 1.0
    height[..., 0, TURN] = -skew(rotation.rotate(track.quaternion, place))[..., 2, :]
    speed = torch.zeros(*lowest.shape, 3, SIZE, dtype=torch.float64)
    speed[..., VELOCITY] = torch.eye(3, dtype=torch.float64)
    speed[..., TURN] = -skew(swung)
    return (heights.gather(-1, lowest[..., None]), height), (track.velocity + swung, speed)

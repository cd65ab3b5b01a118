# SPDX-License-Identifier: Apache-2.0
r"""The path of a floating base that a world model does not forecast: its forecast velocities, integrated.

With velocity $v$, angular velocity $\omega$ and direction of gravity $d$ in base axes, and the pose $(x, q)$:

$$q' = q\,\exp\Big(\tfrac{\Delta t}{2}(\omega + \omega')\Big)\,c, \quad x' = x + \tfrac{\Delta t}{2}(R v + R' v')$$

where $c$ is the smallest rotation after which gravity points along $d'$: only the heading is integrated for long.
"""

import torch

from neurodyn.core.description.spec import StateSpec
from neurodyn.dynamics.batch import State, Trajectory
from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import Quaternions, Vectors

_QUANTITIES = ("base_linear_velocity", "base_angular_velocity", "projected_gravity")


def with_base_path(spec: StateSpec, start: State, path: Trajectory, com: tuple[float, float, float]) -> Trajectory:
    """Return the forecast of a world model with the base's pose and velocity, as the robot's own states.

    Args:
        spec: Spec of the forecast, with the channels of `robots.base_channels.with_tracked_channels`.
        start: The robot's state at the start, whose base has its pose.
        path: The forecast, T frames.
        com: Point of the base, in its frame, that its linear velocity is that of [m].

    Returns:
        A trajectory whose first seven positions and six velocities are those of the base.
    """
    assert path.channels is not None  # of a robot with a base
    linear, angular, down = (path.channels[..., _columns(spec, name)] for name in _QUANTITIES)
    turned, position = rotation.normalise(start.q[:, 3:7]), start.q[:, :3]
    poses, velocities = [torch.cat([position, turned], -1)], [rotation.rotate(turned, linear[:, 0])]
    for frame in range(1, path.q.shape[1]):
        spin = 0.5 * spec.dt * (angular[:, frame - 1] + angular[:, frame])
        turned = rotation.multiply(turned, rotation.exponential(spin))
        turned = rotation.normalise(rotation.multiply(turned, _levelling(turned, down[:, frame])))
        velocities.append(rotation.rotate(turned, linear[:, frame]))
        position = position + 0.5 * spec.dt * (velocities[-2] + velocities[-1])
        poses.append(torch.cat([position, turned], -1))
    pose = torch.stack(poses, 1)
    spin = rotation.rotate(pose[..., 3:], angular)
    arm = rotation.rotate(pose[..., 3:], linear.new_tensor(com).expand_as(linear))
    moving = torch.stack(velocities, 1) + torch.linalg.cross(spin, arm)
    return Trajectory(torch.cat([pose, path.q], -1), torch.cat([moving, spin, path.qd], -1))


def _levelling(turned: Quaternions, down: Vectors) -> Quaternions:
    """Return the smallest rotations of bases after which gravity points along `down` in their axes."""
    wanted = torch.nn.functional.normalize(down, dim=-1)
    present = rotation.rotate(rotation.conjugate(turned), down.new_tensor([0.0, 0.0, -1.0]).expand_as(down))
    cosine = (wanted * present).sum(-1, keepdim=True)
    return rotation.normalise(torch.cat([torch.linalg.cross(wanted, present), 1.0 + cosine.clamp_min(-0.999)], -1))


def _columns(spec: StateSpec, quantity: str) -> list[int]:
    return [k for k, channel in enumerate(spec.channels) if channel.quantity == quantity]

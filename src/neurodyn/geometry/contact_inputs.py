# SPDX-License-Identifier: Apache-2.0
r"""Contact features: distance, normal, point and velocity of contact points that are near the ground.

NeRD (arXiv 2508.15755, section 3.1) feeds the contact candidates that collision detection would hand to the solver,
and zero beyond a margin. Here every entry fades to zero at the margin instead of jumping, and the entries that decide
an impact are given as such: how deep the contact point is, how deep it would be one frame ahead at its present
velocity, and that depth along the normal.

With the gap g (distance less radius), margin m, normal n, velocity v, nearest ground point p and f = min(near, 1), the
features of a contact point are

$$[near, deep, ahead, \quad ahead\,n, \quad v\,[ahead > 0], \quad f\,n, \quad f\,v, \quad f\,p]$$

$$near = 1 - g/m, \quad deep = 10 \max(-g, 0)/m, \quad ahead = 10 \max(-(g + n \cdot v\,dt), 0)/m$$
"""

from collections.abc import Sequence
from typing import Any

import torch
import warp as wp
from torch import Tensor
from torch.autograd.function import once_differentiable

from neurodyn.core.contact_points import ContactPointLayout
from neurodyn.geometry.closeness import feature_adjoint_kernel
from neurodyn.geometry.device_arrays import PRECISIONS
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.launching import Launch, Launches, warp_device
from neurodyn.geometry.proximity import ProximityQuery, Readings

FEATURES = 18
"""Features of each contact point."""


class Contacts:
    """Computes contact features in the kernel that measures the contact points; differentiable by the state.

    Attributes:
        proximity: Query that measures the contact points.
        width: Number of features of one state.
    """

    def __init__(self, layout: ContactPointLayout, margins: Sequence[float], dt: float) -> None:
        """Prepare to measure.

        Args:
            layout: The contact points and the joints that move them.
            margins: Distance of each contact point's surface to the ground below which it enters the features [m].
            dt: Length of a frame [s].
        """
        self.proximity = ProximityQuery(layout)
        self.width = FEATURES * len(layout.contact_points)
        self._own = [
            (contact_point.radius, margin, dt)
            for contact_point, margin in zip(layout.contact_points, margins, strict=True)
        ]
        self._sights: dict[tuple[torch.device, torch.dtype], Any] = {}
        self._launches = Launches()

    def __call__(self, ground: Ground, q: Tensor, qd: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the features, shape [worlds, width], in base axes where the base floats.

        Args:
            ground: The shapes around the robots.
            q: Positions, shape [worlds, nq].
            qd: Velocities, shape [worlds, nv].
            out: Memory to write to where no gradients are wanted; its last axis is contiguous.

        Raises:
            InputError: The ground is for another number of worlds, or a state has another width or precision.
        """
        self.proximity.check_state(q, qd)
        q, qd = q.contiguous(), qd.contiguous()
        if torch.is_grad_enabled() and (q.requires_grad or qd.requires_grad):
            return _Features.apply(self, ground, q, qd)
        features = q.new_empty(q.shape[0], self.width) if out is None else out
        self.write(ground, q, qd, features)
        return features

    def write(self, ground: Ground, q: Tensor, qd: Tensor, features: Tensor, readings: Readings | None = None) -> None:
        """Write features, and readings where they are allocated; not recorded for gradients."""
        proximity = self.proximity
        vectors = features.unflatten(-1, (features.shape[-1] // 3, 3))
        proximity.run(ground, proximity.free_base, q, qd, readings=readings, sight=self._sight(q), features=vectors)

    def bound(self, ground: Ground, q: Tensor, qd: Tensor, pose: Tensor, features: Tensor) -> tuple[Any, Any]:
        """Return a recorded launch that writes features anew from the same memory, and what it must keep.

        Args:
            ground: The shapes around the robots.
            q: Positions, shape [worlds, nq].
            qd: Velocities, shape [worlds, nv].
            pose: Pose of the ground, shape [worlds or 1, 7].
            features: Where they go, shape [worlds, width].
        """
        proximity = self.proximity
        vectors = features.unflatten(-1, (features.shape[-1] // 3, 3))
        sight = self._sight(q)
        return proximity.bound(ground, proximity.free_base, q, qd, pose, sight=sight, features=vectors)

    def pull_back(self, q: Tensor, qd: Tensor, readings: Readings, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients by positions and velocities from those by the features."""
        distance, normal, _, position, velocity, valid = readings
        by_distance = torch.zeros_like(distance)
        by_normal, by_point, by_position, by_velocity = (torch.zeros_like(normal) for _ in range(4))
        if distance.numel():
            vec3 = PRECISIONS[q.dtype].vec3
            tensors: list[tuple[Tensor, Any]] = [
                (distance, None), (normal, vec3), (position, vec3), (velocity, vec3), (valid, None),
                (gradient.unflatten(-1, (-1, 3)), vec3),
                (by_distance, None), (by_normal, vec3), (by_position, vec3), (by_velocity, vec3),
            ]  # fmt: skip
            shape, sight = (distance.shape[0], distance.shape[1]), self._sight(q)
            self._launches.get(
                (shape, q.dtype, q.device), lambda: Launch(feature_adjoint_kernel, shape, q.device, [sight, *tensors])
            )(tensors)
        given = by_distance, by_normal, by_point, by_position, by_velocity
        return self.proximity.pull_back(self.proximity.free_base, q, qd, readings, given)

    def _sight(self, like: Tensor) -> Any:
        key = (like.device, like.dtype)
        if key not in self._sights:
            vec3 = PRECISIONS[like.dtype].vec3
            self._sights[key] = wp.array(self._own, dtype=vec3, device=warp_device(like.device))
        return self._sights[key]


class _Features(torch.autograd.Function):
    """The kernel and its adjoint in torch's autograd."""

    @staticmethod
    def forward(ctx: Any, contacts: Contacts, ground: Ground, q: Tensor, qd: Tensor) -> Tensor:
        """Find features; see `Contacts.__call__`."""
        readings, features = contacts.proximity.allocate(q), q.new_empty(q.shape[0], contacts.width)
        contacts.write(ground, q.detach(), qd.detach(), features, readings)
        ctx.contacts = contacts
        ctx.save_for_backward(q, qd, *readings)
        return features

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Any, ...]:
        """Return the gradients by q and qd."""
        q, qd, *readings = ctx.saved_tensors
        return None, None, *ctx.contacts.pull_back(q, qd, Readings(*readings), gradients[0].contiguous())

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
from torch import Tensor
from torch.autograd.function import once_differentiable

from neurodyn.core.description.contact_points import ContactPointLayout
from neurodyn.geometry.closeness import feature_adjoint_kernel
from neurodyn.geometry.device_arrays import PRECISIONS
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.launching import Held, Launch, Launches, held, operator
from neurodyn.geometry.proximity import ProximityQuery, Readings, Sight

FEATURES = 18
"""Features of each contact point."""


class Contacts(Held):
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
        super().__init__()
        self.proximity = ProximityQuery(layout)
        self.width = FEATURES * len(layout.contact_points)
        self._sight = Sight(
            [
                (contact_point.radius, margin, dt)
                for contact_point, margin in zip(layout.contact_points, margins, strict=True)
            ]
        )
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
        proximity.run(ground, proximity.free_base, q, qd, readings=readings, sight=self._sight, features=vectors)

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
        sight = self._sight.array(q)
        return proximity.bound(ground, proximity.free_base, q, qd, pose, sight=sight, features=vectors)

    def pull_back(self, q: Tensor, qd: Tensor, readings: Readings, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients by positions and velocities from those by the features."""
        by_point = torch.zeros_like(readings.normal)
        by = [torch.zeros_like(x) for x in (readings.distance, readings.normal, readings.normal, readings.normal)]
        _FEATURE_ADJOINT(self.handle, list(readings), gradient.unflatten(-1, (-1, 3)), by)
        by_distance, by_normal, by_position, by_velocity = by
        given = by_distance, by_normal, by_point, by_position, by_velocity
        return self.proximity.pull_back(self.proximity.free_base, q, qd, readings, given)

    def launch_adjoint(self, readings: list[Tensor], gradient: Tensor, results: list[Tensor]) -> None:
        """Launch the adjoint of the features by the readings, which writes to `results`."""
        distance, normal, _, position, velocity, valid = readings
        if not distance.numel():
            return
        vec3 = PRECISIONS[distance.dtype].vec3
        by_distance, *by_vectors = results
        tensors: list[tuple[Tensor, Any]] = [
            (distance, None), (normal, vec3), (position, vec3), (velocity, vec3), (valid, None), (gradient, vec3),
            (by_distance, None), *((x, vec3) for x in by_vectors),
        ]  # fmt: skip
        shape, device = (distance.shape[0], distance.shape[1]), distance.device
        self._launches.get(
            (shape, distance.dtype, device),
            lambda: Launch(feature_adjoint_kernel, shape, device, [self._sight.array(distance), *tensors]),
        )(tensors)


def _feature_adjoint(contacts: int, readings: list[Tensor], gradient: Tensor, results: list[Tensor]) -> None:
    held(contacts).launch_adjoint(readings, gradient, results)


_FEATURE_ADJOINT = operator(
    "contact_features_adjoint",
    "(int contacts, Tensor[] readings, Tensor gradient, Tensor(a!)[] results) -> ()",
    _feature_adjoint,
    lambda *_: None,
)


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

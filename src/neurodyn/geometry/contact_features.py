# SPDX-License-Identifier: Apache-2.0
"""Contact features: distance, normal, ground point and velocity of contact points near the ground.

`ContactFeatures` computes them in a Warp kernel. `PlaneContacts` computes them over planes in torch operations, for
exported files that cannot contain a kernel.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from neurodyn.core.description.contacts import ChainJoint, ContactPointLayout
from neurodyn.core.description.spec import places
from neurodyn.core.errors import InputError
from neurodyn.geometry import rotation
from neurodyn.geometry.device_arrays import PRECISIONS
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.kernels import feature_adjoint_kernel
from neurodyn.geometry.launching import Launch, Launches, OperatorHandle, object_of_handle, operator
from neurodyn.geometry.proximity import ProximityQuery, Readings, Sight

FEATURES = 18
"""Features of each contact point."""


class ContactFeatures(OperatorHandle):
    """Contact features from the kernel that measures the contact points, differentiable with respect to the state."""

    def __init__(self, layout: ContactPointLayout, margins: Sequence[float], dt: float) -> None:
        """Create the query for frames of `dt` [s].

        Features of a contact point are nonzero where its gap to the ground is below its margin [m].
        """
        super().__init__()
        self.proximity = ProximityQuery(layout)
        for joint in layout.joints[1:]:
            if layout.floating and joint.parent < 0:
                raise InputError(f"joint {joint.name!r} begins a second tree; valid: one floating robot in a layout")
        self.width = FEATURES * len(layout.contact_points)
        points = zip(layout.contact_points, margins, strict=True)
        self._sight = Sight([(point.radius, margin, dt) for point, margin in points])
        self._launches = Launches()

    def __call__(self, ground: Ground, q: Tensor, qd: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the features, shape [worlds, width], in base axes if the base floats.

        The output buffer `out` is used only without gradients; its last axis is contiguous.

        Raises:
            InputError: The ground has another number of worlds, or the state has a wrong width or precision.
        """
        self.proximity.check_state(q, qd)
        q, qd = q.contiguous(), qd.contiguous()
        if torch.is_grad_enabled() and (q.requires_grad or qd.requires_grad):
            return _Features.apply(self, ground, q, qd)
        features = q.new_empty(q.shape[0], self.width) if out is None else out
        self.write(ground, q, qd, features)
        return features

    def write(self, ground: Ground, q: Tensor, qd: Tensor, features: Tensor, readings: Readings | None = None) -> None:
        """Write features, and readings if given; not recorded by autograd."""
        proximity = self.proximity
        vectors = features.unflatten(-1, (features.shape[-1] // 3, 3))
        proximity.run(ground, proximity.free_base, q, qd, readings=readings, sight=self._sight, features=vectors)

    def bind(self, ground: Ground, q: Tensor, qd: Tensor, pose: Tensor, features: Tensor) -> tuple[Any, Any]:
        """Record a launch that recomputes the features in place; return it and the objects that must outlive it.

        The pose of the ground has the shape [worlds or 1, 7], the features [worlds, width].
        """
        proximity = self.proximity
        vectors = features.unflatten(-1, (features.shape[-1] // 3, 3))
        sight = self._sight.array(q)
        return proximity.bind(ground, proximity.free_base, q, qd, pose, sight=sight, features=vectors)

    def pull_back(self, q: Tensor, qd: Tensor, readings: Readings, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients with respect to positions and velocities from those with respect to the features."""
        by_point = torch.zeros_like(readings.normal)
        by = [torch.zeros_like(x) for x in (readings.distance, readings.normal, readings.normal, readings.normal)]
        _FEATURE_ADJOINT(self.handle, list(readings), gradient.unflatten(-1, (-1, 3)), by)
        by_distance, by_normal, by_position, by_velocity = by
        given = by_distance, by_normal, by_point, by_position, by_velocity
        return self.proximity.pull_back(self.proximity.free_base, q, qd, readings, given)

    def launch_adjoint(self, readings: list[Tensor], gradient: Tensor, results: list[Tensor]) -> None:
        """Launch the adjoint from features to readings, which writes to `results`."""
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
    object_of_handle(contacts).launch_adjoint(readings, gradient, results)


_FEATURE_ADJOINT = operator(
    "contact_features_adjoint",
    "(int contacts, Tensor[] readings, Tensor gradient, Tensor(a!)[] results) -> ()",
    _feature_adjoint,
)


class _Features(torch.autograd.Function):
    """Autograd function of the feature kernel and its adjoint."""

    @staticmethod
    def forward(ctx: Any, contacts: ContactFeatures, ground: Ground, q: Tensor, qd: Tensor) -> Tensor:
        """Return the features; see `ContactFeatures.__call__`."""
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
        """Return the gradients with respect to q and qd."""
        q, qd, *readings = ctx.saved_tensors
        return None, None, *ctx.contacts.pull_back(q, qd, Readings(*readings), gradients[0].contiguous())


def contact_inputs(distance: Tensor, normal: Tensor, velocity: Tensor, touched: Tensor, sight: Tensor) -> Tensor:
    """Return contact features, shape [worlds, points, FEATURES].

    Args:
        distance: Signed distance of each point to a surface, its radius not subtracted [m], shape [worlds, points].
        normal: Outward unit normal of the surface, shape [worlds, points, 3].
        velocity: Velocity of the point relative to the surface [m/s], shape [worlds, points, 3].
        touched: Nearest point of the surface [m], shape [worlds, points, 3].
        sight: Radius [m], margin [m] and frame length [s] of each point, shape [points, 3].
    """
    radius, margin, dt = sight.unbind(-1)
    gap = distance - radius
    seen = (gap < margin).to(gap)
    near = seen * (1 - gap / margin)
    scale = seen * 10 / margin
    ahead = scale * torch.relu(-(gap + dt * (normal * velocity).sum(-1)))
    depths = torch.stack([near, scale * torch.relu(-gap), ahead], -1)
    fading, touching = near.clamp_max(1.0)[..., None], (ahead > 0).to(ahead)[..., None]
    parts = [depths, ahead[..., None] * normal, touching * velocity]
    parts += [fading * normal, fading * velocity, fading * touched]
    return torch.cat(parts, -1)


class _Body(NamedTuple):
    """Motion of a body: rotation to the world, origin, velocity of the origin, angular velocity."""

    rotation: Tensor
    origin: Tensor
    velocity: Tensor
    spin: Tensor


class PointsOverGround(NamedTuple):
    """Contact points over the ground, in world axes."""

    distance: Tensor
    """Distance of the points from the ground [m], shape [..., points]."""
    normal: Tensor
    """Normal of the ground, shape [..., points, 3]."""
    position: Tensor
    """Positions [m], shape [..., points, 3]."""
    velocity: Tensor
    """Velocities [m/s], shape [..., points, 3]."""


class PlaneContacts(nn.Module):
    """Contact features of a robot, and of other free bodies, over fixed planes."""

    _points: Tensor
    _sight: Tensor
    _planes: Tensor
    _frames: Tensor
    _children: Tensor
    _axes: Tensor
    _slides: Tensor
    _centres: Tensor

    def __init__(
        self, layout: ContactPointLayout, sight: list[tuple[float, float, float]], planes: list[tuple[float, ...]]
    ) -> None:
        """Store radius [m], margin [m] and frame length [s] of each contact point, and the planes (point, normal)."""
        super().__init__()
        self._layout, self._places = layout, places(layout.joints)
        self._groups = _groups(layout.joints)
        self._order = [-1, *(joint for group in self._groups for joint in group)]
        self._on = [self._order.index(point.joint) for point in layout.contact_points]
        roots: list[int] = []
        for index, joint in enumerate(layout.joints):
            roots.append(index if joint.parent < 0 else roots[joint.parent])
        self._roots = [self._order.index(roots[point.joint]) for point in layout.contact_points]
        coms = layout.coms if isinstance(layout.coms, dict) else {}
        for name, rows in (
            ("points", [point.point for point in layout.contact_points]),
            ("sight", sight),
            ("planes", planes),
            ("frames", [joint.parent_frame for joint in layout.joints]),
            ("children", [joint.child_frame for joint in layout.joints]),
            ("axes", [joint.axis for joint in layout.joints]),
            ("slides", [[joint.shares[1] * x for x in joint.axis] for joint in layout.joints]),
            ("centres", [layout.base_com, *(coms.get(joint.name, (0.0, 0.0, 0.0)) for joint in layout.joints[1:])]),
        ):
            self.register_buffer(f"_{name}", torch.tensor(rows, dtype=torch.get_default_dtype()), persistent=False)

    def forward(self, q: Tensor, qd: Tensor) -> Tensor:
        """Return the features, shape [worlds, 18 contact points], in base axes if the base floats."""
        bodies = self._bodies(q, qd)
        distance, upward, place, moving = self._over_planes(bodies)
        if self._layout.floating:
            to_base = rotation.conjugate(bodies.rotation[:, 1:2]).expand(-1, len(self._on), -1)  # after the world
            place, moving, upward = (
                rotation.rotate(to_base, x) for x in (place - bodies.origin[:, self._roots], moving, upward)
            )
        return contact_inputs(distance, upward, moving, place - distance[..., None] * upward, self._sight).flatten(1)

    def measure(self, q: Tensor, qd: Tensor) -> PointsOverGround:
        """Return the contact points over the nearest plane."""
        return self._over_planes(self._bodies(q, qd))

    def _over_planes(self, bodies: _Body) -> PointsOverGround:
        place, moving = self._move_points(bodies)
        # The nearest plane counts; on a tie, the first.
        distances = torch.stack([((place - plane[:3]) * plane[3:]).sum(-1) for plane in self._planes.unbind()], -1)
        distance, nearest = distances.min(-1)
        return PointsOverGround(distance, self._planes[nearest][..., 3:], place, moving)

    def points(self, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions [m] and velocities [m/s] of the contact points, world axes, shapes [worlds, points, 3]."""
        return self._move_points(self._bodies(q, qd))

    def _move_points(self, bodies: _Body) -> tuple[Tensor, Tensor]:
        quaternion, origin, speed, spin = (x[:, self._on] for x in bodies)
        arm = rotation.rotate(quaternion, self._points.expand_as(origin))
        return origin + arm, speed + torch.linalg.cross(spin, arm)

    def _bodies(self, q: Tensor, qd: Tensor) -> _Body:
        """Return the motion of all bodies in the order of `_order`, the world first, shapes [worlds, bodies, ...]."""
        still = torch.zeros_like(qd[:, :1]).expand(-1, 3)[:, None]
        bodies = _Body(torch.cat([still, torch.ones_like(still[..., :1])], -1), still, still, still)
        for group in self._groups:
            parents = [self._order.index(self._layout.joints[joint].parent) for joint in group]
            children = self._children_of(group, _Body(*(x[:, parents] for x in bodies)), q, qd)
            bodies = _Body(*(torch.cat(pair, 1) for pair in zip(bodies, children, strict=True)))
        return bodies

    def _children_of(self, group: list[int], parent: _Body, q: Tensor, qd: Tensor) -> _Body:
        """Return the child bodies of joints that move alike, by the equations of `chain.advance`."""
        kind, at = self._layout.joints[group[0]].moves_like, [self._places[joint] for joint in group]
        frame, child, axes = self._frames[group], self._children[group], self._axes[group]
        arm = _rotate(parent.rotation, frame[:, :3])
        in_world = rotation.multiply(parent.rotation, frame[:, 3:].expand_as(parent.rotation))
        back = rotation.conjugate(child[:, 3:]).expand_as(parent.rotation)
        value = torch.stack([q[:, place.q] for place in at], 1)
        rate = torch.stack([qd[:, place.qd] for place in at], 1)
        axis, cross = _rotate(in_world, axes), torch.linalg.cross
        if kind == "prismatic":
            quaternion = rotation.multiply(in_world, back)
            lever = arm + axis * value - _rotate(quaternion, child[:, :3])
            velocity = parent.velocity + cross(parent.spin, lever) + axis * rate
            return _Body(quaternion, parent.origin + lever, velocity, parent.spin)
        if kind in ("revolute", "screw"):
            half = 0.5 * value
            own = torch.cat([axes * torch.sin(half), torch.cos(half)], -1)
            own_spin = axis * rate
        else:
            own = rotation.normalise(value[..., -4:])
            own_spin = rotation.rotate(in_world, rate[..., -3:])
        quaternion = rotation.multiply(rotation.multiply(in_world, own), back)
        slide = 0.0
        if kind == "screw":
            along = _rotate(in_world, self._slides[group])
            arm, slide = arm + along * value, along * rate
        lever = arm - _rotate(quaternion, child[:, :3])
        spin = parent.spin + own_spin
        if kind != "free":
            velocity = parent.velocity + cross(parent.spin, arm) + cross(spin, lever - arm) + slide
            return _Body(quaternion, parent.origin + lever, velocity, spin)
        lever = lever + rotation.rotate(in_world, value[..., :3])
        own_velocity = rotation.rotate(in_world, rate[..., :3]) - cross(
            own_spin, _rotate(quaternion, self._centres[group])
        )
        return _Body(
            quaternion, parent.origin + lever, parent.velocity + cross(parent.spin, lever) + own_velocity, spin
        )


def _rotate(quaternion: Tensor, vectors: Tensor) -> Tensor:
    """Rotate vectors of each body by the rotations of all worlds, shape [worlds, bodies, 3]."""
    return rotation.rotate(quaternion, vectors.expand(*quaternion.shape[:-1], 3))


def _groups(joints: tuple[ChainJoint, ...]) -> list[list[int]]:
    """Group joints of equal depth that move alike, from the root outwards."""
    depth: list[int] = []
    for joint in joints:
        depth.append(0 if joint.parent < 0 else depth[joint.parent] + 1)
    groups: dict[tuple[int, str], list[int]] = {}
    for index, joint in enumerate(joints):
        groups.setdefault((depth[index], joint.moves_like), []).append(index)
    return [groups[key] for key in sorted(groups)]

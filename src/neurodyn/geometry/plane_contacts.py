# SPDX-License-Identifier: Apache-2.0
"""Contact features over planes in torch's own operations, for files that can hold no kernel.

The same numbers as those of `contact_inputs`, which measures other grounds, too, and is several times as fast.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from neurodyn.core.description.contact_points import ChainJoint, ContactPointLayout
from neurodyn.core.description.joint_kinds import places
from neurodyn.geometry import rotation


class _Body(NamedTuple):
    """Motion of a body: rotation to the world, origin, velocity of the origin, angular velocity."""

    turn: Tensor
    origin: Tensor
    velocity: Tensor
    spin: Tensor


class PlaneContacts(nn.Module):
    """Contact features of a robot over fixed planes."""

    _points: Tensor
    _sight: Tensor
    _planes: Tensor
    _frames: Tensor
    _children: Tensor
    _axes: Tensor
    _centre: Tensor

    def __init__(
        self, layout: ContactPointLayout, sight: list[tuple[float, float, float]], planes: list[tuple[float, ...]]
    ) -> None:
        """Prepare to measure.

        Args:
            layout: The contact points and the joints that move them.
            sight: Radius [m], margin [m] and length of a frame [s] of each contact point.
            planes: A point on each plane and its unit normal, in the world; at least one.
        """
        super().__init__()
        self._layout, self._places = layout, places(layout.joints)
        self._groups = _groups(layout.joints)
        self._order = [-1, *(joint for group in self._groups for joint in group)]
        self._on = [self._order.index(point.joint) for point in layout.contact_points]
        for name, rows in (
            ("points", [point.point for point in layout.contact_points]),
            ("sight", sight),
            ("planes", planes),
            ("frames", [joint.parent_frame for joint in layout.joints]),
            ("children", [joint.child_frame for joint in layout.joints]),
            ("axes", [joint.axis for joint in layout.joints]),
            ("centre", layout.base_com),
        ):
            self.register_buffer(f"_{name}", torch.tensor(rows), persistent=False)

    def forward(self, q: Tensor, qd: Tensor) -> Tensor:
        """Return the features, shape [worlds, 18 contact points], in base axes where the base floats.

        Args:
            q: Positions, shape [worlds, nq].
            qd: Velocities, shape [worlds, nv].
        """
        bodies = self._bodies(q, qd)
        turn, origin, speed, spin = (x[:, self._on] for x in bodies)
        arm = rotation.rotate(turn, self._points.expand_as(origin))
        place, moving = origin + arm, speed + torch.linalg.cross(spin, arm)
        # Of several planes the nearest counts, of two as near the first.
        distances = torch.stack([((place - plane[:3]) * plane[3:]).sum(-1) for plane in self._planes.unbind()], -1)
        distance, nearest = distances.min(-1)
        upward = self._planes[nearest][..., 3:]
        if self._layout.floating:
            base_turn, base_origin = bodies.turn[:, 1:2], bodies.origin[:, 1:2]  # after the world
            to_base = rotation.conjugate(base_turn).expand_as(turn)
            place, moving, upward = (rotation.rotate(to_base, x) for x in (place - base_origin, moving, upward))
        radius, margin, dt = self._sight.unbind(-1)
        gap = distance - radius
        seen = (gap < margin).to(gap)
        near = seen * (1 - gap / margin)
        scale = seen * 10 / margin
        ahead = scale * torch.relu(-(gap + dt * (upward * moving).sum(-1)))
        depths = torch.stack([near, scale * torch.relu(-gap), ahead], -1)
        fading, touching = near.clamp_max(1.0)[..., None], (ahead > 0).to(ahead)[..., None]
        ground = place - distance[..., None] * upward
        parts = [depths, ahead[..., None] * upward, touching * moving]
        parts += [fading * upward, fading * moving, fading * ground]
        return torch.cat(parts, -1).flatten(1)

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
        """Return the bodies behind joints of one kind; the equations are those of `chain.advance`."""
        kind, at = self._layout.joints[group[0]].kind, [self._places[joint] for joint in group]
        frame, child, axes = self._frames[group], self._children[group], self._axes[group]
        arm = _turned(parent.turn, frame[:, :3])
        in_world = rotation.multiply(parent.turn, frame[:, 3:].expand_as(parent.turn))
        back = rotation.conjugate(child[:, 3:]).expand_as(parent.turn)
        value = torch.stack([q[:, place.q] for place in at], 1)
        rate = torch.stack([qd[:, place.qd] for place in at], 1)
        axis, cross = _turned(in_world, axes), torch.linalg.cross
        if kind == "prismatic":
            turn = rotation.multiply(in_world, back)
            lever = arm + axis * value - _turned(turn, child[:, :3])
            velocity = parent.velocity + cross(parent.spin, lever) + axis * rate
            return _Body(turn, parent.origin + lever, velocity, parent.spin)
        if kind == "revolute":
            half = 0.5 * value
            own = torch.cat([axes * torch.sin(half), torch.cos(half)], -1)
            own_spin = axis * rate
        else:
            own = rotation.normalise(value[..., -4:])
            own_spin = rotation.rotate(in_world, rate[..., -3:])
        turn = rotation.multiply(rotation.multiply(in_world, own), back)
        lever = arm - _turned(turn, child[:, :3])
        spin = parent.spin + own_spin
        if kind != "free":
            velocity = parent.velocity + cross(parent.spin, arm) + cross(spin, lever - arm)
            return _Body(turn, parent.origin + lever, velocity, spin)
        lever = lever + rotation.rotate(in_world, value[..., :3])
        # Only the first joint has a centre of mass that is not its origin.
        centre = torch.stack([self._centre if joint == 0 else torch.zeros_like(self._centre) for joint in group])
        own_velocity = rotation.rotate(in_world, rate[..., :3]) - cross(own_spin, _turned(turn, centre))
        return _Body(turn, parent.origin + lever, parent.velocity + cross(parent.spin, lever) + own_velocity, spin)


def _turned(turn: Tensor, vectors: Tensor) -> Tensor:
    """Return vectors of each body turned by the rotations of all worlds, shape [worlds, bodies, 3]."""
    return rotation.rotate(turn, vectors.expand(*turn.shape[:-1], 3))


def _groups(joints: tuple[ChainJoint, ...]) -> list[list[int]]:
    """Return joints that are as far from the root and of the same kind together, those next to the root first."""
    depth: list[int] = []
    for joint in joints:
        depth.append(0 if joint.parent < 0 else depth[joint.parent] + 1)
    groups: dict[tuple[int, str], list[int]] = {}
    for index, joint in enumerate(joints):
        groups.setdefault((depth[index], joint.kind), []).append(index)
    return [groups[key] for key in sorted(groups)]

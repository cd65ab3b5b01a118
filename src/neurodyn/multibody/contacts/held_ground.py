# SPDX-License-Identifier: Apache-2.0
"""The ground as input of an engine, held over a frame: one plane, or a local plane under each contact point.

For heightfields it consists of the contacts of the robot's shapes, held over a substep.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec
import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.scene import Heightfield, Plane, Shape, Terrain
from neurodyn.geometry import rotation
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.prisms import CONTACT_NUMBERS, contact_slots
from neurodyn.geometry.solids import Solid
from neurodyn.geometry.tensors import Positions, Velocities, constant

if TYPE_CHECKING:
    from neurodyn.geometry.prisms.query import PrismContacts
    from neurodyn.geometry.proximity import ProximityQuery

FAR_BELOW = -1e3
"""Height of a plane that represents free space [m]."""

GROUND_NUMBERS = 6
"""Numbers that describe the ground at a contact point: a point on it and its normal, in the world."""

GroundMode = Literal["plane", "contact_points", "prisms"]
"""One plane under all points; a point and a normal for each; or contacts of shapes with a heightfield."""


def contact_layout(mechanism: Mechanism, *, rigid: bool = False) -> ContactPointLayout:
    """Return the contact points of a mechanism; if `rigid`, with its hidden joints at zero."""
    com = mechanism.links[0].com if mechanism.floating else (0.0, 0.0, 0.0)
    joints, points = mechanism.joints, mechanism.points
    seen = len(joints) - (mechanism.hidden or 0 if rigid else 0)
    points = tuple(_move_to_parent(one, joints[one.joint]) if one.joint >= seen else one for one in points)
    coms = {link.joint.name: link.com for link in mechanism.links[1:] if link.joint.kind == "free"}
    return ContactPointLayout(joints=joints[:seen], contact_points=points, base_com=com, coms=coms or UNSET)


def _move_to_parent(point: ContactPoint, joint: ChainJoint) -> ContactPoint:
    """Return a point of a hidden joint's link in the body frame of the parent."""
    x, y, z = (a + b - c for a, b, c in zip(point.point, joint.parent_frame[:3], joint.child_frame[:3], strict=True))
    return msgspec.structs.replace(point, joint=joint.parent, point=(x, y, z))


def held_numbers(mechanism: Mechanism, mode: GroundMode) -> int:
    """Return the number of values that describe a ground."""
    if mode == "prisms":
        return CONTACT_NUMBERS * sum(contact_slots(mechanism.shapes).values())
    return GROUND_NUMBERS * (len(mechanism.points) if mode == "contact_points" else 1)


def ground_mode(ground: Ground | None, *, prisms: bool = False) -> GroundMode:
    """Return the representation of a ground, with contacts of shapes if wanted; no ground counts as a plane."""
    if ground is None or ground.empty or _planes(ground) is not None:
        return "plane"
    return "prisms" if prisms and _is_heightfield(ground) else "contact_points"


def _is_heightfield(ground: Ground) -> bool:
    """Return whether the ground of every world is exactly one heightfield."""
    common: list[Shape | Solid] = [*ground.scene.shapes, *ground.shared]
    worlds = [[*common, *own] for own in ground.own] or [common]
    kinds = (Terrain, Heightfield)
    return all(
        len(shapes) == 1
        and (shapes[0].kind == "heightfield" if isinstance(shapes[0], Solid) else isinstance(shapes[0], kinds))
        for shapes in worlds
    )


def plane_numbers(ground: Ground | None) -> tuple[float, ...] | None:
    """Return point and normal of the plane that all worlds share, far below without ground; None for other grounds."""
    if ground is None or ground.empty:
        return (0.0, 0.0, FAR_BELOW, 0.0, 0.0, 1.0)
    if ground_mode(ground) != "plane":
        return None
    planes = _plane(ground, torch.zeros(1, 1, dtype=torch.float64))
    return tuple(planes[0].tolist()) if len(planes) == 1 else None


def _planes(ground: Ground) -> list[tuple[float, ...]] | None:
    """Return the poses of a ground that is one plane, shared or per world; None for other grounds.

    A simulator's model may have its plane once for all worlds, or once per world.
    """
    common: list[Shape | Solid] = [*ground.scene.shapes, *ground.shared]
    shapes = [common] if common and not any(ground.own) else [list(own) for own in ground.own]
    if (any(ground.own) and common) or any(len(own) != 1 for own in shapes):
        return None
    places = [_place(own[0]) for own in shapes]
    return None if any(place is None for place in places) else [place for place in places if place is not None]


def _place(shape: Shape | Solid) -> tuple[float, ...] | None:
    """Return the pose of a plane; None for another shape."""
    if isinstance(shape, Solid):
        return tuple(float(x) for x in shape.pose) if shape.kind == "plane" else None
    return (*shape.position, *shape.rotation) if isinstance(shape, Plane) else None


class HeldGround:
    """Measures the ground under a mechanism's contact points at the start of a frame."""

    def __init__(self, mechanism: Mechanism) -> None:
        """Prepare the queries of a mechanism's contact points and shapes."""
        self._points, self._shapes = len(mechanism.points), mechanism.shapes
        self._layout = contact_layout(mechanism)
        self._last: tuple[Ground, tuple[object, ...], Tensor] | None = None

    @cached_property
    def _proximity(self) -> "ProximityQuery":
        from neurodyn.geometry.proximity import ProximityQuery  # imports Warp, which planes do not need

        return ProximityQuery(self._layout)

    @cached_property
    def _prisms(self) -> "PrismContacts":
        from neurodyn.geometry.prisms.query import PrismContacts

        return PrismContacts(self._layout.joints, self._shapes, self._layout.base_com)

    def __call__(self, ground: Ground | None, q: Positions, qd: Velocities, mode: GroundMode) -> Tensor:
        """Return the ground of a batch of worlds, shape [worlds, `held_numbers`]; None is free space.

        A plane may also be represented per contact point.
        """
        if mode == "prisms" and ground is not None and self._shapes:
            return self._prisms(ground, q, qd).flatten(1)
        away = constant((0.0, 0.0, FAR_BELOW, 0.0, 0.0, 1.0), q)
        pieces = self._points if mode == "contact_points" else 1
        if ground is None or ground.empty:
            return away.repeat(pieces).expand(len(q), -1)
        if mode == "plane" or ground_mode(ground) == "plane":
            return self._pieces_of_plane(ground, q, pieces).expand(len(q), -1)
        readings = self._proximity(ground, q.detach(), qd.detach())
        pieces = torch.cat([readings.point, readings.normal], dim=-1)
        return torch.where(readings.valid[..., None], pieces, away).flatten(1)

    def _pieces_of_plane(self, ground: Ground, q: Tensor, pieces: int) -> Tensor:
        """Return a plane repeated per contact point; the last result is cached because a robot stays on its ground."""
        if ground.pose is not None and ground.pose.is_inference():  # has no version counter that tracks writes
            return _plane(ground, q).repeat(1, pieces)
        version = None if ground.pose is None else ground.pose._version
        key = (version, pieces, len(q), q.device, q.dtype)
        last = self._last  # another thread may replace it
        if last is None or last[0] is not ground or last[1] != key:
            with torch.inference_mode(False):  # reused by later calls, which may need gradients
                last = self._last = (ground, key, _plane(ground, q).repeat(1, pieces))
        return last[2]


def _plane(ground: Ground, q: Tensor) -> Tensor:
    """Return a point on the plane and its normal in each world, shape [worlds or 1, GROUND_NUMBERS]."""
    planes = _planes(ground)
    assert planes is not None
    places = constant(planes[0], q)[None] if len(planes) == 1 else q.new_tensor(planes)
    pose = ground.poses(len(q), q.device, q.dtype)
    worlds = max(len(places), len(pose))
    places, pose = places.expand(worlds, 7), pose.expand(worlds, 7)
    up = constant((0.0, 0.0, 1.0), q).expand(worlds, 3)
    normal = rotation.rotate(pose[:, 3:], rotation.rotate(rotation.normalise(places[:, 3:]), up))
    return torch.cat([pose[:, :3] + rotation.rotate(pose[:, 3:], places[:, :3]), normal], dim=-1)

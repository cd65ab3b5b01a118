# SPDX-License-Identifier: Apache-2.0
"""Contact features of a robot's contact points with the shapes of other free bodies, in torch, differentiable."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.shape_contacts import ShapeContact, TouchingShape
from neurodyn.core.description.spec import places
from neurodyn.geometry import rotation
from neurodyn.geometry.contact_features import FEATURES, ContactFeatures, contact_inputs
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.proximity import ProximityQuery

_LEAST = 1e-9  # squared length [m^2] below which a direction is not defined


class ObjectPoint(NamedTuple):
    """A contact point that may touch a shape of an object: their indices."""

    point: int
    shape: int


def object_shapes(contacts: Sequence[ShapeContact], objects: Sequence[str]) -> tuple[TouchingShape, ...]:
    """Return the shapes of free bodies that can touch something else, each once."""
    both = [shape for one in contacts for shape in (one.first, one.second) if shape.link in objects]
    return tuple({shape.name: shape for shape in both}.values())


def candidates(
    layout: ContactPointLayout, contacts: Sequence[ShapeContact], shapes: Sequence[TouchingShape]
) -> tuple[ObjectPoint, ...]:
    """Return the contact points whose shape can touch one of these shapes."""
    pairs = {frozenset((one.first.name, one.second.name)) for one in contacts}
    return tuple(
        ObjectPoint(index, number)
        for number, shape in enumerate(shapes)
        for index, point in enumerate(layout.contact_points)
        if frozenset((point.shape, shape.name)) in pairs
    )


class ObjectContacts(nn.Module):
    """Contact features of candidates, in the axes of a floating base, else in world axes.

    A candidate measures the distance from a contact point of one shape to another shape, so that a capsule with points
    at its ends is seen only there. Positions are relative to the object's centre of mass, velocities to the object.

    Attributes:
        width: Number of features.
    """

    _half: Tensor
    _radius: Tensor
    _poses: Tensor
    _sight: Tensor
    _coms: Tensor

    def __init__(
        self,
        layout: ContactPointLayout,
        shapes: Sequence[TouchingShape],
        pairs: Sequence[ObjectPoint],
        margins: Sequence[float],
        dt: float,
    ) -> None:
        """Prepare the features.

        Args:
            layout: Contact points of the robot and its objects.
            shapes: Shapes of objects.
            pairs: Pairs of points and shapes to measure.
            margins: Distance below which each contact point of the layout has features [m].
            dt: Length of a frame [s].
        """
        super().__init__()
        self._query, self._floating = ProximityQuery(layout), layout.floating
        self.width = FEATURES * len(pairs)
        self._points, self._shapes = [pair.point for pair in pairs], [pair.shape for pair in pairs]
        names, columns = [joint.name for joint in layout.joints], places(layout.joints)
        self._columns = [columns[names.index(shape.link)] for shape in shapes]
        coms = layout.coms if isinstance(layout.coms, dict) else {}
        sizes = [_rounded_box(shape) for shape in shapes]
        sight = [(layout.contact_points[i].radius, margins[i], dt) for i in self._points]
        for name, rows in (
            ("half", [half for half, _ in sizes]), ("radius", [radius for _, radius in sizes]),
            ("poses", [shape.place for shape in shapes]), ("sight", sight),
            ("coms", [coms.get(shape.link, (0.0, 0.0, 0.0)) for shape in shapes]),
        ):  # fmt: skip
            self.register_buffer(f"_{name}", torch.tensor(rows), persistent=False)

    def forward(self, q: Tensor, qd: Tensor) -> Tensor:
        """Return the features of states [worlds, nq] and [worlds, nv], shape [worlds, width]."""
        readings = self._query(None, q, qd)
        return self.of_points(q, qd, readings.position, readings.velocity)

    def of_points(self, q: Tensor, qd: Tensor, position: Tensor, velocity: Tensor) -> Tensor:
        """Return the features from the motion of all contact points, shapes [worlds, points, 3] in world axes."""
        point, moving = position[:, self._points], velocity[:, self._points]
        at = [column.q.start for column in self._columns]
        origin = torch.stack([q[:, start : start + 3] for start in at], 1)
        quaternion = torch.stack([q[:, column.quaternion] for column in self._columns], 1)
        linear = torch.stack([qd[:, column.linear] for column in self._columns], 1)
        angular = torch.stack([qd[:, column.angular] for column in self._columns], 1)
        centre = origin + rotation.rotate(quaternion, self._coms.expand_as(origin))
        frame = rotation.multiply(quaternion, self._poses[:, 3:].expand_as(quaternion))
        middle = origin + rotation.rotate(quaternion, self._poses[:, :3].expand_as(origin))
        frame, middle, centre, linear, angular = (
            part[:, self._shapes] for part in (frame, middle, centre, linear, angular)
        )
        local = rotation.rotate(rotation.conjugate(frame), point - middle)
        distance, own = _outward(local, self._half[self._shapes], self._radius[self._shapes])
        normal = rotation.rotate(frame, own)
        touched = point - distance[..., None] * normal
        against = moving - linear - torch.linalg.cross(angular, point - centre)
        vectors = torch.stack([normal, against, touched - centre], -2)
        if self._floating:
            vectors = rotation.rotate_rows(vectors, rotation.matrix(q[:, None, 3:7]))
        normal, against, touched = vectors.unbind(-2)
        return contact_inputs(distance, normal, against, touched, self._sight).flatten(1)


def _rounded_box(shape: TouchingShape) -> tuple[tuple[float, float, float], float]:
    """Return the half edges [m] of the box about which a shape is rounded, and the radius [m].

    Ellipsoids, cylinders and meshes are replaced by their bounding boxes.
    """
    first, second, _ = shape.size
    known = {
        "sphere": ((0.0, 0.0, 0.0), first), "capsule": ((0.0, 0.0, second), first),
        "cylinder": ((first, first, second), 0.0),
    }  # fmt: skip
    return known.get(shape.kind, (shape.size, 0.0))


def _outward(local: Tensor, half: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Return signed distance [m] and outward unit normal of points in the frames of rounded boxes."""
    beyond = local - local.clamp(-half, half)
    squared = beyond.square().sum(-1)
    outside = squared > _LEAST
    length = torch.where(outside, squared, torch.ones_like(squared)).sqrt()
    depth, axis = (local.abs() - half).max(-1)
    inward = (axis[..., None] == torch.arange(3, device=local.device)).to(local) * torch.where(local < 0, -1.0, 1.0).to(
        local
    )
    distance = torch.where(outside, length, depth) - radius
    return distance, torch.where(outside[..., None], beyond / length[..., None], inward)


class TreeContacts(nn.Module):
    """Contact features with the ground of a floating robot and of other free bodies, all in the robot's axes.

    The kernel measures one tree of joints in the axes of its base; features of an object are rotated from its axes to
    those of the robot, with positions relative to the object's origin.

    Attributes:
        width: Number of features.
    """

    def __init__(self, layout: ContactPointLayout, margins: Sequence[float], dt: float) -> None:
        """Prepare the features; arguments: see `ContactFeatures`."""
        super().__init__()
        roots: list[int] = []
        for index, joint in enumerate(layout.joints):
            roots.append(index if joint.parent < 0 else roots[joint.parent])
        self._trees = [_Tree.of(layout, margins, dt, [i for i, own in enumerate(roots) if own == root])
                       for root in dict.fromkeys(roots[point.joint] for point in layout.contact_points)]  # fmt: skip
        self.width = FEATURES * len(layout.contact_points)

    def forward(self, ground: Ground, q: Tensor, qd: Tensor) -> Tensor:
        """Return the features of states [worlds, nq] and [worlds, nv], shape [worlds, width]."""
        base, parts = rotation.matrix(q[:, 3:7]), []
        for tree in self._trees:
            features = tree.features(ground, q[:, tree.rows].contiguous(), qd[:, tree.dofs].contiguous())
            if tree.rows[0]:  # not the robot itself
                points = features.unflatten(-1, (-1, FEATURES))
                vectors = points[..., 3:].unflatten(-1, (-1, 3)).flatten(1, 2)
                to_base = rotation.matrix(q[:, tree.rows[3:7]]).mT @ base
                turned = rotation.rotate_rows(vectors, to_base).unflatten(1, (points.shape[1], -1)).flatten(-2)
                features = torch.cat([points[..., :3], turned], -1).flatten(1)
            parts.append(features)
        return torch.cat(parts, -1)


class _Tree(NamedTuple):
    """One tree of joints: its contact features, and its columns of positions and velocities."""

    features: ContactFeatures
    rows: list[int]
    dofs: list[int]

    @classmethod
    def of(cls, layout: ContactPointLayout, margins: Sequence[float], dt: float, joints: list[int]) -> "_Tree":
        columns = [places(layout.joints)[joint] for joint in joints]
        renamed = {joint: number for number, joint in enumerate(joints)}
        own = [i for i, point in enumerate(layout.contact_points) if point.joint in renamed]
        coms = layout.coms if isinstance(layout.coms, dict) else {}
        root = layout.joints[joints[0]]
        tree = ContactPointLayout(
            joints=tuple(
                msgspec.structs.replace(joint, parent=renamed.get(joint.parent, -1))
                for joint in (layout.joints[i] for i in joints)
            ),
            contact_points=tuple(
                msgspec.structs.replace(layout.contact_points[i], joint=renamed[layout.contact_points[i].joint])
                for i in own
            ),
            base_com=coms.get(root.name, (0.0, 0.0, 0.0)) if joints[0] else layout.base_com,
        )
        rows = [row for column in columns for row in range(column.q.start, column.q.stop)]
        dofs = [dof for column in columns for dof in range(column.qd.start, column.qd.stop)]
        return cls(ContactFeatures(tree, [margins[i] for i in own], dt), rows, dofs)

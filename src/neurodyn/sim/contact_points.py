# SPDX-License-Identifier: Apache-2.0
"""The contact points of a robot: fixed points on the collision shapes of its built articulation."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import UNSET

from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout, RoundedBox
from neurodyn.core.errors import InputError, nearest, suggestion
from neurodyn.robots import Robot
from neurodyn.robots.sections import ContactPointSelection, matching
from neurodyn.sim.articulations import Articulation, BuiltShape, short_label
from neurodyn.sim.bodies import compose, rounded_pose, rounded_vector

_RIM = 8
_DIRECTIONS = 4096


def shape_points(shape: BuiltShape, selection: ContactPointSelection) -> np.ndarray:
    """Return points in the frame of a shape, and the radius of the shape around each [m], shape [points, 4].

    A sphere has its centre, a capsule the end points of its axis, a box its corners, a cylinder points on its rims, an
    ellipsoid the end points of its axes, a mesh vertices of its hull. With `spacing`, capsules, boxes and cylinders
    have more along axes, edges and curved sides. Other kinds of shapes raise InputError.
    """
    x, y, z = shape.size
    spacing = selection.spacing
    match shape.kind:
        case "sphere":
            return np.array([[0.0, 0.0, 0.0, x]])
        case "capsule":
            return np.array([[0.0, 0.0, place, x] for place in _along(y, spacing, x)])
        case "box":
            return _sharp(_box((x, y, z), spacing))
        case "cylinder":
            angles = np.arange(_RIM) * 2 * np.pi / _RIM
            rim = np.stack([x * np.cos(angles), x * np.sin(angles)], -1)
            return _sharp(np.concatenate([np.insert(rim, 2, place, axis=1) for place in _along(y, spacing, x)]))
        case "ellipsoid":
            return _sharp(np.concatenate([np.diag([x, y, z]), -np.diag([x, y, z])]))
    if shape.kind == "mesh" and shape.vertices is not None:
        return _sharp(far_apart(hull_vertices(shape.vertices), selection.vertices))
    raise InputError(f"a {shape.kind}; valid: sphere, capsule, box, cylinder, ellipsoid, mesh")


def _sharp(points: np.ndarray) -> np.ndarray:
    return np.insert(points, 3, 0.0, axis=1)


def _along(half: float, spacing: float | None, unit: float) -> np.ndarray:
    """Return positions from -half to half, at most `spacing` units apart; without spacing, the two end points."""
    count = 2 if spacing is None else max(2, int(np.ceil(2 * half / (spacing * unit) - 1e-9)) + 1)
    return np.linspace(-half, half, count)


def _box(half: tuple[float, float, float], spacing: float | None) -> np.ndarray:
    """Return corners and points on edges, shape [points, 3]."""
    places = [_along(h, spacing, h) for h in half]
    index = np.stack(np.meshgrid(*(np.arange(len(p)) for p in places), indexing="ij"), -1).reshape(-1, 3)
    at_end = ((index == 0) | (index == [len(p) - 1 for p in places])).sum(1)
    return np.stack([places[axis][index[at_end >= 2, axis]] for axis in range(3)], -1)


def hull_vertices(vertices: np.ndarray) -> np.ndarray:
    """Return vertices of the convex hull, found as the extreme points in many directions, shape [n, 3]."""
    golden = np.pi * (3 - np.sqrt(5))
    height = 1 - (2 * np.arange(_DIRECTIONS) + 1) / _DIRECTIONS
    angle, around = golden * np.arange(_DIRECTIONS), np.sqrt(1 - height**2)
    directions = np.stack([around * np.cos(angle), around * np.sin(angle), height], -1)
    centred = vertices - vertices.mean(0)
    furthest = [np.argmax(directions[i : i + 256] @ centred.T, axis=1) for i in range(0, _DIRECTIONS, 256)]
    return vertices[np.unique(np.concatenate(furthest))]


def far_apart(points: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` points, each as far as possible from the previous ones, shape [n, 3]."""
    chosen = [int(np.argmax(np.linalg.norm(points - points.mean(0), axis=1)))]
    distance = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < min(most, len(points)) and distance.max() > 1e-9:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return points[chosen]


_SAME = 1e-6


def contact_point_layout(built: Articulation, robot: Robot) -> ContactPointLayout:
    """Return the declared contact points of a robot as built, and the joints that move them; see `shape_points`.

    Raises:
        InputError: The robot declares no contact points, or the selection matches no moving collision shape.
    """
    if robot.contact_points is None:
        raise InputError(
            f"robot {robot.name!r}: declares no contact points; add `contact_points: {{}}` for all collision shapes"
        )
    contact_points = _contact_points(built, robot.name, robot.contact_points)
    if robot.contact_points.distinct:
        contact_points = distinct_contact_points(built.joints, contact_points)
    coms = {link.joint.name: link.com for link in built.links[1:] if link.joint.kind == "free"}
    return ContactPointLayout(
        joints=built.joints, contact_points=contact_points, base_com=built.base_com, coms=coms or UNSET
    )


def contacts_on_plane(built: Articulation, robot: Robot) -> ContactPointLayout:
    """Return the points at which MuJoCo finds the contacts of a robot with a plane; see `contact_point_layout`.

    These are the points of all collision shapes, including coincident end points of capsules and other shapes: the
    simulator has a contact for each. Points inside a sphere of the same body are left out, because they touch nothing.
    Meshes have vertices of their hull, of which the simulator uses fewer and different ones.
    """
    declared = robot.contact_points or ContactPointSelection()
    everything = msgspec.structs.replace(declared, shapes=("*",), spacing=None, distinct=False)
    layout = contact_point_layout(built, msgspec.structs.replace(robot, contact_points=everything))
    points = layout.contact_points
    inside = {
        point.name for point in points for other in points if point.joint == other.joint
        and _gap(point.point, other.point) + point.radius < other.radius - _SAME
    }  # fmt: skip
    return msgspec.structs.replace(layout, contact_points=tuple(one for one in points if one.name not in inside))


def rounded_boxes(built: Articulation, contacts: int) -> tuple[RoundedBox, ...]:
    """Return the collision shapes of a robot as built; empty if any is not a sphere, capsule or box.

    `contacts` is the maximum number of contacts of each with a heightfield.
    """
    boxes = []
    for shape, name in zip(built.shapes, shape_names(built.shapes), strict=True):
        x, y, z = (round(size, 9) for size in shape.size)
        sizes = {"sphere": ((0.0, 0.0, 0.0), x), "capsule": ((0.0, 0.0, y), x), "box": ((x, y, z), 0.0)}
        if shape.kind not in sizes:
            return ()
        half, radius = sizes[shape.kind]
        place = rounded_pose(shape.place)
        boxes.append(RoundedBox(name, shape.joint, place, half, radius, contacts))
    return tuple(boxes)


def distinct_contact_points(
    joints: tuple[ChainJoint, ...], contact_points: tuple[ContactPoint, ...]
) -> tuple[ContactPoint, ...]:
    """Return the contact points without redundant ones; see `ContactPointSelection.distinct`."""
    kept: list[ContactPoint] = []
    for contact_point in sorted(contact_points, key=lambda p: -p.radius):
        hidden = any(
            contact_point.joint == other.joint
            and _gap(contact_point.point, other.point) + contact_point.radius <= other.radius + _SAME
            for other in kept
        )
        if not hidden and not any(_held_together(joints, contact_point, other) for other in kept):
            kept.append(contact_point)
    return tuple(contact_point for contact_point in contact_points if contact_point in kept)


def _held_together(joints: tuple[ChainJoint, ...], a: ContactPoint, b: ContactPoint) -> bool:
    """Return whether two equal spheres are centred on a revolute or ball joint that connects their bodies."""
    if abs(a.radius - b.radius) > _SAME:
        return False
    for child, parent in ((a, b), (b, a)):
        joint = joints[child.joint]
        if joint.kind in ("revolute", "ball") and joint.parent == parent.joint:
            ends = ((child.point, joint.child_frame), (parent.point, joint.parent_frame))
            if all(_gap(point, frame[:3]) < _SAME for point, frame in ends):
                return True
    return False


def _gap(a: Sequence[float], b: Sequence[float]) -> float:
    return float(np.linalg.norm(np.subtract(a, b)))


def _contact_points(built: Articulation, robot: str, selection: ContactPointSelection) -> tuple[ContactPoint, ...]:
    chosen = [shape for shape in built.shapes if any(matching(label, selection.shapes) for label in shape.labels)]
    labels = [label for shape in built.shapes for label in shape.labels]
    idle = [pattern for pattern in selection.shapes if not any(matching(label, (pattern,)) for label in labels)]
    if idle:
        shapes = {short_label(shape.label) for shape in built.shapes}
        bodies = {short_label(shape.body) for shape in built.shapes}
        raise InputError(
            f"robot {robot!r}: contact_points: shapes {idle} match no collision shape"
            f"{suggestion(idle[0], shapes | bodies)}; valid: patterns of the shapes {nearest(idle[0], shapes)}, or of "
            f"the bodies {nearest(idle[0], bodies)}"
        )
    contact_points = []
    for shape, name in zip(chosen, shape_names(chosen), strict=True):
        try:
            points = shape_points(shape, selection)
        except InputError as error:
            raise InputError(
                f"robot {robot!r}: contact_points: shape {name!r} is {error}; leave it out of `shapes`"
            ) from None
        axis = None
        if shape.kind == "capsule":
            along = compose(shape.place, np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]))
            axis = rounded_vector(along[:3] - shape.place[:3])
        for number, (*point, radius) in enumerate(points):
            where = rounded_vector(compose(shape.place, np.array([*point, 0.0, 0.0, 0.0, 1.0]))[:3])
            size = round(float(radius), 9)
            contact_points.append(
                ContactPoint(name=f"{name}/{number}", joint=shape.joint, point=where, radius=size, axis=axis)
            )
    return tuple(contact_points)


def shape_names(shapes: Sequence[BuiltShape]) -> list[str]:
    """Return a unique name for each shape: its short label, with the body's label or a number if necessary."""
    names = [short_label(shape.label) for shape in shapes]
    shared = {name for name, count in Counter(names).items() if count > 1}
    names = [
        f"{short_label(shape.body)}/{name}" if name in shared else name
        for shape, name in zip(shapes, names, strict=True)
    ]
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        names[index] = f"{name}#{seen[name] + 1}" if seen[name] else name
        seen[name] += 1
    return names

# SPDX-License-Identifier: Apache-2.0
"""The contact points of a robot: fixed points on the collision shapes of its built articulation."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout, RoundedBox
from neurodyn.core.description.scene import Pose, Vector3
from neurodyn.core.errors import InputError, choices
from neurodyn.robots import Robot
from neurodyn.robots.sections import ContactPointSelection, matching
from neurodyn.sim.bodies import Groups, compose
from neurodyn.sim.engine import import_newton, shape_labels, short_label
from neurodyn.sim.fingerprint import body_groups, world_joints

if TYPE_CHECKING:
    import newton


_RIM = 8
_DIRECTIONS = 4096


def shape_points(
    kind: int, scale: np.ndarray, vertices: np.ndarray | None, selection: ContactPointSelection
) -> np.ndarray:
    """Return points in the frame of a shape, and the radius of the shape around each [m], shape [points, 4].

    A sphere has its centre, a capsule the end points of its axis, a box its corners, a cylinder points on its rims, an
    ellipsoid the end points of its axes, a mesh vertices of its hull. With `spacing`, capsules, boxes and cylinders
    have more along axes, edges and mantle.

    `kind` and `scale` are Newton's; `vertices` are a mesh's before scaling, shape [vertices, 3]. Other kinds of shapes
    raise InputError.
    """
    kinds = import_newton().GeoType
    x, y, z = (float(value) for value in scale)
    spacing = selection.spacing
    if kind == int(kinds.SPHERE):
        return np.array([[0.0, 0.0, 0.0, x]])
    if kind == int(kinds.CAPSULE):
        return np.array([[0.0, 0.0, place, x] for place in _along(y, spacing, x)])
    if kind == int(kinds.BOX):
        return _sharp(_box((x, y, z), spacing))
    if kind == int(kinds.CYLINDER):
        angles = np.arange(_RIM) * 2 * np.pi / _RIM
        rim = np.stack([x * np.cos(angles), x * np.sin(angles)], -1)
        return _sharp(np.concatenate([np.insert(rim, 2, place, axis=1) for place in _along(y, spacing, x)]))
    if kind == int(kinds.ELLIPSOID):
        return _sharp(np.concatenate([np.diag([x, y, z]), -np.diag([x, y, z])]))
    if kind in (int(kinds.MESH), int(kinds.CONVEX_MESH)) and vertices is not None:
        return _sharp(far_apart(hull_vertices(vertices * (x, y, z)), selection.vertices))
    raise InputError(f"a {kinds(kind).name.lower()}; valid: sphere, capsule, box, cylinder, ellipsoid, mesh")


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


def contact_point_layout(model: "newton.Model", robot: Robot) -> ContactPointLayout:
    """Return the declared contact points and the joints that move them; see `shape_points`.

    Args:
        model: A model of worlds with the robot and no other moving bodies; world 0 is read.
        robot: The declared robot.

    Raises:
        InputError: The robot declares no contact points, the selection matches no moving collision shape, or the model
            has other joints.
    """
    if robot.contact_points is None:
        raise InputError(
            f"robot {robot.name!r}: declares no contact points; add `contact_points: {{}}` for all collision shapes"
        )
    arrays: Any = model
    joints, carrier = chain_joints(model, robot), carriers(model, robot)
    contact_points = _contact_points(model, robot.name, robot.contact_points, body_groups(model), carrier)
    if robot.contact_points.distinct:
        contact_points = distinct_contact_points(joints, contact_points)
    com = arrays.body_com.numpy()[next(iter(carrier))] if robot.spec.floating else (0.0, 0.0, 0.0)
    return ContactPointLayout(joints=joints, contact_points=contact_points, base_com=_vector(com))


def contacts_on_plane(model: "newton.Model", robot: Robot) -> ContactPointLayout:
    """Return the points at which MuJoCo finds the contacts of a robot with a plane; see `contact_point_layout`.

    These are the points of all collision shapes, including coincident end points of capsules and other shapes: the
    simulator has a contact for each. Points inside a sphere of the same body are left out, because they touch nothing.
    Meshes have vertices of their hull, of which the simulator uses fewer and different ones.
    """
    declared = robot.contact_points or ContactPointSelection()
    everything = msgspec.structs.replace(declared, shapes=("*",), spacing=None, distinct=False)
    layout = contact_point_layout(model, msgspec.structs.replace(robot, contact_points=everything))
    points = layout.contact_points
    outside = tuple(point for point in points if not any(_within(point, other) for other in points))
    return msgspec.structs.replace(layout, contact_points=outside)


def rounded_boxes(model: "newton.Model", robot: Robot) -> tuple[RoundedBox, ...]:
    """Return the collision shapes of world 0 of a model; empty if any is not a sphere, capsule or box."""
    arrays: Any = model
    kinds: Any = import_newton().GeoType
    groups, carrier = body_groups(model), carriers(model, robot)
    body = arrays.shape_body.numpy()
    transform, scale, kind = (getattr(arrays, f"shape_{x}").numpy() for x in ("transform", "scale", "type"))
    found = []
    for shape, name in shape_names(model, robot).items():
        leader, offset = groups[int(body[shape])]
        x, y, z = (round(float(size), 9) for size in scale[shape])
        sizes = {
            int(kinds.SPHERE): ((0.0, 0.0, 0.0), x), int(kinds.CAPSULE): ((0.0, 0.0, y), x),
            int(kinds.BOX): ((x, y, z), 0.0),
        }.get(int(kind[shape]))  # fmt: skip
        if sizes is None:
            return ()
        place = _pose(compose(offset, transform[shape].astype(float)))
        found.append(RoundedBox(name=name, joint=carrier[leader], place=place, half=sizes[0], radius=sizes[1]))
    return tuple(found)


def shape_names(model: "newton.Model", robot: Robot) -> dict[int, str]:
    """Return the names of the collision shapes of world 0 of a model by their number, as in `contacts_on_plane`."""
    groups, carrier = body_groups(model), carriers(model, robot)
    body = model.shape_body.numpy()  # type: ignore[union-attr]
    chosen = [s for s in np.flatnonzero(collides(model)).tolist() if groups[int(body[s])][0] in carrier]
    return dict(zip(chosen, _names(model, chosen, body), strict=True))


def _within(point: ContactPoint, other: ContactPoint) -> bool:
    """Return whether a sphere lies strictly inside another one of the same body."""
    return point.joint == other.joint and _gap(point.point, other.point) + point.radius < other.radius - _SAME


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


def carriers(model: "newton.Model", robot: Robot) -> dict[int, int]:
    """Return the index of the joint that moves each moving body of world 0, in joint order; refuse other joints."""
    joints = world_joints(model)
    if len(joints) != len(robot.joints):
        raise InputError(
            f"robot {robot.name!r}: world 0 of the model has {len(joints)} moving joints; valid: the "
            f"{len(robot.joints)} of the robot"
        )
    child = model.joint_child.numpy()  # type: ignore[union-attr]
    return {int(child[joint]): index for index, joint in enumerate(joints)}


def chain_joints(model: "newton.Model", robot: Robot) -> tuple[ChainJoint, ...]:
    """Return the joints of world 0 with the declared names and kinds; errors: see `carriers`."""
    arrays: Any = model
    groups, carrier = body_groups(model), carriers(model, robot)
    parents, starts, axes = (getattr(arrays, f"joint_{name}").numpy() for name in ("parent", "qd_start", "axis"))
    parent_frames, child_frames = arrays.joint_X_p.numpy().astype(float), arrays.joint_X_c.numpy()
    joints = []
    for declared, joint in zip(robot.joints, world_joints(model), strict=True):
        leader, offset = groups[int(parents[joint])]
        joints.append(
            ChainJoint(
                name=declared.name,
                kind=declared.kind,
                parent=carrier.get(leader, -1),
                parent_frame=_pose(compose(offset, parent_frames[joint])),
                child_frame=_pose(child_frames[joint]),
                axis=_vector(axes[int(starts[joint])]) if declared.scalar else (0.0, 0.0, 0.0),
            )
        )
    return tuple(joints)


def collides(model: Any) -> np.ndarray:
    """Return which shapes of a model take part in contacts, shape [shapes]."""
    return (model.shape_flags.numpy() & int(import_newton().ShapeFlags.COLLIDE_SHAPES)) != 0


def _contact_points(
    model: Any, robot: str, selection: ContactPointSelection, groups: Groups, carrier: dict[int, int]
) -> tuple[ContactPoint, ...]:
    body = model.shape_body.numpy()
    shapes = [s for s in np.flatnonzero(collides(model)).tolist() if groups[int(body[s])][0] in carrier]
    labels = {shape: shape_labels(model, shape, int(body[shape])) for shape in shapes}
    chosen = [shape for shape in shapes if any(matching(label, selection.shapes) for label in labels[shape])]
    if not chosen:
        shape_names = {short_label(model.shape_label[shape]) for shape in shapes}
        body_names = {short_label(model.body_label[int(body[shape])]) for shape in shapes}
        raise InputError(
            f"robot {robot!r}: contact_points: shapes {list(selection.shapes)} match no collision shape; "
            f"valid: patterns of the shapes {choices(shape_names)}, or of the bodies {choices(body_names)}"
        )
    transform, scale, kind = (getattr(model, f"shape_{x}").numpy() for x in ("transform", "scale", "type"))
    capsule = int(import_newton().GeoType.CAPSULE)
    contact_points = []
    for shape, name in zip(chosen, _names(model, chosen, body), strict=True):
        leader, offset = groups[int(body[shape])]
        place = compose(offset, transform[shape].astype(float))
        try:
            points = shape_points(int(kind[shape]), scale[shape], _vertices(model, shape), selection)
        except InputError as error:
            raise InputError(
                f"robot {robot!r}: contact_points: shape {name!r} is {error}; leave it out of `shapes`"
            ) from None
        axis = None
        if int(kind[shape]) == capsule:
            along = compose(place, np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]))
            axis = _vector(along[:3] - place[:3])
        for number, (*point, radius) in enumerate(points):
            where = _vector(compose(place, np.array([*point, 0.0, 0.0, 0.0, 1.0]))[:3])
            size = round(float(radius), 9)
            contact_points.append(
                ContactPoint(name=f"{name}/{number}", joint=carrier[leader], point=where, radius=size, axis=axis)
            )
    return tuple(contact_points)


def _names(model: Any, shapes: list[int], body: np.ndarray) -> list[str]:
    """Return a unique name for each shape: its short label, with the body's label or a number if necessary."""
    names = [short_label(model.shape_label[shape]) for shape in shapes]
    shared = {name for name, count in Counter(names).items() if count > 1}
    names = [
        f"{short_label(model.body_label[int(body[shape])])}/{name}" if name in shared else name
        for shape, name in zip(shapes, names, strict=True)
    ]
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        names[index] = f"{name}#{seen[name] + 1}" if seen[name] else name
        seen[name] += 1
    return names


def _vertices(model: Any, shape: int) -> np.ndarray | None:
    vertices = getattr(model.shape_source[shape], "vertices", None)
    return None if vertices is None else np.asarray(vertices, dtype=float).reshape(-1, 3)


def _vector(values: Any) -> Vector3:
    x, y, z = (round(float(value), 9) for value in values)
    return (x, y, z)


def _pose(values: Any) -> Pose:
    x, y, z, qx, qy, qz, qw = (round(float(value), 9) for value in values)
    return (x, y, z, qx, qy, qz, qw)

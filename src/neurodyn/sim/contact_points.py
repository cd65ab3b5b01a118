# SPDX-License-Identifier: Apache-2.0
"""The contact points of a robot: fixed points on the collision shapes of its built articulation."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from neurodyn.core.description.contact_points import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.contact_shapes import RoundedBox
from neurodyn.core.description.scene import Pose, Vector3
from neurodyn.core.errors import InputError, choices
from neurodyn.robots import Robot
from neurodyn.robots.sections import ContactPointSelection, matching
from neurodyn.sim.assets.merge import Groups, compose
from neurodyn.sim.engine import import_newton, short_label
from neurodyn.sim.fingerprint import body_groups, world_joints
from neurodyn.sim.shape_points import shape_points

if TYPE_CHECKING:
    import newton


_SAME = 1e-6


def contact_point_layout(model: "newton.Model", robot: Robot) -> ContactPointLayout:
    """Return the points that a robot's declaration selects, and the joints that move them.

    A sphere has one contact point (its centre), a capsule the two ends of its axis, a box its corners, a cylinder
    points on both rims, a mesh vertices of its hull that lie far apart; with `spacing`, axes and edges have more.

    Args:
        model: A model of worlds with the robot and nothing else that moves; world 0 is read.
        robot: The declared robot.

    Raises:
        InputError: The robot declares no contact points, the selection matches no moving collision shape, or the
            model holds other joints.
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
    base_com = (0.0, 0.0, 0.0)
    if robot.spec.floating:
        base_com = _vector(arrays.body_com.numpy()[next(iter(carrier))])
    return ContactPointLayout(joints=joints, contact_points=contact_points, base_com=base_com)


def contacts_on_plane(model: "newton.Model", robot: Robot) -> ContactPointLayout:
    """Return the points at which MuJoCo finds the contacts of a robot with a plane.

    They are those of all its collision shapes, ends of capsules at which other shapes begin included: there the
    simulator has a contact of either. What lies within a sphere of the same body touches nothing. Of meshes they are
    vertices of the hull, where the simulator has fewer and others.

    Args:
        model: A model of worlds with the robot and nothing else that moves; world 0 is read.
        robot: A declared robot with contact points.

    Raises:
        InputError: As of `contact_point_layout`.
    """
    declared = robot.contact_points or ContactPointSelection()
    everything = msgspec.structs.replace(declared, shapes=("*",), spacing=None, distinct=False)
    layout = contact_point_layout(model, msgspec.structs.replace(robot, contact_points=everything))
    points = layout.contact_points
    outside = tuple(point for point in points if not any(_within(point, other) for other in points))
    return msgspec.structs.replace(layout, contact_points=outside)


def rounded_boxes(model: "newton.Model", robot: Robot) -> tuple[RoundedBox, ...]:
    """Return the collision shapes of a robot; none where there are others than spheres, capsules and boxes.

    Args:
        model: A model of worlds with the robot and nothing else that moves; world 0 is read.
        robot: The declared robot.

    Raises:
        InputError: The model holds other joints.
    """
    arrays: Any = model
    kinds: Any = import_newton().GeoType
    groups, carrier = body_groups(model), carriers(model, robot)
    body = arrays.shape_body.numpy()
    chosen = [s for s in np.flatnonzero(collides(model)).tolist() if groups[int(body[s])][0] in carrier]
    transform, scale, kind = (getattr(arrays, f"shape_{x}").numpy() for x in ("transform", "scale", "type"))
    found = []
    for shape, name in zip(chosen, _names(model, chosen, body), strict=True):
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


def _within(point: ContactPoint, other: ContactPoint) -> bool:
    """Return whether a sphere lies inside of another one of the same body, without touching its surface."""
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
    """Return whether two equal spheres lie about the point in which a turning joint holds their bodies together."""
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
    """Return the index of the joint that moves each moving body of world 0, in the order of the joints.

    Raises:
        InputError: The model holds other joints than the robot.
    """
    joints = world_joints(model)
    if len(joints) != len(robot.joints):
        raise InputError(
            f"robot {robot.name!r}: world 0 of the model has {len(joints)} moving joints; valid: the "
            f"{len(robot.joints)} of the robot"
        )
    child = model.joint_child.numpy()  # type: ignore[union-attr]
    return {int(child[joint]): index for index, joint in enumerate(joints)}


def chain_joints(model: "newton.Model", robot: Robot) -> tuple[ChainJoint, ...]:
    """Return the joints that move the bodies of world 0, as a robot declares them; errors as of `carriers`."""
    groups, carrier = body_groups(model), carriers(model, robot)
    return tuple(
        _chain_joint(model, robot, index, joint, groups, carrier) for index, joint in enumerate(world_joints(model))
    )


def collides(model: Any) -> np.ndarray:
    """Return for each shape of a model whether it takes part in contacts, shape [shapes]."""
    return (model.shape_flags.numpy() & int(import_newton().ShapeFlags.COLLIDE_SHAPES)) != 0


def _contact_points(
    model: Any, robot: str, selection: ContactPointSelection, groups: Groups, carrier: dict[int, int]
) -> tuple[ContactPoint, ...]:
    body = model.shape_body.numpy()
    shapes = [s for s in np.flatnonzero(collides(model)).tolist() if groups[int(body[s])][0] in carrier]
    chosen = [shape for shape in shapes if _labels(model, shape, int(body[shape]), selection)]
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


def _labels(model: Any, shape: int, body: int, selection: ContactPointSelection) -> bool:
    """Return whether a pattern matches the label of a shape or of its body, with or without prefixes."""
    full = (model.shape_label[shape], model.body_label[body])
    labels = (*full, *(short_label(label) for label in full))
    return any(matching(label, selection.shapes) for label in labels)


def _names(model: Any, shapes: list[int], body: np.ndarray) -> list[str]:
    """Return a name for each shape: its label without prefixes, with that of its body, or a number, where needed."""
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


def _chain_joint(
    model: Any, robot: Robot, index: int, joint: int, groups: Groups, carrier: dict[int, int]
) -> ChainJoint:
    declared = robot.joints[index]
    axis = (0.0, 0.0, 0.0)
    if declared.scalar:
        axis = _vector(model.joint_axis.numpy()[int(model.joint_qd_start.numpy()[joint])])
    leader, offset = groups[int(model.joint_parent.numpy()[joint])]
    return ChainJoint(
        name=declared.name,
        kind=declared.kind,
        parent=carrier.get(leader, -1),
        parent_frame=_pose(compose(offset, model.joint_X_p.numpy()[joint].astype(float))),
        child_frame=_pose(model.joint_X_c.numpy()[joint]),
        axis=axis,
    )


def _vector(values: Any) -> Vector3:
    x, y, z = (round(float(value), 9) for value in values)
    return (x, y, z)


def _pose(values: Any) -> Pose:
    x, y, z, qx, qy, qz, qw = (round(float(value), 9) for value in values)
    return (x, y, z, qx, qy, qz, qw)

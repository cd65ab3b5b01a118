# SPDX-License-Identifier: Apache-2.0
"""The probes of a robot: fixed points on the collision shapes of its built articulation."""

from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

import numpy as np

from neurodyn.core.errors import InputError, choices
from neurodyn.core.probes import ChainJoint, Probe, ProbeLayout
from neurodyn.core.scene import Pose, Vector3
from neurodyn.core.spec import JointKind
from neurodyn.robots import Robot
from neurodyn.robots.declaration import ProbeSelection
from neurodyn.sim.engine import import_newton, short_label
from neurodyn.sim.fingerprint import world_joints
from neurodyn.sim.merge import compose

if TYPE_CHECKING:
    import newton

Points = list[tuple[np.ndarray, float]]
"""Points in the frame of a shape [m], and the radius of the shape around each [m]."""


def probe_layout(model: "newton.Model", robot: Robot) -> ProbeLayout:
    """Return the points that a robot's declaration selects, and the joints that move them.

    A sphere has one probe (its centre), a capsule the two ends of its axis, a box its corners, a cylinder
    points on both rims, a mesh vertices of its hull that lie far apart; with `spacing`, axes and edges have more.

    Args:
        model: The robot as built (world 0 is read).
        robot: The declared robot.

    Raises:
        InputError: The selection matches no collision shape, or the robot declares none.
    """
    selection = robot.probes
    if selection is None:
        raise InputError(f"robot {robot.name!r}: declares no probes; add `probes: {{}}` for all collision shapes")
    joints = world_joints(model)
    arrays: Any = model
    child = arrays.joint_child.numpy()
    carried = {int(child[joint]): index for index, joint in enumerate(joints)}
    shapes = _collision_shapes(model, carried)
    chosen = [shape for shape in shapes if _matches(model, shape, selection)]
    if not chosen:
        labels = sorted({short_label(model.shape_label[shape]) for shape in shapes})
        raise InputError(
            f"robot {robot.name!r}: probes: shapes {list(selection.shapes)} match no collision shape; valid: patterns "
            f"of {choices(labels)}, or of the bodies that carry them"
        )
    body = arrays.shape_body.numpy()
    transform = arrays.shape_transform.numpy()
    probes = []
    for shape in chosen:
        label = short_label(model.shape_label[shape])
        for number, (point, radius) in enumerate(_points(model, shape, selection)):
            place = compose(transform[shape], np.array([*point, 0.0, 0.0, 0.0, 1.0]))[:3]
            x, y, z = (round(float(value), 9) + 0.0 for value in place)  # no negative zero
            joint = carried[int(body[shape])]
            probes.append(Probe(name=f"{label}/{number}", joint=joint, point=(x, y, z), radius=round(radius, 9)))
    return ProbeLayout(
        joints=tuple(_chain_joint(model, robot, index, joint, carried) for index, joint in enumerate(joints)),
        probes=tuple(probes),
        base_com=_vector(arrays.body_com.numpy()[child[joints[0]]]) if not robot.fixed_base else (0.0, 0.0, 0.0),
    )


def _collision_shapes(model: Any, carried: dict[int, int]) -> list[int]:
    newton = import_newton()
    flags, body = model.shape_flags.numpy(), model.shape_body.numpy()
    collides = (flags & int(newton.ShapeFlags.COLLIDE_SHAPES)) != 0
    return [shape for shape in range(len(body)) if collides[shape] and int(body[shape]) in carried]


def _matches(model: Any, shape: int, selection: ProbeSelection) -> bool:
    body = int(model.shape_body.numpy()[shape])
    labels = {model.shape_label[shape], short_label(model.shape_label[shape])}
    labels |= {model.body_label[body], short_label(model.body_label[body])}
    return any(fnmatch(label, pattern) for label in labels for pattern in selection.shapes)


def _points(model: Any, shape: int, selection: ProbeSelection) -> Points:
    """Return the probes of one shape in its frame."""
    kinds = import_newton().GeoType
    kind = int(model.shape_type.numpy()[shape])
    x, y, z = (float(value) for value in model.shape_scale.numpy()[shape])
    if kind == int(kinds.SPHERE):
        return [(np.zeros(3), x)]
    if kind == int(kinds.CAPSULE):
        return [(np.array([0.0, 0.0, s]), x) for s in _along(y, selection.spacing, x)]
    if kind == int(kinds.BOX):
        return [(corner, 0.0) for corner in _box_points((x, y, z), selection.spacing)]
    if kind == int(kinds.CYLINDER):
        angles = np.arange(8) * np.pi / 4
        return [(np.array([x * np.cos(a), x * np.sin(a), s * y]), 0.0) for s in (-1, 1) for a in angles]
    if kind in (int(kinds.MESH), int(kinds.CONVEX_MESH)):
        vertices = np.asarray(model.shape_source[shape].vertices, float).reshape(-1, 3) * (x, y, z)
        return [(point, 0.0) for point in farthest_points(vertices, selection.vertices)]
    label = short_label(model.shape_label[shape])
    raise InputError(
        f"probes: shape {label!r} is a {kinds(kind).name.lower()}; valid: sphere, capsule, box, cylinder, mesh; leave it "
        "out of `shapes`"
    )


def _along(half: float, spacing: float | None, unit: float) -> np.ndarray:
    """Return places from -half to half, at most `spacing` units apart; the ends alone without a spacing."""
    count = 2 if spacing is None else max(2, int(np.ceil(2 * half / (spacing * unit) - 1e-9)) + 1)
    return np.linspace(-half, half, count)


def _box_points(half: tuple[float, float, float], spacing: float | None) -> list[np.ndarray]:
    axes = [_along(h, spacing, h) for h in half]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    at_end = np.isclose(np.abs(grid), half).sum(1)
    return list(grid[at_end >= 2])


def farthest_points(vertices: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` vertices, each as far as possible from those before it, shape [n, 3]."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        vertices = vertices[ConvexHull(vertices).vertices]
    except QhullError:  # flat or too few: all of them may touch
        vertices = np.unique(vertices, axis=0)
    chosen = [int(np.argmax(np.linalg.norm(vertices - vertices.mean(0), axis=1)))]
    distance = np.linalg.norm(vertices - vertices[chosen[0]], axis=1)
    while len(chosen) < min(most, len(vertices)):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(vertices - vertices[chosen[-1]], axis=1))
    return vertices[chosen]


def _chain_joint(model: Any, robot: Robot, index: int, joint: int, carried: dict[int, int]) -> ChainJoint:
    kind: JointKind = robot.joints[index].kind
    axis = (0.0, 0.0, 0.0)
    if kind in ("revolute", "prismatic"):
        axis = _vector(model.joint_axis.numpy()[int(model.joint_qd_start.numpy()[joint])])
    return ChainJoint(
        name=robot.joints[index].name,
        kind=kind,
        parent=carried.get(int(model.joint_parent.numpy()[joint]), -1),
        parent_frame=_pose(model.joint_X_p.numpy()[joint]),
        child_frame=_pose(model.joint_X_c.numpy()[joint]),
        axis=axis,
    )


def _vector(values: Any) -> Vector3:
    x, y, z = (round(float(value), 9) for value in values)
    return (x, y, z)


def _pose(values: Any) -> Pose:
    x, y, z, qx, qy, qz, qw = (round(float(value), 9) for value in values)
    return (x, y, z, qx, qy, qz, qw)

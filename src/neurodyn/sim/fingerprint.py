# SPDX-License-Identifier: Apache-2.0
"""The identity of the articulation that a Newton model holds, and where its coordinates lie.

The fingerprint is taken of world 0. Bodies that fixed joints hold together count as one, so that it does not
matter whether the importer merged them; labels count without the prefixes of worlds and articulations.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.core.fingerprint import BodyPrint, Fingerprint, JointPrint, Vector
from neurodyn.core.spec import JointKind
from neurodyn.sim.engine import import_newton, short_label

if TYPE_CHECKING:
    import newton

_DIGITS = 9


def columns(model: "newton.Model") -> tuple[list[int], list[int]]:
    """Return the columns of a world's positions and velocities that belong to its joints.

    With `joint_q` viewed as [worlds, nq per world] and `joint_qd` as [worlds, nv per world], these are the
    columns of the moving joints of world 0, in order.

    Raises:
        InputError: The worlds do not have equal numbers of coordinates.
    """
    q_start, qd_start = _numpy(model.joint_q_start), _numpy(model.joint_qd_start)
    worlds = max(int(model.world_count), 1)
    if model.joint_coord_count % worlds or model.joint_dof_count % worlds:
        raise InputError(f"the model's {worlds} worlds hold different robots; expected the same robot in every world")
    q_columns: list[int] = []
    qd_columns: list[int] = []
    for joint in world_joints(model):
        q_columns += range(int(q_start[joint]), int(q_start[joint + 1]))
        qd_columns += range(int(qd_start[joint]), int(qd_start[joint + 1]))
    return q_columns, qd_columns


def world_joints(model: "newton.Model") -> list[int]:
    """Return the moving joints of world 0."""
    fixed = int(import_newton().JointType.FIXED)
    kinds = _numpy(model.joint_type)
    return [joint for joint in _in_first_world(model.joint_world, model) if int(kinds[joint]) != fixed]


def joint_names(model: "newton.Model") -> list[str]:
    """Return the names of the moving joints of world 0, without prefixes."""
    return [short_label(model.joint_label[joint]) for joint in world_joints(model)]


def fingerprint(model: "newton.Model") -> Fingerprint:
    """Return the identity of the articulation in world 0.

    Raises:
        InputError: A joint is of a type that no robot can have.
    """
    arrays = _Arrays.of(model)
    groups = _merge_fixed(model, arrays)
    return Fingerprint(
        joints=tuple(_joint_print(model, arrays, groups, joint) for joint in world_joints(model)),
        bodies=tuple(
            _body_print(model, arrays, groups, body)
            for body in _in_first_world(model.body_world, model)
            if groups[body][0] == body
        ),
        gravity=_vector(_base_gravity(model, arrays, groups)),
    )


@dataclass(frozen=True)
class _Arrays:
    """Host copies of what a fingerprint reads."""

    kind: np.ndarray
    parent: np.ndarray
    child: np.ndarray
    parent_pose: np.ndarray
    child_pose: np.ndarray
    qd_start: np.ndarray
    axis: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    armature: np.ndarray
    mass: np.ndarray
    com: np.ndarray
    inertia: np.ndarray

    @classmethod
    def of(cls, model: Any) -> "_Arrays":
        names = ("type", "parent", "child", "X_p", "X_c", "qd_start", "axis", "limit_lower", "limit_upper", "armature")
        joint = [_numpy(getattr(model, f"joint_{name}")) for name in names]
        body = [_numpy(getattr(model, f"body_{name}")).astype(float) for name in ("mass", "com", "inertia")]
        return cls(*joint, *body)


Pose = np.ndarray
"""[x y z, qx qy qz qw]."""


def _merge_fixed(model: Any, arrays: _Arrays) -> dict[int, tuple[int, Pose]]:
    """Return for each body the body that stands for it (-1: the world) and its pose in that one's frame."""
    identity = np.array([0, 0, 0, 0, 0, 0, 1.0])
    groups: dict[int, tuple[int, Pose]] = {-1: (-1, identity)}
    fixed = int(import_newton().JointType.FIXED)
    for joint in _in_first_world(model.joint_world, model):
        parent, child = int(arrays.parent[joint]), int(arrays.child[joint])
        if int(arrays.kind[joint]) == fixed:
            leader, pose = groups[parent]
            offset = _compose(arrays.parent_pose[joint], _invert(arrays.child_pose[joint]))
            groups[child] = (leader, _compose(pose, offset))
        else:
            groups[child] = (child, identity)
    for body in _in_first_world(model.body_world, model):
        groups.setdefault(body, (body, identity))
    return groups


def _base_gravity(model: Any, arrays: _Arrays, groups: dict[int, tuple[int, Pose]]) -> np.ndarray:
    """Return gravity in the axes on which the robot's first joint stands: a tilted robot is another one."""
    gravity = _numpy(model.gravity).reshape(-1, 3)[0].astype(float)
    for joint in world_joints(model):
        leader, offset = groups[int(arrays.parent[joint])]
        if leader < 0:
            return _rotation(_compose(offset, arrays.parent_pose[joint])).T @ gravity
    return gravity


def _joint_print(model: Any, arrays: _Arrays, groups: dict[int, tuple[int, Pose]], joint: int) -> JointPrint:
    types = import_newton().JointType
    kinds: dict[int, JointKind] = {
        int(types.PRISMATIC): "prismatic",
        int(types.REVOLUTE): "revolute",
        int(types.BALL): "ball",
        int(types.FREE): "free",
    }
    kind = int(arrays.kind[joint])
    name = short_label(model.joint_label[joint])
    if kind not in kinds:
        raise InputError(
            f"joint {name!r} is of the unsupported type {types(kind).name}; valid: revolute, prismatic, ball, free"
        )
    dofs = slice(int(arrays.qd_start[joint]), int(arrays.qd_start[joint + 1]))
    leader, offset = groups[int(arrays.parent[joint])]
    parent_pose = () if leader < 0 else _vector(_compose(offset, arrays.parent_pose[joint]))
    return JointPrint(
        name=name,
        kind=kinds[kind],
        axis=_vector(arrays.axis[dofs]),
        parent_pose=parent_pose,
        child_pose=_vector(arrays.child_pose[joint]),
        lower=_vector(arrays.lower[dofs]),
        upper=_vector(arrays.upper[dofs]),
        armature=_vector(arrays.armature[dofs]),
    )


def _body_print(model: Any, arrays: _Arrays, groups: dict[int, tuple[int, Pose]], leader: int) -> BodyPrint:
    """Return a body with everything that fixed joints hold to it."""
    members = [(body, pose) for body, (head, pose) in groups.items() if head == leader]
    mass = sum(arrays.mass[body] for body, _ in members)
    centres = {body: pose[:3] + _rotation(pose) @ arrays.com[body] for body, pose in members}
    com = sum(arrays.mass[body] * centres[body] for body, _ in members) / max(mass, 1e-300)
    inertia = np.zeros((3, 3))
    for body, pose in members:
        rotation, d = _rotation(pose), centres[body] - com
        # Steiner: I = R I_body R^T + m (d.d 1 - d d^T).
        inertia += rotation @ arrays.inertia[body] @ rotation.T
        inertia += arrays.mass[body] * (d @ d * np.eye(3) - np.outer(d, d))
    return BodyPrint(
        name=short_label(model.body_label[leader]), mass=float(mass), com=_vector(com), inertia=_vector(inertia)
    )


def _in_first_world(worlds: Any, model: Any) -> list[int]:
    """Return the entities of world 0; of a model without worlds, all."""
    index = _numpy(worlds)
    return np.flatnonzero(index == (0 if (index == 0).any() or model.world_count > 0 else -1)).tolist()


def _numpy(array: Any) -> np.ndarray:
    return array.numpy()


def _vector(array: Any) -> Vector:
    return tuple(round(float(value), _DIGITS) for value in np.asarray(array, dtype=float).ravel())


def _rotation(pose: Pose) -> np.ndarray:
    x, y, z, w = np.asarray(pose[3:], dtype=float)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def _compose(a: Pose, b: Pose) -> Pose:
    """Return the pose a o b."""
    ax, ay, az, aw = np.asarray(a[3:], dtype=float)
    bx, by, bz, bw = np.asarray(b[3:], dtype=float)
    turn = [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    ]
    return np.concatenate([a[:3] + _rotation(a) @ b[:3], turn])


def _invert(a: Pose) -> Pose:
    turn = np.array([-a[3], -a[4], -a[5], a[6]], dtype=float)
    return np.concatenate([-_rotation(a).T @ a[:3], turn])

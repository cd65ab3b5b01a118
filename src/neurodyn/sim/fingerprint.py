# SPDX-License-Identifier: Apache-2.0
"""The identity of the articulation that a Newton model holds, and where its coordinates lie.

The fingerprint is taken of world 0. Bodies that fixed joints hold together count as one, so that it does not
matter whether the importer merged them; labels count without the prefixes of worlds and articulations.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.core.fingerprint import BodyPrint, Fingerprint, JointPrint, Vector
from neurodyn.core.joint_kinds import COORDINATES
from neurodyn.sim.engine import import_newton, joint_kinds, short_label
from neurodyn.sim.merge import Groups, Pose, compose, group_bodies, merged_body, rotation

if TYPE_CHECKING:
    import newton

_DIGITS = 9
_UNLIMITED = 1e9


def columns(model: "newton.Model", names: Collection[str] | None = None) -> tuple[list[int], list[int]]:
    """Return the columns of a world's positions and velocities that belong to a robot's joints.

    With `joint_q` viewed as [worlds, nq per world] and `joint_qd` as [worlds, nv per world], these are the
    columns of the moving joints of world 0, in order.

    Args:
        model: A model whose worlds hold the same joints.
        names: Names of the robot's joints; None for all that move.

    Raises:
        InputError: The worlds do not have equal numbers of coordinates.
    """
    q_start, qd_start = _numpy(model.joint_q_start), _numpy(model.joint_qd_start)
    worlds = max(int(model.world_count), 1)
    if model.joint_coord_count % worlds or model.joint_dof_count % worlds:
        raise InputError(f"the model's {worlds} worlds hold different robots; expected the same robot in every world")
    q_columns: list[int] = []
    qd_columns: list[int] = []
    for joint in world_joints(model, names):
        q_columns += range(int(q_start[joint]), int(q_start[joint + 1]))
        qd_columns += range(int(qd_start[joint]), int(qd_start[joint + 1]))
    return q_columns, qd_columns


def world_joints(model: "newton.Model", names: Collection[str] | None = None) -> list[int]:
    """Return the moving joints of world 0, in the model's order; only those in `names`, if given."""
    fixed = int(import_newton().JointType.FIXED)
    kinds = _numpy(model.joint_type)
    moving = [joint for joint in _in_first_world(model.joint_world) if int(kinds[joint]) != fixed]
    return [joint for joint in moving if names is None or short_label(model.joint_label[joint]) in names]


def joint_names(model: "newton.Model") -> list[str]:
    """Return the names of the moving joints of world 0, without prefixes."""
    return [short_label(model.joint_label[joint]) for joint in world_joints(model)]


def fingerprint(model: "newton.Model", names: Collection[str] | None = None) -> Fingerprint:
    """Return the identity of the articulation in world 0.

    Args:
        model: Any model.
        names: Names of the robot's joints, where the world holds more than the robot; None for all that move.

    Raises:
        InputError: A joint is of a type that no robot can have.
    """
    arrays = _Arrays.of(model)
    is_fixed = arrays.kind == int(import_newton().JointType.FIXED)
    first = _in_first_world(model.joint_world)
    groups = group_bodies(first, is_fixed, arrays.parent, arrays.child, arrays.parent_pose, arrays.child_pose)
    joints = world_joints(model, names)
    moved = {int(arrays.child[joint]) for joint in joints}
    return Fingerprint(
        joints=tuple(_joint_print(model, arrays, groups, joint) for joint in joints),
        bodies=tuple(
            _body_print(model, arrays, groups, body) for body in _in_first_world(model.body_world) if body in moved
        ),
        gravity=_vector(_gravity(model)),
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
    damping: np.ndarray
    friction: np.ndarray
    stiffness: np.ndarray
    limit_stiffness: np.ndarray
    limit_damping: np.ndarray
    mass: np.ndarray
    com: np.ndarray
    inertia: np.ndarray

    @classmethod
    def of(cls, model: Any) -> "_Arrays":
        names = (
            *("type", "parent", "child", "X_p", "X_c", "qd_start", "axis", "limit_lower", "limit_upper", "armature"),
            *("damping", "friction", "stiffness", "limit_ke", "limit_kd"),
        )
        joint = [_numpy(getattr(model, f"joint_{name}")) for name in names]
        body = [_numpy(getattr(model, f"body_{name}")).astype(float) for name in ("mass", "com", "inertia")]
        return cls(*joint, *body)


def _tilt(pose: Pose, gravity: np.ndarray) -> Vector:
    """Return how a root joint leans, as a pose without place and heading; empty where it stands upright.

    The shortest rotation that turns gravity as the joint sees it, R^T g, into gravity.
    """
    down = gravity / max(float(np.linalg.norm(gravity)), 1e-300)
    seen = rotation(pose).T @ down
    if np.linalg.norm(seen - down) < 1e-6:
        return ()
    turn = np.array([*np.cross(seen, down), 1.0 + seen @ down])
    if turn[3] < 1e-9:  # upside down: any axis across gravity will do
        turn = np.array([*np.cross(down, np.roll(down, 1)), 0.0])
    return _vector([0, 0, 0, *(turn / np.linalg.norm(turn))])


def _joint_print(model: Any, arrays: _Arrays, groups: Groups, joint: int) -> JointPrint:
    newton = import_newton()
    kinds = joint_kinds(newton)
    kind = int(arrays.kind[joint])
    name = short_label(model.joint_label[joint])
    if kind not in kinds:
        raise InputError(
            f"joint {name!r} is of the unsupported type {newton.JointType(kind).name}; valid: {', '.join(COORDINATES)}"
        )
    dofs = slice(int(arrays.qd_start[joint]), int(arrays.qd_start[joint + 1]))
    leader, offset = groups[int(arrays.parent[joint])]
    pose = compose(offset, arrays.parent_pose[joint])
    parent_pose = _tilt(pose, _gravity(model)) if leader < 0 else _vector(pose)
    # Importers give limits a spring even where there is no limit for it to act at.
    limited = (arrays.lower[dofs] > -_UNLIMITED) | (arrays.upper[dofs] < _UNLIMITED)
    return JointPrint(
        name=name,
        kind=kinds[kind],
        axis=_vector(arrays.axis[dofs]),
        parent_pose=parent_pose,
        child_pose=_vector(arrays.child_pose[joint]),
        lower=_vector(arrays.lower[dofs]),
        upper=_vector(arrays.upper[dofs]),
        armature=_vector(arrays.armature[dofs]),
        damping=_vector(arrays.damping[dofs]),
        friction=_vector(arrays.friction[dofs]),
        stiffness=_vector(arrays.stiffness[dofs]),
        limit_stiffness=_vector(np.where(limited, arrays.limit_stiffness[dofs], 0.0)),
        limit_damping=_vector(np.where(limited, arrays.limit_damping[dofs], 0.0)),
    )


def _body_print(model: Any, arrays: _Arrays, groups: Groups, leader: int) -> BodyPrint:
    mass, com, inertia = merged_body(groups, leader, arrays.mass, arrays.com, arrays.inertia)
    return BodyPrint(name=short_label(model.body_label[leader]), mass=mass, com=_vector(com), inertia=_vector(inertia))


def _in_first_world(worlds: Any) -> list[int]:
    """Return the entities of world 0; of a model without worlds, all."""
    index = _numpy(worlds)
    return np.flatnonzero(index == (0 if (index == 0).any() else -1)).tolist()


def _gravity(model: Any) -> np.ndarray:
    return _numpy(model.gravity).reshape(-1, 3)[0].astype(float)


def _numpy(array: Any) -> np.ndarray:
    return array.numpy()


def _vector(array: Any) -> Vector:
    return tuple(round(float(value), _DIGITS) for value in np.asarray(array, dtype=float).ravel())

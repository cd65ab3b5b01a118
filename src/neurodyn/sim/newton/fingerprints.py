# SPDX-License-Identifier: Apache-2.0
"""The identity of the articulation in a Newton model, and the columns of its coordinates.

The fingerprint is taken from world 0. Bodies connected by fixed joints count as one, so that it does not matter whether
the importer merged them. Labels are compared without the prefixes of worlds and articulations.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neurodyn.core.description.mechanism import BodyPrint, Fingerprint, JointPrint, Vector
from neurodyn.core.description.spec import JOINT_PROPERTIES
from neurodyn.core.errors import InputError, choices
from neurodyn.sim.articulations import short_label
from neurodyn.sim.bodies import Groups, Pose, compose, group_bodies, merged_body, rotation, rounded_numbers
from neurodyn.sim.engine import import_newton, joint_kinds

if TYPE_CHECKING:
    import newton

_UNLIMITED = 1e9


def columns(model: "newton.Model", names: Collection[str] | None = None) -> tuple[list[int], list[int]]:
    """Return the columns of a world's positions and velocities that belong to a robot's joints.

    With `joint_q` viewed as [worlds, nq per world] and `joint_qd` as [worlds, nv per world], these are the columns of
    the moving joints of world 0, in order; only of those in `names`, if given.

    Raises:
        InputError: The worlds do not have equal numbers of coordinates.
    """
    q_start, qd_start = _numpy(model, "joint_q_start"), _numpy(model, "joint_qd_start")
    worlds = max(int(model.world_count), 1)
    if model.joint_coord_count % worlds or model.joint_dof_count % worlds:
        raise InputError(f"the model's {worlds} worlds hold different robots; expected the same robot in every world")
    joints = world_joints(model, names)
    q_columns, qd_columns = (
        [column for joint in joints for column in range(int(start[joint]), int(start[joint + 1]))]
        for start in (q_start, qd_start)
    )
    return q_columns, qd_columns


def world_joints(model: "newton.Model", names: Collection[str] | None = None) -> list[int]:
    """Return the moving joints of world 0, in the model's order; only those in `names`, if given."""
    fixed = int(import_newton().JointType.FIXED)
    kinds = _numpy(model, "joint_type")
    moving = [joint for joint in _in_first_world(model.joint_world) if int(kinds[joint]) != fixed]
    return [joint for joint in moving if names is None or short_label(model.joint_label[joint]) in names]


def fingerprint(model: "newton.Model", names: Collection[str] | None = None) -> Fingerprint:
    """Return the identity of the articulation in world 0.

    `names` are the robot's joints, if the world has others. An unsupported type of joint raises InputError.
    """
    groups = body_groups(model, _in_first_world(model.joint_world))
    joints, child = world_joints(model, names), _numpy(model, "joint_child")
    moved = {int(child[joint]) for joint in joints}
    mass, com, inertia = (_numpy(model, f"body_{name}").astype(float) for name in ("mass", "com", "inertia"))
    bodies = []
    for body in _in_first_world(model.body_world):
        if body in moved:
            total, centre, tensor = merged_body(groups, body, mass, com, inertia)
            name = short_label(model.body_label[body])
            bodies.append(
                BodyPrint(name=name, mass=total, com=rounded_numbers(centre), inertia=rounded_numbers(tensor))
            )
    return Fingerprint(
        joints=tuple(_joint_print(model, groups, joint) for joint in joints),
        bodies=tuple(bodies),
        gravity=rounded_numbers(_gravity(model)),
    )


def body_groups(model: Any, joints: Sequence[int] | None = None) -> Groups:
    """Return the leading body of each body's group, across fixed joints, and its pose in the leader's frame.

    `joints` are those to follow, parents first; None for all.
    """
    fixed = _numpy(model, "joint_type") == int(import_newton().JointType.FIXED)
    parent_pose, child_pose = (_numpy(model, f"joint_{name}").astype(float) for name in ("X_p", "X_c"))
    chosen = range(len(fixed)) if joints is None else joints
    return group_bodies(
        chosen, fixed, _numpy(model, "joint_parent"), _numpy(model, "joint_child"), parent_pose, child_pose
    )


def _tilt(pose: Pose, gravity: np.ndarray) -> Vector:
    """Return the tilt of a root joint as a pose without position and heading; empty if it is upright.

    The shortest rotation that turns gravity in joint axes, R^T g, into gravity.
    """
    down = gravity / max(float(np.linalg.norm(gravity)), 1e-300)
    seen = rotation(pose).T @ down
    if np.linalg.norm(seen - down) < 1e-6:
        return ()
    quaternion = np.array([*np.cross(seen, down), 1.0 + seen @ down])
    if quaternion[3] < 1e-9:  # upside down: any axis orthogonal to gravity
        quaternion = np.array([*np.cross(down, np.roll(down, 1)), 0.0])
    return rounded_numbers([0, 0, 0, *(quaternion / np.linalg.norm(quaternion))])


def _joint_print(model: Any, groups: Groups, joint: int) -> JointPrint:
    newton = import_newton()
    kinds = joint_kinds(newton)
    kind = int(_numpy(model, "joint_type")[joint])
    name = short_label(model.joint_label[joint])
    if kind not in kinds:
        raise InputError(
            f"joint {name!r} is of the unsupported type {newton.JointType(kind).name}; valid: {choices(kinds.values())}"
        )
    starts = _numpy(model, "joint_qd_start")
    dofs = slice(int(starts[joint]), int(starts[joint + 1]))
    leader, offset = groups[int(_numpy(model, "joint_parent")[joint])]
    pose = compose(offset, _numpy(model, "joint_X_p")[joint])
    lower, upper = (_numpy(model, f"joint_limit_{end}")[dofs] for end in ("lower", "upper"))
    # Importers set the springs of limits even for joints without limits.
    limited = (lower > -_UNLIMITED) | (upper < _UNLIMITED)
    spring, damper = (np.where(limited, _numpy(model, f"joint_limit_{k}")[dofs], 0.0) for k in ("ke", "kd"))
    return JointPrint(
        name=name,
        kind=kinds[kind],
        parent_pose=_tilt(pose, _gravity(model)) if leader < 0 else rounded_numbers(pose),
        child_pose=rounded_numbers(_numpy(model, "joint_X_c")[joint]),
        lower=rounded_numbers(lower),
        upper=rounded_numbers(upper),
        limit_stiffness=rounded_numbers(spring),
        limit_damping=rounded_numbers(damper),
        **{field: rounded_numbers(_numpy(model, f"joint_{field}")[dofs]) for field in ("axis", *JOINT_PROPERTIES)},
    )


def _in_first_world(worlds: Any) -> list[int]:
    """Return the entities of world 0; all of a model without worlds."""
    index = worlds.numpy()
    return np.flatnonzero(index == (0 if (index == 0).any() else -1)).tolist()


def _numpy(model: Any, name: str) -> np.ndarray:
    return getattr(model, name).numpy()


def _gravity(model: Any) -> np.ndarray:
    return model.gravity.numpy().reshape(-1, 3)[0].astype(float)

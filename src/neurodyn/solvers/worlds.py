# SPDX-License-Identifier: Apache-2.0
"""Requirements on a Newton model: the robot of the trained model in every world, and nothing else that moves."""

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from neurodyn.core.description.mechanism import Fingerprint
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.artifact import require_match
from neurodyn.dynamics.interface import Dynamics
from neurodyn.sim.articulation import short_label
from neurodyn.sim.engine import import_newton
from neurodyn.sim.fingerprint import columns, fingerprint

if TYPE_CHECKING:
    import newton


_TOLERANCE = 1e-4
_JOINT_ARRAYS = ("joint_type", "joint_X_c")
_DOF_ARRAYS = (
    *("joint_axis", "joint_limit_lower", "joint_limit_upper", "joint_limit_ke", "joint_limit_kd"),
    *("joint_armature", "joint_damping", "joint_friction"),
)
_BODY_ARRAYS = ("body_mass", "body_com", "body_inertia")


def count_worlds(model: "newton.Model") -> int:
    """Return the number of worlds; a model without worlds counts as one."""
    return max(int(model.world_count), 1)


def is_global(model: "newton.Model") -> bool:
    """Return whether the robot was built without worlds and so belongs to the global one (index -1)."""
    return not bool((arrays_of(model).joint_world.numpy() >= 0).any())


def require_robots_only(newton_model: "newton.Model", where: str) -> None:
    """Refuse models with particles, kinematic bodies, or moving joints other than the robots' (InputError).

    `where` names the caller in the error message.
    """
    newton, model = import_newton(), arrays_of(newton_model)
    if model.particle_count:
        raise InputError(f"{where}: the model has {model.particle_count} particles; valid: rigid robots only")
    kinematic = np.flatnonzero(model.body_flags.numpy() & int(newton.BodyFlags.KINEMATIC))
    if len(kinematic):
        name = short_label(model.body_label[kinematic[0]])
        raise InputError(f"{where}: body {name!r} is kinematic; valid: bodies that the robot's joints move")
    moving = model.joint_type.numpy() != int(newton.JointType.FIXED)
    world = model.joint_world.numpy()
    stray = np.flatnonzero(moving & (world < 0))
    if len(stray) and not is_global(model):
        name = short_label(model.joint_label[stray[0]])
        raise InputError(
            f"{where}: joint {name!r} moves outside of all worlds; valid: one robot in each world and nothing else "
            "that moves"
        )
    q_columns, qd_columns = columns(model)
    worlds = count_worlds(model)
    sizes = (worlds * len(q_columns), worlds * len(qd_columns))
    if sizes != (model.joint_coord_count, model.joint_dof_count) or (np.diff(world[moving]) < 0).any():
        raise InputError(
            f"{where}: the model's {worlds} worlds do not hold the same joints; valid: the same robot in every world, "
            "replicated"
        )


def require_equal_worlds(newton_model: "newton.Model", where: str) -> None:
    """Refuse worlds whose robots differ from the one in world 0; their positions and headings may differ.

    Raises:
        MismatchError: A robot differs; the message names the first difference.
    """
    model, worlds = arrays_of(newton_model), count_worlds(newton_model)
    if worlds == 1:
        return
    joints = np.flatnonzero(model.joint_world.numpy() >= 0)
    bodies = np.flatnonzero(model.body_world.numpy() >= 0)
    labels = [short_label(label) for label in model.joint_label]
    if len(joints) % worlds or len(bodies) % worlds:
        raise InputError(f"{where}: the model's {worlds} worlds hold different robots; valid: the same one in each")
    _compare(where, "joint_label", np.array(labels)[joints], labels, joints, worlds)
    for name in _JOINT_ARRAYS:
        _compare(where, name, getattr(model, name).numpy()[joints], labels, joints, worlds)
    for name in _DOF_ARRAYS:
        _compare(where, name, getattr(model, name).numpy(), _dof_labels(model, labels), None, worlds)
    body_labels = [short_label(label) for label in model.body_label]
    for name in _BODY_ARRAYS:
        _compare(where, name, getattr(model, name).numpy()[bodies], body_labels, bodies, worlds)
    _compare(where, "joint_X_p", _stands(model, joints, worlds), labels, joints, worlds)


def arrays_of(model: Any) -> Any:
    """Return a built model, untyped: it has all of its arrays, which the declared types do not say."""
    return model


def _stands(model: Any, joints: np.ndarray, worlds: int) -> np.ndarray:
    """Return the joints' parent frames; for root joints gravity in that frame, for floating ones zero."""
    frames = model.joint_X_p.numpy()[joints].astype(float)
    gravity = np.asarray(model.gravity.numpy(), dtype=float).reshape(-1, 3)[:worlds]
    seen = np.repeat(gravity, len(joints) // worlds, axis=0) if len(gravity) == worlds else gravity[:1]
    root = model.joint_parent.numpy()[joints] < 0
    u, w = -frames[:, 3:6], frames[:, 6:]
    once = np.cross(u, seen)
    standing = np.zeros_like(frames)
    standing[:, :3] = seen + 2 * w * once + 2 * np.cross(u, once)
    standing[model.joint_type.numpy()[joints] == int(import_newton().JointType.FREE)] = 0.0
    return np.where(root[:, None], standing, frames)


def _dof_labels(model: Any, labels: list[str]) -> list[str]:
    starts = model.joint_qd_start.numpy()
    return [labels[joint] for joint in range(len(labels)) for _ in range(starts[joint], starts[joint + 1])]


def _compare(
    where: str, what: str, values: np.ndarray, labels: list[str], rows: np.ndarray | None, worlds: int
) -> None:
    """Compare the rows of every world with the rows of world 0."""
    table = values.reshape(worlds, len(values) // worlds, -1)
    if table.dtype.kind == "U":
        differs = table != table[:1]
    else:
        # Relative to the largest entry of a row, so that a rounding of zero is no difference.
        scale = np.abs(table[:1]).max(axis=2, keepdims=True, initial=0.0)
        differs = np.abs(table.astype(float) - table[:1]) > _TOLERANCE * scale + 1e-6
        differs |= ~np.isfinite(table.astype(float))
    if not differs.any():
        return
    world, row, column = (int(index[0]) for index in np.nonzero(differs))
    name = labels[row if rows is None else int(rows[row])]
    raise MismatchError(
        f"{where}: {what} of {name!r} is {table[world, row, column]} in world {world} instead of "
        f"{table[0, row, column]} as in world 0; one neural model predicts one robot"
    )


_GRAVITY_TOLERANCE = 1e-3  # of the strength of gravity [m/s^2]


def require_robot(model: "newton.Model", dynamics: Dynamics, where: str) -> None:
    """Refuse worlds with anything that moves other than the robot that a neural model was trained on.

    Raises:
        InputError: Something else moves in the worlds.
        MismatchError: The robots differ from the trained one; the message names the differences.
    """
    require_robots_only(model, where)
    own = dynamics.spec
    built = fingerprint(model)
    names = [joint.name for joint in built.joints]
    if dynamics.floating and built.joints and built.joints[0].kind == "free":
        # Importers name the joint of a floating base as they please.
        names[0] = own.joints[0].name
        built = _freed(built, dynamics.fingerprint)
    continuous = {joint.name: joint.continuous for joint in own.joints}
    joints = tuple(
        # Whether an angle turns without end is a matter of how it is compared; Newton does not know it.
        JointSpec(name=name, kind=joint.kind, continuous=continuous.get(name, False))  # pyright: ignore[reportArgumentType]
        for name, joint in zip(names, built.joints, strict=True)
    )
    present = StateSpec(robot=own.robot, joints=joints, controls=own.controls, dt=own.dt)
    require_match(dynamics, present, built, where)
    require_equal_worlds(model, where)


def _freed(built: Fingerprint, own: Fingerprint | None) -> Fingerprint:
    """Ignore what does not matter to a floating base: name and frame of its joint, and the direction of gravity."""
    if own is None:
        return built
    base = msgspec.structs.replace(built.joints[0], name=own.joints[0].name, parent_pose=own.joints[0].parent_pose)
    same = abs(np.linalg.norm(built.gravity) - np.linalg.norm(own.gravity)) < _GRAVITY_TOLERANCE
    return msgspec.structs.replace(
        built, joints=(base, *built.joints[1:]), gravity=own.gravity if same else built.gravity
    )

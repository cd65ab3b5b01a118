# SPDX-License-Identifier: Apache-2.0
"""Checks that a Newton model holds the trained robot in every world and nothing else that moves; gravity and ground.

A neural model predicts its robot in the frame in which it was trained, with the root joint at a fixed pose X. In a
user's scene, the root joint of world w may be at another pose X_w. The ground is then seen at the pose X X_w^-1, and
gravity is rotated in the same way.
"""

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.artifact import require_match
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.batch import Environment
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.robots.sections import matching
from neurodyn.sim.articulations import short_label, with_short
from neurodyn.sim.bodies import compose, invert, rotation
from neurodyn.sim.contact_points import contact_point_layout, contacts_on_plane
from neurodyn.sim.engine import collides, import_newton
from neurodyn.sim.newton.articulation import newton_articulation
from neurodyn.sim.newton.fingerprints import body_groups, columns, fingerprint
from neurodyn.sim.newton.scene import ground_of_model

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
    dofs = np.diff(model.joint_qd_start.numpy())
    dof_labels = [label for label, count in zip(labels, dofs, strict=True) for _ in range(count)]
    for name in _DOF_ARRAYS:
        _compare(where, name, getattr(model, name).numpy(), dof_labels, None, worlds)
    body_labels = [short_label(label) for label in model.body_label]
    for name in _BODY_ARRAYS:
        _compare(where, name, getattr(model, name).numpy()[bodies], body_labels, bodies, worlds)
    _compare(where, "joint_X_p", _stands(model, joints, worlds), labels, joints, worlds)


def arrays_of(model: Any) -> Any:
    """Return a built model untyped: all of its arrays exist, unlike in the declared types."""
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


def _compare(
    where: str, what: str, values: np.ndarray, labels: list[str], rows: np.ndarray | None, worlds: int
) -> None:
    table = values.reshape(worlds, len(values) // worlds, -1)
    if table.dtype.kind == "U":
        differs = table != table[:1]
    else:
        # Relative to the largest entry of a row, so that a rounding error of zero does not count.
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
    own, trained = dynamics.spec, dynamics.fingerprint
    built = fingerprint(model)
    names = [joint.name for joint in built.joints]
    if dynamics.floating and built.joints and built.joints[0].kind == "free":
        # Importers name the joint of a floating base arbitrarily.
        names[0] = own.joints[0].name
        if trained is not None:  # nor do its frame and the direction of gravity matter
            mine = trained.joints[0]
            base = msgspec.structs.replace(built.joints[0], name=mine.name, parent_pose=mine.parent_pose)
            same = abs(np.linalg.norm(built.gravity) - np.linalg.norm(trained.gravity)) < _GRAVITY_TOLERANCE
            gravity = trained.gravity if same else built.gravity
            built = msgspec.structs.replace(built, joints=(base, *built.joints[1:]), gravity=gravity)
    constrained = dynamics.robot is not None and dynamics.robot.simulator.solver == "mujoco-c"
    if constrained and trained is not None and len(trained.joints) == len(built.joints):
        joints = (  # limits are constraints in plain MuJoCo, springs in Newton
            msgspec.structs.replace(joint, limit_stiffness=mine.limit_stiffness, limit_damping=mine.limit_damping)
            for joint, mine in zip(built.joints, trained.joints, strict=True)
        )
        built = msgspec.structs.replace(built, joints=tuple(joints))
    continuous = {joint.name: joint.continuous for joint in own.joints}
    joints = tuple(
        # Newton does not know whether an angle is continuous, which only matters for comparing angles.
        JointSpec(name=name, kind=joint.kind, continuous=continuous.get(name, False))  # pyright: ignore[reportArgumentType]
        for name, joint in zip(names, built.joints, strict=True)
    )
    present = StateSpec(robot=own.robot, joints=joints, controls=own.controls, dt=own.dt)
    require_match(dynamics, present, built, where)
    require_equal_worlds(model, where)


_IDENTITY = np.array([0, 0, 0, 0, 0, 0, 1.0])
_POSE_TOLERANCE = 1e-4
_CONTACT_POINT_TOLERANCE = 1e-5


def resolve_environment(model: "newton.Model", dynamics: LearnedDynamics, where: str) -> Environment:
    """Return gravity and ground of a Newton model in the frame in which the neural model was trained.

    Args:
        model: Worlds with robots, checked by `require_robots_only`.
        dynamics: The neural model.
        where: Caller, for error messages.

    Raises:
        InputError: Distances to a kind of static shape are not supported, or its mesh does not bound a solid.
        MismatchError: Gravity differs from training (for a floating base: in magnitude), or the root joints of a
            robot are placed differently relative to each other.
    """
    layout = dynamics.contact_points
    free = dynamics.floating
    if layout is None:
        _warn_of_shapes(model, dynamics.spec.robot, where)
        if not free:  # its position does not matter, its tilt is part of the fingerprint
            return dynamics.resolve_environment(None)
    poses = _world_in_root_frames(model, layout, where)
    device = dynamics.device
    ground = None
    if layout is not None:
        ground = ground_of_model(model)
        if np.abs(poses - _IDENTITY).max() > 1e-9:
            ground = ground.at_pose(torch.tensor(poses, dtype=torch.float32, device=device))
    gravity = None
    if free:
        vectors = np.asarray(arrays_of(model).gravity.numpy(), dtype=float).reshape(-1, 3)
        turned = [rotation(pose) @ vectors[min(world, len(vectors) - 1)] for world, pose in enumerate(poses)]
        gravity = torch.tensor(np.array(turned), dtype=torch.float32, device=device)
        if bool((gravity == gravity[0]).all()):
            gravity = gravity[0]
    try:
        return dynamics.resolve_environment(Environment(gravity=gravity, ground=ground))
    except InputError as error:
        raise MismatchError(f"{where}: {error}") from None


def require_contact_points(model: "newton.Model", dynamics: LearnedDynamics, where: str) -> None:
    """Refuse a robot whose collision shapes have other contact points than the model.

    If the declaration of the robot, which selects the contact points, is missing, a warning says that nothing was
    compared.

    Raises:
        MismatchError: Contact points differ; the message names the differences.
    """
    layout, robot = dynamics.contact_points, dynamics.robot
    if layout is None:
        return
    if robot is None:
        warnings.warn(
            f"{where}: the declaration {dynamics.declaration!r} of robot {dynamics.spec.robot!r} is not there any "
            "more, so the robot's collision shapes were not compared with the contact points of the neural model",
            stacklevel=4,
        )
        return
    try:
        built = newton_articulation(model, robot)
        if isinstance(dynamics, HybridDynamics) and dynamics.config.contact == "soft":
            # All shapes that touch the ground in the simulator, not only those with contact points of the network.
            chosen = tuple(
                shape for shape in built.shapes
                if any(matching(label, robot.colliders) for label in with_short(shape.label, shape.body))
            )  # fmt: skip
            own = contacts_on_plane(replace(built, shapes=chosen), robot)
        else:
            own = contact_point_layout(built, robot)
        differences = _differences(layout, own)
    except InputError as error:
        differences = [str(error)]
    if differences:
        more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise MismatchError(
            f"{where}: not the collision shapes that the model of {dynamics.spec.robot!r} was trained with: "
            f"{'; '.join(differences[:3])}{more}"
        )


_SURFACES = (
    "shape_margin", "shape_gap", *(f"shape_material_{name}" for name in
    ("ke", "kd", "kf", "ka", "mu", "restitution", "mu_torsional", "mu_rolling", "kh")),
)  # fmt: skip
"""Arrays of a Newton model with the contact margins and materials of shapes."""


def shape_surfaces(model: "newton.Model") -> dict[str, np.ndarray]:
    """Return copies of the contact margins and materials of shapes."""
    arrays = {name: getattr(model, name, None) for name in _SURFACES}
    return {name: array.numpy().copy() for name, array in arrays.items() if array is not None}


def require_same_surfaces(model: "newton.Model", before: dict[str, np.ndarray], where: str) -> None:
    """Refuse contact margins and materials that have changed: a model keeps those it was made with.

    Raises:
        InputError: One has changed since `before`; the message names the first.
    """
    labels: Any = model.shape_label
    for name, now in shape_surfaces(model).items():
        for shape in np.flatnonzero(now != before[name]):
            raise InputError(
                f"{where}: {name} of shape {labels[shape]!r} is {now[shape]:.4g}; valid: {before[name][shape]:.4g}, as "
                "before, because the model keeps the contacts that it was made with"
            )


def _differences(own: ContactPointLayout, built: ContactPointLayout) -> list[str]:
    """Compare positions, regardless of names and order of the shapes."""
    a, b = (np.array([[p.joint, *p.point, p.radius] for p in x.contact_points]).reshape(-1, 5) for x in (own, built))
    if len(a) == len(b):
        same = np.abs(a[:, None] - b[None]).max(-1) <= _CONTACT_POINT_TOLERANCE
        if same.any(0).all() and same.any(1).all():
            return []
    return own.differences(built) or ["some contact points are missing, others are there twice"]


def _world_in_root_frames(model: Any, layout: ContactPointLayout | None, where: str) -> np.ndarray:
    """Return the pose of the world frame in the training frame of each world's robot, shape [worlds, 7]."""
    worlds = count_worlds(model)
    kinds, parent = model.joint_type.numpy(), model.joint_parent.numpy()
    frames = model.joint_X_p.numpy().astype(float)
    groups = body_groups(model)
    moving = np.flatnonzero(kinds != int(import_newton().JointType.FIXED)).reshape(worlds, -1)
    poses = np.zeros((worlds, 7))
    for world, joints in enumerate(moving):
        first = None
        for index, joint in enumerate(joints):
            leader, offset = groups[int(parent[joint])]
            if leader >= 0:
                continue
            own = _IDENTITY if layout is None else np.array(layout.joints[index].parent_frame)
            seen = compose(own, invert(compose(offset, frames[joint])))
            seen[3:] *= (1.0 if seen[6] >= 0 else -1.0) / np.linalg.norm(seen[3:])
            first = seen if first is None else first
            if layout is not None and np.abs(seen - first).max() > _POSE_TOLERANCE * (1 + np.abs(first).max()):
                name = short_label(model.joint_label[joint])
                raise MismatchError(
                    f"{where}: joint {name!r} in world {world} is not placed relative to joint "
                    f"{short_label(model.joint_label[joints[0]])!r} as it did in training"
                )
        poses[world] = _IDENTITY if first is None else first
    return poses


def _warn_of_shapes(model: Any, robot: str, where: str) -> None:
    pairs = model.shape_contact_pairs
    if pairs is None or not len(pairs):
        return
    groups, body = body_groups(model), model.shape_body.numpy()
    static = np.array([groups[int(b)][0] < 0 for b in body]) & collides(model)
    touched = {int(shape) for pair in pairs.numpy().reshape(-1, 2) if static[pair].sum() == 1 for shape in pair}
    unfelt = sorted(shape for shape in touched if static[shape])
    if unfelt:
        warnings.warn(
            f"{where}: the model of {robot!r} has no contact points and feels none of the {len(unfelt)} static "
            f"shapes that the robots could touch, such as {short_label(model.shape_label[unfelt[0]])!r}",
            stacklevel=4,
        )

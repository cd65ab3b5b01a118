# SPDX-License-Identifier: Apache-2.0
"""From a declared robot to a Newton model of N replicated worlds."""

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.robots import Joint, Robot, asset_path
from neurodyn.sim.engine import import_newton, short_label
from neurodyn.sim.merge import group_bodies, merged_body
from neurodyn.sim.mjcf import prepare_mjcf, resolve_asset
from neurodyn.sim.urdf import prepare_urdf

if TYPE_CHECKING:
    import newton

Gravity = Sequence[float] | np.ndarray

_JOINT_FIELDS = ("armature", "damping", "friction", "limit_ke", "limit_kd")


def build(robot: Robot, worlds: int = 1, *, device: str = "cpu", gravity: "Gravity | None" = None) -> "newton.Model":
    """Build N worlds with one robot each.

    Args:
        robot: The declared robot.
        worlds: Number of worlds.
        device: Warp device.
        gravity: Gravity in world axes [m/s^2], shape [3] or [worlds, 3], or the latter flattened; None for the
            robot's own.

    Raises:
        InputError: The asset is missing or unsupported, or what is built is not what is declared.
    """
    if worlds < 1:
        raise InputError(f"worlds is {worlds}; valid: at least 1")
    vectors = np.asarray(robot.gravity if gravity is None else gravity, dtype=np.float32)
    if vectors.size not in (3, 3 * worlds) or not np.isfinite(vectors).all():
        raise InputError(f"gravity has {vectors.size} numbers; valid: 3 finite ones, or 3 for each of {worlds} worlds")
    newton = import_newton()
    world = build_world(robot)
    scene = newton.ModelBuilder()
    scene.replicate(world, copy_count=worlds)
    model = scene.finalize(device=device)
    model.set_gravity(vectors.reshape(-1, 3) if vectors.size > 3 else vectors.reshape(3))
    return model


def build_world(robot: Robot) -> "newton.ModelBuilder":
    """Return the builder of one world with the robot, to which a user may add more.

    Raises:
        InputError: The asset is missing or unsupported, or what is built is not what is declared.
    """
    newton = import_newton()
    path = asset_path(robot)
    builder = newton.ModelBuilder()
    builder.default_shape_cfg.density = robot.density
    if robot.teacher.solver == "mujoco":
        newton.solvers.SolverMuJoCo.register_custom_attributes(builder)
    try:
        _add_asset(builder, robot, path)
    except InputError:
        raise
    except Exception as error:  # the importers report a bad asset as whatever exception they meet first
        raise InputError(f"{path}: cannot be built: {str(error) or type(error).__name__}") from error
    _collapse(newton, builder)
    _verify(newton, builder, robot, path)
    for index, joint in _moving_joints(newton, builder, robot):
        _override(newton, builder, index, joint, robot.actuated.get(joint.name))
    return builder


def _add_asset(builder: "newton.ModelBuilder", robot: Robot, path: Path) -> None:
    suffix = path.suffix.lower()
    if suffix == ".urdf":
        text = prepare_urdf(path, locked=robot.locked, meshes=robot.meshes)
        builder.add_urdf(text, floating=not robot.fixed_base)
    elif suffix == ".xml":
        text = prepare_mjcf(path, locked=robot.locked)
        builder.add_mjcf(
            text,
            parse_meshes=robot.meshes,
            path_resolver=partial(resolve_asset, path),
        )
    else:
        _require_usd(path)
        builder.add_usd(str(path))


def _require_usd(path: Path) -> None:
    for module in ("pxr", "newton_usd_schemas"):
        if find_spec(module) is None:
            raise InputError(f"{path}: reading USD needs {module}; install it with: pip install 'neurodyn[usd]'")


def _collapse(newton: Any, builder: Any) -> None:
    """Make one body of those that fixed joints hold together, with the right mass and inertia."""
    import warp as wp

    is_fixed = np.array([int(kind) == int(newton.JointType.FIXED) for kind in builder.joint_type])
    poses = [np.array([list(pose) for pose in x]).reshape(-1, 7) for x in (builder.joint_X_p, builder.joint_X_c)]
    parent, child = np.array(builder.joint_parent), np.array(builder.joint_child)
    groups = group_bodies(range(len(is_fixed)), is_fixed, parent, child, *poses)
    mass = np.array(builder.body_mass)
    com = np.array([list(vector) for vector in builder.body_com])
    inertia = np.array([np.array(matrix).reshape(3, 3) for matrix in builder.body_inertia])
    merged = {
        builder.body_label[body]: merged_body(groups, body, mass, com, inertia)
        for body, (leader, _) in groups.items()
        if body == leader and body >= 0
    }
    builder.collapse_fixed_joints()
    for body, label in enumerate(builder.body_label):
        if label in merged:
            # Inverses follow from these when the model is finalised.
            builder.body_mass[body], centre, tensor = merged[label]
            builder.body_com[body] = wp.vec3(*centre.tolist())
            builder.body_inertia[body] = wp.mat33(*tensor.ravel().tolist())


def _kinds(newton: Any) -> dict[int, str]:
    kinds = newton.JointType
    return {
        int(kinds.REVOLUTE): "revolute",
        int(kinds.PRISMATIC): "prismatic",
        int(kinds.BALL): "ball",
        int(kinds.FREE): "free",
        int(kinds.FIXED): "fixed",
    }


def _moving_joints(newton: Any, builder: Any, robot: Robot) -> list[tuple[int, Joint]]:
    fixed = int(newton.JointType.FIXED)
    indices = [index for index, kind in enumerate(builder.joint_type) if int(kind) != fixed]
    return list(zip(indices, robot.joints, strict=True))


def _verify(newton: Any, builder: Any, robot: Robot, path: Path) -> None:
    """Check that the built articulation has the declared joints, in order, and masses to move."""
    kinds = _kinds(newton)
    built: list[tuple[str, str]] = []
    for label, kind in zip(builder.joint_label, builder.joint_type, strict=True):
        name = short_label(label)
        if int(kind) not in kinds:
            raise InputError(
                f"{path}: joint {name!r} is of the unsupported type {newton.JointType(kind).name}; give every body "
                "at most one revolute, prismatic, ball or free joint"
            )
        if kinds[int(kind)] != "fixed":
            # The importers name the joint of a floating base as they please.
            built.append((robot.joints[0].name if kinds[int(kind)] == "free" else name, kinds[int(kind)]))
    declared = [joint.name for joint in robot.joints]
    if [name for name, _ in built] != declared:
        raise InputError(
            f"robot {robot.name!r}: {path.name} has the moving joints {[name for name, _ in built]} instead of the "
            f"declared {declared}; list all of them in this order, or under `locked`"
        )
    for (name, kind), joint in zip(built, robot.joints, strict=True):
        if kind != joint.kind:
            raise InputError(f"robot {robot.name!r}: joint {name!r} of {path.name} is {kind} instead of {joint.kind}")
    for label, mass in zip(builder.body_label, builder.body_mass, strict=True):
        if not mass > 0:
            raise InputError(
                f"{path}: link {short_label(label)!r} moves but has no mass; give it an inertial or a shape"
            )


def _override(newton: Any, builder: Any, index: int, joint: Joint, effort: float | None) -> None:
    """Write what the declaration says about a joint over what the asset says."""
    start = builder.joint_qd_start[index]
    width = {"ball": 3, "free": 6}.get(joint.kind, 1)
    for dof in range(start, start + width):
        for field in _JOINT_FIELDS:
            value = getattr(joint, field)
            if value is not None:
                getattr(builder, f"joint_{field}")[dof] = value
        # Torques drive the robot, so a drive that an asset brings along must not hold it.
        builder.joint_target_ke[dof] = 0.0
        builder.joint_target_kd[dof] = 0.0
        if width == 1:
            builder.joint_limit_lower[dof] = -newton.MAXVAL if joint.lower is None else joint.lower
            builder.joint_limit_upper[dof] = newton.MAXVAL if joint.upper is None else joint.upper
        if effort is not None:
            builder.joint_effort_limit[dof] = effort

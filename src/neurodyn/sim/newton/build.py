# SPDX-License-Identifier: Apache-2.0
"""Builds a Newton model of a declared robot in N replicated worlds, each with the given scene.

Bodies of a robot do not collide with each other, only with scenes and with shapes that a user adds: a model that learns
from the simulator sees only distances to the ground. Contact begins where surfaces meet: margins of assets are ignored,
as MuJoCo Warp ignores them in models with a box.
"""

import warnings
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neurodyn.core.description.scene import Scene
from neurodyn.core.description.spec import JointKind
from neurodyn.core.errors import InputError
from neurodyn.core.extras import require_extra
from neurodyn.robots import Joint, Robot, asset_path
from neurodyn.robots.assets import asset_digest, resolve_asset
from neurodyn.robots.sections import ContactMaterial
from neurodyn.sim.articulations import added_inertia, declared_colliders, require_joints, short_label
from neurodyn.sim.bodies import group_bodies, merged_body, require_possible
from neurodyn.sim.engine import import_newton, joint_kinds, shape_labels, solver_class
from neurodyn.sim.interface import AssetJoint, Gravity, gravity_vectors, specified_limits, value_of
from neurodyn.sim.newton.asset import PreparedMjcf, prepare_mjcf
from neurodyn.sim.newton.scene import add_scene, material_fields
from neurodyn.sim.urdf import inertia_places, prepare_urdf

if TYPE_CHECKING:
    import newton

_READ: "dict[str, newton.ModelBuilder]" = {}
"""Assets read last, by the digest of their files: checks build a robot a dozen times, and meshes take seconds."""
_KEPT = 4

_ROBOT_GROUP = -1  # Newton: collides with every group but itself
_NEGLIGIBLE = 1e-6  # mass and inertia of intermediate bodies of multi-joint bodies, as a share of the owner's
_JOINT_FIELDS = ("armature", "damping", "friction", "limit_ke", "limit_kd")


def build(
    robot: Robot, worlds: int = 1, *, scene: Scene | None = None, device: str = "cpu", gravity: Gravity | None = None
) -> "newton.Model":
    """Build N worlds with one robot each.

    Args:
        robot: The declared robot.
        worlds: Number of worlds.
        scene: Shapes that are added to every world, movable per world; None for free space.
        device: Warp device.
        gravity: Gravity in world axes [m/s^2], shape [3] or [worlds, 3], or the latter flattened; None for the robot's.

    Raises:
        InputError: The asset is missing or unsupported, or does not build as declared.
    """
    if worlds < 1:
        raise InputError(f"worlds is {worlds}; valid: at least 1")
    vectors = gravity_vectors(robot, worlds, gravity)
    newton = import_newton(name_with_solver(robot))
    world = build_world(robot)
    if scene is not None:
        add_scene(world, scene, robot.material)
    everything = newton.ModelBuilder()
    with warnings.catch_warnings():
        # Newton warns that heightfields of different worlds do not collide, as intended.
        warnings.filterwarnings("ignore", message="Heightfield-vs-heightfield")
        everything.replicate(world, copy_count=worlds)
        model = everything.finalize(device=device)
    model.set_gravity(vectors)
    return model


def build_world(robot: Robot) -> "newton.ModelBuilder":
    """Return the builder of one world with the robot, for a user to extend; errors: see `build`."""
    newton, builder = import_newton(name_with_solver(robot)), import_asset(robot)
    for index, joint in zip(moving_joints(builder), robot.joints, strict=True):
        _override(newton, builder, index, joint, robot)
    _scale_masses(builder, robot.mass_scale)
    _add_inertia(builder, robot)
    _prepare_shapes(builder, robot)
    return builder


def name_with_solver(robot: Robot) -> str:
    """Return a robot's name and its solver, which needs Newton, for an error."""
    return f"robot {robot.name!r} (solver: {robot.simulator.solver})"


def import_asset(robot: Robot) -> "newton.ModelBuilder":
    """Return the builder of one world with the robot's asset, before the declaration overrides it."""
    path = asset_path(robot)
    import_newton(name_with_solver(robot))
    options = {
        "locked": robot.locked, "meshes": robot.meshes, "floating": not robot.fixed_base, "density": robot.density,
        "densities": robot.densities, "mujoco": robot.simulator.solver == "mujoco",
    }  # fmt: skip
    try:
        key = asset_digest(robot, [str(path), options])
    except (InputError, OSError):  # the importer reports the cause
        builder = read_asset(path, **options)
    else:
        if key not in _READ:
            while len(_READ) >= _KEPT:
                del _READ[next(iter(_READ))]
            _READ[key] = read_asset(path, **options)
        kept = _READ[key]
        builder = deepcopy(kept, {id(source): source for source in kept.shape_source if source is not None})
    _verify(import_newton(), builder, robot, path)
    return builder


def read_asset(
    path: Path,
    *,
    locked: tuple[str, ...] = (),
    meshes: bool = True,
    floating: bool = False,
    density: float = 1000.0,
    densities: dict[str, float] | None = None,
    mujoco: bool = True,
) -> "newton.ModelBuilder":
    """Return a builder with an unchanged asset, bodies merged across fixed joints; arguments: see `robots.Robot`.

    `floating` is for the base of a URDF, other formats specify it themselves; `mujoco` is whether SolverMuJoCo will
    simulate it.

    Raises:
        InputError: The asset is unsupported or damaged, or a body has no mass or an impossible inertia.
    """
    newton = import_newton(f"{path}: import by Newton")
    builder = newton.ModelBuilder()
    builder.default_shape_cfg.density = density
    if mujoco:
        solver_class("SolverMuJoCo").register_custom_attributes(builder)
    try:
        match path.suffix.lower():
            case ".urdf":
                builder.add_urdf(prepare_urdf(path, locked=locked, meshes=meshes), floating=floating)
            case ".xml":
                prepared = prepare_mjcf(path, locked=locked, meshes=meshes, densities=densities)
                builder.add_mjcf(prepared.text, parse_meshes=meshes, path_resolver=partial(resolve_asset, path))
                _set_masses(builder, prepared)
            case _:
                _add_usd(builder, path)
    except InputError:
        raise
    except Exception as error:  # the importers raise arbitrary exceptions for an invalid asset
        raise InputError(f"{path}: cannot be built: {str(error) or type(error).__name__}") from error
    _collapse(newton, builder)
    _check_bodies(builder, path)
    return builder


def imported_joint(builder: "newton.ModelBuilder", index: int, name: str, kind: JointKind) -> AssetJoint:
    """Return a moving joint of a builder as its asset has it, under a name."""
    if kind in ("free", "ball"):
        return AssetJoint(name, kind)
    dof = builder.joint_qd_start[index]
    limits = specified_limits(*(float(getattr(builder, f"joint_limit_{end}")[dof]) for end in ("lower", "upper")))
    effort, velocity = (value_of(float(getattr(builder, f"joint_{x}_limit")[dof])) for x in ("effort", "velocity"))
    return AssetJoint(name, kind, *limits, effort, velocity, armature=float(builder.joint_armature[dof]))


def moving_joints(builder: "newton.ModelBuilder") -> list[int]:
    """Return the moving joints of a builder, in the order of the declaration."""
    fixed = int(import_newton().JointType.FIXED)
    return [index for index, kind in enumerate(builder.joint_type) if int(kind) != fixed]


def _add_usd(builder: "newton.ModelBuilder", path: Path) -> None:
    require_extra(["pxr", "newton_usd_schemas"], f"{path}: reading USD", "usd")
    builder.add_usd(str(path))


def _check_bodies(builder: Any, path: Path) -> None:
    """Raise InputError for bodies without mass or with an impossible inertia."""
    for label, mass, inertia in zip(builder.body_label, builder.body_mass, builder.body_inertia, strict=True):
        name = short_label(label)
        try:
            if not mass > 0:
                raise InputError(f"link {name!r} moves but has no mass; give it an inertial or a shape")
            require_possible(f"link {name!r}", np.array(inertia, dtype=float).reshape(3, 3))
        except InputError as error:  # only then is the file read again for the line
            raise InputError(f"{inertia_places(path).get(name, path)}: {error}") from None


def _set_masses(builder: Any, prepared: PreparedMjcf) -> None:
    """Give intermediate bodies of multi-joint bodies a negligible mass, and scale to the file's total mass."""
    import warp as wp

    bodies = {short_label(label): body for body, label in enumerate(builder.body_label)}
    if prepared.total_mass is not None:
        _scale_masses(builder, prepared.total_mass / max(sum(builder.body_mass), 1e-300))
    for added, owner in prepared.massless.items():
        mass = builder.body_mass[bodies[owner]]
        # At the owner's centre of mass, so that the common centre of mass does not move.
        builder.body_com[bodies[added]] = builder.body_com[bodies[owner]]
        inertia = float(np.trace(np.array(builder.body_inertia[bodies[owner]]).reshape(3, 3))) / 3
        builder.body_mass[bodies[added]] = _NEGLIGIBLE * mass
        builder.body_inertia[bodies[added]] = wp.mat33(*(_NEGLIGIBLE * inertia * np.eye(3)).ravel().tolist())


def _collapse(newton: Any, builder: Any) -> None:
    """Merge bodies across fixed joints, with the correct mass and inertia."""
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


def _scale_masses(builder: Any, factor: float) -> None:
    """Multiply masses and inertias; their inverses are computed when the model is finalised."""
    if factor == 1.0:
        return
    for body, (mass, inertia) in enumerate(zip(builder.body_mass, builder.body_inertia, strict=True)):
        builder.body_mass[body] = mass * factor
        builder.body_inertia[body] = inertia * factor


def _add_inertia(builder: Any, robot: Robot) -> None:
    """Add the declared inertia of links; refuse a pattern that matches no link."""
    for body, extra in enumerate(added_inertia(robot, [short_label(label) for label in builder.body_label])):
        if extra:
            inertia = np.array(builder.body_inertia[body]).reshape(3, 3) + extra * np.eye(3)
            builder.body_inertia[body] = type(builder.body_inertia[body])(*inertia.ravel().tolist())


def _prepare_shapes(builder: Any, robot: Robot) -> None:
    """Let the robot's shapes collide with everything but the robot, without margins, with the declared material."""
    fields = material_fields(robot.material or ContactMaterial())
    modes = builder.custom_attributes.get("mujoco:solref_mode")
    _leave_out(builder, robot)
    for shape in range(len(builder.shape_label)):
        if builder.shape_collision_group[shape] != 0:
            builder.shape_collision_group[shape] = _ROBOT_GROUP
        builder.shape_margin[shape] = 0.0
        builder.shape_gap[shape] = 0.0
        for field, value in fields.items():
            getattr(builder, f"shape_material_{field}")[shape] = value
        if modes is not None and ("ke" in fields or "kd" in fields):
            modes.values.pop(shape, None)  # otherwise the asset's own solref would take precedence


def _leave_out(builder: Any, robot: Robot) -> None:
    """Disable collisions of shapes that are not among the declared colliders; refuse colliders without any shape."""
    collide = int(import_newton().ShapeFlags.COLLIDE_SHAPES)
    shapes = [shape for shape, flags in enumerate(builder.shape_flags) if flags & collide]
    names = {shape: shape_labels(builder, shape, builder.shape_body[shape]) for shape in shapes}
    for shape in set(shapes) - set(declared_colliders(robot, names)):
        builder.shape_flags[shape] &= ~collide
        builder.shape_collision_group[shape] = 0


def _verify(newton: Any, builder: Any, robot: Robot, path: Path) -> None:
    """Check that the built articulation has the declared joints, in order."""
    kinds = joint_kinds(newton) | {int(newton.JointType.FIXED): "fixed"}
    built: list[tuple[str, str]] = []
    for label, kind in zip(builder.joint_label, builder.joint_type, strict=True):
        name = short_label(label)
        if int(kind) not in kinds:
            raise InputError(
                f"{path}: joint {name!r} is of the unsupported type {newton.JointType(kind).name}; give every body "
                "at most one revolute, prismatic, ball or free joint"
            )
        if kinds[int(kind)] != "fixed":
            built.append((name, kinds[int(kind)]))
    require_joints(robot, built)


def _override(newton: Any, builder: Any, index: int, joint: Joint, robot: Robot) -> None:
    start = builder.joint_qd_start[index]
    for dof in range(start, start + joint.nv):
        for field in _JOINT_FIELDS:
            value = getattr(joint, field)
            if value is not None:
                getattr(builder, f"joint_{field}")[dof] = value
        if _wants_default_limits(robot, joint):
            builder.joint_limit_ke[dof] = builder.joint_limit_kd[dof] = 0.0
        # The robot is driven by torques, so drives of the asset are disabled.
        builder.joint_target_ke[dof] = 0.0
        builder.joint_target_kd[dof] = 0.0
        if joint.scalar:
            builder.joint_limit_lower[dof] = -newton.MAXVAL if joint.lower is None else joint.lower
            builder.joint_limit_upper[dof] = newton.MAXVAL if joint.upper is None else joint.upper
        if (effort := robot.joint_efforts().get(joint.name)) is not None:
            builder.joint_effort_limit[dof] = effort


def _wants_default_limits(robot: Robot, joint: Joint) -> bool:
    """Return whether a joint gets MuJoCo's default limits, which SolverMuJoCo uses for zero stiffness and damping.

    The URDF and USD importers set 1e4 N m/rad and 10 N m s/rad, with which limits in MuJoCo yield for a second. The
    MJCF importer keeps the file's values.
    """
    imported = robot.asset.lower().endswith(".xml")
    return robot.simulator.solver == "mujoco" and not imported and joint.limit_ke is None and joint.limit_kd is None

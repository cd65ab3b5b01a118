# SPDX-License-Identifier: Apache-2.0
"""Builds a MuJoCo model of a declared robot in one world, with a scene that can be moved.

Unless the declaration says `self_contacts`, bodies of a robot do not collide with each other, only with scenes, and
contact begins where surfaces meet, as in `sim.build`. The asset's actuators are left out: drives and torques of the
declaration take their place, as actuators where MuJoCo has such.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from neurodyn.core.description.scene import Scene
from neurodyn.core.description.spec import JOINT_PROPERTIES, JointKind
from neurodyn.core.errors import InputError
from neurodyn.geometry.solids import Solid, needs_triangles, solids_of_scene
from neurodyn.robots import Robot, asset_path
from neurodyn.robots.sections import ContactMaterial
from neurodyn.sim.articulations import (
    added_inertia,
    declared_colliders,
    require_joints,
    shapes_of_contacts,
    short_label,
    with_short,
)
from neurodyn.sim.engine import import_mujoco
from neurodyn.sim.interface import SCENE_LABEL
from neurodyn.sim.mujoco.actuators import add_actuators, takes_commands
from neurodyn.sim.mujoco.asset import compile_asset, keep_masses, plain_default, read_spec
from neurodyn.sim.mujoco.shape_contacts import ContactNumbers, mix_softness, softness_share, touching_pairs

SCENE = "neurodyn scene"
"""Name of the body that carries the scene."""

_LINE_SEARCH = 50  # iterations that converge; MuJoCo's own default
_CONDIM = 3  # of a floor by default
_FORCE, _MOST_CONTACTS = 1 << 1, 8  # of a contact sensor: its reading, and contacts of a shape
_BASE = 1.0  # thickness of a heightfield below its lowest point [m]
_TORQUE_DRIVEN = ("actuators", "sensors", "keys", "plugins")
_SCENE_BIT = 1 << 30  # bit by which shapes of the robot touch scenes
_INTEGRATORS = {"euler": "mjINT_EULER", "implicitfast": "mjINT_IMPLICITFAST"}


@dataclass(frozen=True, eq=False)
class BuiltModel:
    """A robot as MuJoCo compiled it.

    Attributes:
        model: The `mujoco.MjModel` of one world.
        joints: Number of each declared joint in the model.
        clear: Names of the geoms that do not touch scenes because they do not touch the asset's floor.
    """

    model: Any
    joints: tuple[int, ...]
    clear: frozenset[str] = frozenset()

    @property
    def geoms(self) -> list[int]:
        """The robot's geoms that can touch something."""
        touching = (self.model.geom_contype != 0) | (self.model.geom_conaffinity != 0)
        return np.flatnonzero(touching & (self.model.geom_bodyid != _scene_body(self.model))).tolist()


def build_model(robot: Robot, scene: Scene | None = None) -> BuiltModel:
    """Return a robot, with the shapes of a scene on a body whose pose is part of the state.

    Raises:
        InputError: The asset is missing or unsupported, or does not build as declared.
    """
    path = asset_path(robot)
    if path.suffix.lower() not in (".urdf", ".xml"):
        raise InputError(f"robot {robot.name!r}: mujoco-c reads URDF and MJCF, not {path.name}; valid: solver: mujoco")
    reading = partial(
        read_spec, path, locked=robot.locked, floating=not robot.fixed_base, density=robot.density,
        densities=robot.densities,
    )  # fmt: skip
    spec = reading()
    for kind in _TORQUE_DRIVEN:
        for element in list(getattr(spec, kind)):
            spec.delete(element)
    own = _contact_numbers(spec)
    clear = _touch_ground(spec)
    if robot.self_contacts and _contact_numbers(spec) != own:
        _keep_pairs_as(spec, touching_pairs(compile_asset(path, reading())), touching_pairs(compile_asset(path, spec)))
    for geom in [*spec.worldbody.geoms, *(geom for geom in fixed_floors(spec) if geom.parent.name != "world")]:
        spec.delete(geom)  # the ground comes from the declared scene
    _keep_pairs(spec, robot)
    if takes_commands(robot):
        add_actuators(spec, robot)
    if scene is not None:
        keep_masses(path, spec)
        _add_scene(spec, robot, scene)
        _add_force_sensors(spec, robot)
    spec.option.timestep = robot.dt / robot.simulator.substeps
    model = compile_asset(path, spec)
    built = BuiltModel(model, declared_joints(model, robot), clear)
    _set_options(model, robot)
    if not model.nu:  # MuJoCo leaves out the compensation of gravity by actuators where there is none
        model.jnt_actgravcomp[:] = 0
    _override_joints(built, robot)
    _set_masses(model, robot)
    _set_contacts(model, robot, clear)
    data = import_mujoco().MjData(model)
    import_mujoco().mj_setConst(model, data)
    return built


def _touch_ground(spec: Any) -> frozenset[str]:
    """Return the shapes that cannot touch the asset's floor, if it has one that others can touch.

    The others get the parameters of their contacts with the asset's floor, before a scene takes its place.

    As in MuJoCo, the parameters of the geom with the higher priority win, else the greater of both, and shapes that
    touch the floor by a `pair` get those of the pair. An asset without a floor is treated as on one with MuJoCo's
    defaults.
    """
    floors = fixed_floors(spec)
    touching: dict[str, bool] = {}
    for geom in spec.geoms:
        if geom.parent.name == "world" or geom in floors or not (geom.contype or geom.conaffinity):
            continue
        floor = next((one for one in floors if geom.contype & one.conaffinity or one.contype & geom.conaffinity), None)
        touching[geom.name] = floor is not None
        if floor is not None and floor.priority > geom.priority:
            geom.condim, geom.friction, geom.solref, geom.solimp = (
                floor.condim, floor.friction, floor.solref, floor.solimp
            )  # fmt: skip
        elif (floor.priority if floor is not None else 0) == geom.priority:
            geom.condim = max(geom.condim, _CONDIM if floor is None else floor.condim)
            if floor is not None:
                geom.friction = np.maximum(geom.friction, floor.friction)
                share = softness_share(geom.solmix, floor.solmix)
                geom.solref, geom.solimp = mix_softness(share, (geom.solref, geom.solimp), (floor.solref, floor.solimp))
    fixed = {geom.name for geom in (*spec.worldbody.geoms, *floors)}
    geoms = {geom.name: geom for geom in spec.geoms}
    for pair in spec.pairs:
        ends = {pair.geomname1, pair.geomname2}
        if len(ends & fixed) == 1 and (geom := geoms.get((ends - fixed).pop())) is not None:
            touching[geom.name], geom.contype = True, geom.contype or 1
            geom.condim, geom.solref, geom.solimp = pair.condim, pair.solref, pair.solimp
            geom.friction = (pair.friction[0], pair.friction[2], pair.friction[3])
    return frozenset(name for name, touches in touching.items() if not touches and any(touching.values()))


def _contact_numbers(spec: Any) -> list[tuple[Any, ...]]:
    """Return the parameters of geoms that `_touch_ground` may change."""
    return [(geom.condim, *geom.friction, *geom.solref, *geom.solimp) for geom in spec.geoms]


def _keep_pairs_as(
    spec: Any, own: dict[frozenset[str], ContactNumbers], now: dict[frozenset[str], ContactNumbers]
) -> None:
    """Add a pair with the original parameters for each self-contact of the robot whose parameters have changed."""
    for ends, numbers in own.items():
        if now.get(ends, numbers) != numbers:
            first, second = sorted(ends)
            spec.add_pair(
                geomname1=first, geomname2=second, condim=numbers.dimension, friction=numbers.friction,
                solref=numbers.solref, solimp=numbers.solimp, margin=numbers.margin, gap=numbers.gap,
            )  # fmt: skip


def fixed_floors(spec: Any) -> list[Any]:
    """Return the planes and heightfields of a `mujoco.MjSpec` that do not move."""
    return [geom for geom in spec.geoms if geom.type in floor_types() and _is_fixed(geom)]


def floor_types() -> tuple[Any, ...]:
    """Return the kinds of geoms that floors are made of."""
    types = import_mujoco().mjtGeom
    return (types.mjGEOM_PLANE, types.mjGEOM_HFIELD)


def _is_fixed(geom: Any) -> bool:
    body = geom.parent
    while body.name != "world":
        if list(body.joints) or body.mocap:
            return False
        body = body.parent
    return True


def _keep_pairs(spec: Any, robot: Robot) -> None:
    """Remove pairs and exclusions of contacts whose geoms or bodies are gone; without self-contacts, remove all."""
    geoms, bodies = {geom.name for geom in spec.geoms}, {body.name for body in spec.bodies}
    for pair in list(spec.pairs):
        if not robot.self_contacts or not {pair.geomname1, pair.geomname2} <= geoms:
            spec.delete(pair)
    for exclude in list(spec.excludes):
        if not robot.self_contacts or not {exclude.bodyname1, exclude.bodyname2} <= bodies:
            spec.delete(exclude)


def joint_kind(model: Any, joint: int) -> JointKind:
    """Return the kind of a joint of a model."""
    types = import_mujoco().mjtJoint
    kinds: dict[Any, JointKind] = {
        types.mjJNT_HINGE: "revolute", types.mjJNT_SLIDE: "prismatic", types.mjJNT_BALL: "ball",
        types.mjJNT_FREE: "free",
    }  # fmt: skip
    return kinds[types(int(model.jnt_type[joint]))]


def joint_name(model: Any, joint: int) -> str:
    """Return the declared name of a joint: the asset's, or "base" for an unnamed first free joint."""
    name = model.joint(joint).name
    unnamed = "free" in name.lower() or name.endswith("_joint") or not name
    return "base" if joint == 0 and joint_kind(model, 0) == "free" and unnamed else name


def declared_joints(model: Any, robot: Robot) -> tuple[int, ...]:
    """Return the index of each declared joint; refuse other joints, kinds, or another order."""
    require_joints(robot, [(joint_name(model, joint), joint_kind(model, joint)) for joint in range(model.njnt)])
    return tuple(range(model.njnt))


def _set_options(model: Any, robot: Robot) -> None:
    declared, mujoco = robot.simulator, import_mujoco()
    model.opt.gravity[:] = robot.gravity
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # an unstable world would be reset
    if declared.integrator is not None:
        model.opt.integrator = int(getattr(mujoco.mjtIntegrator, _INTEGRATORS[declared.integrator]))
    if declared.iterations is not None:
        model.opt.iterations = declared.iterations
        model.opt.ls_iterations = max(model.opt.ls_iterations, _LINE_SEARCH)
    if declared.fluid is not None:
        model.opt.density, model.opt.viscosity = declared.fluid.density, declared.fluid.viscosity


def _override_joints(built: BuiltModel, robot: Robot) -> None:
    model = built.model
    for number, joint in zip(built.joints, robot.joints, strict=True):
        dofs = slice(int(model.jnt_dofadr[number]), int(model.jnt_dofadr[number]) + joint.nv)
        for field in ("armature", "damping", "friction"):
            value = getattr(joint, field)
            if value is not None:
                getattr(model, JOINT_PROPERTIES[field].mujoco)[dofs] = value
        if joint.limit_ke is not None or joint.limit_kd is not None:
            old = model.jnt_solref[number]
            model.jnt_solref[number] = [-(joint.limit_ke or -min(old[0], 0.0)), -(joint.limit_kd or -min(old[1], 0.0))]
        if joint.scalar:
            model.jnt_limited[number] = joint.lower is not None
            if joint.lower is not None and joint.upper is not None:
                model.jnt_range[number] = joint.lower, joint.upper


def _set_masses(model: Any, robot: Robot) -> None:
    """Scale masses and inertias, and add the declared inertia of links; refuse a pattern that matches no link."""
    model.body_mass[:] *= robot.mass_scale
    model.body_inertia[:] *= robot.mass_scale
    leaders = [body for body in range(1, model.nbody) if model.body_weldid[body] == body]
    extra = added_inertia(robot, [short_label(model.body(body).name) for body in leaders])
    model.body_inertia[leaders] += np.array(extra)[:, None]  # equal about all axes, so the principal axes stay


def _set_contacts(model: Any, robot: Robot, clear: frozenset[str]) -> None:
    """Let the declared colliders touch scenes with the declared material; each other, and with margins, if declared.

    Fixed bodies of the asset, such as a table, can be touched by all colliders.
    """
    material = robot.material or ContactMaterial()
    scene = model.geom_bodyid == _scene_body(model)
    touching = ((model.geom_contype != 0) | (model.geom_conaffinity != 0)) & ~scene
    labels = {
        geom: with_short(model.geom(geom).name, model.body(int(model.geom_bodyid[geom])).name)
        for geom in np.flatnonzero(touching).tolist()
    }
    chosen_geoms = declared_colliders(robot, labels)
    chosen_geoms += [
        geom for geom in labels if geom not in chosen_geoms and not model.body_weldid[model.geom_bodyid[geom]]
    ]
    grounded = [geom for geom in chosen_geoms if model.geom(geom).name not in clear]
    bits = (model.geom_contype.copy(), model.geom_conaffinity.copy())
    model.geom_contype[:], model.geom_conaffinity[:] = 0, 0
    if robot.self_contacts:
        for array, own in zip((model.geom_contype, model.geom_conaffinity), bits, strict=True):
            array[chosen_geoms] = own[chosen_geoms] & ~_SCENE_BIT
        model.geom_contype[grounded] |= _SCENE_BIT
    else:
        model.geom_contype[grounded] = 1
        model.geom_margin[:] = 0.0
    model.geom_gap[:], model.geom_margin[scene] = 0.0, 0.0
    model.geom_conaffinity[scene] = _SCENE_BIT if robot.self_contacts else 1
    priorities = model.geom_priority[chosen_geoms]
    model.geom_priority[scene] = int(priorities.min(initial=0)) - 1  # the robot's own parameters win
    if material.friction is not None:
        model.geom_friction[chosen_geoms, 0] = material.friction
    if material.stiffness is not None or material.damping is not None:
        for geom in chosen_geoms:
            model.geom_solref[geom] = _solref(model.geom_solref[geom], material)


def _solref(own: np.ndarray, material: ContactMaterial) -> tuple[float, float]:
    """Return time constant and damping ratio of contacts with a material, by default the geom's own."""
    time, ratio = map(float, own)
    stiffness, damping = (1.0 / (time * ratio) ** 2, 2.0 / time) if time > 0 else (-time, -ratio)
    stiffness = stiffness if material.stiffness is None else material.stiffness
    damping = damping if material.damping is None else material.damping
    return 2.0 / damping, 0.5 * damping / stiffness**0.5


def _scene_body(model: Any) -> int:
    mujoco = import_mujoco()
    return int(mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, SCENE))


def _add_scene(spec: Any, robot: Robot, scene: Scene) -> None:
    if needs_triangles(scene):
        raise InputError(
            f"robot {robot.name!r}: its ground has a mesh that is not convex, whose hollows mujoco-c would fill; "
            "valid: solver: mujoco, or convex parts"
        )
    body = spec.worldbody.add_body(name=SCENE, mocap=True)
    for number, solid in enumerate(solids_of_scene(scene)):
        _add_solid(spec, body, solid, f"{SCENE_LABEL}/{number}")


def _add_force_sensors(spec: Any, robot: Robot) -> None:
    """Add a sensor of the contact forces of each shape of the declared contacts."""
    mujoco = import_mujoco()
    geoms = [geom for geom in spec.geoms if geom.contype or geom.conaffinity]
    labels = {geom.name: with_short(geom.name, geom.parent.name) for geom in geoms if geom.parent.name != SCENE}
    for name, contact in shapes_of_contacts(robot.contacts, labels).items():
        sensor = spec.add_sensor(name=f"{contact}/{name}", type=mujoco.mjtSensor.mjSENS_CONTACT)
        sensor.objtype, sensor.objname = mujoco.mjtObj.mjOBJ_GEOM, name
        sensor.intprm[:3] = [_FORCE, 0, _MOST_CONTACTS]


def _add_solid(spec: Any, body: Any, solid: Solid, name: str) -> None:
    types = import_mujoco().mjtGeom
    x, y, z, qx, qy, qz, qw = (float(value) for value in solid.pose)
    default = plain_default()
    attributes: dict[str, Any] = {"default": default, "name": name, "pos": [x, y, z], "quat": [qw, qx, qy, qz]}
    a, b, c = (float(value) for value in solid.size)
    match solid.kind:
        case "plane":
            body.add_geom(type=types.mjGEOM_PLANE, size=[0, 0, 1], **attributes)
        case "box":
            body.add_geom(type=types.mjGEOM_BOX, size=[a, b, c], **attributes)
        case "sphere":
            body.add_geom(type=types.mjGEOM_SPHERE, size=[a, 0, 0], **attributes)
        case "capsule":
            body.add_geom(type=types.mjGEOM_CAPSULE, size=[a, b, 0], **attributes)
        case "cylinder":
            body.add_geom(type=types.mjGEOM_CYLINDER, size=[a, b, 0], **attributes)
        case "mesh":
            assert solid.mesh is not None  # for the type checker
            vertices, faces = solid.mesh.vertices.astype(float), solid.mesh.faces.astype(int)
            spec.add_mesh(default, name=name, uservert=vertices.ravel(), userface=faces.ravel())
            body.add_geom(type=types.mjGEOM_MESH, meshname=name, **attributes)
        case "heightfield":
            assert solid.heights is not None  # for the type checker
            _add_heights(spec, body, solid, attributes)


def _add_heights(spec: Any, body: Any, solid: Solid, attributes: dict[str, Any]) -> None:
    """Add a heightfield: MuJoCo's rises from the pose of its geom, with heights between 0 and 1 of their range."""
    heights = np.asarray(solid.heights, dtype=float)
    rows, columns = heights.shape
    low, high = float(heights.min()), float(heights.max())
    span = max(high - low, 1e-6)
    half = ((columns - 1) * solid.size[0] / 2, (rows - 1) * solid.size[1] / 2)
    spec.add_hfield(
        name=attributes["name"],
        nrow=rows,
        ncol=columns,
        size=[*half, span, _BASE],
        userdata=((heights - low) / span).ravel(),
    )
    w, qx, qy, qz = attributes["quat"]
    up = np.array([2 * (qx * qz + w * qy), 2 * (qy * qz - w * qx), 1 - 2 * (qx * qx + qy * qy)])
    attributes["pos"] = (np.array(attributes["pos"]) + low * up).tolist()
    body.add_geom(type=import_mujoco().mjtGeom.mjGEOM_HFIELD, hfieldname=attributes["name"], **attributes)

# SPDX-License-Identifier: Apache-2.0
"""A robot as built, read from its Newton model, with MuJoCo's constraints and joint limits."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from neurodyn.core.description.contacts import ChainJoint, SoftConstraints
from neurodyn.core.description.elements import read_elements
from neurodyn.core.description.mechanism import Link
from neurodyn.core.description.spec import JOINT_PROPERTIES
from neurodyn.core.errors import InputError
from neurodyn.robots import Robot
from neurodyn.sim.articulations import Articulation, BuiltShape, ShapeKind, Springs, kept_articulation
from neurodyn.sim.bodies import compose, inertia_entries, merged_body, rounded_pose, rounded_vector
from neurodyn.sim.constraints import model_constraints
from neurodyn.sim.contact_points import shape_names
from neurodyn.sim.engine import collides, import_newton
from neurodyn.sim.interface import AssetJoint
from neurodyn.sim.newton.build import build, import_asset, imported_joint, moving_joints
from neurodyn.sim.newton.fingerprints import body_groups, fingerprint, world_joints

if TYPE_CHECKING:
    import newton

_UNLIMITED = 1e9


def newton_articulation(model: "newton.Model | None", robot: Robot) -> Articulation:
    """Return the robot in world 0 of a model; it may have other static shapes, but no other moving bodies.

    Args:
        model: The model; None to build the robot.
        robot: The declared robot.

    Raises:
        InputError: The robot cannot be built, or the model has other joints.
    """
    model = build(robot) if model is None else model
    arrays: Any = model
    x, y, z = map(float, np.asarray(arrays.gravity.numpy(), dtype=float).reshape(-1, 3)[0])
    carrier = carriers(model, robot)
    com = arrays.body_com.numpy()[next(iter(carrier))] if robot.spec.floating else (0.0, 0.0, 0.0)
    return Articulation(
        links=_links(model, robot),
        shapes=_shapes(model, carrier),
        gravity=(x, y, z),
        fingerprint=fingerprint(model),
        find_constraints=partial(_constraints, robot),
        base_com=rounded_vector(com),
        elements=read_elements(model, robot),
    )


def kept_newton_articulation(robot: Robot) -> Articulation:
    """Return a robot as Newton builds it, from the cache if nothing has changed (`sim.articulations`)."""
    return kept_articulation(partial(newton_articulation, None), robot)


def imported_limits(robot: Robot) -> dict[str, AssetJoint]:
    """Return the joints with one degree of freedom of a robot's asset, by name."""
    builder = import_asset(robot)
    joints = zip(moving_joints(builder), robot.joints, strict=True)
    return {one.name: imported_joint(builder, index, one.name, one.kind) for index, one in joints if one.scalar}


def carriers(model: "newton.Model", robot: Robot) -> dict[int, int]:
    """Return the index of the joint that moves each moving body of world 0, in joint order; refuse other joints."""
    joints = world_joints(model)
    if len(joints) != len(robot.joints):
        raise InputError(
            f"robot {robot.name!r}: world 0 of the model has {len(joints)} moving joints; valid: the "
            f"{len(robot.joints)} of the robot"
        )
    child = model.joint_child.numpy()  # type: ignore[union-attr]
    return {int(child[joint]): index for index, joint in enumerate(joints)}


def _chain_joints(model: "newton.Model", robot: Robot) -> tuple[ChainJoint, ...]:
    """Return the joints of world 0 with the declared names and kinds."""
    arrays: Any = model
    groups, carrier = body_groups(model), carriers(model, robot)
    parents, starts, axes = (getattr(arrays, f"joint_{name}").numpy() for name in ("parent", "qd_start", "axis"))
    parent_frames, child_frames = arrays.joint_X_p.numpy().astype(float), arrays.joint_X_c.numpy()
    joints = []
    for declared, joint in zip(robot.joints, world_joints(model), strict=True):
        leader, offset = groups[int(parents[joint])]
        joints.append(
            ChainJoint(
                name=declared.name,
                kind=declared.kind,
                parent=carrier.get(leader, -1),
                parent_frame=rounded_pose(compose(offset, parent_frames[joint])),
                child_frame=rounded_pose(child_frames[joint]),
                axis=rounded_vector(axes[int(starts[joint])]) if declared.scalar else (0.0, 0.0, 0.0),
            )
        )
    return tuple(joints)


def _links(model: "newton.Model", robot: Robot) -> tuple[Link, ...]:
    arrays: Any = model
    mass, com, inertia = (getattr(arrays, f"body_{x}").numpy().astype(float) for x in ("mass", "com", "inertia"))
    groups, carrier = body_groups(model), carriers(model, robot)
    leader = {index: body for body, index in carrier.items()}
    joint_of = {int(child): joint for joint, child in enumerate(arrays.joint_child.numpy().tolist())}
    links = []
    for index, joint in enumerate(_chain_joints(model, robot)):
        total, centre, merged = merged_body(groups, leader[index], mass, com, inertia)
        x, y, z = map(float, centre)
        passive = _passive(arrays, joint_of[leader[index]]) if joint.scalar else {}
        links.append(Link(joint=joint, mass=total, com=(x, y, z), inertia=inertia_entries(merged), **passive))
    return tuple(links)


def _passive(model: Any, joint: int) -> dict[str, Any]:
    dof = int(model.joint_qd_start.numpy()[joint])
    arrays = {name: name for name in JOINT_PROPERTIES} | {"lower": "limit_lower", "upper": "limit_upper"}
    arrays |= {"limit_stiffness": "limit_ke", "limit_damping": "limit_kd"}
    values = {name: float(getattr(model, f"joint_{array}").numpy()[dof]) for name, array in arrays.items()}
    values["rest"] = float(model.joint_rest_q.numpy()[int(model.joint_q_start.numpy()[joint])])
    return {name: value for name, value in values.items() if abs(value) < _UNLIMITED}


def _shapes(model: Any, carrier: dict[int, int]) -> tuple[BuiltShape, ...]:
    kinds = _shape_kinds()
    groups, body = body_groups(model), model.shape_body.numpy()
    transform, scale, kind = (getattr(model, f"shape_{x}").numpy() for x in ("transform", "scale", "type"))
    shapes = []
    for shape in np.flatnonzero(collides(model)).tolist():
        leader, offset = groups[int(body[shape])]
        if leader not in carrier:
            continue
        x, y, z = (float(size) for size in scale[shape])
        vertices = getattr(model.shape_source[shape], "vertices", None)
        shapes.append(
            BuiltShape(
                label=model.shape_label[shape],
                body=model.body_label[int(body[shape])],
                joint=carrier[leader],
                place=compose(offset, transform[shape].astype(float)),
                kind=kinds[int(kind[shape])],
                size=(x, y, z),
                vertices=None if vertices is None else np.asarray(vertices, dtype=float).reshape(-1, 3) * (x, y, z),
            )
        )
    return tuple(shapes)


def _shape_kinds() -> dict[int, ShapeKind]:
    types: Any = import_newton().GeoType
    return {
        int(types.SPHERE): "sphere", int(types.CAPSULE): "capsule", int(types.BOX): "box",
        int(types.CYLINDER): "cylinder", int(types.ELLIPSOID): "ellipsoid", int(types.MESH): "mesh",
        int(types.CONVEX_MESH): "mesh", int(types.CONE): "cone", int(types.HFIELD): "heightfield",
        int(types.PLANE): "plane",
    }  # fmt: skip


def _constraints(robot: Robot) -> tuple[SoftConstraints, Springs]:
    """Return the constraints of a robot, and the springs of its limits, from a MuJoCo solver of the robot alone."""
    limited = {joint.name for joint in robot.joints if joint.scalar and joint.lower is not None}
    if robot.simulator.solver != "mujoco" or not (robot.contact_points is not None or limited):
        return SoftConstraints(), {}
    solvers: Any = import_newton().solvers
    solver = solvers.SolverMuJoCo(build(robot), use_mujoco_contacts=True)
    model, names = solver.mjw_model, robot.spec.qd_names
    joints = {
        names[dof]: (joint, int(solver.mj_model.jnt_dofadr[joint]))
        for joint, dof in enumerate(solver.mjc_jnt_to_newton_dof.numpy()[0].tolist())
    }
    return model_constraints(
        robot, lambda name: getattr(model, name).numpy()[0], joints, geoms_of_shapes(robot, solver),
        elliptic=bool(int(model.opt.cone)), impratio=float(model.opt.impratio_invsqrt.numpy()[0]) ** -2.0,
    )  # fmt: skip


def geoms_of_shapes(robot: Robot, solver: Any) -> dict[str, int]:
    """Return the geoms of a robot's collision shapes, by the shape's name."""
    model = solver.model
    carrier, groups, body = carriers(model, robot), body_groups(model), model.shape_body.numpy()
    chosen = [s for s in np.flatnonzero(collides(model)).tolist() if groups[int(body[s])][0] in carrier]
    names = dict(zip(chosen, shape_names(_shapes(model, carrier)), strict=True))
    shapes = solver.mjc_geom_to_newton_shape.numpy()[0]
    return {names[shape]: geom for geom, shape in enumerate(shapes) if shape in names}

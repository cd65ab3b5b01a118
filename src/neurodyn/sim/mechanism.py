# SPDX-License-Identifier: Apache-2.0
"""The mechanism of a robot as plain data, read from its Newton model."""

from typing import TYPE_CHECKING, Any

import numpy as np

from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.soft_constraints import SoftConstraints
from neurodyn.robots import Robot
from neurodyn.sim.assets.merge import merged_body
from neurodyn.sim.contact_points import (
    carriers,
    chain_joints,
    contact_point_layout,
    contacts_on_plane,
    rounded_boxes,
)
from neurodyn.sim.fingerprint import body_groups
from neurodyn.sim.limits import limit_springs
from neurodyn.sim.soft_constraints import constraint_solver, soft_constraints

if TYPE_CHECKING:
    import newton

_UNLIMITED = 1e9


def mechanism(model: "newton.Model", robot: Robot, *, every_contact: bool = False) -> Mechanism:
    """Return the tree of links in world 0 of a model; bodies that are fixed to each other are one link.

    The stiffness and damping of joint limits are those with which the robot's simulator acts: of Featherstone those of
    the model, of MuJoCo the springs that its constraints amount to (`sim.limits`); its constraints themselves are
    there too.

    Args:
        model: A model whose worlds hold the robot and nothing else that moves.
        robot: The declared robot.
        every_contact: Whether the contact points are those at which the simulator finds contacts on a plane, instead of
            those that the robot declares; the mechanism then has the shapes of the robot, too.

    Raises:
        InputError: The model holds other joints, or a contact point selection matches nothing.
    """
    arrays: Any = model
    mass, com, inertia = (getattr(arrays, f"body_{x}").numpy().astype(float) for x in ("mass", "com", "inertia"))
    groups, carrier = body_groups(model), carriers(model, robot)
    leader = {index: body for body, index in carrier.items()}
    joint_of = {int(child): joint for joint, child in enumerate(arrays.joint_child.numpy().tolist())}
    springs, constraints = {}, SoftConstraints()
    if robot.simulator.solver == "mujoco" and (robot.contact_points is not None or _has_limits(robot)):
        solver = constraint_solver(robot)
        springs, constraints = limit_springs(robot, solver), soft_constraints(robot, solver)
    links = []
    for index, joint in enumerate(chain_joints(model, robot)):
        total, centre, merged = merged_body(groups, leader[index], mass, com, inertia)
        x, y, z = map(float, centre)
        inertias = (float(merged[i, j]) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)))
        passive = _passive(arrays, joint_of[leader[index]]) if joint.scalar else {}
        if joint.name in springs:
            passive["limit_stiffness"], passive["limit_damping"] = springs[joint.name]
        links.append(Link(joint=joint, mass=total, com=(x, y, z), inertia=tuple(inertias), **passive))  # type: ignore[arg-type]
    points, shapes = (), ()
    if robot.contact_points is not None:
        points = (contacts_on_plane if every_contact else contact_point_layout)(model, robot).contact_points
        shapes = rounded_boxes(model, robot) if every_contact else ()
    x, y, z = map(float, np.asarray(arrays.gravity.numpy(), dtype=float).reshape(-1, 3)[0])
    return Mechanism(
        links=tuple(links),
        gravity=(x, y, z),
        points=points,
        constraints=constraints,
        shapes=shapes,
        drives=robot.drives,
        body_contacts=robot.body_contacts,
        supports=robot.supports,
    )


def _has_limits(robot: Robot) -> bool:
    return any(joint.scalar and joint.lower is not None for joint in robot.joints)


def _passive(model: Any, joint: int) -> dict[str, Any]:
    """Return the passive quantities of a joint."""
    dof = int(model.joint_qd_start.numpy()[joint])
    values = {
        name: float(getattr(model, f"joint_{array}").numpy()[dof])
        for name, array in (
            ("armature", "armature"), ("damping", "damping"), ("friction", "friction"), ("lower", "limit_lower"),
            ("upper", "limit_upper"), ("limit_stiffness", "limit_ke"), ("limit_damping", "limit_kd"),
            ("stiffness", "stiffness"),
        )
    }  # fmt: skip
    values["rest"] = float(model.joint_rest_q.numpy()[int(model.joint_q_start.numpy()[joint])])
    return {name: value for name, value in values.items() if abs(value) < _UNLIMITED}

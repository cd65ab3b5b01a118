# SPDX-License-Identifier: Apache-2.0
"""The mechanism of a robot as plain data, read from its Newton model.

With MuJoCo's soft constraints and joint limits.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import UNSET

from neurodyn.core.description.contacts import ConstraintParameters, SoftConstraints
from neurodyn.core.description.elements import read_elements
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.robots import Robot
from neurodyn.sim.bodies import merged_body
from neurodyn.sim.build import build
from neurodyn.sim.contact_points import (
    carriers,
    chain_joints,
    collides,
    contact_point_layout,
    contacts_on_plane,
    rounded_boxes,
)
from neurodyn.sim.engine import import_newton
from neurodyn.sim.fingerprint import body_groups

if TYPE_CHECKING:
    import newton


_DIGITS = 6  # of single precision


def constraint_solver(robot: Robot) -> Any:
    """Return a solver of the robot alone, with its shapes as geometries."""
    solvers: Any = import_newton().solvers
    return solvers.SolverMuJoCo(build(robot), use_mujoco_contacts=True)


def soft_constraints(robot: Robot, solver: Any) -> SoftConstraints:
    """Return what makes the constraints of a robot yield.

    Contacts are those of its shapes with the ground, whose own parameters the simulator overrides (`sim.scene`); where
    shapes differ, those of most shapes.

    Args:
        robot: A robot whose simulator is MuJoCo.
        solver: Its `constraint_solver`.
    """
    model: Any = solver.mjw_model
    touching = collides(solver.model)
    contacts = Counter(
        (_rounded(friction[:1]), _rounded(solref), _rounded(solimp))
        for friction, solref, solimp, shape in zip(
            *(getattr(model, f"geom_{name}").numpy()[0] for name in ("friction", "solref", "solimp")),
            solver.mjc_geom_to_newton_shape.numpy()[0],
            strict=True,
        )
        if shape >= 0 and touching[shape]
    )
    common = contacts.most_common(1)[0][0] if contacts else None
    names, dofs = robot.spec.qd_names, solver.mjc_jnt_to_newton_dof.numpy()[0].tolist()
    limits, frictions = {}, {}
    for joint, dof in enumerate(dofs):
        limits[names[dof]] = _parameters(model.jnt_solref.numpy()[0][joint], model.jnt_solimp.numpy()[0][joint])
        address = int(solver.mj_model.jnt_dofadr[joint])
        frictions[names[dof]] = _parameters(model.dof_solref.numpy()[0][address], model.dof_solimp.numpy()[0][address])
    scalar = {joint.name for joint in robot.joints if joint.scalar}
    limited = {joint.name for joint in robot.joints if joint.scalar and joint.lower is not None}
    constraints = SoftConstraints(
        cone="elliptic" if int(model.opt.cone) else "pyramidal",
        impratio=_rounded(model.opt.impratio_invsqrt.numpy()[:1] ** -2.0)[0],
        limits=_declared(limits, limited),
        joint_friction=_declared(frictions, scalar),
    )
    if common is None:
        return constraints
    friction, solref, solimp = common
    return msgspec.structs.replace(constraints, friction=friction[0], contact=_parameters(solref, solimp))


def _declared(parameters: dict[str, ConstraintParameters], names: set[str]) -> dict[str, ConstraintParameters]:
    """Return those of named joints that differ from MuJoCo's defaults."""
    default = ConstraintParameters()
    return {name: value for name, value in parameters.items() if name in names and value != default}


def _parameters(solref: Sequence[float], solimp: Sequence[float]) -> ConstraintParameters:
    time, ratio = _rounded(solref)
    first, last, width, midpoint, power = _rounded(solimp)
    return ConstraintParameters(solref=(time, ratio), solimp=(first, last, width, midpoint, power))


def _rounded(values: Any) -> tuple[float, ...]:
    return tuple(float(f"{float(value):.{_DIGITS}g}") for value in values)


def limit_springs(robot: Robot, solver: Any = None) -> dict[str, tuple[float, float]]:
    r"""Return stiffness [N m/rad or N/m] and damping [N m s/rad or N s/m] of each joint's limits, by name.

    Beyond a limit by r, MuJoCo aims at the acceleration $-b\,v - k\,d\,r$ with
    $b = 2/(d\,t)$ and $k = 1/(d\,t\,\zeta)^2$ of solref (t, zeta) and the impedance d of solimp, and gets the share d
    of it. A body of the joint's effective inertia $m = 1/w$ (w: `dof_invweight0`) on a spring and damper does the same
    where nothing else pushes it:

    $$k_e = d\,k\,m, \qquad k_d = d\,b\,m$$

    What is not in a spring is that MuJoCo holds the share d of a push, so that a joint under torque rests closer to its
    limit in the simulator.

    Args:
        robot: A robot whose simulator is MuJoCo.
        solver: Its `constraint_solver`; None to make one.
    """
    limited = {joint.name for joint in robot.joints if joint.scalar and joint.lower is not None}
    if not limited:  # and no solver is made for nothing
        return {}
    solver = constraint_solver(robot) if solver is None else solver
    dofs = solver.mjc_jnt_to_newton_dof.numpy()[0]
    solref, solimp = solver.mjw_model.jnt_solref.numpy()[0], solver.mjw_model.jnt_solimp.numpy()[0]
    inverse = solver.mjw_model.dof_invweight0.numpy()[0]
    address = solver.mjw_model.jnt_dofadr.numpy()
    names = robot.spec.qd_names
    least = 2.0 * robot.dt / robot.simulator.substeps  # MuJoCo keeps time constants above two steps
    springs = {}
    for joint, dof in enumerate(dofs):
        time, ratio = solref[joint].tolist()
        impedance, mass = float(solimp[joint][1]), 1.0 / float(inverse[address[joint]])
        if time > 0:
            time = max(time, least)
            k, b = 1.0 / (impedance * time * ratio) ** 2, 2.0 / (impedance * time)
        else:  # stiffness and damping themselves, negative
            k, b = -time / impedance**2, -ratio / impedance
        springs[names[int(dof)]] = (impedance * k * mass, impedance * b * mass)
    return {name: spring for name, spring in springs.items() if name in limited}


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
        elements=(*(robot.elements or ()), *read_elements(model, robot)) or UNSET,
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

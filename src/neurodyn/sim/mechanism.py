# SPDX-License-Identifier: Apache-2.0
"""The mechanism of a robot as plain data, read from its Newton model, with MuJoCo's constraints and joint limits."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET

from neurodyn.core.description.contacts import SHAPE_PROPERTIES, ConstraintParameters, SoftConstraints
from neurodyn.core.description.elements import read_elements
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.errors import choices, notice
from neurodyn.robots import Robot
from neurodyn.sim.bodies import merged_body
from neurodyn.sim.build import build
from neurodyn.sim.contact_points import (
    carriers,
    chain_joints,
    contact_point_layout,
    contacts_on_plane,
    rounded_boxes,
    shape_names,
)
from neurodyn.sim.engine import import_newton
from neurodyn.sim.fingerprint import body_groups

if TYPE_CHECKING:
    import newton


T = TypeVar("T")

_DIGITS = 6  # significant digits of float32
_UNLIMITED = 1e9


def constraint_solver(robot: Robot) -> Any:
    """Return a MuJoCo solver of the robot alone, with its shapes as geometries."""
    solvers: Any = import_newton().solvers
    return solvers.SolverMuJoCo(build(robot), use_mujoco_contacts=True)


def soft_constraints(robot: Robot, solver: Any) -> SoftConstraints:
    """Return the compliance of the constraints of a robot with its `constraint_solver`.

    Contacts are those of its shapes with the ground, whose own parameters the simulator overrides (`sim.scene`). Each
    of `SHAPE_PROPERTIES` has the value of most shapes, with those of the others by name. Where shapes yield differently
    in other ways, a notice says so, and contacts yield as those of most shapes.
    """
    model: Any = solver.mjw_model
    names, dofs = robot.spec.qd_names, solver.mjc_jnt_to_newton_dof.numpy()[0].tolist()
    limits, frictions = {}, {}
    for joint, dof in enumerate(dofs):
        limits[names[dof]] = _parameters(model.jnt_solref.numpy()[0][joint], model.jnt_solimp.numpy()[0][joint])
        address = int(solver.mj_model.jnt_dofadr[joint])
        frictions[names[dof]] = _parameters(model.dof_solref.numpy()[0][address], model.dof_solimp.numpy()[0][address])
    scalar = {joint.name for joint in robot.joints if joint.scalar}
    constraints = SoftConstraints(
        cone="elliptic" if int(model.opt.cone) else "pyramidal",
        impratio=_rounded(model.opt.impratio_invsqrt.numpy()[:1] ** -2.0)[0],
        limits=_declared(limits, _limited(robot)),
        joint_friction=_declared(frictions, scalar),
    )
    geoms = _geoms(robot, solver)
    if not geoms:
        return constraints
    attributes = {one.attribute for one in SHAPE_PROPERTIES.values()} | {"solref", "solimp"}
    rows = {one: _rows(solver, one, geoms.values()) for one in attributes}
    for name, place in SHAPE_PROPERTIES.items():
        column = [row[place.column] for row in rows[place.attribute]]
        common = _most_common(column)
        own = {shape: value for shape, value in zip(geoms, column, strict=True) if value != common}
        constraints = constraints.with_property(name, common, own)
        for row in rows[place.attribute]:
            row[place.column] = common  # what remains is how shapes differ in other ways
    yields = [(tuple(solref), tuple(solimp)) for solref, solimp in zip(rows["solref"], rows["solimp"], strict=True)]
    contact = _most_common(yields)
    others = [shape for shape, own in zip(geoms, yields, strict=True) if own != contact]
    if others:
        notice(
            f"{robot.name}: {len(others)} of {len(geoms)} shapes yield in contacts in a way of their own "
            f"({choices(others)}), which soft contacts do not model: all yield by solref {list(contact[0])} and solimp "
            f"{list(contact[1])}; `material` with stiffness and damping gives them one solref in the simulator, too"
        )
    return msgspec.structs.replace(constraints, contact=_parameters(*contact))


def _geoms(robot: Robot, solver: Any) -> dict[str, int]:
    """Return the geoms of a robot's collision shapes, by the shape's name."""
    names, shapes = shape_names(solver.model, robot), solver.mjc_geom_to_newton_shape.numpy()[0]
    return {names[shape]: geom for geom, shape in enumerate(shapes) if shape in names}


def _rows(solver: Any, attribute: str, geoms: Iterable[int]) -> list[list[float]]:
    """Return the numbers of an attribute of some geoms."""
    values = getattr(solver.mjw_model, f"geom_{attribute}").numpy()[0]
    return [list(_rounded(np.atleast_1d(values[geom]))) for geom in geoms]


def _most_common(values: Iterable[T]) -> T:
    return Counter(values).most_common(1)[0][0]


def _declared(parameters: dict[str, ConstraintParameters], names: set[str]) -> dict[str, ConstraintParameters]:
    """Return the parameters of the named joints that differ from MuJoCo's defaults."""
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

    At a violation r, MuJoCo's reference acceleration is $-b\,v - k\,d\,r$, with $b = 2/(d\,t)$ and $k =
    1/(d\,t\,\zeta)^2$ from solref (t, zeta) and the impedance d from solimp, of which the share d is realised. A spring
    and damper on a body of the joint's effective inertia $m = 1/w$ (w: `dof_invweight0`) give the same without other
    forces:

    $$k_e = d\,k\,m, \qquad k_d = d\,b\,m$$

    The spring does not model that MuJoCo cancels the share d of other forces, so that a joint under torque rests closer
    to its limit in the simulator. `solver` is the robot's `constraint_solver`; None to create one.
    """
    limited = _limited(robot)
    if not limited:  # avoids creating a solver
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
        else:  # solref holds negative stiffness and damping
            k, b = -time / impedance**2, -ratio / impedance
        springs[names[int(dof)]] = (impedance * k * mass, impedance * b * mass)
    return {name: spring for name, spring in springs.items() if name in limited}


def mechanism(model: "newton.Model", robot: Robot, *, every_contact: bool = False) -> Mechanism:
    """Return the tree of links in world 0 of a model, bodies merged across fixed joints.

    Stiffness and damping of joint limits are the model's for Featherstone, and the equivalent springs of the
    constraints for MuJoCo (`limit_springs`). MuJoCo's constraint parameters are included too.

    Args:
        model: A model of worlds with the robot and no other moving bodies.
        robot: The declared robot.
        every_contact: Whether the contact points are those at which the simulator finds contacts on a plane, instead of
            the declared ones; the mechanism then has the robot's shapes too.

    Raises:
        InputError: The model has other joints, or a contact point selection matches nothing.
    """
    arrays: Any = model
    mass, com, inertia = (getattr(arrays, f"body_{x}").numpy().astype(float) for x in ("mass", "com", "inertia"))
    groups, carrier = body_groups(model), carriers(model, robot)
    leader = {index: body for body, index in carrier.items()}
    joint_of = {int(child): joint for joint, child in enumerate(arrays.joint_child.numpy().tolist())}
    springs, constraints = {}, SoftConstraints()
    if robot.simulator.solver == "mujoco" and (robot.contact_points is not None or _limited(robot)):
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


def _limited(robot: Robot) -> set[str]:
    """Return the names of the joints with limits."""
    return {joint.name for joint in robot.joints if joint.scalar and joint.lower is not None}


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

# SPDX-License-Identifier: Apache-2.0
"""The soft constraints of a robot in MuJoCo, read from the model that Newton makes of it.

Newton turns the stiffness and damping of shapes and joint limits into MuJoCo's solref; what stands in its model is what
acts.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from neurodyn.core.description.soft_constraints import ConstraintParameters, SoftConstraints
from neurodyn.robots import Robot
from neurodyn.sim.build import build
from neurodyn.sim.contact_points import collides
from neurodyn.sim.engine import import_newton

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

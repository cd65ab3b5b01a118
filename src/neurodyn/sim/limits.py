# SPDX-License-Identifier: Apache-2.0
"""Joint limits of MuJoCo as springs and dampers, which is what a mechanism has."""

from typing import Any

from neurodyn.robots import Robot
from neurodyn.sim.soft_constraints import constraint_solver


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

# SPDX-License-Identifier: Apache-2.0
"""Laws of contact forces: convex model-predictive control, and whatever imitates it."""

from typing import Protocol

import numpy as np

from neurodyn.control.mpc.quadratic_program import SOLVERS
from neurodyn.control.mpc.quadruped import LEGS, Quadruped
from neurodyn.control.mpc.rigid_body import RigidBodyPrediction
from neurodyn.control.mpc.settings import MpcSettings
from neurodyn.control.mpc.situation import Situation


class ForceLaw(Protocol):
    """Decides on the forces of feet."""

    def __call__(self, at: Situation) -> np.ndarray:
        """Return the forces on the robot, heading frame [N], shape [worlds, 4, 3]; NaN in worlds without a decision."""
        ...


class ConvexMpc:
    """Forces by the quadratic program of a single rigid body over a horizon."""

    def __init__(self, quadruped: Quadruped, settings: MpcSettings | None = None) -> None:
        """Take a robot.

        Raises:
            InputError: There is no such solver.
        """
        self.settings = settings or MpcSettings()
        self._greatest = self.settings.greatest_force * quadruped.mass * quadruped.gravity
        self._prediction = RigidBodyPrediction(quadruped, self.settings)
        self._solve = SOLVERS[self.settings.solver]

    def __call__(self, at: Situation) -> np.ndarray:
        """Return the forces of every world; NaN where the solver finds none."""
        forces = np.full((at.worlds, LEGS, 3), np.nan)
        for world, program in enumerate(self._prediction.programs(at)):
            if not len(program.step):
                forces[world] = 0.0
                continue
            if not (np.isfinite(program.H).all() and np.isfinite(program.g).all()):
                continue
            found = self._solve(program.H, program.g, self.settings.friction, self._greatest)
            if found is not None and np.isfinite(found).all():
                forces[world] = program.first(found)
        return forces


def feasible(forces: np.ndarray, contact: np.ndarray, friction: float, greatest: float) -> np.ndarray:
    """Return forces brought into the friction pyramids, and to zero where feet swing, shape [..., 4, 3].

    Args:
        forces: Forces [N], shape [..., 4, 3].
        contact: Which feet stand, shape [..., 4].
        friction: Coefficient of friction.
        greatest: Greatest vertical force [N].
    """
    found = forces * contact[..., None]
    across, vertical = found[..., :2], found[..., 2:]
    # In place and without np.clip, which takes longer than the network that needs it.
    np.minimum(np.maximum(vertical, 0.0, out=vertical), greatest, out=vertical)
    most = friction * vertical
    np.minimum(np.maximum(across, -most, out=across), most, out=across)
    return found

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


class FrictionPyramids:
    """What feet can exert on the ground; brings forces there in fewer calls of numpy than `np.clip` alone makes."""

    def __init__(self, friction: float, greatest: float) -> None:
        """Take the coefficient of friction and the greatest vertical force of a foot [N]."""
        self._slopes = np.array([friction, friction, 1.0], np.float32)
        self._greatest, self._zero = np.array(greatest, np.float32), np.zeros((), np.float32)

    def nearest(self, forces: np.ndarray, contact: np.ndarray) -> np.ndarray:
        """Return forces brought into the pyramids, and to zero where feet swing, shape [..., 4, 3].

        Args:
            forces: Forces [N], shape [..., 4, 3].
            contact: Which feet stand, or 1 and 0, shape [..., 4].
        """
        vertical = np.minimum(np.maximum(forces[..., 2], self._zero), contact * self._greatest)
        most = vertical[..., None] * self._slopes
        return np.minimum(np.maximum(forces, -most), most)

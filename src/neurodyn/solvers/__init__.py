# SPDX-License-Identifier: Apache-2.0
"""Solvers for Newton's own simulation loops; Newton is imported when one of them is asked for."""

from pathlib import Path
from typing import TYPE_CHECKING

from neurodyn.core.lazy import lazy
from neurodyn.dynamics.kinds import KINDS

if TYPE_CHECKING:
    from neurodyn.solvers.hybrid import SolverHybrid
    from neurodyn.solvers.learned import SolverLearned
    from neurodyn.solvers.neural import SolverNeural

__all__ = ["SolverHybrid", "SolverNeural", "make_solver"]

KINDS["hybrid"].add("solver", "neurodyn.solvers.hybrid:SolverHybrid")
KINDS["neural"].add("solver", "neurodyn.solvers.neural:SolverNeural")


def make_solver(model: object, run: str | Path) -> "SolverLearned":
    """Return the solver for the model of a run, whatever its kind.

    Args:
        model: A Newton model: worlds that each hold the robot.
        run: A run directory, or "pretrained:NAME".

    Raises:
        InputError: As of `SolverNeural`, or the model cannot take the place of a solver.
    """
    from neurodyn.dynamics.artifact import kind_of

    return KINDS[kind_of(run)].part("solver", str(run))(model, run)


lazy(__name__)

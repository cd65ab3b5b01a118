# SPDX-License-Identifier: Apache-2.0
"""The solver for a model, by its kind."""

from pathlib import Path
from typing import TYPE_CHECKING

from neurodyn.dynamics.files.artifact import kind_of
from neurodyn.dynamics.kinds import KINDS

if TYPE_CHECKING:
    import newton

    from neurodyn.solvers.learned import SolverLearned

KINDS["neural"].add("solver", "neurodyn.solvers.neural:SolverNeural")
KINDS["hybrid"].add("solver", "neurodyn.solvers.hybrid:SolverHybrid")


def make_solver(model: "newton.Model", run: str | Path) -> "SolverLearned":
    """Return the solver for the model of a run, whatever its kind.

    Args:
        model: Worlds that each hold the robot.
        run: A run directory, or "pretrained:NAME".

    Raises:
        InputError: As of `SolverNeural`, or the model cannot take the place of a solver.
    """
    return KINDS[kind_of(run)].part("solver", str(run))(model, run)

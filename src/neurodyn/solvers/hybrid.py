# SPDX-License-Identifier: Apache-2.0
"""A hybrid model as a solver of Newton."""

from pathlib import Path
from typing import TYPE_CHECKING

from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.solvers.guard import OnFault
from neurodyn.solvers.learned import SolverLearned, torch_device

if TYPE_CHECKING:
    import newton


class SolverHybrid(SolverLearned):
    """Steps the robots of all worlds by one frame with a hybrid model; see `SolverLearned`.

    Attributes:
        dynamics: The hybrid model.
    """

    def __init__(
        self,
        model: "newton.Model",
        run: str | Path | HybridDynamics,
        *,
        on_fault: OnFault = "stop",
        nan: str | Path | None = None,
    ) -> None:
        """Load a hybrid model for the robots of a Newton model.

        Args:
            model: Worlds that each hold the robot, with its nominal parameters.
            run: A run directory, or a hybrid model.
            on_fault: As of `SolverLearned`, like `nan`.
            nan: Folder for the states before faults; None to write none.

        Raises:
            InputError: There is no such run, something moves in the worlds that is not the robot, or the ground is
                of shapes that cannot be measured against.
            MismatchError: The robots are not the one that the model was identified for; the message names the
                differences.
        """
        dynamics = HYBRID.load(run) if isinstance(run, str | Path) else run
        super().__init__(model, dynamics.to(torch_device(model)), on_fault=on_fault, nan=nan)

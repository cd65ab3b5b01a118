# SPDX-License-Identifier: Apache-2.0
"""Newton solvers for models of each kind, and for the model of a run."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import kind_of
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.kinds import KINDS
from neurodyn.dynamics.neural.model import NEURAL, NeuralDynamics
from neurodyn.solvers.learned import OnFault, SolverLearned, torch_device

if TYPE_CHECKING:
    import newton


def make_solver(model: "newton.Model", run: str | Path) -> SolverLearned:
    """Return the Newton solver for the model of a run, whatever its kind.

    Args:
        model: Worlds that each hold the robot.
        run: A run directory, or "pretrained:NAME".

    Raises:
        InputError: See `SolverNeural`; or models of this kind cannot serve as a solver.
    """
    return KINDS[kind_of(run)].solver.get(run)(model, run)


class SolverHybrid(SolverLearned):
    """Steps the robots of all worlds by one frame with a hybrid model, its `dynamics`; see `SolverLearned`."""

    def __init__(
        self,
        model: "newton.Model",
        run: str | Path | HybridDynamics,
        *,
        on_fault: OnFault = "stop",
        nan: str | Path | None = None,
    ) -> None:
        """Load a hybrid model for the robots of a Newton model. Other arguments and errors: see `SolverLearned`.

        Args:
            model: Worlds that each hold the robot, with its nominal parameters.
            run: A run directory, or a hybrid model.
            on_fault: See `SolverLearned`.
            nan: See `SolverLearned`.
        """
        dynamics = HYBRID.load(run) if isinstance(run, str | Path) else run
        super().__init__(model, dynamics.to(torch_device(model)), on_fault=on_fault, nan=nan)


class SolverNeural(SolverLearned):
    """Steps the robots of all worlds by one frame with a neural model, its `dynamics`; see `SolverLearned`.

    A model that was trained with contact points measures the ground from the state of each frame, as in training.
    """

    def __init__(
        self,
        model: "newton.Model",
        run: str | Path | NeuralDynamics,
        *,
        on_fault: OnFault = "stop",
        nan: str | Path | None = None,
    ) -> None:
        """Load a neural model for the robots of a Newton model. Other arguments and errors: see `SolverLearned`.

        Args:
            model: Worlds that each hold the robot.
            run: A run directory, "pretrained:NAME", or a neural model on the device of `model`.
            on_fault: See `SolverLearned`.
            nan: See `SolverLearned`.
        """
        device = torch_device(model)
        dynamics = NEURAL.load(run, device=str(device)) if isinstance(run, str | Path) else run
        weight = next(dynamics.parameters())
        if weight.device != device or weight.dtype != torch.float32:
            raise InputError(
                f"SolverNeural: the neural model holds {weight.dtype} on {weight.device}; valid: torch.float32 on "
                f"{device}, where the Newton model is"
            )
        super().__init__(model, dynamics, on_fault=on_fault, nan=nan)

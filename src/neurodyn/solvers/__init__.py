# SPDX-License-Identifier: Apache-2.0
"""Solvers for Newton's own simulation loops; Newton is imported when one of them is asked for."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurodyn.dynamics.artifact import kind_of
from neurodyn.dynamics.kinds import KINDS

if TYPE_CHECKING:
    import newton

    from neurodyn.solvers.hybrid import SolverHybrid
    from neurodyn.solvers.learned import SolverLearned
    from neurodyn.solvers.neural import SolverNeural

__all__ = ["SolverHybrid", "SolverNeural", "make_solver"]

_MODULES = {"SolverHybrid": "hybrid", "SolverNeural": "neural"}

for _name, _module in _MODULES.items():
    KINDS[_module].add("solver", f"neurodyn.solvers.{_module}:{_name}")


def make_solver(model: "newton.Model", run: str | Path) -> "SolverLearned":
    """Return the solver for the model of a run, whatever its kind.

    Args:
        model: Worlds that each hold the robot.
        run: A run directory, or "pretrained:NAME".

    Raises:
        InputError: As of `SolverNeural`, or the model cannot take the place of a solver.
    """
    return KINDS[kind_of(run)].part("solver", str(run))(model, run)


def __getattr__(name: str) -> Any:
    """Import a solver on first use.

    Raises:
        InputError: Newton is not installed.
    """
    if name in _MODULES:
        return getattr(import_module(f"neurodyn.solvers.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

# SPDX-License-Identifier: Apache-2.0
"""Solvers for Newton's own simulation loops; Newton is imported when one of them is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neurodyn.solvers.by_kind import make_solver
    from neurodyn.solvers.hybrid import SolverHybrid
    from neurodyn.solvers.neural import SolverNeural

__all__ = ["SolverHybrid", "SolverNeural", "make_solver"]

_MODULES = {"SolverHybrid": "hybrid", "SolverNeural": "neural", "make_solver": "by_kind"}


def __getattr__(name: str) -> Any:
    """Import a solver on first use.

    Raises:
        InputError: Newton is not installed.
    """
    if name in _MODULES:
        return getattr(import_module(f"neurodyn.solvers.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

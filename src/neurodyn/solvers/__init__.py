# SPDX-License-Identifier: Apache-2.0
"""Solvers for Newton's own simulation loops; Newton is imported when one of them is asked for."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neurodyn.solvers.hybrid import SolverHybrid
    from neurodyn.solvers.neural import SolverNeural

__all__ = ["SolverHybrid", "SolverNeural"]


def __getattr__(name: str) -> Any:
    """Import a solver on first use.

    Raises:
        InputError: Newton is not installed.
    """
    if name == "SolverNeural":
        from neurodyn.solvers.neural import SolverNeural

        return SolverNeural
    if name == "SolverHybrid":
        from neurodyn.solvers.hybrid import SolverHybrid

        return SolverHybrid
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

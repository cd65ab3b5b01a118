# SPDX-License-Identifier: Apache-2.0
"""Solvers for Newton's own simulation loops; Newton is imported when one of them is asked for."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.solvers.beside import SolverBeside
    from neurodyn.solvers.learned import SolverHybrid, SolverNeural, make_solver

__all__ = ["SolverBeside", "SolverHybrid", "SolverNeural", "make_solver"]

# SPDX-License-Identifier: Apache-2.0
"""Solvers for Newton's own simulation loops; Newton is imported when one of them is accessed."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.solvers.beside import SolverBeside
    from neurodyn.solvers.learned import SolverHybrid, SolverNeural, make_solver
    from neurodyn.solvers.scripts import declare_model, solvers_replaced

__all__ = ["SolverBeside", "SolverHybrid", "SolverNeural", "declare_model", "make_solver", "solvers_replaced"]

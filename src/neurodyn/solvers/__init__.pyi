# SPDX-License-Identifier: Apache-2.0
from .beside import SolverBeside as SolverBeside
from .learned import SolverHybrid as SolverHybrid, SolverNeural as SolverNeural, make_solver as make_solver

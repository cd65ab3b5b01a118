# SPDX-License-Identifier: Apache-2.0
r"""Quadratic programs of contact forces behind one call: minimise $\tfrac12 x^T H x + g^T x$ in friction pyramids.

The unknowns are ordered as all vertical forces, then all forces along x, then all along y, so that the bounds of the
vertical ones are simple bounds.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry

Solver = Callable[[np.ndarray, np.ndarray, float, float], np.ndarray | None]
"""From H, g, the coefficient of friction and the greatest vertical force [N] to x; None where no x was found."""

_FREE = 1e30


@lru_cache(maxsize=128)
def pyramids(count: int, friction: float, greatest: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Return $A, l, u$ of $l \le (f_z, A x) \le u$: $0 \le f_z \le f_{max}$ and $|f_x|, |f_y| \le \mu f_z$.

    Args:
        count: Number of forces.
        friction: Coefficient of friction.
        greatest: Greatest vertical force [N].

    Returns:
        Rows on x, shape [4 count, 3 count], and bounds of the vertical forces and the rows, shape [5 count].
    """
    one, none = np.eye(count), np.zeros((count, count))
    rows = np.block(
        [[-friction * one, one, none], [friction * one, one, none], [-friction * one, none, one],
         [friction * one, none, one]]
    )  # fmt: skip
    zero, free = np.zeros(count), np.full(count, _FREE)
    lower = np.concatenate([zero, -free, zero, -free, zero])
    upper = np.concatenate([np.full(count, greatest), zero, free, zero, free])
    return rows, lower, upper


def solve_daqp(H: np.ndarray, g: np.ndarray, friction: float, greatest: float) -> np.ndarray | None:
    """Solve by daqp, a dual active-set method (Arnström et al. 2022, "A dual active-set solver for embedded QP")."""
    rows, lower, upper = pyramids(len(g) // 3, friction, greatest)
    x, _, flag, _ = _package("daqp").solve(H, g, rows, upper, lower)
    return x if flag > 0 else None


def solve_quadprog(H: np.ndarray, g: np.ndarray, friction: float, greatest: float) -> np.ndarray | None:
    """Solve by quadprog, the dual method of Goldfarb and Idnani (1983)."""
    columns, bounds = _one_sided(len(g) // 3, friction, greatest)
    try:
        return _package("quadprog").solve_qp(H, -g, columns, bounds)[0]
    except ValueError:  # infeasible, or H is not positive definite
        return None


def solve_osqp(H: np.ndarray, g: np.ndarray, friction: float, greatest: float) -> np.ndarray | None:
    """Solve by osqp, an operator-splitting method, to 1e-5 (its default of 1e-3 is several newtons off)."""
    from scipy import sparse

    rows, lower, upper = pyramids(len(g) // 3, friction, greatest)
    whole = np.vstack([np.eye(len(g) // 3, len(g)), rows])
    problem = _package("osqp").OSQP()
    problem.setup(
        sparse.csc_matrix(np.triu(H)), g, sparse.csc_matrix(whole), lower, upper, verbose=False, eps_abs=1e-5,
        eps_rel=1e-5,
    )  # fmt: skip
    found = problem.solve()
    return found.x if found.info.status == "solved" else None


SOLVERS: Registry[Solver] = Registry("solver", daqp=solve_daqp, quadprog=solve_quadprog, osqp=solve_osqp)
"""Solvers by name; the first comes with the extra "control", the others are installed by whoever wants them."""


def _package(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        hint = "neurodyn[control]" if name == "daqp" else f"{name}, or choose the solver daqp"
        raise InputError(f"solver {name!r} needs the package {name}, which is not installed; install {hint}") from None


@lru_cache(maxsize=128)
def _one_sided(count: int, friction: float, greatest: float) -> tuple[np.ndarray, np.ndarray]:
    """Return C and b of $C^T x >= b$, as quadprog takes constraints."""
    rows, lower, upper = pyramids(count, friction, greatest)
    whole = np.vstack([np.eye(count, 3 * count), rows])
    below, above = lower > -_FREE, upper < _FREE
    columns = np.concatenate([whole[below], -whole[above]]).T
    return np.ascontiguousarray(columns), np.concatenate([lower[below], -upper[above]])

# SPDX-License-Identifier: Apache-2.0
"""Convex model-predictive control of contact forces: settings, quadratic programs, and their solvers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from neurodyn.core.config import Config, require_numbers
from neurodyn.core.errors import InputError, require
from neurodyn.core.extras import import_extra
from neurodyn.core.registry import Registry
from neurodyn.walking.quadruped import LEGS, Quadruped
from neurodyn.walking.state import ForceInputs, footholds, rotate

Solver = Callable[[np.ndarray, np.ndarray, float, float], np.ndarray | None]
"""From H, g, the coefficient of friction and the vertical force limit [N] to x; None if no x was found."""

_FREE = 1e30


@lru_cache(maxsize=128)
def pyramids(count: int, friction: float, greatest: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Return $A, l, u$ of $l \le (f_z, A x) \le u$: $0 \le f_z \le f_{max}$ and $|f_x|, |f_y| \le \mu f_z$.

    Args:
        count: Number of forces.
        friction: Coefficient of friction.
        greatest: Vertical force limit [N].

    Returns:
        Rows on x, shape [4 count, 3 count], and bounds of the vertical forces and the rows, shape [5 count].
    """
    identity, none = np.eye(count), np.zeros((count, count))
    rows = np.block(
        [[-friction * identity, identity, none], [friction * identity, identity, none],
         [-friction * identity, none, identity], [friction * identity, none, identity]]
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
    columns, bounds = _one_sided_constraints(len(g) // 3, friction, greatest)
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
    solution = problem.solve()
    return solution.x if solution.info.status == "solved" else None


QP_SOLVERS: Registry[Solver] = Registry("solver", daqp=solve_daqp, quadprog=solve_quadprog, osqp=solve_osqp)
"""Solvers by name; the first comes with the extra "control", the others are installed separately."""


def _package(name: str) -> Any:
    if name == "daqp":
        return import_extra(name, "solver 'daqp'", "control")
    try:
        return import_module(name)
    except ImportError:
        raise InputError(
            f"solver {name!r} needs {name}, which is not installed; install it, or choose the solver daqp"
        ) from None


@lru_cache(maxsize=128)
def _one_sided_constraints(count: int, friction: float, greatest: float) -> tuple[np.ndarray, np.ndarray]:
    """Return C and b of $C^T x >= b$, quadprog's form of constraints."""
    rows, lower, upper = pyramids(count, friction, greatest)
    whole = np.vstack([np.eye(count, 3 * count), rows])
    below, above = lower > -_FREE, upper < _FREE
    columns = np.concatenate([whole[below], -whole[above]]).T
    return np.ascontiguousarray(columns), np.concatenate([lower[below], -upper[above]])


Weights = tuple[float, float, float, float, float, float, float, float, float, float, float, float]


class MpcSettings(Config, frozen=True):
    """Settings of the quadruped controller; defaults as in Di Carlo et al. (IROS 2018) and NeuralSim.

    Attributes:
        horizon: Steps of the prediction.
        step: Length of a step [s].
        weights: Weights of squared errors of roll, pitch, yaw, x, y, z, angular velocity and velocity.
        effort: Weight of squared forces, with forces in robot weights; 0.18 is 1e-5/N^2 for an A1.
        friction: Coefficient of friction of the pyramids; below that of the ground.
        greatest_force: Vertical force limit of a foot, in robot weights.
        solver: Name of a solver of quadratic programs (`walking.convex_mpc.QP_SOLVERS`).
        interval: Time between decisions on forces [s].
        clearance: Swing height of feet, in heights of the centre of mass; None for 0.3, or less if the drives are too
            weak (`walking.controller`).
        foot_gain: Gain of foot placement on the velocity error [s].
        swing_frequency: Natural frequency of swing-foot control [rad/s]; None for 40, or less if the drives are too
            weak. If both clearance and frequency are given, commands are not limited.
        swing_damping: Damping ratio of swing-foot control.
        yaw_reach: Largest heading error that is corrected at once [rad].
    """

    horizon: int = 10
    step: float = 0.025
    weights: Weights = (5.0, 5.0, 0.2, 0.0, 0.0, 10.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0)
    effort: float = 0.18
    friction: float = 0.45
    greatest_force: float = 1.0
    solver: str = "daqp"
    interval: float = 0.01
    clearance: float | None = None
    foot_gain: float = 0.1
    swing_frequency: float | None = None
    swing_damping: float = 0.7
    yaw_reach: float = 0.5

    def __post_init__(self) -> None:
        require(self.horizon >= 1, "horizon", self.horizon, "at least 1")
        for name in ("step", "effort", "friction", "greatest_force", "interval", "swing_frequency"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "above 0")
        require_numbers(self)


@dataclass(frozen=True)
class ForceProgram:
    """The quadratic program of one world; unknowns are all $f_z$, then all $f_x$, then all $f_y$.

    Attributes:
        H: Half the Hessian of the cost.
        g: Half the gradient at zero.
        step: Step of each force, shape [forces].
        leg: Leg of each force, shape [forces].
    """

    H: np.ndarray
    g: np.ndarray
    step: np.ndarray
    leg: np.ndarray

    def first(self, x: np.ndarray) -> np.ndarray:
        """Return the forces of the first step, heading frame [N], shape [4, 3]."""
        count, forces = len(self.step), np.zeros((4, 3))
        now = int(np.searchsorted(self.step, 1))
        z, along_x, along_y = x[:now], x[count : count + now], x[2 * count : 2 * count + now]
        forces[self.leg[:now]] = np.stack([along_x, along_y, z], 1)
        return forces


class RigidBodyPrediction:
    """Builds the quadratic programs of a robot."""

    def __init__(self, quadruped: Quadruped, settings: MpcSettings) -> None:
        """Compute everything that does not depend on the robot's state."""
        n, h = settings.horizon, settings.step
        self._quadruped, self._settings = quadruped, settings
        self._effort = settings.effort / (quadruped.mass * quadruped.gravity) ** 2
        self._inverse = np.linalg.inv(quadruped.inertia)
        self._ahead = np.arange(n) * h
        self._times = (np.arange(n) + 1.0) * h
        gap = np.arange(1, n + 1)[:, None] - np.arange(n) - 0.5
        self._reach = np.where(gap > 0, gap, 0.0) * h * h
        self._positions = self._reach.T @ self._reach
        self._velocities = h * h * (n - np.maximum.outer(np.arange(n), np.arange(n)))
        weights = np.array(settings.weights)
        self._of_position, self._of_velocity = weights[:6], weights[6:]

    def programs(self, inputs: ForceInputs) -> list[ForceProgram]:
        """Return the program of every world."""
        contact, arms = self._schedule(inputs)
        first, second = self._errors(inputs)
        pull = np.einsum("kj,wkc->wjc", self._reach, first * self._of_position)
        pull += self._settings.step * np.cumsum((second * self._of_velocity)[:, ::-1], 1)[:, ::-1]
        return [self._program(c, r, p) for c, r, p in zip(contact, arms, pull, strict=True)]

    def _program(self, contact: np.ndarray, arms: np.ndarray, pull: np.ndarray) -> ForceProgram:
        step, leg = np.nonzero(contact)
        count = len(step)
        x, y, z = arms[step, leg].T
        none, mass = np.zeros(count), 1.0 / self._quadruped.mass
        columns = np.zeros((6, 3 * count))
        columns[:3] = self._inverse @ np.array(
            [np.concatenate([y, none, -z]), np.concatenate([-x, z, none]), np.concatenate([none, -y, x])]
        )
        columns[5, :count] = columns[3, count : 2 * count] = columns[4, 2 * count :] = mass
        steps = np.concatenate([step, step, step])
        H = self._positions[steps[:, None], steps] * (columns.T @ (self._of_position[:, None] * columns))
        H += self._velocities[steps[:, None], steps] * (columns.T @ (self._of_velocity[:, None] * columns))
        H.flat[:: 3 * count + 1] += self._effort
        g = np.einsum("cn,nc->n", columns, pull[steps])
        share = self._quadruped.mass * self._quadruped.gravity / contact.sum(1)[step]
        g[:count] -= self._effort * share
        return ForceProgram(H, g, step, leg)

    def _schedule(self, inputs: ForceInputs) -> tuple[np.ndarray, np.ndarray]:
        """Return feet in stance by step, [worlds, steps, 4], and their positions from the centre of mass, [..., 3].

        A standing foot stays in place while the body moves as commanded; a swinging foot is assumed to land at
        `footholds`.
        """
        gait, command, ahead = inputs.gait, inputs.command, self._ahead
        phase = (inputs.phase[:, None] + ahead[:, None] / gait.period) % 1.0
        contact = gait.stands(phase)
        way = _travel(command, ahead)
        standing = inputs.contact[:, None] & (ahead[:, None] < gait.left(inputs.phase)[:, None] - 1e-9)
        landing = gait.left(inputs.phase) + np.where(inputs.contact, gait.swing, 0.0)
        places = footholds(
            self._quadruped, gait, self._settings.foot_gain, inputs.velocity, command, np.zeros((inputs.worlds, 4))
        )
        # Relative to the centre of mass at landing, in the heading frame of that time; the body moves on from there.
        since = np.maximum(ahead[:, None] - landing[:, None], 0.0)
        moved = places[:, None, :, :2] - command[:, None, None, :2] * since[..., None]
        x, y = rotate((command[:, 2:] * ahead)[..., None], moved[..., 0], moved[..., 1])
        planned = np.stack([x, y, np.broadcast_to(places[:, None, :, 2], x.shape)], -1)
        planned[..., 2] -= inputs.height[:, None, None]
        arms = inputs.feet[:, None] - way[:, :, None]
        return contact, np.where(standing[..., None], arms, planned)

    def _errors(self, inputs: ForceInputs) -> tuple[np.ndarray, np.ndarray]:
        """Return errors of positions and velocities without forces against the references, [worlds, steps, 6] each."""
        t = self._times[:, None]
        worlds, count = inputs.worlds, len(t)
        first, second = np.zeros((worlds, count, 6)), np.zeros((worlds, count, 6))
        first[..., :2] = inputs.tilt[:, None]
        first[..., 2] = -inputs.yaw[:, None] - inputs.command[:, 2:] * self._times
        first[..., :3] += t * inputs.spin[:, None]
        first[..., 3:] = t * inputs.velocity[:, None]
        first[..., 5] += inputs.height[:, None] - 0.5 * self._quadruped.gravity * self._times**2
        second[..., :3], second[..., 3:] = inputs.spin[:, None], inputs.velocity[:, None]
        second[..., 2] -= inputs.command[:, 2:]
        vx, vy = rotate(inputs.command[:, 2:] * self._times, *inputs.command[:, :2].T[..., None])
        second[..., 3] -= vx
        second[..., 4] -= vy
        second[..., 5] -= self._quadruped.gravity * self._times
        return first, second


def _travel(command: np.ndarray, ahead: np.ndarray) -> np.ndarray:
    """Return the path of a base that tracks the command exactly [m], initial heading frame, [worlds, steps, 3]."""
    half = 0.5 * command[:, 2:] * ahead  # chord of a circle, to second order
    x, y = rotate(half, command[:, 0:1] * ahead, command[:, 1:2] * ahead)
    return np.stack([x, y, np.zeros_like(x)], -1)


class ForceLaw(Protocol):
    """Computes the contact forces of the feet."""

    def __call__(self, inputs: ForceInputs) -> np.ndarray:
        """Return the forces on the robot, heading frame [N], shape [worlds, 4, 3]; NaN in worlds without a solution."""
        ...


class ConvexMpc:
    """Forces by the quadratic program of a single rigid body over a horizon."""

    def __init__(self, quadruped: Quadruped, settings: MpcSettings | None = None) -> None:
        """Build the controller for a robot.

        Raises:
            InputError: There is no such solver.
        """
        self.settings = settings or MpcSettings()
        self._greatest = self.settings.greatest_force * quadruped.mass * quadruped.gravity
        self._prediction = RigidBodyPrediction(quadruped, self.settings)
        self._solve = QP_SOLVERS[self.settings.solver]

    def __call__(self, inputs: ForceInputs) -> np.ndarray:
        """Return the forces of every world; NaN if the solver finds none."""
        forces = np.full((inputs.worlds, LEGS, 3), np.nan)
        for world, program in enumerate(self._prediction.programs(inputs)):
            if not len(program.step):
                forces[world] = 0.0
                continue
            if not (np.isfinite(program.H).all() and np.isfinite(program.g).all()):
                continue
            solution = self._solve(program.H, program.g, self.settings.friction, self._greatest)
            if solution is not None and np.isfinite(solution).all():
                forces[world] = program.first(solution)
        return forces


class FrictionPyramids:
    """Friction pyramids of the feet; projects forces with fewer numpy calls than `np.clip` needs."""

    def __init__(self, friction: float, greatest: float) -> None:
        """Set the coefficient of friction and the vertical force limit of a foot [N]."""
        self._slopes = np.array([friction, friction, 1.0], np.float32)
        self._greatest, self._zero = np.array(greatest, np.float32), np.zeros((), np.float32)

    def nearest(self, forces: np.ndarray, contact: np.ndarray) -> np.ndarray:
        """Return forces projected into the pyramids, and zero for swinging feet, shape [..., 4, 3].

        Args:
            forces: Forces [N], shape [..., 4, 3].
            contact: Which feet stand, bool or 1 and 0, shape [..., 4].
        """
        vertical = np.minimum(np.maximum(forces[..., 2], self._zero), contact * self._greatest)
        most = vertical[..., None] * self._slopes
        return np.minimum(np.maximum(forces, -most), most)

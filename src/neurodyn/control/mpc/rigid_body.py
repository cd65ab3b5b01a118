# SPDX-License-Identifier: Apache-2.0
r"""The forces of feet on one rigid body over a horizon, as a condensed quadratic program.

Di Carlo et al., "Dynamic Locomotion in the MIT Cheetah 3 Through Convex Model-Predictive Control" (IROS 2018). In the
heading frame, for small roll and pitch,

$$\ddot\theta = I^{-1} \sum_i r_i \times f_i, \qquad \ddot p = \tfrac1m \sum_i f_i + g,$$

which is a double integrator of $y = (\theta, p)$. With the forces held over steps of length h,

$$y_k = y_0 + k h \dot y_0 + \tfrac{(kh)^2}{2} g + \sum_{j<k} a_{kj} G_j u_j, \quad
\dot y_k = \dot y_0 + k h g + \sum_{j<k} h\, G_j u_j, \quad a_{kj} = (k - j - \tfrac12) h^2,$$

$$G_j = \begin{pmatrix} I^{-1} [r_j]_\times \\ \tfrac1m 1 \end{pmatrix},$$

so that of $\sum_k |y_k - y_k^{ref}|^2_{W_1} + |\dot y_k - \dot y_k^{ref}|^2_{W_2} + \alpha |u - u^0|^2$ half the
Hessian is

$$H_{ij} = c_{ij}\, G_i^T W_1 G_j + d_{ij}\, G_i^T W_2 G_j + \alpha 1, \qquad
c_{ij} = \sum_{k > \max(i, j)} a_{ki} a_{kj}, \quad d_{ij} = h^2 (N - \max(i, j)),$$

without the powers of a 13 by 13 matrix. Only feet that stand have columns. In place of $u^0 = 0$ of the paper, each of
them carries an even share of the weight: otherwise the last steps of the horizon are cheaper to fall than to stand, the
first forces make up for it, and the robot stands 17 mm too high.
"""

from dataclasses import dataclass

import numpy as np

from neurodyn.control.mpc.quadruped import Quadruped
from neurodyn.control.mpc.settings import MpcSettings
from neurodyn.control.mpc.situation import Situation, footholds


@dataclass(frozen=True)
class Program:
    """The quadratic program of one world; unknowns as of `quadratic_program`.

    Attributes:
        H: Half the Hessian of the cost.
        g: Half the gradient at zero.
        step: Step of each force, shape [forces].
        leg: Its leg, likewise.
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
        """Take a robot; what does not depend on its state is computed now."""
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

    def programs(self, at: Situation) -> list[Program]:
        """Return the program of every world."""
        contact, arms = self._schedule(at)
        first, second = self._errors(at)
        pull = np.einsum("kj,wkc->wjc", self._reach, first * self._of_position)
        pull += self._settings.step * np.cumsum((second * self._of_velocity)[:, ::-1], 1)[:, ::-1]
        return [self._program(c, r, p) for c, r, p in zip(contact, arms, pull, strict=True)]

    def _program(self, contact: np.ndarray, arms: np.ndarray, pull: np.ndarray) -> Program:
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
        return Program(H, g, step, leg)

    def _schedule(self, at: Situation) -> tuple[np.ndarray, np.ndarray]:
        """Return which feet stand in each step, [worlds, steps, 4], and where from the centre of mass, [..., 3].

        A foot that stands stays where it is, while the body moves on as commanded; one that is to land is taken to do
        so where `footholds` says.
        """
        gait, command, ahead = at.gait, at.command, self._ahead
        phase = (at.phase[:, None] + ahead[:, None] / gait.period) % 1.0
        contact = gait.stands(phase)
        angle = command[:, 2:] * ahead
        c, s = np.cos(angle), np.sin(angle)
        way = _travelled(command, ahead)
        standing = at.contact[:, None] & (ahead[:, None] < gait.left(at.phase)[:, None] - 1e-9)
        landing = gait.left(at.phase) + np.where(at.contact, gait.swing, 0.0)
        places = footholds(
            self._quadruped, gait, self._settings.foot_gain, at.velocity, command, np.zeros((at.worlds, 4))
        )
        # From the centre of mass at the time of landing, heading frame then: the body goes on from there.
        since = np.maximum(ahead[:, None] - landing[:, None], 0.0)
        moved = places[:, None, :, :2] - command[:, None, None, :2] * since[..., None]
        turned = np.stack(
            [
                c[:, :, None] * moved[..., 0] - s[:, :, None] * moved[..., 1],
                s[:, :, None] * moved[..., 0] + c[:, :, None] * moved[..., 1],
            ],
            -1,
        )
        planned = np.concatenate([turned, np.broadcast_to(places[:, None, :, 2:], (*turned.shape[:3], 1))], -1)
        planned[..., 2] -= at.height[:, None, None]
        held = at.feet[:, None] - way[:, :, None]
        return contact, np.where(standing[..., None], held, planned)

    def _errors(self, at: Situation) -> tuple[np.ndarray, np.ndarray]:
        """Return how far positions and velocities without forces are from the references, [worlds, steps, 6] each."""
        t = self._times[:, None]
        worlds, count = at.worlds, len(t)
        first, second = np.zeros((worlds, count, 6)), np.zeros((worlds, count, 6))
        first[..., :2] = at.tilt[:, None]
        first[..., 2] = -at.yaw[:, None] - at.command[:, 2:] * self._times
        first[..., :3] += t * at.spin[:, None]
        first[..., 3:] = t * at.velocity[:, None]
        first[..., 5] += at.height[:, None] - 0.5 * self._quadruped.gravity * self._times**2
        second[..., :3], second[..., 3:] = at.spin[:, None], at.velocity[:, None]
        second[..., 2] -= at.command[:, 2:]
        angle = at.command[:, 2:] * self._times
        c, s, (vx, vy) = np.cos(angle), np.sin(angle), at.command[:, :2].T[..., None]
        second[..., 3] -= c * vx - s * vy
        second[..., 4] -= s * vx + c * vy
        second[..., 5] -= self._quadruped.gravity * self._times
        return first, second


def _travelled(command: np.ndarray, ahead: np.ndarray) -> np.ndarray:
    """Return the way of a body that moves as commanded, heading frame at its start [m], shape [worlds, steps, 3]."""
    angle = 0.5 * command[:, 2:] * ahead  # chord of a circle, to second order
    c, s = np.cos(angle), np.sin(angle)
    x, y = command[:, 0:1] * ahead, command[:, 1:2] * ahead
    return np.stack([c * x - s * y, s * x + c * y, np.zeros_like(x)], -1)

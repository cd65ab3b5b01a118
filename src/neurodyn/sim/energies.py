# SPDX-License-Identifier: Apache-2.0
"""Mechanical energy of states, and bounds of plausible states: declared ranges, and velocities in an energy budget."""

import math

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.spec import places
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.robots import Robot
from neurodyn.robots.plausible import PlausibleBounds, declared_bounds
from neurodyn.robots.sections import Interval
from neurodyn.sim.articulations import Articulation
from neurodyn.sim.interface import Gravity
from neurodyn.sim.sampling import sample_states
from neurodyn.sim.simulators import articulation

_CHUNK = 4096


def energy(robot: Robot, q: Tensor, qd: Tensor, *, gravity: Gravity | None = None) -> tuple[Tensor, Tensor]:
    r"""Return kinetic and potential energy [J] of a batch of states, float64, each of shape [...].

    $$T = \tfrac12 \dot q^T M(q)\,\dot q, \qquad V = -\sum_i m_i\,g \cdot c_i + V_{limits}$$

    with armature in M, centres of mass $c_i$, and the springs of violated joint limits. V is 0 with every centre of
    mass at the world's origin.

    Args:
        robot: The declared robot.
        q: Positions [rad or m], shape [..., nq].
        qd: Velocities [rad/s or m/s], shape [..., nv].
        gravity: Gravity in world axes [m/s^2], shape [3]; None for the robot's.
    """
    spec = robot.spec
    if q.shape[:-1] != qd.shape[:-1] or q.shape[-1] != spec.nq or qd.shape[-1] != spec.nv:
        raise InputError(
            f"energy of {robot.name!r}: q and qd have shapes {tuple(q.shape)} and {tuple(qd.shape)}; "
            f"valid: [..., {spec.nq}] and [..., {spec.nv}]"
        )
    meter = EnergyMeter(articulation(robot), gravity=gravity)
    kinetic, potential = meter.measure(q.detach().cpu().reshape(-1, spec.nq), qd.detach().cpu().reshape(-1, spec.nv))
    return kinetic.reshape(q.shape[:-1]), potential.reshape(q.shape[:-1])


class EnergyMeter:
    """Measures the energy of states of a robot as built."""

    def __init__(self, built: Articulation, *, gravity: Gravity | None = None) -> None:
        """Store the robot, and gravity in world axes [m/s^2], shape [3] or [n, 3]; None for the robot's."""
        self._built = built
        self._gravity = np.asarray(built.gravity if gravity is None else gravity, dtype=float).reshape(-1, 3)

    def measure(self, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
        """Return kinetic and potential energy [J] of states, shapes [n]."""
        parts = [self._measure(*rows) for rows in zip(_rows(q), _rows(qd), strict=True)]
        kinetic, weight = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else ([], [])
        return torch.as_tensor(kinetic), torch.as_tensor(weight) + self._spring_energy(q.cpu().double())

    def _measure(self, q: np.ndarray, qd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        motion = self._built.kinematics(q)
        kinetic = 0.5 * np.einsum("ni,nij,nj->n", qd, motion.mass_matrix(), qd)
        mass = np.array([link.mass for link in self._built.links])
        gravity = np.broadcast_to(self._gravity, (len(q), 3))
        return kinetic, -np.einsum("l,nli,ni->n", mass, motion.centres, gravity)

    def mass_matrix(self, q: Tensor) -> Tensor:
        """Return the mass matrices of positions, float64, shape [n, nv, nv]."""
        return torch.from_numpy(np.concatenate([self._built.kinematics(rows).mass_matrix() for rows in _rows(q)]))

    def _spring_energy(self, q: Tensor) -> Tensor:
        """Return the energy of springs in joints and joint limits [J], shape [n]."""
        total = torch.zeros(len(q), dtype=torch.float64)
        for link, place in zip(self._built.links, places(self._built.joints), strict=True):
            if not link.joint.scalar:
                continue
            at = q[:, place.q.start]
            over = 0.0 if link.upper is None else (at - link.upper).clamp(min=0)
            under = 0.0 if link.lower is None else (link.lower - at).clamp(min=0)
            total += 0.5 * link.limit_stiffness * (over + under) ** 2 + 0.5 * link.stiffness * (at - link.rest) ** 2
        return total


def _rows(x: Tensor) -> list[np.ndarray]:
    """Return rows in pieces of moderate size, float64."""
    return [rows.double().numpy() for rows in x.cpu().split(_CHUNK)]


MARGIN = 1.5
"""Factor on the velocities of the energy budget, since limits can return more energy than one stroke of a drive."""

_STATES = 64


def plausible_bounds(robot: Robot, built: Articulation) -> PlausibleBounds:
    """Return the bounds of plausible states: the declared ones, and for other velocities those of an energy budget.

    `built` is the robot as its simulator built it. Incomplete sampling ranges raise InputError.
    """
    bounds = declared_bounds(robot)
    if all(math.isfinite(upper) for _, upper in bounds.qd):
        return bounds
    return bounds.within(_velocities(robot, built))


def _velocities(robot: Robot, built: Articulation) -> tuple[Interval, ...]:
    meter, (q, qd) = EnergyMeter(built), _fastest(robot)
    mobility = torch.linalg.inv(meter.mass_matrix(q)).diagonal(dim1=-2, dim2=-1).amax(0)
    kinetic, potential = meter.measure(q, qd)
    energy = float((kinetic + potential).max() - potential.min()) + _work(robot, mobility)
    seconds, gravity = robot.frames * robot.dt, float(np.linalg.norm(robot.gravity))
    fall = torch.zeros(robot.spec.nv, dtype=torch.float64)
    if robot.spec.floating:
        energy += built.mass * gravity * max(0.0, (robot.sampling.height or (0.0, 0.0))[0])
        fall[:3] = gravity * seconds
    speed = MARGIN * torch.sqrt(2.0 * energy * mobility) + fall
    return tuple((-value, value) for value in speed.tolist())


def _work(robot: Robot, mobility: Tensor) -> float:
    """Return an upper bound of the work of all drives over a trajectory [J]: over the stroke, or as a free inertia."""
    joints, seconds = {joint.name: joint for joint in robot.joints}, robot.frames * robot.dt
    total = 0.0
    for name, effort in robot.joint_efforts().items():
        joint, dof = joints[name], robot.spec.qd_names.index(name)
        free = 0.5 * float(mobility[dof]) * (effort * seconds) ** 2
        stroke = math.inf if joint.lower is None or joint.upper is None else effort * (joint.upper - joint.lower)
        total += min(free, stroke)
    return total


def _fastest(robot: Robot) -> tuple[Tensor, Tensor]:
    """Return sampled positions, with the maximum initial velocities in random signs."""
    q, _ = sample_states(robot, _STATES, rng := generator(0, "plausible bounds"))
    most = [max(map(abs, robot.sampling_interval("qd", name))) for name in robot.spec.qd_names]
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=(_STATES, len(most))).astype(np.float32))
    return q, signs * torch.tensor(most)

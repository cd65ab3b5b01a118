# SPDX-License-Identifier: Apache-2.0
"""Mechanical energy of states, and bounds of plausible states: declared ranges, and velocities in an energy budget."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.geometry.rotation import rotate
from neurodyn.robots import Robot
from neurodyn.robots.plausible import PlausibleBounds, declared_bounds
from neurodyn.robots.sections import Interval
from neurodyn.sim.build import Gravity, build
from neurodyn.sim.engine import import_newton
from neurodyn.sim.sampling import sample_states

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
    q_rows = q.detach().cpu().float().reshape(-1, spec.nq)
    qd_rows = qd.detach().cpu().float().reshape(-1, spec.nv)
    meter = EnergyMeter(build(robot, max(1, min(len(q_rows), _CHUNK)), gravity=gravity))
    kinetic, potential = meter.measure_all(q_rows, qd_rows, _CHUNK)
    return kinetic.reshape(q.shape[:-1]), potential.reshape(q.shape[:-1])


class EnergyMeter:
    """Measures the energy of states in the worlds of a model.

    Attributes:
        worlds: Number of worlds, and maximum number of states per call.
        total_mass: Mass of the robot [kg].
    """

    def __init__(self, model: Any) -> None:
        """Take a Newton model of worlds with one robot each, with its current gravity."""
        import warp as wp

        self._wp, self._newton, self._model = wp, import_newton(), model
        self.worlds = worlds = max(int(model.world_count), 1)
        self._state = model.state()
        self._gravity = torch.from_numpy(np.asarray(model.gravity.numpy()).reshape(-1, 3)[:worlds]).double()
        self._mass = wp.to_torch(model.body_mass).cpu().view(worlds, -1).double()
        self._com = wp.to_torch(model.body_com).cpu().view(worlds, -1, 3).double()
        self.total_mass = float(self._mass[0].sum())

    def measure(self, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
        """Return kinetic and potential energy [J] of up to `worlds` states, shapes [n]."""
        rates = qd.cpu().double()
        kinetic = 0.5 * torch.einsum("ni,nij,nj->n", rates, self.mass_matrix(q), rates)
        pose = self._wp.to_torch(self._state.body_q).cpu().view(self.worlds, -1, 7).double()
        centre = pose[..., :3] + rotate(pose[..., 3:], self._com)
        weight = torch.einsum("wb,wbi,wi->w", self._mass, centre, self._gravity.expand(self.worlds, 3))
        return kinetic, -weight[: len(q)] + self._spring_energy(q.cpu())

    def measure_all(self, q: Tensor, qd: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """Measure any number of states, shape [n, ...], at most `rows` at once."""
        kinetic, potential = zip(*map(self.measure, q.split(rows), qd.split(rows)), strict=True)
        return torch.cat(kinetic), torch.cat(potential)

    def mass_matrix(self, q: Tensor) -> Tensor:
        """Return the mass matrices of up to `worlds` positions, float64, shape [n, nv, nv]."""
        state, to_torch = self._state, self._wp.to_torch
        to_torch(state.joint_q).view(self.worlds, -1)[: len(q)] = q.to(to_torch(state.joint_q))
        self._newton.eval_fk(self._model, state.joint_q, state.joint_qd, state)
        return to_torch(self._newton.eval_mass_matrix(self._model, state))[: len(q)].cpu().double()

    def _spring_energy(self, q: Tensor) -> Tensor:
        """Return the energy of springs in joints and joint limits [J], shape [n]."""
        model = self._model
        if q.shape[1] * self.worlds != model.joint_dof_count:
            return torch.zeros(len(q), dtype=torch.float64)  # ball and free joints have no springs
        arrays = (
            model.joint_limit_lower, model.joint_limit_upper, model.joint_limit_ke, model.joint_stiffness,
            model.joint_rest_q,
        )  # fmt: skip
        lower, upper, stop, spring, rest = (
            self._wp.to_torch(array).cpu().view(self.worlds, -1)[: len(q)].double() for array in arrays
        )
        beyond = (q.double() - upper).clamp(min=0) + (lower - q.double()).clamp(min=0)
        return (0.5 * stop * beyond**2 + 0.5 * spring * (q.double() - rest) ** 2).sum(-1)


MARGIN = 1.5
"""Factor on the velocities of the energy budget, since limits can return more energy than one stroke of a drive."""

_STATES = 64


def plausible_bounds(robot: Robot, model: Any) -> PlausibleBounds:
    """Return the bounds of plausible states: the declared ones, and an energy budget's for other velocities.

    `model` is a Newton model of worlds with the robot. Incomplete sampling ranges raise InputError.
    """
    bounds = declared_bounds(robot)
    if all(math.isfinite(upper) for _, upper in bounds.qd):
        return bounds
    return bounds.within(_velocities(robot, EnergyMeter(model)))


def _velocities(robot: Robot, meter: EnergyMeter) -> tuple[Interval, ...]:
    q, qd = _fastest(robot)
    inverse = torch.linalg.inv(torch.cat([meter.mass_matrix(rows) for rows in q.split(meter.worlds)]))
    mobility = inverse.diagonal(dim1=-2, dim2=-1).amax(0)
    kinetic, potential = meter.measure_all(q, qd, meter.worlds)
    energy = float((kinetic + potential).max() - potential.min()) + _work(robot, mobility)
    seconds, gravity = robot.frames * robot.dt, float(np.linalg.norm(robot.gravity))
    fall = torch.zeros(robot.spec.nv, dtype=torch.float64)
    if robot.spec.floating:
        energy += meter.total_mass * gravity * max(0.0, (robot.sampling.height or (0.0, 0.0))[0])
        fall[:3] = gravity * seconds
    speed = MARGIN * torch.sqrt(2.0 * energy * mobility) + fall
    return tuple((-value, value) for value in speed.tolist())


def _work(robot: Robot, mobility: Tensor) -> float:
    """Return an upper bound of the work of all drives over a trajectory [J]: over the stroke, or as a free inertia."""
    joints, seconds = {joint.name: joint for joint in robot.joints}, robot.frames * robot.dt
    total = 0.0
    for dof, (name, effort) in zip(robot.spec.control_dofs, robot.actuated.items(), strict=True):
        joint = joints[name]
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

# SPDX-License-Identifier: Apache-2.0
"""Mechanical energy of states, as a check on dynamics: without drive, friction and limits it is conserved."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.geometry.rotation import rotate
from neurodyn.robots import Robot
from neurodyn.sim.build import Gravity, build
from neurodyn.sim.engine import import_newton

_CHUNK = 4096


def energy(robot: Robot, q: Tensor, qd: Tensor, *, gravity: Gravity | None = None) -> tuple[Tensor, Tensor]:
    r"""Return kinetic and potential energy of a batch of states.

    $$T = \tfrac12 \dot q^T M(q)\,\dot q, \qquad V = -\sum_i m_i\,g \cdot c_i + V_{limits}$$

    with armature in M, centres of mass $c_i$, and springs of the joint limits that are exceeded. V is 0 where every
    centre of mass is at the world's origin.

    Args:
        robot: The declared robot.
        q: Positions [rad or m], shape [..., nq].
        qd: Velocities [rad/s or m/s], shape [..., nv].
        gravity: Gravity in world axes [m/s^2], shape [3]; None for the robot's own.

    Returns:
        Kinetic and potential energy [J], float64, each of shape [...].

    Raises:
        InputError: The shapes do not fit the robot.
    """
    spec = robot.spec
    if q.shape[:-1] != qd.shape[:-1] or q.shape[-1] != spec.nq or qd.shape[-1] != spec.nv:
        raise InputError(
            f"energy of {robot.name!r}: q and qd have shapes {tuple(q.shape)} and {tuple(qd.shape)}; "
            f"valid: [..., {spec.nq}] and [..., {spec.nv}]"
        )
    shape = q.shape[:-1]
    q_rows = q.detach().cpu().float().reshape(-1, spec.nq)
    qd_rows = qd.detach().cpu().float().reshape(-1, spec.nv)
    count = len(q_rows)
    meter = _Meter(robot, max(1, min(count, _CHUNK)), gravity)
    parts = [meter.measure(q_rows[i : i + _CHUNK], qd_rows[i : i + _CHUNK]) for i in range(0, count, _CHUNK)]
    if not parts:
        return torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    kinetic, potential = (torch.cat(column).reshape(shape) for column in zip(*parts, strict=True))
    return kinetic, potential


class _Meter:
    """A model of many worlds through which states are passed."""

    def __init__(self, robot: Robot, worlds: int, gravity: Gravity | None) -> None:
        import warp as wp

        newton = import_newton()
        self._wp, self._newton = wp, newton
        self.worlds = worlds
        self.model: Any = build(robot, worlds, gravity=gravity)
        self._state = self.model.state()
        self._gravity = torch.from_numpy(np.asarray(self.model.gravity.numpy()).reshape(-1, 3)[:worlds]).double()
        self._mass = wp.to_torch(self.model.body_mass).view(worlds, -1).double()
        self._com = wp.to_torch(self.model.body_com).view(worlds, -1, 3).double()

    def measure(self, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
        """Return kinetic and potential energy [J] of up to `worlds` states, shapes [n]."""
        n, to_torch = len(q), self._wp.to_torch
        state, model = self._state, self.model
        to_torch(state.joint_q).view(self.worlds, -1)[:n] = q
        to_torch(state.joint_qd).view(self.worlds, -1)[:n] = qd
        self._newton.eval_fk(model, state.joint_q, state.joint_qd, state)
        mass_matrix = to_torch(self._newton.eval_mass_matrix(model, state))[:n].double()
        rates = qd.double()
        kinetic = 0.5 * torch.einsum("ni,nij,nj->n", rates, mass_matrix, rates)
        pose = to_torch(state.body_q).view(self.worlds, -1, 7).double()
        centre = pose[..., :3] + rotate(pose[..., 3:], self._com)
        weight = torch.einsum("wb,wbi,wi->w", self._mass, centre, self._gravity)
        return kinetic, (-weight)[:n] + self._spring_energy(q)

    def _spring_energy(self, q: Tensor) -> Tensor:
        """Return the energy of springs in joints and in their limits [J], shape [n]."""
        if q.shape[1] * self.worlds != self.model.joint_dof_count:
            return torch.zeros(len(q), dtype=torch.float64)  # ball and free joints have no springs
        model = self.model
        arrays = (
            model.joint_limit_lower, model.joint_limit_upper, model.joint_limit_ke, model.joint_stiffness,
            model.joint_rest_q,
        )  # fmt: skip
        lower, upper, stop, spring, rest = (
            self._wp.to_torch(array).view(self.worlds, -1)[: len(q)].double() for array in arrays
        )
        beyond = (q.double() - upper).clamp(min=0) + (lower - q.double()).clamp(min=0)
        return (0.5 * stop * beyond**2 + 0.5 * spring * (q.double() - rest) ** 2).sum(-1)

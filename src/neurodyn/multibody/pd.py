# SPDX-License-Identifier: Apache-2.0
"""The PD controller of driven joints: one formula for data, evaluation and simulators."""

import math
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.geometry.tensors import Positions, Torques, Velocities


def pd_torque(
    spec: StateSpec,
    q: Positions,
    qd: Velocities,
    target: Torques,
    kp: Float[Tensor, "..."] | float,
    kd: Float[Tensor, "..."] | float,
) -> Torques:
    """Return kp (target - q) - kd qd of the driven joints [N m or N], shape [worlds, nu].

    Args:
        spec: The robot's coordinates and controls.
        q: Positions [rad or m], shape [worlds, nq].
        qd: Velocities [rad/s or m/s], shape [worlds, nv].
        target: Wanted positions of the driven joints [rad or m], shape [worlds, nu]; a joint that turns without
            end takes the shorter way.
        kp: Stiffnesses [N m/rad or N/m], shape [worlds, nu] or broadcastable.
        kd: Dampings [N m s/rad or N s/m], shape [worlds, nu] or broadcastable.
    """
    rows, dofs, turns = _indices(spec, q.device)
    error = target - q[..., rows]
    if turns is not None:
        wrapped = torch.remainder(error + math.pi, 2 * math.pi) - math.pi
        error = torch.where(turns, wrapped, error)
    return kp * error - kd * qd[..., dofs]


@lru_cache(maxsize=64)
def _indices(spec: StateSpec, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the driven joints' coordinates of position and of velocity, and which of them turn without end."""
    rows = [spec.q_names.index(name) for name in spec.controls]
    turns = [spec.continuous[row] for row in rows]
    return (
        torch.tensor(rows, dtype=torch.long, device=device),
        torch.tensor(spec.control_dofs, dtype=torch.long, device=device),
        torch.tensor(turns, device=device) if any(turns) else None,
    )

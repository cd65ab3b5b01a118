# SPDX-License-Identifier: Apache-2.0
"""The PD controller of driven joints, used by data generation, evaluation and simulators."""

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
        target: Target positions of the driven joints [rad or m], shape [worlds, nu]; a continuous joint takes the
            shorter way.
        kp: Stiffness [N m/rad or N/m], broadcastable to [worlds, nu].
        kd: Damping [N m s/rad or N s/m], broadcastable to [worlds, nu].
    """
    rows, dofs, turns = _indices(spec, q.device)
    error = target - q[..., rows]
    if turns is not None:
        wrapped = torch.remainder(error + math.pi, 2 * math.pi) - math.pi
        error = torch.where(turns, wrapped, error)
    return kp * error - kd * qd[..., dofs]


@lru_cache(maxsize=64)
def _indices(spec: StateSpec, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the driven joints' position and velocity coordinates, and which joints are continuous."""
    rows = [spec.q_names.index(name) for name in spec.controls]
    turns = [spec.continuous[row] for row in rows]
    return (
        torch.tensor(rows, dtype=torch.long, device=device),
        torch.tensor(spec.control_dofs, dtype=torch.long, device=device),
        torch.tensor(turns, device=device) if any(turns) else None,
    )

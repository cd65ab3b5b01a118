# SPDX-License-Identifier: Apache-2.0
r"""Jacobians of a step by state and control, for controllers and estimators that linearise.

In coordinates of the degrees of freedom around a state, $\delta = (\delta q, \delta\dot q)$ with rotation vectors where
joints turn freely (`position_difference`):

$$\delta_{t+1} = A\,\delta_t + B\,\delta u_t$$
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.batch import Control, Environment, State, Window, present_state
from neurodyn.dynamics.control import require_torques
from neurodyn.dynamics.interface import Dynamics
from neurodyn.geometry import rotation


@dataclass(frozen=True, eq=False)
class Linearisation:
    """A step of a batch of worlds and its Jacobians; rows and columns as `StateSpec.tangent_names`, then velocities.

    Attributes:
        state: The state at the end of the step.
        A: Derivative of the state after the step by the state before it, shape [worlds, 2 nv, 2 nv].
        B: Derivative of the state after the step by the torques, or other controls, shape [worlds, 2 nv, nu].
    """

    state: State
    A: Tensor
    B: Tensor


def linearise(
    dynamics: Dynamics, context: State | Window, torque: Tensor, environment: Environment | None = None
) -> Linearisation:
    """Linearise a step of dynamics around states and controls.

    All rows are computed in one batch: each world is stepped once for every row, and all are differentiated at once.

    Args:
        dynamics: Any dynamics that are differentiable.
        context: States of the worlds; or windows that end in them, whose past is held fixed.
        torque: Torques during the frame [N m or N], or what `StateSpec.control_kind` says, shape [worlds, nu].
        environment: Gravity and ground.

    Raises:
        InputError: The dynamics are not differentiable, or shapes do not fit.
    """
    spec = dynamics.spec
    if not dynamics.differentiable:
        raise InputError(f"dynamics of kind {dynamics.kind!r} cannot be linearised; valid: dynamics that differentiate")
    require_torques(spec, torque[:, None])
    now, size = present_state(context), 2 * spec.nv
    row = torch.arange(now.worlds, device=now.q.device).repeat_interleave(size)
    carry = dynamics.begin(context.rows(row), None if environment is None else environment.rows(row))
    wide = now.rows(row)
    given = [x.detach().requires_grad_() for x in (wide.q, wide.qd, torque[row])]
    with torch.enable_grad():
        _, step = dynamics.step(carry, State(*given[:2], wide.channels), Control(torque=given[2]))
    after = State(step.state.q.detach(), step.state.qd.detach())
    first = after.rows(slice(0, None, size))
    seeds = torch.eye(size, dtype=now.q.dtype, device=now.q.device).repeat(now.worlds, 1)
    wanted = [_onto_positions(spec, after.q, seeds[:, : spec.nv]), seeds[:, spec.nv :]]
    found = torch.autograd.grad([step.state.q, step.state.qd], given, wanted, materialize_grads=True)
    by_state = torch.cat([_along_freedoms(spec, wide.q, found[0]), found[1]], -1)
    return Linearisation(first, by_state.view(-1, size, size), found[2].view(-1, size, spec.nu))


def _onto_positions(spec: StateSpec, q: Tensor, covector: Tensor) -> Tensor:
    """Return the gradient by positions of covector . `position_difference`(positions, q), shape [worlds, nq]."""
    parts = []
    for joint, place in zip(spec.joints, spec.places, strict=True):
        own = covector[:, place.qd]
        if joint.scalar:
            parts.append(own)
            continue
        turning = torch.einsum("wk,wkc->wc", own[:, -3:], 2.0 * _turns(q[:, place.q][:, -4:]))
        parts.append(torch.cat([own[:, :-3], turning], -1))
    return torch.cat(parts, -1)


def _along_freedoms(spec: StateSpec, q: Tensor, gradient: Tensor) -> Tensor:
    """Return a gradient by positions as one by degrees of freedom, shape [worlds, nv]."""
    parts = []
    for joint, place in zip(spec.joints, spec.places, strict=True):
        own = gradient[:, place.q]
        if joint.scalar:
            parts.append(own)
            continue
        turning = torch.einsum("wc,wkc->wk", own[:, -4:], 0.5 * _turns(q[:, place.q][:, -4:]))
        parts.append(torch.cat([own[:, :-4], turning], -1))
    return torch.cat(parts, -1)


def _turns(q: Tensor) -> Tensor:
    """Return twice the change of a quaternion per unit of turn about each axis, e_k q, shape [worlds, 3, 4]."""
    axes = torch.eye(3, 4, dtype=q.dtype, device=q.device)
    return rotation.multiply(axes.expand(len(q), 3, 4), q[:, None].expand(len(q), 3, 4))

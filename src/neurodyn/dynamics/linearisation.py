# SPDX-License-Identifier: Apache-2.0
r"""Jacobians of a step with respect to state and control, for controllers and estimators that linearise.

In coordinates of the degrees of freedom around a state, $\delta = (\delta q, \delta\dot q)$ with rotation vectors for
free and ball joints (`position_difference`):

$$\delta_{t+1} = A\,\delta_t + B\,\delta u_t$$
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, Environment, State, Window, present_state
from neurodyn.dynamics.control import require_torques
from neurodyn.dynamics.interface import Dynamics
from neurodyn.geometry import rotation


@dataclass(frozen=True, eq=False)
class Linearisation:
    """A step of a batch of worlds and its Jacobians; rows and columns are `StateSpec.tangent_names`, then velocities.

    Attributes:
        state: The state after the step.
        A: Derivative of the state after the step by the state before it, shape [worlds, 2 nv, 2 nv].
        B: Derivative of the state after the step by the controls, shape [worlds, 2 nv, nu].
    """

    state: State
    A: Tensor
    B: Tensor


def linearise(
    dynamics: Dynamics, context: State | Window, torque: Tensor, environment: Environment | None = None
) -> Linearisation:
    """Linearise a step of dynamics around states and controls.

    Compiled dynamics differentiate all rows of a world at once, one row per vector lane. Other dynamics step each world
    once per row, and all rows are differentiated in one batch.

    Args:
        dynamics: Any dynamics that are differentiable.
        context: States of the worlds; or windows that end in them, whose past is held fixed.
        torque: Torques during the frame [N m or N], or other controls (`StateSpec.control_kind`), shape [worlds, nu].
        environment: Gravity and ground.

    Raises:
        InputError: The dynamics are not differentiable, or shapes do not fit.
    """
    spec = dynamics.spec
    if not dynamics.differentiable:
        raise InputError(f"dynamics of kind {dynamics.kind!r} cannot be linearised; valid: dynamics that differentiate")
    require_torques(spec, torque[:, None])
    now = present_state(context)
    if isinstance(dynamics, Compiled) and now.q.is_cpu and now.q.dtype == torch.float64:
        memory = getattr(dynamics.begin(context, environment), "memory", None)
        after, rows = dynamics.differentiated_frame(now, torque, environment, memory)
        by_state, by_torque = rows(_seeds(spec, after.q))
    else:
        after, by_state, by_torque = _by_autograd(dynamics, context, torque, environment)
    return Linearisation(after, _along_freedoms(spec, now.q, by_state), by_torque)


def velocity_gradients(
    dynamics: Dynamics, state: State, torque: Tensor, environment: Environment | None, memory: Tensor | None = None
) -> tuple[State, Tensor]:
    """Return the states after a frame, and derivatives of the velocities in them, shape [worlds, nv, 2 nv].

    Columns are those of `Linearisation`.

    Args:
        dynamics: Any dynamics that are differentiable.
        state: States of the worlds, float64.
        torque: Controls of the frame, shape [worlds, nu].
        environment: Gravity and ground.
        memory: Memory of drives and networks (`HybridCarry`), of compiled dynamics that have one; None for a new one.
    """
    spec = dynamics.spec
    if isinstance(dynamics, Compiled) and state.q.is_cpu:
        after, rows = dynamics.differentiated_frame(state, torque, environment, memory)
        seeds = torch.eye(spec.nq + spec.nv, dtype=torch.float64)[spec.nq :].expand(state.worlds, -1, -1)
        gradient = rows(seeds)[0]
    else:
        after, gradient, _ = _by_autograd(dynamics, state, torque, environment)
        gradient = gradient[:, spec.nv :]
    return after, _along_freedoms(spec, state.q, gradient)


def frame_after(
    dynamics: Dynamics, state: State, torque: Tensor, environment: Environment | None, memory: Tensor | None = None
) -> State:
    """Return the states after a frame; arguments as in `velocity_gradients`."""
    if isinstance(dynamics, Compiled) and state.q.is_cpu:
        return dynamics.differentiated_frame(state, torque, environment, memory)[0]
    with torch.no_grad():
        return dynamics.step(dynamics.begin(state, environment), state, Control(torque=torque))[1].state


@runtime_checkable
class Compiled(Protocol):
    """Dynamics that differentiate a frame for many seeds at once."""

    def differentiated_frame(
        self, state: State, torque: Tensor, environment: Environment | None, memory: Tensor | None = None
    ) -> tuple[State, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Return the states after a frame, and gradients in state and torque for seeds [worlds, rows, nq + nv].

        `memory` is that of drives and networks at its start; dynamics that have one need it.
        """
        ...


def _by_autograd(
    dynamics: Dynamics, context: State | Window, torque: Tensor, environment: Environment | None
) -> tuple[State, Tensor, Tensor]:
    """Step every world once per row, and differentiate all rows at once."""
    spec, now = dynamics.spec, present_state(context)
    size = 2 * spec.nv
    row = torch.arange(now.worlds, device=now.q.device).repeat_interleave(size)
    carry = dynamics.begin(context.rows(row), None if environment is None else environment.rows(row))
    wide = now.rows(row)
    given = [x.detach().requires_grad_() for x in (wide.q, wide.qd, torque[row])]
    with torch.enable_grad():
        _, step = dynamics.step(carry, State(given[0], given[1], wide.channels), Control(torque=given[2]))
    after = State(step.state.q.detach(), step.state.qd.detach()).rows(slice(0, None, size))
    seeds = _seeds(spec, after.q).flatten(0, 1).split((spec.nq, spec.nv), -1)
    gradients = torch.autograd.grad([step.state.q, step.state.qd], given, seeds, materialize_grads=True)
    by_q, by_qd, by_torque = (x.view(now.worlds, size, -1) for x in gradients)
    return after, torch.cat([by_q, by_qd], -1), by_torque


def _seeds(spec: StateSpec, q: Tensor) -> Tensor:
    """Return the derivative of (`position_difference`(., q), qd) by q and qd, shape [worlds, 2 nv, nq + nv]."""
    columns, turning = _columns(spec)
    seeds = q.new_zeros(len(q), 2 * spec.nv, spec.nq + spec.nv)
    rows = torch.arange(2 * spec.nv, device=q.device)
    seeds[:, rows, columns.to(q.device)] = 1.0
    for place, freedom in turning:
        seeds[:, freedom : freedom + 3, place : place + 4] = 2.0 * _turns(q[:, place : place + 4])
    return seeds


def _along_freedoms(spec: StateSpec, q: Tensor, gradient: Tensor) -> Tensor:
    """Convert gradients in q and qd [worlds, rows, nq + nv] to degrees of freedom [worlds, rows, 2 nv]."""
    columns, turning = _columns(spec)
    rows = gradient[..., columns.to(q.device)]
    for place, freedom in turning:
        turns = 0.5 * _turns(q[:, place : place + 4])
        rows[..., freedom : freedom + 3] = gradient[..., place : place + 4] @ turns.mT
    return rows


@lru_cache(maxsize=64)
def _columns(spec: StateSpec) -> tuple[Tensor, list[tuple[int, int]]]:
    """Return the column of q and qd for each degree of freedom, and where quaternions and rotation vectors begin.

    Rotation vectors get the columns of the first three numbers of their quaternion, which are overwritten.
    """
    columns: list[int] = []
    turning: list[tuple[int, int]] = []
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if not joint.scalar:
            turning.append((place.q.stop - 4, place.qd.stop - 3))
        columns += range(place.q.start, place.q.start + place.qd.stop - place.qd.start)
    return torch.tensor([*columns, *range(spec.nq, spec.nq + spec.nv)]), turning


def _turns(q: Tensor) -> Tensor:
    """Return twice the change of a quaternion per unit rotation about each axis, e_k q, shape [worlds, 3, 4]."""
    axes = torch.eye(3, 4, dtype=q.dtype, device=q.device)
    return rotation.multiply(axes.expand(len(q), 3, 4), q[:, None].expand(len(q), 3, 4))

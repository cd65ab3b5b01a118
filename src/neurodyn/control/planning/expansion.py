# SPDX-License-Identifier: Apache-2.0
r"""What a task in a model looks like near a plan: linear motion, quadratic rewards, frame by frame.

With $z = (\delta q, \delta\dot q, a_-)$, the displacement of a state along its degrees of freedom and the action of the
frame before, and the change of action $\delta a$,

$$z_{t+1} = F_t\,(z_t, \delta a_t), \qquad
r_t \approx g_t^T (z_t, \delta a_t) - \tfrac12 (z_t, \delta a_t)^T C_t (z_t, \delta a_t)$$

where $C_t$ is the curvature of the reward after the frame, made positive semidefinite, carried back through the frame's
Jacobian (second derivatives of the motion are left out, as in Li and Todorov, ICINCO 2004).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neurodyn.control.frame_end import judge
from neurodyn.control.task_frames import Moment, TaskFrames
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.interface import State, Step
from neurodyn.dynamics.linearise import linearise
from neurodyn.dynamics.measures import displace
from neurodyn.tasks import Memory


@dataclass(frozen=True)
class Expansion:
    """A plan's neighbourhood; widths n = 2 nv + actions of z, a of actions.

    Attributes:
        motion: F, shape [frames, rows, n, n + a].
        gradient: g, shape [frames, rows, n + a].
        curvature: C, shape [frames, rows, n + a, n + a].
        end_gradient: Gradient of a critic's value of the end by z, shape [rows, n]; zero without a critic.
        end_curvature: Its curvature, shape [rows, n, n].
    """

    motion: Tensor
    gradient: Tensor
    curvature: Tensor
    end_gradient: Tensor
    end_curvature: Tensor


@dataclass(frozen=True)
class Frame:
    """A frame of a roll-out.

    Attributes:
        begin: The moment in which it began.
        action: What acted, shape [rows, actions].
        end: The moment in which it ended.
        weight: Discount of its reward.
        rest: Discount of what comes after it.
        counts: Rows whose episode had not ended, shape [rows], bool.
    """

    begin: Moment
    action: Tensor
    end: Moment
    weight: float
    rest: float
    counts: Tensor


def expand(frames: TaskFrames, path: list[Frame], value: Callable[[Tensor], Tensor] | None = None) -> Expansion:
    """Expand a task around a roll-out, all frames in one batch.

    Args:
        frames: Task and dynamics, whose next state follows from state and control alone.
        path: The roll-out.
        value: A critic of its end, from observations; None for none.
    """
    steps, rows = len(path), len(path[0].action)
    state, after = State.joined([f.begin.state for f in path]), State.joined([f.end.state for f in path])
    memory = Memory.joined([f.begin.memory for f in path])
    before = None if path[0].begin.torque is None else torch.cat([_torque(f.begin.torque) for f in path])
    action = torch.cat([f.action for f in path])
    torque, by_state, by_action = _controls(frames, state, before, memory, action)
    step = linearise(frames.dynamics, state, torque, frames.environment)
    moved = torch.cat([step.A + step.B @ by_state, step.B @ by_action], -1)
    weight = torch.cat([f.weight * f.counts for f in path]).to(moved.dtype)
    gradient, curvature = _rewards(frames, after, torque, memory, action)
    motion, carried = _augmented(moved, action.shape[1])
    gradient = weight[:, None] * (carried.mT @ gradient[..., None])[..., 0]
    curvature = weight[:, None, None] * (carried.mT @ curvature @ carried)
    ends, bends = _end(frames, path[-1], value)
    shape = steps, rows
    return Expansion(
        motion.unflatten(0, shape), gradient.unflatten(0, shape), curvature.unflatten(0, shape), ends, bends
    )


def _controls(
    frames: TaskFrames, state: State, before: Tensor | None, memory: Memory, action: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the torques (or targets) of frames, and their derivatives by displacement [.., nu, 2 nv] and action."""
    spec = frames.dynamics.spec
    shift = state.q.new_zeros(state.worlds, 2 * spec.nv).requires_grad_()
    given = action.detach().clone().requires_grad_()
    with torch.enable_grad():
        here = _displaced(frames, state, shift)
        control = frames.task.control(given, frames.quantities(here, None, before), memory)
        if spec.control_kind == "torque":
            torque = frame_torque(spec, here, control)
        else:
            assert control.target is not None
            torque = control.target
        rows = [
            torch.autograd.grad(column.sum(), (shift, given), retain_graph=True, materialize_grads=True)
            for column in torque.unbind(-1)
        ]
    by_state, by_action = (torch.stack(part, 1) for part in zip(*rows, strict=True))
    return torque.detach(), by_state, by_action


def _rewards(frames: TaskFrames, after: State, torque: Tensor, memory: Memory, action: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradient and curvature of rewards by (displacement after the frame, action before, action)."""
    spec, width = frames.dynamics.spec, action.shape[1]

    def reward(row: Tensor, shift: Tensor) -> Tensor:
        moved, last, by = shift.split((2 * spec.nv, width, width), -1)
        here, wide = Step(_displaced(frames, after.rows(row), moved)), _rows(memory, row, last)
        given = torque[row] if spec.control_kind == "torque" else None
        now = frames.quantities(here.state, here, given)
        return judge(frames.task, frames.bounds, here, now, wide, action[row] + by).reward

    return _quadratic(reward, len(action), 2 * (spec.nv + width), after.q)


def _end(frames: TaskFrames, last: Frame, value: Callable[[Tensor], Tensor] | None) -> tuple[Tensor, Tensor]:
    """Return gradient and curvature of the value of the end by z."""
    spec, moment = frames.dynamics.spec, last.end
    rows, n = len(last.action), 2 * spec.nv + last.action.shape[1]
    if value is None:
        return moment.state.q.new_zeros(rows, n), moment.state.q.new_zeros(rows, n, n)
    critic = value

    def worth(row: Tensor, shift: Tensor) -> Tensor:
        here = _displaced(frames, moment.state.rows(row), shift[:, : 2 * spec.nv])
        now = frames.quantities(here, None, None if moment.torque is None else moment.torque[row])
        return critic(frames.task.observe(now, _rows(moment.memory, row, shift[:, 2 * spec.nv :])))

    gradient, curvature = _quadratic(worth, rows, n, moment.state.q)
    weight = last.rest * last.counts.to(gradient.dtype)
    return weight[:, None] * gradient, weight[:, None, None] * curvature


def _quadratic(
    function: Callable[[Tensor, Tensor], Tensor], count: int, size: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return gradient [count, size] and curvature, made positive semidefinite, of minus a function at zero.

    The curvature is that of central differences of gradients, which any differentiable function has.

    Args:
        function: From the rows that are asked for and their displacements to values, shape [rows].
        count: Rows.
        size: Width of a displacement.
        like: Tensor of the dtype and on the device.
    """
    step = 1e-4 if like.dtype == torch.float64 else 1e-2
    offsets = step * torch.eye(size, dtype=like.dtype, device=like.device)
    offsets = torch.cat([torch.zeros_like(offsets[:1]), offsets, -offsets])
    row = torch.arange(count, device=like.device).repeat(len(offsets))
    shift = offsets.repeat_interleave(count, 0).requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(function(row, shift).sum(), shift, materialize_grads=True)
    centre, ahead, back = gradient.unflatten(0, (len(offsets), count)).split((1, size, size))
    hessian = ((ahead - back) / (2 * step)).transpose(0, 1)
    return torch.where(centre[0].isfinite(), centre[0], 0.0), _positive(-0.5 * (hessian + hessian.mT))


def _augmented(moved: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return F, and the Jacobian of (displacement after, action before, action) by (z, change of action)."""
    rows, size, _ = moved.shape
    n = size + width
    motion = moved.new_zeros(rows, n, n + width)
    motion[:, :size, :size], motion[:, :size, n:] = moved[..., :size], moved[..., size:]
    one = torch.eye(width, dtype=moved.dtype, device=moved.device)
    motion[:, size:, n:] = one
    carried = moved.new_zeros(rows, n + width, n + width)
    carried[:, :size] = motion[:, :size]
    carried[:, size:n, size:n], carried[:, n:, n:] = one, one
    return motion, carried


def _positive(matrix: Tensor) -> Tensor:
    """Return the nearest positive semidefinite matrices; zero where one is not finite."""
    matrix = torch.where(matrix.isfinite().all(-1).all(-1)[:, None, None], matrix, 0.0)
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ (values.clamp_min(0.0)[..., None] * vectors.mT)


def _displaced(frames: TaskFrames, state: State, shift: Tensor) -> State:
    along, faster = shift.chunk(2, -1)
    return replace(state, q=displace(frames.dynamics.spec, state.q, along), qd=state.qd + faster)


def _rows(memory: Memory, row: Tensor, change: Tensor) -> Memory:
    """Return rows of a memory, whose last action is changed."""
    wide = memory.rows(row)
    return replace(wide, action=wide.action + change)


def _torque(torque: Tensor | None) -> Tensor:
    assert torque is not None
    return torque

# SPDX-License-Identifier: Apache-2.0
r"""Iterative linear-quadratic regulation (iLQR) with limits on actions.

Expands dynamics to first order and rewards to second order around a plan, and improves the plan by a backward pass.

With \(z = (\delta q, \delta \dot q, u_{-1})\), the displacement of the state and the previous action, the expansion is
\(z' = F\,[z; \delta u]\) with the reward \(g^T [z; \delta u] - \tfrac12 [z; \delta u]^T C\,[z; \delta u]\).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neurodyn.control.planning.optimiser import Imagination, PlanOptimiser, best
from neurodyn.control.planning.sampling import smooth_noise
from neurodyn.control.planning.settings import PlannerSettings
from neurodyn.control.task_frames import TaskFrames, WorldsState, judge
from neurodyn.core.config import require_numbers
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State, Step
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.linearisation import linearise
from neurodyn.dynamics.measures import displace
from neurodyn.tasks import Memory


@dataclass(frozen=True)
class Expansion:
    """Expansion of dynamics and rewards around a plan; z has n = 2 nv + a entries, for a actions."""

    motion: Tensor
    """F, shape [frames, rows, n, n + a]."""
    gradient: Tensor
    """g, shape [frames, rows, n + a]."""
    curvature: Tensor
    """C, shape [frames, rows, n + a, n + a]."""
    end_gradient: Tensor
    """Gradient with respect to z of the critic's value at the end, shape [rows, n]; zero without a critic."""
    end_curvature: Tensor
    """Hessian with respect to z of minus that value, shape [rows, n, n]."""


@dataclass(frozen=True)
class ExpandedFrame:
    """A frame of the nominal rollout."""

    begin: WorldsState
    """Worlds at the start of the frame."""
    action: Tensor
    """Actions, shape [rows, actions]."""
    end: WorldsState
    """Worlds at the end of the frame."""
    weight: float
    rest: float
    """Discount of all later rewards."""
    counts: Tensor
    """Whether the episode had not ended, shape [rows], bool."""


def expand(frames: TaskFrames, path: list[ExpandedFrame], value: Callable[[Tensor], Tensor] | None = None) -> Expansion:
    """Expand a task around a rollout, all frames in one batch.

    Args:
        frames: Task and dynamics; the dynamics must have no memory.
        path: The rollout.
        value: A critic's value of observations at the end of the rollout; None for none.
    """
    steps, rows = len(path), len(path[0].action)
    state, after = State.concatenate([f.begin.state for f in path]), State.concatenate([f.end.state for f in path])
    memory = Memory.concatenate([f.begin.memory for f in path])
    torques = [f.begin.torque for f in path if f.begin.torque is not None]
    before = torch.cat(torques) if torques else None
    action = torch.cat([f.action for f in path])
    torque, by_state, by_action = _controls(frames, state, before, memory, action)
    step = linearise(frames.dynamics, state, torque, frames.environment)
    moved = torch.cat([step.A + step.B @ by_state, step.B @ by_action], -1)
    weight = torch.cat([f.weight * f.counts for f in path]).to(moved.dtype)
    gradient, curvature = _rewards(frames, after, torque, memory, action)
    motion, carried = _augment(moved, action.shape[1])
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
    """Return the torques (or targets), and their Jacobians by displacement, [..., nu, 2 nv], and by action."""
    spec = frames.dynamics.spec
    shift = state.q.new_zeros(state.worlds, 2 * spec.nv).requires_grad_()
    given = action.detach().clone().requires_grad_()
    with torch.enable_grad():
        displaced = _displace(frames, state, shift)
        control = frames.task.control(given, frames.quantities(displaced, None, before), memory)
        if spec.control_kind == "torque":
            torque = frame_torque(spec, displaced, control)
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
    """Return gradient of rewards, and Hessian of minus rewards, by (next displacement, previous action, action)."""
    spec, width = frames.dynamics.spec, action.shape[1]

    def reward(row: Tensor, shift: Tensor) -> Tensor:
        moved, last, by = shift.split((2 * spec.nv, width, width), -1)
        displaced, wide = Step(_displace(frames, after.rows(row), moved)), _rows(memory, row, last)
        given = torque[row] if spec.control_kind == "torque" else None
        now = frames.quantities(displaced.state, displaced, given)
        return judge(frames.task, frames.bounds, displaced, now, wide, action[row] + by).reward

    return _quadratic(reward, len(action), 2 * (spec.nv + width), after.q)


def _end(frames: TaskFrames, last: ExpandedFrame, value: Callable[[Tensor], Tensor] | None) -> tuple[Tensor, Tensor]:
    """Return gradient of the discounted value at the end, and Hessian of minus that value, by z."""
    spec, worlds_state = frames.dynamics.spec, last.end
    rows, n = len(last.action), 2 * spec.nv + last.action.shape[1]
    if value is None:
        return worlds_state.state.q.new_zeros(rows, n), worlds_state.state.q.new_zeros(rows, n, n)
    critic = value

    def worth(row: Tensor, shift: Tensor) -> Tensor:
        displaced = _displace(frames, worlds_state.state.rows(row), shift[:, : 2 * spec.nv])
        now = frames.quantities(displaced, None, None if worlds_state.torque is None else worlds_state.torque[row])
        return critic(frames.task.observe(now, _rows(worlds_state.memory, row, shift[:, 2 * spec.nv :])))

    gradient, curvature = _quadratic(worth, rows, n, worlds_state.state.q)
    weight = last.rest * last.counts.to(gradient.dtype)
    return weight[:, None] * gradient, weight[:, None, None] * curvature


def _quadratic(
    function: Callable[[Tensor, Tensor], Tensor], count: int, size: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return a function's gradient at zero, [count, size], and the Hessian of minus the function.

    The Hessian is projected to positive semidefinite matrices. It is a central difference of gradients, so that
    one derivative suffices.

    Args:
        function: From row indices and displacements of these rows to values, shape [rows].
        count: Number of rows.
        size: Width of a displacement.
        like: Tensor with the dtype and device.
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


def _augment(moved: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return F, and the Jacobian of (next displacement, previous action, action) by (z, change of the action)."""
    rows, size, _ = moved.shape
    n = size + width
    motion = moved.new_zeros(rows, n, n + width)
    motion[:, :size, :size], motion[:, :size, n:] = moved[..., :size], moved[..., size:]
    identity = torch.eye(width, dtype=moved.dtype, device=moved.device)
    motion[:, size:, n:] = identity
    carried = moved.new_zeros(rows, n + width, n + width)
    carried[:, :size] = motion[:, :size]
    carried[:, size:n, size:n], carried[:, n:, n:] = identity, identity
    return motion, carried


def _positive(matrix: Tensor) -> Tensor:
    """Project symmetric matrices to positive semidefinite ones; zero where a matrix is not finite."""
    matrix = torch.where(matrix.isfinite().all(-1).all(-1)[:, None, None], matrix, 0.0)
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ (values.clamp_min(0.0)[..., None] * vectors.mT)


def _displace(frames: TaskFrames, state: State, shift: Tensor) -> State:
    along, faster = shift.chunk(2, -1)
    return replace(state, q=displace(frames.dynamics.spec, state.q, along), qd=state.qd + faster)


def _rows(memory: Memory, row: Tensor, change: Tensor) -> Memory:
    wide = memory.rows(row)
    return replace(wide, action=wide.action + change)


_LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03)
"""Step lengths of the line search."""
_LEAST, _FIRST, _MOST, _FACTOR = 1e-6, 1e-2, 1e6, 5.0
"""Regularisation: minimum, initial value, maximum, and factor of a change."""


class IlqrSettings(PlannerSettings, frozen=True):
    """Settings of iterative linear-quadratic regulation."""

    starts: int = 8
    """Plans that the first decision of an episode improves in parallel; one is zero, the others are drawn."""
    iterations: int = 2
    """Iterations per decision."""
    first_iterations: int = 30
    """Iterations of the first decision of an episode."""
    noise: float = 0.5
    """Standard deviation of the drawn plans, relative to the action limit."""
    knot: int = 4
    """Frames between the knots of drawn plans, which are piecewise linear."""

    def check(self) -> None:
        """Raise a ValueError for counts below 1 and noise that is not a finite number above 0."""
        require_numbers(self, above=("starts", "iterations", "first_iterations", "knot", "noise"))


class Ilqr(PlanOptimiser):
    """Iterative linear-quadratic regulation with limits on actions."""

    settings_type = IlqrSettings
    settings: IlqrSettings
    needs_gradients = True

    def require_model(self, model: Dynamics) -> None:
        """Raise an InputError for a model without gradients or with memory."""
        super().require_model(model)
        if model.spec.context or model.measured:
            raise InputError(
                f"planner 'ilqr' needs a model whose next state follows from state and control alone; {model.kind} "
                f"dynamics of {model.spec.robot!r} have a memory; valid: mppi, cem, annealed, gradient"
            )

    def improve(self, imagination: Imagination, plan: Tensor, *, first: bool) -> Tensor:
        """Return the best plan found, shape [worlds, frames, actions]."""
        settings = self.settings
        plans = plan[:, None]
        if first:
            shape, limit = (len(plan), settings.starts, *plan.shape[1:]), imagination.limit
            drawn = smooth_noise(shape, settings.knot, self.generator, plan)
            drawn[:, 0] = 0.0
            plans = (plans + settings.noise * limit * drawn).clamp(-limit, limit)
        rows = plans.shape[0] * plans.shape[1]
        record = plans.new_full((rows,), -math.inf)
        weight = plans.new_full((rows,), _FIRST)
        for _ in range(settings.first_iterations if first else settings.iterations):
            path, returns = roll_out(imagination, plans)
            record = returns.flatten()
            expansion = expand(imagination.frames, path, imagination.value)
            open_loop, feedback = policy_of(expansion, path, weight, imagination)
            plans, record, better = self._search(imagination, plans, record, path, open_loop, feedback)
            weight = torch.where(better, weight / _FACTOR, weight * _FACTOR).clamp(_LEAST, _MOST)
        return best(record.view(plans.shape[:2]), plans)

    @staticmethod
    def _search(
        imagination: Imagination,
        plans: Tensor,
        record: Tensor,
        path: list[ExpandedFrame],
        open_loop: Tensor,
        feedback: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Line search over `_LENGTHS`; return plans, their returns, and whether they improved."""
        worlds, starts, frames, width = plans.shape
        lengths = plans.new_tensor(_LENGTHS).repeat(worlds * starts)
        row = torch.arange(worlds * starts, device=plans.device).repeat_interleave(len(_LENGTHS))
        roll = imagination.start(starts * len(_LENGTHS))
        spec, total, acted = imagination.frames.dynamics.spec, torch.zeros_like(lengths), []
        last = path[0].begin.memory.action[row]
        for frame, (nominal, change, gain) in enumerate(zip(path, open_loop, feedback, strict=True)):
            state, planned = roll.worlds_state.state, nominal.begin.state.rows(row)
            away = torch.cat([
                position_difference(spec, state.q, planned.q), state.qd - planned.qd,
                last - nominal.begin.memory.action[row],
            ], -1)  # fmt: skip
            moved = lengths[:, None] * change[row] + (gain[row] @ away[..., None])[..., 0]
            action = (plans.flatten(0, 1)[row, frame] + moved).clamp(-imagination.limit, imagination.limit)
            action = torch.where(action.isfinite(), action, 0.0)
            total = total + roll.step(action)
            acted.append(action)
            last = roll.worlds_state.memory.action
        tried = total.view(worlds * starts, len(_LENGTHS))
        gained, which = torch.where(tried.isfinite(), tried, -math.inf).max(1)
        better = gained > record
        tried_plans = torch.stack(acted, 1).view(worlds * starts, len(_LENGTHS), frames, width)
        tried_plans = tried_plans[torch.arange(len(which), device=which.device), which]
        kept = torch.where(better[:, None, None], tried_plans, plans.flatten(0, 1))
        return kept.view_as(plans), torch.where(better, gained, record), better


def roll_out(imagination: Imagination, plans: Tensor) -> tuple[list[ExpandedFrame], Tensor]:
    """Roll plans out; return their frames and their returns, shape [worlds, candidates].

    Args:
        imagination: The worlds.
        plans: Actions, shape [worlds, candidates, frames, actions].
    """
    roll, path, gains = imagination.start(plans.shape[1], tracked=True), [], []
    for action in plans.flatten(0, 1).unbind(1):
        begin, weight, counts = roll.worlds_state, roll.weight, roll.alive
        acting = roll.acting(action)
        gains.append(roll.step(action))
        path.append(ExpandedFrame(begin, acting, roll.worlds_state, weight, roll.weight, counts & roll.alive))
    return path, torch.stack(gains).sum(0).view(plans.shape[:2])


def policy_of(
    expansion: Expansion, path: list[ExpandedFrame], weight: Tensor, imagination: Imagination
) -> tuple[Tensor, Tensor]:
    """Backward pass: return changes of actions, [frames, rows, a], and their feedback gains, [frames, rows, a, n].

    Args:
        expansion: Expansion around the plan.
        path: Rollout of the plan.
        weight: Regularisation of each row.
        imagination: Action limit, and number of leading frames that are fixed.
    """
    n, limit = expansion.motion.shape[2], imagination.limit
    slope, curve = expansion.end_gradient, expansion.end_curvature
    eye = torch.eye(n, dtype=slope.dtype, device=slope.device)
    changes, feedbacks = [], []
    for frame in reversed(range(len(path))):
        motion, gradient, curvature = expansion.motion[frame], expansion.gradient[frame], expansion.curvature[frame]
        whole = curvature + motion.mT @ curve @ motion
        damped = motion[..., n:].mT @ (weight[:, None, None] * eye) @ motion
        q = gradient + (motion.mT @ slope[..., None])[..., 0]
        steered = whole[:, n:] + damped
        solved = _solve(steered[..., n:], torch.cat([q[:, n:, None], -steered[..., :n]], -1))
        change, gain = solved[..., 0], solved[..., 1:]
        action = path[frame].action
        within = (action + change).clamp(-limit, limit) - action
        acts = float(frame >= imagination.fixed)
        change, gain = acts * within, acts * gain * (within == change)[..., None]
        left = q - (whole[..., n:] @ change[..., None])[..., 0]
        slope = left[:, :n] + (gain.mT @ left[:, n:, None])[..., 0]
        crossed = gain.mT @ whole[:, n:, :n]
        curve = whole[:, :n, :n] + gain.mT @ whole[:, n:, n:] @ gain + crossed + crossed.mT
        curve = 0.5 * (curve + curve.mT)
        changes.append(change)
        feedbacks.append(gain)
    return torch.stack(changes[::-1]), torch.stack(feedbacks[::-1])


def _solve(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve positive definite systems; zero where a matrix is singular or not finite."""
    size = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    factor, info = torch.linalg.cholesky_ex(matrix + (1e-9 * size + 1e-12) * eye)
    solution = torch.cholesky_solve(right, factor)
    usable = (info == 0) & solution.isfinite().all(-1).all(-1)
    return torch.where(usable[:, None, None], solution, 0.0)

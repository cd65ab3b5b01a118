# SPDX-License-Identifier: Apache-2.0
r"""Iterative linear-quadratic regulation: plans improved by the best feedback of what the task is like near them.

Backward, with $S$ and $s$ the curvature and gradient of what is still to come (Tassa, Mansard and Todorov, ICRA 2014):

$$Q_{uu} = C_{uu} + F_u^T (S + \mu I) F_u, \quad Q_{ux} = C_{ux} + F_u^T (S + \mu I) F_x, \quad
q_u = g_u + F_u^T s, \quad k = Q_{uu}^{-1} q_u, \quad K = -Q_{uu}^{-1} Q_{ux}$$

Forward, plans $a + \alpha k + K z$ are rolled out for several $\alpha$ at once, and the best of them is kept if it is
better than the plan. Components that would leave their limits are held there, without feedback. Where none is better,
$\mu$ grows. The penalty on disagreement takes part in choosing a plan, not in its gradient.
"""

import math

import torch
from torch import Tensor

from neurodyn.control.planning.expansion import Expansion, Frame, expand
from neurodyn.control.planning.imagination import Imagination
from neurodyn.control.planning.optimiser import PlanOptimiser, best
from neurodyn.control.planning.settings import PlannerSettings
from neurodyn.control.planning.smooth_noise import smooth_noise
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, require
from neurodyn.dynamics.interface import Dynamics, State
from neurodyn.dynamics.tangent import position_difference

_LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03)
"""Lengths of steps that are tried, as shares of the whole one."""
_LEAST, _FIRST, _MOST, _FACTOR = 1e-6, 1e-2, 1e6, 5.0
"""Regularisation: its least and first value, its greatest, and by how much it changes."""


class IlqrSettings(PlannerSettings, frozen=True):
    """Settings of iterative linear-quadratic regulation.

    Attributes:
        starts: Plans of the first decision of an episode that are improved side by side; one is no action at all, the
            others are drawn.
        iterations: Iterations of a decision.
        first_iterations: Iterations of the first decision of an episode.
        noise: Standard deviation of the first plans, as a share of the greatest action.
        knot: Frames between the knots at which they are drawn, linear between them.
    """

    starts: int = 8
    iterations: int = 2
    first_iterations: int = 30
    noise: float = 0.5
    knot: int = 4

    def check(self) -> None:
        """Refuse counts below 1, and noise of no size."""
        for name in ("starts", "iterations", "first_iterations", "knot"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(0 < self.noise < math.inf, "noise", self.noise, "a finite number above 0")


class Ilqr(PlanOptimiser):
    """Iterative linear-quadratic regulation with limits."""

    settings_type = IlqrSettings
    settings: IlqrSettings
    needs_gradients = True

    def require_model(self, model: Dynamics) -> None:
        """Refuse a model without gradients, or with a memory."""
        super().require_model(model)
        if model.spec.context or model.measured:
            raise InputError(
                f"planner 'ilqr' needs a model whose next state follows from state and control alone; {model.kind} "
                f"dynamics of {model.spec.robot!r} have a memory; valid: mppi, cem, annealed, gradient"
            )

    def improve(self, imagination: Imagination, plan: Tensor, *, first: bool) -> Tensor:
        """Return the best plan that was met."""
        settings = self.settings
        plans = self._first(plan, imagination.limit) if first else plan[:, None]
        rows = plans.shape[0] * plans.shape[1]
        record = plans.new_full((rows,), -math.inf)
        weight = plans.new_full((rows,), _FIRST)
        for _ in range(settings.first_iterations if first else settings.iterations):
            path, returns = rolled(imagination, plans)
            record = returns.flatten()
            expansion = expand(imagination.frames, path, imagination.value)
            open_loop, feedback = policy_of(expansion, path, weight, imagination)
            plans, record, better = self._stepped(imagination, plans, record, path, open_loop, feedback)
            weight = torch.where(better, weight / _FACTOR, weight * _FACTOR).clamp(_LEAST, _MOST)
        return best(record.view(plans.shape[:2]), plans)

    def _first(self, plan: Tensor, limit: float) -> Tensor:
        """Return plans to begin with, shape [worlds, starts, frames, actions]."""
        settings = self.settings
        shape = len(plan), settings.starts, *plan.shape[1:]
        drawn = smooth_noise(shape, settings.knot, self.generator, plan)
        drawn[:, 0] = 0.0
        return (plan[:, None] + settings.noise * limit * drawn).clamp(-limit, limit)

    @staticmethod
    def _stepped(
        imagination: Imagination, plans: Tensor, record: Tensor, path: list[Frame], open_loop: Tensor, feedback: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Try steps of several lengths; return plans, their returns, and which have become better."""
        worlds, starts, frames, width = plans.shape
        lengths = plans.new_tensor(_LENGTHS).repeat(worlds * starts)
        row = torch.arange(worlds * starts, device=plans.device).repeat_interleave(len(_LENGTHS))
        roll = imagination.start(starts * len(_LENGTHS))
        spec, total, acted = imagination.frames.dynamics.spec, torch.zeros_like(lengths), []
        last = path[0].begin.memory.action[row]
        for frame, (nominal, change, gain) in enumerate(zip(path, open_loop, feedback, strict=True)):
            away = torch.cat([
                _difference(spec, roll.moment.state, nominal.begin.state.rows(row)),
                last - nominal.begin.memory.action[row],
            ], -1)  # fmt: skip
            moved = lengths[:, None] * change[row] + (gain[row] @ away[..., None])[..., 0]
            action = (plans.flatten(0, 1)[row, frame] + moved).clamp(-imagination.limit, imagination.limit)
            action = torch.where(action.isfinite(), action, 0.0)
            total = total + roll.step(action)
            acted.append(action)
            last = roll.moment.memory.action
        tried = total.view(worlds * starts, len(_LENGTHS))
        gained, which = torch.where(tried.isfinite(), tried, -math.inf).max(1)
        better = gained > record
        found = torch.stack(acted, 1).view(worlds * starts, len(_LENGTHS), frames, width)
        found = found[torch.arange(len(which), device=which.device), which]
        kept = torch.where(better[:, None, None], found, plans.flatten(0, 1))
        return kept.view_as(plans), torch.where(better, gained, record), better


def rolled(imagination: Imagination, plans: Tensor) -> tuple[list[Frame], Tensor]:
    """Roll plans out; return their frames and what they return, shape [worlds, candidates].

    Args:
        imagination: The worlds.
        plans: Actions, shape [worlds, candidates, frames, actions].
    """
    roll, path, gains = imagination.start(plans.shape[1], tracked=True), [], []
    for action in plans.flatten(0, 1).unbind(1):
        begin, weight, counts = roll.moment, roll.weight, roll.alive
        acting = roll.acting(action)
        gains.append(roll.step(action))
        path.append(Frame(begin, acting, roll.moment, weight, roll.weight, counts & roll.alive))
    return path, torch.stack(gains).sum(0).view(plans.shape[:2])


def policy_of(
    expansion: Expansion, path: list[Frame], weight: Tensor, imagination: Imagination
) -> tuple[Tensor, Tensor]:
    """Return the changes of actions [frames, rows, a] and their feedback [frames, rows, a, n], by going backward.

    Args:
        expansion: The task near the plan.
        path: The plan's roll-out.
        weight: The regularisation of each row.
        imagination: Limits, and how many frames are on their way already.
    """
    n, limit = expansion.motion.shape[2], imagination.limit
    slope, curve = expansion.end_gradient, expansion.end_curvature
    eye = torch.eye(n, dtype=slope.dtype, device=slope.device)
    changes, feedbacks = [], []
    for frame in reversed(range(len(path))):
        motion, gradient, curvature = expansion.motion[frame], expansion.gradient[frame], expansion.curvature[frame]
        whole = curvature + motion.mT @ curve @ motion
        held = motion[..., n:].mT @ (weight[:, None, None] * eye) @ motion
        q = gradient + (motion.mT @ slope[..., None])[..., 0]
        steered = whole[:, n:] + held
        solved = _solved(steered[..., n:], torch.cat([q[:, n:, None], -steered[..., :n]], -1))
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


def _solved(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve positive systems; zero where one is singular or not finite."""
    size = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    factor, info = torch.linalg.cholesky_ex(matrix + (1e-9 * size + 1e-12) * eye)
    found = torch.cholesky_solve(right, factor)
    usable = (info == 0) & found.isfinite().all(-1).all(-1)
    return torch.where(usable[:, None, None], found, 0.0)


def _difference(spec: StateSpec, state: State, reference: State) -> Tensor:
    return torch.cat([position_difference(spec, state.q, reference.q), state.qd - reference.qd], -1)

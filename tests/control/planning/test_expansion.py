# SPDX-License-Identifier: Apache-2.0
"""Expansions of tasks along plans, beside autograd, and plans of linear tasks, beside least squares."""

import pytest
import torch

from neurodyn.control.planning.ilqr import expand, roll_out
from neurodyn.control.planning.optimiser import Imagination
from neurodyn.control.planning.planner import PLANNERS, Planner
from neurodyn.control.planning.settings import PlannerSettings
from neurodyn.control.task_frames import TaskFrames
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.interface import Dynamics
from neurodyn.tasks import load
from tests.policy.small_worlds import SPEC, Hold, Mass

FRAMES = 6


class Smooth(Mass):
    """The mass, with gradients."""

    differentiable = True


class Square(Hold):
    """r = -x^2 - v^2 / 10 - u^2 / 20 - (u - u_before)^2 / 30, without an end."""

    def reward(self, quantities, memory, action):
        x, v = quantities["joint_position"][:, 0], quantities["joint_velocity"][:, 0]
        change = (action - memory.action)[:, 0]
        return {"all": -x.square() - v.square() / 10 - action[:, 0].square() / 20 - change.square() / 30}

    def terminated(self, quantities, memory):
        return quantities["joint_position"][:, 0].abs() > 1e9


def imagination(task, model: Dynamics, state: State, **others) -> Imagination:
    frames, generator = TaskFrames(task, model), torch.Generator().manual_seed(0)
    memory = task.begin(frames.quantities(state, None, frames.no_torque(state)), generator)
    settings = PlannerSettings(horizon=FRAMES, discount=0.9)
    return Imagination(frames, state, memory, settings, generator, **others)


def mass(*x: float) -> State:
    return State(torch.tensor(x, dtype=torch.float64)[:, None], torch.zeros(len(x), 1, dtype=torch.float64))


def gradient_of(at: Imagination, plans: torch.Tensor) -> torch.Tensor:
    """Return the gradient of returns by actions that an expansion says, by going backward through it."""
    path, _ = roll_out(at, plans)
    found = expand(at.frames, path, at.value)
    n = found.motion.shape[2]
    slope, gradients = found.end_gradient, []
    for motion, gradient in zip(found.motion.flip(0), found.gradient.flip(0), strict=True):
        q = gradient + (motion.mT @ slope[..., None])[..., 0]
        slope = q[:, :n]
        gradients.append(q[:, n:])
    return torch.stack(gradients[::-1], 1).view_as(plans)


def by_autograd(at: Imagination, plans: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        given = plans.clone().requires_grad_()
        return torch.autograd.grad(at.returns(given, tracked=True).sum(), given)[0]


def some_plans(worlds: int, candidates: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return 0.6 * (2 * torch.rand(worlds, candidates, FRAMES, width, generator=generator, dtype=torch.float64) - 1)


def test_its_gradients_are_those_of_the_returns():
    at = imagination(Hold(), Smooth(), mass(0.4, -0.3), value=lambda seen: seen[:, 0] * seen[:, 1] - seen[:, 2] ** 2)
    plans = some_plans(2, 3, 1)
    torch.testing.assert_close(gradient_of(at, plans), by_autograd(at, plans))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole-swingup", "ant-run"])
def test_its_gradients_are_those_of_a_robot(name):
    """The ant's base turns, and its actions are torques that depend on nothing else."""
    task = load(name)
    model, generator = declared_hybrid(task.robot), torch.Generator().manual_seed(0)
    start = task.start(2, generator)
    state = State(start.q.double(), start.qd.double())
    at, plans = imagination(task, model, state), some_plans(2, 2, len(task.actions))
    wanted = by_autograd(at, plans)
    torch.testing.assert_close(gradient_of(at, plans), wanted, rtol=1e-5, atol=1e-7 * float(wanted.abs().max()))


def test_a_linear_task_is_solved_in_an_iteration():
    at = imagination(Square(), Smooth(), mass(0.05, -0.08))
    settings = PLANNERS["ilqr"].settings_type(horizon=FRAMES, discount=0.9, iterations=12)
    planner = PLANNERS["ilqr"](settings, torch.Generator().manual_seed(0))
    found = planner.improve(at, torch.zeros(2, FRAMES, 1, dtype=torch.float64), first=False)
    assert found.abs().max() < 1  # no limit acts
    zero = torch.zeros(2, 1, FRAMES, 1, dtype=torch.float64)
    flat = torch.eye(FRAMES, dtype=torch.float64)[None, :, :, None].expand(2, -1, -1, -1)
    slopes = torch.cat([by_autograd(at, zero), by_autograd(at, flat)], 1)[..., 0]
    hessian = slopes[:, 1:] - slopes[:, :1]
    wanted = torch.linalg.solve(hessian, -slopes[:, 0])
    torch.testing.assert_close(found[..., 0], wanted, rtol=1e-4, atol=1e-6)


def test_what_is_on_its_way_is_not_planned():
    pending = torch.tensor([[[0.5], [-0.5]]], dtype=torch.float64)
    at = imagination(Square(), Smooth(), mass(0.4), pending=pending)
    settings = PLANNERS["ilqr"].settings_type(horizon=FRAMES)
    planner = PLANNERS["ilqr"](settings, torch.Generator().manual_seed(0))
    plan = torch.zeros(1, FRAMES, 1, dtype=torch.float64)
    found = planner.improve(at, plan, first=False)
    assert torch.equal(found[:, :2], plan[:, :2])
    assert found[:, 2:].abs().max() > 0.01


def test_a_model_with_a_memory_is_refused():
    import msgspec

    with pytest.raises(InputError, match="needs a model whose next state follows from state and control alone"):
        Planner(Smooth(msgspec.structs.replace(SPEC, context=3)), Hold(), "ilqr")

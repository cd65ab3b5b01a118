# SPDX-License-Identifier: Apache-2.0
"""What is compiled of a task equals what its torch code computes, with gradients; environments go on as before."""

from collections.abc import Callable
from functools import cached_property

import pytest
import torch
from torch import Tensor

from neurodyn.control.resolve import open_dynamics
from neurodyn.control.starts import SampledStarts
from neurodyn.control.task_frames import TaskFrames, WorldsState
from neurodyn.control.task_program import TaskProgram, TaskView, look
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.quantities import Quantities, declared_contacts
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.tasks import Memory, Task, load
from neurodyn.tasks.swing_up import CartpoleSwingUp
from tests.tasks.test_velocity import declare_quadruped

WORLDS = 24


class Example:
    """A frame of worlds in random states near the ground."""

    def __init__(self, name: str) -> None:
        self.task = load(name)
        self.dynamics = open_dynamics(self.task, "hybrid").dynamics
        self.frames = TaskFrames(self.task, self.dynamics)
        self.generator = torch.Generator().manual_seed(0)
        start = self.task.start(WORLDS, self.generator)
        self.q, self.qd = start.q, start.qd + torch.randn(start.qd.shape, generator=self.generator)
        self.action = torch.randn(WORLDS, len(self.task.actions), generator=self.generator)
        self.now = self.frames.quantities(State(self.q, self.qd), None, self.torque(self.q))
        self.before = self.task.begin(self.now, self.generator)
        self.after = self.task.advance(self.before, self.now, self.action, self.generator)

    def torque(self, like: Tensor) -> Tensor | None:
        return self.frames.no_torque(State(like, like.new_zeros(WORLDS, self.qd.shape[1])))

    @cached_property
    def program(self) -> TaskProgram:
        state = State(self.q, self.qd)
        program = self.frames.compiled(WorldsState(None, state, None, self.after, self.now), self.before, self.action)
        assert program is not None
        return program

    def seen(self, program: TaskProgram | None, q: Tensor, qd: Tensor, action: Tensor) -> TaskView:
        now = self.frames.quantities(State(q, qd), None, self.torque(q))
        memories = [
            Memory(**{name: x.to(q) if x.is_floating_point() else x for name, x in vars(one).items()})
            for one in (self.before, self.after)
        ]
        return look(self.task, now, *memories, action) if program is None else program(now, *memories, action)


def weighted(view: TaskView) -> Tensor:
    """Return a sum of everything that has gradients, with fixed weights."""
    parts = [view.reading, view.judged, view.parts.t()]
    return sum((torch.cos(torch.arange(x.numel(), dtype=x.dtype)).view(x.shape) * x).sum() for x in parts)


@pytest.fixture(scope="module")
def dog(tmp_path_factory: pytest.TempPathFactory) -> Example:
    return Example(f"velocity@{declare_quadruped(tmp_path_factory.mktemp('compiled'))}")


@pytest.mark.parametrize("name", ["dog", "ant-run"])
def test_a_compiled_task_says_what_the_task_says(name: str, request: pytest.FixtureRequest) -> None:
    example = request.getfixturevalue("dog") if name == "dog" else Example(name)
    program, results = example.program, []
    for way in (None, program):
        given = [x.clone().requires_grad_() for x in (example.q, example.qd, example.action)]
        view = example.seen(way, *given)
        results.append((view, torch.autograd.grad(weighted(view), given, allow_unused=True, materialize_grads=True)))
    (torch_view, torch_gradients), (view, gradients) = results
    torch.testing.assert_close(view.reading, torch_view.reading, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(view.judged, torch_view.judged, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(view.parts, torch_view.parts, rtol=1e-5, atol=1e-6)
    assert torch.equal(view.failed, torch_view.failed)
    assert program.names == tuple(example.task.reward(example.now, example.before, example.action))
    for one, other in zip(gradients, torch_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_its_gradients_are_finite_differences(dog: Example) -> None:
    program, step = dog.program, 1e-6
    given = [x.double().requires_grad_() for x in (dog.q, dog.qd, dog.action)]
    gradients = torch.autograd.grad(weighted(dog.seen(program, *given)), given)
    with torch.no_grad():
        for number, gradient in enumerate(gradients):
            along = torch.randn(gradient.shape, generator=dog.generator, dtype=torch.float64)
            ends = []
            for sign in (1.0, -1.0):
                moved = [x + sign * step * along if i == number else x for i, x in enumerate(given)]
                ends.append(weighted(dog.seen(program, *moved)))
            assert float((ends[0] - ends[1]) / (2 * step)) == pytest.approx(float((gradient * along).sum()), rel=1e-6)


def test_compiled_contacts_are_those_of_the_measured_ground(dog: Example) -> None:
    dynamics, results = dog.dynamics, []
    ground = dynamics.home.ground if dog.frames.environment is None else dog.frames.environment.ground
    height = -0.03 * torch.rand(WORLDS, generator=dog.generator)
    for measured in (False, True):
        q, qd = dog.q.double(), dog.qd.double()
        q[:, 2] += height
        q, qd = q.requires_grad_(), qd.requires_grad_()
        now: Quantities = dog.frames.quantities(State(q, qd), None, None)
        if measured:
            now = now.replacing(declared_contacts(dynamics.robot, dynamics._seen_points, ground))
        values = [now[name] for name in ("contact", "contact_height", "contact_speed")]
        results.append([*values, *torch.autograd.grad(values[1].sum() + values[2].square().sum(), [q, qd])])
    assert 0.0 < results[0][0].mean() < 1.0
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)


class Unusual(CartpoleSwingUp):
    """A cartpole whose reward cannot be compiled."""

    def __init__(self, unusual: Callable[[Tensor], Tensor]) -> None:
        self._unusual = unusual

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        return {"unusual": self._unusual(quantities["joint_position"][:, 0])}


def worlds(task: Task, *, compiled: bool) -> PolicyEnvironment:
    dynamics = open_dynamics(task, "hybrid").dynamics
    made = PolicyEnvironment(task, dynamics, SampledStarts(task, 0), WORLDS, history=2, frames=7, compiled=compiled)
    made.episode_length_buf = torch.arange(WORLDS) % 7
    return made


@pytest.mark.parametrize("unusual", [torch.erf, lambda x: x - x.mean(), lambda x: x + torch.rand(1)])
def test_what_cannot_be_compiled_stays_with_torch(unusual: Callable[[Tensor], Tensor]) -> None:
    made = worlds(Unusual(unusual), compiled=True)
    made.step_frame(torch.zeros(WORLDS, 1))
    assert made._program is None


def test_worlds_go_on_as_they_did() -> None:
    task, ends = load("cartpole-swingup"), []
    for compiled in (False, True):
        made = worlds(task, compiled=compiled)
        pushed = torch.zeros(WORLDS, 1, requires_grad=True)
        made.cut()
        seen, frames = made.seen, []
        for _ in range(5):
            frames.append(made.step_tracked((pushed + 0.1 * seen[:, :1]).clamp(-1.0, 1.0)))
            seen = frames[-1].observation
        reward = made.settle(frames)
        (gradient,) = torch.autograd.grad(reward.sum(), pushed)
        plain = [made.step_frame(0.1 * made.seen[:, :1]) for _ in range(8)]
        assert (made._program is not None) is compiled
        ends.append([reward, gradient, torch.stack([one.reward for one in plain]), plain[-1].observation,
                     torch.tensor(made.collect().returns)])  # fmt: skip
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)

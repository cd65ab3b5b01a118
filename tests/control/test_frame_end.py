# SPDX-License-Identifier: Apache-2.0
"""What breaks down earns nothing: implausible states end episodes as failures, in every dynamics."""

from dataclasses import replace

import msgspec
import pytest
import torch

from neurodyn.control.starts import SampledStarts
from neurodyn.control.task_frames import episode_bounds
from neurodyn.core.description.spec import Channel, JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.training_range import TrainingRange, training_range
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.guard import TRAINING_MARGIN
from neurodyn.policy.episodes.evaluation import play
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.robots.sections import Ranges
from neurodyn.tasks import load
from tests.policy.small_worlds import SPEC, Fixed, Hold, Mass

FASTEST = 4.0


class Bounded(Hold):
    """Hold, of a mass that is declared to stay slower than `FASTEST`, paid for its speed."""

    def declaration(self):
        return msgspec.structs.replace(super().declaration(), range=Ranges(qd={"line": (-FASTEST, FASTEST)}))

    def reward(self, quantities, memory, action):
        return {"speed": quantities["joint_velocity"][:, 0].square()}


class Bursting(Mass):
    """A mass whose second world gets another velocity at some frame."""

    def __init__(self, velocity, frame=2):
        super().__init__()
        self.velocity, self.frame, self.now = velocity, frame, 0

    def step(self, carry, state, control):
        carry, step = super().step(carry, state, control)
        self.now += 1
        if self.now == self.frame:
            qd = step.state.qd.clone()
            qd[1] = self.velocity
            step = replace(step, state=State(step.state.q, qd))
        return carry, step


def run(dynamics, frames, task=None):
    env = PolicyEnvironment(task or Bounded(), dynamics, Fixed([0.0, 0.0, 0.1]), 3)
    rewards, ends = [], []
    for _ in range(frames):
        _, reward, done, extras = env.step(torch.full((3, 1), 0.5))
        rewards.append(reward)
        ends.append((done.tolist(), extras["time_outs"].tolist(), extras["implausible"].tolist()))
    return env, torch.stack(rewards), ends


@pytest.mark.parametrize("velocity", [1e9, -1e9, 4.01, float("nan"), float("inf")])
def test_a_world_that_runs_off_earns_nothing_for_it(velocity):
    env, rewards, ends = run(Bursting(velocity), 3)
    calm, usual, _ = run(Mass(), 3)
    assert ends[1] == ([False, True, False], [False] * 3, [False, True, False])
    assert float(rewards[1, 1]) == 0.0
    assert torch.equal(rewards[:, [0, 2]], usual[:, [0, 2]])  # the others go on as if nothing had happened
    assert torch.equal(env.state.q[[0, 2]], calm.state.q[[0, 2]])
    assert env.state.q.isfinite().all()
    episodes = env.collect()
    assert episodes.implausible == episodes.failed == [True]
    assert episodes.lengths == [2.0]
    assert episodes.returns == pytest.approx([float(rewards[0, 1])])  # what it had before


def test_where_rewards_are_costs_breaking_down_costs_more():
    class Costly(Bounded):
        implausible_reward = -7.0

    _, rewards, _ = run(Bursting(1e9), 2, Costly())
    assert rewards[1, 1].item() == -7.0
    assert load("franka-torque").implausible_reward < -128  # what an episode far from the target costs


def test_a_fast_state_within_the_bounds_is_left_alone():
    _, rewards, ends = run(Bursting(3.99), 2)
    assert not any(ends[1][0])
    assert float(rewards[1, 1]) == pytest.approx(3.99**2)


def test_a_failure_of_the_task_is_not_counted_as_implausible():
    env = PolicyEnvironment(Hold(), Mass(), Fixed([1.99]), 1)
    env.step(torch.ones(1, 1))
    episodes = env.collect()
    assert (episodes.failed, episodes.implausible) == ([True], [False])


def test_a_model_is_not_believed_far_beyond_its_training_data():
    model = Mass()
    model.training_range = TrainingRange(qd=((-1.0, 0.5),))
    fastest = 0.5 + TRAINING_MARGIN * 1.5
    bounds = episode_bounds(Bounded(), model)
    speeds = torch.tensor([[fastest - 0.01], [fastest + 0.01], [-1.8], [-1.74]])
    assert bounds.outside(torch.zeros(4, 1), speeds).tolist() == [False, True, True, False]
    assert bounds.qd[0] == (-1.75, fastest)
    model.training_range = TrainingRange(qd=((-100.0, 100.0),))
    assert episode_bounds(Bounded(), model).qd[0] == (-FASTEST, FASTEST)  # the robot's own are tighter


def test_measured_states_are_bounded_by_name_and_channels_by_training():
    log = msgspec.structs.replace(
        SPEC,
        joints=(JointSpec(name="other", kind="prismatic"), JointSpec(name="line", kind="prismatic")),
        channels=(Channel(name="speed", unit="m/s"),),
    )
    model = Mass(log)
    model.training_range = TrainingRange(qd=((-9.0, 9.0), (-9.0, 9.0)), channels=((0.0, 2.0),))
    bounds = episode_bounds(Bounded(), model)
    zero = torch.zeros(3, 2)
    speeds = torch.tensor([[8.0, 0.0], [0.0, 8.0], [0.0, 0.0]])
    assert bounds.outside(zero, speeds, torch.tensor([[1.0], [1.0], [3.1]])).tolist() == [False, True, True]


def test_evaluations_count_and_zero_them():
    found = play(lambda seen: torch.full((len(seen), 1), 0.5), Bounded(), Bursting(1e9), Fixed([0.0, 0.0, 0.1]), 3)
    assert found.implausible.tolist() == [False, True, False]
    assert found.failed.tolist() == [False, True, False]
    assert found.returns_in("here").implausible == pytest.approx(1 / 3)
    assert float(found.returns.max()) < 10.0


def test_starts_outside_are_drawn_again_and_the_others_stay():
    task = load("cartpole-swingup")
    usual = SampledStarts(task, 3).draw(64)
    speed = usual.qd[:, 0].abs()
    limit = float(speed.median())
    model = Mass(task.declaration().spec)
    known = limit / (1 + 2 * TRAINING_MARGIN)
    model.training_range = TrainingRange(qd=((-known, known), (-99.0, 99.0)))
    found = SampledStarts(task, 3, bounds=episode_bounds(task, model)).draw(64)
    assert bool((found.qd[:, 0].abs() <= limit * 1.0001).all())
    inside = speed <= limit
    assert torch.equal(found.q[inside], usual.q[inside])
    model.training_range = TrainingRange(qd=((50.0, 51.0), (-99.0, 99.0)))
    with pytest.raises(InputError, match=r"starts: nearly all states that task 'cartpole-swingup' draws are outside"):
        SampledStarts(task, 3, bounds=episode_bounds(task, model)).draw(64)


def test_the_range_of_training_data_sees_all_directions_of_a_base(tmp_path):
    spec = StateSpec(
        robot="body", joints=(JointSpec(name="base", kind="free"), JointSpec(name="leg", kind="revolute")),
        controls=("leg",), dt=0.1,
    )  # fmt: skip
    qd = torch.zeros(2, 3, 7)
    qd[0, 1, :3], qd[0, 2, 3:6], qd[0, :, 6] = torch.tensor([3.0, 4.0, 0.0]), torch.tensor([0.0, 0.0, 2.0]), 1.5
    qd[1] = 77.0  # validation
    q = torch.zeros(2, 3, 8)
    q[..., 6] = 1.0
    with StoreWriter(tmp_path / "a.h5", StoreHeader(source="log", spec=spec)) as writer:
        writer.append(q, qd, torch.zeros(2, 2, 1), split=[Split.TRAIN, Split.VALIDATION])
    found = training_range(Store.open(tmp_path / "a.h5"))
    assert found.qd == ((-5.0, 5.0),) * 3 + ((-2.0, 2.0),) * 3 + ((1.5, 1.5),)
    assert found.union(TrainingRange(qd=((-1.0, 6.0),) * 7)).qd[0] == (-5.0, 6.0)

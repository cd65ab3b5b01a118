# SPDX-License-Identifier: Apache-2.0
"""The environment: rewards by hand, ends of episodes, and history that is reset only where a world is."""

from dataclasses import dataclass

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import neurodyn
from neurodyn.control.starts import SampledStarts
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control
from neurodyn.dynamics.neural.model import NEURAL, build_model
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.policy.worlds.world_reset import world_reset_in
from neurodyn.tasks import load as load_task
from tests.dynamics.test_capture import Again
from tests.policy.small_worlds import SPEC, Fixed, Hold, Known, Mass, world_model


def world(places, dynamics=None, **options):
    return PolicyEnvironment(Hold(), dynamics or Mass(), Fixed(places), len(places), **options)


def step_alike(one, other, actions):
    """Step two environments, compare what they return, and return the rewards of the first."""
    (seen, reward, done, extras), (wanted, wanted_reward, wanted_done, others) = (x.step(actions) for x in (one, other))
    torch.testing.assert_close(seen["policy"], wanted["policy"])
    torch.testing.assert_close(reward, wanted_reward)
    assert torch.equal(done, wanted_done)
    torch.testing.assert_close(extras["state"].q, others["state"].q)
    return reward


def test_a_frame_by_hand():
    env = world([0.5, -0.5], reward_scale=2.0)
    seen = env.get_observations()["policy"]
    assert seen.tolist() == [[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0]]
    seen, reward, done, extras = env.step(torch.tensor([[1.0], [-0.5]]))
    # Forces 3 and -1.5 for 0.1 s: velocities .3 and -.15, places .53 and -.515.
    torch.testing.assert_close(seen["policy"], torch.tensor([[0.53, 0.3, 1.0], [-0.515, -0.15, -0.5]]))
    torch.testing.assert_close(reward, 2.0 * torch.tensor([1 - 0.53 - 0.1, 1 - 0.515 - 0.05]))
    assert not done.any()
    assert not extras["time_outs"].any()
    assert float(extras["log"]["/reward/effort"]) == pytest.approx(-0.075)
    # The previous action is the one of the frame before.
    _, reward, _, _ = env.step(torch.tensor([[1.0], [0.5]]))
    place = env.state.q[:, 0].abs()
    torch.testing.assert_close(reward, 2.0 * (1.0 - place - torch.tensor([0.0, 0.1])))


def test_actions_are_cut_off():
    env = world([0.0])
    env.step(torch.tensor([[100.0]]))
    assert float(env.state.qd) == pytest.approx(0.3)


def test_time_outs_are_distinguished_from_failures():
    env = world([0.0, 1.95])
    ends = []
    for _ in range(5):
        # Full force to the right: the second world leaves its range in the third frame.
        _, _, done, extras = env.step(torch.tensor([[0.0], [1.0]]))
        ends.append((done.tolist(), extras["time_outs"].tolist()))
    assert ends[1] == ([False, True], [False, False])
    assert ends[4][0][0] is True
    assert ends[4][1][0] is True
    found = env.collect()
    assert found.lengths[:1] == [2.0]
    assert found.failed[:1] == [True]
    assert (5.0, False) in list(zip(found.lengths, found.failed, strict=True))
    assert found.returns[found.lengths.index(5.0)] == pytest.approx(5.0)
    assert env.collect().returns == []


def test_a_model_may_say_that_a_world_failed():
    mass = Mass()
    mass.termination = torch.tensor([0.4, 0.6])
    env = world([0.0, 0.0], mass)
    _, _, done, extras = env.step(torch.zeros(2, 1))
    assert done.tolist() == [False, True]
    assert extras["time_outs"].tolist() == [False, False]


def test_what_leaves_the_known_places_fails_on_request():
    for within_known, failed in ((True, [False, True]), (False, [False, False])):
        world = PolicyEnvironment(Hold(), Known(), Fixed([0.25, 0.35]), 2, within_known=within_known)
        assert world.step_frame(torch.zeros(2, 1)).done.tolist() == failed
        assert world.collect().failed == failed[1:] * within_known
    with pytest.raises(InputError, match="do not know what they have seen; valid here: false"):
        PolicyEnvironment(Hold(), Mass(), Fixed([0.0]), 1, within_known=True)


def test_what_blows_up_ends_and_leaves_nothing_behind():
    mass = Mass()
    mass.spoil = torch.tensor([False, True])
    env = world([0.0, 0.0], mass)
    seen, reward, done, _ = env.step(torch.zeros(2, 1))
    assert done.tolist() == [False, True]
    assert reward.isfinite().all()
    assert seen["policy"].isfinite().all()
    assert float(reward[1]) == 0.0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.9, 1.99]), min_size=1, max_size=6), st.integers(1, 20))
def test_history_is_reset_exactly_where_a_world_is(places, frames):
    mass = Mass()
    env = world(places, mass)
    ages = torch.zeros(len(places), dtype=torch.long)
    for _ in range(frames):
        calls = len(mass.resets)
        _, _, done, _ = env.step(torch.ones(len(places), 1))
        ages = torch.where(done, 0, ages + 1)
        assert torch.equal(env.carry.frames, ages)
        assert torch.equal(env.memory.frame, ages)
        assert torch.equal(env.episode_length_buf, ages)
        assert mass.resets[calls:] == ([done.tolist()] if done.any() else [])
        # Whoever starts anew has no last action, and the others have theirs.
        assert torch.equal(env.memory.action[:, 0], (~done).float())
    assert mass.begun == 1


def test_worlds_that_continue_are_left_bitwise_alone():
    alone, beside = world([0.3]), world([0.3, 1.99])
    for _ in range(4):
        alone.step(torch.tensor([[0.7]]))
        beside.step(torch.tensor([[0.7], [1.0]]))
        assert torch.equal(alone.state.q[0], beside.state.q[0])
        assert torch.equal(alone.memory.action[0], beside.memory.action[0])
    assert beside.collect().failed  # the other one did start anew


def test_seeds_repeat():
    def rolled(seed):
        env = PolicyEnvironment(Hold(), Mass(), SampledStarts(Hold(), seed), 3, seed=seed)
        for _ in range(7):
            env.step(torch.full((3, 1), 0.5))
        return env.state.q

    assert torch.equal(rolled(1), rolled(1))
    assert not torch.equal(rolled(1), rolled(2))


def test_a_failure_has_a_value_for_the_learner_alone():
    plain, careful = (world([1.99, 0.0], failure=failure, reward_scale=0.5) for failure in (0.0, -6.0))
    action = torch.tensor([[1.0], [1.0]])
    lost = plain.step(action)[1] - careful.step(action)[1]
    assert lost.tolist() == [3.0, 0.0]
    assert plain.collect().returns == careful.collect().returns


class TestImagination:
    def test_uncertainty_is_subtracted_in_units_of_the_data(self):
        model = world_model(context=4)
        model.state_scale.copy_(torch.tensor([2.0, 0.5]))
        plain, careful = (world([0.2, 0.4], model, penalty=penalty) for penalty in (0.0, 3.0))
        action = torch.tensor([[0.5], [-0.5]])
        start, carry = careful.state, careful.carry
        _, step = model.step(carry, start, Control(torque=3.0 * action))
        assert step.epistemic is not None
        wanted = 3.0 * (step.epistemic / torch.tensor([2.0, 0.5])).sum(-1)
        paid = plain.step(action)[1] - careful.step(action)[1]
        torch.testing.assert_close(paid, wanted)
        assert (paid > 0).all()

    def test_only_uncertainty_above_the_usual_is_penalised(self):
        model, action = world_model(context=4), torch.tensor([[0.5], [-0.5]])
        careful, centred = (world([0.2, 0.4], model, penalty=3.0, penalty_offset=offset) for offset in (0.0, 0.7))
        gained = centred.step(action)[1] - careful.step(action)[1]
        torch.testing.assert_close(gained, torch.full_like(gained, 3.0 * 0.7))
        assert centred.uncertainty == pytest.approx(careful.uncertainty)
        assert centred.uncertainty > 0


class Tall(Hold):
    """A task that needs what the mass does not have."""

    needs = ("base_position",)


REFUSALS = [
    (lambda: world([]), "worlds is 0; valid: at least 1"),
    *((lambda penalty=penalty: world([0.0], world_model(context=4), penalty=penalty),
       r"lambda.*valid: a finite number of at least 0") for penalty in (-0.1, float("nan"), float("inf"))),
    (lambda: world([0.0], penalty=1.0), r"do not know how uncertain.*--members 5"),
    (lambda: TestMembers().environment(TestMembers().model(1), penalty=1.0),
     r"penalty is 1, but these neural dynamics of 'cartpole'.*--members 5"),
    (lambda: world([0.0], world_model(context=4, fitted=False)), "never fitted"),
    (lambda: world([0.0], world_model(msgspec.structs.replace(SPEC, dt=0.05), 4)),
     r"dt is 0\.05 s instead of 0\.1 s"),
    (lambda: world([0.0], Mass(msgspec.structs.replace(SPEC, controls=()))),
     r"controls are \[\] instead of \['line'\]"),
    (lambda: PolicyEnvironment(Tall(), Mass(), Fixed([0.0]), 1),
     "task 'hold': fake dynamics of 'mass' does not offer 'base_position'; it offers joint_position"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSALS)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


class TestMembers:
    """Neural dynamics with members, in place of a world model."""

    def model(self, members: int = 3):
        torch.manual_seed(0)
        config, spec = NEURAL.read("pretrained:cartpole")
        trained = NEURAL.load("pretrained:cartpole").state_dict()
        model = build_model(msgspec.structs.replace(config, members=members), spec)
        for name, tensor in model.state_dict().items():
            if "normaliser" in name:
                tensor.copy_(trained[name])
        model.predictor.net.output_layer.weight.data.normal_(0.0, 0.05)  # unlike a fresh one, so that members disagree
        return model.requires_grad_(False)

    def environment(self, model, worlds=40, **options):
        task = load_task("cartpole-swingup")
        return PolicyEnvironment(task, model, SampledStarts(task, 0), worlds, **options)

    def test_worlds_follow_their_members_and_pay_for_what_all_disagree_on(self):
        model = self.model()
        model.state_scale.copy_(torch.tensor([2.0, 0.5, 1.0, 3.0]))
        plain, careful = self.environment(model), self.environment(model, penalty=3.0)
        assert plain.carry.groups is not None
        for _ in range(5):
            action = torch.rand(40, 1) * 2 - 1
            start, torque = careful.state, careful.task.control(action, careful.now, careful.memory)
            _, step = model.step(careful.carry, start, torque)
            paid = plain.step(action)[1] - careful.step(action)[1]
            torch.testing.assert_close(plain.state.qd, careful.state.qd, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(careful.state.qd, step.state.qd)
            wanted = 3.0 * careful.task.penalty_scale * (step.epistemic / model.state_scale).sum(-1)
            torch.testing.assert_close(paid, wanted, rtol=1e-3, atol=1e-4)
            assert (paid > 0).all()

    def test_frames_that_are_settled_together_pay_what_single_ones_do(self):
        model = self.model()
        single, together = (self.environment(model, penalty=3.0) for _ in range(2))
        actions = torch.rand(5, 40, 1) * 2 - 1
        wanted = torch.stack([single.step(action)[1] for action in actions])
        with torch.no_grad():
            found = together.settle([together.step_tracked(action) for action in actions])
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
        assert together.uncertainty == pytest.approx(single.uncertainty, rel=1e-4)
        assert together.uncertainty > 0

    def test_an_implausible_world_fails_alone_and_keeps_its_member(self):
        model = self.model()
        env = self.environment(model)
        member = env.carry.member.clone()
        model.predictor.net.output_layer.bias[1, 0, 0] = 1e6  # the second member sends the cart away
        _, _, done, extras = env.step(torch.zeros(40, 1))
        assert torch.equal(extras["implausible"], member == 1)
        assert torch.equal(done, member == 1)
        assert torch.equal(env.carry.member, member)
        assert env.state.qd.isfinite().all()

    @pytest.mark.parametrize("penalty", [0.0, 2.0])
    def test_a_replayed_frame_is_the_frame(self, penalty):
        model = self.model()
        replayed, called = (self.environment(model, penalty=penalty, capture=c) for c in (Again, None))
        for _ in range(5):
            action = torch.rand(40, 1) * 2 - 1
            step_alike(replayed, called, action)


@pytest.mark.parametrize("capture", [None, Again])
def test_a_restart_begins_episodes_that_count_alone(capture):
    env = PolicyEnvironment(Hold(), Mass(), Fixed([0.0, 0.25, 0.5, 0.75]), 2, capture=capture)
    for _ in range(2):
        env.step(torch.ones(2, 1))
    seen = env.restart()
    where = env.state.q[:, 0].clone()
    assert set(where.tolist()) <= {0.0, 0.25, 0.5, 0.75}
    torch.testing.assert_close(seen[:, 0], where)
    assert (seen[:, 1:] == 0).all()
    assert env.episode_length_buf.tolist() == [0, 0]
    for _ in range(5):
        _, _, done, _ = env.step(torch.zeros(2, 1))
    assert done.all()
    found = env.collect()
    assert found.lengths == [5, 5]
    torch.testing.assert_close(torch.tensor(found.returns), 5 * (1 - where))


def test_observations_before_resets_are_shown_on_request():
    env = world([0.0, 0.25], shows_last=True)
    for frame in range(5):
        seen, _, done, extras = env.step(torch.ones(2, 1))
        assert ("last" in extras) == (frame == 4)
    assert done.all()
    torch.testing.assert_close(extras["last"][:, 0], extras["state"].q[:, 0])
    assert (extras["last"][:, 0] != seen["policy"][:, 0]).all()


def test_rewards_that_are_not_logged_are_not_kept():
    frames, kept = {}, {}
    for logged in (False, True):
        env = world([0.0, 0.25], logged=logged)
        frames[logged] = [env.step(torch.ones(2, 1)) for _ in range(5)]
        kept[logged] = env.collect().lengths
    assert kept == {False: [], True: [5, 5]}
    for (seen, reward, done, extras), (as_seen, as_reward, as_done, others) in zip(*frames.values(), strict=True):
        assert others.keys() - extras.keys() == {"terms", "log"}
        torch.testing.assert_close((seen["policy"], reward, done), (as_seen["policy"], as_reward, as_done))


class TestCapture:
    """A frame that is recorded and replayed, here by a recording that calls it again on the same memory."""

    def environments(self, name, model, **options):
        task, dynamics = load_task(name), neurodyn.load(model)
        made = []
        for capture in (Again, None):
            env = PolicyEnvironment(task, dynamics, SampledStarts(task, 0), 16, capture=capture, **options)
            env.episode_length_buf = torch.arange(16) * 12 + env.max_episode_length - 190
            made.append(env)
        made[1]._world_reset = world_reset_in(
            dynamics, SampledStarts(task, 0), 16, ahead=True
        )  # takes starts as the other
        made[1]._world_reset._starts.draw(16)
        made[1]._always_resets = True
        return made

    @pytest.mark.parametrize(
        ("name", "model"), [("ant-run", "pretrained:ant"), ("cartpole-swingup", "pretrained:cartpole")]
    )
    def test_a_replayed_frame_is_the_frame(self, name, model):
        replayed, called = self.environments(name, model)
        generator = torch.Generator().manual_seed(1)
        kept = []
        for frame in range(20):
            actions = 0.5 * torch.randn(16, replayed.num_actions, generator=generator)
            reward = step_alike(replayed, called, actions)
            kept.append((reward, reward.clone()))
            if frame == 9:
                for env in (replayed, called):
                    env.episode_length_buf = torch.full((16,), env.max_episode_length - 5)
        assert all(torch.equal(reward, copy) for reward, copy in kept)  # what it returned stays as it was
        ends = replayed.collect(), called.collect()
        assert len(ends[0].returns) >= 16
        assert ends[0].returns == pytest.approx(ends[1].returns, rel=1e-4)
        assert ends[0].lengths == ends[1].lengths
        torch.testing.assert_close(replayed.now["joint_position"], called.now["joint_position"])

    def test_imagination_is_replayed(self):
        model = world_model(context=4)
        model.state_scale.copy_(torch.tensor([2.0, 0.5]))
        places = [0.2, 1.9, 0.4, 1.0]
        replayed = world(places, model, penalty=3.0, capture=Again)
        called = world(places, model, penalty=3.0)
        called._always_resets, called._world_reset = True, world_reset_in(model, Fixed(places), 4, ahead=True)
        called._world_reset._starts.draw(4)
        for frame in range(12):
            actions = torch.full((4, 1), 0.3 * (-1) ** frame)
            step_alike(replayed, called, actions)
        ends = replayed.collect(), called.collect()
        assert len(ends[0].returns) >= 8  # episodes of five frames
        assert ends[0] == ends[1]

    def test_a_network_that_counts_its_frames_runs_kernel_by_kernel(self):
        class Counting(Mass):
            def step(self, carry, state, control):
                after, step = super().step(carry, state, control)
                return Aged(after.frames, carry.age + 1 if isinstance(carry, Aged) else 1), step

            def reset(self, carry, context, mask):
                return carry

        env = world([0.0, 0.5], Counting(), capture=Again)
        with pytest.warns(UserWarning, match="kernel by kernel"):
            _, reward, _, _ = env.step(torch.zeros(2, 1))
        assert reward.tolist() == pytest.approx([1.0, 0.5])
        env.step(torch.zeros(2, 1))


@dataclass(frozen=True)
class Aged:
    """A history that knows its age as a number."""

    frames: torch.Tensor
    age: int


class Strict(Hold):
    """A task that charges for implausible states."""

    implausible_reward = -7.0


@pytest.mark.parametrize("task", [Hold(), Strict()])
def test_terms_of_the_reward_add_up_to_the_returns_of_the_episodes_that_ended(task):
    mass = Mass()
    env = PolicyEnvironment(task, mass, Fixed([0.0, 0.4, 1.95]), 3)
    generator = torch.Generator().manual_seed(3)
    ends = 0
    for turn in range(3):
        mass.spoil = torch.tensor([False, turn == 1, False])
        for _ in range(4):
            env.step(torch.rand(3, 1, generator=generator) * 2 - 1)
            mass.spoil = None
        ended = env.collect()
        ends += len(ended.returns)
        names = ["place", "effort", *(["implausible"] if isinstance(task, Strict) else [])]
        assert list(ended.terms) == names
        assert sum(ended.terms.values()) == pytest.approx(sum(ended.returns), abs=1e-5)
        if turn == 1 and isinstance(task, Strict):
            assert ended.terms["implausible"] == -7.0
    assert ends >= 6
    assert env.collect().terms == dict.fromkeys(names, 0.0)


@pytest.mark.parametrize("task", [Hold(), Strict()])
def test_frames_that_are_settled_together_earn_what_single_ones_do(task):
    single, together = Mass(), Mass()
    envs = [PolicyEnvironment(task, mass, Fixed([0.0, 0.4, 1.95]), 3, reward_scale=0.5) for mass in (single, together)]
    generator = torch.Generator().manual_seed(3)
    ended = 0
    for window in range(3):
        rewards, rolled = [], []
        envs[1].cut()
        for frame in range(4):
            spoil = torch.tensor([False, (window, frame) == (1, 2), False])
            single.spoil = together.spoil = spoil
            action = torch.rand(3, 1, generator=generator) * 2 - 1
            seen, reward, done, extras = envs[0].step(action)
            rolled.append(envs[1].step_tracked(action))
            rewards.append(reward)
            assert torch.equal(rolled[-1].observation, seen["policy"])
            assert torch.equal(rolled[-1].done, done)
            assert torch.equal(rolled[-1].end.failed, done & ~extras["time_outs"])
        torch.testing.assert_close(envs[1].settle(rolled), torch.stack(rewards))
        found, wanted = envs[1].collect(), envs[0].collect()
        ended += len(wanted.returns)
        for name in ("returns", "penalised", "lengths"):
            assert getattr(found, name) == pytest.approx(getattr(wanted, name), abs=1e-5)
        assert (found.failed, found.implausible) == (wanted.failed, wanted.implausible)
        assert found.terms == pytest.approx(wanted.terms, abs=1e-5)
    assert ended >= 6


def test_a_reward_that_is_not_finite_costs_what_an_implausible_state_does():
    class Spiked(Strict):
        def reward(self, quantities, memory, action):
            terms = super().reward(quantities, memory, action)
            return {**terms, "place": torch.where(action[:, 0] > 0.5, torch.nan, terms["place"])}

    env = PolicyEnvironment(Spiked(), Mass(), Fixed([0.0, 0.4]), 2)
    env.cut()
    reward = env.settle([env.step_tracked(torch.tensor([[0.0], [1.0]]))])
    assert reward[0, 1] == Strict.implausible_reward
    assert reward.isfinite().all()


def test_worlds_that_were_saved_without_terms_continue():
    env, later = world([0.0, 1.95]), world([0.0, 1.95])
    for _ in range(3):
        env.step(torch.tensor([[0.2], [0.2]]))
    saved = env.checkpoint()
    assert saved is not None
    for name in ("terms", "earned"):
        del saved["worlds"][name]
    later.load(saved)
    assert torch.equal(later.state.q, env.state.q)
    later.step(torch.tensor([[0.2], [0.2]]))
    assert set(later.collect().terms) == {"place", "effort"}

# SPDX-License-Identifier: Apache-2.0
"""Errors of readings and actions, delays and pushes, by hand and in an environment."""

from types import SimpleNamespace

import msgspec
import pytest
import torch

from neurodyn.control.starts import SampledStarts
from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.policy.episodes.evaluation import play
from neurodyn.policy.worlds.disturbances import Disturbances, disturbances_of
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.policy.worlds.randomisation import open_randomisation, robust
from neurodyn.tasks import load
from tests.policy.small_worlds import Fixed, Hold, Mass

WORLDS = 400


@pytest.fixture(scope="module")
def task():
    return load("cartpole-swingup")


def drawn(task, *texts, dt=0.1, **more):
    spec = msgspec.structs.replace(task.declaration().spec, dt=dt)
    dynamics = SimpleNamespace(spec=spec, device="cpu")
    return Disturbances(disturbances_of(texts, task), task, dynamics, **more)


def generator():
    return torch.Generator().manual_seed(0)


def begun(disturbances, columns=4, numbers=None):
    still = torch.zeros(WORLDS, 1)
    return disturbances.begin(torch.ones(WORLDS, columns), still, numbers, generator())


def test_noise_is_drawn_in_every_step_and_a_bias_once_an_episode(task):
    both = drawn(task, "observation.slider=+-.5:.5:step", "observation.hinge=+1:2", "observation.hinge=x2:2")
    assert both.names == ("observation.hinge", "observation.hinge (factor)")
    numbers = torch.tensor([[1.5, 2.0]]).expand(WORLDS, 2)
    at, rng = begun(both, numbers=numbers), generator()
    seen = [both.see(at, torch.ones(WORLDS, 4), torch.zeros(WORLDS, 1), numbers, rng).seen for _ in range(2)]
    assert (seen[0][:, 1] == 3.5).all()  # 1 * 2 + 1.5
    assert torch.equal(seen[0][:, 1:], seen[1][:, 1:])
    assert (seen[0][:, 2:] == 1.0).all()
    assert not torch.equal(seen[0][:, 0], seen[1][:, 0])
    error = torch.cat([one[:, 0] for one in seen]) - 1.0
    assert float(error.abs().max()) <= 0.5
    assert float(error.std()) == pytest.approx(12**-0.5, rel=0.05)


def test_other_shapes_and_a_dead_sensor(task):
    odd = drawn(task, "observation.slider=+-2:2:normal:step", "observation.hinge=0|1:step", "action.force=x.9:1.1:step")
    seen = begun(odd).seen
    assert float((seen[:, 0] - 1.0).std()) == pytest.approx(0.88, rel=0.1)
    assert sorted(set(seen[:, 1].tolist())) == [0.0, 1.0]
    sent = odd.act(begun(odd), torch.full((WORLDS, 1), 0.5), None, generator())[1]
    assert 0.45 <= float(sent.min()) < 0.46 < 0.54 < float(sent.max()) <= 0.55


def test_a_delay_of_whole_frames_shows_what_was_there_and_others_lie_between(task):
    late = drawn(task, "delay.action=0:.25", "delay.observation=.1:.1")
    assert late.names == ("delay.action", "delay.observation")
    numbers = torch.tensor([[0.0, 0.1], [0.1, 0.1], [0.2, 0.1], [0.15, 0.1]])
    at = late.begin(torch.zeros(4, 4), torch.zeros(4, 1), numbers, generator())
    sent, seen = [], []
    for frame in range(1, 5):
        at, acted = late.act(at, torch.full((4, 1), float(frame)), numbers, generator())
        at = late.see(at, torch.full((4, 4), float(frame)), torch.zeros(4, 1), numbers, generator())
        sent.append(acted[:, 0].tolist())
        seen.append(float(at.seen[0, 0]))
    expected = [[1, 0, 0, 0], [2, 1, 0, 0.5], [3, 2, 1, 1.5], [4, 3, 2, 2.5]]
    assert sent == [pytest.approx(row, abs=1e-4) for row in expected]
    assert seen == pytest.approx([0, 1, 2, 3], abs=1e-4)
    fresh = late.see(
        at, torch.full((4, 4), 9.0), torch.zeros(4, 1), numbers, generator(), torch.tensor([True, False] * 2)
    )
    assert fresh.seen[:, 0].tolist() == pytest.approx([9.0, 4.0, 9.0, 4.0], abs=1e-3)
    again = late.restart(at, torch.tensor([True] * 4), numbers, generator())
    assert not again.actions.any()


def test_history_is_newest_first_and_begins_with_one_reading(task):
    two = drawn(task, history=3, with_actions=True)
    at = two.begin(torch.zeros(2, 4), torch.zeros(2, 1), None, generator())
    for frame in (1.0, 2.0):
        at = two.see(at, torch.full((2, 4), frame), torch.full((2, 1), -frame), None, generator())
    assert at.seen[0].tolist() == [2, 2, 2, 2, -2, 1, 1, 1, 1, -1, 0, 0, 0, 0, 0]
    begun = torch.tensor([True, False])
    at = two.see(at, torch.full((2, 4), 7.0), torch.zeros(2, 1), None, generator(), begun)
    assert at.seen[0].tolist() == [7, 7, 7, 7, 0] * 3
    assert at.seen[1, :5].tolist() == [7, 7, 7, 7, 0]
    assert at.seen[1, 5:].tolist() == [2, 2, 2, 2, -2, 1, 1, 1, 1, -1]


def test_pushes_come_in_their_time_and_in_all_directions():
    task = load("ant-run")
    pushes = drawn(task, "push.velocity=.5:1", "push.interval=1:2", "push.velocity.z=.25:.25")
    at, rng = pushes.begin(torch.zeros(WORLDS, 29), torch.zeros(WORLDS, 8), None, generator()), generator()
    times = []
    for frame in range(1, 60):
        at, change = pushes.push(at, None, rng)
        pushed = change.any(1)
        size = change[pushed, :2].norm(dim=-1)
        assert ((size >= 0.5) & (size <= 1.0)).all()
        assert (change[pushed, 2] == 0.25).all()
        if bool(pushed[0]):
            times.append(frame)
            assert 0 < int(pushed.sum()) < WORLDS
    gaps = [b - a for a, b in zip([0, *times], times, strict=False)]
    assert len(gaps) >= 2
    assert all(10 <= gap <= 21 for gap in gaps)


def test_what_a_user_names_replaces_the_tasks_own():
    task = load("anymal-velocity")
    own = {name for one in drawn(task, noisy=True).draws for name in one.names}
    assert {"push.velocity.x", "push.interval", "observation.joint_velocity.LF_HAA"} <= own
    given = drawn(task, "push.velocity=0:2", "observation.joint_velocity.*=+-3:3:step", noisy=True).draws
    names = [name for one in given for name in one.names]
    assert "push.velocity.x" not in names
    assert names.count("push.interval") == 1
    assert names.count("observation.joint_velocity.LF_HAA") == 1
    assert next(one.upper for one in given if one.names == ("observation.joint_velocity.LF_HAA",)) == 3.0
    assert not drawn(load("cartpole-swingup"))


def environment(task, dynamics, *texts, seed=0, worlds=32, **more):
    opened = open_randomisation(texts, dynamics, task)
    return PolicyEnvironment(
        task, opened.dynamics, SampledStarts(task, seed), worlds, seed=seed, draws=opened.draws,
        disturbed=opened.disturbed, **more,
    )  # fmt: skip


TEXTS = (
    "hinge.mass=x.5:2", "observation.*=+-.1:.1", "observation.slider=+-.1:.1:step", "delay.*=0:.05",
    "action.*=+-.1:.1:step",
)  # fmt: skip


def test_a_saved_environment_continues_as_it_would_have(task):
    dynamics = declared_hybrid("cartpole")
    one, other = (environment(task, dynamics, *TEXTS, seed=seed, history=2, frames=6) for seed in (0, 1))
    assert one.robots.names == (
        "hinge.mass", *(f"observation.{name}" for name in task.observations), "delay.observation", "delay.action",
    )  # fmt: skip
    for _ in range(4):
        one.step(torch.ones(32, 1))
    other.load(one.checkpoint())
    assert torch.equal(one.seen, other.seen)
    for _ in range(8):
        seen = [env.step(torch.ones(32, 1))[0] for env in (one, other)]
        assert torch.equal(seen[0]["policy"], seen[1]["policy"])
        assert torch.equal(seen[0]["robot"], seen[1]["robot"])
    assert seen[0]["policy"].shape == (32, 8)


def test_disturbances_of_a_learned_or_any_other_model_need_no_parameters():
    opened = open_randomisation(["observation.*=+1:1", "delay.action=.1:.1"], Mass(), Hold())
    assert opened.draws is None
    plain, world = (
        PolicyEnvironment(Hold(), Mass(), Fixed([0.0]), 2, disturbed=disturbed) for disturbed in ((), opened.disturbed)
    )
    seen = [env.step(torch.ones(2, 1))[0]["policy"] for env in (plain, world)]
    assert float(plain.state.qd[0]) > 0.0
    assert float(world.state.qd[0]) == 0.0  # the action has not arrived
    assert seen[1][:, :2].tolist() == [[1.0, 1.0]] * 2


def test_returns_are_explained_by_drawn_disturbances(task):
    opened = open_randomisation(["delay.action=0:.2"], declared_hybrid("cartpole"), task)
    found = play(
        lambda seen: seen[:, :1].sign(), task, opened.dynamics, SampledStarts(task, 0), 30, disturbed=opened.disturbed
    )
    assert robust(found.returns_in("hybrid"), [found]).sensitivity[0].name == "delay.action"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("observation.wheel=+0:1", r"'observation\.wheel' matches no quantity \(did you mean '.*hinge'\?\); valid: "),
        ("delay.action=-1:0", r"delay\.action would be -1; valid: at least 0"),
        ("push.interval=0:1", r"push\.interval would be 0; valid: at least"),
        ("push.velocity=0:1", r"'cartpole' cannot be pushed"),
        ("hinge.mass=x.5:2:step", r"hinge\.mass is a quantity of the robot; valid: one draw per episode"),
        ("dr.body_colour=0:1", r"'dr\.body_colour' is no term of mjlab that is known here"),
        ("observation.slider&delay.action=0:1", r"delay & observation share a draw"),
    ],
)
def test_what_is_not_possible_is_one_line(task, text, said):
    with pytest.raises(InputError, match=said):
        environment(task, declared_hybrid("cartpole"), text)


def test_terms_of_mjlab_are_the_same_quantities(task):
    model = declared_hybrid("cartpole")
    texts = ("dr.body_mass=x.9:1.1", "*.mass=x.9:1.1")
    assert len({open_randomisation([text], model, task).draws.names for text in texts}) == 1
    biased = disturbances_of(["dr.encoder_bias=+-.1:.1"], load("anymal-velocity"))
    assert len(biased) == 12
    assert {one.names[0].rpartition(".")[0] for one in biased} == {"observation.joint_position"}


def test_each_world_has_a_piece_of_a_ground():
    task = load("ant-run")
    opened = open_randomisation(["ground=rough", "root.mass=+0:5"], declared_hybrid("ant"), task)
    around = opened.surroundings(task, 4, 0)
    world = PolicyEnvironment(task, opened.dynamics, SampledStarts(task, 0), 4, draws=opened.draws, environment=around)
    assert len(around.ground.pose.unique(dim=0)) == 4
    for _ in range(20):
        seen = world.step(torch.zeros(4, 8))[0]["policy"]
    assert seen.isfinite().all()
    assert world.robots.parameters.names == ("root.mass",)
    flat = open_randomisation([], declared_hybrid("ant"), task)
    assert flat.surroundings(task, 4, 0) is None
    with pytest.raises(InputError, match=r"rough, steps are several grounds; valid: one"):
        open_randomisation(["ground=rough", "ground=steps"], declared_hybrid("ant"), task)
    with pytest.raises(InputError, match=r"no ground of robot 'ant'; valid: flat"):
        open_randomisation(["ground=moon"], declared_hybrid("ant"), task).surroundings(task, 4, 0)

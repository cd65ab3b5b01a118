# SPDX-License-Identifier: Apache-2.0
"""Mirror images of robots: of their states, actions and motion, and of what policies see."""

import msgspec
import pytest
import torch

from neurodyn.control.resolve import open_dynamics
from neurodyn.control.starts import SampledStarts
from neurodyn.core import artifacts
from neurodyn.core.description.contacts import ChainJoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.errors import InputError
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.learn.budget import TrainState
from neurodyn.multibody.engine import Engine, EngineConfig
from neurodyn.policy.learners.shac import ShacLearner
from neurodyn.policy.learners.symmetry import MirroredBatches, mirror_of
from neurodyn.policy.learners.training import open_training
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.requests import PolicyTrainingJob, TrainPolicyRequest
from neurodyn.policy.settings import NetworkSettings, ShacSettings
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.policy.worlds.randomisation import open_randomisation
from neurodyn.robots import load as load_robot
from neurodyn.sim.declaration.declare import declare
from neurodyn.tasks import load
from tests.multibody import machines
from tests.tasks.test_velocity import QUADRUPED

WORLDS = 16


@pytest.fixture(scope="module")
def ant():
    return declared_hybrid("ant")


def batches(task, dynamics, *texts, **more):
    opened = open_randomisation(texts, dynamics, task)
    world = PolicyEnvironment(
        task, opened.dynamics, SampledStarts(task, 0), WORLDS, draws=opened.draws, disturbed=opened.disturbed, **more
    )
    return MirroredBatches(world), world


def states(task):
    generator = torch.Generator().manual_seed(0)
    state = task.start(WORLDS, generator)
    return State(state.q, state.qd + torch.randn(state.qd.shape, generator=generator))


def test_the_other_side_of_an_ant(ant):
    mirror = mirror_of(ant.mechanism)
    assert mirror.partner == {
        "root": "root", "hip_1": "hip_4", "ankle_1": "ankle_4", "hip_2": "hip_3", "ankle_2": "ankle_3",
        "hip_3": "hip_2", "ankle_3": "ankle_2", "hip_4": "hip_1", "ankle_4": "ankle_1",
    }  # fmt: skip
    assert {mirror.sign[f"hip_{leg}"] for leg in range(1, 5)} == {-1.0}
    assert mirror.reflected


@pytest.mark.parametrize("name", ["ant-run", "anymal-forward", "anymal-velocity"])
def test_twice_is_nothing(name):
    task = load(name)
    dynamics = declared_hybrid(task.declaration())
    both, world = batches(task, dynamics, history=2, with_actions=True)
    seen, action = torch.randn(3, world.seen.shape[1]), torch.randn(3, world.num_actions)
    assert torch.equal(both.observations(both.observations(seen)), seen)
    assert not torch.equal(both.observations(seen), seen)
    assert torch.equal(both.actions(both.actions(action)), action)
    spec, state = task.declaration().spec, states(task)
    again = both.mirror.state(spec, both.mirror.state(spec, state))
    assert torch.equal(again.q, state.q)
    assert torch.equal(again.qd, state.qd)


@pytest.mark.parametrize("kind", ["hybrid", "plain MuJoCo"])
def test_a_mirrored_robot_moves_as_the_mirror_image(ant, kind):
    robot, task = load_robot("ant"), load("ant-run")
    plain = msgspec.structs.replace(robot, simulator=msgspec.structs.replace(robot.simulator, solver="mujoco-c"))
    dynamics = ant if kind == "hybrid" else AnalyticDynamics(plain)
    both, _ = batches(task, ant)
    state, action = states(task), torch.rand(WORLDS, 8) * 2.0 - 1.0
    ends = []
    for one, acted in ((state, action), (both.mirror.state(robot.spec, state), both.actions(action))):
        carry = dynamics.begin(one)
        for _ in range(5):
            carry, step = dynamics.step(carry, one, Control(torque=50.0 * acted))
            one = step.state
        ends.append(one)
    image = both.mirror.state(robot.spec, ends[0])
    torch.testing.assert_close(image.q, ends[1].q, atol=2e-4, rtol=1e-3)
    torch.testing.assert_close(image.qd, ends[1].qd, atol=2e-2, rtol=1e-2)


def screws(left, right):
    """A floating body with a screw on each side."""
    base = Link(machines.joint("base", "free"), 2.0, (0.0, 0.0, 0.0), (0.1, 0.1, 0.1, 0.0, 0.0, 0.0))
    sides = [
        Link(
            ChainJoint(
                name=name, kind="screw", parent=0, parent_frame=(0.0, y, 0.0, 0.0, 0.0, 0.0, 1.0), axis=(0.6, 0.0, 0.8),
                child_frame=machines.IDENTITY, pitch=pitch,
            ),
            1.0, (0.1, 0.0, 0.05), (0.02, 0.01, 0.01, 0.0, 0.0, 0.0),
        )
        for name, y, pitch in (("left", 0.2, left), ("right", -0.2, right))
    ]  # fmt: skip
    return Mechanism((base, *sides))


def test_the_mirror_image_of_a_right_handed_screw_is_left_handed():
    mechanism = screws(0.5, -0.5)
    mirror, spec = mirror_of(mechanism), machines.spec(mechanism)
    assert mirror.partner == {"base": "base", "left": "right", "right": "left"}
    assert (mirror.sign["left"], mirror.sign["right"]) == (-1.0, -1.0)
    program = Engine(mechanism, spec, EngineConfig()).program
    start = torch.randn(4, spec.nq + spec.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    start[:, 3:7] /= start[:, 3:7].norm(dim=1, keepdim=True)

    def image(state):
        mirrored = mirror.state(spec, State(*state.split((spec.nq, spec.nv), 1)))
        return torch.cat((mirrored.q, mirrored.qd), 1)

    ends = [program.rollout(state, frames=5)[:, -1] for state in (start, image(start))]
    torch.testing.assert_close(image(ends[0]), ends[1])
    with pytest.raises(InputError, match=r"joint 'left' has no mirror image"):
        mirror_of(screws(0.5, 0.5))


def test_batches_are_doubled_with_what_was_drawn(ant):
    texts = ("root.com.y=+-.1:.1", "hip_?.mass=x.5:2", "observation.hip_?=+-.1:.1", "ankle_?.upper=+0:.1")
    both, world = batches(load("ant-run"), ant, *texts)
    seen, actions = both.augment(world, world.get_observations(), torch.ones(WORLDS, 8))
    assert seen.batch_size[0] == len(actions) == 2 * WORLDS
    names, (numbers, images) = world.robots.names, seen["robot"].chunk(2)
    at = names.index
    assert torch.equal(images[:, at("root.com.y")], -numbers[:, at("root.com.y")])
    assert torch.equal(images[:, at("hip_1.mass")], numbers[:, at("hip_4.mass")])
    assert torch.equal(images[:, at("observation.hip_1")], -numbers[:, at("observation.hip_4")])
    assert torch.equal(images[:, at("ankle_2.upper")], numbers[:, at("ankle_3.upper")])
    assert both.augment(world, None, None) == (None, None)


def test_updates_learn_from_both_sides(tmp_path):
    asked = TrainPolicyRequest(
        "ant-run", "hybrid", tmp_path / "policy", iterations=1, worlds=8, reference="none", symmetry=True,
        randomise=("root.mass=+0:5",),
    )  # fmt: skip
    job = open_training(asked)
    train_policy(msgspec.structs.replace(job, settings=msgspec.structs.replace(job.settings, evaluations=1, horizon=8)))
    saved = artifacts.read_tree(tmp_path / "policy" / "state", "training")["learner"]
    assert all(value.isfinite().all() for value in saved["actor_state_dict"].values())


def test_refusals(ant):
    with pytest.raises(InputError, match=r"task 'ant-spin' rewards one side more than the other"):
        batches(load("ant-spin"), ant)
    with pytest.raises(InputError, match=r"no joint has another side"):
        mirror_of(declared_hybrid("cartpole").mechanism)
    with pytest.raises(InputError, match=r"'hip_1\.mass' becomes 'hip_4\.mass', which is not there"):
        batches(load("ant-run"), ant, "hip_1.mass=x.5:2")


def test_a_quadruped_of_init_walks_the_same_on_both_sides(tmp_path):
    text = QUADRUPED.replace("0.15 0.05 0.08", "0.15 0 0.08")  # its load in the middle
    (tmp_path / "dog.xml").write_text(text.replace('<position name="', '<position name="motor_'))
    declare(tmp_path / "dog.xml", tmp_path / "dog")
    task = load(f"velocity@{tmp_path / 'dog'}")
    dynamics = declared_hybrid(task.declaration())
    both, _ = batches(task, dynamics)
    assert both.mirror.partner["FL_thigh"] == "FR_thigh"
    assert both.mirror.partner["motor_FL_thigh"] == "motor_FR_thigh"
    state, action = states(task), torch.rand(WORLDS, 8) - 0.5
    ends = []
    for one, acted in ((state, action), (both.mirror.state(task.declaration().spec, state), both.actions(action))):
        now = dynamics.quantities(one)
        control = task.control(acted, now, task.begin(now, torch.Generator().manual_seed(0)))
        _, step = dynamics.step(dynamics.begin(one), one, control)
        ends.append(step.state)
    image = both.mirror.state(task.declaration().spec, ends[0])
    torch.testing.assert_close(image.q, ends[1].q, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(image.qd, ends[1].qd, atol=1e-2, rtol=1e-2)


def test_shac_trains_a_symmetric_policy(tmp_path):
    task = load("ant-run")
    asymmetry = []
    for weight in (0.0, 10.0):
        settings = ShacSettings(
            worlds=8, horizon=2, critic_epochs=1, symmetry=True, mirror_loss=weight,
            network=NetworkSettings(hidden=(16, 16)),
        )  # fmt: skip
        learner = ShacLearner(PolicyTrainingJob(task, open_dynamics(task, "hybrid"), tmp_path, settings))
        train_state = TrainState()
        for train_state.step in range(40):
            learner.step(0.0, train_state)
        mirror, seen = MirroredBatches(learner._world), learner._world.seen
        with torch.no_grad():
            asymmetry.append(float(learner._asymmetry(mirror, seen)))
            one, other = (learner.act(x, torch.zeros(8))[1] for x in (seen, mirror.observations(seen)))
        assert asymmetry[-1] == pytest.approx(float((other - mirror.actions(one)).square().mean()), rel=1e-4)
    assert asymmetry[1] < 0.2 * asymmetry[0]

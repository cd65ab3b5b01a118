# SPDX-License-Identifier: Apache-2.0
"""Terms of observations: columns, scale, clip and noise; the policy's and the critic's group; what a new term needs."""

from types import SimpleNamespace

import pytest
import torch

from neurodyn import tasks
from neurodyn.core.errors import InputError
from neurodyn.tasks import ObservationTerm
from neurodyn.tasks.observations import ObservationGroup, each
from neurodyn.tasks.running import AntRun

NOW, MEMORY = {"joint_position": torch.tensor([[1.0, -3.0]])}, SimpleNamespace(action=torch.tensor([[0.5]]))


def test_a_group_shows_its_terms_side_by_side():
    group = ObservationGroup(
        [
            ObservationTerm("joint_position", columns=each("{}_angle", "ab"), noise=0.1, scale=2.0, clip=(-1.5, 1.5)),
            ObservationTerm("last", lambda now, memory: memory.action),
        ]
    )
    assert group.columns == ("a_angle", "b_angle", "last")
    assert group.noise == (0.1, 0.1, 0.0)
    assert group(NOW, MEMORY).tolist() == [[2.0, -3.0, 0.5]]


def test_a_term_with_another_number_of_columns_is_refused():
    with pytest.raises(InputError, match="'joint_position' has 2 columns; valid: 1, one for each name"):
        ObservationGroup([ObservationTerm("joint_position")])(NOW, MEMORY)


class Taller(AntRun):
    """The ant's run with one more term for the policy, and one for its critic."""

    def observation_terms(self):
        policy = (*super().observation_terms()["policy"], ObservationTerm("last", _last, self.actions, noise=0.2))
        return {"policy": policy, "critic": (ObservationTerm("base_position", columns=("x", "y", "z")),)}


def _last(now, memory):
    return memory.action


def test_a_further_term_is_named_required_and_noisy_by_itself():
    task, run = Taller(), AntRun()
    assert task.observations == (*run.observations, *run.actions)
    assert task.noise == (*(0.0,) * len(run.observations), *(0.2,) * len(run.actions))
    assert not run.noise
    assert set(task.quantities) == {*run.needs, "base_position"}


def test_an_unknown_group_is_refused():
    class Other(AntRun):
        def observation_terms(self):
            return {"actor": ()}

    with pytest.raises(InputError, match=r"'actor'; valid: critic, policy"):
        Other().groups  # noqa: B018


def test_a_task_that_names_and_observes_by_itself_works(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from neurodyn.tasks.swing_up import CartpoleSwingUp\n"
        "class Plain(CartpoleSwingUp):\n"
        "    observations = ('hinge',)\n"
        "    noise = (0.1,)\n"
        "    def observe(self, quantities, memory):\n"
        "        return quantities['joint_position'][:, 1:]\n"
    )
    task = tasks.load(f"{tmp_path / 'mine.py'}:Plain")
    assert (task.observations, task.noise) == (("hinge",), (0.1,))
    assert task.observe(NOW, MEMORY).tolist() == [[-3.0]]


def test_a_task_without_observations_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from neurodyn.tasks.swing_up import CartpoleSwingUp\n"
        "class Blind(CartpoleSwingUp):\n"
        "    def observation_terms(self):\n"
        "        return {}\n"
    )
    with pytest.raises(InputError, match="has no group 'policy'"):
        tasks.load(f"{tmp_path / 'mine.py'}:Blind")


def test_the_critic_alone_sees_its_group():
    pytest.importorskip("rsl_rl")
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.policy import PolicySettings
    from neurodyn.policy.learners.ppo import PpoLearner
    from neurodyn.policy.requests import PolicyTrainingJob

    task = Taller()
    settings = PolicySettings(worlds=4, horizon=4, minibatches=2, epochs=1)
    learner = PpoLearner(PolicyTrainingJob(task, open_dynamics(task, "hybrid"), "unused", settings))
    alg = learner.runner.alg
    assert (alg.actor.mlp[0].in_features, alg.critic.mlp[0].in_features) == (37, 40)
    learner.runner.learn(1)
    assert learner.runner.env.get_observations()["critic"].shape == (4, 3)

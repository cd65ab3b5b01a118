# SPDX-License-Identifier: Apache-2.0
"""Training: it learns, it resumes after a kill, it writes no pickle, and a policy is for one task alone."""

import json
import signal

import msgspec
import pytest
import torch

from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.starts import SampledStarts
from neurodyn.core import artifacts
from neurodyn.core.errors import InputError, MismatchError, Notice
from neurodyn.learn.budget import TrainingBudget
from neurodyn.learn.loop import TrainingLoop
from neurodyn.learn.metrics import read_metrics
from neurodyn.policy.artifact import load_policy, policy_config, require_task
from neurodyn.policy.episodes.evaluation import play
from neurodyn.policy.learners.ppo import PPO, PpoLearner
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.policy.settings import NetworkSettings, PolicySettings
from neurodyn.tasks import load
from tests.learn.callbacks import SignalAt, StopAt, Stopped
from tests.policy.small_worlds import TINY, Hold, Mass, here


@pytest.mark.trains
def test_a_policy_gets_better(tmp_path):
    class Long(Hold):
        frames = 30

    settings = PolicySettings(
        worlds=64, horizon=16, iterations=40, evaluations=0, minibatches=2, rate=1e-3, gamma=0.95,
        network=NetworkSettings(hidden=(16,), initial_std=0.5),
    )  # fmt: skip
    learner = PpoLearner(PolicyTrainingJob(Long(), here(), tmp_path, settings))
    starts = [SampledStarts(Long(), 5) for _ in range(2)]
    before = play(learner.network, Long(), Mass(), starts[0], 64).returns.mean()
    TrainingLoop(learner, TrainingBudget(settings.iterations)).run()
    after = play(learner.network, Long(), Mass(), starts[1], 64).returns.mean()
    assert before < 15.0
    assert after > 18.0  # 30 is where nothing moves and nothing is to do


def test_written_files(tmp_path):
    out = tmp_path / "policy"
    end = train_policy(Hold(), here(), out, TINY, reference=here())
    assert end.step == 4
    found = read_metrics(out)
    assert found[-1]["frames"] == 4 * 16 * 8
    assert [line["step"] for line in found] == [1, 2, 3, 4, 4]
    played = [line for line in found if "return_training" in line]
    assert [line["step"] for line in played] == [2, 4]
    # The reference is the same mass from the same starts.
    for line in played:
        assert line["return_reference"] == pytest.approx(line["return_training"], abs=1e-5)
    assert found[-1]["finished"] is True
    for line in found[:-1]:
        if line["episodes"]:
            assert sum(line["reward"].values()) == pytest.approx(line["return"], abs=1e-4)
            assert line["length"] > 0
    assert any("reward" in line for line in found)
    for path in out.rglob("*"):
        assert path.suffix in {"", ".json", ".jsonl", ".yaml", ".safetensors"} or "tfevents" in path.name
    config = json.loads((out / "config.json").read_text())
    assert config["observations"] == ["x", "v", "last"]
    assert config["actions"] == ["force"]
    assert config["action_scale"] == [3.0]
    assert config["dt"] == 0.1


def test_a_stopped_training_continues(tmp_path):
    out = tmp_path / "policy"
    with pytest.raises(Stopped):
        train_policy(Hold(), here(), out, TINY, callbacks=[StopAt(2)])
    assert artifacts.read_tree(out / "state", "training")["position"]["step"] == 2
    assert train_policy(Hold(), here(), out, TINY, resume=True).step == 4
    assert [line["step"] for line in read_metrics(out)] == [1, 2, 3, 4, 4]


@pytest.mark.parametrize("stop", [1, 3])
def test_a_stopped_training_ends_in_the_same_weights(tmp_path, stop):
    """Bitwise on a CPU: worlds, starts, noise, the rate of learning and all random numbers go on."""
    settings = msgspec.structs.replace(TINY, iterations=6)
    train_policy(Hold(), here(), tmp_path / "whole", settings)
    with pytest.raises(Stopped):
        train_policy(Hold(), here(), tmp_path / "stopped", settings, callbacks=[StopAt(stop)])
    torch.manual_seed(1)
    train_policy(Hold(), here(), tmp_path / "stopped", settings, resume=True)
    whole, found = (artifacts.read_tree(tmp_path / name / "state", "training") for name in ("whole", "stopped"))
    for name, tensor in whole["learner"]["actor_state_dict"].items():
        assert torch.equal(tensor, found["learner"]["actor_state_dict"][name]), name
    for name, tensor in whole["learner"]["critic_state_dict"].items():
        assert torch.equal(tensor, found["learner"]["critic_state_dict"][name]), name
    assert whole["rate"] == found["rate"]
    assert torch.equal(whole["worlds"]["worlds"]["state"]["q"], found["worlds"]["worlds"]["state"]["q"])


def test_a_training_continues_for_longer_than_was_planned(tmp_path):
    out = tmp_path / "policy"
    train_policy(Hold(), here(), out, TINY)
    longer = msgspec.structs.replace(TINY, iterations=6, evaluations=3)
    assert train_policy(Hold(), here(), out, longer, resume=True).step == 6
    assert [line["step"] for line in read_metrics(out)] == [1, 2, 3, 4, 5, 6, 6]
    assert [line["step"] for line in read_metrics(out) if "return_training" in line] == [2, 4, 6]


def test_an_interrupted_training_loses_nothing(tmp_path):
    out = tmp_path / "policy"
    with pytest.raises(KeyboardInterrupt, match="interrupted at step 3; the same command with --resume goes on"):
        train_policy(Hold(), here(), out, TINY, callbacks=[SignalAt(3, signal.SIGINT)])
    assert artifacts.read_tree(out / "state", "training")["position"]["step"] == 3


def test_folders_that_hold_something_else_are_refused(tmp_path):
    out = tmp_path / "policy"
    with pytest.warns(Notice, match="holds no training to resume; a new one starts"):
        train_policy(Hold(), here(), out, TINY, resume=True)
    with pytest.raises(InputError, match="already holds a run; add --resume"):
        train_policy(Hold(), here(), out, TINY)
    with pytest.raises(InputError, match="--resume needs the settings"):
        train_policy(Hold(), here(), out, msgspec.structs.replace(TINY, gamma=0.5), resume=True)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError, match="is a file; give a folder"):
        train_policy(Hold(), here(), file, TINY)


def test_a_damaged_state_is_refused(tmp_path):
    out = tmp_path / "policy"
    train_policy(Hold(), here(), out, TINY)
    artifacts.write_tree(out / "state", "training", {"position": {"step": 1}})
    with pytest.raises(InputError, match="state does not fit its configuration"):
        train_policy(Hold(), here(), out, TINY, resume=True)


def test_policies_are_for_one_task():
    cartpole, ant = load("cartpole-swingup"), load("ant-run")
    config = policy_config(cartpole, TINY.network)
    require_task(config, cartpole, "here")
    with pytest.raises(MismatchError, match=r"its task is cartpole-swingup; valid here: ant-run"):
        require_task(config, ant, "here")


def test_what_is_loaded_acts_as_what_was_trained(tmp_path):
    learner = PpoLearner(PolicyTrainingJob(load("cartpole-swingup"), ResolvedDynamics("mass", _Cart()), tmp_path, TINY))
    learner.runner.learn(2)
    network = learner.network
    from neurodyn.policy.artifact import save_policy

    save_policy(tmp_path, policy_config(load("cartpole-swingup"), TINY.network), network)
    _, loaded = load_policy(tmp_path)
    seen = torch.randn(5, 4)
    actor = learner.runner.get_inference_policy()
    wanted = actor({"policy": seen}).detach().clamp(-1, 1)
    torch.testing.assert_close(loaded(seen), wanted, rtol=1e-4, atol=1e-5)


def test_frames_are_stored_as_rsl_rl_stores_them(tmp_path, monkeypatch):
    stored = []
    for ours in (True, False):
        monkeypatch.setattr(PPO, "collects", lambda self, world, ours=ours: ours)
        learner = PpoLearner(
            PolicyTrainingJob(Hold(), here(), tmp_path / str(ours), msgspec.structs.replace(TINY, failure=-2.0))
        )
        algorithm = learner.runner.alg
        monkeypatch.setattr(algorithm, "update", dict)
        learner.runner.learn(1, init_at_random_ep_len=True)
        stored.append(algorithm.storage)
    assert 0 < int(stored[0].dones.sum()) < stored[0].dones.numel()
    names = ("actions", "rewards", "dones", "values", "actions_log_prob", "returns", "advantages")
    found, wanted = ([dict(one.observations), *(getattr(one, name) for name in names)] for one in stored)
    torch.testing.assert_close(found, wanted)


def test_missing_and_damaged_policies_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder; expected a folder written by"):
        load_policy(tmp_path / "none")
    with pytest.raises(InputError, match="holds no policy"):
        load_policy(tmp_path)
    (tmp_path / "config.json").write_text('{"version": 99}')
    with pytest.raises(InputError, match="version 99; valid: 1"):
        load_policy(tmp_path)


class _Cart(Mass):
    """Two masses, under the names of the cartpole's joints."""

    def __init__(self):
        super().__init__(load("cartpole-swingup").declaration().spec)

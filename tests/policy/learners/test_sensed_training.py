# SPDX-License-Identifier: Apache-2.0
"""Trainings of policies that see sensors: critics that see the state, histories, resuming, and what older files saw."""

import json
import warnings
from collections import deque
from types import SimpleNamespace

import msgspec
import pytest
import torch

from neurodyn.control.commands import CommandFigures
from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.core import artifacts
from neurodyn.core.errors import MismatchError
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.learn.budget import TrainState
from neurodyn.policy.artifact import load_policy, policy_config, require_task, save_policy, task_of
from neurodyn.policy.learners.learner import PolicyLearner
from neurodyn.policy.learners.shac import ShacLearner
from neurodyn.policy.learners.training import _algorithm_of, _saw_state
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.requests import TrainPolicyRequest
from neurodyn.policy.settings import (
    SENSED_FRAMES,
    NetworkSettings,
    PolicySettings,
    ShacSettings,
    for_view,
    load_settings,
)
from neurodyn.policy.trust.judging import call_standing
from neurodyn.tasks import load
from neurodyn.tasks.commands import SPEED
from tests.learn.callbacks import StopAt, Stopped
from tests.policy.learners.test_shac import TINY as SHAC
from tests.policy.small_worlds import TINY as PPO

TASK = "cartpole-swingup"
SETTINGS = [
    msgspec.structs.replace(one, network=NetworkSettings(hidden=(8,), history=2, initial_std=0.3), iterations=4)
    for one in (PPO, SHAC)
]
TIMED = ("delay.encoder=0:.02", "rate.encoder=40:90")


@pytest.fixture(scope="module")
def dynamics():
    return ResolvedDynamics("hybrid", declared_hybrid("cartpole"))


@pytest.mark.parametrize("settings", SETTINGS, ids=["ppo", "shac"])
def test_the_critic_sees_the_state_and_a_training_resumes_bitwise(dynamics, tmp_path, settings):
    settings = msgspec.structs.replace(settings, randomise=TIMED) if settings.algorithm == "ppo" else settings
    task, state = load(TASK, "sensors"), load(TASK)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train_policy(task, dynamics, whole, settings)
    with pytest.raises(Stopped):
        train_policy(task, dynamics, parts, settings, callbacks=[StopAt(2, save=True)])
    train_policy(task, dynamics, parts, settings, resume=True)
    ours, theirs = (artifacts.read_tensors(folder / "policy.safetensors") for folder in (whole, parts))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    config, network = load_policy(whole)
    assert config.observe == "sensors"
    assert config.critic == state.observations
    assert len(network.mean) == 2 * len(task.observations)
    assert task_of(config, None, "policy").observes == "sensors"
    critic = artifacts.read_tree(whole / "state", "training")["learner"]["critic_state_dict"]
    drawn = sum(one.startswith(("delay", "rate")) for one in settings.randomise) + (2 if settings.randomise else 0)
    assert critic["mlp.0.weight"].shape[1] == len(state.observations) + drawn


def test_an_algorithm_takes_over_policy_and_critic_of_the_other(dynamics, tmp_path):
    task = load(TASK, "sensors")
    same = {"gamma": 0.99, "reward_scale": 1.0}
    ppo, shac = (msgspec.structs.replace(one, **same) for one in SETTINGS)
    train_policy(task, dynamics, tmp_path / "ppo", ppo)
    train_policy(task, dynamics, tmp_path / "shac", shac, initial=tmp_path / "ppo")
    train_policy(task, dynamics, tmp_path / "again", ppo, initial=tmp_path / "shac")


def test_gradients_reach_actions_through_readings_and_the_critics_state(dynamics, tmp_path):
    from neurodyn.policy.learners.gradient_window import GradientWatch, roll
    from neurodyn.policy.requests import PolicyTrainingJob

    task = load(TASK, "sensors")
    learner = ShacLearner(PolicyTrainingJob(task, dynamics, tmp_path, SETTINGS[1]))
    watch = GradientWatch(3, SETTINGS[1].worlds)
    window = roll(learner._world, learner.act, learner.value, 3, 0.99, watch)
    assert window.judged.shape[-1] == window.last.shape[-1] == len(load(TASK).observations)
    window.loss.backward()
    assert float(watch.norms.min()) > 0.0


def test_settings_and_flags_choose_what_a_policy_sees():
    walking, swinging, plain = load("velocity@go2"), load(TASK), PolicySettings()
    task, settings = for_view(plain, walking)
    assert (task.observes, settings.observe, settings.network.history) == ("sensors", "sensors", SENSED_FRAMES)
    task, settings = for_view(msgspec.structs.replace(plain, observe="state"), walking)
    assert (task.observes, settings.observe, settings.network.history) == ("state", "state", 1)
    task, settings = for_view(plain, swinging)
    assert (task.observes, settings.observe, settings.network.history) == ("state", None, 1)
    task, settings = for_view(plain, walking, "state")  # an initial policy of the state
    assert (task.observes, settings.network.history) == ("state", 1)
    assert for_view(plain, walking, history=1)[1].network.history == 1
    recurrent = msgspec.structs.replace(plain, network=NetworkSettings(recurrent="gru"))
    assert for_view(recurrent, walking)[1].network.history == 1


def test_policies_of_older_versions_see_the_state(tmp_path):
    task = load("velocity@go2", "state")
    config = policy_config(task, NetworkSettings(hidden=(8,)))
    save_policy(tmp_path, config, config.build())
    known = json.loads((tmp_path / "config.json").read_text())
    body = known.get("value", known)
    body.pop("observe", None)
    body.pop("checksum", None)
    (tmp_path / "config.json").write_text(json.dumps(known))
    config, _ = load_policy(tmp_path)
    assert config.observe == "state"
    assert task_of(config, None, "old").observations == task.observations
    with pytest.raises(MismatchError, match="its observe is state; valid here: sensors"):
        require_task(config, load("velocity@go2"), "old")


def test_a_training_of_an_older_version_continues_with_the_state(tmp_path):
    (tmp_path / "config.yaml").write_text("task: velocity@go2\nsettings: {worlds: 8}\n")
    assert _saw_state(tmp_path)
    (tmp_path / "config.yaml").write_text("task: velocity@go2\nsettings: {worlds: 8, observe: sensors}\n")
    assert not _saw_state(tmp_path)
    assert not _saw_state(tmp_path / "none")


def test_walking_robots_learn_along_gradients_where_there_are_any(tmp_path):
    walking, running = load("velocity@go2"), load("ant-run")
    with_gradients, without = (SimpleNamespace(differentiable=known, measured=False) for known in (True, False))

    def chosen(task, dynamics, **given):
        return _algorithm_of(TrainPolicyRequest(task.name, "hybrid", tmp_path, **given), task, dynamics)

    assert chosen(walking, with_gradients) == chosen(walking, with_gradients, symmetry=True) == "shac"
    assert chosen(walking, without) == chosen(running, with_gradients) == "ppo"
    for given in ({"recurrent": "gru"}, {"device": "cuda"}):
        assert chosen(walking, with_gradients, **given) == "ppo"
    assert chosen(running, with_gradients, algorithm="shac") == "shac"
    for text, of_walking, of_running in (
        ("critic_rate: 1.0e-3", "shac", "shac"),
        ("desired_kl: .01", "ppo", "ppo"),
        ("worlds: 64", "shac", "ppo"),
        ("extends: velocity-biped", "shac", "shac"),
        ("worlds: 64\nno_key: 1", "shac", "ppo"),  # named as unknown by the settings of the default
    ):
        own = tmp_path / "own.yaml"
        own.write_text(text)
        assert chosen(walking, with_gradients, settings=own) == of_walking
        assert chosen(running, with_gradients, settings=own) == of_running
    (tmp_path / "config.yaml").write_text("task: velocity@go2\n")  # of PPO, which records leave out
    assert chosen(walking, with_gradients, resume=True) == "ppo"
    (tmp_path / "config.yaml").write_text("algorithm: shac\n")
    assert chosen(running, with_gradients, resume=True) == "shac"
    assert load_settings("velocity@go2", kind=ShacSettings).network.history == 3


def test_a_policy_that_stands_is_called_so_once_and_progress_tells_what_it_does(tmp_path):
    learner = object.__new__(PolicyLearner)
    learner._world, learner._reference = SimpleNamespace(ground_levels=None), None
    learner._recent, learner._settings = deque(), PolicySettings()
    stands = {SPEED: CommandFigures(commanded=0.6, achieved=0.01, moved=0.03)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call_standing(tmp_path, stands, 20.0, PolicySettings())  # too early to tell
    with pytest.warns(UserWarning, match=r"the policy stands; .* more noise \(network.initial_std, now 1\)"):
        call_standing(tmp_path, stands, 40.0, PolicySettings())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call_standing(tmp_path, stands, 50.0, PolicySettings())
    learner._shown = {"return_training": 40.0, "failed_training": 0.25,
                      "commands": {name: one.plain() for name, one in stands.items()}}  # fmt: skip
    text = learner.text(SimpleNamespace(state=TrainState(step=90, best_step=60, stale=2)), None)
    assert text == "without noise 40, speed 0.01 of 0.6 m/s, 25% fail, no better for 30 updates"


def test_a_policy_is_looked_at_within_a_minute_before_its_first_evaluation(tmp_path):
    class Standing(PolicyLearner):
        network, _penalty, _evaluation_dynamics, looks = None, 0.0, None, 0

        def _play(self, *_):
            self.looks += 1
            torch.rand(3)
            stands = {SPEED: CommandFigures(commanded=0.5, achieved=0.01, moved=0.02)}
            return SimpleNamespace(commands=stands)

    def opened(commands):
        learner = object.__new__(Standing)
        learner._looked, learner._out, learner._settings = False, tmp_path / "run", PolicySettings()
        learner._task = SimpleNamespace(commanded=lambda now, memory: commands)
        learner._world = SimpleNamespace(now=SimpleNamespace(of_rewards=None), memory=None)
        return learner

    learner, drawn = opened({SPEED: None}), torch.get_rng_state()
    learner.end_update(TrainState(cpu_seconds=10.0))
    assert not learner.looks
    with pytest.warns(UserWarning, match="the policy stands"):
        learner.end_update(TrainState(cpu_seconds=40.0))
    learner.end_update(TrainState(cpu_seconds=50.0))
    assert learner.looks == 1
    assert torch.equal(torch.get_rng_state(), drawn)
    for commands, measured in (({}, 0), ({SPEED: None}, 1)):  # nothing is commanded; an evaluation told
        learner = opened(commands)
        learner.end_update(TrainState(cpu_seconds=40.0, measured=measured))
        assert not learner.looks

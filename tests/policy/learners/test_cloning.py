# SPDX-License-Identifier: Apache-2.0
"""Imitating a log: what came of a control is taken for what was asked, and the actor learns the control."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("rsl_rl")

from rsl_rl.models import MLPModel
from tensordict import TensorDict

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, Status, StoreHeader
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.policy.episodes.logs import row_layout
from neurodyn.policy.learners.cloning import Demonstrations, best_episodes, clone
from neurodyn.policy.settings import CloneSettings
from neurodyn.tasks.anymal import AnymalVelocity
from tests.policy.small_worlds import Hold

_EPISODES, _FRAMES = 24, 40


class _Quiet(AnymalVelocity):
    noise = ()


def _log(path: Path) -> tuple[Store, np.ndarray]:
    """Return a log in which a robot moves at a speed of its own in each episode, with actions that are twice that."""
    task, rng = AnymalVelocity(), np.random.default_rng(0)
    spec = row_layout(task).spec
    speed = rng.uniform(-1.0, 1.0, _EPISODES).astype(np.float32)
    nominal = np.array(task.declaration().nominal_q(), np.float32)
    channel = np.zeros((_EPISODES, _FRAMES + 1, spec.nx), np.float32)
    channel[..., 0], channel[..., 8] = speed[:, None], -1.0
    control = np.broadcast_to(nominal + 0.5 * 2.0 * speed[:, None, None], (_EPISODES, _FRAMES, 12))
    with StoreWriter(path, StoreHeader(spec=spec, source="log")) as writer:
        writer.append(
            np.broadcast_to(nominal, (_EPISODES, _FRAMES + 1, 12)), np.zeros((_EPISODES, _FRAMES + 1, 12)), control,
            channel=channel, contact=np.ones((_EPISODES, _FRAMES + 1, 8)), status=Status.COMPLETE,
        )  # fmt: skip
    return Store.open(path), speed


def _model(store: Store) -> WorldModel:
    sizes = EnsembleConfig(members=1, width=4, depth=1, head=4)
    return WorldModel(store.header.spec.with_context(4), sizes).requires_grad_(False)


def test_a_demonstration_asks_for_what_happened(tmp_path: Path) -> None:
    store, speed = _log(tmp_path / "log.h5")
    task = _Quiet()
    seen, action = Demonstrations(task, _model(store), store, 64, seed=0).draw()
    columns = {name: seen[:, index] for index, name in enumerate(task.observations)}
    asked = columns["command.vx"]
    assert all(float(np.abs(speed - value).min()) < 1e-6 for value in asked.tolist())
    torch.testing.assert_close(columns["base_linear_velocity.x"], asked)
    torch.testing.assert_close(action, 2.0 * asked[:, None].expand(-1, 12), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(columns["last_action.LF_HAA"], 2.0 * asked, rtol=1e-5, atol=1e-5)
    assert columns["command.wz"].abs().max() == 0.0


@pytest.mark.trains
def test_an_actor_learns_it(tmp_path: Path) -> None:
    store, _ = _log(tmp_path / "log.h5")
    demonstrations = Demonstrations(AnymalVelocity(), _model(store), store, 128, seed=0)
    torch.manual_seed(0)
    named = TensorDict({"policy": torch.zeros(1, 48)}, batch_size=[1])
    distribution = {"class_name": "rsl_rl.modules.GaussianDistribution", "init_std": 0.5, "std_type": "log"}
    groups = {"actor": ["policy"], "critic": ["policy"]}
    actor = MLPModel(named, groups, "actor", 12, (32,), "elu", True, distribution)
    critic = MLPModel(named, groups, "critic", 1, (32,), "elu", True)
    before = {name: value.clone() for name, value in critic.mlp.state_dict().items()}
    left = clone(actor, critic, demonstrations, CloneSettings(steps=200, rate=3e-3))
    assert left < 0.25  # of actions between -2 and 2
    seen, action = demonstrations.draw()
    with torch.no_grad():
        found = actor(TensorDict({"policy": seen}, batch_size=[len(seen)]))
    assert float((found - action).square().mean().sqrt()) < 0.25
    assert all(torch.equal(value, before[name]) for name, value in critic.mlp.state_dict().items())
    assert critic.state_dict()["obs_normalizer._mean"].abs().max() > 0.1  # it has seen the observations
    mean = actor.obs_normalizer.mean.clone()
    actor.update_normalization(TensorDict({"policy": torch.full((1000, actor.obs_dim), 9.0)}, batch_size=[1000]))
    torch.testing.assert_close(actor.obs_normalizer.mean, mean, rtol=0.0, atol=0.02)  # and what it does stays


def test_a_task_without_an_inverse_is_refused() -> None:
    with pytest.raises(InputError, match="cannot imitate a log"):
        Hold().action_of(torch.zeros(1, 1))


def test_the_best_episodes_are_those_of_the_greatest_mean_reward(tmp_path: Path) -> None:
    store, _ = _log(tmp_path / "log.h5")
    assert len(best_episodes(store, 0.5)) == len(episodes_of(store, Split.TRAIN))  # no rewards, no choice
    rewards = np.repeat(np.random.default_rng(1).permutation(_EPISODES), _FRAMES + 1).astype(np.float32)
    table = store.table.copy()
    table["status"][int(np.argmax(rewards[:: _FRAMES + 1]))] = Status.TERMINATED
    rewarded = dataclasses.replace(store, reward=rewards, table=table)
    train = episodes_of(rewarded, Split.TRAIN)
    chosen = best_episodes(rewarded, 0.25)
    assert len(chosen) == len(train) // 4 + 1
    of = {episode: rewards[rewarded.offsets[episode]] for episode in train}
    fine = [episode for episode in train if rewarded.status[episode] == Status.COMPLETE]
    assert sorted(chosen) == sorted(sorted(fine, key=lambda episode: -of[episode])[: len(chosen)])

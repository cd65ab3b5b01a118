# SPDX-License-Identifier: Apache-2.0
"""A training that begins with a policy that is there already."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec
from rsl_rl.models import MLPModel

from neurodyn.core import artifacts
from neurodyn.core.config import read_plain
from neurodyn.core.errors import InputError
from neurodyn.learn.loop import has_state
from neurodyn.policy.artifact import load_policy, require_task
from neurodyn.policy.settings import TrainingSettings
from neurodyn.tasks import Task

S = TypeVar("S", bound=TrainingSettings)

CRITIC_UPDATES = 10
"""Updates in which a policy that came without its critic stays as it is, and only a new critic learns."""


def begun_with(task: Task, policy: str | Path, settings: S) -> tuple[Path, S]:
    """Return the folder of a policy that a training begins with, and settings with its network, which imitate nothing.

    Raises:
        InputError: There is no such policy, it is of another task, or it cuts off its observations.
    """
    config, _ = load_policy(policy)
    require_task(config, task, str(policy))
    if config.clip is not None:
        raise InputError(f"{policy}: cuts off its observations, which training does not; valid: one trained here")
    network = msgspec.structs.replace(config.network, initial_std=settings.network.initial_std)
    return artifacts.resolve_policy(policy), msgspec.structs.replace(settings, network=network, clone=None)


def brings_critic(folder: Path, settings: TrainingSettings) -> bool:
    """Return whether a policy's training left a critic of the same discount and scale of rewards."""
    if not has_state(folder):
        return False
    theirs = read_plain(folder / "config.yaml")["settings"]
    return all(theirs[name] == getattr(settings, name) for name in ("gamma", "reward_scale"))


def critic_updates(folder: Path | None, settings: TrainingSettings) -> int:
    """Return the updates for which a policy that is begun with (None: a random one) waits for its critic."""
    return 0 if folder is None or brings_critic(folder, settings) else CRITIC_UPDATES


def warm_start(actor: MLPModel, critic: MLPModel, folder: Path, settings: TrainingSettings) -> dict[str, Any]:
    """Give an algorithm's models a policy to go on from.

    Args:
        actor: The policy's model; its network is that of the policy.
        critic: The critic's model.
        folder: Folder of the policy. Where its training left a checkpoint, exploration noise is taken over, and the
            critic if it fits (`brings_critic`), whatever the algorithm was; else the actor alone, and the critic begins
            anew.
        settings: Settings of the training that begins.

    Returns:
        What the algorithm left beside them, as its optimiser; empty where there is nothing.
    """
    if brings_critic(folder, settings):
        saved = artifacts.read_tree(folder / "state", "training")["learner"]
        actor.load_state_dict(saved.pop("actor_state_dict"))
        critic.load_state_dict(saved.pop("critic_state_dict"))
        return saved
    if has_state(folder):
        actor.load_state_dict(artifacts.read_tree(folder / "state", "training")["learner"]["actor_state_dict"])
    else:
        _, network = load_policy(folder)
        network.give(actor.state_dict(), float(getattr(actor.obs_normalizer, "eps", 0.0)))
    seen = {name: value for name, value in actor.state_dict().items() if name.startswith("obs_normalizer.")}
    critic.load_state_dict({**critic.state_dict(), **seen})
    return {}

# SPDX-License-Identifier: Apache-2.0
"""A training that begins with a policy that is there already."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from rsl_rl.models import MLPModel

from neurodyn.core import artifacts
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


def critic_updates(folder: Path | None) -> int:
    """Return the updates for which a policy that is begun with (None: a random one) waits for its critic."""
    return 0 if folder is None or has_state(folder) else CRITIC_UPDATES


def warm_start(actor: MLPModel, critic: MLPModel, folder: Path) -> dict[str, Any]:
    """Give an algorithm's models a policy to go on from.

    Args:
        actor: The policy's model; its network is that of the policy.
        critic: The critic's model.
        folder: Folder of the policy. Where its training left a checkpoint, critic and exploration noise are taken over,
            whatever the algorithm was; else the actor alone, and the critic begins anew.

    Returns:
        What the algorithm left beside them, as its optimiser; empty where there is nothing.
    """
    if has_state(folder):
        saved = artifacts.read_tree(folder / "state", "training")["learner"]
        actor.load_state_dict(saved.pop("actor_state_dict"))
        critic.load_state_dict(saved.pop("critic_state_dict"))
        return saved
    _, network = load_policy(folder)
    state: Mapping[str, Any] = actor.state_dict()
    network.give(state, float(getattr(actor.obs_normalizer, "eps", 0.0)))
    seen = {name: value for name, value in state.items() if name.startswith("obs_normalizer.")}
    critic.load_state_dict({**critic.state_dict(), **seen})
    return {}

# SPDX-License-Identifier: Apache-2.0
"""A training that begins with a policy that is there already."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.learn.loop import has_state
from neurodyn.policy.artifact import load_policy, require_task
from neurodyn.policy.settings import PolicySettings
from neurodyn.tasks import Task

CRITIC_UPDATES = 10
"""Updates in which a policy that came without its critic stays as it is, and only a new critic learns."""


def begun_with(task: Task, policy: str | Path, settings: PolicySettings) -> tuple[Path, PolicySettings]:
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


def warm_start(learner: Any, folder: Path) -> None:
    """Give rsl_rl's PPO a policy to go on from.

    Args:
        learner: The PPO; its networks are those of the policy.
        folder: Folder of the policy. Where its training left a checkpoint, critic, exploration noise and optimiser are
            taken over with it; else the actor alone, and the critic begins anew.
    """
    if has_state(folder):
        learner.load(artifacts.read_tree(folder / "state", "training")["learner"], None, True)
        return
    _, network = load_policy(folder)
    actor: Mapping[str, Any] = learner.actor.state_dict()
    network.give(actor, float(getattr(learner.actor.obs_normalizer, "eps", 0.0)))
    seen = {name: value for name, value in actor.items() if name.startswith("obs_normalizer.")}
    learner.critic.load_state_dict({**learner.critic.state_dict(), **seen})

# SPDX-License-Identifier: Apache-2.0
"""A training that begins with a policy that is there already."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neurodyn.core import artifacts
from neurodyn.learn.loop import has_state
from neurodyn.policy.artifact import load_policy

CRITIC_UPDATES = 10
"""Updates in which a policy that came without its critic stays as it is, and only a new critic learns."""


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

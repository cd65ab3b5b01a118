# SPDX-License-Identifier: Apache-2.0
"""Policies that others trained, as policies of ours: any verb that takes a policy takes them."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import torch

from neurodyn.core.errors import InputError, choices
from neurodyn.core.locks import exclusive
from neurodyn.core.registry import Registry
from neurodyn.policy.artifact import PolicyConfig, policy_config, save_policy
from neurodyn.policy.checkpoints.actor import Actor
from neurodyn.policy.checkpoints.rl_games import read_rl_games
from neurodyn.policy.checkpoints.rsl_rl import read_rsl_rl
from neurodyn.policy.network import PolicyNetwork
from neurodyn.policy.settings import NetworkSettings
from neurodyn.tasks import TASKS, Task, load

LAYOUTS: Registry[Callable[[str | Path], Actor]] = Registry(
    "layout of a policy", **{"rl-games": read_rl_games, "rsl-rl": read_rsl_rl}
)
"""Readers of other people's policies by the name of their layout."""


def import_policy(
    file: str | Path, task: str, out: str | Path, *, layout: str = "rl-games", activation: str = "elu"
) -> PolicyConfig:
    """Write somebody else's policy as one of ours.

    Args:
        file: The policy.
        task: Name of the task whose observations and actions are those that the policy was trained with; of the
            policies of NeRD, TASK@nerd.
        out: Folder to write.
        layout: Layout of the file.
        activation: Activation between hidden layers, which such files do not say.

    Returns:
        What the written policy observes and does.

    Raises:
        InputError: The file is no such policy or does not fit the task, or the folder already holds a policy.
    """
    valid = get_args(get_type_hints(NetworkSettings)["activation"])
    if activation not in valid:
        raise InputError(f"--activation is {activation!r}; valid: {', '.join(valid)}")
    folder, wanted = Path(out), load(task)
    with exclusive(folder):
        if (folder / "config.json").exists() or folder.is_file():
            raise InputError(f"{folder}: is there already; give another --out")
        actor = LAYOUTS[layout](file)
        _require_fit(actor, wanted, str(file))
        settings = msgspec.convert(
            {"hidden": actor.hidden, "activation": activation, "normalise": actor.mean is not None}, NetworkSettings
        )
        config = msgspec.structs.replace(policy_config(wanted, settings), clip=actor.clip)
        save_policy(folder, config, _network(config, actor))
    return config


@torch.no_grad()
def _network(config: PolicyConfig, actor: Actor) -> PolicyNetwork:
    network = config.build()
    if actor.mean is not None and actor.deviation is not None:
        network.mean.copy_(actor.mean)
        network.deviation.copy_(actor.deviation)
    layers = (layer for layer in network.layers if isinstance(layer, torch.nn.Linear))
    for layer, (weight, bias) in zip(layers, actor.layers, strict=True):
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return network


def _require_fit(actor: Actor, task: Task, where: str) -> None:
    """Refuse a policy with other numbers of observations or actions than a task's; name the tasks that have them."""
    if (actor.observations, actor.actions) == (len(task.observations), len(task.actions)):
        return
    fitting = [name for name in TASKS if _fits(actor, TASKS[name])]
    raise InputError(
        f"{where}: takes {actor.observations} observations and gives {actor.actions} actions, but task {task.name!r} "
        f"has {len(task.observations)} and {len(task.actions)}; valid: {choices(fitting) if fitting else 'no task'}"
    )


def _fits(actor: Actor, kind: Callable[[], Task]) -> bool:
    task = kind()
    return (actor.observations, actor.actions) == (len(task.observations), len(task.actions))

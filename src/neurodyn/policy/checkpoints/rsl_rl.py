# SPDX-License-Identifier: Apache-2.0
"""Policies as rsl_rl (4 and later) saves them: read, and written for Isaac Lab's `play.py --checkpoint`.

A checkpoint holds "actor_state_dict" with `mlp.0.weight`, `mlp.2.weight` ..., with normalised observations
`obs_normalizer._mean` and `._std`, and with `distribution.*` the noise of exploration; likewise "critic_state_dict",
the optimiser's state and the iteration. The action is the network's output for (x - mean) / (std + 0.01).
"""

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import to_yaml
from neurodyn.core.errors import InputError
from neurodyn.nets.checkpoint import read_arrays, take
from neurodyn.policy.artifact import PolicyConfig, load_policy
from neurodyn.policy.checkpoints.actor import Actor, require_chain
from neurodyn.policy.network import PolicyNetwork
from neurodyn.policy.settings import PolicySettings

EPSILON = 1e-2
"""Added to the standard deviation of observations."""
RATE = 1e-3
"""Learning rate of the optimiser that a checkpoint holds, which has not taken a step."""

_LAYER = re.compile(r"mlp\.(\d+)\.weight")
_EXPECTED = "the actor of a checkpoint of rsl_rl (4 or later)"


def read_rsl_rl(path: str | Path) -> Actor:
    """Read the actor of a checkpoint (.pt), or of a file with its arrays by name (.npz, .safetensors).

    Nothing in the file is executed: of a checkpoint, tensors and numbers alone are read.

    Raises:
        InputError: The file is missing or no such checkpoint, or its network is of another kind.
    """
    path, where = Path(path), str(path)
    arrays = read_arrays(path, "actor_state_dict", "rsl_rl")
    indexes = sorted(int(found[1]) for found in map(_LAYER.fullmatch, arrays) if found)
    if not indexes:
        raise InputError(f"{where}: holds no 'mlp.0.weight'; expected {_EXPECTED}")
    names = [f"mlp.{index}" for index in indexes]
    layers = tuple(
        (take(arrays, f"{name}.weight", where, _EXPECTED), take(arrays, f"{name}.bias", where, _EXPECTED))
        for name in names
    )
    require_chain(names, layers, where)
    if "obs_normalizer._mean" not in arrays:
        return Actor(layers)
    mean, std = (take(arrays, f"obs_normalizer.{name}", where, _EXPECTED).flatten() for name in ("_mean", "_std"))
    wanted = layers[0][0].shape[1]
    if mean.shape != std.shape or len(mean) != wanted:
        raise InputError(f"{where}: obs_normalizer has {len(mean)} and {len(std)} numbers; valid: {wanted}")
    return Actor(layers, mean, std + EPSILON)


def export_rsl_rl(folder: str | Path, out: Path) -> Path:
    """Write a policy as a checkpoint that rsl_rl's OnPolicyRunner loads, with the runner's configuration beside it.

    Written are OUT/model_0.pt and OUT/params/agent.yaml. The critic and the optimiser have not learned anything; the
    noise of exploration is the settings' first one.

    Args:
        folder: Folder of the policy, or "pretrained-policy:NAME".
        out: Folder to write.

    Returns:
        The checkpoint.

    Raises:
        InputError: There is no policy, it cuts off its observations, which rsl_rl does not, or `out` exists.
    """
    config, network = load_policy(folder)
    if config.clip is not None:
        raise InputError(f"{folder}: cuts off normalised observations at {config.clip:g}, which rsl_rl does not")
    if out.exists():
        raise InputError(f"{out}: is there already; give another --out")
    runner = PolicySettings(network=config.network).runner()
    runner["algorithm"]["class_name"] = "rsl_rl.algorithms.PPO"
    runner["actor"]["distribution_cfg"]["std_type"] = "scalar"  # the default of rsl_rl, and of Isaac Lab's tasks
    actor, critic = (_blank(config, runner[name], outputs) for name, outputs in _models(config))
    network.give(actor, EPSILON)
    critic |= {name: actor[name].clone() for name in actor if name.startswith("obs_normalizer.")}
    trained = [value for model in (actor, critic) for name, value in model.items() if not _is_buffer(name)]
    optimiser = torch.optim.Adam([value.clone().requires_grad_() for value in trained], lr=RATE)
    checkpoint = {
        "actor_state_dict": actor, "critic_state_dict": critic, "optimizer_state_dict": optimiser.state_dict(),
        "iter": 0, "infos": None,
    }  # fmt: skip
    with artifacts.atomic_folder(out) as partial:
        torch.save(checkpoint, partial / "model_0.pt")
        artifacts.write_text(partial / "params" / "agent.yaml", to_yaml(runner | {"clip_actions": config.limit}))
    return out / "model_0.pt"


def _models(config: PolicyConfig) -> tuple[tuple[str, int], ...]:
    return ("actor", len(config.actions)), ("critic", 1)


def _is_buffer(name: str) -> bool:
    return name.startswith("obs_normalizer.")


def _blank(config: PolicyConfig, model: dict[str, Any], outputs: int) -> dict[str, Tensor]:
    """Return the state of rsl_rl's MLPModel for a policy, in its order, with fresh layers."""
    observations = len(config.observations)
    state: dict[str, Tensor] = {}
    if config.network.normalise:
        state = {f"obs_normalizer.{name}": torch.ones(1, observations) for name in ("_mean", "_var", "_std")}
        state["obs_normalizer._mean"] = torch.zeros(1, observations)
        state["obs_normalizer.count"] = torch.tensor(0)
    if "distribution_cfg" in model:
        state["distribution.std_param"] = torch.full((outputs,), float(model["distribution_cfg"]["init_std"]))
    fresh = PolicyNetwork(observations, outputs, config.network)
    return state | {f"mlp.{name}": value.detach().clone() for name, value in fresh.layers.state_dict().items()}

# SPDX-License-Identifier: Apache-2.0
"""Policies of rl_games and rsl_rl (4 and later).

Read as policies of ours, and written for Isaac Lab's `play.py --checkpoint`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.activations import activations_with
from neurodyn.core.config import to_yaml
from neurodyn.core.errors import InputError, choices
from neurodyn.core.locks import exclusive
from neurodyn.core.registry import Registry
from neurodyn.interop.checkpoints import read_arrays, take
from neurodyn.policy.artifact import PolicyConfig, PolicyNetwork, load_policy, policy_config, save_policy
from neurodyn.policy.settings import NetworkSettings, PolicySettings
from neurodyn.tasks import TASKS, Task, load

Layer = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Actor:
    """The action is that of the layers on clamp((observation - mean) / deviation, -clip, clip).

    Attributes:
        layers: Weight and bias of each layer, the last being that of the mean action, shapes [out, in] and [out].
        mean: Mean of observations, shape [observations]; None where they are not normalised.
        deviation: What they are divided by, shape [observations]; None where they are not normalised.
        clip: Size beyond which normalised observations are cut off; None for none.
    """

    layers: tuple[Layer, ...]
    mean: Tensor | None = None
    deviation: Tensor | None = None
    clip: float | None = None

    @property
    def observations(self) -> int:
        """Number of observations."""
        return self.layers[0][0].shape[1]

    @property
    def actions(self) -> int:
        """Number of components of an action."""
        return self.layers[-1][0].shape[0]

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(weight.shape[0] for weight, _ in self.layers[:-1])


def require_chain(names: Sequence[str], layers: Sequence[Layer], where: str) -> None:
    """Refuse layers of which one does not take what the one below gives.

    Raises:
        InputError: Which; or arrays of a layer have other shapes than [out, in] and [out].
    """
    for name, (weight, bias) in zip(names, layers, strict=True):
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            shapes = f"{list(weight.shape)} and {list(bias.shape)}"
            raise InputError(f"{where}: {name} has shapes {shapes}; valid: [out, in], [out]")
    for (below, (weight, _)), (above, (upper, _)) in pairwise(zip(names, layers, strict=True)):
        if upper.shape[1] != weight.shape[0]:
            raise InputError(f"{where}: {above} takes {upper.shape[1]} numbers, but {below} gives {weight.shape[0]}")


RL_GAMES_EPSILON = 1e-5
"""Added to the variance of observations."""
RL_GAMES_CLIP = 5.0
"""Size beyond which normalised observations are cut off."""

_NETWORK = "a2c_network."
_STATISTICS = "running_mean_std."
_HIDDEN = re.compile(r"a2c_network\.actor_mlp\.(\d+)\.weight")
_KNOWN = ("actor_mlp.", "critic_mlp.", "mu.", "sigma", "value.")
_RL_GAMES_ACTOR = "the actor of a checkpoint of rl_games"


def read_rl_games(path: str | Path) -> Actor:
    """Read the actor of a checkpoint (.pth), or of a file with its arrays by name (.npz, .safetensors).

    Nothing in the file is executed: of a checkpoint, tensors and numbers alone are read.

    Raises:
        InputError: The file is missing or no such checkpoint, or its network is of another kind.
    """
    path = Path(path)
    arrays = read_arrays(path, "model", "rl_games")
    return _actor({name.removeprefix("model/"): value for name, value in arrays.items()}, str(path))


def _actor(arrays: dict[str, Tensor], where: str) -> Actor:
    for name in arrays:
        if name.startswith(_NETWORK) and not name.removeprefix(_NETWORK).startswith(_KNOWN):
            raise InputError(f"{where}: has a layer {name!r}; valid: an MLP of {choices(_KNOWN)} alone")
    hidden = sorted(int(found[1]) for found in map(_HIDDEN.fullmatch, arrays) if found)
    stems = [*(f"actor_mlp.{index}" for index in hidden), "mu"]
    layers = tuple(
        (
            take(arrays, f"{_NETWORK}{stem}.weight", where, _RL_GAMES_ACTOR),
            take(arrays, f"{_NETWORK}{stem}.bias", where, _RL_GAMES_ACTOR),
        )
        for stem in stems
    )
    require_chain(stems, layers, where)
    mean, variance = _statistics(arrays, layers[0][0].shape[1], where)
    if mean is None or variance is None:
        return Actor(layers)
    return Actor(layers, mean, (variance + RL_GAMES_EPSILON).sqrt(), RL_GAMES_CLIP)


def _statistics(arrays: dict[str, Tensor], observations: int, where: str) -> tuple[Tensor | None, Tensor | None]:
    """Return mean and variance of observations; None where they are not normalised."""
    if not any(name.startswith(_STATISTICS) for name in arrays):
        return None, None
    mean, variance = (take(arrays, f"{_STATISTICS}running_{name}", where, _RL_GAMES_ACTOR) for name in ("mean", "var"))
    for name, value in (("running_mean", mean), ("running_var", variance)):
        if value.shape != (observations,):
            raise InputError(
                f"{where}: {name} has shape {list(value.shape)}; valid: [{observations}], as the first layer"
            )
    if bool((variance < 0).any()):
        raise InputError(f"{where}: running_var has negative numbers; valid: at least 0")
    return mean, variance


RSL_RL_EPSILON = 1e-2
"""Added to the standard deviation of observations."""
RSL_RL_RATE = 1e-3
"""Learning rate of the optimiser that a checkpoint holds, which has not taken a step."""

_LAYER = re.compile(r"mlp\.(\d+)\.weight")
_RSL_RL_ACTOR = "the actor of a checkpoint of rsl_rl (4 or later)"


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
        raise InputError(f"{where}: holds no 'mlp.0.weight'; expected {_RSL_RL_ACTOR}")
    names = [f"mlp.{index}" for index in indexes]
    layers = tuple(
        (take(arrays, f"{name}.weight", where, _RSL_RL_ACTOR), take(arrays, f"{name}.bias", where, _RSL_RL_ACTOR))
        for name in names
    )
    require_chain(names, layers, where)
    if "obs_normalizer._mean" not in arrays:
        return Actor(layers)
    mean, std = (take(arrays, f"obs_normalizer.{name}", where, _RSL_RL_ACTOR).flatten() for name in ("_mean", "_std"))
    wanted = layers[0][0].shape[1]
    if mean.shape != std.shape or len(mean) != wanted:
        raise InputError(f"{where}: obs_normalizer has {len(mean)} and {len(std)} numbers; valid: {wanted}")
    return Actor(layers, mean, std + RSL_RL_EPSILON)


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
    network.give(actor, RSL_RL_EPSILON)
    critic |= {name: actor[name].clone() for name in actor if name.startswith("obs_normalizer.")}
    trained = [value for model in (actor, critic) for name, value in model.items() if not _is_buffer(name)]
    optimiser = torch.optim.Adam([value.clone().requires_grad_() for value in trained], lr=RSL_RL_RATE)
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


POLICY_LAYOUTS: Registry[Callable[[str | Path], Actor]] = Registry(
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
    valid = activations_with("rsl_rl")
    if activation not in valid:
        raise InputError(f"--activation is {activation!r}; valid: {', '.join(valid)}")
    folder, wanted = Path(out), load(task)
    with exclusive(folder):
        if (folder / "config.json").exists() or folder.is_file():
            raise InputError(f"{folder}: is there already; give another --out")
        actor = POLICY_LAYOUTS[layout](file)
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

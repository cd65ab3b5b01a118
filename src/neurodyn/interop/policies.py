# SPDX-License-Identifier: Apache-2.0
"""Policies of rsl_rl (4 and later): import, and export for Isaac Lab's `play.py --checkpoint`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from neurodyn.tasks.views import VIEWS

Layer = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Actor:
    """An actor network that maps (observation - mean) / deviation to the mean action.

    Attributes:
        layers: Weight and bias of each layer, shapes [out, in] and [out].
        mean: Mean of observations, shape [observations]; None without normalisation.
        deviation: Divisor of observations, shape [observations]; None without normalisation.
        memory: Arrays of a recurrent network of one layer before them, by torch's names ("weight_ih_l0"); empty for
            none.
        spreads: Whether the last layer may also give the actions' deviation, in a second half of its outputs.
    """

    layers: tuple[Layer, ...]
    mean: Tensor | None = None
    deviation: Tensor | None = None
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    spreads: bool = False

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of observations and of action components."""
        first = self.memory["weight_ih_l0"] if self.memory else self.layers[0][0]
        return first.shape[1], self.layers[-1][0].shape[0]

    def for_actions(self, actions: int) -> "Actor":
        """Return the actor without the outputs for the deviation, if it has as many of them as actions."""
        weight, bias = self.layers[-1]
        if not self.spreads or len(bias) != 2 * actions:
            return self
        return replace(self, layers=(*self.layers[:-1], (weight[:actions], bias[:actions])))


def _layers(arrays: dict[str, Tensor], prefix: str, names: Sequence[str], where: str, of: str) -> tuple[Layer, ...]:
    """Return layers by name, or raise an InputError if their shapes do not form a chain."""
    layers = tuple(
        (take(arrays, f"{prefix}{name}.weight", where, of), take(arrays, f"{prefix}{name}.bias", where, of))
        for name in names
    )
    for name, (weight, bias) in zip(names, layers, strict=True):
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            shapes = f"{list(weight.shape)} and {list(bias.shape)}"
            raise InputError(f"{where}: {name} has shapes {shapes}; valid: [out, in], [out]")
    for (below, (weight, _)), (above, (upper, _)) in pairwise(zip(names, layers, strict=True)):
        if upper.shape[1] != weight.shape[0]:
            raise InputError(f"{where}: {above} takes {upper.shape[1]} numbers, but {below} gives {weight.shape[0]}")
    return layers


RSL_RL_EPSILON = 1e-2
"""Added to the standard deviation of observations."""
RSL_RL_RATE = 1e-3
"""Learning rate of the new optimiser in an exported checkpoint."""

_NORMALISER = "obs_normalizer."
_LAYER = re.compile(r"mlp\.(\d+)\.(weight|bias)")
_MEMORY = "rnn.rnn."
_GATES = {3: "gru", 4: "lstm"}
"""Kinds of recurrent networks by the number of their gates."""
_EXPLORATION = re.compile(r"distribution\..*|(log_)?std|obs_normalizer\.(_var|count)")
"""Arrays without an effect on mean actions."""
_DEVIATION = re.compile(r"distribution\..*std(_param)?|(log_)?std")
"""The deviation of actions, where it is no output of the network."""
_RSL_RL_ACTOR = "the actor of a checkpoint of rsl_rl (4 or later)"


def read_rsl_rl(path: str | Path) -> Actor:
    """Read the actor of a checkpoint (.pt), or of its arrays by name (.npz, .safetensors); nothing is executed.

    Raises:
        InputError: The file is missing or not such a checkpoint, or its network is neither an MLP nor one behind a
            single layer of a GRU or LSTM.
    """
    where, arrays = str(path), read_arrays(Path(path), "actor_state_dict", "rsl_rl")
    indexes = sorted({int(match[1]) for match in map(_LAYER.fullmatch, arrays) if match})
    if not indexes:
        raise InputError(f"{where}: holds no 'mlp.0.weight'; expected {_RSL_RL_ACTOR}")
    layers = _layers(arrays, "", [f"mlp.{index}" for index in indexes], where, _RSL_RL_ACTOR)
    memory = _memory(arrays, where)
    mean = std = None
    if "obs_normalizer._mean" in arrays:
        mean, std = (take(arrays, f"{_NORMALISER}{name}", where, _RSL_RL_ACTOR).flatten() for name in ("_mean", "_std"))
    read = {f"{_MEMORY}{name}" for name in memory} | {f"{_NORMALISER}{name}" for name in ("_mean", "_std")}
    unread = [name for name in arrays if not (name in read or _LAYER.fullmatch(name) or _EXPLORATION.fullmatch(name))]
    if unread:
        raise InputError(
            f"{where}: holds {choices(unread)}, which are not supported; valid: an MLP, alone or behind one layer "
            "of a GRU or LSTM"
        )
    actor = Actor(layers, memory=memory, spreads=not any(map(_DEVIATION.fullmatch, arrays)))
    wanted, _ = actor.sizes
    if memory and layers[0][0].shape[1] != memory["weight_hh_l0"].shape[1]:
        raise InputError(f"{where}: mlp.{indexes[0]} does not take what its recurrent network gives")
    if mean is None or std is None:
        return actor
    if mean.shape != std.shape or len(mean) != wanted:
        raise InputError(f"{where}: obs_normalizer has {len(mean)} and {len(std)} numbers; valid: {wanted}")
    return replace(actor, mean=mean, deviation=std + RSL_RL_EPSILON)


def _memory(arrays: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Return the arrays of the recurrent network by torch's names; empty for none."""
    names = [f"{what}_{side}h_l0" for what in ("weight", "bias") for side in "ih"]
    if f"{_MEMORY}{names[0]}" not in arrays:
        return {}
    memory = {name: take(arrays, f"{_MEMORY}{name}", where, _RSL_RL_ACTOR) for name in names}
    rows, width = memory["weight_hh_l0"].shape
    if rows not in [gates * width for gates in _GATES]:
        raise InputError(f"{where}: its recurrent network has {rows} rows for a state of {width}; valid: a GRU or LSTM")
    return memory


def export_rsl_rl(folder: str | Path, out: Path) -> Path:
    """Write a policy as a checkpoint for rsl_rl's OnPolicyRunner, OUT/model_0.pt, with OUT/params/agent.yaml.

    Critic and optimiser are untrained; the exploration noise is the initial one of the settings.

    Args:
        folder: Folder of the policy, or "pretrained-policy:NAME".
        out: Folder to write.

    Returns:
        Path of the checkpoint.

    Raises:
        InputError: There is no policy, it clips its observations (unsupported by rsl_rl), or `out` exists.
    """
    config, network = load_policy(folder)
    if config.network.remembers or config.network.latent or config.privileged:
        raise InputError(
            f"{folder}: has a memory, or observes randomised quantities, which rsl_rl's files cannot hold; "
            "valid: a policy of single observations"
        )
    if config.clip is not None:
        raise InputError(f"{folder}: clips normalised observations at {config.clip:g}, which rsl_rl does not")
    if out.exists():
        raise InputError(f"{out}: already exists; give another --out")
    runner = PolicySettings(network=config.network).runner()
    runner["algorithm"]["class_name"] = "rsl_rl.algorithms.PPO"
    runner["actor"]["distribution_cfg"]["std_type"] = "scalar"  # the default of rsl_rl and of Isaac Lab's tasks
    actor, critic = _blank(config, runner["actor"], len(config.actions)), _blank(config, runner["critic"], 1)
    network.store_rsl_rl(actor, RSL_RL_EPSILON)
    critic |= {name: actor[name].clone() for name in actor if name.startswith(_NORMALISER)}
    trained = [x for model in (actor, critic) for name, x in model.items() if not name.startswith(_NORMALISER)]
    optimiser = torch.optim.Adam([value.clone().requires_grad_() for value in trained], lr=RSL_RL_RATE)
    checkpoint = {
        "actor_state_dict": actor, "critic_state_dict": critic, "optimizer_state_dict": optimiser.state_dict(),
        "iter": 0, "infos": None,
    }  # fmt: skip
    with artifacts.atomic_folder(out) as partial:
        torch.save(checkpoint, partial / "model_0.pt")
        artifacts.write_text(partial / "params" / "agent.yaml", to_yaml(runner | {"clip_actions": config.limit}))
    return out / "model_0.pt"


def _blank(config: PolicyConfig, model: dict[str, Any], outputs: int) -> dict[str, Tensor]:
    """Return the state of an untrained rsl_rl MLPModel for a policy, in rsl_rl's order."""
    observations = len(config.observations)
    state: dict[str, Tensor] = {}
    if config.network.normalise:
        state = {f"{_NORMALISER}{name}": torch.ones(1, observations) for name in ("_mean", "_var", "_std")}
        state[f"{_NORMALISER}_mean"] = torch.zeros(1, observations)
        state[f"{_NORMALISER}count"] = torch.tensor(0)
    if "distribution_cfg" in model:
        state["distribution.std_param"] = torch.full((outputs,), float(model["distribution_cfg"]["init_std"]))
    fresh = PolicyNetwork(observations, outputs, config.network)
    return state | {f"mlp.{name}": value.detach().clone() for name, value in fresh.layers.state_dict().items()}


POLICY_LAYOUTS: Registry[Callable[[str | Path], Actor]] = Registry("layout of a policy", **{"rsl-rl": read_rsl_rl})
"""Readers of other libraries' policies, by layout."""


def import_policy(
    file: str | Path, task: str, out: str | Path, *, layout: str = "rsl-rl", activation: str = "elu"
) -> PolicyConfig:
    """Import a policy from another library.

    Args:
        file: The policy.
        task: Name of the task with the observations and actions that the policy was trained with.
        out: Folder to write.
        layout: Layout of the file.
        activation: Activation of the hidden layers, which the files do not record.

    Raises:
        InputError: The file is not such a policy, does not fit the task, or the folder already holds a policy.
    """
    valid = activations_with("rsl_rl")
    if activation not in valid:
        raise InputError(f"--activation is {activation!r}; valid: {', '.join(valid)}")
    folder = Path(out)
    wanted = load(task)
    with exclusive(folder):
        if (folder / "config.json").exists() or folder.is_file():
            raise InputError(f"{folder}: already exists; give another --out")
        actor = POLICY_LAYOUTS[layout](file).for_actions(len(wanted.actions))
        if not _fits(actor, wanted):  # it may see the task's other view
            wanted = next((one for one in map(wanted.observing, VIEWS) if _fits(actor, one)), wanted)
        _require_fit(actor, wanted, str(file))
        given: dict[str, Any] = {
            "hidden": [len(bias) for _, bias in actor.layers[:-1]], "activation": activation,
            "normalise": actor.mean is not None,
        }  # fmt: skip
        if actor.memory:
            rows, width = actor.memory["weight_hh_l0"].shape
            given |= {"recurrent": _GATES[rows // width], "memory": width}
        settings = msgspec.convert(given, NetworkSettings)
        config = policy_config(wanted, settings)
        save_policy(folder, config, _network(config, actor))
    return config


@torch.no_grad()
def _network(config: PolicyConfig, actor: Actor) -> PolicyNetwork:
    network = config.build()
    if actor.mean is not None and actor.deviation is not None:
        network.mean.copy_(actor.mean)
        network.deviation.copy_(actor.deviation)
    if network.memory is not None:
        network.memory.load_state_dict(dict(actor.memory))
    layers = (layer for layer in network.layers if isinstance(layer, torch.nn.Linear))
    for layer, (weight, bias) in zip(layers, actor.layers, strict=True):
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return network


def _fits(actor: Actor, task: Task) -> bool:
    return actor.sizes == (len(task.observations), len(task.actions))


def _require_fit(actor: Actor, task: Task, where: str) -> None:
    """Raise an InputError that lists fitting tasks if a policy and a task differ in observations or actions."""
    if _fits(actor, task):
        return
    fitting = [name for name in TASKS if _fits(actor, TASKS[name]())]
    observations, actions = actor.sizes
    raise InputError(
        f"{where}: takes {observations} observations and gives {actions} actions, but task {task.name!r} "
        f"has {len(task.observations)} and {len(task.actions)}; valid: {choices(fitting) if fitting else 'no task'}"
    )

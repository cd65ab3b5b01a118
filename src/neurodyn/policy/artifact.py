# SPDX-License-Identifier: Apache-2.0
"""A trained policy: network, files (policy.safetensors, config.json) and critic."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from neurodyn.core import artifacts
from neurodyn.core.activations import ACTIVATIONS
from neurodyn.core.config import Config, from_dict, read_plain, to_dict
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.learn.loop import has_state
from neurodyn.policy.settings import NetworkSettings
from neurodyn.tasks import Task, is_file, load, of_robot

KNOWN = 1_000_000
"""Observations that the normalisation of a given policy counts for when rsl_rl goes on with it."""


class PolicyNetwork(nn.Module):
    """An MLP from normalised observations, clipped at `clip`, to mean actions, clipped at `limit`.

    Attributes:
        mean: Mean of observations, shape [observations].
        deviation: Divisor of observations, shape [observations].
        layers: The MLP.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        observations: int,
        actions: int,
        settings: NetworkSettings,
        limit: float = 1.0,
        *,
        clip: float | None = None,
    ) -> None:
        super().__init__()
        self.limit, self.clip = limit, clip
        widths = [observations, *settings.hidden, actions]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), ACTIVATIONS[settings.activation].new_module()]
        self.layers = nn.Sequential(*layers[:-1])
        self.register_buffer("mean", torch.zeros(observations))
        self.register_buffer("deviation", torch.ones(observations))

    def forward(self, observation: Tensor) -> Tensor:
        """Return actions, shape [..., actions], for observations, shape [..., observations]."""
        seen = (observation - self.mean) / self.deviation
        if self.clip is not None:
            seen = seen.clamp(-self.clip, self.clip)
        return self.layers(seen).clamp(-self.limit, self.limit)

    @torch.no_grad()
    def take(self, actor: Mapping[str, Tensor], epsilon: float = 0.0) -> None:
        """Copy the state of rsl_rl's MLPModel, whose normaliser adds `epsilon` to the standard deviation."""
        if "obs_normalizer._mean" in actor:
            self.mean.copy_(actor["obs_normalizer._mean"][0])
            self.deviation.copy_(actor["obs_normalizer._std"][0] + epsilon)
        layers = {name.removeprefix("mlp."): value for name, value in actor.items() if name.startswith("mlp.")}
        self.layers.load_state_dict(layers)

    @torch.no_grad()
    def take_mean(self, one: Mapping[str, Tensor], other: Mapping[str, Tensor], share: float) -> None:
        """Copy the mean of the weights of two policies, of which the second counts its share."""
        self.load_state_dict({name: torch.lerp(value, other[name].to(value), share) for name, value in one.items()})

    @torch.no_grad()
    def give(self, actor: Mapping[str, Tensor], epsilon: float = 0.0) -> None:
        """Copy the policy into the state of rsl_rl's MLPModel: what `take` undoes."""
        if "obs_normalizer._mean" in actor:
            deviation = self.deviation - epsilon
            actor["obs_normalizer._mean"].copy_(self.mean[None])
            actor["obs_normalizer._std"].copy_(deviation[None])
            actor["obs_normalizer._var"].copy_(deviation.square()[None])
            actor["obs_normalizer.count"].fill_(KNOWN)
        for name, value in self.layers.state_dict().items():
            actor[f"mlp.{name}"].copy_(value)


VERSION = 1


class PolicyConfig(Config, frozen=True):
    """Everything but the weights, as config.json holds it.

    Attributes:
        task: Name of the task.
        robot: Name of its robot.
        observations: Names of the columns of an observation, in order.
        actions: Names of the components of an action, in order; each within -limit and limit.
        action_scale: Factor on an action, in the units of `action_meaning`.
        action_meaning: Meaning of the scaled action, in words.
        dt: Time between two actions [s].
        network: The network.
        limit: Size beyond which components of an action are cut off.
        clip: Size beyond which normalised observations are cut off; None for none.
        version: Version of this layout.
    """

    task: str
    robot: str
    observations: tuple[str, ...]
    actions: tuple[str, ...]
    action_scale: tuple[float, ...]
    action_meaning: str
    dt: float
    network: NetworkSettings
    limit: float = 1.0
    clip: float | None = None
    version: int = VERSION

    def build(self) -> PolicyNetwork:
        """Return the network with fresh weights."""
        return PolicyNetwork(len(self.observations), len(self.actions), self.network, self.limit, clip=self.clip)


def policy_config(task: Task, network: NetworkSettings) -> PolicyConfig:
    """Return the configuration of a policy for a task."""
    return PolicyConfig(
        task=task.name,
        robot=task.robot,
        observations=task.observations,
        actions=task.actions,
        action_scale=task.action_scale,
        action_meaning=task.action_meaning,
        dt=task.declaration().dt,
        network=network,
        limit=task.limit,
    )


def save_policy(folder: Path, config: PolicyConfig, network: PolicyNetwork) -> None:
    """Write a policy; each file replaces its predecessor atomically."""
    artifacts.write_tensors(folder / "policy.safetensors", network.state_dict())
    artifacts.write_sealed(folder / "config.json", to_dict(config))


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights of a policy by name; errors: see `artifacts.read_weights`."""
    return artifacts.read_weights(folder / "policy.safetensors")


def load_policy(folder: str | Path) -> tuple[PolicyConfig, PolicyNetwork]:
    """Read a policy from a folder or "pretrained-policy:NAME", with frozen weights; no code of its task's file runs.

    Raises:
        InputError: There is no policy, or its files are damaged or of another version.
        MismatchError: The task observes or acts in another way now than when the policy was trained.
    """
    folder = artifacts.resolve_policy(folder)
    path = folder / "config.json"
    data = artifacts.read_json(path)
    if not isinstance(data, dict) or data.get("version") != VERSION:
        version = data.get("version") if isinstance(data, dict) else None
        raise InputError(f"{path}: version {version!r}; valid: {VERSION}")
    config = from_dict(data, PolicyConfig, str(path))
    if not _is_own(config.task):  # what a user declared or wrote may have moved
        require_task(config, load(config.task), str(folder))
    network = config.build()
    try:
        network.load_state_dict(read_weights(folder))
    except RuntimeError as error:
        raise InputError(f"{folder}: policy.safetensors does not fit config.json ({error})") from None
    return config, network.requires_grad_(False).eval()


def task_of(config: PolicyConfig, given: str | None, where: str) -> Task:
    """Return the task of a policy, or the `given` one; code of a file runs only where the user names that file.

    Raises:
        InputError: The policy is for a task in a file, and the user named none.
        MismatchError: The task that was given is another.
    """
    if given is None and is_file(config.task):
        file, _, kind = config.task.rpartition(":")
        raise InputError(
            f"{where}: policy for the task {kind!r} in a file, whose code runs only if you name it; give --task "
            f"FILE.py:{kind} (it was {file})"
        )
    try:
        task = load(config.task if given is None else given)
    except InputError as error:
        if given is not None or not of_robot(config.task):
            raise
        kind = config.task.partition("@")[0]
        raise InputError(f"{where}: {error}; if its robot has moved, give --task {kind}@ROBOT") from None
    require_task(config, task, where)
    return task


def require_task(config: PolicyConfig, task: Task, where: str) -> None:
    """Refuse a policy with other observations or actions than a task's, with a MismatchError that names the first."""
    now = policy_config(task, config.network)
    for name in ("task", "robot", "observations", "actions", "action_scale", "limit", "dt"):
        mine, wanted = getattr(config, name), getattr(now, name)
        if _same_own(config.task, now.task) and (name == "task" or (name == "robot" and of_robot(now.task))):
            continue  # the file or the robot may have moved; joints and scales tell
        if mine != wanted:
            shown, asked = (list(x) if isinstance(x, tuple) else x for x in (mine, wanted))
            raise MismatchError(f"{where}: policy for another task: its {name} is {shown}; valid here: {asked}")


def _is_own(task: str) -> bool:
    return is_file(task) or of_robot(task)


def _same_own(mine: str, wanted: str) -> bool:
    """Return whether two tasks are of one class in a file, or have one name, wherever file or robot lie."""
    if is_file(mine) and is_file(wanted):
        return mine.rpartition(":")[2] == wanted.rpartition(":")[2]
    return of_robot(mine) and of_robot(wanted) and mine.partition("@")[0] == wanted.partition("@")[0]


_EPSILON = 1e-2
"""What rsl_rl's normaliser of observations adds to their standard deviation."""


def load_critic(folder: str, task: Task) -> Callable[[Tensor], Tensor]:
    """Return the critic of a policy's training, from observations to discounted future rewards, shape [rows].

    Raises:
        InputError: There is no policy, or its training left no critic.
        MismatchError: It is of another task.
    """
    path = artifacts.resolve_policy(folder)
    config, _ = load_policy(path)
    require_task(config, task, folder)
    if not has_state(path):
        raise InputError(f"{folder}: holds no critic; valid: the folder of a `neurodyn policy train`, with its state/")
    scale = float(read_plain(path / "config.yaml")["settings"]["reward_scale"])
    network = PolicyNetwork(len(config.observations), 1, config.network, math.inf)
    network.take(artifacts.read_tree(path / "state", "training")["learner"]["critic_state_dict"], _EPSILON)
    network.requires_grad_(False)

    def value(observation: Tensor) -> Tensor:
        return network(observation.to(torch.float32))[:, 0].to(observation.dtype) / scale

    return value


@dataclass(frozen=True)
class Behaviour:
    """A policy that records episodes of a log.

    Attributes:
        name: Name of the policy.
        act: From observations, shape [worlds, observations], to actions without noise, shape [worlds, actions]; None
            for uniformly random actions.
        quiet: Whether no noise is added to its actions.
    """

    name: str
    act: Callable[[Tensor], Tensor] | None = None
    quiet: bool = False


RANDOM, STILL = "random", "still"
"""Names of the behaviours without a policy: uniformly random actions, and zero actions."""
BEHAVIOURS = (RANDOM, STILL)


def behaviour(name: str, task: Task) -> Behaviour:
    """Return one of `BEHAVIOURS`, without a policy.

    `still` with action noise resembles an untrained policy: a legged robot stands and totters for whole episodes, where
    uniformly random actions throw it over at once.
    """
    if name == RANDOM:
        return Behaviour(RANDOM)
    return Behaviour(STILL, lambda seen: seen.new_zeros(len(seen), len(task.actions)))

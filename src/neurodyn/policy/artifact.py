# SPDX-License-Identifier: Apache-2.0
"""A trained policy: network, files (policy.safetensors, config.json) and critic."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neurodyn.core import artifacts
from neurodyn.core.activations import ACTIVATIONS
from neurodyn.core.config import Config, from_dict, read_record, to_dict
from neurodyn.core.errors import InputError, MismatchError, choices, list_briefly
from neurodyn.core.glossary import explain
from neurodyn.learn.loop import has_state
from neurodyn.policy.settings import RANDOM, SWING, NetworkSettings
from neurodyn.tasks import TASKS, Task, is_file, load, of_robot
from neurodyn.tasks.observations import CRITIC
from neurodyn.tasks.views import STATE, View

KNOWN = 1_000_000
"""Number of observations that a warm-started policy's normaliser counts as seen when rsl_rl continues training."""


Hidden = tuple[Tensor, ...]
"""Hidden state of a recurrent policy, shape [1, worlds, width] each: one tensor for a GRU, two for an LSTM."""

_PARTS = {"mlp.": "layers", "rnn.rnn.": "memory", "encoder.": "encoder"}
"""Prefixes in rsl_rl's models and the matching modules of ours."""


class PolicyNetwork(nn.Module):
    """A network from normalised observations, clipped at `clip`, to mean actions, clipped at `limit`.

    An MLP, optionally behind a recurrent memory or an encoder. Its inputs are the observed frames, newest first, then
    the randomised quantities of the robot if it sees them (`privileged`). A teacher's encoder reads these quantities;
    that of a student (`adapts`) reads the frames instead, and the MLP gets the newest frame.

    Attributes:
        privileged: Names of the randomised quantities in its inputs.
        mean: Mean of its inputs, shape [inputs].
        deviation: Divisor of its inputs, shape [inputs].
        layers: The MLP.
        memory: GRU or LSTM; None for none.
        encoder: Encoder; None for none.
    """

    mean: Tensor
    deviation: Tensor
    memory: nn.GRU | nn.LSTM | None
    encoder: nn.Sequential | None

    def __init__(
        self,
        observations: int,
        actions: int,
        settings: NetworkSettings,
        limit: float = 1.0,
        *,
        clip: float | None = None,
        privileged: tuple[str, ...] = (),
        adapts: bool = False,
    ) -> None:
        super().__init__()
        self.limit, self.clip, self.privileged, self.settings = limit, clip, privileged, settings
        self.actions, self.adapts, self._frame = actions, adapts, observations
        frames = settings.seen_from(observations, actions)
        inputs = frames + len(privileged)
        self.memory = self.encoder = None
        features = inputs
        if settings.recurrent is not None:
            kind = nn.GRU if settings.recurrent == "gru" else nn.LSTM
            self.memory, features = kind(inputs, settings.memory), settings.memory
        elif settings.latent:
            read, features = (frames, observations) if adapts else (len(privileged), frames)
            self.encoder = _mlp([read, *settings.encoder, settings.latent], settings.activation)
            features += settings.latent
        self.layers = _mlp([features, *settings.hidden, actions], settings.activation)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("deviation", torch.ones(inputs))

    def forward(self, observation: Tensor) -> Tensor:
        """Return actions, shape [..., actions], for inputs, shape [..., inputs], of a policy without memory."""
        return self.layers(self._features(observation)).clamp(-self.limit, self.limit)

    def remember(self, observation: Tensor, hidden: Hidden | None) -> tuple[Tensor, Hidden]:
        """Return actions, shape [worlds, actions], and the next hidden state; `hidden` None for an empty memory."""
        assert self.memory is not None
        given: Any = hidden if hidden is None or isinstance(self.memory, nn.LSTM) else hidden[0]
        out, after = self.memory(self._features(observation)[None], given)
        after = after if isinstance(after, tuple) else (after,)
        return self.layers(out[0]).clamp(-self.limit, self.limit), after

    def _features(self, observation: Tensor) -> Tensor:
        seen = (observation - self.mean) / self.deviation
        if self.clip is not None:
            seen = seen.clamp(-self.clip, self.clip)
        if self.encoder is None:
            return seen
        if self.adapts:
            return torch.cat([seen[..., : self._frame], self.encoder(seen)], -1)
        frames = seen.shape[-1] - len(self.privileged)
        return torch.cat([seen[..., :frames], self.encoder(seen[..., frames:])], -1)

    @torch.no_grad()
    def load_rsl_rl(self, actor: Mapping[str, Tensor], epsilon: float = 0.0) -> None:
        """Load the state of rsl_rl's MLPModel, whose normaliser adds `epsilon` to the standard deviation."""
        if "obs_normalizer._mean" in actor:
            self.mean.copy_(actor["obs_normalizer._mean"][0])
            self.deviation.copy_(actor["obs_normalizer._std"][0] + epsilon)
        for prefix, part in _PARTS.items():
            part_state = {name.removeprefix(prefix): value for name, value in actor.items() if name.startswith(prefix)}
            if part_state:
                getattr(self, part).load_state_dict(part_state)

    @torch.no_grad()
    def store_rsl_rl(self, actor: Mapping[str, Tensor], epsilon: float = 0.0) -> None:
        """Copy the policy into the state of rsl_rl's MLPModel: the inverse of `load_rsl_rl`."""
        if "obs_normalizer._mean" in actor:
            deviation = self.deviation - epsilon
            actor["obs_normalizer._mean"].copy_(self.mean[None])
            actor["obs_normalizer._std"].copy_(deviation[None])
            actor["obs_normalizer._var"].copy_(deviation.square()[None])
            actor["obs_normalizer.count"].fill_(KNOWN)
        for prefix, part in _PARTS.items():
            if (module := getattr(self, part)) is not None:
                for name, value in module.state_dict().items():
                    actor[f"{prefix}{name}"].copy_(value)


def _mlp(widths: Sequence[int], activation: str) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), ACTIVATIONS[activation].new_module()]
    return nn.Sequential(*layers[:-1])


class ActingPolicy:
    """A policy acting in a batch of worlds, with its history or memory of each."""

    def __init__(self, network: PolicyNetwork) -> None:
        """Start with an empty memory."""
        self._network, self._settings = network, network.settings
        self._frames: Tensor | None = None
        self._hidden: Hidden | None = None
        self._restarted: Tensor | None = None
        self._last: Tensor | None = None

    def __call__(self, seen: Tensor, robots: Tensor | None = None) -> Tensor:
        """Return actions, shape [worlds, actions].

        Args:
            seen: Observations, shape [worlds, observations].
            robots: Randomised quantities of the robots, for privileged policies, shape [worlds, names].
        """
        settings = self._settings
        last = seen.new_zeros(len(seen), self._network.actions) if self._last is None else self._last
        frame = torch.cat([seen, last], 1) if settings.with_actions else seen
        if settings.history > 1:
            frames = frame.repeat(1, settings.history)
            if self._frames is not None:
                older = torch.cat([frame, self._frames[:, : -frame.shape[1]]], 1)
                frames = older if self._restarted is None else torch.where(self._restarted[:, None], frames, older)
            self._frames = frame = frames
        self._restarted = None
        if robots is not None:
            frame = torch.cat([frame, robots], 1)
        if self._network.memory is None:
            action = self._network(frame)
        else:
            action, self._hidden = self._network.remember(frame, self._hidden)
        self._last = action
        return action

    def cut(self) -> None:
        """Detach the history and memory from their gradients."""
        self._frames, self._last = (None if x is None else x.detach() for x in (self._frames, self._last))
        self._hidden = None if self._hidden is None else tuple(h.detach() for h in self._hidden)

    def restart(self, done: Tensor) -> None:
        """Clear the memory of worlds whose episode has ended, shape [worlds], bool."""
        self._restarted = done if self._restarted is None else self._restarted | done
        if self._last is not None:
            self._last = self._last.masked_fill(done[:, None], 0.0)
        if self._hidden is not None:
            self._hidden = tuple(h.masked_fill(done[None, :, None], 0.0) for h in self._hidden)


def acting(policy: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return a policy to call in every frame of a batch of worlds, with memory if it has one."""
    if isinstance(policy, PolicyNetwork) and (policy.settings.remembers or policy.privileged):
        return ActingPolicy(policy)
    return policy


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
        limit: Magnitude at which components of an action are clipped.
        clip: Magnitude at which normalised observations are clipped; None for no clipping.
        privileged: Names of the randomised quantities that it sees.
        adapts: Whether it infers the encoder's latent from its history.
        critic: Names of the columns that the critic of its training saw beside the observations.
        observe: Whether it sees the state or sensors.
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
    privileged: tuple[str, ...] = ()
    adapts: bool = False
    critic: tuple[str, ...] = ()
    observe: View = STATE
    version: int = VERSION

    def build(self) -> PolicyNetwork:
        """Return the network with fresh weights."""
        return PolicyNetwork(
            len(self.observations), len(self.actions), self.network, self.limit, clip=self.clip,
            privileged=self.privileged, adapts=self.adapts,
        )  # fmt: skip


def policy_config(task: Task, network: NetworkSettings, privileged: tuple[str, ...] = ()) -> PolicyConfig:
    """Return the configuration of a policy for a task; `privileged` names the randomised quantities that it sees."""
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
        privileged=privileged,
        observe=task.observes,
    )


def save_policy(folder: Path, config: PolicyConfig, network: PolicyNetwork) -> None:
    """Write a policy; each file replaces its predecessor atomically."""
    artifacts.write_tensors(folder / "policy.safetensors", network.state_dict())
    artifacts.write_checksummed(folder / "config.json", to_dict(config))


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights of a policy by name; errors: see `artifacts.read_weights`."""
    return artifacts.read_weights(folder / "policy.safetensors")


def read_policy_config(folder: Path) -> PolicyConfig:
    """Return the configuration of a policy; raise an InputError if there is none, or one of another version."""
    path = folder / "config.json"
    data = artifacts.read_json(path)
    if not isinstance(data, dict) or data.get("version") != VERSION:
        version = data.get("version") if isinstance(data, dict) else None
        raise InputError(f"{path}: version {version!r}; valid: {VERSION}")
    return from_dict(data, PolicyConfig, str(path))


def load_policy(folder: str | Path) -> tuple[PolicyConfig, PolicyNetwork]:
    """Read a policy from a folder or "pretrained-policy:NAME", with frozen weights; runs no code of its task's file.

    Raises:
        InputError: There is no policy, or its files are damaged or of another version.
        MismatchError: The task's observations or actions have changed since the policy was trained.
    """
    folder = artifacts.resolve_policy(folder)
    config = read_policy_config(folder)
    if not _is_own(config.task):  # a user's declaration or file may have moved
        require_task(config, load(config.task).observing(config.observe), str(folder))
    network = config.build()
    try:
        network.load_state_dict(read_weights(folder))
    except RuntimeError as error:
        raise InputError(f"{folder}: policy.safetensors does not fit config.json ({error})") from None
    return config, network.requires_grad_(False).eval()


def task_of(config: PolicyConfig, given: str | None, source: str, *, drawn: bool = False) -> Task:
    """Return the task of a policy, or the `given` one; runs code of a file only if the user names that file.

    `drawn` says whether robots are randomised, as privileged policies require.

    Raises:
        InputError: The policy is for a task in a file and the user named none, or it is privileged and robots are not
            randomised.
        MismatchError: The given task is a different one.
    """
    if not drawn:
        require_unprivileged(config, source)
    if given is None and is_file(config.task):
        file, _, kind = config.task.rpartition(":")
        raise InputError(
            f"{source}: policy for the task {kind!r} in a file, whose code runs only if you name it; give --task "
            f"FILE.py:{kind} (it was {file})"
        )
    try:
        task = load(config.task if given is None else given).observing(config.observe)
    except InputError as error:
        if given is not None or not of_robot(config.task):
            raise
        kind = config.task.partition("@")[0]
        raise InputError(f"{source}: {error}; if its robot has moved, give --task {kind}@ROBOT") from None
    require_task(config, task, source)
    return task


def require_task(config: PolicyConfig, task: Task, source: str) -> None:
    """Raise a MismatchError naming the first difference between a policy's observations or actions and a task's."""
    now = policy_config(task, config.network)
    for name in ("task", "robot", "observe", "observations", "actions", "action_scale", "limit", "dt"):
        stored, wanted = getattr(config, name), getattr(now, name)
        if _same_own(config.task, now.task) and (name == "task" or (name == "robot" and of_robot(now.task))):
            continue  # the file or the robot may have moved; joints and scales identify them
        if stored != wanted:
            raise MismatchError(f"{source}: policy for another task: its {_difference(name, stored, wanted)}")


def _difference(name: str, stored: Any, wanted: Any) -> str:
    """Say how a value of a policy differs from a task's; of columns, which ones only one of them has."""
    if name in ("observations", "actions") and set(stored) != set(wanted):
        lacks, beyond = (
            list_briefly(sorted(set(one) - set(other))) or "(none)"
            for one, other in ((wanted, stored), (stored, wanted))
        )
        return f"{name} lack {lacks} and have {beyond}; valid: a policy trained for this task as it is now"
    shown, asked = (list(x) if isinstance(x, tuple) else x for x in (stored, wanted))
    return f"{name} is {shown}; valid here: {asked}"


def require_unprivileged(config: PolicyConfig, source: str) -> None:
    """Raise an InputError for a privileged policy where nothing is randomised."""
    if config.privileged:
        raise InputError(
            f"{source}: observes the randomised quantities, which are not known here; valid: `policy evaluate "
            "--randomise`, or its student (`neurodyn policy distill`)"
        )


def _is_own(task: str) -> bool:
    return is_file(task) or of_robot(task)


def _same_own(stored: str, wanted: str) -> bool:
    """Return whether two tasks are one class in a file, or share a name, regardless of the paths of file and robot."""
    if is_file(stored) and is_file(wanted):
        return stored.rpartition(":")[2] == wanted.rpartition(":")[2]
    return of_robot(stored) and of_robot(wanted) and stored.partition("@")[0] == wanted.partition("@")[0]


_EPSILON = 1e-2
"""Added to the standard deviation by rsl_rl's observation normaliser."""


def load_critic(folder: str, task: Task) -> Callable[[Tensor], Tensor]:
    """Return the critic of a policy's training, from observations to discounted future rewards, shape [rows].

    Raises:
        InputError: There is no policy, or its training saved no critic.
        MismatchError: It belongs to another task.
    """
    path = artifacts.resolve_policy(folder)
    config, _ = load_policy(path)
    require_task(config, task, folder)
    if not has_state(path):
        raise InputError(f"{folder}: holds no critic; valid: the folder of a `neurodyn policy train`, with its state/")
    settings = read_record(path / "config.yaml", "settings")["settings"]
    if config.network.remembers or settings.get("randomise") or CRITIC in task.groups:
        raise InputError(
            f"{folder}: its critic sees more than an observation; valid: a policy of one robot, no history"
        )
    scale = float(settings["reward_scale"])
    network = PolicyNetwork(len(config.observations), 1, config.network, math.inf)
    network.load_rsl_rl(artifacts.read_tree(path / "state", "training")["learner"]["critic_state_dict"], _EPSILON)
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
        quiet: Whether its actions get no noise.
        swings: Whether its actions get sines and weaker noise (`Excitation`).
    """

    name: str
    act: Callable[[Tensor], Tensor] | None = None
    quiet: bool = False
    swings: bool = False


class Excitation:
    """Excitation added to the actions of a batch of episodes, in units of the action scale.

    Noise: white or an Ornstein-Uhlenbeck process. A behaviour that swings also gets sines beside weaker noise: one
    frequency per episode, with an amplitude and phase per action. Sines make legs step, where noise too weak to topple
    a robot only shakes it.

    Attributes:
        strength: Per episode, uniform between 0 and the log's strength: the standard deviation of the noise, or the
            greatest amplitude of the sines; shape [worlds, 1].
    """

    def __init__(
        self, task: Task, behaviours: "Sequence[Behaviour]", number: Tensor, noise: float, correlation: float,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        """Draw the excitation of whole episodes; `number` holds the index of each world's behaviour, shape [worlds]."""
        worlds, actions = len(number), len(task.actions)
        self._correlation, self._generator, self._drawn, self._frame = correlation, generator, None, 0
        loud = torch.tensor([not behaviour.quiet for behaviour in behaviours])[number]
        self.strength = noise * torch.rand(worlds, 1, generator=generator) * loud[:, None]
        self._shape, self._deviation, self._sines = (worlds, actions), self.strength, None
        swings = torch.tensor([behaviour.swings for behaviour in behaviours])[number][:, None]
        if swings.any():
            low, high = _HERTZ
            drawn = torch.rand(worlds, 2 + 2 * actions, generator=generator)
            hertz, noisy, amplitude, phase = drawn.split([1, 1, actions, actions], 1)
            self._deviation = torch.where(swings & loud[:, None], _NOISE_SHARE * noise * noisy, self.strength)
            frequency = 2.0 * math.pi * task.declaration().dt * (low + (high - low) * hertz)
            self._sines = frequency, self.strength * swings * amplitude, 2.0 * math.pi * phase

    def frame(self) -> Tensor:
        """Return the excitation of the next frame, shape [worlds, actions]."""
        drawn = torch.randn(self._shape, generator=self._generator)
        if self._drawn is not None and self._correlation:
            drawn = self._correlation * self._drawn + math.sqrt(1.0 - self._correlation**2) * drawn
        self._drawn = drawn  # unit variance in every frame
        added = self._deviation * drawn
        if self._sines is not None:
            frequency, amplitude, phase = self._sines
            added = added + amplitude * torch.sin(frequency * self._frame + phase)
        self._frame += 1
        return added


_HERTZ, _NOISE_SHARE = (1.0, 3.0), 0.3
"""Frequency range of steps [Hz]; greatest noise beside sines, as a share of their greatest amplitude."""


def behaviour(name: str, task: Task) -> Behaviour:
    """Return one of `BEHAVIOURS`, which need no policy.

    `still` with action noise resembles an untrained policy: a legged robot stands and totters for whole episodes, where
    uniformly random actions topple it at once. `swing` makes it step.
    """
    if name == RANDOM:
        return Behaviour(RANDOM)
    return Behaviour(name, lambda seen: seen.new_zeros(len(seen), len(task.actions)), swings=name == SWING)


def common_task(names: Sequence[str], configs: Mapping[str, PolicyConfig], task: str | None) -> Task:
    """Return the task that the named policies share, or `task` if none has one; raise an InputError for several."""
    tasks = {config.task for config in configs.values()}
    if not tasks and task is None:
        raise InputError(
            f"--task is missing; {explain(names[0])}, and acts in any task; valid: --task with one of "
            f"{choices(TASKS)}, or FILE.py:CLASS"
        )
    if len(tasks) > 1:
        raise InputError(f"policies are for the tasks {choices(tasks)}; valid: one or more policies for one task")
    named = [task_of(config, task, name) for name, config in configs.items()]
    if len({one.observes for one in named}) > 1:
        raise InputError(f"policies of {named[0].name} see the state and sensors; valid: policies that see the same")
    return named[0] if named else load(str(task))

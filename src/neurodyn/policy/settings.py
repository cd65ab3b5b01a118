# SPDX-License-Identifier: Apache-2.0
"""Settings of policy training: of all algorithms, of PPO (rsl_rl in our configuration) and of SHAC; presets by task."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import msgspec

from neurodyn.core.activations import ACTIVATIONS, require_activation
from neurodyn.core.config import (
    EXTENDS,
    Config,
    from_dict,
    load_preset,
    read_with_siblings,
    require_numbers,
    to_dict,
)
from neurodyn.core.description.randomisation import is_run
from neurodyn.core.errors import InputError, require
from neurodyn.learn.budget import TrainingBudget, TrainState
from neurodyn.nets.networks import require_size
from neurodyn.tasks.views import SENSORS, STATE, View

if TYPE_CHECKING:
    from neurodyn.tasks import Task

PRESETS = Path(__file__).resolve().parent / "presets"

RANDOM, STILL, SWING = "random", "still", "swing"
"""Names of the behaviours without a policy: uniformly random actions, zero actions, and sines."""
BEHAVIOURS = (RANDOM, STILL, SWING)


class NetworkSettings(Config, frozen=True):
    """The policy's network; the critic has the same."""

    hidden: tuple[int, ...] = (128, 64, 32)
    """Widths of hidden layers."""
    activation: str = "elu"
    """Activation between them."""
    normalise: bool = True
    """Whether observations are normalised by their running mean and deviation."""
    initial_std: float = 1.0
    """Initial standard deviation of actions."""
    history: int = 1
    """Frames in an observation, newest first; the critic sees them, too."""
    with_actions: bool = False
    """Whether each frame includes the action before it."""
    recurrent: Literal["gru", "lstm"] | None = None
    """Memory, gru or lstm, between observations and hidden layers of the policy alone; None for none."""
    memory: int = 64
    """Its width."""
    latent: int = 0
    """Size of the encoder's latent of the randomised quantities: in policies that see these (`privileged`), or in
    students that infer it from their history (`neurodyn policy distill`). 0 for no encoder."""
    encoder: tuple[int, ...] = (64, 32)
    """Its hidden layers."""

    def __post_init__(self) -> None:
        require_activation(self.activation, "rsl_rl")
        require_numbers(self, above=("hidden", "encoder", "initial_std", "history", "memory"))
        require(not (self.recurrent and self.latent), "network.latent", self.latent, "0 with a recurrent network")
        require_size(self.encoder, what="network.encoder")
        require_size(self.hidden, what="network")

    @property
    def remembers(self) -> bool:
        """Whether its action depends on more than the current observation."""
        return self.history > 1 or self.with_actions or self.recurrent is not None

    def seen_from(self, observations: int, actions: int) -> int:
        """Return its number of input columns for these observations and actions."""
        return self.history * (observations + (actions if self.with_actions else 0))


class CloneSettings(Config, frozen=True):
    """Imitation of a log by the initial policy (`policy.learners.cloning`)."""

    steps: int = 2000
    """Optimiser steps."""
    batch: int = 1024
    """Observations in a step."""
    rate: float = 1e-3
    """Initial learning rate."""
    critic: int = 10
    """Updates afterwards in which only the critic learns."""
    best: float = 1.0
    """Share of the log's frames to imitate: the episodes with the highest mean reward. Logs without rewards are
    imitated whole."""

    def __post_init__(self) -> None:
        require(self.best <= 1, "best", self.best, "above 0, at most 1")
        require_numbers(self, above=("steps", "batch", "rate", "best"))


class AimSettings(Config, frozen=True):
    """What a policy must achieve; a training whose policy moves, but does not achieve it, goes on."""

    updates: int = 600
    """Further updates; 0 for none."""
    error: float = 0.1
    """Largest velocity error [m/s or rad/s], in the evaluation of the kept policy (`control.commands`)."""
    falls: float = 0.02
    """Largest share of its episodes that fail."""

    def __post_init__(self) -> None:
        require(self.updates >= 0, "aim.updates", self.updates, "at least 0")
        require_numbers(self, above=("error",))
        require(0 <= self.falls < 1, "aim.falls", self.falls, "at least 0, below 1")


class TrainingSettings(Config, frozen=True):
    """Settings of policy training that all algorithms share."""

    algorithm: ClassVar[str]
    """Name in `policy.learners.algorithms.ALGORITHMS`."""
    presets: ClassVar[Path | None] = None
    """Folder of the presets of tasks."""
    budget_fields: ClassVar[tuple[str, ...]] = ("iterations", "minutes", "evaluations", "aim")
    counts: ClassVar[tuple[str, ...]] = (
        "worlds", "horizon", "frames", "iterations", "evaluation_worlds", "keep_every", "patience",
    )  # fmt: skip
    """Names of settings that are at least 1, or None."""
    positive: ClassVar[tuple[str, ...]] = ()
    """Names of an algorithm's own numbers that are above 0."""
    signed: ClassVar[tuple[str, ...]] = ("failure",)
    """Names of numbers that may be negative."""
    infers: ClassVar[bool] = False
    """Whether its policies infer the randomised quantities that they do not see."""

    worlds: int = 512
    """Parallel worlds."""
    horizon: int = 32
    """Frames of each world in an update."""
    frames: int | None = None
    """Length of a training episode; None for the task's. Models of logs are best used for short episodes."""
    iterations: int | None = 300
    """Updates; None if only `minutes` limits training."""
    minutes: float | None = None
    """Time budget [min]; None if only `iterations` limits training. Whichever limit comes first ends it."""
    seed: int = 0
    """Seed of weights, actions, commands and starts."""
    task_share: float | None = None
    """Share of episodes that start from the task's states, instead of the log's, in models of logs that allow it; the
    policy is then evaluated from the task's starts. None for none."""
    penalty: float | Literal["auto"] = 0.0
    """Weight of the epistemic uncertainty (lambda), of a world model or a model with members; "auto" to choose it by a
    model of logs (`policy.learners.penalty`)."""
    centre_penalty: bool = False
    """Whether the penalty is centred at the log's mean uncertainty. Otherwise every frame costs, and where rewards are
    small a failure pays."""
    failure: float = 0.0
    """Learner's value of a failure, in rewards. If rewards start below 0, as in walking, a value of 0 would draw the
    policy to fail."""
    within_known: bool = False
    """Whether episodes fail in frames never seen (`dynamics.known_inputs`)."""
    clone: CloneSettings | None = None
    """Imitation of the log by the initial policy, in models of logs; None for a random one."""
    network: NetworkSettings = NetworkSettings()
    """The network."""
    gamma: float = 0.99
    """Discount per frame."""
    lam: float = 0.95
    """Lambda of the return estimates."""
    rate: float = 3e-4
    """Initial learning rate."""
    gradient: float = 1.0
    """Limit of the gradient norm."""
    reward_scale: float = 1.0
    """Factor on rewards before the learner sees them."""
    evaluations: int = 20
    """Number of evaluations without noise during training."""
    evaluation_worlds: int = 64
    """Episodes per evaluation."""
    keep_every: int | None = None
    """Updates between policies saved in POLICY/kept; None to save none."""
    threads: int | None = None
    """Threads of torch; None for its default."""
    randomise: tuple[str, ...] = ()
    """Randomised quantities of the robot, drawn per world and episode: distributions such as "root.mass=+0:10", or a
    run whose posterior is sampled (`policy.worlds.randomisation`); and disturbances such as "push.velocity=0:1"
    (`policy.worlds.disturbances`). PPO's critic sees the values drawn per episode, the policy does not."""
    privileged: bool = False
    """Whether the policy sees them: a teacher (`neurodyn policy distill`)."""
    hold_out: bool = True
    """Judge held out: of a learned model the last of three or more members, or the base alone, used to evaluate the
    policy but not to train it (`policy.trust.support`)."""
    stop_when_exploiting: bool = False
    """End when exploiting, with the last policy whose imagined return is supported."""
    one_robot: bool = False
    """Leave out the posterior of an adapted model."""
    observe: View | None = None
    """What the policy sees: state or sensors, with their errors; None for the task's own way. PPO's critic sees the
    state in any case (`tasks.sensing`)."""
    patience: int | None = 3
    """Falls in the judges alone that end a training (`policy.trust.judges`)."""
    aim: AimSettings | None = None
    """What the policy must achieve: without a budget on the command line, the training goes on after `iterations` until
    it does. None: it ends."""

    def __post_init__(self) -> None:
        if self.iterations is None and self.minutes is None:
            raise ValueError("neither iterations nor minutes are given; valid: at least one of the two")
        if self.task_share is not None:
            require(0 < self.task_share < 1, "task_share", self.task_share, "between 0 and 1")
        if self.clone is not None and self.network.remembers:
            raise ValueError("clone: is given for a network with a memory; valid: one that sees single observations")
        if self.privileged and not self.randomise:
            raise ValueError("privileged: nothing is drawn that the policy could see; valid with randomise")
        if self.network.latent and not (self.privileged or self.infers):
            raise ValueError("network.latent: an encoder of what is drawn; valid with privileged")
        if self.privileged and self.network.recurrent:
            raise ValueError("network.recurrent: is given for a policy that sees what is drawn; valid: none")
        above = ("minutes", "rate", "gradient", "reward_scale", "threads", *self.counts, *self.positive)
        require_numbers(self, above=above, signed=self.signed)
        for name in ("gamma", "lam"):
            require(getattr(self, name) <= 1, name, getattr(self, name), "at most 1")

    @property
    def fixed_penalty(self) -> float:
        """The given weight of the uncertainty; 0 if the model chooses it."""
        return 0.0 if self.penalty == "auto" else self.penalty

    def budget(self) -> TrainingBudget:
        """Return when the training ends: a phase of `iterations`, and the further one that may follow."""
        aim, first = self.aim, self.iterations
        if aim is None or not aim.updates or first is None or self.minutes is not None:
            return TrainingBudget(first, self.minutes)
        return TrainingBudget(first + aim.updates, shares=(float(first), float(aim.updates)), as_needed=True)

    def done_of_all(self, done: float, train_state: TrainState) -> float:
        """Return the finished share of the updates planned so far; `done` is that of the current phase.

        Rates of further updates are thus those of a training that was planned with them: initial ones would undo much
        of what a policy has learned.
        """
        if self.aim is None or self.iterations is None or not train_state.phase:
            return done
        return train_state.step / (self.iterations + self.aim.updates)

    def with_fixed_length(self) -> Self:
        """Return settings of a training that ends with its updates or minutes, whatever it achieves."""
        if self.aim is None:
            return self
        return msgspec.structs.replace(self, aim=msgspec.structs.replace(self.aim, updates=0))

    def frames_of(self, updates: int) -> int:
        """Return the number of frames in that many updates, over all worlds."""
        return updates * self.worlds * self.horizon

    def models(self) -> dict[str, dict[str, Any]]:
        """Return the configuration of rsl_rl's models of actor and critic; with a latent, of an `EncodedModel`."""
        network = {
            "class_name": "rsl_rl.models.MLPModel",
            "hidden_dims": list(self.network.hidden),
            "activation": ACTIVATIONS[self.network.activation].rsl_rl,
            "obs_normalization": self.network.normalise,
        }
        std = {"class_name": "rsl_rl.modules.GaussianDistribution", "init_std": self.network.initial_std}
        actor = {**network, "distribution_cfg": {**std, "std_type": "log"}}
        if self.network.recurrent is not None:
            actor |= {"class_name": "rsl_rl.models.RNNModel", "rnn_type": self.network.recurrent,
                      "rnn_hidden_dim": self.network.memory}  # fmt: skip
        elif self.network.latent:
            actor |= {"latent": self.network.latent, "encoder": list(self.network.encoder)}
        return {"actor": actor, "critic": dict(network)}

    def seen_by(self) -> dict[str, list[str]]:
        """Return the groups of observations that actor and critic see.

        The critic does not see samples of a posterior: they are nearly alike, with over a hundred numbers that would
        only identify the world.
        """
        drawn = ["robot"] if self.randomise else []
        alike = any(is_run(text) for text in self.randomise)
        critic = drawn if self.privileged or not alike else []
        return {"actor": ["policy", *(drawn if self.privileged else [])], "critic": ["policy", *critic]}


class PolicySettings(TrainingSettings, frozen=True):
    """Training of one policy by PPO."""

    algorithm: ClassVar[str] = "ppo"
    presets: ClassVar[Path | None] = PRESETS / "ppo"
    counts: ClassVar[tuple[str, ...]] = (*TrainingSettings.counts, "epochs", "minibatches")
    positive: ClassVar[tuple[str, ...]] = ("desired_kl", "clip")

    schedule: Literal["adaptive", "fixed"] = "adaptive"
    """"adaptive" keeps the change of the policy near `desired_kl`."""
    desired_kl: float = 0.008
    """Target divergence of one update."""
    clip: float = 0.2
    """Range of the probability ratio."""
    epochs: int = 5
    """Passes over an update's frames."""
    minibatches: int = 4
    """Steps of a pass."""
    entropy: float = 0.0
    """Weight of the entropy of actions."""
    value: float = 1.0
    """Weight of the value loss."""
    symmetry: bool = False
    """Whether updates also learn from mirror images (`policy.learners.symmetry`)."""
    mirror_loss: float = 0.0
    """Weight of the policy's asymmetry: its actions in mirror images less its mirrored actions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.symmetry and self.network.recurrent:
            raise ValueError("symmetry: is given for a recurrent policy; valid: false, or a history")
        if self.mirror_loss and not self.symmetry:
            raise ValueError("mirror_loss: is given without symmetry; valid: 0, or with symmetry")
        if self.worlds * self.horizon < self.minibatches:
            raise ValueError(f"minibatches is {self.minibatches}; valid: at most worlds x horizon")

    def runner(self) -> dict[str, Any]:
        """Return the configuration of rsl_rl's OnPolicyRunner, without the class of its algorithm."""
        return {
            "num_steps_per_env": self.horizon,
            "save_interval": 10**9,
            "obs_groups": self.seen_by(),
            "check_for_nan": True,
            **self.models(),
            "algorithm": {
                "num_learning_epochs": self.epochs,
                "num_mini_batches": self.minibatches,
                "clip_param": self.clip,
                "gamma": self.gamma,
                "lam": self.lam,
                "value_loss_coef": self.value,
                "entropy_coef": self.entropy,
                "learning_rate": self.rate,
                "max_grad_norm": self.gradient,
                "schedule": self.schedule,
                "desired_kl": self.desired_kl,
                "use_clipped_value_loss": False,
            },
        }


S = TypeVar("S", bound=TrainingSettings)


def load_settings(
    task: str | tuple[str, ...],
    path: Path | None = None,
    *,
    logs: bool = False,
    nothing: bool = False,
    kind: type[S] = PolicySettings,  # pyright: ignore[reportArgumentType]
) -> S:
    """Return the settings of a task from a file or its preset, or the defaults for a task without preset.

    A task with other observations (TASK@nerd) has the preset of TASK. Some tasks have their own preset for training in
    models of logs (TASK-from-logs.yaml), or of logs of random motion (TASK-from-nothing.yaml).

    Args:
        task: Name of the task, or names of its presets, best first.
        path: User's settings file; None for the preset.
        logs: Whether the policy is trained in a model of logs.
        nothing: Whether the logs start from random motion and the policy from scratch.
        kind: Settings of the training algorithm.

    Raises:
        InputError: The file is missing or bad.
    """
    names = (task,) if isinstance(task, str) else task
    endings = {"-from-nothing": logs and nothing, "-from-logs": logs, "": True}
    files = [
        kind.presets / f"{name.partition('@')[0]}{ending}.yaml" for name in names if kind.presets and ".py:" not in name
        for ending, known in endings.items() if known
    ]  # fmt: skip
    return load_preset(kind, path, files) or kind()


def fitting_kinds(path: Path, kinds: Sequence[type[TrainingSettings]]) -> list[type[TrainingSettings]]:
    """Return the kinds of settings that have all keys of a file, and the preset that it extends, if any.

    Raises:
        InputError: The file is missing or cannot be read.
    """
    plain = read_with_siblings(path)
    given = set(plain) - {EXTENDS} if isinstance(plain, dict) else set()
    preset = plain.get(EXTENDS) if isinstance(plain, dict) else None
    with_preset = [
        kind for kind in kinds
        if preset is None or (kind.presets is not None and (kind.presets / f"{preset}.yaml").is_file())
    ]  # fmt: skip
    return [kind for kind in with_preset if given <= {field.name for field in msgspec.structs.fields(kind)}]


FLAGS = (
    "minutes", "iterations", "worlds", "penalty", "keep_every", "seed", "randomise", "privileged", "history",
    "recurrent", "latent", "symmetry", "stop_when_exploiting", "one_robot", "observe",
)  # fmt: skip
"""Settings that are also flags of `neurodyn policy train`."""
_OF_NETWORK = ("history", "recurrent", "latent")


def with_flags(settings: S, **flags: Any) -> S:
    """Return settings with the user's flags; None means that a flag was not given.

    A budget in minutes replaces one in iterations unless both are given.

    Raises:
        InputError: A value is not valid.
    """
    given = {name: value for name, value in flags.items() if value is not None and value != () and value is not False}
    of_network = {name: given.pop(name) for name in _OF_NETWORK if name in given}
    if "minutes" in given and "iterations" not in given:
        given["iterations"] = None
    if "minutes" in given or "iterations" in given:
        settings = settings.with_fixed_length()
    try:
        known = to_dict(settings)
        given["network"] = {**known["network"], **of_network}
        return from_dict({**known, **given}, type(settings), "policy settings")
    except InputError as error:
        raise InputError(str(error).removeprefix("policy settings: ")) from None


SENSED_FRAMES = 5
"""Frames that a policy of sensors without a memory sees, if the settings leave one."""


def for_view(settings: S, task: "Task", policy: View | None = None, history: int | None = None) -> tuple["Task", S]:
    """Return a task whose policies see what the settings say, and settings with a short history of sensors.

    Args:
        settings: The settings.
        task: The task.
        policy: What the initial policy sees; None without one.
        history: Number of frames that the user asked for; None if the settings decide.
    """
    view, network = settings.observe or policy or task.observes, settings.network
    if view == SENSORS and history is None and not network.remembers and settings.clone is None:
        network = msgspec.structs.replace(network, history=SENSED_FRAMES)
    said = settings.observe if view == task.observes == STATE else view
    return task.observing(view), msgspec.structs.replace(settings, observe=said, network=network)


class ShacSettings(TrainingSettings, frozen=True):
    """Training of one policy by SHAC (Xu et al., ICLR 2022, arXiv 2204.07137)."""

    algorithm: ClassVar[str] = "shac"
    presets: ClassVar[Path | None] = PRESETS / "shac"
    counts: ClassVar[tuple[str, ...]] = (*TrainingSettings.counts, "critic_epochs", "critic_minibatches")
    positive: ClassVar[tuple[str, ...]] = ("critic_rate", "action_gradient")

    worlds: int = 64
    horizon: int = 32
    rate: float = 2e-3
    critic_rate: float = 2e-3
    """Initial learning rate of the critic; that of the policy is `rate`. Both fall linearly."""
    final: float = 0.01
    """Final learning rates, as a share of the initial ones."""
    betas: tuple[float, float] = (0.7, 0.95)
    """Decay of Adam's moments."""
    critic_epochs: int = 16
    """Passes of the critic over the frames of a window."""
    critic_minibatches: int = 4
    """Minibatches per pass."""
    target: float = 0.2
    """Weight of the old target critic in its update, once a window."""
    average: float = 0.0
    """Weight of the old running average of the policy's weights, once an update; the average is evaluated and kept. 0
    for the policy itself."""
    entropy: float = 0.0
    """Weight of the entropy of actions in the loss, as in PPO. Noise smooths the return's discontinuities at contacts;
    gradients alone would remove it early."""
    correlation: float = 0.0
    """Correlation of action noise between frames; 0 for white noise. Lasting noise moves joints far enough for a
    stride, and keeps a policy from shuffling at the frame rate."""
    action_gradient: float | None = None
    """Limit of the return's gradient by an action of a world, as a multiple of the median over the window; larger ones
    are scaled down. None for no limit."""
    symmetry: bool = False
    """Whether policy and critic also learn from mirror images (`policy.learners.symmetry`)."""
    mirror_loss: float = 0.1
    """Weight of the policy's asymmetry, with symmetry: its actions in mirror images less its mirrored actions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("average", "correlation"):
            require(0 <= getattr(self, name) < 1, name, getattr(self, name), "at least 0, below 1")
        for name in ("final", "target"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        require(all(0 <= beta < 1 for beta in self.betas), "betas", self.betas, "at least 0, below 1")
        require(self.penalty != "auto", "penalty", "auto", "a number (auto is for ppo)")
        if self.network.recurrent or self.privileged:
            raise ValueError("network.recurrent and privileged are for ppo; valid: none (a history is for shac, too)")
        require(self.clone is None, "clone", "given", "none (imitation is for ppo; begin with its policy: --policy)")
        if self.worlds * self.horizon < self.critic_minibatches:
            raise ValueError(f"critic_minibatches is {self.critic_minibatches}; valid: at most worlds x horizon")


class DistillationSettings(TrainingSettings, frozen=True):
    """Training of a student by a teacher (`policy.learners.distillation`).

    Attributes:
        adapt: Whether it keeps the teacher's layers and learns the latent of its encoder (RMA).
        epochs: Passes over an update's frames.
        frames_a_step: Frames of each world in an optimiser step.
        loss: mse or huber.
        noise: Standard deviation of the student's actions during training.
    """

    algorithm: ClassVar[str] = "distillation"
    counts: ClassVar[tuple[str, ...]] = (*TrainingSettings.counts, "epochs", "frames_a_step")
    infers: ClassVar[bool] = True

    rate: float = 1e-3
    iterations: int | None = 200
    adapt: bool = False
    epochs: int = 2
    frames_a_step: int = 8
    loss: Literal["mse", "huber"] = "mse"
    noise: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.noise > 0, "noise", self.noise, "above 0")
        require(self.penalty == 0.0, "penalty", self.penalty, "0")
        frames = self.epochs * self.horizon
        require(frames % self.frames_a_step == 0, "frames_a_step", self.frames_a_step, f"a divisor of {frames}")
        if self.clone is not None:
            raise ValueError("clone: is given; valid: none (the teacher is what is imitated)")

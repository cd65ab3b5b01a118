# SPDX-License-Identifier: Apache-2.0
"""Training settings: files, so that anyone can repeat a training.

A settings file is looked for beside the robot's declaration first (train-SIZE.yaml, train-SIZE-NET.yaml) and
then among the general ones that ship with this room. What is trained with is written resolved into RUN/config.yaml.
"""

import math
from pathlib import Path
from typing import Literal

import msgspec

from neurodyn.core.config import Config, read_config
from neurodyn.core.errors import InputError, choices
from neurodyn.nets.build import NetConfig
from neurodyn.robots import Robot

Size = Literal["small", "paper"]
_GENERAL = Path(__file__).resolve().parent / "presets"
_SUITING = {"small": "mlp", "paper": "transformer"}


class Phase(Config, frozen=True):
    """One stage of a training: its own loss, batch and learning-rate schedule.

    Attributes:
        share: Share of the budget (of all phases' shares together).
        rate: Highest learning rate.
        batch: Windows in a batch.
        forecast: Frames predicted in a row from the model's own states; 0 for teacher forcing, where every
            frame is predicted from the true state.
        frames: Teacher forcing: frames in a chunk. Chunks longer than the network's context train it on
            exactly what it computes in a long roll-out.
        context: Forecasting: true frames that the network sees before it predicts from its own states.
        loss: "squared" or "absolute" error.
        balance: Windows are weighed by the inverse of how much happens in them (mean change of velocity over its
            spread) plus this number, so that quiet motion is learned as well as violent; None for equal weights.
    """

    share: float
    rate: float
    batch: int
    forecast: int = 0
    frames: int = 1
    context: int = 0
    loss: Literal["squared", "absolute"] = "absolute"
    balance: float | None = None

    def __post_init__(self) -> None:
        if not (0 < self.share < math.inf and 0 < self.rate < math.inf and self.batch >= 1 and self.frames >= 1):
            raise ValueError("share and rate must be finite and above 0, batch and frames at least 1")
        if self.forecast < 0 or self.context < 0:
            raise ValueError("forecast and context must be at least 0")
        if self.balance is not None and not 0 < self.balance < math.inf:
            raise ValueError(f"balance is {self.balance}; valid: a finite number above 0")

    @property
    def window(self) -> int:
        """Frames in a training window."""
        return self.context + self.forecast if self.forecast else self.frames


class Settings(Config, frozen=True):
    """How a model is trained.

    Attributes:
        net: The network.
        phases: Stages, in order.
        minutes: Time budget [min]; None to train for `steps`.
        steps: Optimiser steps; used where `minutes` is None.
        optimiser: "soap" (Shampoo's eigenbasis with Adam in it, arXiv 2409.11321) or "adam".
        weight_decay: Decoupled weight decay.
        clip: Greatest norm of a gradient.
        warmup: Share of a phase in which the rate rises.
        final: Rate at the end of a phase, as a share of its highest.
        velocity_products: Whether products of velocities enter the inputs (Coriolis and centrifugal terms).
        free_motion: Whether the network is given the motion without contacts and limits, which follows from the robot's
            known mechanism, and learns what those do.
        validations: How often the roll-out error is measured in the course of the training.
        validation_rollouts: Held-out windows in a validation.
        validation_frames: Frames of a validation roll-out (shortened to what the episodes hold).
        threads: Threads of tensor operations. One is fastest for small networks, and the order of sums, and
            with it every bit of the result, depends on their number.
        seed: Seed of weights and batches.
    """

    net: NetConfig
    phases: tuple[Phase, ...]
    minutes: float | None = None
    steps: int | None = None
    optimiser: Literal["soap", "adam"] = "soap"
    weight_decay: float = 0.0
    clip: float = 1.0
    warmup: float = 0.02
    final: float = 0.01
    velocity_products: bool = True
    free_motion: bool = False
    validations: int = 40
    validation_rollouts: int = 256
    validation_frames: int = 100
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.phases:
            raise ValueError("phases is empty; give at least one")
        if (self.minutes is None) == (self.steps is None):
            raise ValueError("give either minutes or steps")
        for name in ("minutes", "steps"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} is {value}; valid: a finite number above 0")


def load_settings(robot: Robot, size: str, net: str | None = None, *, log: bool = False) -> Settings:
    """Read the settings of a size: those that come with the robot, or the general ones.

    Args:
        robot: The robot.
        size: "small", "paper", or the path of a settings file.
        net: Kind of network whose settings are wanted; None for the one that suits the robot and the data.
        log: Whether the data are recorded; then a network with a memory suits them.

    Raises:
        InputError: There are no such settings, or the file is malformed.
    """
    if size not in _SUITING:
        if Path(size).suffix not in {".yaml", ".yml", ".toml", ".json"}:
            raise InputError(f"unknown size {size!r}; valid: {choices(_SUITING)}, or the path of a settings file")
        return read_config(Path(size), Settings)
    suiting = "log" if log and size == "small" else _SUITING[size]
    own = Path(robot.folder) / (f"train-{size}-{net}.yaml" if net else f"train-{size}.yaml")
    for path in (own, _GENERAL / f"train-{size}-{net or suiting}.yaml"):
        if path.is_file():
            return read_config(path, Settings)
    kinds = [path.stem.removeprefix(f"train-{size}-") for path in _GENERAL.glob(f"train-{size}-*.yaml")]
    raise InputError(f"no training settings for network {net!r} in size {size!r}; valid: {choices(kinds)}")


def load_finetuning(size: str, net: NetConfig, robot: Robot | None = None) -> Settings:
    """Read the settings of a fine-tuning, for the network of the model that is adapted.

    Settings that come with the robot (finetune.yaml beside its declaration) are taken as they are. By default a network
    with a memory forecasts from as much history as it needs: without it, weights that learned to read the history of a
    log would unlearn that first.

    Args:
        size: "finetune", or the path of a settings file.
        net: Network of the base model.
        robot: Robot of the model; None for the general settings.

    Raises:
        InputError: The file is missing or malformed.
    """
    own = Path("") if robot is None else Path(robot.folder) / "finetune.yaml"
    if size != "finetune" or own.is_file():
        path = Path(size) if size != "finetune" else own
        return msgspec.structs.replace(read_config(path, Settings), net=net)
    settings = read_config(_GENERAL / "finetune.yaml", Settings)
    phases = tuple(msgspec.structs.replace(phase, context=_memory(net)) for phase in settings.phases)
    return msgspec.structs.replace(settings, net=net, phases=phases)


def _memory(net: NetConfig) -> int:
    """Return the frames of history that a network needs."""
    return {"mlp": 0, "gru": net.warmup, "transformer": net.depth * (net.window - 1)}[net.kind]


def with_budget(settings: Settings, minutes: float | None, steps: int | None, seed: int | None) -> Settings:
    """Return settings with another budget or seed, where given.

    Raises:
        InputError: Both budgets are given, or one is not above 0.
    """
    if minutes is not None and steps is not None:
        raise InputError("training budget: both minutes and steps are given; give one")
    changes: dict[str, float | int | None] = {}
    if minutes is not None or steps is not None:
        changes |= {"minutes": minutes, "steps": steps}
    if seed is not None:
        changes["seed"] = seed
    try:
        return msgspec.structs.replace(settings, **changes)
    except ValueError as error:
        raise InputError(f"training budget: {error}") from None

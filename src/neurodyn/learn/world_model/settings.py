# SPDX-License-Identifier: Apache-2.0
"""Settings of the training of world models."""

from pathlib import Path
from typing import ClassVar, Literal

import msgspec

from neurodyn.core.config import load_preset, read_config, settings_file
from neurodyn.core.errors import require, unknown
from neurodyn.learn.plan import TrainingPhase, TrainingPlan
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.robots import Robot

_GENERAL = Path(__file__).resolve().parent / "presets"
_FINETUNINGS = {"finetune": "finetune.yaml", "online": "finetune-online.yaml"}


class WorldPhase(TrainingPhase, frozen=True, kw_only=True):
    """One stage of the training of a world model."""

    context: int = 32
    """Measured frames that a member reads before its forecast."""
    forecast: int = 8
    """Frames of the forecast; 1 for one-step training."""
    loss: Literal["likelihood", "absolute"] = "likelihood"
    """Loss of the mean: "likelihood", each error weighted by the predicted variance to the power of `beta`, or
    "absolute", the absolute error in units of one frame's change. The standard deviation is trained by the likelihood
    in both cases."""
    teach: float = 0.0
    """Weight of the teacher-forced one-frame predictions along the context."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.forecast >= 1, "forecast", self.forecast, "at least 1")

    @property
    def window(self) -> int:
        """Frames in a training window."""
        return self.context + self.forecast


class WorldSettings(TrainingPlan, frozen=True, kw_only=True):
    """Settings of the training of a world model."""

    presets: ClassVar[Path | None] = _GENERAL

    net: EnsembleConfig
    """The ensemble."""
    phases: tuple[WorldPhase, ...]
    """Stages, in order."""
    context: int = 32
    """Frames of history that the model reads in use."""
    beta: float = 0.5
    """Exponent of the variance in the weight of the likelihood (Seitzer et al., arXiv 2203.09168): 0 is the plain
    likelihood, which neglects coordinates that are hard to predict; 1 trains the mean by its squared error."""
    contact_weight: float = 1.0
    """Weight of the contacts' cross-entropy."""
    termination_weight: float = 1.0
    """Weight of the termination's cross-entropy."""
    bootstrap: bool = True
    """Whether members with own trunks draw own episodes, with replacement."""
    constant: Literal["refuse", "hold"] = "refuse"
    """Treatment of columns that are constant in the training data: "refuse" or "hold"."""
    patience: int | None = 12
    """Consecutive validations without improvement that end a phase; None for no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.beta <= 1, "beta", self.beta, "within 0 and 1")
        require(self.patience is None or self.patience >= 1, "patience", self.patience, "at least 1, or null")


def load_world_settings(robot: Robot, size: str) -> WorldSettings:
    """Read the settings of a size, the robot's own (world-model-SIZE.yaml) or the general ones.

    Args:
        robot: The robot.
        size: "small", "paper", "short" or "long" (memory), "online" (`policy online`), or the path of a settings file.
    """
    presets = (Path(robot.folder) / f"world-model-{size}.yaml", _GENERAL / f"world-model-{size}.yaml")
    preset = load_preset(WorldSettings, settings_file(size), presets, dt=robot.dt)
    if preset is None:
        sizes = [path.stem.removeprefix("world-model-") for path in _GENERAL.glob("world-model-*.yaml")]
        raise unknown("size", size, sizes, "the path of a settings file")
    return preset


def load_world_finetuning(size: str, net: EnsembleConfig, context: int, dt: float | None = None) -> WorldSettings:
    """Read the settings of a fine-tuning, with network and context [frames] of the base model.

    `size` is "finetune", "online" (shorter, for `policy online`), or the path of a settings file, whose phases keep
    their contexts; `dt` is the frame time for lengths in seconds [s].
    """
    if size not in _FINETUNINGS:
        return msgspec.structs.replace(read_config(Path(size), WorldSettings, dt=dt), net=net, context=context)
    settings = read_config(_GENERAL / _FINETUNINGS[size], WorldSettings)
    phases = tuple(msgspec.structs.replace(phase, context=context) for phase in settings.phases)
    return msgspec.structs.replace(settings, net=net, context=context, phases=phases)

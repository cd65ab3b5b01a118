# SPDX-License-Identifier: Apache-2.0
"""Settings of SHAC and of AHAC."""

from pathlib import Path
from typing import ClassVar

from neurodyn.core.errors import require
from neurodyn.policy.settings import PRESETS, TrainingSettings


class ShacSettings(TrainingSettings, frozen=True):
    """Training of one policy by SHAC (Xu et al., ICLR 2022, arXiv 2204.07137).

    Attributes:
        critic_rate: First learning rate of the critic; that of the policy is `rate`. Both fall linearly.
        final: Learning rates at the end, as a share of the first.
        betas: Decay of Adam's moments.
        critic_epochs: Passes of the critic over the frames of a window.
        critic_minibatches: Steps of a pass.
        target: Weight of the old target critic when it follows the critic, once a window.
        failure: Value of a failure, in rewards. Gradients do not see that an episode ends: where rewards are below 0
            at first, a failure that is worth 0 draws a policy to it.
        average: Weight of the old mean of the policy's weights when it follows the policy, once an update; the mean is
            what is played and kept. 0 for the policy itself.
        entropy: Weight of the entropy of actions in the loss, as of PPO. Noise smooths what contacts make of a return,
            and gradients alone take it away early.
        correlation: Correlation of the noise of actions with that of the frame before; 0 for white noise. Noise that
            lasts moves joints far enough for a stride, and keeps a policy from shuffling at the rate of the frames.
        action_gradient: Greatest gradient of a world's return by one of its actions, as a multiple of the median over
            the frames and worlds of the window; what is greater is scaled down. None for no limit.
    """

    algorithm: ClassVar[str] = "shac"
    presets: ClassVar[Path | None] = PRESETS / "shac"
    counts: ClassVar[tuple[str, ...]] = (*TrainingSettings.counts, "critic_epochs", "critic_minibatches")
    positive: ClassVar[tuple[str, ...]] = ("critic_rate", "action_gradient")
    signed: ClassVar[tuple[str, ...]] = ("failure",)

    worlds: int = 64
    horizon: int = 32
    rate: float = 2e-3
    critic_rate: float = 2e-3
    final: float = 0.01
    betas: tuple[float, float] = (0.7, 0.95)
    critic_epochs: int = 16
    critic_minibatches: int = 4
    target: float = 0.2
    failure: float = 0.0
    average: float = 0.0
    entropy: float = 0.0
    correlation: float = 0.0
    action_gradient: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("average", "correlation"):
            require(0 <= getattr(self, name) < 1, name, getattr(self, name), "at least 0, below 1")
        for name in ("final", "target"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        require(self.entropy >= 0, "entropy", self.entropy, "at least 0")
        require(all(0 <= beta < 1 for beta in self.betas), "betas", self.betas, "at least 0, below 1")
        require(self.penalty != "auto", "penalty", "auto", "a number (auto is for ppo)")
        require(self.clone is None, "clone", "given", "none (imitation is for ppo; begin with its policy: --policy)")
        if self.worlds * self.horizon < self.critic_minibatches:
            raise ValueError(f"critic_minibatches is {self.critic_minibatches}; valid: at most worlds x horizon")


class AhacSettings(ShacSettings, frozen=True):
    """Training of one policy by SHAC with a horizon that adapts (`policy.shac.horizon`).

    Attributes:
        least: Least frames of a window; `horizon` is the first number.
        most: Greatest frames of a window.
        explosion: By how much the mean gradient of a window's first frame shall exceed its median.
        adaptation: Greatest relative change of the horizon in an update.
    """

    algorithm: ClassVar[str] = "ahac"
    presets: ClassVar[Path | None] = PRESETS / "ahac"
    counts: ClassVar[tuple[str, ...]] = (*ShacSettings.counts, "least", "most")

    least: int = 8
    most: int = 64
    explosion: float = 3.0
    adaptation: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.least <= self.horizon <= self.most:
            raise ValueError(f"horizon is {self.horizon}; valid: from least ({self.least}) to most ({self.most})")
        require(self.explosion > 1, "explosion", self.explosion, "above 1")
        require(0 < self.adaptation < 1, "adaptation", self.adaptation, "above 0, below 1")

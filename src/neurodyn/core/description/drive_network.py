# SPDX-License-Identifier: Apache-2.0
"""Actuator networks as plain data."""

import math
from typing import Literal

from neurodyn.core.activations import require_activation
from neurodyn.core.config import Config
from neurodyn.core.errors import require

Signal = Literal["position_error", "velocity", "position", "effort_command", "target_position"]
"""Network input: command - q, qd, q, the command if it is a torque, the command if it is a target."""


class DriveNetwork(Config, frozen=True):
    """Description of an actuator network."""

    network: Literal["mlp", "gru"]
    joints: tuple[str, ...]
    """Joints whose drives it replaces; it is evaluated for each joint on its own."""
    signals: tuple[Signal, ...]
    """Its inputs, in order."""
    scales: tuple[float, ...]
    """Factor on each signal."""
    effort_scale: float
    """Factor on its output [N m or N]."""
    history: tuple[float, ...]
    """Ages of the inputs of an "mlp", newest first [s]; (0,) for a "gru"."""
    period: float
    """Evaluation period in training [s]; ages are multiples of it."""
    hidden: tuple[int, ...] = (32, 32, 32)
    """Widths of the hidden layers; one width for a "gru"."""
    activation: str = "softsign"
    """Activation of the hidden layers of an "mlp"."""
    command: Literal["torque", "target"] = "target"
    """Kind of command, "torque" or "target"."""
    error: float | None = None
    """Root mean square torque error on held-out logs [N m or N]."""

    def __post_init__(self) -> None:
        require_activation(self.activation, "value")
        require(len(self.signals) > 0, "signals", list(self.signals), "at least one")
        right = len(self.scales) == len(self.signals) and all(math.isfinite(s) and s != 0 for s in self.scales)
        require(right, "scales", list(self.scales), "a finite number other than 0 for each signal")
        require(0 < self.period < math.inf, "period", self.period, "a finite number above 0 [s]")
        ages = list(self.history)
        rising = bool(ages) and ages[0] == 0 and ages == sorted(set(ages))
        on_grid = all(abs(age / self.period - round(age / self.period)) < 1e-6 for age in ages)
        require(rising and on_grid, "history", ages, "0 and then rising multiples of `period` [s]")
        if self.network == "gru":
            require(len(self.hidden) == 1 and len(ages) == 1, "hidden and history", ages, "one width and [0] for a gru")

    @property
    def steps(self) -> tuple[int, ...]:
        """Ages as multiples of the period."""
        return tuple(round(age / self.period) for age in self.history)

    @property
    def inputs(self) -> int:
        """Number of inputs of the network."""
        return len(self.signals) * len(self.history)

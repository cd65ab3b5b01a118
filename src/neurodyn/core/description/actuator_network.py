# SPDX-License-Identifier: Apache-2.0
"""Actuator networks as plain data: from recent position errors and velocities of a joint to its torque.

Hwangbo et al. (2019), "Learning agile and dynamic motor skills for legged robots", Science Robotics 4(26). One network
is shared by joints with the same drive. Files in a run directory:

    actuator_network.json         an `ActuatorNetwork`
    actuator_network.safetensors  its weights, float32

Weights of a perceptron ("mlp"): "layers.K.weight" [out, in] and "layers.K.bias" [out], K from 0, the last layer linear.
Of a gated recurrent unit ("gru"): those of `torch.nn.GRU` with one layer, "gru.weight_ih_l0" [3 H, in],
"gru.weight_hh_l0" [3 H, H], "gru.bias_ih_l0", "gru.bias_hh_l0" (gates r, z, n), and of the linear head
"head.weight" [1, H], "head.bias" [1]. One step of it is one `period`; its state begins at zero.

Inputs are, signal by signal in the order of `signals`, each from the newest to the oldest of `history`:
[s1(t), s1(t - h1), s1(t - h2), s2(t), s2(t - h1), ...], each multiplied by the scale of its signal. The output times
`effort_scale` is the torque. (Isaac Lab: input_order "pos_vel" for ("position_error", "velocity"); pos_scale, vel_scale
and torque_scale are these scales; input_idx is `steps`.)
"""

import math
from typing import Literal

from neurodyn.core.config import Config
from neurodyn.core.description.blueprint import Activation
from neurodyn.core.errors import require

Signal = Literal["position_error", "velocity", "position", "effort_command", "target_position"]
"""What a network sees: command - q, qd, q, the command where it is a torque, the command where it is a target."""


class ActuatorNetwork(Config, frozen=True):
    """What the files of an actuator network say.

    Attributes:
        network: "mlp" or "gru".
        joints: Joints whose drives it stands for, each by itself.
        signals: What it sees, in order.
        scales: Factor on each signal.
        effort_scale: Factor on its output [N m or N].
        history: Ages at which an "mlp" sees signals, newest first [s]; (0,) for a "gru".
        period: Time between two evaluations in training [s]; ages are multiples of it.
        hidden: Widths of the hidden layers; of a "gru" its one width.
        activation: Activation of the hidden layers of an "mlp".
        command: What the command is, "torque" or "target".
        error: Root mean square of its torque error on held-out logs [N m or N].
    """

    network: Literal["mlp", "gru"]
    joints: tuple[str, ...]
    signals: tuple[Signal, ...]
    scales: tuple[float, ...]
    effort_scale: float
    history: tuple[float, ...]
    period: float
    hidden: tuple[int, ...] = (32, 32, 32)
    activation: Activation = "softsign"
    command: Literal["torque", "target"] = "target"
    error: float | None = None

    def __post_init__(self) -> None:
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
        """The ages in periods."""
        return tuple(round(age / self.period) for age in self.history)

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return len(self.signals) * len(self.history)

# SPDX-License-Identifier: Apache-2.0
"""An actuator network with its weights, in the forms in which simulators take them."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from neurodyn.core import artifacts
from neurodyn.core.config import read_config
from neurodyn.core.description.actuator_network import ActuatorNetwork
from neurodyn.core.errors import InputError

DESCRIPTION, WEIGHTS = "actuator_network.json", "actuator_network.safetensors"
"""Files of an actuator network in a run directory."""

_PAIR = {"position_error", "velocity"}


@dataclass(frozen=True)
class TrainedNetwork:
    """An actuator network.

    Attributes:
        config: What its files say.
        tensors: Its weights, float32.
        run: The run, in words.
    """

    config: ActuatorNetwork
    tensors: dict[str, Tensor]
    run: str

    @property
    def joints(self) -> tuple[str, ...]:
        """Joints whose drives it stands for."""
        return self.config.joints

    def require_pair(self, target: str) -> None:
        """Refuse a network that sees anything but position errors and velocities.

        Raises:
            InputError: It does.
        """
        seen = self.config.signals
        if set(seen) != _PAIR or len(seen) != 2:
            raise InputError(
                f"{self.run}: its actuator network sees {', '.join(seen)}, but networks of {target} see position_error "
                "and velocity; valid: train it with these"
            )

    @property
    def input_order(self) -> str:
        """Order of the blocks of inputs: "pos_vel" or "vel_pos"."""
        return "pos_vel" if self.config.signals[0] == "position_error" else "vel_pos"

    def scale(self, signal: str) -> float:
        """Return the factor on a signal."""
        return self.config.scales[self.config.signals.index(signal)]  # type: ignore[arg-type]


def read_network(run: str | Path) -> TrainedNetwork | None:
    """Return the actuator network of a run directory; None where it holds none.

    Raises:
        InputError: Its files are malformed, or weights do not fit.
    """
    folder = Path(run)
    if not (folder / DESCRIPTION).is_file():
        return None
    config = read_config(folder / DESCRIPTION, ActuatorNetwork)
    tensors = artifacts.read_weights(folder / WEIGHTS)
    expected = {name: tuple(shape) for name, shape in shapes(config).items()}
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if given != expected or not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise InputError(f"{folder / WEIGHTS}: does not fit {DESCRIPTION} beside it; valid: finite weights {expected}")
    return TrainedNetwork(config, tensors, str(run))


def shapes(config: ActuatorNetwork) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights by name."""
    if config.network == "gru":
        width = config.hidden[0]
        return {
            "gru.weight_ih_l0": (3 * width, config.inputs),
            "gru.weight_hh_l0": (3 * width, width),
            "gru.bias_ih_l0": (3 * width,),
            "gru.bias_hh_l0": (3 * width,),
            "head.weight": (1, width),
            "head.bias": (1,),
        }
    widths = (config.inputs, *config.hidden, 1)
    found: dict[str, tuple[int, ...]] = {}
    for layer, (before, after) in enumerate(pairwise(widths)):
        found |= {f"layers.{layer}.weight": (after, before), f"layers.{layer}.bias": (after,)}
    return found


_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh, "elu": nn.ELU, "silu": nn.SiLU, "softplus": nn.Softplus, "relu": nn.ReLU, "softsign": nn.Softsign,
}  # fmt: skip


def perceptron(network: TrainedNetwork, *, consecutive: bool = False) -> nn.Sequential:
    """Return an "mlp" from scaled inputs to unscaled output.

    Args:
        network: The network.
        consecutive: Whether it takes every step up to its oldest one; those that it does not see get weights of zero.
    """
    config, tensors = network.config, network.tensors
    weights = [tensors[f"layers.{layer}.weight"] for layer in range(len(config.hidden) + 1)]
    if consecutive:
        weights[0] = _spread(weights[0], config.steps, len(config.signals))
    modules: list[nn.Module] = []
    for layer, weight in enumerate(weights):
        if layer:
            modules.append(_ACTIVATIONS[config.activation]())
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.load_state_dict({"weight": weight, "bias": tensors[f"layers.{layer}.bias"]})
        modules.append(linear)
    return nn.Sequential(*modules).eval().requires_grad_(False)


def _spread(weight: Tensor, steps: tuple[int, ...], signals: int) -> Tensor:
    """Return first weights, [out, signals x steps], over all steps up to the last."""
    every = steps[-1] + 1
    wide = weight.new_zeros(weight.shape[0], signals, every)
    wide[:, :, list(steps)] = weight.view(weight.shape[0], signals, len(steps))
    return wide.view(weight.shape[0], -1)


class RecurrentUnit(nn.Module):
    """A "gru" as Isaac Lab's LSTM actuators call theirs: raw inputs, hidden and cell state in and out.

    Isaac Lab reads the width of the state from the weights of a submodule `lstm`, and gives position error and velocity
    without scales. A gated recurrent unit has no cell state: it is passed on as it is.
    """

    order: Tensor
    scales: Tensor

    def __init__(self, network: TrainedNetwork) -> None:
        """Take over the weights; the scales are in the module."""
        super().__init__()
        config = network.config
        self.lstm = nn.GRU(config.inputs, config.hidden[0], batch_first=True)
        self.head = nn.Linear(config.hidden[0], 1)
        self.lstm.load_state_dict({n.removeprefix("gru."): x for n, x in network.tensors.items() if "gru." in n})
        self.head.load_state_dict({n.removeprefix("head."): x for n, x in network.tensors.items() if "head." in n})
        order = [0, 1] if network.input_order == "pos_vel" else [1, 0]
        self.register_buffer("order", torch.tensor(order))
        self.register_buffer("scales", torch.tensor(config.scales, dtype=torch.float32))
        self.effort_scale = float(config.effort_scale)
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Map (position error [rad], velocity [rad/s]), shape [joints, 1, 2], to torques [N m], shape [joints, 1]."""
        hidden, cell = state
        y, after = self.lstm(x.index_select(2, self.order) * self.scales, hidden)
        return self.head(y[:, -1]) * self.effort_scale, (after, cell)


def write_script(module: nn.Module, path: Path) -> None:
    """Write a module as TorchScript."""
    torch.jit.save(torch.jit.script(module), str(path))

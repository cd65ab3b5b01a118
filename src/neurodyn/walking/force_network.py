# SPDX-License-Identifier: Apache-2.0
"""A network in place of the quadratic program: from a quadruped's state to forces, in numpy."""

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from neurodyn.core.artifacts import (
    atomic_folder,
    read_json,
    read_weights,
    restore_folder,
    write_checksummed,
    write_tensors,
)
from neurodyn.core.config import Config, from_dict, to_dict
from neurodyn.core.errors import InputError
from neurodyn.nets.normaliser import Normaliser
from neurodyn.walking.convex_mpc import FrictionPyramids, MpcSettings
from neurodyn.walking.gait import GAITS
from neurodyn.walking.quadruped import LEGS, Quadruped
from neurodyn.walking.state import CONTACT, FORCE_INPUTS, ForceInputs

WIDTHS = (192, 192)
"""Widths of the hidden layers."""
WEIGHTS, CONFIG, ONNX = "forces.safetensors", "forces.json", "forces.onnx"


class ImitationConfig(Config, frozen=True):
    """The imitated controller, and the network's size.

    Attributes:
        robot: Name of the robot.
        gait: Name of its gait.
        settings: Settings of the imitated controller.
        widths: Widths of the hidden layers.
        mass: Mass of the robot [kg]; the network is rejected for a robot of another mass or height.
        height: Height of the robot's centre of mass [m].
    """

    robot: str
    gait: str
    settings: MpcSettings
    widths: tuple[int, ...]
    mass: float
    height: float


class ForceNetwork(nn.Module):
    """Normalised features, ELU layers, forces in robot weights."""

    weight: Tensor

    def __init__(self, weight: float, widths: tuple[int, ...] = WIDTHS) -> None:
        """Build the network for the robot's weight [N], the unit of forces."""
        super().__init__()
        self.normaliser = Normaliser(FORCE_INPUTS)
        sizes = (FORCE_INPUTS, *widths, LEGS * 3)
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ELU()]
        self.layers = nn.Sequential(*layers[:-1])
        self.register_buffer("weight", torch.tensor(float(weight)))

    def forward(self, features: Tensor) -> Tensor:
        """Return forces [N], shape [worlds, 12], from features, shape [worlds, 41]."""
        return self.layers(self.normaliser(features)) * self.weight

    def matrices(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the layers as matrices [inputs, outputs] and offsets, with normalisation and weight folded in."""
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        matrices = [
            (layer.weight.detach().double().T.clone(), layer.bias.detach().double().clone()) for layer in linear
        ]
        gain, mean = self.normaliser.gain.double(), self.normaliser.mean.double()
        first, offset = matrices[0]
        matrices[0] = gain[:, None] * first, offset - (mean * gain) @ first
        last, offset = matrices[-1]
        matrices[-1] = self.weight.double() * last, self.weight.double() * offset
        return [(np.ascontiguousarray(m.float().numpy()), b.float().numpy()) for m, b in matrices]


@dataclass
class ImitatedForces:
    """A force law by a network.

    Attributes:
        network: From features, float32 [worlds, 41], to forces [N], shape [worlds, 12].
        config: Configuration of the imitation.
        greatest: Vertical force limit of a foot [N].
    """

    network: "Matrices"
    config: ImitationConfig
    greatest: float
    _pyramids: FrictionPyramids = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._pyramids = FrictionPyramids(self.config.settings.friction, self.greatest)

    def __call__(self, inputs: ForceInputs) -> np.ndarray:
        """Return the forces of every world, inside the friction pyramids."""
        features = inputs.features()
        return self._pyramids.nearest(self.network(features).reshape(-1, LEGS, 3), features[:, CONTACT])


class Matrices:
    """A network as products of matrices.

    Each hidden layer has an additional unit that is always 1, which ELU keeps: the offset of the next layer is a row of
    that layer's matrix, and only the first offset is added.
    """

    def __init__(self, network: ForceNetwork) -> None:
        """Copy the current layers of a network."""
        (first, offset), *others = network.matrices()
        self._first, self._offset = np.pad(first, ((0, 0), (0, 1))), np.append(offset, np.float32(1.0))
        self._others = [np.vstack(layer) for layer in others]
        for number, matrix in enumerate(self._others[:-1]):
            one = np.eye(len(matrix), dtype=np.float32)[:, -1:]
            self._others[number] = np.hstack([matrix, one])
        self._zero = np.zeros((), np.float32)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Return forces [N], shape [worlds, 12]."""
        x = np.dot(features, self._first)
        x += self._offset
        for matrix in self._others:
            below = np.minimum(x, self._zero)
            np.maximum(x, np.expm1(below, out=below), out=x)  # ELU
            x = np.dot(x, matrix)
        return x


def save_imitation(folder: Path, network: ForceNetwork, config: ImitationConfig, *, onnx: bool = True) -> None:
    """Write a network into a folder, by default also as an ONNX file from `features` to `forces`.

    Raises:
        InputError: A package of the extra "export" is missing, or the folder cannot be written.
    """
    from neurodyn.nets.onnx_file import write_onnx

    with atomic_folder(folder) as partial:
        write_tensors(partial / WEIGHTS, dict(network.state_dict()))
        write_checksummed(partial / CONFIG, to_dict(config))
        if not onnx:
            return
        examples = network.normaliser.mean + network.normaliser.std * torch.randn(8, FORCE_INPUTS)
        write_onnx(
            partial / ONNX, _Tupled(network), [examples], inputs=["features"], outputs=["forces"],
            metadata={"kind": "contact forces", "robot": config.robot, "gait": config.gait,
                      "unit": "N, heading frame, legs front left, front right, hind left, hind right"},
        )  # fmt: skip


def load_imitation(folder: str | Path, quadruped: Quadruped, robot: str) -> ImitatedForces:
    """Read the force law of a quadruped from a folder.

    Raises:
        InputError: The folder holds no force law, or that of another robot.
    """
    folder = Path(folder)
    restore_folder(folder)
    if not (folder / CONFIG).is_file():
        raise InputError(f"{folder}: holds no imitated forces ({CONFIG}); make some with `neurodyn imitate`")
    config = from_dict(read_json(folder / CONFIG), ImitationConfig, str(folder / CONFIG))
    same = abs(config.mass - quadruped.mass) < 1e-3 * config.mass
    if config.robot != robot or not same or abs(config.height - quadruped.height) > 1e-3:
        raise InputError(
            f"{folder}: imitates forces of {config.robot!r} of {config.mass:.4g} kg, {config.height:.3g} m high; this "
            f"is {robot!r} of {quadruped.mass:.4g} kg, {quadruped.height:.3g} m high"
        )
    GAITS.require(config.gait)
    greatest = config.settings.greatest_force * quadruped.mass * quadruped.gravity
    network = ForceNetwork(1.0, config.widths)
    try:
        network.load_state_dict(read_weights(folder / WEIGHTS))
    except (RuntimeError, KeyError) as error:
        raise InputError(f"{folder / WEIGHTS}: does not hold the network of {CONFIG}; save it again") from error
    return ImitatedForces(Matrices(network.eval()), config, greatest)


class _Tupled(nn.Module):
    def __init__(self, network: ForceNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: Tensor) -> tuple[Tensor]:
        return (self.network(features),)

# SPDX-License-Identifier: Apache-2.0
"""Policies as rl_games saves them: the actor of its continuous actor-critic, from a checkpoint or from its arrays.

A checkpoint is a dictionary whose "model" holds the arrays by name: `a2c_network.actor_mlp.0.weight` and `.bias`, then
`.2`, `.4` and so on, `a2c_network.mu`, and, with normalised inputs, `running_mean_std.running_mean` and `.running_var`.
The action is mu of the observation clamp((x - mean) / sqrt(var + 1e-5), -5, 5), cut off at 1.
"""

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError, choices

EPSILON = 1e-5
"""Added to the variance of observations."""
CLIP = 5.0
"""Size beyond which normalised observations are cut off."""

_NETWORK = "a2c_network."
_STATISTICS = "running_mean_std."
_HIDDEN = re.compile(r"a2c_network\.actor_mlp\.(\d+)\.weight")
_KNOWN = ("actor_mlp.", "critic_mlp.", "mu.", "sigma", "value.")
_SUFFIXES = (".pth", ".pt", ".npz", ".safetensors")


@dataclass(frozen=True)
class Actor:
    """The actor of a checkpoint.

    Attributes:
        layers: Weight and bias of each layer, the last being that of the mean action, shapes [out, in] and [out].
        mean: Mean of observations, shape [observations]; None where they are not normalised.
        variance: Their variance, shape [observations]; None where they are not normalised.
    """

    layers: tuple[tuple[Tensor, Tensor], ...]
    mean: Tensor | None
    variance: Tensor | None

    @property
    def observations(self) -> int:
        """Number of observations."""
        return self.layers[0][0].shape[1]

    @property
    def actions(self) -> int:
        """Number of components of an action."""
        return self.layers[-1][0].shape[0]

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return tuple(weight.shape[0] for weight, _ in self.layers[:-1])


def read_rl_games(path: str | Path) -> Actor:
    """Read the actor of a checkpoint (.pth), or of a file with its arrays by name (.npz, .safetensors).

    Nothing in the file is executed: of a checkpoint, tensors and numbers alone are read.

    Raises:
        InputError: The file is missing or no such checkpoint, or its network is of another kind.
    """
    path = Path(path)
    arrays = _arrays(path)
    return _actor({name.removeprefix("model/"): value for name, value in arrays.items()}, str(path))


def _arrays(path: Path) -> dict[str, Tensor]:
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(f"{path}: no known kind of checkpoint; valid: {choices(_SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a checkpoint of rl_games ({', '.join(_SUFFIXES)})")
    if suffix == ".safetensors":
        return artifacts.read_tensors(path)
    if suffix == ".npz":
        return _npz(path)
    model = _checkpoint(path)
    model = model.get("model", model) if isinstance(model, Mapping) else model
    if not isinstance(model, Mapping):
        raise InputError(f"{path}: holds no 'model'; expected a checkpoint of rl_games")
    return {name: value for name, value in model.items() if isinstance(name, str) and isinstance(value, Tensor)}


def _npz(path: Path) -> dict[str, Tensor]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: torch.from_numpy(np.asarray(file[name])) for name in file.files}
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: cannot be read ({error}); expected arrays of numbers by name") from None


def _checkpoint(path: Path) -> Any:
    """Return what a checkpoint holds, without running anything of it."""
    scalar: Any = np.float32(0).__reduce__()[0]  # makes the numbers of numpy, as a best return may be
    names = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
    kinds = [type(np.dtype(kind)) for kind in ("float32", "float64", "int32", "int64", "bool")]
    try:
        with torch.serialization.safe_globals([*((scalar, name) for name in names), np.dtype, *kinds]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # whatever a file makes the reader stumble over: it is damaged, or asks for code to be run
        raise InputError(
            f"{path}: cannot be read as tensors and numbers alone; save the arrays of its 'model' by name as .npz or "
            ".safetensors"
        ) from None


def _actor(arrays: dict[str, Tensor], where: str) -> Actor:
    for name in arrays:
        if name.startswith(_NETWORK) and not name.removeprefix(_NETWORK).startswith(_KNOWN):
            raise InputError(f"{where}: has a layer {name!r}; valid: an MLP of {choices(_KNOWN)} alone")
    hidden = sorted(int(found[1]) for found in map(_HIDDEN.fullmatch, arrays) if found)
    stems = [*(f"actor_mlp.{index}" for index in hidden), "mu"]
    layers = tuple(
        (_take(arrays, f"{_NETWORK}{stem}.weight", where), _take(arrays, f"{_NETWORK}{stem}.bias", where))
        for stem in stems
    )
    for stem, (weight, bias) in zip(stems, layers, strict=True):
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise InputError(f"{where}: {stem} has shapes {_shape(weight)} and {_shape(bias)}; valid: [out, in], [out]")
    for (below, (weight, _)), (above, (upper, _)) in zip(
        zip(stems[:-1], layers[:-1], strict=True), zip(stems[1:], layers[1:], strict=True), strict=True
    ):
        if upper.shape[1] != weight.shape[0]:
            raise InputError(f"{where}: {above} takes {upper.shape[1]} numbers, but {below} gives {weight.shape[0]}")
    return Actor(layers, *_statistics(arrays, layers[0][0].shape[1], where))


def _statistics(arrays: dict[str, Tensor], observations: int, where: str) -> tuple[Tensor | None, Tensor | None]:
    """Return mean and variance of observations; None where they are not normalised."""
    if not any(name.startswith(_STATISTICS) for name in arrays):
        return None, None
    mean, variance = (_take(arrays, f"{_STATISTICS}running_{name}", where) for name in ("mean", "var"))
    for name, value in (("running_mean", mean), ("running_var", variance)):
        if value.shape != (observations,):
            raise InputError(f"{where}: {name} has shape {_shape(value)}; valid: [{observations}], as the first layer")
    if bool((variance < 0).any()):
        raise InputError(f"{where}: running_var has negative numbers; valid: at least 0")
    return mean, variance


def _take(arrays: dict[str, Tensor], name: str, where: str) -> Tensor:
    if name not in arrays:
        raise InputError(f"{where}: holds no {name!r}; expected the actor of a checkpoint of rl_games")
    value = arrays[name].float()
    if not bool(value.isfinite().all()):
        raise InputError(f"{where}: {name} has numbers that are not finite")
    return value


def _shape(value: Tensor) -> list[int]:
    return list(value.shape)

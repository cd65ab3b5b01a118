# SPDX-License-Identifier: Apache-2.0
"""Policies as rl_games saves them: the actor of its continuous actor-critic, from a checkpoint or from its arrays.

A checkpoint is a dictionary whose "model" holds the arrays by name: `a2c_network.actor_mlp.0.weight` and `.bias`, then
`.2`, `.4` and so on, `a2c_network.mu`, and, with normalised inputs, `running_mean_std.running_mean` and `.running_var`.
The action is mu of the observation clamp((x - mean) / sqrt(var + 1e-5), -5, 5), cut off at 1.
"""

import re
from pathlib import Path

from torch import Tensor

from neurodyn.core.errors import InputError, choices
from neurodyn.nets.checkpoint import read_arrays, take
from neurodyn.policy.checkpoints.actor import Actor, require_chain

EPSILON = 1e-5
"""Added to the variance of observations."""
CLIP = 5.0
"""Size beyond which normalised observations are cut off."""

_NETWORK = "a2c_network."
_STATISTICS = "running_mean_std."
_HIDDEN = re.compile(r"a2c_network\.actor_mlp\.(\d+)\.weight")
_KNOWN = ("actor_mlp.", "critic_mlp.", "mu.", "sigma", "value.")
_EXPECTED = "the actor of a checkpoint of rl_games"


def read_rl_games(path: str | Path) -> Actor:
    """Read the actor of a checkpoint (.pth), or of a file with its arrays by name (.npz, .safetensors).

    Nothing in the file is executed: of a checkpoint, tensors and numbers alone are read.

    Raises:
        InputError: The file is missing or no such checkpoint, or its network is of another kind.
    """
    path = Path(path)
    arrays = read_arrays(path, "model", "rl_games")
    return _actor({name.removeprefix("model/"): value for name, value in arrays.items()}, str(path))


def _actor(arrays: dict[str, Tensor], where: str) -> Actor:
    for name in arrays:
        if name.startswith(_NETWORK) and not name.removeprefix(_NETWORK).startswith(_KNOWN):
            raise InputError(f"{where}: has a layer {name!r}; valid: an MLP of {choices(_KNOWN)} alone")
    hidden = sorted(int(found[1]) for found in map(_HIDDEN.fullmatch, arrays) if found)
    stems = [*(f"actor_mlp.{index}" for index in hidden), "mu"]
    layers = tuple(
        (
            take(arrays, f"{_NETWORK}{stem}.weight", where, _EXPECTED),
            take(arrays, f"{_NETWORK}{stem}.bias", where, _EXPECTED),
        )
        for stem in stems
    )
    require_chain(stems, layers, where)
    mean, variance = _statistics(arrays, layers[0][0].shape[1], where)
    if mean is None or variance is None:
        return Actor(layers)
    return Actor(layers, mean, (variance + EPSILON).sqrt(), CLIP)


def _statistics(arrays: dict[str, Tensor], observations: int, where: str) -> tuple[Tensor | None, Tensor | None]:
    """Return mean and variance of observations; None where they are not normalised."""
    if not any(name.startswith(_STATISTICS) for name in arrays):
        return None, None
    mean, variance = (take(arrays, f"{_STATISTICS}running_{name}", where, _EXPECTED) for name in ("mean", "var"))
    for name, value in (("running_mean", mean), ("running_var", variance)):
        if value.shape != (observations,):
            raise InputError(
                f"{where}: {name} has shape {list(value.shape)}; valid: [{observations}], as the first layer"
            )
    if bool((variance < 0).any()):
        raise InputError(f"{where}: running_var has negative numbers; valid: at least 0")
    return mean, variance

# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that others wrote, read as tensors and numbers; nothing in a file is executed.

torch unpickles .pt and .pth files; asked for weights only, it makes tensors, containers and numbers, and refuses
whatever else a file asks for.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError, choices

SUFFIXES = (".pth", ".pt", ".npz", ".safetensors")
"""Files that are read: checkpoints of torch, or arrays by name."""


def read_arrays(path: Path, part: str, of: str) -> dict[str, Tensor]:
    """Return the arrays of a checkpoint by name.

    Args:
        path: A checkpoint (.pth, .pt) whose `part` holds the arrays, or that is these arrays; or a file with them
            (.npz, .safetensors).
        part: Key of the arrays.
        of: Whose checkpoint is expected, for messages.

    Raises:
        InputError: The file is missing, damaged, holds something else, or would have to be unpickled.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: no known kind of checkpoint; valid: {choices(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a checkpoint of {of} ({', '.join(SUFFIXES)})")
    if suffix == ".safetensors":
        return artifacts.read_tensors(path)
    if suffix == ".npz":
        return _npz(path)
    tree = _weights(path, part)
    tree = tree.get(part, tree) if isinstance(tree, Mapping) else tree
    if not isinstance(tree, Mapping):
        raise InputError(f"{path}: holds no {part!r}; expected a checkpoint of {of}")
    return {name: value for name, value in tree.items() if isinstance(name, str) and isinstance(value, Tensor)}


def take(arrays: Mapping[str, Tensor], name: str, where: str, of: str) -> Tensor:
    """Return one array in single precision.

    Raises:
        InputError: It is missing, or has numbers that are not finite.
    """
    if name not in arrays:
        raise InputError(f"{where}: holds no {name!r}; expected {of}")
    value = arrays[name].float()
    if not bool(value.isfinite().all()):
        raise InputError(f"{where}: {name} has numbers that are not finite")
    return value


def _npz(path: Path) -> dict[str, Tensor]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: torch.from_numpy(np.asarray(file[name])) for name in file.files}
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: cannot be read ({error}); expected arrays of numbers by name") from None


def _weights(path: Path, part: str) -> Any:
    """Return what a checkpoint holds, without running anything of it."""
    scalar: Any = np.float32(0).__reduce__()[0]  # makes the numbers of numpy, as a best return may be
    names = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
    kinds = [type(np.dtype(kind)) for kind in ("float32", "float64", "int32", "int64", "bool")]
    try:
        with torch.serialization.safe_globals([*((scalar, name) for name in names), np.dtype, *kinds]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # whatever a file makes the reader stumble over: it is damaged, or asks for code to be run
        raise InputError(
            f"{path}: cannot be read as tensors and numbers alone, and nothing is unpickled; save the arrays of its "
            f"{part!r} by name as .npz or .safetensors, where its own code runs"
        ) from None

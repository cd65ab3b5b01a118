# SPDX-License-Identifier: Apache-2.0
"""Reader of files of `torch.save` with plain tensors: dicts of them, which are read without running code."""

import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neurodyn.core.errors import InputError, suggested_file
from neurodyn.data.readers.column_map import LogFormat
from neurodyn.data.readers.npz import KEYS, NpzArrays, NpzSource


class TensorArrays(NpzArrays):
    """Tensors of a file by name; those in further dicts are named "observations.q"."""

    def __init__(self, path: Path) -> None:
        """Read a file, or raise an InputError."""
        self.path = path
        if not path.is_file():
            raise InputError(f"{path}: no such file{suggested_file(path)}; expected a file of tensors")
        try:
            tree = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged files raise many kinds of exceptions
            raise InputError(
                f"{path}: cannot be read as plain tensors ({str(error).splitlines()[0][:120]}); write it with "
                "torch.save({name: tensor, ...}, path)"
            ) from None
        self._whole = dict(_arrays(tree, ""))
        self.names = list(self._whole)
        if not self.names:
            raise InputError(f"{path}: holds no named tensors; write it with torch.save({{name: tensor, ...}}, path)")

    def _header(self, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
        self._require(name)
        array = self._whole[name]
        return array.shape, True, array.dtype  # whole in memory, whatever its order


def _arrays(tree: Any, name: str) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _arrays(value, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, torch.Tensor) and name:
        dense = tree.detach().to_dense()
        yield name, (dense.float() if dense.dtype is torch.bfloat16 else dense).numpy()
    elif isinstance(tree, list | tuple | float | int) and name:
        with suppress(ValueError):  # of lists of different lengths
            yield name, np.asarray(tree)


class TensorSource(NpzSource):
    """A file of tensors with one value, or one row of values, per row of the log."""

    form = "pt"
    open_arrays = TensorArrays


def _recognises(path: Path, head: bytes) -> bool:
    """Return whether a file is an archive of torch, or has its suffix."""
    if path.is_dir():
        return False
    if head.startswith(b"PK"):
        with suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(path) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    return path.suffix.lower() in {".pt", ".pth"}


TENSORS = LogFormat("a file of tensors (torch.save)", _recognises, TensorSource, keys=KEYS)
"""Files of tensors."""

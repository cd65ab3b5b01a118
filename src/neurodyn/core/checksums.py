# SPDX-License-Identifier: Apache-2.0
"""Checksums: those that files of an artifact carry in themselves, and those by which files are told apart.

The first are in each file, so that it stays whole when another is replaced.
"""

import hashlib
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

CHECKSUM = "checksum"
"""Key of a JSON file, and of the metadata of a safetensors file, that holds the checksum of all else in it."""


def sealed(data: dict[str, Any]) -> dict[str, Any]:
    """Return plain data with its checksum."""
    return {**data, CHECKSUM: _of(data)}


def opened(data: Any) -> tuple[Any, bool]:
    """Return data without its checksum, and whether the two fit; what has none fits."""
    if not isinstance(data, dict) or CHECKSUM not in data:
        return data, True
    rest = {name: value for name, value in data.items() if name != CHECKSUM}
    return rest, data[CHECKSUM] == _of(rest)


def of_tensors(tensors: "dict[str, torch.Tensor]") -> str:
    """Return the checksum of named tensors: of their names, types, shapes and bytes."""
    import torch

    crc = 0
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), crc)
        if tensor.numel():
            flat: np.ndarray[Any, Any] = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
            crc = zlib.crc32(flat.data, crc)
    return f"crc32:{crc:08x}"


def of_file(path: Path) -> str:
    """Return the SHA-256 of the bytes of a file."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def of_files(folder: Path, *patterns: str) -> str:
    """Return the SHA-256 of names and bytes of the files in a folder that match patterns, in the order of the names."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}):
        digest.update(f"{path.relative_to(folder).as_posix()} {of_file(path)}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _of(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"crc32:{zlib.crc32(text.encode()):08x}"

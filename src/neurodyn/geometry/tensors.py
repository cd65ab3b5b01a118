# SPDX-License-Identifier: Apache-2.0
"""Shape annotations of public functions, and constant tensors created once per device."""

from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Quaternions = Float[Tensor, "*#batch 4"]
Vectors = Float[Tensor, "*#batch 3"]
Matrices = Float[Tensor, "*#batch 3 3"]
Rows = Float[Tensor, "*#batch vectors 3"]
Positions = Float[Tensor, "*#batch nq"]
Velocities = Float[Tensor, "*#batch nv"]
Torques = Float[Tensor, "*#batch nu"]
Controls = Float[Tensor, "worlds frames nu"]
Commands = Controls | Float[Tensor, "worlds frames parts nu"]
"""Controls of frames, or of equal parts of each."""
WorldMask = Bool[Tensor, " worlds"]
"""Mask of worlds."""


def constant(values: tuple[Any, ...], like: Tensor) -> Tensor:
    """Return numbers, or tuples of them, as a read-only tensor with the dtype and device of `like`."""
    return shared_tensor(values, like.device, like.dtype)


def index(values: tuple[int, ...], like: Tensor) -> Tensor:
    """Return numbers as an int64 index tensor on the device of `like`; read-only."""
    return shared_tensor(values, like.device, torch.long)


@lru_cache(maxsize=1 << 16)  # never evicts: captured graphs read constants by address
def shared_tensor(values: tuple[Any, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return numbers as a tensor, created once; read-only."""
    with torch.inference_mode(False):  # reused by later calls, which may need gradients
        return torch.tensor(values, device=device, dtype=dtype)


def columns(table: Tensor, which: tuple[int, ...]) -> Tensor:
    """Return columns of a table, shape [..., len(which)]; a view if they are adjacent."""
    if which and which == tuple(range(which[0], which[0] + len(which))):
        return table[..., which[0] : which[0] + len(which)]
    return table.index_select(-1, index(which, table))

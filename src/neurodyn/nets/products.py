# SPDX-License-Identifier: Apache-2.0
"""Matrix products on a CPU, without gradients, by the faster of the two libraries that torch has for them.

MKL, which torch calls, uses half of the vector width of AMD's processors; oneDNN uses all of it. Large products in
float32 then take 0.43 to 0.6 of the time, with the same rounding errors (`benchmarks/policy_update.py`).
"""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_LEAST, _LEAST_LONG = 1e7, 1e7
"""Operations from which oneDNN's call overhead pays; those of products whose sums run over the rows."""


@cache
def prefers_onednn() -> bool:
    """Return whether oneDNN's products are the faster ones: on AMD's processors with AVX-512."""
    info = Path("/proc/cpuinfo")
    if not torch.backends.mkldnn.is_available() or not info.is_file():
        return False
    head = info.read_text(errors="replace").partition("\n\n")[0]
    return "AuthenticAMD" in head and "avx512f" in head


def linear(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor, scale: float = 1.0) -> Tensor:
    """Return `scale` times the outputs of a linear layer, shape [rows, outputs], in `out` or in memory of their own.

    Inputs have shape [rows, inputs], the weight [outputs, inputs].
    """
    if not _fits(x, x.shape[0] * weight.numel(), _LEAST):
        return torch.addmm(bias, x, weight.t(), beta=scale, alpha=scale, out=out)
    y = _linear(x, weight, bias)
    return y if scale == 1.0 else y.mul_(scale)


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Return a b, in `out` or in memory of its own."""
    return _linear(a, b.t(), None) if _fits(a, a.shape[0] * b.numel(), _LEAST) else torch.mm(a, b, out=out)


def add_product_(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a^T b to `total`, shape [columns of a, columns of b]."""
    if _fits(a, a.shape[1] * b.numel(), _LEAST_LONG):
        total.add_(_linear(a.t(), b.t(), None))
    else:
        total.addmm_(a.t(), b)


def _fits(x: Tensor, multiplications: int, least: float) -> bool:
    return 2.0 * multiplications >= least and x.dtype == torch.float32 and x.is_cpu and prefers_onednn()


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    assert isinstance(y, Tensor)
    return y

# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled for GPUs ahead of time, which takes no GPU: Warp brings NVIDIA's compiler with it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import warp as wp

from neurodyn.geometry.launching import start_warp


def compile_for_cuda(kernels: Iterable[Any], arch: int, folder: str | Path) -> list[Path]:
    """Compile Warp kernels to machine code of a GPU.

    Args:
        kernels: The kernels; of generic ones, as many overloads as have been launched so far.
        arch: Compute capability times ten: 80 (A100), 90 (H100) ...
        folder: Where sources and machine code go.

    Returns:
        Files of machine code, one for each module of kernels.

    Raises:
        RuntimeError: One does not compile.
    """
    start_warp()
    modules = dict.fromkeys(kernel.module for kernel in kernels)
    return [path for module in modules for path in wp.compile_aot_module(module, arch=arch, module_dir=folder)]

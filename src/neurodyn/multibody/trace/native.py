# SPDX-License-Identifier: Apache-2.0
# Warp reads the annotations of these functions.
# pyright: basic, reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false
"""Texts as Warp kernels.

A kernel takes one table of 64-bit words, numbers and the addresses of its arrays: exchanging a word costs less than
exchanging an array of Warp's, and small programs are launched often.
"""

from typing import Any

import numpy as np
import warp as wp


def native_kernel(text: str) -> Any:
    """Return the kernel of a text that sees `world` and `table.data`, in a module of its own."""

    @wp.func_native(text)
    def body(world: int, table: wp.array(dtype=wp.uint64)) -> None: ...

    @wp.kernel(enable_backward=False, module="unique")
    def kernel(first: int, table: wp.array(dtype=wp.uint64)) -> None:
        body(first + wp.tid(), table)

    return kernel


class FixedLaunch:
    """A launch of such a kernel on arrays that stay where they are: it can be captured in a graph.

    Attributes:
        command: The recorded launch.
    """

    def __init__(self, kernel: Any, threads: int, words: list[int], device: str) -> None:
        """Record a launch without running it.

        Args:
            kernel: What `native_kernel` returned.
            threads: Number of threads.
            words: The table.
            device: Warp device.
        """
        self._words = words
        self._table = wp.array(np.array(words, dtype=np.uint64), dtype=wp.uint64, device=device)
        self.command: Any = wp.launch(kernel, threads, inputs=[0, self._table], device=device, record_cmd=True)

    def update(self, words: list[int]) -> None:
        """Exchange words, where they are others; graphs that hold the launch follow."""
        if words != self._words:
            self._words = words
            self._table.assign(np.array(words, dtype=np.uint64))

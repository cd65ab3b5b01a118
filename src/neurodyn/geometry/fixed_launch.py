# SPDX-License-Identifier: Apache-2.0
# Warp reads the annotations of these functions.
# pyright: basic, reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false
"""Native texts as Warp kernels on arrays that stay where they are.

A kernel takes one table of 64-bit words, numbers and the addresses of its arrays. It lies in memory of its own, so that
a graph that holds the launch follows what is changed in it.
"""

from typing import Any

import numpy as np
import warp as wp


def table_kernel(text: str) -> Any:
    """Return the kernel of a text that sees the number of its thread, `thread`, and `table.data`."""

    @wp.func_native(text)
    def body(thread: int, table: wp.array(dtype=wp.uint64)) -> None: ...

    @wp.kernel(enable_backward=False, module="unique")
    def kernel(table: wp.array(dtype=wp.uint64)) -> None:
        body(wp.tid(), table)

    return kernel


class FixedLaunch:
    """A recorded launch of such a kernel: it can be captured in a graph.

    Attributes:
        command: What Warp recorded.
        words: The table.
    """

    def __init__(self, kernel: Any, threads: int, words: list[int], device: str) -> None:
        """Record a launch without running it.

        Args:
            kernel: What `table_kernel` returned.
            threads: Number of threads.
            words: The table.
            device: Warp device.
        """
        self.words = words
        self._table = wp.array(np.array(words, dtype=np.uint64), dtype=wp.uint64, device=device)
        self.command: Any = wp.launch(kernel, threads, inputs=[self._table], device=device, record_cmd=True)

    def update(self, words: list[int]) -> None:
        """Exchange the words."""
        self.words = words
        self._table.assign(np.array(words, dtype=np.uint64))

# SPDX-License-Identifier: Apache-2.0
"""Warp launches that come again on the same arrays, replayed as graphs."""

from collections.abc import Callable
from typing import Any

import warp as wp

_MOST = 16


class Replays:
    """Runs groups of launches; on a CPU each is recorded when it comes for the second time, and replayed from then on.

    A replay costs two microseconds where Newton's and Warp's launches cost some thirty each. Loops swap two or three
    states, so that the same arrays come again and again; a loop that makes new arrays in every step is never recorded.
    As with every capture of Warp's on a CPU, no other thread may launch anything while one is recorded.
    """

    def __init__(self, device: Any) -> None:
        """Take a Warp device."""
        self._device = device
        self._graphs: dict[Any, tuple[Any, Any]] = {}

    def run(self, arrays: tuple[Any, ...], launch: Callable[[], None], keep: Callable[[], Any]) -> None:
        """Run a group of launches; within a capture they join the graph.

        Args:
            arrays: The arrays that may be others in another step; None for one that there is not.
            launch: Launches what is to run, on arrays that stay the same but for these.
            keep: Returns what must live as long as a graph does, which knows arrays by their addresses only.
        """
        if not self._device.is_cpu or self._device.is_capturing:
            launch()
            return
        key = tuple([0 if array is None else array.ptr for array in arrays])
        graph, _ = self._graphs.get(key, (None, None))
        if graph is not None:
            wp.capture_launch(graph)
            return
        if key not in self._graphs:
            launch()
            while len(self._graphs) >= _MOST:
                self._graphs.pop(next(iter(self._graphs)))
            self._graphs[key] = (None, None)
            return
        with wp.ScopedCapture(self._device) as capture:
            launch()
        recorded: Any = capture.graph
        self._graphs[key] = (recorded, (arrays, keep()))
        wp.capture_launch(recorded)

    def clear(self) -> None:
        """Forget all graphs: other arrays hold what stayed the same until now."""
        self._graphs.clear()

# SPDX-License-Identifier: Apache-2.0
"""Blocks of windows that are taken for independent: logs where there are ten or more, else stretches of logs.

Residuals of neighbouring windows are correlated where the model is not quite that of the robot. A stretch of W windows
has about W^(1/3) of them, the order at which a block bootstrap errs least (Hall, Horowitz and Jing 1995, "On blocking
rules for the bootstrap with dependent data", Biometrika 82).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurodyn.learn.hybrid.windows import FitWindows

ENOUGH_LOGS = 10
"""Logs from which on these are the blocks."""


@dataclass(frozen=True)
class Blocks:
    """A partition of windows.

    Attributes:
        of_window: Block of each window, int64, shape [W].
        count: Number of blocks.
        logs: Whether blocks are whole logs.
    """

    of_window: Tensor
    count: int
    logs: bool

    @property
    def text(self) -> str:
        """Number and kind, for example "12 logs"."""
        return f"{self.count} {'logs' if self.logs else 'stretches of logs'}"

    def sums(self, rows: Tensor) -> Tensor:
        """Return the sums over blocks of what is given for windows, [W, n] to [blocks, n]."""
        return rows.new_zeros(self.count, rows.shape[1]).index_add(0, self.of_window, rows)


def blocks_of(windows: FitWindows) -> Blocks:
    """Return the blocks of windows."""
    if len(windows.logs) >= ENOUGH_LOGS:
        return Blocks(windows.log, len(windows.logs), True)
    length = max(1, round(windows.count ** (1.0 / 3.0)))
    order = np.lexsort((windows.places[:, 1], windows.places[:, 0], windows.log.numpy()))
    block, of_window = -1, torch.zeros(windows.count, dtype=torch.long)
    for log in range(len(windows.logs)):
        here = [int(k) for k in order if int(windows.log[k]) == log]
        parts = max(1, round(len(here) / length))
        for stretch in np.array_split(np.array(here), parts):
            block += 1
            of_window[torch.from_numpy(stretch)] = block
    return Blocks(of_window, block + 1, False)

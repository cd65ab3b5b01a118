# SPDX-License-Identifier: Apache-2.0
"""The learning-rate schedule of every training: linear warm-up, then half a cosine."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Learning rate over a phase.

    Attributes:
        warmup: Share of the phase in which the rate rises.
        warmup_steps: Optimiser steps in which it rises instead, counted over the whole training; 0 for `warmup`.
        final: Rate at the end of the phase, as a share of the highest.
        offset: Share of the highest rate that is added throughout.
    """

    warmup: float = 0.0
    warmup_steps: int = 0
    final: float = 0.0
    offset: float = 0.0

    def rate(self, highest: float, done: float, step: int = 0) -> float:
        """Return the learning rate.

        Args:
            highest: The highest rate of the phase.
            done: Share of the phase that is done.
            step: Optimiser steps so far.
        """
        rise = min(1.0, (done + 1e-3) / self.warmup) if self.warmup > 0 else 1.0
        if self.warmup_steps:
            rise = min(1.0, (step + 1) / self.warmup_steps)
        cosine = 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
        return highest * rise * (self.final + (1.0 - self.final) * cosine) + self.offset * highest

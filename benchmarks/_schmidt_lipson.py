# SPDX-License-Identifier: Apache-2.0
"""The real double pendulum of Schmidt and Lipson (Science 2009) in the layout of examples/schmidt_lipson/log.yaml.

The first trial, with gentle motion, is for training (its last fifth for validation); the second, in which the pendulum
turns over, for testing.
"""

from pathlib import Path

import numpy as np

LEARNT = 0.8
"""Fraction of the first trial used for training."""


def unpack(source: Path, target: Path) -> None:
    """Write the series `real_double_pend_h_1` of the packed file as arrays `time`, `theta`, `offsets` and `split`."""
    rows = np.load(source)["real_double_pend_h_1"]
    trial, time, theta = rows[:, 0], rows[:, 1], rows[:, 2:4]
    first = int((trial == 0).sum())
    offsets = np.array([0, round(LEARNT * first), first, len(rows)])
    np.savez(target, time=time, theta=theta, offsets=offsets, split=np.array([0, 1, 2]))

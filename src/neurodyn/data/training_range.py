# SPDX-License-Identifier: Apache-2.0
"""Range of motion in a model's training data, beyond which it extrapolates."""

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from neurodyn.core.config import Config
from neurodyn.core.description.spec import StateSpec

if TYPE_CHECKING:
    from neurodyn.data.mixture import Mixture
    from neurodyn.data.store import Store

Ranges = tuple[tuple[float, float], ...]

_VECTOR = 3
"""Components of a linear or angular velocity of a free or ball joint."""


class TrainingRange(Config, frozen=True):
    """Range of velocities and channels in training data, finite, in spec order.

    The components of a free or ball joint's linear or angular velocity share that vector's largest norm: motion seen in
    one direction counts for all.

    Attributes:
        qd: Velocities [rad/s or m/s], length nv.
        channels: Channels of the spec, length nx.
        logged: Whether some data are logs of the robot; these, not its declared simulator, are then the ground truth.
    """

    qd: Ranges
    channels: Ranges = ()
    logged: bool = False

    def union(self, other: "TrainingRange") -> "TrainingRange":
        """Return the union of two ranges."""
        return TrainingRange(
            qd=_union(self.qd, other.qd), channels=_union(self.channels, other.channels),
            logged=self.logged or other.logged,
        )  # fmt: skip


def training_range(data: "Store | Mixture") -> TrainingRange:
    """Return the range of a store's or mixture's training episodes, and whether they are logs of the robot."""
    from neurodyn.data.header import Split  # loads HDF5, which loading a model does not need
    from neurodyn.data.mixture import Mixture
    from neurodyn.data.split import split_blocks

    ranges = [
        TrainingRange(
            qd=_velocities(store.header.spec, store.columns("qd", rows)),
            channels=_columns(store.columns("channel", rows)),
            logged=store.header.of_robot,
        )
        for store in Mixture.of(data).stores
        for rows in split_blocks(store, Split.TRAIN)
        if len(rows)
    ]
    return reduce(TrainingRange.union, ranges)


def _velocities(spec: StateSpec, qd: np.ndarray) -> Ranges:
    ranges: list[tuple[float, float]] = []
    for joint in spec.joints:
        columns = qd[:, len(ranges) : len(ranges) + joint.nv]
        if joint.scalar:
            ranges += _columns(columns)
            continue
        for vector in np.split(columns, joint.nv // _VECTOR, axis=1):
            most = float(np.linalg.norm(vector, axis=1).max())
            ranges += [(-most, most)] * _VECTOR
    return tuple(ranges)


def _columns(values: np.ndarray) -> Ranges:
    return tuple((float(column.min()), float(column.max())) for column in values.T)


def _union(one: Ranges, other: Ranges) -> Ranges:
    return tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))

# SPDX-License-Identifier: Apache-2.0
"""Windows of the stages of a fit: how many of a log, how long, and how much of it before them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.settings import FitStage, IdentificationSettings
from neurodyn.identify.unknowns.quantities import LIMITS
from neurodyn.identify.unknowns.search_space import CoordinateSpace

_OVERLAP = 3.0
"""Most windows that a frame of the log is in: more of a short log say the same again."""
_LOG, _MOST_LOGS = 10.0, 4
"""Mean length from which recorded runs count as logs [s], and the most that add windows to a stage."""
_LONG, _MOST_MINUTES, _NEARLY = 60.0, 8, 0.05
"""Length [s] of which each counts as a log in one of several runs, the most with these, and the share of a length that
may lack: of a log of 120 s, import leaves less."""


def most_windows(stage: FitStage, frames: int, recorded: float, runs: Sequence[float]) -> int:
    """Return the most windows of some frames in a stage.

    Args:
        stage: The stage; its windows are those of one log.
        frames: Frames of a window.
        recorded: Frames of the log.
        runs: Lengths of its recorded runs [s]. Runs as long as logs each add windows of their own, to a limit.
    """
    logs = 1
    if runs and sum(runs) >= _LOG * len(runs):
        logs = min(_MOST_LOGS, len(runs))
        if len(runs) > 1:
            logs = max(logs, min(_MOST_MINUTES, sum(int(each / _LONG + _NEARLY) for each in runs)))
    return min(logs * stage.windows, max(1, math.ceil(_OVERLAP * recorded / frames)))


_PAST_SHARE = 3
"""The frames before a window are at most one of so many parts of the longest episode."""


def longest_window(store: Store) -> int:
    """Return the frames of the longest window that both training and validation episodes hold."""
    return min(int(store.lengths[episodes_of(store, split)].max()) for split in (Split.TRAIN, Split.VALIDATION))


def training_seconds(store: Store) -> float:
    """Return the length of all training episodes [s]."""
    return float(store.lengths[episodes_of(store, Split.TRAIN)].sum()) * store.header.spec.dt


def swings(mechanism: Mechanism) -> bool:
    """Return whether springs that no encoder sees have to settle."""
    return bool(mechanism.hidden) or any(drive.encoder == "motor" for drive in mechanism.drives.values())


def past_frames(dynamics: HybridDynamics, settings: IdentificationSettings, store: Store | None = None) -> int:
    """Return the frames before a window where motors, springs and disturbances settle; less of short runs."""
    seconds = settings.past_of_springs if swings(dynamics.mechanism) else settings.past
    seconds = max([seconds, *(one.past for one in dynamics.mechanism.elements or ())])
    wished = max(1, round(seconds / dynamics.spec.dt)) if dynamics.memory else 0
    return wished if store is None else min(wished, longest_window(store) // _PAST_SHARE)


def stage_frames(stage: FitStage, dt: float) -> int:
    """Return the frames of a stage's window."""
    return max(3, round(stage.seconds / dt))


def near_limits(space: CoordinateSpace, spec: StateSpec, q: Tensor, reach: float) -> Tensor:
    """Return which coordinates are limits of joints that some positions come near, bool, shape [n].

    Args:
        space: The coordinates.
        spec: Names of the positions.
        q: Positions, shape [N, nq].
        reach: Distance from a limit that is near, in deviations of its prior.
    """
    near = torch.zeros(len(space.coordinates), dtype=torch.bool)
    for k, one in enumerate(space.coordinates):
        joint = one.name.removesuffix(LIMITS[0]).removesuffix(LIMITS[1])
        if joint != one.name and joint in spec.q_names:
            ends, room = q[:, spec.q_names.index(joint)].aminmax(), reach * one.width
            upper = one.name.endswith(LIMITS[1])
            near[k] = float(ends.max) > one.nominal - room if upper else float(ends.min) < one.nominal + room
    return near

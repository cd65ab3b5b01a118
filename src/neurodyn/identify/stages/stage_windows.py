# SPDX-License-Identifier: Apache-2.0
"""Windows of the stages of a fit: how many of a log, how long, and how much of it before them."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.fit.window_starts import smoothed_starts
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
_SENSED = 0.13
"""Longest window that begins with an estimated state of an unmeasured base [s]."""
_PAST_SHARE = 3
"""The frames before a window are at most one of so many parts of the longest episode."""
_SHORT = 2.0
"""Length of the training episodes below which no structures, networks or wider priors are tried: so few tell no two
apart [s]."""


class StageWindows:
    """The windows of a log in the stages of a fit, drawn once each.

    Attributes:
        stages: The stages, with windows that the episodes hold. Without contacts, roll-outs stay near the log for
            longer, and long ones tell more. From unknown states of a base they do not stay near for long.
        longest, last_frames: Frames of the longest window that training and held-out episodes hold, and of those of
            the last stage.
    """

    def __init__(self, store: Store, settings: IdentificationSettings, past: int, *, touches: bool) -> None:
        """Settle the stages for a log, windows of which come with `past` frames; see `Fitting.touches`."""
        self._store, self._settings, self._past, self._dt = store, settings, past, store.header.spec.dt
        self._tracked = store.header.base == "measured"
        self._smooths = self._tracked and store.header.differentiated
        self._windows: dict[tuple[object, ...], Windows] = {}
        self.longest = longest_window(store) - past
        self.stages = self._cut(touches=touches)
        self.last_frames = min(stage_frames(self.stages[-1], self._dt), self.longest)

    def _cut(self, *, touches: bool) -> tuple[FitStage, ...]:
        settings, most = self._settings, self.longest * self._dt
        most = most if self._tracked else min(most, _SENSED)
        cut = [msgspec.structs.replace(one, seconds=min(one.seconds, most)) for one in settings.stages]
        stages = tuple({one.seconds: one for one in cut}.values())  # of those cut to one length, the last
        seconds = min(settings.untouched.seconds, most)
        if touches or seconds <= stages[-1].seconds:
            return stages
        return (*stages[:-1], msgspec.structs.replace(settings.untouched, seconds=seconds))

    def windows(self, split: Split, stage: FitStage, groups: tuple[str, ...] = ()) -> Windows:
        """Return the windows of a stage, with the commands before them; `groups` of runs count as logs."""
        frames = min(stage_frames(stage, self._dt), self.longest)
        runs = self._seconds if self._tracked else []  # windows with unknown starts cost more, and enough tell
        most = most_windows(stage, frames, self._recorded(split), runs)
        key = split, frames, most, groups, self._past
        if key not in self._windows:
            moving, seed = self._settings.moving, self._settings.seed
            windows = select_windows(self._store, split, self._past + frames, most=most, moving=moving, seed=seed)
            windows = (windows.of_groups(groups) if groups else windows).after(self._past)
            self._windows[key] = smoothed_starts(self._store.header.spec, windows) if self._smooths else windows
        return self._windows[key]

    def share(self, other: "StageWindows") -> None:
        """Take over the windows that another one has drawn from the same log."""
        self._windows |= other._windows

    def holds(self, windows: Windows) -> bool:
        """Return whether these windows were drawn, and come again."""
        return any(one is windows for one in self._windows.values())

    def shares_with(self, seconds: float) -> tuple[float, float, float]:
        """Return what a fit to this log and a further one of some `seconds` sees of them.

        Returns:
            The share of what a fit to this log alone sees of it, that of all windows of the further one, side by
                side, as overlaps tell nothing new, and the number of windows relative to that of this log alone.
        """
        stage, own, runs = self.stages[-1], self._recorded(Split.TRAIN), self._seconds
        frames = stage_frames(stage, self._dt)
        whole = seconds / self._dt
        further = whole * own / max(1, int(self._store.lengths.sum()))
        both = own + further
        now = most_windows(stage, frames, own, runs)
        then = most_windows(stage, frames, both, [*(runs or [own * self._dt]), seconds])
        before, after = (min(windows, own / frames) for windows in (now, then * own / both))
        share = min(then * further / both, further / frames) / (whole / frames)
        return min(1.0, after / before), share, then / now

    def _recorded(self, split: Split) -> int:
        return int(self._store.lengths[episodes_of(self._store, split)].sum())

    @property
    def _seconds(self) -> list[float]:
        """The length of each recorded run [s]; empty where the log names none."""
        store, count = self._store, len(self._store.header.runs)
        known = store.run >= 0
        frames = np.bincount(store.run[known], weights=store.lengths[known], minlength=count) if count else np.zeros(0)
        return (frames * self._dt).tolist()


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


def longest_window(store: Store) -> int:
    """Return the frames of the longest window that both training and validation episodes hold."""
    return min(int(store.lengths[episodes_of(store, split)].max()) for split in (Split.TRAIN, Split.VALIDATION))


def tells_little(store: Store) -> bool:
    """Return whether all training episodes are shorter together than what tells two structures or priors apart."""
    return float(store.lengths[episodes_of(store, Split.TRAIN)].sum()) * store.header.spec.dt < _SHORT


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

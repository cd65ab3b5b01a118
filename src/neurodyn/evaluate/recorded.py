# SPDX-License-Identifier: Apache-2.0
"""Starts along a log: evenly spaced windows with the measured motion as truth.

A roll-out starts in the recorded state at the start of frame 0. The recorded control of frame k leads from state k to
state k + 1, and prediction k is compared with recorded state k.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_in, held_out_split
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, all_windows, window_starts
from neurodyn.dynamics.batch import RecordedEnvironments, Trajectory, Window
from neurodyn.evaluate.rollouts import ControlSequence, RolloutBatch

MOST = 20_000
"""Default maximum number of starts along a log."""
ALL = "all"


@dataclass(frozen=True)
class Recorded:
    """Windows of a log.

    Attributes:
        store: The log.
        context: Frames of each window before its start.
        windows: The windows, in batches.
        stride: States between two starts.
    """

    store: Store
    context: int
    windows: list[Windows]
    stride: int

    @classmethod
    def along(
        cls, store: Store, split: int | None, context: int, frames: int, most: int | None = None, batch: int = 4096
    ) -> "Recorded":
        """Return windows of `context` and then `frames` frames from the episodes of a split (None: all episodes).

        Raises:
            InputError: No episode is long enough.
        """
        length = context + frames
        total = len(window_starts(store, episodes_in(store, split), length))
        stride = max(1, -(-total // (most or MOST)))
        return cls(store, context, list(all_windows(store, length, split=split, stride=stride, batch=batch)), stride)

    def batches(self, seen: int, *, environments: bool = True) -> Iterator[RolloutBatch]:
        """Yield the starts with controls, `seen` frames of history and, if asked for, the log's environments."""
        recorded = RecordedEnvironments(self.store) if environments else None
        for w in self.windows:
            first, start = self.context - min(seen, self.context), self.context
            channels = None if w.channels is None else w.channels[:, first : start + 1]
            past = Window(w.q[:, first : start + 1], w.qd[:, first : start + 1], w.control[:, first:start], channels)
            where = None if recorded is None else recorded.of(w)
            yield RolloutBatch(
                past if first < start else past.present, ControlSequence(torque=w.control[:, start:]), where
            )

    @property
    def truth(self) -> Trajectory:
        """Measured states from the starts on."""
        c = self.context
        return Trajectory.joined(
            [
                Trajectory(w.q[:, c:], w.qd[:, c:], None if w.channels is None else w.channels[:, c:])
                for w in self.windows
            ]
        )

    @property
    def group(self) -> np.ndarray:
        """Group of each start, -1 for none, shape [starts]."""
        return np.concatenate([w.group for w in self.windows])

    @property
    def released(self) -> np.ndarray:
        """Which windows begin with their episode, shape [starts]."""
        return np.concatenate([w.start == 0 for w in self.windows])

    def groups(self) -> dict[str, np.ndarray]:
        """Return which starts belong to each group, by its name."""
        group, names = self.group, self.store.header.groups
        return {names[i] if i >= 0 else "(no group)": group == i for i in np.unique(group)}

    def thinned(self, count: int) -> "Recorded":
        """Return about `count` evenly spaced windows."""
        stride = max(1, sum(len(w.group) for w in self.windows) // count)
        return replace(self, windows=[w.rows(slice(None, None, stride)) for w in self.windows])


def run_name(store: Store, episode: int) -> str:
    """Return the name of the recorded run that an episode is from."""
    run = int(store.run[episode])
    return store.header.runs[run] if run >= 0 else f"episode {episode}"


def chosen_split(store: Store, name: str | None) -> int | None:
    """Return the split with a name; by default the test episodes, or the validation episodes if there are none.

    Raises:
        InputError: There is no such split.
    """
    if name is None:
        return held_out_split(store)
    if name != ALL and name.upper() not in Split.__members__:
        raise InputError(f"--split is {name!r}; valid: train, validation, test or {ALL}")
    return None if name == ALL else Split[name.upper()]


def split_name(split: int | None) -> str:
    """Return the name of a split."""
    return ALL if split is None else Split(split).name.lower()

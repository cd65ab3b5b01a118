# SPDX-License-Identifier: Apache-2.0
"""Timed roll-outs, starts along a log, and the subject of an evaluation."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.progress import counted
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_in, held_out_split
from neurodyn.data.store import Store
from neurodyn.data.windows import WindowIndex, Windows, select_windows
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.rollouts import recorded_environments, roll_along
from neurodyn.evaluate.records import About
from neurodyn.nets.networks import weights_in


@dataclass(frozen=True)
class RolloutResult:
    """Roll-outs from all starts.

    Attributes:
        path: States, including the initial ones.
        seconds: Wall time [s].
        cpu_seconds: CPU time [s].
    """

    path: Trajectory
    seconds: float
    cpu_seconds: float


@torch.no_grad()
def measure_time(rollouts: Callable[[], Trajectory]) -> RolloutResult:
    """Return roll-outs with the time that they took."""
    wall, cpu = time.perf_counter(), time.process_time()
    path = rollouts()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return RolloutResult(path, wall, cpu or wall)  # some CPU clocks tick only every 10 ms


_BATCH = 4096
"""Starts of roll-outs at once."""
MOST_STARTS = 20_000
"""Default maximum number of starts along a log."""
ALL = "all"


@torch.no_grad()
def roll_along_log(model: Dynamics, store: Store, starts: Windows, size: int = _BATCH) -> Trajectory:
    """Roll a model out along windows of a log, in its environments; see `dynamics.rollouts.roll_along`."""
    environments, count = recorded_environments(store, model), -(-starts.count // size)
    parts = counted(starts.batches(size), count, "log")
    return Trajectory.concatenate([roll_along(model, part, environments) for part in parts])


def log_starts(
    store: Store, split: int | None, context: int, frames: int, most: int | None = None
) -> tuple[Windows, int]:
    """Return evenly spaced windows of `frames` frames after a past of `context` frames, and the states between them.

    At most `most` windows (None: `MOST_STARTS`) come from the episodes of a split (None: all episodes).

    Raises:
        InputError: No episode is long enough.
    """
    total = WindowIndex(store, episodes_in(store, split), context + frames).count
    stride = max(1, -(-total // (most or MOST_STARTS)))
    windows = select_windows(store, split, context + frames, stride=stride, dtype=torch.float32)
    return windows.after(context), stride


def thin(windows: Windows, count: int) -> Windows:
    """Return about `count` evenly spaced windows."""
    return windows.rows(slice(None, None, max(1, windows.count // count)))


def parameters_of(windows: Windows, store: Store, names: Sequence[str]) -> Tensor | None:
    """Return values of parameters in windows, shape [W, names]; None if the log lacks one."""
    known = list(store.header.parameters)
    if not names or windows.parameters is None or any(name not in known for name in names):
        return None
    return windows.parameters[:, [known.index(name) for name in names]]


def groups_of(windows: Windows, store: Store) -> dict[str, Tensor]:
    """Return which windows belong to each group of recordings, bool, shape [W], by group name."""
    group, names = windows.source.group, store.header.groups
    return {names[i] if i >= 0 else "(no group)": group == i for i in group.unique().tolist()}


def about(model: Dynamics, horizon: int, rollouts: int, seed: int) -> About:
    """Return the subject of an evaluation."""
    return About(
        robot=model.spec.robot, kind=model.kind, network=model.network, parameters=weights_in(model.parameters()),
        horizon=horizon, rollouts=rollouts, seed=seed, dt=model.spec.dt,
        caveat=model.caveat or UNSET,
    )  # fmt: skip


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

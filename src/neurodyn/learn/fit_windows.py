# SPDX-License-Identifier: Apache-2.0
"""Windows of a log for comparison with roll-outs, in double precision."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import WindowIndex, all_windows
from neurodyn.dynamics.batch import State, Trajectory, Window


@dataclass(frozen=True)
class FitWindows:
    """Windows of T frames.

    Attributes:
        q: Positions [rad or m], float64, shape [W, T + 1, nq].
        qd: Velocities [rad/s or m/s], shape [W, T + 1, nv].
        control: Torques during the frames [N m or N], shape [W, T, nu].
        ground: Pose of the store's scene in each window, shape [W, 7]; None without a scene.
        log: Index in `logs` of each window, int64, shape [W].
        logs: Names of the logs.
        places: Episode and first state of each window, shape [W, 2].
        measured: Readings of the store's streams, NaN without a reading, shape [W, T + 1, columns]; None without
            streams.
        past: Frames before each window, from which memories of drives and networks are built; None without them.
        parameters: Values of the store's parameters in each window, shape [W, parameters]; None without any.
    """

    q: Tensor
    qd: Tensor
    control: Tensor
    ground: Tensor | None
    log: Tensor
    logs: tuple[str, ...]
    places: np.ndarray
    measured: Tensor | None = None
    past: "FitWindows | None" = None
    parameters: Tensor | None = None

    @property
    def count(self) -> int:
        """Number of windows."""
        return self.q.shape[0]

    @property
    def frames(self) -> int:
        """Frames in a window."""
        return self.control.shape[1]

    def rows(self, rows: Tensor) -> "FitWindows":
        """Return some of the windows, by index."""
        tensors = {name: value[rows] for name, value in vars(self).items() if isinstance(value, Tensor)}
        past = None if self.past is None else self.past.rows(rows)
        return replace(self, **tensors, places=self.places[rows.numpy()], past=past)

    def cut(self, first: int, last: int | None = None) -> "FitWindows":
        """Return the frames from state `first` to state `last` (None: the last one) of all windows, without a past."""
        end = self.frames if last is None else last
        q, qd = self.q[:, first : end + 1], self.qd[:, first : end + 1]
        measured = None if self.measured is None else self.measured[:, first : end + 1]
        return replace(self, q=q, qd=qd, control=self.control[:, first:end], measured=measured, past=None)

    def until(self, frames: int) -> "FitWindows":
        """Return the first frames of the windows, with their past."""
        return replace(self.cut(0, frames), past=self.past)

    def after(self, frames: int) -> "FitWindows":
        """Return the windows without their first frames, which are their past."""
        return replace(self.cut(frames), past=self.cut(0, frames)) if frames else self

    def context(self, state: State | None = None, rows: Tensor | None = None) -> State | Window:
        """Return the initial states of roll-outs, with their past if there is one.

        Args:
            state: Initial states to use, one for each of `rows`; None for the recorded ones.
            rows: Indices of the windows; None for all.
        """
        state = State(self.q[:, 0], self.qd[:, 0]) if state is None else state
        past = self.past if rows is None or self.past is None else self.past.rows(rows)
        if past is None:
            return state
        q = torch.cat([past.q[:, :-1], state.q[:, None]], 1)
        return Window(q, torch.cat([past.qd[:, :-1], state.qd[:, None]], 1), past.control)


def fit_windows(
    store: Store,
    split: int | None,
    frames: int,
    *,
    stride: int | None = None,
    most: int,
    moving: float | None = None,
    seed: int | None = None,
) -> FitWindows:
    """Return windows that are spread evenly over the episodes of a split.

    Args:
        store: The trajectories.
        split: Split of the episodes; None for all episodes.
        frames: Length of a window.
        stride: States between the starts of neighbouring windows; None for a stride that gives `most` windows before
            the selection by `moving`.
        most: Largest number of windows.
        moving: Least mean joint speed of a window [rad/s or m/s]; None to keep all.
        seed: With a stride, seed of the first window of each episode and of the selection of `most` windows; None for
            the first state and an even selection.

    Raises:
        InputError: No episode is long enough, or no window moves.
    """
    episodes = store.episodes() if split is None else episodes_of(store, split)
    total = WindowIndex(store, episodes, frames).count  # raises an InputError if there are none
    skip = None
    if stride is not None and seed is not None:
        room = np.clip(store.lengths[episodes] - frames, 0, stride - 1)
        skip = generator(seed, "windows", "first").integers(0, room + 1)
    stride = max(1, total // most) if stride is None else stride
    parts = list(all_windows(store, frames, split=split, stride=stride, skip=skip))
    q, qd, control = (torch.cat([getattr(part, name) for part in parts]).double() for name in ("q", "qd", "control"))
    places = np.concatenate([np.stack([part.episode, part.start], 1) for part in parts])
    poses = [part.ground for part in parts if part.ground is not None]
    ground = torch.cat(poses).double() if poses else None
    numbers = [part.parameters for part in parts if part.parameters is not None]
    parameters = torch.cat(numbers).double() if numbers else None
    keys = list(map(store.run_name, places[:, 0]))
    names = tuple(dict.fromkeys(keys))
    log = torch.tensor([names.index(key) for key in keys])
    windows = FitWindows(q, qd, control, ground, log, names, places, parameters=parameters)
    if moving is not None:
        kept = torch.nonzero(qd.abs().mean((1, 2)) > moving)[:, 0]
        if not len(kept):
            raise InputError(
                f"data of {store.header.robot!r}: no window of {frames} frames moves faster than {moving:g} (mean "
                "joint speed); valid: data that move, or another `moving`"
            )
        windows = windows.rows(kept)
    if windows.count > most:
        rows = torch.linspace(0, windows.count - 1, most).round().long()
        if seed is not None:  # one in each of `most` equal parts
            drawn = torch.from_numpy(generator(seed, "windows", "which").random(most))
            rows = ((torch.arange(most) + drawn) * windows.count / most).long().clamp_max(windows.count - 1)
        windows = windows.rows(rows)
    used, log = torch.unique(windows.log, return_inverse=True)
    windows = replace(windows, log=log, logs=tuple(names[i] for i in used.tolist()))  # without logs that have no window
    if store.measured is None:
        return windows
    first = store.offsets[windows.places[:, 0]] + windows.places[:, 1]
    rows = first[:, None] + np.arange(frames + 1)
    return replace(windows, measured=torch.from_numpy(store.measured[rows]).double())


def require_finite_path(path: Trajectory, spec: StateSpec, windows: FitWindows) -> None:
    """Raise an InputError, with window, frame and quantity, for roll-outs that are not finite."""
    joined = torch.cat([path.q, path.qd], -1)
    bad = torch.nonzero(~torch.isfinite(joined))
    if not len(bad):
        return
    first = bad[bad[:, 1].argmin()]
    world, frame, column = (int(x) for x in first)
    names = [f"q.{name}" for name in spec.q_names] + [f"qd.{name}" for name in spec.qd_names]
    episode, start = (int(x) for x in windows.places[world])
    raise InputError(
        f"roll-out of world {world} (episode {episode}, from state {start} on) is not finite: {names[column]} at step "
        f"{frame}; valid: parameters, bounds or substeps with which the dynamics stay finite"
    )

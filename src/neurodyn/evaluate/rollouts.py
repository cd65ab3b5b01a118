# SPDX-License-Identifier: Apache-2.0
"""Batched roll-outs of any dynamics from given starts, or from starts along a log.

Along a log, a roll-out starts in the recorded state at the start of frame 0 of one of evenly spaced windows. The
recorded control of frame k leads from state k to state k + 1, and prediction k is compared with recorded state k.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_in, held_out_split
from neurodyn.data.store import Store
from neurodyn.data.windows import WindowIndex, Windows, all_windows
from neurodyn.dynamics.batch import (
    Control,
    Environment,
    RecordedEnvironments,
    State,
    Trajectory,
    Window,
    WorldParameters,
    present_state,
)
from neurodyn.dynamics.interface import Carry, Dynamics
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.evaluate.records import About
from neurodyn.nets.networks import weights_in


@dataclass(frozen=True)
class ControlSequence:
    """Torques, or targets and gains of a PD controller, for a batch of roll-outs.

    Attributes:
        torque: Torques or forces [N m or N], shape [worlds, T, nu]; None with a controller.
        target: Targets of the controller [rad or m], shape [worlds, T, nu]; None with torques.
        kp: Stiffness [N m/rad or N/m], shape [worlds, 1].
        kd: Damping [N m s/rad or N s/m], shape [worlds, 1].
    """

    torque: Tensor | None = None
    target: Tensor | None = None
    kp: Tensor | None = None
    kd: Tensor | None = None

    @property
    def frames(self) -> int:
        """Number of frames."""
        values = self.target if self.torque is None else self.torque
        return 0 if values is None else values.shape[1]

    def at(self, frame: int) -> Control:
        """Return the control of one frame."""
        if self.target is None:
            return Control(torque=None if self.torque is None else self.torque[:, frame])
        return Control(target=self.target[:, frame], kp=self.kp, kd=self.kd)

    def worlds(self, rows: slice | Tensor) -> "ControlSequence":
        """Return the controls of some of the roll-outs."""
        return ControlSequence(*(None if x is None else x[rows] for x in (self.torque, self.target, self.kp, self.kd)))

    def to(self, device: str) -> "ControlSequence":
        """Return the controls on another device."""
        return ControlSequence(
            *(None if x is None else x.to(device) for x in (self.torque, self.target, self.kp, self.kd))
        )

    def until(self, frame: int) -> "ControlSequence":
        """Return the controls of the first frames."""
        torque, target = (None if x is None else x[:, :frame] for x in (self.torque, self.target))
        return replace(self, torque=torque, target=target)


@dataclass(frozen=True)
class RolloutBatch:
    """Starts of roll-outs, one per world.

    Attributes:
        past: Initial states, or histories that end in them.
        drive: Controls.
        environment: Environment of the worlds; None for the dynamics' own.
    """

    past: State | Window
    drive: ControlSequence
    environment: Environment | None = None

    def to(self, device: str) -> "RolloutBatch":
        """Return the starts on another device."""
        environment = None if self.environment is None else self.environment.to(device)
        return RolloutBatch(self.past.to(device), self.drive.to(device), environment)


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
def roll_out(dynamics: Dynamics, batches: Iterable[RolloutBatch]) -> RolloutResult:
    """Roll dynamics out from all starts, in batches to bound memory."""
    paths, wall, cpu = [], 0.0, 0.0
    for batch in batches:
        begin = time.perf_counter(), time.process_time()
        paths.append(follow(dynamics, batch))
        wall, cpu = wall + time.perf_counter() - begin[0], cpu + time.process_time() - begin[1]
    return RolloutResult(Trajectory.joined(paths), wall, cpu or wall)  # some CPU clocks tick only every 10 ms


def follow(dynamics: Dynamics, batch: RolloutBatch) -> Trajectory:
    """Roll out under torques, or with a controller acting on the predicted state.

    Dynamics run on their device; starts and roll-outs are on the CPU.
    """
    if torch.device(dynamics.device).type == "cpu":
        return _followed(dynamics, batch)
    return _followed(dynamics, batch.to(dynamics.device)).to("cpu")


def _followed(dynamics: Dynamics, batch: RolloutBatch) -> Trajectory:
    drive = batch.drive
    if drive.torque is not None:
        return dynamics.rollout(batch.past, drive.torque, batch.environment)
    carry, state = dynamics.begin(batch.past, batch.environment), present_state(batch.past)
    path = _controlled(dynamics, carry, state, drive)
    if not isinstance(dynamics, NeuralDynamics) or dynamics.members == 1:
        return path
    several = drive.worlds(dynamics.repeated_worlds(path.worlds))
    each = _controlled(dynamics, *dynamics.begin_members(batch.past, batch.environment), several)
    return replace(path, epistemic=dynamics.spread(each))


def _controlled(dynamics: Dynamics, carry: Carry, state: State, drive: ControlSequence) -> Trajectory:
    """Roll out with a controller; a network's in-place step consumes the carry."""
    q, qd = [state.q], [state.qd]
    for frame in range(drive.frames):
        carry, step = dynamics.step_(carry, state, drive.at(frame))
        state = step.state
        q.append(state.q)
        qd.append(state.qd)
    return Trajectory(torch.stack(q, 1), torch.stack(qd, 1))


def about(model: Dynamics, horizon: int, rollouts: int, seed: int) -> About:
    """Return the subject of an evaluation."""
    return About(
        robot=model.spec.robot, kind=model.kind, network=model.network, parameters=weights_in(model.parameters()),
        horizon=horizon, rollouts=rollouts, seed=seed, dt=model.spec.dt,
        caveat=model.caveat or UNSET,
    )  # fmt: skip


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
        """Return windows of `context` plus `frames` frames from the episodes of a split (None: all episodes).

        Raises:
            InputError: No episode is long enough.
        """
        length = context + frames
        total = WindowIndex(store, episodes_in(store, split), length).count
        stride = max(1, -(-total // (most or MOST)))
        return cls(store, context, list(all_windows(store, length, split=split, stride=stride, batch=batch)), stride)

    def batches(self, seen: int, *, environments: bool = True, names: Sequence[str] = ()) -> Iterator[RolloutBatch]:
        """Yield the starts with controls, `seen` frames of history and, on request, the log's environments.

        The log's parameters in `names` become parameters of the worlds.
        """
        recorded = RecordedEnvironments(self.store, names=names) if environments else None
        for w in self.windows:
            first, start = self.context - min(seen, self.context), self.context
            channels = None if w.channels is None else w.channels[:, first : start + 1]
            past = Window(w.q[:, first : start + 1], w.qd[:, first : start + 1], w.control[:, first:start], channels)
            environment = self._parameters(w, names) if recorded is None else recorded.of(w)
            yield RolloutBatch(
                past if first < start else past.present, ControlSequence(torque=w.control[:, start:]), environment
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

    def _parameters(self, windows: Windows, names: Sequence[str]) -> Environment | None:
        """Return worlds that differ only in parameters; None if the log lacks one."""
        known = list(self.store.header.parameters)
        if not names or windows.parameters is None or any(name not in known for name in names):
            return None
        columns = [known.index(name) for name in names]
        return Environment(parameters=WorldParameters(tuple(names), windows.parameters[:, columns]))

    def parameters(self, names: Sequence[str]) -> Tensor | None:
        """Return values of parameters at each start, shape [starts, names]; None if the log lacks one."""
        known = list(self.store.header.parameters)
        if not names or any(name not in known for name in names):
            return None
        columns = [known.index(name) for name in names]
        return torch.cat([w.parameters[:, columns] for w in self.windows if w.parameters is not None])

    @property
    def group(self) -> np.ndarray:
        """Group of each start, -1 for none, shape [starts]."""
        return np.concatenate([w.group for w in self.windows])

    @property
    def released(self) -> np.ndarray:
        """Whether each window begins with its episode, shape [starts]."""
        return np.concatenate([w.start == 0 for w in self.windows])

    def groups(self) -> dict[str, np.ndarray]:
        """Return which starts belong to each group, by group name."""
        group, names = self.group, self.store.header.groups
        return {names[i] if i >= 0 else "(no group)": group == i for i in np.unique(group)}

    def thinned(self, count: int) -> "Recorded":
        """Return about `count` evenly spaced windows."""
        stride = max(1, sum(len(w.group) for w in self.windows) // count)
        return replace(self, windows=[w.rows(slice(None, None, stride)) for w in self.windows])


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

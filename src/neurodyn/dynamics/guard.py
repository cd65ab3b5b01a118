# SPDX-License-Identifier: Apache-2.0
"""Detection of diverged worlds: the first implausible state, by world, frame and quantity.

Roll-outs, solvers, environments and trainings use the same check. Worlds share only the weights, so a diverged world
does not affect the others. Inside `watching`, faults are collected and the states that led to each are written to a
store, which `neurodyn view RUN --data FILE` replays. Outside of it, a fault is printed as a notice.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch

from neurodyn.core.config import Record
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, notice
from neurodyn.dynamics.batch import Environment, State, Trajectory, Window
from neurodyn.robots.plausible import PlausibleBounds
from neurodyn.robots.sections import Interval

FOLDER = "nan"
"""Folder of a run for the states before its faults."""

KEPT_STATES = 32
"""Number of states kept before a fault, in addition to the history that the model needs."""

MOST_FAULTS = 16
"""Maximum number of faults whose states are written, so that a model that always diverges does not fill the disk."""

_FEW = 1 << 14
"""Array size below which the overhead of torch calls outweighs the memory traffic."""

TRAINING_MARGIN = 0.5
"""Margin on either side of a model's training range, as a fraction of that range.

A policy may drive a robot faster than it moves in the data, and the model has to be able to predict that; the speed of
a diverged model has no bound. `pretrained:cartpole` is never cut: its data reach 15 m/s and 36 rad/s, while random
actions and swing-up stay within 9 m/s and 11 rad/s.
"""

BROKEN_MARGIN = 5.0
"""The same margin for roll-outs, solvers and trainings: the true motion may leave the training range, but not reach
ten times its speed."""


class Fault(Record, frozen=True):
    """The first implausible state of a batch of worlds.

    Attributes:
        where: What was running, for example "roll-out of neural dynamics of 'ant'".
        world: Index of the world.
        frame: The frame whose last state is implausible, from 1; 0 for the initial state.
        quantity: Name of the coordinate, for example "qd.ankle_1".
        value: Its value [rad, m, rad/s or m/s]; None if it is not finite.
        lower: Lower plausible bound; None if there is none.
        upper: Upper plausible bound; None if there is none.
        worlds: Number of worlds that diverge.
        of: Number of worlds that were checked.
        states: Path of the store with the states before the fault; empty if none was written.
    """

    where: str
    world: int
    frame: int
    quantity: str
    value: float | None
    lower: float | None
    upper: float | None
    worlds: int = 1
    of: int = 1
    states: str = ""

    @property
    def words(self) -> str:
        """Description of the fault in one line."""
        state = "is not finite"
        if self.value is not None:
            low, high = ("" if bound is None else f"{bound:.4g}" for bound in (self.lower, self.upper))
            state = f"is {self.value:.4g} (plausible: {low} to {high})"
        others = f"; {self.worlds} of {self.of} worlds in all" if self.worlds > 1 else ""
        kept = f"; the states before it: {self.states}" if self.states else ""
        return f"{self.where}: world {self.world}, frame {self.frame}: {self.quantity} {state}{others}{kept}"


class DivergedError(InputError):
    """Raised when a computation stops at a fault, its `fault`."""

    def __init__(self, fault: Fault, advice: str) -> None:
        super().__init__(f"{fault.words}; {advice}")
        self.fault = fault


@dataclass
class Watch:
    """Faults collected by `watching`, in order of detection; `out` is the folder for the states before them."""

    out: Path | None = None
    faults: list[Fault] = field(default_factory=list)


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(out: str | Path | None = None) -> Iterator[Watch]:
    """Collect the faults that occur inside the context; `out` is the folder for the states before faults."""
    watch = Watch(None if out is None else Path(out))
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


def widen(ranges: tuple[Interval, ...], margin: float) -> tuple[Interval, ...]:
    """Return ranges extended on either side by a margin, as a fraction of each."""
    return tuple((low - margin * (high - low), high + margin * (high - low)) for low, high in ranges)


@torch.no_grad()
def fault_of(bounds: PlausibleBounds, path: Trajectory, where: str) -> Fault | None:
    """Return the earliest fault of a batch of roll-outs, in the first world with one; None if all are plausible.

    `where` says what was running; `path` begins with the initial states.
    """
    if _all_within(bounds, path):
        return None
    outside = bounds.outside(path.q, path.qd, path.channels)
    # A finite initial state outside of the bounds was given by the caller and is not a fault of the dynamics.
    finite = path.q.isfinite().all(-1) & path.qd.isfinite().all(-1)
    outside = outside & ~(outside[:, :1] & finite)
    if not bool(outside.any()):
        return None
    frame = int(outside.any(0).int().argmax())
    world = int(outside[:, frame].int().argmax())
    at = tuple(None if x is None else x[world : world + 1, frame] for x in (path.q, path.qd, path.channels))
    assert at[0] is not None
    assert at[1] is not None
    state = State.make_unchecked(q=at[0], qd=at[1], channels=at[2])
    fault = state_fault(bounds, state, where, frame=frame)
    return msgspec.structs.replace(fault, world=world, worlds=int(outside.any(1).sum()), of=len(outside))


@torch.no_grad()
def state_fault(bounds: PlausibleBounds, state: State, where: str, *, frame: int) -> Fault:
    """Return the fault of the first implausible state in a batch with at least one, after frame `frame`."""
    outside = bounds.outside(state.q, state.qd, state.channels)
    world = int(outside.int().argmax())
    row = [None if part is None else part[world] for part in (state.q, state.qd, state.channels)]
    assert row[0] is not None
    assert row[1] is not None
    column = int(bounds.relative_excess(row[0], row[1], row[2]).argmax())
    value = float(torch.cat([part for part in row if part is not None])[column])
    lower, upper = (*bounds.q, *bounds.qd, *bounds.channels)[column]
    named = column < len(bounds.names)
    return Fault(
        where=where, world=world, frame=frame, value=_finite(value), lower=_finite(lower), upper=_finite(upper),
        quantity=bounds.names[column] if named else f"channel {column - len(bounds.names)}",
        worlds=int(outside.sum()), of=len(outside),
    )  # fmt: skip


def _finite(value: float) -> float | None:
    return value if abs(value) < torch.inf else None


def _all_within(bounds: PlausibleBounds, path: Trajectory) -> bool:
    """Return whether all states are plausible; it runs on every roll-out, hence two passes over memory and no copy."""
    states = path.q.shape[1]
    if not len(path.q) or not states:
        return True
    if path.q.numel() < _FEW:
        return not bool(bounds.outside(path.q.detach(), path.qd.detach(), path.channels).any())
    lower, upper = bounds.limits(path.q, 0 if path.channels is None else path.channels.shape[-1])
    begin, within = 0, []
    for part in (path.q, path.qd, path.channels):
        if part is None or not part.shape[-1]:
            continue
        size = part.shape[-1]
        low, high = (x[begin : begin + size] for x in (lower, upper))
        rows = part.detach().flatten(1)  # reduce over worlds first: long rows vectorise well
        least, most = rows.amin(0).view(states, size).amin(0), rows.amax(0).view(states, size).amax(0)
        within.append(((least >= low) & (most <= high)).all())  # false for NaN
        begin += size
    return bool(torch.stack(within).all()) if within else True


@dataclass(frozen=True)
class FaultHistory:
    """History of one world that led to a fault.

    Attributes:
        spec: Names, order and units.
        window: The states and the controls between them, of one world.
        environment: Environment of all worlds; None if unknown.
        world: Index of the world, which selects its ground pose in `environment`.
    """

    spec: StateSpec
    window: Window
    environment: Environment | None = None
    world: int = 0


def report(fault: Fault, history: FaultHistory | None = None) -> Fault:
    """Inside `watching` collect a fault and write its states, else print a notice; return it with their path."""
    watch = _WATCH.get()
    if watch is None:
        notice(fault.words)
        return fault
    if (
        history is not None
        and watch.out is not None
        and sum(bool(known.states) for known in watch.faults) < MOST_FAULTS
    ):
        fault = write_states(watch.out, fault, history)
    watch.faults.append(fault)
    return fault


def write_states(folder: Path, fault: Fault, history: FaultHistory) -> Fault:
    """Write the last finite stretch of states before a fault to a new store, and return the fault with its path.

    Nothing is written if the last state is not finite.
    """
    from neurodyn.data.header import Split, Status, StoreHeader
    from neurodyn.data.writer import StoreWriter

    window, spec = history.window, history.spec
    parts = [x for x in (window.q, window.qd, window.channels) if x is not None]
    sound = torch.stack([x[0].isfinite().all(-1) for x in parts]).all(0)
    controls = window.torque[0].isfinite().all(-1)
    begin = len(sound)
    while begin > 0 and bool(sound[begin - 1]) and (begin == len(sound) or bool(controls[begin - 1])):
        begin -= 1
    if begin == len(sound):
        return fault
    path = next(p for n in itertools.count(1) if not (p := folder / f"{n:04d}.h5").exists())
    ground = None if history.environment is None else history.environment.ground
    scene = None if ground is None or not ground.scene.shapes else ground.scene
    pose = None
    if scene is not None and ground is not None and ground.pose is not None:
        pose = ground.pose[history.world % len(ground.pose)].cpu().numpy()[None]
    header = StoreHeader(
        spec=spec, source="log", scene=scene, notes={"fault": fault.plain()},
        runs=(f"before frame {fault.frame} of world {fault.world}",),
    )  # fmt: skip
    q, qd, channels, torque = (
        None if x is None else x[:, begin:].detach().cpu().float().numpy()
        for x in (window.q, window.qd, window.channels, window.torque)
    )
    assert q is not None
    assert qd is not None
    assert torque is not None
    contact = None if not spec.contacts else torch.zeros(1, q.shape[1], len(spec.contacts)).numpy()
    status = Status.NOT_FINITE if fault.value is None else Status.OUT_OF_RANGE
    with StoreWriter(path, header) as writer:
        writer.append(
            q, qd, torque, status=status, split=Split.TEST, run=0, ground=pose, channel=channels, contact=contact
        )
    return msgspec.structs.replace(fault, states=str(path))

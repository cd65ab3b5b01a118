# SPDX-License-Identifier: Apache-2.0
"""The guard: where worlds first leave what is plausible, said by name, with the states before it.

One concept for roll-outs, solvers, environments and trainings. Worlds share nothing but weights, so one that breaks
down does not touch the others; what the guard adds is that nobody goes on without a word. A fault names the world, the
frame and the quantity. Within `watching` faults are collected, and the states before each are written to a folder as a
store, which `neurodyn view RUN --data FILE` plays again; elsewhere a fault is a notice.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.config import Record
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, notice
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.batch import Environment, State, Trajectory, Window
from neurodyn.robots.declaration import Robot
from neurodyn.robots.plausible import PlausibleBounds, declared_bounds
from neurodyn.robots.sections import Interval

if TYPE_CHECKING:
    from neurodyn.dynamics.interface import Dynamics

FOLDER = "nan"
"""Folder of a run that takes the states before its faults."""

KEPT = 32
"""States before a fault that are kept, beside those that a model takes as its history."""

MOST = 16
"""Faults whose states are written, so that a model that breaks down everywhere does not fill a disk."""

_FEW = 1 << 14
"""Numbers below which the calls of torch cost more than the passes over memory."""

TRAINING_MARGIN = 0.5
"""How far beyond the range of its training data a model is believed, as a share of that range, to either side.

A policy may drive a robot faster than the data did, and a model must be allowed to say so; one that has broken down
goes on to any speed. In `pretrained:cartpole`, whose data reach 15 m/s and 36 rad/s, nothing is cut: random actions and
swing-up stay within 9 m/s and 11 rad/s.
"""

BROKEN_MARGIN = 5.0
"""The same in roll-outs, solvers and trainings: truth may well be faster than the training data were, but not ten times
as fast."""


class Fault(Record, frozen=True):
    """Where a batch of worlds first leaves what is plausible.

    Attributes:
        where: What was running, as "roll-out of neural dynamics of 'ant'".
        world: The world.
        frame: The frame that ended in the state, from 1; 0 for the state that it began from.
        quantity: Name of the coordinate, as "qd.ankle_1".
        value: Its value [rad, m, rad/s or m/s]; None where it is not finite.
        lower: Least plausible value; None for none.
        upper: Greatest plausible value; None for none.
        worlds: Worlds that leave it sooner or later, in what was looked at.
        of: Worlds that were looked at.
        states: Store with the states before it; empty where none was written.
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
        """The fault in a line."""
        found = "is not finite"
        if self.value is not None:
            low, high = ("" if bound is None else f"{bound:.4g}" for bound in (self.lower, self.upper))
            found = f"is {self.value:.4g} (plausible: {low} to {high})"
        others = f"; {self.worlds} of {self.of} worlds in all" if self.worlds > 1 else ""
        kept = f"; the states before it: {self.states}" if self.states else ""
        return f"{self.where}: world {self.world}, frame {self.frame}: {self.quantity} {found}{others}{kept}"


class DivergedError(InputError):
    """Something stopped at a fault, which it carries."""

    def __init__(self, fault: Fault, advice: str) -> None:
        super().__init__(f"{fault.words}; {advice}")
        self.fault = fault


@dataclass
class Watch:
    """What `watching` collects.

    Attributes:
        out: Folder for the states before faults; None to write none.
        faults: The faults, in the order in which they were found.
    """

    out: Path | None = None
    faults: list[Fault] = field(default_factory=list)


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(out: str | Path | None = None) -> Iterator[Watch]:
    """Collect the faults of whatever runs within.

    Args:
        out: Folder for the states before them, made when there is one; None to write none.
    """
    watch = Watch(None if out is None else Path(out))
    token = _WATCH.set(watch)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


def guard_bounds(
    dynamics: "Dynamics", robot: Robot | None = None, *, margin: float = TRAINING_MARGIN
) -> PlausibleBounds:
    """Return the states of some dynamics outside of which they have broken down.

    Those are the bounds of the robot, and for models also the range of velocities and channels of their training data,
    widened. In models of logs they apply to what the log measures.

    Args:
        dynamics: The dynamics.
        robot: Declaration of the robot; None for that of the dynamics, without which positions have no bounds.
        margin: By how much that range is widened to either side, as a share of it.
    """
    spec, robot = dynamics.spec, robot or dynamics.robot
    bounds = PlausibleBounds((), (), (), ()) if robot is None else declared_bounds(robot)
    known: TrainingRange | None = dynamics.training_range
    found = bounds.of_spec(spec)
    return found if known is None else found.tightened(_widened(known.qd, margin), _widened(known.channels, margin))


def _widened(ranges: tuple[Interval, ...], margin: float) -> tuple[Interval, ...]:
    return tuple((low - margin * (high - low), high + margin * (high - low)) for low, high in ranges)


@torch.no_grad()
def fault_of(bounds: PlausibleBounds, path: Trajectory, where: str, *, first: int = 0) -> Fault | None:
    """Return the first fault of some roll-outs: of the earliest frame, in the world of the lowest number.

    Args:
        bounds: Bounds of plausible states.
        path: The roll-outs.
        where: What was running.
        first: Frame that the first state ends.

    Returns:
        The fault; None where all states are plausible.
    """
    if _all_within(bounds, path):
        return None
    outside = bounds.outside(path.q, path.qd, path.channels)
    # Whoever begins outside stays there, which is not what broke down; what is not finite is.
    finite = path.q.isfinite().all(-1) & path.qd.isfinite().all(-1)
    outside = outside & ~(outside[:, :1] & finite) if not first else outside
    if not bool(outside.any()):
        return None
    frame = int(outside.any(0).int().argmax())
    world = int(outside[:, frame].int().argmax())
    at = tuple(None if x is None else x[world : world + 1, frame] for x in (path.q, path.qd, path.channels))
    assert at[0] is not None
    assert at[1] is not None
    state = State.unchecked(q=at[0], qd=at[1], channels=at[2])
    found = state_fault(bounds, state, where, frame=first + frame)
    return msgspec.structs.replace(found, world=world, worlds=int(outside.any(1).sum()), of=len(outside))


@torch.no_grad()
def state_fault(bounds: PlausibleBounds, state: State, where: str, *, frame: int) -> Fault:
    """Return the fault of a batch of states, one of which at least is outside: of the first of these.

    Args:
        bounds: Bounds of plausible states.
        state: The states.
        where: What was running.
        frame: The frame that ended in them.
    """
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
    """Return whether all states are plausible, in two passes over memory and no copy: this runs on every roll-out."""
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
        rows = part.detach().flatten(1)  # over worlds first: long rows are what processors are fast at
        least, most = rows.amin(0).view(states, size).amin(0), rows.amax(0).view(states, size).amax(0)
        within.append(((least >= low) & (most <= high)).all())  # what is not a number is in neither
        begin += size
    return bool(torch.stack(within).all()) if within else True


@dataclass(frozen=True)
class Before:
    """What led to a fault, of one world.

    Attributes:
        spec: Names, order and units.
        window: The states, and the controls between them.
        environment: What the worlds are in; None where unknown.
        world: The world, whose pose of the ground counts.
    """

    spec: StateSpec
    window: Window
    environment: Environment | None = None
    world: int = 0


def report(fault: Fault, before: Before | None = None) -> Fault:
    """Take note of a fault: collect it within `watching`, with its states written; give a notice elsewhere.

    Returns:
        The fault, which names the file of its states.
    """
    watch = _WATCH.get()
    if watch is None:
        notice(fault.words)
        return fault
    if before is not None and watch.out is not None and sum(bool(known.states) for known in watch.faults) < MOST:
        fault = write_states(watch.out, fault, before)
    watch.faults.append(fault)
    return fault


def write_states(folder: Path, fault: Fault, before: Before) -> Fault:
    """Write the states before a fault to a store in a folder; return the fault, which names it.

    Of what is kept the last states that are finite in a row are written; where there is none, no file is.
    """
    from neurodyn.data.header import Split, Status, StoreHeader
    from neurodyn.data.writer import StoreWriter

    window, spec = before.window, before.spec
    parts = [x for x in (window.q, window.qd, window.channels) if x is not None]
    sound = torch.stack([x[0].isfinite().all(-1) for x in parts]).all(0)
    controls = window.torque[0].isfinite().all(-1)
    begin = len(sound)
    while begin > 0 and bool(sound[begin - 1]) and (begin == len(sound) or bool(controls[begin - 1])):
        begin -= 1
    if begin == len(sound):
        return fault
    path = next(p for n in itertools.count(1) if not (p := folder / f"{n:04d}.h5").exists())
    ground = None if before.environment is None else before.environment.ground
    scene = None if ground is None or not ground.scene.shapes else ground.scene
    pose = None
    if scene is not None and ground is not None and ground.pose is not None:
        pose = ground.pose[before.world % len(ground.pose)].cpu().numpy()[None]
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


def watch_rollout(
    dynamics: "Dynamics", path: Trajectory, controls: Tensor, environment: Environment | None
) -> Trajectory:
    """Look at roll-outs, take note of their first fault, and return them.

    Args:
        dynamics: What made them.
        path: The roll-outs.
        controls: What acted, shape [worlds, T, nu].
        environment: What the worlds were in, as it was given.
    """
    fault = fault_of(
        guard_bounds_of(dynamics), path, f"roll-out of {dynamics.kind} dynamics of {dynamics.spec.robot!r}"
    )
    if fault is not None:
        report(fault, _before(dynamics, path, controls, environment, fault))
    return path


def guard_bounds_of(dynamics: "Dynamics") -> PlausibleBounds:
    """Return the bounds within which dynamics have not broken down, made once for each."""
    known: Any = dynamics.__dict__.get("_guard_bounds")
    if known is None or known[0] is not dynamics.training_range:
        known = dynamics.__dict__["_guard_bounds"] = (
            dynamics.training_range,
            guard_bounds(dynamics, margin=BROKEN_MARGIN),
        )
    return known[1]


def _before(
    dynamics: "Dynamics", path: Trajectory, controls: Tensor, environment: Environment | None, fault: Fault
) -> Before:
    """Return the states before a fault, the plausible ones of a roll-out."""
    rows, first = slice(fault.world, fault.world + 1), max(0, fault.frame - KEPT - dynamics.spec.context)
    last = max(fault.frame, 1)  # the state in which it shows is left out
    window = Window(
        path.q[rows, first:last].detach(), path.qd[rows, first:last].detach(),
        controls[rows, first : last - 1].detach(),
        None if path.channels is None else path.channels[rows, first:last].detach(),
    )  # fmt: skip
    return Before(dynamics.spec, window, dynamics.resolve_environment(environment), fault.world)

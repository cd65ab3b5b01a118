# SPDX-License-Identifier: Apache-2.0
"""A user's robot as dynamics: policies and planners act on it as in a simulator, one episode after the other.

A step sends the command of a frame and returns the robot's measurement at its end; the passed state is that of the last
measurement. Measurements are logged as they arrive: a CSV grows by a line per frame, so that it is complete up to the
frame of any crash, and a column map beside it lets `neurodyn import` read it. If a robot's rate is a multiple of the
task's, it gets each command that many times, and intermediate measurements only serve the velocity filter and the
limits.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import torch
from torch import Tensor

from neurodyn.control.resolve import ANALYTIC, ResolvedDynamics, open_dynamics
from neurodyn.control.robot.process import Observation, RobotProcess, RobotStoppedError
from neurodyn.control.robot.sensed import SensedBase, SensedReader, columns_of
from neurodyn.control.starts import Starts
from neurodyn.core import artifacts
from neurodyn.core.config import to_yaml
from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, describe_os_error, notice, unwritable
from neurodyn.core.registry import is_file
from neurodyn.data.readers.column_map import Column, ColumnMap
from neurodyn.data.readers.floating import UNMEASURED, FloatingColumns
from neurodyn.dynamics.batch import Control, Environment, State, Step, Window
from neurodyn.dynamics.control import frame_command
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Carry, Dynamics
from neurodyn.dynamics.kinds import simulate
from neurodyn.dynamics.quantities import StateReader
from neurodyn.geometry import rotation
from neurodyn.geometry.tensors import WorldMask
from neurodyn.robots import Robot
from neurodyn.robots.plausible import PlausibleBounds
from neurodyn.tasks import Task
from neurodyn.tasks.task import reset_states
from neurodyn.tasks.views import STATE

if TYPE_CHECKING:
    from neurodyn.control.robot.followed import BaseFollower

_TAIL = 1 << 16


class RobotLog:
    """Appends frames to a log; each is handed to the operating system before the next begins."""

    def __init__(self, path: Path, spec: StateSpec, *, tracked: bool = True) -> None:
        """Start a log, or continue one of the same robot after its last episode.

        Args:
            path: The CSV.
            spec: State and controls of the robot; its `control_kind` is the kind of commands.
            tracked: Whether the pose of a floating base is measured.

        Raises:
            InputError: The file cannot be written.
        """
        self.path, self._spec, self._tracked = path, spec, tracked
        self.episode = -1
        self._head: list[str] | None = None
        self._file: int | None = None
        artifacts.require_writable(path)

    def begin(self, others: Sequence[str]) -> None:
        """Start an episode; `others` are the columns of further measured values.

        Raises:
            InputError: The existing log has other columns.
        """
        columns = _columns(self._spec, tracked=self._tracked)
        state = [f"{kind}.{name}" for kind, names in columns.items() for name in names]
        head = ["episode", "time", *state, *others]
        if self._file is None:
            self._open(head)
        elif head != self._head:
            raise InputError(f"{self.path}: observe() returns other values than in the first episode; valid: the same")
        self.episode += 1

    def write(
        self, time: float, q: Sequence[float], qd: Sequence[float], control: Sequence[float], others: Sequence[float]
    ) -> None:
        """Write a frame: a state, and the command sent in it."""
        cells = [f"{value:.9g}" for value in (time, *q, *qd, *control, *others)]
        self._append(",".join([str(self.episode), *cells]))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, line: str) -> None:
        assert self._file is not None
        try:
            os.write(self._file, f"{line}\n".encode())
        except OSError as error:
            raise unwritable(self.path, describe_os_error(error)) from None

    def _open(self, head: list[str]) -> None:
        artifacts.make_folder(self.path.parent)
        known = self.path.exists() and self.path.stat().st_size > 0
        if known:
            self._go_on(head)
        self._file, self._head = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), head
        if not known:
            self._append(",".join(head))
        artifacts.write_text(
            self.path.with_suffix(".yaml"), to_yaml(column_map(self._spec, None if self._tracked else head))
        )

    def _go_on(self, head: list[str]) -> None:
        """Read the number of the last episode, and remove an incomplete last line."""
        with self.path.open("r+b") as file:
            written_head = file.readline().decode("utf-8", "replace").strip().split(",")
            if written_head != head:
                raise InputError(f"{self.path}: is a log of other values; valid: another file, or the same robot")
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            tail = file.read()
            whole = tail.rfind(b"\n") + 1
            file.truncate(size - len(tail) + whole)
        last = tail[:whole].splitlines()[-1].split(b",")[0]
        self.episode = int(last) if last.isdigit() else -1


def _columns(spec: StateSpec, *, tracked: bool) -> dict[str, Sequence[str]]:
    q, qd = (names if tracked else of_joints(spec, names) for names in (spec.q_names, spec.qd_names))
    return {"q": q, "qd": qd, "control": spec.controls}


def of_joints(spec: StateSpec, names: Sequence[str]) -> Sequence[str]:
    """Return the names of coordinates, of positions or velocities, without those of a floating base."""
    return names[spec.joints[0].nq if len(names) == spec.nq else spec.joints[0].nv :]


def column_map(spec: StateSpec, sensed: Sequence[str] | None = None) -> ColumnMap:
    """Return the column map of a log; `sensed` are its columns if the base is unmeasured."""
    floating: dict[str, FloatingColumns | Literal["unmeasured"]] = {}
    positions: dict[str, Column] = {}
    velocities: dict[str, Column | Literal["differentiate"]] = {}
    for joint in spec.joints:
        q = tuple(f"q.{name}" for name in joint.q_names)
        qd = tuple(f"qd.{name}" for name in joint.qd_names)
        if joint.kind == "free" and sensed is not None and joint is spec.joints[0]:
            floating[joint.name] = UNMEASURED
        elif joint.kind == "free":
            floating[joint.name] = FloatingColumns(
                position=q[:3], quaternion=q[3:], order="xyzw", linear_velocity=qd[:3], angular_velocity=qd[3:],
                angular_axes="world",
            )  # fmt: skip
        elif joint.kind == "ball":
            floating[joint.name] = FloatingColumns(
                quaternion=q, order="xyzw", angular_velocity=qd, angular_axes="world"
            )
        else:
            positions[joint.name], velocities[joint.name] = Column(q[0]), Column(qd[0])
    kind = "target" if spec.control_kind == "target" else "torque"
    return ColumnMap(
        format="csv", robot=spec.robot, time="time", episodes="episode", alignment=0.0, control_kind=kind,
        control={name: Column(f"control.{name}") for name in spec.controls}, q=positions,
        qd=velocities, floating=floating, measured={} if sensed is None else columns_of(sensed),
    )  # fmt: skip


REHEARSED = 3
"""Number of frames that loops compute before a robot moves in real time."""
_LATE = 0.01
"""Share of late frames in an episode from which on there is a notice."""
_LONG = 1.5
"""Length of a step, in frames, from which on it counts as late."""


@dataclass(frozen=True)
class RobotLimits:
    """Limits of a robot's commands and states, from its declaration."""

    command: Tensor
    """Lower and upper bounds of torques [N m or N] or targets [rad or m], shape [nu, 2]; commands are clipped."""
    bounds: PlausibleBounds
    """States beyond which the robot is stopped and the episode fails: the declared `range`, and joint limits widened
    by half (`robots.plausible`)."""

    @classmethod
    def of(cls, robot: Robot, control: str, bounds: PlausibleBounds) -> "RobotLimits":
        """Return the limits of a robot with commands of one kind ("torque", "target" or "command")."""
        joints = {joint.name: joint for joint in robot.joints}
        if control == "command":
            return cls(torch.tensor(robot.control_intervals()).view(-1, 2), bounds)
        rows = []
        for name, effort in robot.actuated.items():
            lower, upper = joints[name].lower, joints[name].upper
            target = (-math.inf if lower is None else lower, math.inf if upper is None else upper)
            rows.append((-effort, effort) if control == "torque" else target)
        return cls(torch.tensor(rows).view(-1, 2), bounds)

    def cut(self, command: Tensor) -> Tensor:
        """Return commands clipped to their bounds, shape [..., nu]."""
        return command.clamp(self.command[:, 0].to(command), self.command[:, 1].to(command))


class RobotDynamics(Dynamics):
    """A robot in its process; a context manager that leaves it safe.

    Attributes:
        process: The robot's process.
        limits: Limits of its commands and states.
        late: Whether the last step in real time took longer than a frame and a half, because its command came late.
        base: What is sensed of a base without motion capture; None if pose and velocity are measured.
        rehearses: Whether the robot stays still while a loop computes its first frames, which are slow until everything
            is compiled and cached: starts are the declared ones, and steps change nothing.
    """

    kind = "robot"
    _velocity: list[float] | None = None
    _seen: tuple[float, list[float], list[float], list[float]] | None = None
    late = False
    rehearses = False
    _rests = False  # whether it was stopped beyond its limits
    _unlogged = False  # whether the last state is not in the log yet
    _follower: "BaseFollower | None" = None

    def __init__(self, robot: Robot, name: str, log: Path) -> None:
        """Start the robot's process.

        Args:
            robot: Its declaration, at the frame length of the task.
            name: FILE.py:CLASS, whose code runs.
            log: File for the log (.csv); an existing one is continued.

        Raises:
            InputError: File, class or methods are missing, or the class has an incompatible rate or other commands.
        """
        spec = robot.spec
        # from the end of q, which may not hold the base
        hold = [spec.q_names.index(one) - spec.nq for one in spec.controls] if robot.command != "command" else []
        self.robot = robot
        self.process = RobotProcess(name, hold)
        try:
            self._require(robot, name)
            self.spec = msgspec.structs.replace(spec, control_kind=self.process.settings.control)
            self.limits = RobotLimits.of(robot, self.process.settings.control, self.guard_bounds(robot))
            self.base = SensedBase(robot) if self.process.settings.base == UNMEASURED else None
            self._log = RobotLog(log, self.spec, tracked=self.base is None)
        except BaseException:
            self.process.close()
            raise
        self._hold, self._others = hold, ()
        self._sent = list(robot.nominal_q())
        self._repeats = round(self.process.settings.rate * robot.dt)
        self._frame, self._ticks, self._late, self._begun, self._clock = 0, 0, 0, 0.0, 0.0

    @property
    def log(self) -> Path:
        """File of the log."""
        return self._log.path

    def _require(self, robot: Robot, name: str) -> None:
        settings = self.process.settings
        repeats = settings.rate * robot.dt
        if round(repeats) < 1 or abs(repeats / round(repeats) - 1.0) > 1e-3:
            raise InputError(
                f"{name}: rate is {settings.rate:g} Hz, but robot {robot.name!r} has frames of {robot.dt:.6g} s; "
                f"valid: {1.0 / robot.dt:.6g} Hz or a multiple, or another dt in its declaration"
            )
        if robot.command == "target" and settings.control != "target":
            raise InputError(f"{name}: takes torques, but the drives of robot {robot.name!r} take targets; valid: "
                             "control = 'target'")  # fmt: skip
        if (robot.command == "command") != (settings.control == "command"):
            raise InputError(
                f"{name}: takes each {settings.control}, and robot {robot.name!r} each {robot.command}; valid: control "
                "= 'command' for a robot whose drives are actuators, and for no other"
            )

    @cached_property
    def _simulation(self) -> Dynamics | None:
        """Simulator of the declaration, which provides the base's centre of mass and the contact points."""
        assert self.robot is not None
        if not self.spec.floating or not self.robot.asset:
            return None
        return simulate(ANALYTIC, self.robot)

    @property
    def base_com(self) -> Tensor | None:
        """Centre of mass of a floating base as declared, in the base frame [m], shape [3]."""
        return None if self._simulation is None else getattr(self._simulation, "base_com", None)

    @property
    def contact_points(self):  # noqa: ANN201
        """Contact points of the declared robot, measured against the ground."""
        return None if self._simulation is None else self._simulation.contact_points

    @property
    def _seen_points(self) -> ContactPointLayout | None:
        """Points from which contacts are computed, as in the simulator."""
        return None if self._simulation is None else self._simulation._seen_points

    def reader(self, environment: Environment | None = None) -> StateReader:
        """Return a reader of quantities, of what is sensed if the base is unmeasured."""
        whole = super().reader(environment)
        return whole if self.base is None else SensedReader(whole, self.base)

    @property
    def home(self) -> Environment:
        """The default environment."""
        return Environment() if self._simulation is None else self._simulation.resolve_environment(None)

    def start(self) -> State:
        """Move the robot to the start of an episode, and return its state there.

        Raises:
            RobotStoppedError: Its class raised, hung, or returned invalid measurements.
        """
        if self.rehearses:
            assert self.robot is not None
            return reset_states(self.robot, 1, torch.Generator().manual_seed(0))
        if self._unlogged:
            self.stop()
        self._rests = False
        if self.base is not None:
            self.base.restart()
            if self._follower is not None:
                self._follower.restart()
        seen = self.process.reset()
        self._frame, self._ticks, self._velocity, self._seen = 0, 0, None, None
        self._begun = self._clock = seen.clock
        self._others = tuple(sorted(set(seen.values) - {"q", "qd", "time"}))
        names = [
            name if len(seen.values[name]) == 1 else f"{name}.{k}"
            for name in self._others for k in range(len(seen.values[name]))
        ]  # fmt: skip
        self._log.begin(names)
        return self._with_estimated_base(self._read(seen))

    def begin(self, context: State | Window, environment: Environment | None = None) -> Carry:
        """Return None: the robot is where `start` moved it."""
        _require_one(context)

    def step(self, carry: Carry, state: State, control: Control) -> tuple[Carry, Step]:
        """Send the command of a frame, and return the robot's measurement at its end.

        Beyond its limits the robot is stopped at once and stays in that state, which is implausible, until `start`.
        """
        _require_one(state)
        if self.rehearses or self._rests:
            return carry, Step(state=state)
        command = self.limits.cut(frame_command(self.spec, state, control).detach())[0]
        if not bool(command.isfinite().all()):
            self.stop()
            raise RobotStoppedError(f"{self.process.name}: stopped: a command is not finite: {command.tolist()}")
        sent = command.double().tolist()
        self._write(sent)
        self._sent = sent
        self._frame += 1
        before, measured = self._clock, state
        for _ in range(self._repeats):
            measured = self._read(self.process.command(sent))
            if bool(self.limits.bounds.outside(measured.q, measured.qd)):
                self.stop()
                self._rests = True
                break
        measured = measured if self._rests else self._with_estimated_base(measured)
        assert self.robot is not None
        self.late = self.process.settings.realtime and self._clock - before > _LONG * self.robot.dt
        return carry, Step(state=measured, applied=command[None])

    def follow(self, model: HybridDynamics | None = None) -> None:
        """Estimate the state of a base without motion capture in every frame, for those who need it.

        `model` is the one that it is estimated by; None for the declared one.

        Raises:
            InputError: It cannot be estimated.
        """
        if self.base is not None and self._follower is None:
            from neurodyn.control.robot.followed import BaseFollower

            assert self.robot is not None
            self._follower, self.base.known = BaseFollower(self.robot, model), True

    def _with_estimated_base(self, measured: State) -> State:
        """Return a measured state, with that of the base as estimated if asked for."""
        if self._follower is None or self.base is None or self.base.reading is None or self._seen is None:
            return measured
        _, q, qd, _ = self._seen
        try:
            return self._follower.follow(q, qd, self._sent, self.base.reading)
        except InputError as error:
            raise self._wrong(str(error)) from None

    def reset(self, carry: Carry, context: State | Window, mask: WorldMask) -> Carry:
        """Return the carry unchanged; see `begin`."""
        return carry

    def stop(self) -> None:
        """Make the robot safe; the last state is logged with the command that it then gets."""
        self.process.stop()
        if self._unlogged:
            assert self._seen is not None
            control = self.process.settings.control
            command = [0.0 if control == "torque" else self._seen[1][place] for place in self._hold]
            self._write(self._sent if control == "command" else command)  # the effect of `stop` on actuators is unknown
            if self._late > max(1.0, _LATE * self._ticks):
                notice(f"{self.process.name}: {self._late} of {self._ticks - 1} frames of an episode began late; give "
                       "faster decisions, or a lower rate")  # fmt: skip

    def rehearse(self, loop: Callable[[], object]) -> None:
        """Run the loop that will move a robot in real time once before it does; its result is dropped."""
        if self.process.settings.realtime:
            self.rehearses = True
            try:
                loop()
            finally:
                self.rehearses = False

    def close(self) -> None:
        """Make the robot safe, and end its process and log."""
        try:
            self.stop()
        finally:
            self.process.close()
            self._log.close()

    def _write(self, command: Sequence[float]) -> None:
        assert self._seen is not None
        time, q, qd, others = self._seen
        self._log.write(time, q, qd, command, others)
        if self.base is not None:
            self.base.keep(q, qd, command)
        self._unlogged = False

    def _read(self, seen: Observation) -> State:
        """Return a measured state, with estimates of velocities that the robot leaves out."""
        values, spec, settings = seen.values, self.spec, self.process.settings
        self._clock = seen.clock
        q = self._check(values, "q", self._names(spec.q_names))
        clock = seen.clock - self._begun if settings.realtime else self._ticks / settings.rate
        self._ticks += 1
        time = self._check(values, "time", ("time",))[0] if "time" in values else clock
        others = [value for name in self._others for value in values.get(name, ())]
        qd = self._check(values, "qd", self._names(spec.qd_names)) if "qd" in values else self._differences(time, q)
        self._seen, self._late, self._unlogged = (time, q, qd, others), seen.late, True
        if self.base is not None:
            try:
                self.base.read(values, time)
            except InputError as error:
                raise self._wrong(str(error)) from None
            q, qd = self.base.complete(q, qd)
        return State(torch.tensor([q], dtype=torch.float32), torch.tensor([qd], dtype=torch.float32))

    def _names(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return which coordinates the robot measures."""
        return tuple(names) if self.base is None else tuple(of_joints(self.spec, names))

    def _check(self, values: dict[str, list[float]], name: str, names: Sequence[str]) -> list[float]:
        """Return measured values if their number is right and all are finite; else stop the robot."""
        numbers, width = values.get(name), len(names)
        wrong = None
        if numbers is None:
            wrong = f"has no {name!r}"
        elif len(numbers) != width:
            wrong = f"{name!r} has {len(numbers)} values"
        elif not all(map(math.isfinite, numbers)):
            wrong = f"{name!r} has a value that is not finite"
        if wrong is None:
            assert numbers is not None
            return numbers
        raise self._wrong(f"{wrong}; valid: {width} finite numbers ({', '.join(names)})")

    def _wrong(self, what: str) -> RobotStoppedError:
        self.process.stop()
        return RobotStoppedError(f"{self.process.name}: stopped: observe(): {what}")

    def _differences(self, time: float, q: list[float]) -> list[float]:
        """Return velocities from the last two positions, through a first-order filter.

        v += (t / (t + T)) ((q - q_before) / t - v) after the time t, with T of `velocity_filter`: half a frame and T
        behind the motion. Angles of continuous joints take the shorter way round, rotations are rotation vectors.
        """
        if self._velocity is None or self._seen is None:
            self._velocity = [0.0] * len(self._names(self.spec.qd_names))
            return self._velocity
        past = max(time - self._seen[0], 1e-6)
        if self.base is not None:
            return self._filter_slopes([(a - b) / past for a, b in zip(q, self._seen[1], strict=True)], past)
        now, before = (torch.tensor([one], dtype=torch.float64) for one in (q, self._seen[1]))
        moved = position_difference(self.spec, now, before)
        if self.spec.floating and self.base_com is not None:  # the centre of mass does not move as the origin does
            com = self.base_com.to(now)[None]
            moved[:, :3] += rotation.rotate(now[:, 3:7], com) - rotation.rotate(before[:, 3:7], com)
        return self._filter_slopes((moved[0] / past).tolist(), past)

    def _filter_slopes(self, slopes: list[float], past: float) -> list[float]:
        assert self._velocity is not None
        share = past / (past + self.process.settings.velocity_filter)
        self._velocity = [v + share * (slope - v) for v, slope in zip(self._velocity, slopes, strict=True)]
        return self._velocity


def _require_one(context: State | Window) -> None:
    if len(context.q) != 1:
        raise InputError(f"a robot runs one episode at a time, not {len(context.q)}")


class RobotStarts(Starts):
    """Starts of episodes on a robot, which is reset for each."""

    def __init__(self, dynamics: RobotDynamics) -> None:
        """Set the robot."""
        self._dynamics = dynamics

    def draw(self, count: int) -> State:
        """Reset the robot and return its state; `count` is 1."""
        if count != 1:
            raise InputError(f"a robot runs one episode at a time, not {count}")
        return self._dynamics.start()


@dataclass(frozen=True)
class RobotInLoop(ResolvedDynamics):
    """A robot as dynamics that planners and policies can act in, one episode after the other."""

    def starts(self, task: Task, seed: int) -> Starts:
        """Return starts in the robot's state after a reset."""
        assert isinstance(self.dynamics, RobotDynamics)
        return RobotStarts(self.dynamics)


def robot_file(out: Path) -> Path:
    """Return the file with every frame of a robot, beside the store of its episodes."""
    return out.with_name(f"{out.stem}-robot.csv")


@contextmanager
def robot_in_loop(task: Task, name: str, log: str | Path, model: HybridDynamics | None = None) -> Iterator[RobotInLoop]:
    """Open a robot of a user's class for a task; the robot is safe whenever the context is left.

    Args:
        task: The task.
        name: FILE.py:CLASS (`RobotInterface`), whose code runs.
        log: File to which all measurements and commands are appended (.csv).
        model: Model by which the state of an unmeasured base is estimated for policies of the state; None for the
            declared one.

    Raises:
        InputError: There is no such class, or it is not for the task's robot.
    """
    dynamics = RobotDynamics(task.declaration(), name, Path(log))
    try:
        if task.observes == STATE:
            dynamics.follow(model)
        yield RobotInLoop(name, dynamics)
    finally:
        dynamics.close()


def log_file(out: str | Path | None) -> Path:
    """Return the file of a robot's log: OUT/robot.csv, or one in this folder named after the time."""
    return Path(f"robot-{time.strftime('%Y%m%d-%H%M%S')}.csv") if out is None else Path(out) / "robot.csv"


@contextmanager
def plant_of(
    task: Task, name: str, device: str, out: Path | None, model: Dynamics | None = None
) -> Iterator[ResolvedDynamics]:
    """Open a planner's plant: dynamics by name, or a robot of a user's class, whose log is `log_file(out)`.

    `model` is the planner's; if the base is unmeasured, it is estimated by it.

    Raises:
        InputError: There is no such plant.
    """
    if is_file(name):
        own = model if isinstance(model, HybridDynamics) else None
        with robot_in_loop(task, name, log_file(out), own) as robot:
            assert isinstance(robot.dynamics, RobotDynamics)
            robot.dynamics.follow(own)
            yield robot
    else:
        yield open_dynamics(task, name, device=device, flag="--plant")

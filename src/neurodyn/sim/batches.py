# SPDX-License-Identifier: Apache-2.0
"""Batches of generated data: random grounds, states and controls, simulated and recorded.

A batch depends only on the seed and its number, not on the process that makes it. Trajectories end early where they
leave plausible bounds; data in which too many do are refused.
"""

import math
import shlex
import time
from collections import defaultdict
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.config import Config
from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.scene import Scene
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed, generator
from neurodyn.data.header import Status
from neurodyn.geometry.ground import Ground
from neurodyn.multibody.drives.drive import pd_torque
from neurodyn.robots import Robot, locate
from neurodyn.robots.plausible import PlausibleBounds
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.draws import QuantityDraws
from neurodyn.sim.energies import plausible_bounds
from neurodyn.sim.interface import Simulator
from neurodyn.sim.sampling import data_scene, held_controls, sample_grounds, sample_states, sample_torques
from neurodyn.sim.simulators import CompiledSimulator, simulator

MOST_IMPLAUSIBLE = 0.05
"""Maximum share of trajectories that become implausible or not finite; data with more are refused.

Shipped robots have none under random torques; with wrong joint limits or steps, about half of the trajectories are.
"""

MOST_CUT = 0.5
"""Maximum share of trajectories that leave the robot's declared `range`; data with more are refused.

Such a range is meant to cut some trajectories, e.g. those that swing up under stiff random gains, but not most of them.
"""


class Departure(Config, frozen=True):
    """Trajectories with the same first coordinate out of bounds."""

    coordinate: str  # for example "qd.ankle_1"
    trajectories: int  # their number
    value: float  # furthest outside; NaN if it was not finite
    lower: float
    upper: float
    unit: str  # of value and bounds [rad, m, rad/s or m/s]
    declared: bool  # whether the robot declares this bound as its `range`

    @property
    def words(self) -> str:
        """The departure in words."""
        if not math.isfinite(self.value):
            return f"{self.coordinate} is not finite in {self.trajectories}"
        bound = f"[{self.lower:.4g}, {self.upper:.4g}] {self.unit}"
        kind = "declared range" if self.declared else "plausible"
        return f"{self.coordinate} reaches {self.value:.4g} ({kind}: {bound}) in {self.trajectories}"


@dataclass(frozen=True)
class EarlyEnds:
    """Termination of each trajectory of a batch; all arrays have shape [E]."""

    lengths: np.ndarray  # numbers of valid transitions
    status: np.ndarray  # values of `data.header.Status`
    column: np.ndarray  # first coordinate of (q, qd) out of bounds; -1 for none
    value: np.ndarray  # value of that coordinate then


def early_ends(robot: str, bounds: PlausibleBounds, q: Tensor, qd: Tensor) -> EarlyEnds:
    """Terminate each trajectory before its first implausible or non-finite state.

    Positions have shape [E, T + 1, nq], velocities [E, T + 1, nv]. An initial state outside the bounds raises
    InputError with the name of the `robot`.
    """
    outside = bounds.outside(q, qd)
    if outside[:, 0].any():
        name, value = bounds.furthest(q[:, 0], qd[:, 0])
        raise InputError(
            f"robot {robot!r}: random states lie outside the declared range ({name} = {value:.4g}); keep `sampling` "
            "within `range`"
        )
    frames = outside.shape[1] - 1
    early = outside.any(1)
    first = torch.where(early, outside.int().argmax(1), frames + 1)
    rows, at = torch.arange(len(q)), first.clamp_max(frames)
    state = torch.cat([q[rows, at], qd[rows, at]], dim=-1)
    column = bounds.relative_excess(q[rows, at], qd[rows, at]).argmax(-1)
    broken = torch.where(state.isfinite().all(-1), Status.OUT_OF_RANGE, Status.NOT_FINITE)
    status = torch.where(early, broken, Status.COMPLETE)
    return EarlyEnds(
        lengths=(first - 1).numpy(),
        status=status.numpy().astype(np.int8),
        column=torch.where(early, column, -1).numpy(),
        value=state[rows, column].numpy(),
    )


@dataclass
class EarlyEndCount:
    """Counts early terminations of the `episodes` requested trajectories, and refuses data with too many."""

    robot: Robot
    bounds: PlausibleBounds
    episodes: int
    _values: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, ends: EarlyEnds, count: int) -> None:
        """Count the first `count` trajectories of a batch."""
        for column, value in zip(ends.column[:count].tolist(), ends.value[:count].tolist(), strict=True):
            if column >= 0:
                self._values[column].append(value)

    def require_few(self) -> None:
        """Raise InputError if the share of early terminations among all requested trajectories is too high."""
        for declared, most in ((False, MOST_IMPLAUSIBLE), (True, MOST_CUT)):
            departures = [departure for departure in self.departures if departure.declared == declared]
            share = sum(departure.trajectories for departure in departures) / self.episodes
            if share > most:
                raise InputError(self._refusal(departures[0], share, most))

    @property
    def departures(self) -> tuple[Departure, ...]:
        """Departures by coordinate, the most frequent first."""
        departures = [self._departure(column, values) for column, values in self._values.items()]
        return tuple(sorted(departures, key=lambda departure: -departure.trajectories))

    def _departure(self, column: int, values: list[float]) -> Departure:
        spec, nq = self.robot.spec, self.robot.spec.nq
        position = column < nq
        name = (*spec.q_names, *spec.qd_names)[column]
        ranges = self.robot.range.q if position else self.robot.range.qd
        lower, upper = (*self.bounds.q, *self.bounds.qd)[column]
        worst = max(values, key=lambda value: math.inf if math.isnan(value) else max(value - upper, lower - value))
        return Departure(
            coordinate=f"{'q' if position else 'qd'}.{name}",
            trajectories=len(values),
            value=worst if math.isfinite(worst) else math.nan,
            lower=lower,
            upper=upper,
            unit=(*spec.q_units, *spec.qd_units)[column],
            declared=ranges.get(name) == (lower, upper) and math.isfinite(worst),
        )

    def _refusal(self, worst: Departure, share: float, most: float) -> str:
        change = (
            "widen its `range`, or narrow `sampling`"
            if worst.declared
            else "raise simulator.substeps, or correct its joint limits, armature or efforts"
        )
        return (
            f"robot {self.robot.name!r}: at least {share:.1%} of the trajectories leave plausible bounds (more than "
            f"{most:.0%} is refused): {worst.words}; {change}; "
            f"`neurodyn check {shlex.quote(locate(self.robot))}` says which"
        )


@dataclass(frozen=True)
class Targets:
    """Targets and gains of a random PD controller in a batch of trajectories."""

    target: Tensor  # of the driven joints [rad or m], shape [worlds, frames, nu]
    kp: Tensor  # stiffnesses [N m/rad or N/m], shape [worlds, 1] or [worlds, nu]
    kd: Tensor  # dampings [N m s/rad or N s/m], shape [worlds, 1] or [worlds, nu]


class Recorder:
    """Records one batch of trajectories into buffers that every call reuses."""

    def __init__(
        self, simulator: Simulator, frames: int, scene: Scene | None = None, layout: ContactPointLayout | None = None
    ) -> None:
        """Allocate buffers for trajectories of `frames` frames in a simulator that was built with `scene`."""
        self._spec = simulator.robot.spec
        self._simulator = simulator
        self._frames = frames
        self._ground = None if scene is None else Ground(scene)
        self._layout = layout
        # Time comes first, so that a frame is written to memory in one piece.
        self._q = torch.empty(frames + 1, simulator.worlds, self._spec.nq, device=simulator.device)
        self._qd = torch.empty(frames + 1, simulator.worlds, self._spec.nv, device=simulator.device)

    def record(
        self, rng: np.random.Generator, passive_fraction: float = 0.0, held_fraction: float = 0.0, speed: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Simulate one batch from random states, on random grounds, under random torques.

        A fraction `passive_fraction` of the trajectories has no torque, or is held at the nominal pose; of the others,
        a fraction `held_fraction` has controls that are held over several frames. Initial velocities, except those of
        resets, are multiplied by 1 to `speed`.

        Returns:
            Positions, shape [worlds, frames + 1, nq], and velocities, shape [worlds, frames + 1, nv], both views of the
            buffers; applied torques, shape [worlds, frames, nu]; poses of the ground, shape [worlds, 7], None in free
            space.
        """
        robot, worlds, frames = self._simulator.robot, self._simulator.worlds, self._frames
        poses, ground = None, None
        if self._ground is not None:
            poses = sample_grounds(robot, worlds, rng)
            ground = self._ground.at_pose(poses)
            self._simulator.set_ground(poses)
        self._q[0], self._qd[0] = sample_states(robot, worlds, rng, ground, self._layout)
        if speed != 1:
            self._qd[0] *= torch.from_numpy(rng.uniform(1.0, speed, (worlds, 1)).astype(np.float32)).to(self._qd)
        passive = torch.from_numpy(rng.random(worlds) < passive_fraction)
        if robot.reset_fraction > 0:
            reset = torch.from_numpy(rng.random(worlds) < robot.reset_fraction)
            self._reset(reset, rng, poses)
            passive |= reset
        self._simulator.begin()
        if robot.gains is None or robot.holds:
            control = self._commands(rng, passive, held_fraction).to(self._q.device)
            for frame in range(frames):
                after = self._simulator.step_(self._q[frame], self._qd[frame], control[:, frame])
                self._q[frame + 1], self._qd[frame + 1] = after
        else:
            control = self._follow_targets(sample_targets(robot, worlds, frames, rng, passive))
        return self._q.transpose(0, 1).cpu(), self._qd.transpose(0, 1).cpu(), control.cpu(), poses

    def _commands(self, rng: np.random.Generator, passive: Tensor, held_fraction: float) -> Tensor:
        """Draw torques, or targets for drives that take them; passive trajectories get zero or the nominal pose."""
        robot, worlds, frames = self._simulator.robot, self._simulator.worlds, self._frames
        if robot.gains is not None:
            return sample_targets(robot, worlds, frames, rng, passive).target
        control = sample_torques(robot, worlds, frames, rng)
        if held_fraction > 0:
            held = torch.from_numpy(rng.random(worlds) < held_fraction)
            control[held] = held_controls(robot, control[held], rng)
        control[passive] = torch.tensor(robot.nominal_q()) if robot.holds else 0.0
        return control

    def _reset(self, worlds: Tensor, rng: np.random.Generator, poses: Tensor | None) -> None:
        """Draw the initial states of the masked worlds from the reset ranges."""
        ground = None if self._ground is None or poses is None else self._ground.at_pose(poses[worlds])
        q, qd = sample_states(self._simulator.robot, int(worlds.sum()), rng, ground, self._layout, reset=True)
        rows = worlds.nonzero()[:, 0].to(self._q.device)
        self._q[0, rows], self._qd[0, rows] = q.to(self._q), qd.to(self._qd)

    def _follow_targets(self, targets: Targets) -> Tensor:
        """Simulate under PD control; return the applied torques, within the efforts, shape [worlds, frames, nu]."""
        target, kp, kd = (part.to(self._q.device) for part in (targets.target, targets.kp, targets.kd))
        effort = torch.tensor(list(self._simulator.robot.actuated.values()), device=self._q.device)
        control = torch.empty_like(target)
        for frame in range(self._frames):
            q, qd = self._q[frame], self._qd[frame]
            torque = pd_torque(self._spec, q, qd, target[:, frame], kp, kd)
            control[:, frame] = torque = torch.clamp(torque, -effort, effort)
            self._q[frame + 1], self._qd[frame + 1] = self._simulator.step_(q, qd, torque)
        return control


def sample_targets(
    robot: Robot, count: int, frames: int, rng: np.random.Generator, held: Tensor | None = None
) -> Targets:
    """Draw targets about the nominal pose, independent in every frame, and gains for each trajectory.

    Trajectories in the mask `held`, shape [count], hold the nominal pose with the evaluation gains.
    """
    gains, hold = robot.gains, robot.hold_gains()
    if gains is None or hold is None:
        raise ValueError(f"robot {robot.name!r} has no gains")
    nominal = torch.tensor(robot.nominal_q())
    unit = torch.from_numpy(rng.random((count, frames, robot.spec.nu), dtype=np.float32))
    target = nominal + gains.spread * (2 * unit - 1)
    share = torch.from_numpy(rng.random((count, 2), dtype=np.float32))
    kp, kd = (low + (high - low) * share[:, i : i + 1] for i, (low, high) in enumerate((gains.kp, gains.kd)))
    if held is not None:
        target[held] = nominal
        kp, kd = (
            torch.where(held[:, None], torch.tensor(own), drawn) for own, drawn in zip(hold, (kp, kd), strict=True)
        )
    return Targets(target, kp, kd)


@dataclass(frozen=True)
class MadeBatch:
    """One batch of trajectories."""

    q: np.ndarray  # positions [rad or m], shape [worlds, frames + 1, nq]
    qd: np.ndarray  # velocities [rad/s or m/s], shape [worlds, frames + 1, nv]
    control: np.ndarray  # torques [N m or N], shape [worlds, frames, nu]
    ground: np.ndarray | None  # poses of the scene, shape [worlds, 7]; None in free space
    ends: EarlyEnds
    parameters: np.ndarray | None  # values of the drawn quantities, shape [worlds, quantities]; None without any
    cpu_seconds: float  # processor time of the simulation, without building the worlds


@dataclass(eq=False)
class BatchMaker:
    """Makes batch k of a data set as a function of (seed, k); builds its worlds on first use."""

    robot: Robot
    worlds: int
    frames: int
    passive_fraction: float
    seed: int
    device: str
    draws: QuantityDraws | None = None
    held_fraction: float = 0.0
    speed: float = 1.0
    compiled: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchMaker, tuple(getattr(self, field.name) for field in fields(self))  # worlds stay in their process

    @cached_property
    def scene(self) -> Scene | None:
        """The ground of the data; None for free space."""
        return data_scene(self.robot)

    @cached_property
    def simulator(self) -> Simulator:
        """The worlds."""
        build = CompiledSimulator if self.compiled else simulator
        return build(self.robot, self.worlds, scene=self.scene, device=self.device)

    @cached_property
    def bounds(self) -> PlausibleBounds:
        """Bounds at which a trajectory terminates."""
        return plausible_bounds(self.robot, self.simulator.built)

    def __call__(self, batch: int) -> MadeBatch:
        """Make a batch."""
        recorder, bounds = self._recorder, self.bounds
        begin = time.process_time()
        numbers = self._draw_robots(batch)
        q, qd, control, poses = recorder.record(
            generator(self.seed, "generate", batch), self.passive_fraction, self.held_fraction, self.speed
        )
        ends = early_ends(self.robot.name, bounds, q, qd)
        return MadeBatch(  # copies, because the recorder reuses its buffers
            q.numpy().copy(), qd.numpy().copy(), control.numpy(), None if poses is None else poses.numpy(), ends,
            None if numbers is None else numbers.numpy(), time.process_time() - begin,
        )  # fmt: skip

    def _draw_robots(self, batch: int) -> Tensor | None:
        """Draw a robot for each world of a batch; return the values of the drawn quantities."""
        if self.draws is None:
            return None
        numbers = self.draws.draw(self.worlds, torch.Generator().manual_seed(derive_seed(self.seed, "robots", batch)))
        self.simulator.set_parameters(self.draws.names, numbers)
        return numbers

    @cached_property
    def _recorder(self) -> Recorder:
        robot = self.robot
        layout = None if robot.contact_points is None else contact_point_layout(self.simulator.built, robot)
        return Recorder(self.simulator, self.frames, self.scene, layout)

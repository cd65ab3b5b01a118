# SPDX-License-Identifier: Apache-2.0
"""Batches of generated data: random grounds, states and controls, simulated and recorded.

A batch depends only on the seed and its number, not on the process that makes it.
"""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.scene import Scene
from neurodyn.core.seeds import generator
from neurodyn.geometry.ground import Ground
from neurodyn.multibody.pd import pd_torque
from neurodyn.robots import Robot
from neurodyn.robots.plausible import PlausibleBounds
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.early_ends import EarlyEnds, early_ends
from neurodyn.sim.energy import plausible_bounds
from neurodyn.sim.reference import ReferenceSimulator, simulator
from neurodyn.sim.sampling import data_scene, sample_grounds, sample_states, sample_torques


@dataclass(frozen=True)
class Targets:
    """Targets and gains of a random PD controller in a batch of trajectories.

    Attributes:
        target: Targets of the driven joints [rad or m], shape [worlds, frames, nu].
        kp: Stiffnesses [N m/rad or N/m], shape [worlds, 1].
        kd: Dampings [N m s/rad or N s/m], shape [worlds, 1].
    """

    target: Tensor
    kp: Tensor
    kd: Tensor

    def to(self, device: torch.device) -> "Targets":
        """Return targets and gains on another device."""
        return Targets(self.target.to(device), self.kp.to(device), self.kd.to(device))


class Recorder:
    """Records one batch of trajectories into buffers that every call reuses."""

    def __init__(
        self,
        simulator: ReferenceSimulator,
        frames: int,
        scene: Scene | None = None,
        layout: ContactPointLayout | None = None,
    ) -> None:
        """Allocate the buffers.

        Args:
            simulator: Simulator of the trajectories, built with `scene`.
            frames: Length of a trajectory in frames.
            scene: The ground; None for free space.
            layout: The robot's contact points; None without contact points.
        """
        self._spec = simulator.robot.spec
        self._simulator = simulator
        self._frames = frames
        self._ground = None if scene is None else Ground(scene)
        self._layout = layout
        # Time comes first, so that a frame is written to memory in one piece.
        self._q = torch.empty(frames + 1, simulator.worlds, self._spec.nq, device=simulator.device)
        self._qd = torch.empty(frames + 1, simulator.worlds, self._spec.nv, device=simulator.device)

    def record(
        self, rng: np.random.Generator, passive_fraction: float = 0.0
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Simulate one batch from random states, on random grounds, under random torques.

        Args:
            rng: Source of randomness.
            passive_fraction: Share of trajectories without torque, or held at the nominal pose.

        Returns:
            Positions, shape [worlds, frames + 1, nq], and velocities, shape [worlds, frames + 1, nv], both views of the
            buffers; applied torques, shape [worlds, frames, nu]; poses of the ground, shape [worlds, 7], None in free
            space.
        """
        robot, worlds, frames = self._simulator.robot, self._simulator.worlds, self._frames
        poses, ground = None, None
        if self._ground is not None:
            poses = sample_grounds(robot, worlds, rng)
            ground = self._ground.posed(poses)
            self._simulator.set_ground(poses)
        self._q[0], self._qd[0] = sample_states(robot, worlds, rng, ground, self._layout)
        passive = torch.from_numpy(rng.random(worlds) < passive_fraction)
        if robot.reset_fraction > 0:
            reset = torch.from_numpy(rng.random(worlds) < robot.reset_fraction)
            self._reset(reset, rng, poses)
            passive |= reset
        self._simulator.begin()
        if robot.gains is None or robot.command == "target":
            control = self._commands(rng, passive)
            control = control.to(self._q.device)
            for frame in range(frames):
                after = self._simulator.step_(self._q[frame], self._qd[frame], control[:, frame])
                self._q[frame + 1], self._qd[frame + 1] = after
        else:
            control = self._follow_targets(sample_targets(robot, worlds, frames, rng, passive))
        return self._q.transpose(0, 1).cpu(), self._qd.transpose(0, 1).cpu(), control.cpu(), poses

    def _commands(self, rng: np.random.Generator, passive: Tensor) -> Tensor:
        """Draw torques, or targets for drives that take them; passive trajectories get none, or the nominal pose."""
        robot, worlds, frames = self._simulator.robot, self._simulator.worlds, self._frames
        if robot.gains is not None:
            return sample_targets(robot, worlds, frames, rng, passive).target
        control = sample_torques(robot, worlds, frames, rng)
        control[passive] = torch.tensor(robot.nominal_q()) if robot.command == "target" else 0.0
        return control

    def _reset(self, worlds: Tensor, rng: np.random.Generator, poses: Tensor | None) -> None:
        """Draw the initial states of the masked worlds from the reset ranges."""
        ground = None if self._ground is None or poses is None else self._ground.posed(poses[worlds])
        q, qd = sample_states(self._simulator.robot, int(worlds.sum()), rng, ground, self._layout, reset=True)
        rows = worlds.nonzero()[:, 0].to(self._q.device)
        self._q[0, rows], self._qd[0, rows] = q.to(self._q), qd.to(self._qd)

    def _follow_targets(self, targets: Targets) -> Tensor:
        """Simulate under PD control; return the applied torques, within the efforts, shape [worlds, frames, nu]."""
        spec, targets = self._spec, targets.to(self._q.device)
        effort = torch.tensor(list(self._simulator.robot.actuated.values()), device=self._q.device)
        control = torch.empty_like(targets.target)
        for frame in range(self._frames):
            q, qd = self._q[frame], self._qd[frame]
            torque = pd_torque(spec, q, qd, targets.target[:, frame], targets.kp, targets.kd)
            control[:, frame] = torque = torch.clamp(torque, -effort, effort)
            self._q[frame + 1], self._qd[frame + 1] = self._simulator.step_(q, qd, torque)
        return control


def sample_targets(
    robot: Robot, count: int, frames: int, rng: np.random.Generator, held: Tensor | None = None
) -> Targets:
    """Draw targets about the nominal pose, independent in every frame, and gains for each trajectory.

    Args:
        robot: A robot with gains.
        count: Number of trajectories.
        frames: Length of a trajectory in frames.
        rng: Source of randomness.
        held: Trajectories that hold the nominal pose with the gains of evaluation, shape [count]; None for none.
    """
    gains = robot.gains
    if gains is None:
        raise ValueError(f"robot {robot.name!r} has no gains")
    nominal = torch.tensor(robot.nominal_q())
    unit = torch.from_numpy(rng.random((count, frames, robot.spec.nu), dtype=np.float32))
    target = nominal + gains.spread * (2 * unit - 1)
    share = torch.from_numpy(rng.random((count, 2), dtype=np.float32))
    kp, kd = (low + (high - low) * share[:, i : i + 1] for i, (low, high) in enumerate((gains.kp, gains.kd)))
    if held is not None:
        target[held] = nominal
        kp[held], kd[held] = gains.hold
    return Targets(target, kp, kd)


@dataclass(frozen=True)
class MadeBatch:
    """One batch of trajectories.

    Attributes:
        q: Positions [rad or m], shape [worlds, frames + 1, nq].
        qd: Velocities [rad/s or m/s], shape [worlds, frames + 1, nv].
        control: Torques [N m or N], shape [worlds, frames, nu].
        ground: Poses of the scene, shape [worlds, 7]; None in free space.
        ends: Termination of each trajectory.
        cpu_seconds: Processor time of the simulation, without building the worlds [s].
    """

    q: np.ndarray
    qd: np.ndarray
    control: np.ndarray
    ground: np.ndarray | None
    ends: EarlyEnds
    cpu_seconds: float


class BatchMaker:
    """Makes batch k of a data set as a function of (seed, k); builds its worlds with the first batch."""

    def __init__(
        self, robot: Robot, worlds: int, frames: int, passive_fraction: float, seed: int, device: str = "cpu"
    ) -> None:
        """Prepare the batches.

        Args:
            robot: The declared robot, with the grounds and resets of the data.
            worlds: Trajectories per batch.
            frames: Length of a trajectory in frames.
            passive_fraction: Share of trajectories without torque, or held at the nominal pose.
            seed: Seed of the data set.
            device: Device of the simulator.
        """
        self._given = (robot, worlds, frames, passive_fraction, seed, device)
        self._robot, self._worlds, self._frames, self._passive_fraction, self._seed, self._device = self._given

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchMaker, self._given  # worlds stay in their process

    @cached_property
    def scene(self) -> Scene | None:
        """The ground of the data; None for free space."""
        return data_scene(self._robot)

    @cached_property
    def simulator(self) -> ReferenceSimulator:
        """The worlds."""
        return simulator(self._robot, self._worlds, scene=self.scene, device=self._device)

    @cached_property
    def bounds(self) -> PlausibleBounds:
        """Bounds at which a trajectory terminates."""
        return plausible_bounds(self._robot, self.simulator.model)

    def __call__(self, batch: int) -> MadeBatch:
        """Make a batch.

        Raises:
            InputError: The robot cannot be sampled.
        """
        recorder, bounds = self._recorder, self.bounds
        begin = time.process_time()
        rng = generator(self._seed, "generate", batch)
        q, qd, control, poses = recorder.record(rng, self._passive_fraction)
        ends = early_ends(self._robot.name, bounds, q, qd)
        return MadeBatch(  # copies, because the recorder reuses its buffers
            q.numpy().copy(), qd.numpy().copy(), control.numpy(), None if poses is None else poses.numpy(), ends,
            time.process_time() - begin,
        )  # fmt: skip

    @cached_property
    def _layout(self) -> ContactPointLayout | None:
        return None if self._robot.contact_points is None else contact_point_layout(self.simulator.model, self._robot)

    @cached_property
    def _recorder(self) -> Recorder:
        return Recorder(self.simulator, self._frames, self.scene, self._layout)

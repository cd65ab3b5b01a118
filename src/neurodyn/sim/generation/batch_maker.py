# SPDX-License-Identifier: Apache-2.0
"""Batches of data by their number: the same whichever process makes them, and in which order."""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from neurodyn.core.description.contact_points import ContactPointLayout
from neurodyn.core.description.scene import Scene
from neurodyn.core.seeds import generator
from neurodyn.robots import Robot
from neurodyn.robots.plausible import PlausibleBounds
from neurodyn.sim.bounds import plausible_bounds
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.driven import simulator
from neurodyn.sim.generation.early_ends import Ends, early_ends
from neurodyn.sim.generation.recorder import Recorder
from neurodyn.sim.ground_sampling import data_scene
from neurodyn.sim.reference import ReferenceSimulator


@dataclass(frozen=True)
class MadeBatch:
    """One batch of trajectories.

    Attributes:
        q: Positions [rad or m], shape [worlds, frames + 1, nq].
        qd: Velocities [rad/s or m/s], shape [worlds, frames + 1, nv].
        control: Torques [N m or N], shape [worlds, frames, nu].
        ground: Poses of the scene, shape [worlds, 7]; None in free space.
        ends: How each trajectory ends.
        cpu_seconds: Processor time of simulating it, without building the worlds [s].
    """

    q: np.ndarray
    qd: np.ndarray
    control: np.ndarray
    ground: np.ndarray | None
    ends: Ends
    cpu_seconds: float


class BatchMaker:
    """Makes batch k of a data set, a function of (seed, k) alone; builds its worlds when it makes the first."""

    def __init__(
        self, robot: Robot, worlds: int, frames: int, passive_fraction: float, seed: int, device: str = "cpu"
    ) -> None:
        """Prepare the batches.

        Args:
            robot: The declared robot, with the grounds and resets of the data.
            worlds: Trajectories of a batch.
            frames: Length of a trajectory in frames.
            passive_fraction: Fraction of trajectories without torque, or held at the nominal pose.
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
        """Bounds beyond which a trajectory ends."""
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
        return MadeBatch(  # copies: the recorder's buffers are filled anew
            q.numpy().copy(), qd.numpy().copy(), control.numpy(), None if poses is None else poses.numpy(), ends,
            time.process_time() - begin,
        )  # fmt: skip

    @cached_property
    def _layout(self) -> ContactPointLayout | None:
        return None if self._robot.contact_points is None else contact_point_layout(self.simulator.model, self._robot)

    @cached_property
    def _recorder(self) -> Recorder:
        return Recorder(self.simulator, self._frames, self.scene, self._layout)

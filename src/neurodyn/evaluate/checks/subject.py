# SPDX-License-Identifier: Apache-2.0
"""The robot under test, with the simulators and recordings that checks share."""

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.seeds import generator
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Control, Environment, State, Trajectory
from neurodyn.dynamics.control import frame_command
from neurodyn.dynamics.rollouts import ControlSequence
from neurodyn.evaluate.named_scenarios import Scenario, drive_at_random, scenario
from neurodyn.robots import Robot
from neurodyn.robots.plausible import PlausibleBounds

if TYPE_CHECKING:
    from neurodyn.sim.articulations import Articulation

FEW = 32
"""Number of worlds for checks that need no statistics."""


@dataclass(frozen=True)
class SimulatedMotion:
    """Simulated motion, and the torques that reproduce it.

    Attributes:
        path: States, shape [worlds, frames + 1, ...].
        torque: Applied torques, within the effort limits [N m or N], shape [worlds, frames, nu].
        environment: Environment of the worlds.
        seconds: Wall time [s].
        cpu_seconds: CPU time [s].
    """

    path: Trajectory
    torque: Tensor
    environment: Environment
    seconds: float
    cpu_seconds: float

    def replay(self, dynamics: AnalyticDynamics) -> Trajectory:
        """Return the motion of other dynamics under the same torques from the same initial states."""
        start = State(self.path.q[:, 0], self.path.qd[:, 0])
        return roll_out_free(dynamics, start, self.torque, self.environment)


@dataclass(frozen=True)
class Subject:
    """A robot under test.

    Attributes:
        robot: The declared robot.
        ground: Name or file of the requested ground; None for the robot's own.
        worlds: Worlds under random control.
        frames: Frames under random control.
        seed: Seed of states and torques.
        device: Warp device.
        data: Log of the robot; None for none.
        brief: Whether the first failure decides, so that a check may end there.
    """

    robot: Robot
    ground: str | None
    worlds: int
    frames: int
    seed: int
    device: str = "cpu"
    data: str | None = None
    brief: bool = False
    _finer: dict[int, AnalyticDynamics] = field(default_factory=dict)

    @property
    def few(self) -> int:
        """Number of worlds for checks that need no statistics."""
        return min(self.worlds, FEW)

    @cached_property
    def scenario(self) -> Scenario:
        """The ground, with initial states from resets."""
        return scenario(self.robot, self.ground)

    @cached_property
    def dynamics(self) -> AnalyticDynamics:
        """The simulator as declared."""
        return AnalyticDynamics(self.robot, device=self.device)

    def finer(self, factor: int) -> AnalyticDynamics:
        """Return the simulator with a `factor` times smaller step."""
        if factor not in self._finer:
            substeps = factor * self.robot.simulator.substeps
            self._finer[factor] = AnalyticDynamics(self.robot, substeps=substeps, device=self.device)
        return self._finer[factor]

    @cached_property
    def free(self) -> AnalyticDynamics:
        """The simulator as declared, built once for the checks with few worlds in free space."""
        return AnalyticDynamics(self.robot, device=self.device)

    @cached_property
    def passive(self) -> AnalyticDynamics:
        """The simulator in free space without drives that act on their own, such as servos: a limp robot."""
        if self.robot.command == "torque":
            return self.free
        return AnalyticDynamics(self.robot.without_drives(), device=self.device)

    @cached_property
    def built(self) -> "Articulation":
        """The robot as built by its simulator."""
        from neurodyn.sim.simulators import articulation

        return articulation(self.robot)

    @cached_property
    def layout(self) -> ContactPointLayout | None:
        """The robot's contact points; None without any."""
        if self.robot.contact_points is None:
            return None
        from neurodyn.sim.contact_points import contact_point_layout

        return contact_point_layout(self.built, self.robot)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The robot's tree of links."""
        from neurodyn.sim.simulators import mechanism

        return mechanism(self.built, self.robot)

    @cached_property
    def bounds(self) -> PlausibleBounds:
        """Bounds of plausible states."""
        from neurodyn.sim.energies import plausible_bounds

        return plausible_bounds(self.robot, self.built)

    @cached_property
    def driven(self) -> SimulatedMotion:
        """Motion under random control from random states, on the grounds used for data."""
        from neurodyn.sim.sampling import data_scene

        where = replace(self.scenario, starts="sampling")
        if self.ground is None:
            where = Scenario("data", data_scene(self.robot), starts="sampling", poses="sampling")
        rng = generator(self.seed, "check", "driven")
        start, environment = where.begin(self.robot, self.worlds, rng)
        return self.record(start, environment, drive_at_random(self.robot, self.worlds, self.frames, rng))

    @torch.no_grad()
    def record(self, start: State, environment: Environment, drive: ControlSequence) -> SimulatedMotion:
        """Simulate under controls, with torques within the effort limits."""
        spec, dynamics = self.robot.spec, self.dynamics
        effort = start.q.new_tensor(list(self.robot.actuated.values()))
        carry, state = dynamics.begin(start, environment), start
        begin = time.perf_counter(), time.process_time()
        states, torques = [start], []
        for frame in range(drive.frames):
            torque = frame_command(spec, state, drive.at(frame))
            if spec.control_kind != "torque":
                control = Control(target=torque)
            else:
                torque = torque if drive.target is None else torque.clamp(-effort, effort)
                control = Control(torque=torque)
            carry, step = dynamics.step(carry, state, control)
            state = State(step.state.q.cpu(), step.state.qd.cpu())
            states.append(state)
            torques.append(torque)
        seconds, cpu = time.perf_counter() - begin[0], time.process_time() - begin[1]
        return SimulatedMotion(Trajectory.of_states(states), torch.stack(torques, 1), environment, seconds, cpu)

    def resting(self, worlds: int) -> State:
        """Return the nominal pose at rest: joints without a nominal angle at mid-range, the base 1 m up."""
        q: list[float] = []
        for joint in self.robot.joints:
            if joint.kind == "free":
                q += [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
            elif joint.kind == "ball":
                q += [0.0, 0.0, 0.0, 1.0]
            else:
                middle = 0.0 if joint.lower is None or joint.upper is None else 0.5 * (joint.lower + joint.upper)
                q.append(self.robot.nominal.get(joint.name, middle))
        return State(q=torch.tensor(q).repeat(worlds, 1), qd=torch.zeros(worlds, self.robot.spec.nv))

    def draw(self, name: str, worlds: int) -> State:
        """Draw states in free space from the sampling ranges; `name` selects the random stream."""
        from neurodyn.sim.sampling import sample_states

        return State(*sample_states(self.robot, worlds, generator(self.seed, "check", name)))


def roll_out_free(
    dynamics: AnalyticDynamics, start: State, torque: Tensor, environment: Environment | None = None
) -> Trajectory:
    """Roll out under torques; the result is in CPU memory."""
    path = dynamics.rollout(start, torque, environment)
    return Trajectory(path.q.cpu(), path.qd.cpu())


def more_substeps(robot: Robot) -> str:
    """Return the advice to halve the time step."""
    return f"raise simulator.substeps from {robot.simulator.substeps} to {2 * robot.simulator.substeps}"


def some(names: list[str]) -> str:
    """Return the first three names of a list."""
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")

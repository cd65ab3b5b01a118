# SPDX-License-Identifier: Apache-2.0
"""Analytic dynamics: the simulator, a Newton solver under graph capture, behind the common interface."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.contacts import ChainJoint, ContactPointLayout
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.scene import Scene
from neurodyn.dynamics.batch import (
    Control,
    Environment,
    State,
    Step,
    Trajectory,
    Window,
    WorldParameters,
    present_state,
)
from neurodyn.dynamics.control import frame_command, require_torques
from neurodyn.dynamics.interface import Dynamics, renewed_memory
from neurodyn.geometry.tensors import Controls, WorldMask
from neurodyn.robots import Robot

if TYPE_CHECKING:
    from neurodyn.sim.interface import Simulator


CONTACT_FORCE = 1.0
"""Normal force above which a body counts as touching [N]."""

_KEPT = 4  # number of simulators cached for later calls


@dataclass(frozen=True, eq=False)
class SimulatedWorlds:
    """Carry of `AnalyticDynamics`: simulation worlds, and the environment of a roll-out in them.

    Attributes:
        simulator: The worlds, which other roll-outs may use in between.
        pose: Pose of the scene in each world, shape [worlds, 7]; None for the identity.
        gravity: Gravity [m/s^2], world axes, shape [3] or [worlds, 3]; None for the robot's own.
        parameters: Quantities that differ between worlds; None for the robot's own. They are read in every frame.
        memory: Memory of the robot's drives, shape [worlds, memory]; None at a start.
    """

    simulator: "Simulator"
    pose: Tensor | None
    gravity: Tensor | None
    parameters: WorldParameters | None = None
    memory: Tensor | None = None


@dataclass(frozen=True)
class _Present:
    """Current settings of simulation worlds: as `SimulatedWorlds`, with the edit count of the parameters."""

    pose: Tensor | None = None
    gravity: Tensor | None = None
    parameters: WorldParameters | None = None
    edits: int = -1


class AnalyticDynamics(Dynamics):
    """The robot's declared Newton solver; the carry holds no history except the memory of drives.

    The simulation worlds are scratch space: every step writes their whole state first.
    """

    kind = "analytic"

    def __init__(self, robot: Robot, *, substeps: int | None = None, device: str = "cpu") -> None:
        """Prepare the dynamics of a robot.

        Args:
            robot: The declared robot.
            substeps: Solver steps in one frame; None for the declared number.
            device: Warp device.
        """
        self.robot: Robot = robot  # pyright: ignore[reportIncompatibleVariableOverride]
        longest_delay = max([drive.longest_held_delay for drive in robot.drives.values()], default=0.0)
        self.spec = robot.spec.with_context(math.ceil(longest_delay / robot.dt - 1e-9))
        self._substeps = substeps
        self.device = device
        self._simulators: dict[tuple[int, Scene | None], Simulator] = {}
        self._present: WeakKeyDictionary[Simulator, _Present] = WeakKeyDictionary()

    def begin(self, context: State | Window, environment: Environment | None = None) -> SimulatedWorlds:
        """Return the carry: simulation worlds, and the environment for them.

        Raises:
            InputError: The ground cannot be built, or its pose or gravity has the wrong shape.
        """
        environment = environment or Environment()
        ground = environment.ground
        simulator = self._simulator(present_state(context).worlds, None if ground is None else ground.scene)
        # Copied, because the caller may edit its tensors while it continues with this carry.
        pose = None if ground is None or ground.pose is None else ground.pose.detach().clone()
        gravity = None if environment.gravity is None else environment.gravity.detach().clone()
        worlds = SimulatedWorlds(simulator, pose, gravity, environment.parameters)
        self._enter(worlds)
        return replace(worlds, memory=self._memory_after(worlds, context))

    @torch.no_grad()
    def step(self, carry: SimulatedWorlds, state: State, control: Control) -> tuple[SimulatedWorlds, Step]:
        """Simulate one frame from `state` under the torques at its start."""
        self._enter(carry)
        carry.simulator.begin(carry.memory)
        q, qd = carry.simulator.step(state.q, state.qd, frame_command(self.spec, state, control))
        forces = carry.simulator.contact_forces()
        contacts = None if forces is None else (forces > CONTACT_FORCE).to(q)
        return replace(carry, memory=carry.simulator.memory), Step(State(q, qd), contacts=contacts)

    def reset(self, carry: SimulatedWorlds, context: State | Window, mask: WorldMask) -> SimulatedWorlds:
        """Restart some worlds; see `Dynamics.reset`."""
        return replace(carry, memory=renewed_memory(carry.memory, self._memory_after(carry, context), mask))

    def with_drives(self, drives: Mapping[str, Drive]) -> "AnalyticDynamics":
        """Return the dynamics of the robot with these drives, which act in each solver step."""
        robot = msgspec.structs.replace(self.robot, drives=dict(drives))
        return AnalyticDynamics(robot, substeps=self._substeps, device=self.device)

    def _memory_after(self, worlds: SimulatedWorlds, context: State | Window) -> Tensor | None:
        """Return the memory of drives after a window, with the measured state set in every frame."""
        if not (self.robot.drives and isinstance(context, Window)):
            return None
        self._enter(worlds)
        worlds.simulator.begin()
        for frame, command in enumerate(context.torque.unbind(1)):
            worlds.simulator.step_(context.q[:, frame], context.qd[:, frame], command)
        return worlds.simulator.memory

    @torch.no_grad()
    def _rollout(self, context: State | Window, controls: Controls, environment: Environment | None) -> Trajectory:
        """Simulate T frames under torques `controls` [N m or N], shape [worlds, T, nu]."""
        require_torques(self.spec, controls)
        state, carry = present_state(context), self.begin(context, environment)
        q, qd = carry.simulator.rollout(state.q, state.qd, controls, carry.memory)
        return Trajectory(q, qd)

    @cached_property
    def base_com(self) -> Tensor | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Centre of mass of a floating base in the base frame [m], shape [3]."""
        if self.robot.fixed_base:
            return None
        from neurodyn.sim.simulators import articulation

        return torch.tensor(articulation(self.robot).base_com)

    def _chain(self) -> Sequence[ChainJoint]:
        """Return the moving joints of the robot as the simulator built it."""
        from neurodyn.sim.simulators import articulation

        return articulation(self.robot).joints

    @cached_property
    def home(self) -> Environment:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The robot's own gravity, in free space."""
        return Environment(gravity=torch.tensor(self.robot.gravity))

    def require_parameters(self, names: Sequence[str]) -> None:
        """Do nothing: the simulator refuses quantities that cannot differ between its worlds."""

    @cached_property
    def _seen_points(self) -> ContactPointLayout | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.robot.contact_points is None or not self.robot.contacts:
            return None
        from neurodyn.sim.contact_points import contact_point_layout
        from neurodyn.sim.simulators import articulation

        return contact_point_layout(articulation(self.robot), self.robot)

    def _simulator(self, worlds: int, scene: Scene | None) -> "Simulator":
        from neurodyn.sim.simulators import simulator

        scene = scene if scene is not None and scene.shapes else None
        if (worlds, scene) not in self._simulators:
            while len(self._simulators) >= _KEPT:
                self._simulators.pop(next(iter(self._simulators)))
            self._simulators[worlds, scene] = simulator(
                self.robot, worlds, scene=scene, substeps=self._substeps, device=self.device
            )
        return self._simulators[worlds, scene]

    def _enter(self, worlds: SimulatedWorlds) -> None:
        """Set the environment of the simulation worlds, unless it is set already."""
        simulator, parameters = worlds.simulator, worlds.parameters
        before = self._present.get(simulator, _Present())  # settings of a new simulator
        if worlds.pose is not before.pose:
            simulator.set_ground(worlds.pose)
        if worlds.gravity is not before.gravity:
            simulator.set_gravity(worlds.gravity)
        edits = -1 if parameters is None or parameters.numbers.is_inference() else parameters.numbers._version
        if parameters is not before.parameters or edits != before.edits:
            names, numbers = ((), None) if parameters is None else (parameters.names, parameters.numbers)
            simulator.set_parameters(names, numbers)
        self._present[simulator] = _Present(worlds.pose, worlds.gravity, parameters, edits)

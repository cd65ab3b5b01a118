# SPDX-License-Identifier: Apache-2.0
"""The declared robot compiled, as a reference simulator: the same numbers as MuJoCo's to rounding, ten times faster."""

import torch
from torch import Tensor

from neurodyn.core.description.scene import Scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.multibody.motion import ContactMotion
from neurodyn.robots import Robot
from neurodyn.sim.build import Gravity, gravity_vectors
from neurodyn.sim.simulators import Simulator, articulation, checked_pose, mechanism, solver_steps


class CompiledSimulator(Simulator):
    """Steps worlds with the robot's mechanism and soft contacts as one compiled program, on any device."""

    def __init__(
        self,
        robot: Robot,
        worlds: int,
        *,
        substeps: int | None = None,
        device: str = "cpu",
        gravity: Gravity | None = None,
        scene: Scene | None = None,
    ) -> None:
        """Build the worlds; arguments: see `sim.simulators.simulator`.

        Raises:
            InputError: The robot has no MuJoCo contacts, or actuators or elements whose memory only MuJoCo keeps.
        """
        contact = robot.simulated_contact
        if contact is None:
            raise InputError(
                f"robot {robot.name!r}: its simulator ({robot.simulator.solver}) has no contacts or limits to compile; "
                "valid: analytic, or a robot with solver: mujoco or mujoco-c"
            )
        if robot.drives:
            raise InputError(f"robot {robot.name!r} has actuators of its own, which are not compiled; valid: analytic")
        self.robot, self.worlds, self._place = robot, worlds, torch.device(device)
        self.scene = scene if scene is not None and scene.shapes else None
        self.substeps, self.built = solver_steps(robot, substeps), articulation(robot)
        tree = mechanism(self.built, robot, every_contact=True)
        self._motion = ContactMotion(tree, robot.spec, self.substeps, contact, limits=not tree.points)
        self._scene = None if self.scene is None else Ground(self.scene)
        self._ground = self._scene
        self.set_gravity(gravity)

    @property
    def device(self) -> torch.device:
        """Device of the tensors that `step` takes and returns."""
        return self._place

    def set_ground(self, pose: Tensor | None) -> None:
        """See `Simulator.set_ground`."""
        if self._scene is not None:
            self._ground = self._scene.posed(checked_pose(pose, self.worlds).to(self._place, torch.float32))

    def set_gravity(self, gravity: Gravity | Tensor | None) -> None:
        """See `Simulator.set_gravity`."""
        vectors = torch.as_tensor(gravity_vectors(self.robot, self.worlds, gravity), dtype=torch.float32)
        self._gravity = vectors.to(self._place).expand(self.worlds, 3)

    def contact_forces(self) -> Tensor | None:
        """Return None: the program keeps no forces."""

    @torch.no_grad()
    def step_(self, q: Tensor, qd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        """See `Simulator.step_`."""
        q, qd, torque = (x.detach().to(self._place, torch.float32) for x in (q, qd, torque))
        return self._motion(q, qd, torque, self._gravity, self._ground)

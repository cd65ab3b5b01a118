# SPDX-License-Identifier: Apache-2.0
"""Plant of a walking quadruped: its dynamics at the rate of the controller, a ground, and start states."""

import math
from dataclasses import dataclass

import msgspec
import numpy as np
import torch

from neurodyn.control.resolve import is_declared
from neurodyn.core.description.scene import Scene, Terrain
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import simulate
from neurodyn.evaluate.named_scenarios import scenario
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Robot
from neurodyn.walking.quadruped import Quadruped, find_quadruped
from neurodyn.walking.state import LegKinematics

LONGEST_FRAME = 0.0051
"""Longest frame for controlling legs [s]."""
_NEAR = 3.0
"""Largest distance of episode starts from the middle of a terrain, along x and y [m]."""
_REACH = 0.4
"""Range of ground measurements around the start of an episode [m]."""


@dataclass(frozen=True)
class WalkingPlant:
    """Dynamics for a quadruped to walk in.

    Attributes:
        name: Name of the dynamics given by the user.
        robot: The robot, with the controller's frame length.
        dynamics: The dynamics.
        quadruped: The controller's model of the robot.
        scene: The ground.
        ground: Its name.
    """

    name: str
    robot: Robot
    dynamics: Dynamics
    quadruped: Quadruped
    scene: Scene
    ground: str

    @property
    def dt(self) -> float:
        """Length of a frame [s]."""
        return self.dynamics.spec.dt

    def starts(self, worlds: int, seed: int) -> tuple[State, Environment]:
        """Draw states near the nominal pose just above the ground, and the ground below them.

        Each world has its own place on a terrain.
        """
        rng, quadruped = generator(seed, "walking starts"), self.quadruped
        spec = self.dynamics.spec
        q = torch.zeros(worlds, spec.nq, dtype=torch.float64)
        q[:, 6] = 1.0
        nominal = torch.tensor(self.robot.nominal_q(), dtype=torch.float64)
        for leg in quadruped.legs:
            for dof, control in zip(leg.dofs, leg.controls, strict=True):
                q[:, dof + 1] = nominal[control] + torch.as_tensor(rng.uniform(-0.02, 0.02, worlds))
        qd = torch.zeros(worlds, spec.nv, dtype=torch.float64)
        reading = LegKinematics(quadruped)(q, qd)
        q[:, 2] = torch.as_tensor(0.002 - (reading.feet[..., 2] - quadruped.radii).min(1))
        pose = torch.zeros(worlds, 7)
        pose[:, 6] = 1.0
        if any(isinstance(shape, Terrain) for shape in self.scene.shapes):
            pose[:, :2] = torch.as_tensor(rng.uniform(-_NEAR, _NEAR, (worlds, 2)))
            pose[:, 2] = -self._highest(pose)
        environment = Environment(ground=Ground(self.scene, pose))
        kind = torch.float64 if self.dynamics.kind == "hybrid" else torch.float32
        return State(q.to(kind), qd.to(kind)), environment

    def _highest(self, pose: torch.Tensor) -> torch.Tensor:
        """Return the greatest height of the ground around the origin of each world [m]."""
        from neurodyn.sim.sampling import ground_height

        along = torch.linspace(-_REACH, _REACH, 9)
        places = torch.cartesian_prod(along, along)
        spread = Ground(self.scene, pose).at_pose(pose.repeat_interleave(len(places), 0))
        return ground_height(spread, places.repeat(len(pose), 1)).view(len(pose), -1).amax(1)


def walking_robot(robot: Robot) -> Robot:
    """Return a robot with frames short enough for controlling legs; the length of substeps stays about the same."""
    parts = max(1, math.ceil(robot.dt / LONGEST_FRAME))
    if parts == 1:
        return robot
    substeps = max(2, round(robot.simulator.substeps / parts))
    simulator = msgspec.structs.replace(robot.simulator, substeps=substeps, mass_matrix_interval=1)
    return msgspec.structs.replace(robot, dt=robot.dt / parts, simulator=simulator)


def declared_quadruped(robot: Robot) -> Quadruped:
    """Return the controller's model of a declared robot.

    Raises:
        InputError: The robot is no quadruped.
    """
    from neurodyn.dynamics.hybrid.declared import declared_mechanism

    mechanism, _, _ = declared_mechanism(robot, "soft")
    return find_quadruped(mechanism, robot.spec, robot.nominal_q(), tuple(robot.actuated.values()))


def walking_plant(robot: Robot, name: str = "hybrid", ground: str | None = None) -> WalkingPlant:
    """Open dynamics for a quadruped to walk in.

    Args:
        robot: The declared robot.
        name: "hybrid", "analytic", or a run directory.
        ground: Name of one of the robot's grounds, or a file with a scene; None for the default one.

    Raises:
        InputError: The robot is no quadruped, there are no such dynamics or no such ground, or the frames of a run are
            too long.
    """
    from neurodyn.dynamics.artifact import load

    if not robot.spec.floating:
        raise InputError(f"robot {robot.name!r}: has no floating base; valid: a quadruped")
    shorter = walking_robot(robot)
    where = scenario(robot, ground, words=())
    if where.scene is None or not where.scene.shapes:
        raise InputError(f"robot {robot.name!r}: has no ground to walk on; declare `grounds` and `ground`")
    dynamics = None if is_declared(name) else load(name)  # rejected before anything is compiled
    quadruped = declared_quadruped(shorter)
    if dynamics is None:
        dynamics = simulate(name, shorter)
    else:
        if dynamics.spec.dt > LONGEST_FRAME:
            raise InputError(
                f"{name}: its frames of {1e3 * dynamics.spec.dt:.3g} ms are too long for legs to be controlled; valid: "
                f"at most {1e3 * LONGEST_FRAME:.0f} ms"
            )
        differences = dynamics.spec.differences(msgspec.structs.replace(shorter.spec, dt=dynamics.spec.dt))
        if differences:
            raise InputError(f"{name}: is no model of {robot.name!r}: {'; '.join(differences[:3])}")
    return WalkingPlant(name, shorter, dynamics, quadruped, where.scene, where.name or "")


def has_fallen(quadruped: Quadruped, com: np.ndarray, tilt: np.ndarray, feet: np.ndarray) -> np.ndarray:
    """Return which robots have fallen: tilted beyond 0.8 rad, or at less than half of their height above a foot.

    `com` and `feet` are in world axes [m], `tilt` is roll and pitch [rad], shape [worlds, 2].
    """
    above = com[:, 2] - (feet[..., 2] - quadruped.radii).min(1)
    upright = (np.abs(tilt) < 0.8).all(1) & (above > 0.5 * quadruped.height)
    return ~(upright & np.isfinite(com).all(1))

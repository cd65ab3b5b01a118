# SPDX-License-Identifier: Apache-2.0
"""The interface of reference simulators, and what they share: options, poses of scenes, gravity, joints of assets."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.scene import IDENTITY, Scene, Vector3
from neurodyn.core.description.spec import HasJointKind, JointKind
from neurodyn.core.errors import InputError
from neurodyn.robots import Robot
from neurodyn.sim.articulations import Articulation

Gravity = Sequence[float] | np.ndarray | Tensor

SCENE_LABEL = "scene"
"""Labels of a scene's shapes are SCENE_LABEL/NUMBER, with their number in the scene."""


def gravity_vectors(robot: Robot, worlds: int, gravity: Gravity | None) -> np.ndarray:
    """Return gravity [m/s^2] of shape [3] or [worlds, 3], checked; of one world or of all."""
    vectors = np.asarray(robot.gravity if gravity is None else gravity, dtype=np.float32)
    if vectors.size not in (3, 3 * worlds) or not np.isfinite(vectors).all():
        raise InputError(f"gravity has {vectors.size} numbers; valid: 3 finite ones, or 3 for each of {worlds} worlds")
    return vectors.reshape(-1, 3) if vectors.size > 3 else vectors.reshape(3)


class SimulatorOptions(TypedDict, total=False):
    """Options of a simulator; see `simulator`."""

    substeps: int | None
    device: str
    gravity: Gravity | None
    scene: Scene | None


class Simulator(ABC):
    """Steps a fixed number of worlds with one robot each, one frame at a time.

    Every step writes the whole state first, so that the worlds are scratch space.

    Attributes:
        robot: The declared robot.
        worlds: Number of worlds.
        scene: The shapes around the robot; None for free space.
        substeps: Solver steps in one frame.
        memory: Memory of the drives; None without drives.
        built: The robot as built.
    """

    built: Articulation
    robot: Robot
    worlds: int
    scene: Scene | None
    substeps: int
    memory: Tensor | None = None

    def __init__(self, robot: Robot, worlds: int, **options: Unpack[SimulatorOptions]) -> None:
        """Set the attributes that all simulators share; arguments and errors: see `simulator`."""
        scene = options.get("scene")
        self.robot, self.worlds = robot, worlds
        self.scene = scene if scene is not None and scene.shapes else None
        self.substeps = solver_steps(robot, options.get("substeps"))

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device of the tensors that `step` takes and returns."""

    @abstractmethod
    def set_ground(self, pose: Tensor | None) -> None:
        """Move the scene of every world, before the next frame; see `checked_pose`."""

    @abstractmethod
    def set_gravity(self, gravity: Gravity | Tensor | None) -> None:
        """Change gravity [m/s^2], shape [3] or [worlds, 3] in world axes, before the next frame; None: the robot's."""

    def set_parameters(self, names: Sequence[str], numbers: Tensor | None) -> None:
        """Set named quantities per world before the next frame, shape [worlds, names].

        All other quantities have the robot's values; None, without names, restores all of them.

        Raises:
            InputError: Worlds of this simulator cannot differ in a quantity.
        """
        if names:
            raise InputError(
                f"robot {self.robot.name!r}: worlds of its simulator ({self.robot.simulator.solver}) cannot differ in "
                f"{', '.join(names[:3])}; valid: solver: mujoco or mujoco-c, or hybrid dynamics"
            )

    @abstractmethod
    def step_(self, q: Tensor, qd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        """Advance like `step`, but return views of the simulator's memory, valid until the next call."""

    @abstractmethod
    def contact_forces(self) -> Tensor | None:
        """Return the normal forces of the declared contacts in the last solver step of the last frame [N].

        Shape [worlds, contacts], in the order of the declaration; None without declared contacts or without a scene.
        """

    @property
    def truncated(self) -> Tensor:
        """Worlds whose last frame lacked contacts with a heightfield, shape [worlds]."""
        return torch.zeros(self.worlds, dtype=torch.bool, device=self.device)

    def begin(self, memory: Tensor | None = None) -> None:
        """Begin a new episode; drives start with their memory, empty if it is None."""
        self.memory = memory

    def step(self, q: Tensor, qd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        """Advance all worlds by one frame; return positions and velocities at its end, in new memory.

        Args:
            q: Positions [rad or m], shape [worlds, nq].
            qd: Velocities [rad/s or m/s], shape [worlds, nv].
            torque: Torques or forces of the driven joints, held during the frame [N m or N], shape [worlds, nu].
        """
        q_next, qd_next = self.step_(q, qd, torque)
        return q_next.clone(), qd_next.clone()

    def rollout(self, q: Tensor, qd: Tensor, torques: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Advance all worlds by T frames under torques of shape [worlds, T, nu]; for the rest see `step`, `begin`.

        Returns:
            Positions, shape [worlds, T + 1, nq], and velocities, shape [worlds, T + 1, nv], the initial ones first.
        """
        self.begin(memory)
        frames, options = torques.shape[1], {"dtype": torch.float32, "device": self.device}
        q_all = torch.empty(self.worlds, frames + 1, self.robot.spec.nq, **options)
        qd_all = torch.empty(self.worlds, frames + 1, self.robot.spec.nv, **options)
        q_all[:, 0], qd_all[:, 0] = q, qd
        present = (q, qd)
        for frame in range(frames):
            present = self.step_(*present, torques[:, frame])
            q_all[:, frame + 1], qd_all[:, frame + 1] = present
        return q_all, qd_all


def checked_pose(pose: Tensor | None, worlds: int) -> Tensor:
    """Return the pose of a scene in every world, shape [worlds, 7].

    `pose` is [x y z, qx qy qz qw] (m; unit quaternion) in each world, shape [worlds, 7], or [1, 7] or [7] for the same
    in all; None for the identity. A wrong shape or a number that is not finite raises InputError.
    """
    pose = torch.tensor(IDENTITY) if pose is None else torch.as_tensor(pose)
    if pose.shape not in ((7,), (1, 7), (worlds, 7)) or not pose.isfinite().all():
        raise InputError(f"the ground's pose has shape {list(pose.shape)}; valid: [{worlds}, 7], all finite")
    return pose.detach().expand(worlds, 7)


def solver_steps(robot: Robot, substeps: int | None) -> int:
    """Return the solver steps in a frame, the declared ones unless others are given; refuse less than one."""
    if substeps is not None and substeps < 1:
        raise InputError(f"substeps is {substeps}; valid: at least 1")
    return robot.simulator.substeps if substeps is None else substeps


_UNSPECIFIED = 1e5
"""Efforts, velocities and limits from this value on count as unspecified: importers fill in 1e6."""


def value_of(value: float | None) -> float | None:
    """Return an effort or velocity of an asset; None if it is unspecified."""
    return value if value is not None and 0 < value < _UNSPECIFIED else None


def specified_limits(lower: float, upper: float) -> tuple[float, float] | tuple[None, None]:
    """Return lower and upper limit of a joint of an asset; None if they are unspecified."""
    return (lower, upper) if -_UNSPECIFIED < lower < upper < _UNSPECIFIED else (None, None)


@dataclass(frozen=True)
class AssetJoint(HasJointKind):
    """A moving joint of the asset; None for unspecified values."""

    name: str
    kind: JointKind
    lower: float | None = None  # [rad or m]
    upper: float | None = None  # [rad or m]
    effort: float | None = None  # maximum of its drive [N m or N]; None for a joint without a drive
    velocity: float | None = None  # maximum of its drive [rad/s or m/s]
    armature: float = 0.0  # rotor inertia [kg m^2 or kg]
    position: Vector3 | None = None  # position of a free body in the asset, world axes [m]

    @property
    def least(self) -> float:
        """Lower limit, or minus infinity [rad or m]."""
        return -math.inf if self.lower is None else self.lower

    @property
    def most(self) -> float:
        """Upper limit, or infinity [rad or m]."""
        return math.inf if self.upper is None else self.upper


@dataclass(frozen=True)
class SimulatorKind:
    """A reference simulator.

    Attributes:
        articulation: Builds a robot; an invalid asset raises InputError.
        limits: Reads the robot's joints with one degree of freedom in its asset, by name.
        worlds: Builds a number of worlds of a robot without drives; options: see `simulator`.
        contacts: Contact model of the hybrid engine that matches it; None if it has no contacts.
        package: The package that it needs, and the extra that installs it.
        commands: Returns whether its worlds compute the drives of a robot themselves; None if they never do.
    """

    articulation: Callable[[Robot], Articulation]
    limits: Callable[[Robot], dict[str, AssetJoint]]
    worlds: Callable[..., Simulator]
    contacts: str | None
    package: Literal["newton", "mujoco"]
    commands: Callable[[Robot], bool] | None = None

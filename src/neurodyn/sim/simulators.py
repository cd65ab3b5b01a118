# SPDX-License-Identifier: Apache-2.0
"""Reference simulators by the name of their solver, the robot as each builds it, and contradictions with its asset."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

import msgspec
import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.scene import IDENTITY, Scene
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry
from neurodyn.geometry.ground import Ground
from neurodyn.multibody.drives.drive_program import ACTUATOR, DriveProgram
from neurodyn.multibody.engine import nominal
from neurodyn.multibody.motion import ContactMotion
from neurodyn.robots import Robot
from neurodyn.sim.articulations import Articulation
from neurodyn.sim.contact_points import contact_point_layout, contacts_on_plane, rounded_boxes
from neurodyn.sim.newton_build import Gravity, gravity_vectors


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


@dataclass(frozen=True)
class AssetLimits:
    """Limits of a joint with one degree of freedom in the robot's asset; None if absent.

    Attributes:
        position: Lower and upper limit [rad or m].
        effort: Maximum torque or force of its drive [N m or N].
    """

    position: tuple[float, float] | None
    effort: float | None


@dataclass(frozen=True)
class SimulatorKind:
    """A reference simulator.

    Attributes:
        articulation: Builds a robot; an invalid asset raises InputError.
        limits: Reads the limits of the robot's joints in its asset, by name.
        worlds: Builds a number of worlds of a robot without drives; options: see `simulator`.
        contacts: Contact model of the hybrid engine that matches it; None if it has no contacts.
        commands: Returns whether its worlds compute the drives of a robot themselves; None if they never do.
    """

    articulation: Callable[[Robot], Articulation]
    limits: Callable[[Robot], dict[str, AssetLimits]]
    worlds: Callable[..., Simulator]
    contacts: str | None
    commands: Callable[[Robot], bool] | None = None


SIMULATORS: Registry[SimulatorKind] = Registry(
    "solver",
    featherstone="neurodyn.sim.reference:FEATHERSTONE",
    mujoco="neurodyn.sim.reference:MUJOCO_WARP",
    **{"mujoco-c": "neurodyn.sim.mujoco.simulator:MUJOCO_C"},
)
"""Reference simulators by the name of the declared solver."""


def articulation(robot: Robot) -> Articulation:
    """Return a robot as its reference simulator builds it; an asset that does not build raises InputError."""
    return SIMULATORS[robot.simulator.solver].articulation(robot)


def simulator(
    robot: Robot,
    worlds: int,
    *,
    substeps: int | None = None,
    device: str = "cpu",
    gravity: Gravity | None = None,
    scene: Scene | None = None,
) -> Simulator:
    """Return the reference simulator of a robot, which takes its drives' commands.

    Args:
        robot: The declared robot.
        worlds: Number of worlds.
        substeps: Solver steps in one frame; None for the declared number.
        device: Device of Newton's solvers.
        gravity: Gravity in world axes [m/s^2], shape [3] or [worlds, 3]; None for the robot's.
        scene: Shapes around the robot; None, or a scene without shapes, for free space.

    Raises:
        InputError: The robot or the scene cannot be built, the robot's solver does not support contacts, or `substeps`
            is below 1.
    """
    options = SimulatorOptions(substeps=substeps, device=device, gravity=gravity, scene=scene)
    kind = SIMULATORS[robot.simulator.solver]
    if robot.drives and not (kind.commands is not None and kind.commands(robot)):
        return SimulatorBehindDrives(robot, worlds, **options)
    return kind.worlds(robot, worlds, **options)


class SimulatorBehindDrives(Simulator):
    """A simulator that takes drive commands: drives turn them into torques before every solver step.

    Positions are encoder readings.
    """

    def __init__(self, robot: Robot, worlds: int, **options: Unpack[SimulatorOptions]) -> None:
        """Build the worlds; arguments: see `simulator`."""
        super().__init__(robot, worlds, **options)
        single = msgspec.structs.replace(robot.simulator, substeps=1, mass_matrix_interval=1)
        part = msgspec.structs.replace(robot.without_drives(), dt=robot.dt / self.substeps, simulator=single)
        self._inner = SIMULATORS[robot.simulator.solver].worlds(part, worlds, **{**options, "substeps": None})
        self.built = self._inner.built
        self._drives = DriveProgram(robot.drives, robot.spec, part.dt)
        self._numbers: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """Device of the tensors that `step` takes and returns."""
        return self._inner.device

    @property
    def truncated(self) -> Tensor:
        """See `Simulator.truncated`."""
        return self._inner.truncated

    def set_ground(self, pose: Tensor | None) -> None:
        """See `Simulator.set_ground`."""
        self._inner.set_ground(pose)

    def set_gravity(self, gravity: Gravity | Tensor | None) -> None:
        """See `Simulator.set_gravity`."""
        self._inner.set_gravity(gravity)

    def set_parameters(self, names: Sequence[str], numbers: Tensor | None) -> None:
        """See `Simulator.set_parameters`; quantities of drives are numbers of their program."""
        own = [name for name in names if name.startswith(ACTUATOR)]
        others = [name for name in names if name not in own]
        columns = {name: numbers[:, column] for column, name in enumerate(names)} if numbers is not None else {}
        self._inner.set_parameters(others, torch.stack([columns[n] for n in others], 1) if others else None)
        if tuple(own) != self._drives.free:
            self._drives = DriveProgram(self.robot.drives, self.robot.spec, self._drives.step, own)
        self._numbers = torch.stack([columns[n] for n in own], 1).to(self.device, torch.float32) if own else None

    def contact_forces(self) -> Tensor | None:
        """See `Simulator.contact_forces`."""
        return self._inner.contact_forces()

    @torch.no_grad()
    def step_(self, q: Tensor, qd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        """Advance all worlds by one frame under commands; see `Simulator.step_`."""
        command, q, qd = (x.detach().to(self.device, torch.float32) for x in (torque, q, qd))
        bias = self._drives.bias(q, self._numbers)
        for _ in range(self.substeps):
            acting, self.memory = self._drives(command, q, qd, self.memory, self._numbers)
            q, qd = self._inner.step_(q - bias, qd, acting)
            q = q + bias
        return q, qd


class CompiledSimulator(Simulator):
    """Steps worlds with the robot's mechanism and soft contacts as one compiled program, on any device.

    The numbers are MuJoCo's to rounding, tens of times faster.
    """

    def __init__(self, robot: Robot, worlds: int, **options: Unpack[SimulatorOptions]) -> None:
        """Build the worlds; arguments: see `simulator`.

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
        super().__init__(robot, worlds, **options)
        self._device, self.built = torch.device(options.get("device", "cpu")), articulation(robot)
        tree = mechanism(self.built, robot, every_contact=True)
        self._motion = ContactMotion(tree, robot.spec, self.substeps, contact, limits=not tree.points)
        self._scene = None if self.scene is None else Ground(self.scene)
        self._ground = self._scene
        self.set_gravity(options.get("gravity"))

    @property
    def device(self) -> torch.device:
        """Device of the tensors that `step` takes and returns."""
        return self._device

    def set_ground(self, pose: Tensor | None) -> None:
        """See `Simulator.set_ground`."""
        if self._scene is not None:
            self._ground = self._scene.posed(checked_pose(pose, self.worlds).to(self._device, torch.float32))

    def set_gravity(self, gravity: Gravity | Tensor | None) -> None:
        """See `Simulator.set_gravity`."""
        vectors = torch.as_tensor(gravity_vectors(self.robot, self.worlds, gravity), dtype=torch.float32)
        self._gravity = vectors.to(self._device).expand(self.worlds, 3)

    def contact_forces(self) -> Tensor | None:
        """Return None: the program keeps no forces."""

    @torch.no_grad()
    def step_(self, q: Tensor, qd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        """See `Simulator.step_`."""
        q, qd, torque = (x.detach().to(self._device, torch.float32) for x in (q, qd, torque))
        return self._motion(q, qd, torque, self._gravity, self._ground)


def mechanism(built: Articulation, robot: Robot, *, every_contact: bool = False) -> Mechanism:
    """Return the tree of links of a robot as built.

    Stiffness and damping of joint limits are the model's for Featherstone, and the equivalent springs of the
    constraints for MuJoCo (`sim.articulations.limit_spring`). MuJoCo's constraint parameters are included too.

    Args:
        built: The robot as its simulator built it.
        robot: The declared robot.
        every_contact: Whether the contact points are those at which the simulator finds contacts on a plane, instead of
            the declared ones; the mechanism then has the robot's shapes too.

    Raises:
        InputError: A contact point selection matches nothing.
    """
    points, shapes = (), ()
    if robot.contact_points is not None:
        points = (contacts_on_plane if every_contact else contact_point_layout)(built, robot).contact_points
        shapes = rounded_boxes(built) if every_contact else ()
    return Mechanism(
        links=built.sprung_links,
        gravity=built.gravity,
        points=points,
        constraints=built.constraints,
        shapes=shapes,
        drives=robot.drives,
        body_contacts=robot.body_contacts,
        supports=robot.supports,
        elements=(*(robot.elements or ()), *built.elements) or UNSET,
        **built.couplings,
    )


def declared_values(built: Articulation, robot: Robot) -> tuple[Mechanism, dict[str, float]]:
    """Return the mechanism of a robot, and the declared values of its quantities and of its simulator's contacts."""
    contact = robot.simulated_contact
    tree = mechanism(built, robot, every_contact=contact == "soft")
    return tree, nominal(tree, contact)


_ROUNDING = 1e-3


@dataclass(frozen=True)
class Contradiction:
    """A declared quantity that contradicts the asset."""

    joint: str
    what: str  # the declared quantity
    value: float | None  # the declared value; None if not declared
    bound: float  # the asset's value
    unit: str  # of both
    advice: str  # recommended change of the declaration
    fatal: bool = True  # whether data of such a robot are refused


def contradictions(robot: Robot) -> list[Contradiction]:
    """Return the contradictions between a robot's declaration and its asset.

    A joint declared `continuous` has no limits, even if its asset has some.
    """
    limits, spec = SIMULATORS[robot.simulator.solver].limits(robot), robot.spec
    found = []
    for joint in robot.joints:
        if joint.name not in limits:
            continue
        given = limits[joint.name]
        unit = spec.q_units[spec.q_names.index(joint.name)]
        if joint.lower is None and not joint.continuous and given.position is not None:
            lower, upper = given.position
            turning = ", or continuous: true where it turns without end" if joint.kind == "revolute" else ""
            advice = f"declare lower: {lower:g}, upper: {upper:g} for {joint.name}{turning}"
            found.append(Contradiction(joint.name, "limits of the asset left out", None, upper, unit, advice))
        if given.effort is not None:
            found += _too_strong(robot, joint.name, given.effort, "N m" if unit == "rad" else "N")
    return found


def require_consistent(robot: Robot) -> None:
    """Raise InputError if a declaration contradicts its asset fatally."""
    found = [one for one in contradictions(robot) if one.fatal]
    if found:
        first, more = found[0], "" if len(found) == 1 else f" ({len(found) - 1} more: see `neurodyn check`)"
        raise InputError(f"robot {robot.name!r}: joint {first.joint!r}: {first.what}; {first.advice}{more}")


def _too_strong(robot: Robot, name: str, most: float, unit: str) -> list[Contradiction]:
    """Return contradictions between a joint's torque and the asset's effort."""
    if name not in robot.actuated or robot.command == "command":  # the ranges of actuators are the asset's
        return []
    effort = robot.actuated[name]
    if effort > most * (1 + _ROUNDING):
        advice = f"declare actuated: {{{name}: {most:g}}}, or mend the asset's effort"
        return [Contradiction(name, "torque beyond the actuator", effort, most, unit, advice)]
    drawn = max(map(abs, robot.sampling_interval("control", name)))
    if drawn > most * (1 + _ROUNDING):
        advice = f"keep sampling.control of {name} within {most:g} {unit}"
        return [Contradiction(name, "sampled torque beyond the actuator", drawn, most, unit, advice, fatal=False)]
    return []

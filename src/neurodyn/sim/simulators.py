# SPDX-License-Identifier: Apache-2.0
"""Reference simulators by the name of their solver, the robot as each builds it, and contradictions with its asset."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import msgspec
import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.description.contacts import MOST_CONTACTS, SPREAD_CONTACTS
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.scene import Scene
from neurodyn.core.errors import InputError
from neurodyn.core.extras import has_module, require_extra
from neurodyn.core.registry import Registry
from neurodyn.geometry.ground import Ground
from neurodyn.multibody.drives.drive_program import ACTUATOR, DriveProgram
from neurodyn.multibody.engine import nominal
from neurodyn.multibody.motion import ContactMotion
from neurodyn.robots import Robot
from neurodyn.sim.articulations import Articulation
from neurodyn.sim.contact_points import contact_point_layout, contacts_on_plane, rounded_boxes
from neurodyn.sim.interface import (
    AssetJoint,
    Gravity,
    Simulator,
    SimulatorKind,
    SimulatorOptions,
    checked_pose,
    gravity_vectors,
)


def _newton_articulation(robot: Robot) -> Articulation:
    from neurodyn.sim.newton.articulation import kept_newton_articulation

    return kept_newton_articulation(robot)


def _newton_limits(robot: Robot) -> dict[str, AssetJoint]:
    from neurodyn.sim.newton.articulation import imported_limits

    return imported_limits(robot)


def _newton_worlds(robot: Robot, worlds: int, **options: Unpack[SimulatorOptions]) -> Simulator:
    from neurodyn.sim.newton.simulator import ReferenceSimulator

    return ReferenceSimulator(robot, worlds, **options)


def _mujoco_articulation(robot: Robot) -> Articulation:
    from neurodyn.sim.mujoco.articulation import mujoco_articulation

    return mujoco_articulation(robot)


def _mujoco_limits(robot: Robot) -> dict[str, AssetJoint]:
    from neurodyn.sim.mujoco.articulation import compiled_limits

    return compiled_limits(robot)


def _mujoco_worlds(robot: Robot, worlds: int, **options: Unpack[SimulatorOptions]) -> Simulator:
    from neurodyn.sim.mujoco.simulator import MujocoSimulator

    return MujocoSimulator(robot, worlds, **options)


def _mujoco_commands(robot: Robot) -> bool:
    from neurodyn.sim.mujoco.actuators import takes_commands

    return takes_commands(robot)


SIMULATORS = Registry(
    "solver",
    featherstone=SimulatorKind(_newton_articulation, _newton_limits, _newton_worlds, contacts=None, package="newton"),
    mujoco=SimulatorKind(_newton_articulation, _newton_limits, _newton_worlds, contacts="soft", package="newton"),
    **{
        "mujoco-c": SimulatorKind(
            _mujoco_articulation,
            _mujoco_limits,
            _mujoco_worlds,
            contacts="soft",
            package="mujoco",
            commands=_mujoco_commands,
        )
    },
)
"""Reference simulators by the name of the declared solver."""


def has_simulator(robot: Robot) -> bool:
    """Return whether a robot has an asset, and the package of its reference simulator is installed."""
    return bool(robot.asset) and has_module(SIMULATORS[robot.simulator.solver].package)


def require_simulator(robot: Robot) -> None:
    """Raise an InputError that names the extra unless the package of a robot's reference simulator is installed."""
    package = SIMULATORS[robot.simulator.solver].package
    require_extra([package], f"robot {robot.name!r} (solver: {robot.simulator.solver})", package)


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
            self._ground = self._scene.at_pose(checked_pose(pose, self.worlds).to(self._device, torch.float32))

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
    constraints for MuJoCo (`sim.constraints.limit_spring`). MuJoCo's constraint parameters are included too.

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
        shapes = rounded_boxes(built, _contacts_of(robot)) if every_contact else ()
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


def _contacts_of(robot: Robot) -> int:
    """Return the maximum number of contacts of a shape with a heightfield in the robot's simulator."""
    return MOST_CONTACTS if robot.simulator.solver == "mujoco-c" else SPREAD_CONTACTS


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
    differences = []
    for joint in robot.joints:
        if joint.name not in limits:
            continue
        given = limits[joint.name]
        unit = spec.q_units[spec.q_names.index(joint.name)]
        lower, upper = given.lower, given.upper
        if joint.lower is None and not joint.continuous and lower is not None and upper is not None:
            turning = ", or continuous: true where it turns without end" if joint.kind == "revolute" else ""
            advice = f"declare lower: {lower:g}, upper: {upper:g} for {joint.name}{turning}"
            differences.append(Contradiction(joint.name, "limits of the asset left out", None, upper, unit, advice))
        if given.effort is not None:
            differences += _too_strong(robot, joint.name, given.effort, "N m" if unit == "rad" else "N")
    return differences


def require_consistent(robot: Robot) -> None:
    """Raise InputError if a declaration contradicts its asset fatally."""
    fatal = [one for one in contradictions(robot) if one.fatal]
    if fatal:
        first, more = fatal[0], "" if len(fatal) == 1 else f" ({len(fatal) - 1} more: see `neurodyn check`)"
        raise InputError(f"robot {robot.name!r}: joint {first.joint!r}: {first.what}; {first.advice}{more}")


def _too_strong(robot: Robot, name: str, most: float, unit: str) -> list[Contradiction]:
    """Return contradictions between a joint's torque and the asset's effort."""
    if name not in robot.actuated or robot.command == "command":  # the ranges of actuators are the asset's
        return []
    effort = robot.actuated[name]
    if effort > most * (1 + _ROUNDING):
        advice = f"declare actuated: {{{name}: {most:g}}}, or correct the asset's effort"
        return [Contradiction(name, "torque beyond the actuator", effort, most, unit, advice)]
    if robot.command != "torque":  # targets of drives
        return []
    drawn = max(map(abs, robot.sampling_interval("control", name)))
    if drawn > most * (1 + _ROUNDING):
        advice = f"keep sampling.control of {name} within {most:g} {unit}"
        return [Contradiction(name, "sampled torque beyond the actuator", drawn, most, unit, advice, fatal=False)]
    return []

# SPDX-License-Identifier: Apache-2.0
"""The declaration of a robot: a small YAML or TOML file beside a URDF, MJCF or USD.

It adds which joints are driven and how strongly, the frame length, the reference simulator, and the sampling ranges of
data. It is read without a simulator, so that learning from logs needs none.
"""

import math
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Config
from neurodyn.core.description.contacts import BodyContact, Support, require_bodies
from neurodyn.core.description.drive import (
    DRIVE_KINDS,
    POSITION_DRIVES,
    Command,
    Drive,
    combine_drives,
    pd_gains,
    require_drives,
)
from neurodyn.core.description.elements import ForceElement, require_elements
from neurodyn.core.description.scene import Heightfield, Mesh, Scene
from neurodyn.core.description.sensors import Sensor
from neurodyn.core.description.spec import HasJointKind, JointKind, JointSpec, StateSpec, is_floating
from neurodyn.core.errors import InputError, among, choices, require, suggestion
from neurodyn.robots.sections import (
    ContactMaterial,
    ContactPointSelection,
    Encoders,
    EndEffector,
    Gains,
    GroundSampling,
    Interval,
    Legs,
    Ranges,
    SimulatorConfig,
    check_interval,
)

OBJECT_PARTS = ("x", "y", "z", "heading")
"""Ranges of a free body other than the robot: position of its origin [m], and angle about the vertical [rad]."""

ASSET_SUFFIXES = (".urdf", ".xml", ".usd", ".usda", ".usdc")


class Joint(Config, HasJointKind, frozen=True):
    """One joint with degrees of freedom; fields that are None keep the asset's value."""

    name: str
    """Name of the joint in the asset."""
    kind: JointKind
    """"revolute", "prismatic", "ball" or "free"."""
    continuous: bool = False
    """Whether the joint turns without limits; its position is compared modulo 2 pi."""
    lower: float | None = None
    """Lower position limit [rad or m]; None without limits."""
    upper: float | None = None
    """Upper position limit [rad or m]; None without limits."""
    limit_ke: float | None = None
    """Stiffness of the limits [N m/rad or N/m]; None for the asset's value, else the simulator's default. MuJoCo's
    limits are far softer than a spring of this stiffness: see `neurodyn check`."""
    limit_kd: float | None = None
    """Damping of the limits [N m s/rad or N s/m]; None as for `limit_ke`."""
    armature: float | None = None
    """Rotor inertia [kg m^2 or kg]."""
    damping: float | None = None
    """Viscous friction [N m s/rad or N s/m]."""
    friction: float | None = None
    """Coulomb friction [N m or N]."""

    def __post_init__(self) -> None:
        if (self.lower is None) != (self.upper is None):
            raise ValueError(f"joint {self.name!r}: give both lower and upper, or neither")
        if self.lower is not None and self.upper is not None and not self.lower <= self.upper:
            raise ValueError(f"joint {self.name!r}: lower {self.lower:g} is above upper {self.upper:g}")
        if self.continuous and self.kind != "revolute":
            raise ValueError(f"joint {self.name!r}: only a revolute joint can be continuous, this one is {self.kind}")
        if self.continuous and self.lower is not None:
            raise ValueError(f"joint {self.name!r}: a continuous joint has no lower and upper; remove them")
        for field in ("limit_ke", "limit_kd", "armature", "damping", "friction"):
            value = getattr(self, field)
            fits = value is None or 0 <= value < math.inf
            require(fits, f"joint {self.name!r}: {field}", value, "a finite number of at least 0")

    @property
    def spec(self) -> JointSpec:
        """The joint as part of a `StateSpec`."""
        return JointSpec(name=self.name, kind=self.kind, continuous=self.continuous, lower=self.lower, upper=self.upper)


class Robot(Config, frozen=True):
    """A declared robot."""

    aliases: ClassVar[Mapping[str, str]] = {"probes": "contact_points", "teacher": "simulator"}

    name: str
    """Name of the robot."""
    joints: tuple[Joint, ...]
    """Joints with degrees of freedom in the order of the built articulation."""
    actuated: dict[str, float]
    """Maximum torque or force of each driven joint, or actuator of `drives` [N m or N], in the order of the control
    vector."""
    dt: float
    """Length of one frame [s]."""
    asset: str = ""
    """File of bodies and joints (.urdf, .xml for MJCF, .usd), relative to the declaration, or to the robots of
    `package`; empty for a robot known only from logs."""
    drives: dict[str, Drive] = msgspec.field(default_factory=dict)
    """Drives between command and torque, by joint, and the robot's own actuators by name, with the joints of their
    transmission; joints without one take torques."""
    description: str = ""
    """One line on the robot and the source of its parameters."""
    package: Literal["example-robot-data", "newton"] | None = None
    """"example-robot-data" or "newton" if that package provides the asset."""
    fixed_base: bool = True
    """Whether the base is fixed to the world; otherwise the first joint is free."""
    locked: tuple[str, ...] = ()
    """Joints of the asset that are fixed: at zero, or in a URDF as near to it as limits and mimicked joints allow."""
    simulator: SimulatorConfig = SimulatorConfig()
    """The reference simulator."""
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81)
    """Gravity in world axes, z up [m/s^2]."""
    density: float = 1000.0
    """Density of links whose asset gives no mass [kg/m^3]."""
    densities: dict[str, float] = msgspec.field(default_factory=dict)
    """Density of an MJCF's shapes by name or shell pattern [kg/m^3]; it determines masses and inertias. A name precedes
    patterns; shapes without a match keep the asset's."""
    mass_scale: float = 1.0
    """Factor on all masses and inertias of the asset except rotor inertias."""
    added_inertia: dict[str, float] = msgspec.field(default_factory=dict)
    """Inertia added to links about all axes through their centres of mass, by shell pattern of their names [kg m^2];
    links joined by fixed joints count as one, named after the first."""
    meshes: bool = True
    """Whether meshes are loaded; a robot without contacts builds faster without them."""
    sampling: Ranges = msgspec.field(default_factory=Ranges)
    """Ranges of random states and torques for data."""
    reset: Ranges = msgspec.field(default_factory=Ranges)
    """Ranges of initial states for evaluation."""
    range: Ranges = msgspec.field(default_factory=Ranges)
    """Bounds beyond which a trajectory is terminated."""
    frames: int = 100
    """Length of a generated trajectory in frames."""
    passive_fraction: float = 0.0
    """Share of generated trajectories without torque; with gains, the share that holds the nominal pose."""
    reset_fraction: float = 0.0
    """Share of generated trajectories that start from the ranges of `reset`, without torque (or held at the nominal
    pose)."""
    invariant: tuple[str, ...] | None = None
    """Joints whose absolute position affects nothing but their limits; None for the leading prismatic joints of a
    fixed-base chain."""
    grounds: dict[str, Scene] = msgspec.field(default_factory=dict)
    """Grounds by name, for data and for evaluation."""
    ground: str | None = None
    """Name of the default ground of evaluation and simulation; None for free space."""
    ground_sampling: GroundSampling | None = None
    """Random poses of the ground for data; None for the default ground as declared."""
    material: ContactMaterial | None = None
    """Contact material of robot and ground; None for the asset's."""
    colliders: tuple[str, ...] = ("*",)
    """Shell patterns of the labels of collision shapes, or of their bodies, that can touch anything; other shapes do
    not collide."""
    self_contacts: bool = False
    """Whether these shapes also touch each other, with the margins of the asset; only with solver mujoco-c."""
    contacts: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Bodies whose contact is observed: shell patterns of the labels of collision shapes, by name."""
    contact_points: ContactPointSelection | None = None
    """Contact points whose distance to the ground is measured; None for none."""
    legs: Legs | None = None
    """Feet, standing height and swinging joints; None for a robot without legs."""
    end_effector: EndEffector | None = None
    """The robot's end effector; None without one."""
    body_contacts: tuple[BodyContact, ...] = ()
    """Pairs of bodies that can touch each other (`core.description.contacts`), in hybrid dynamics."""
    supports: tuple[Support, ...] = ()
    """Bodies that slide on a horizontal plane, in hybrid dynamics."""
    elements: tuple[ForceElement, ...] | UnsetType = UNSET
    """Passive force elements (`core.description.elements`) that the asset lacks, in hybrid dynamics; unset for none."""
    sensors: dict[str, Sensor] = msgspec.field(default_factory=dict)
    """Sensors other than those of the joints (`core.description.sensors`), by name; `identify` compares their readings
    if a log has them, and policies that see sensors have the errors of the IMU."""
    encoders: Encoders | None = None
    """Errors of the joints' encoders, in what policies that see sensors observe; None for the usual ones."""
    nominal: dict[str, float] = msgspec.field(default_factory=dict)
    """Positions of a nominal pose by joint [rad or m]; zero if not named."""
    gains: Gains | None = None
    """PD controller that drives the robot in data and holds it in evaluation; None for torques alone."""
    evaluation_horizon: int = 1000
    """Frames of a roll-out in evaluation."""
    tasks: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """Settings of tasks of this robot (`tasks.TASKS_OF_ROBOTS`) by name."""
    log: str | None = None
    """Column map of the robot's logs, relative to the declaration."""
    rows: str | None = None
    """Layout of headerless rows of the robot's logs (`data.row_layout`), relative to the declaration."""
    folder: str = ""
    """Folder of the declaration, set when it is read."""

    def __post_init__(self) -> None:
        self._check_scalars()
        self._check_joints()
        self._check_ranges()
        self._check_grounds()
        self._check_controller()
        if self.end_effector is not None:
            chain, names = [joint.name for joint in self.end_effector.joints], [joint.name for joint in self.joints]
            if chain and chain != names:
                raise ValueError(f"end_effector: joints are {chain}; valid: all of the robot's joints, in order")
            _require_known("end_effector", (self.end_effector.joint,), names)

    def _check_scalars(self) -> None:
        if not self.name or "/" in self.name:
            raise ValueError(f"name is {self.name!r}; valid: a name that a folder can have")
        require(math.isfinite(self.dt) and self.dt > 0, "dt", self.dt, "the length of a frame in seconds, above 0")
        require(self.frames >= 1, "frames", self.frames, "at least 1")
        require(self.evaluation_horizon >= 1, "evaluation_horizon", self.evaluation_horizon, "at least 1")
        for name in ("passive_fraction", "reset_fraction"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        gravity = list(self.gravity)
        require(all(map(math.isfinite, gravity)), "gravity", gravity, "three finite numbers [m/s^2]")
        require(0 < self.density < math.inf, "density", self.density, "a number above 0 [kg/m^3]")
        require(0 < self.mass_scale < math.inf, "mass_scale", self.mass_scale, "a finite number above 0")
        for name, density in self.densities.items():
            require(0 < density < math.inf, f"densities: {name!r}", density, "a finite number above 0 [kg/m^3]")
        for name, inertia in self.added_inertia.items():
            require(0 <= inertia < math.inf, f"added_inertia: {name!r}", inertia, "at least 0 and finite [kg m^2]")
        if self.densities and not self.asset.lower().endswith(".xml"):
            raise ValueError("densities works for MJCF (.xml) only; a URDF or USD gives masses itself")
        if self.asset and not self.asset.lower().endswith(ASSET_SUFFIXES):
            near = suggestion(Path(self.asset).suffix, ASSET_SUFFIXES)
            raise ValueError(f"asset {self.asset!r} is of no known kind{near}; valid: {', '.join(ASSET_SUFFIXES)}")
        if self.locked and not self.asset.lower().endswith((".urdf", ".xml")):
            raise ValueError("locked works for .urdf and .xml only; fix the joints in the USD file")

    def _check_joints(self) -> None:
        names = [joint.name for joint in self.joints]
        if not names:
            raise ValueError("joints is empty; list the joints that move, in order")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"joints lists {name!r} twice")
        scalar = {joint.name for joint in self.joints if joint.scalar}
        placed = {name for name, drive in self.drives.items() if drive.acts_elsewhere}
        _require_known("actuated", self.actuated, scalar | placed)
        _require_known("invariant", self.invariant or (), scalar)
        for name, drive in self.drives.items():
            _require_known(f"drives: transmission of {name!r}", drive.joints, scalar)
            _require_known(f"drives: links of {name!r}", filter(None, drive.links), names)
        for name, effort in self.actuated.items():
            require(0 < effort < math.inf, f"actuated: effort of {name!r}", effort, "a number above 0 [N m or N]")
        require_bodies(self.body_contacts, self.supports, names)
        require_elements(self.elements or (), names)
        for name in self.locked:
            if name in names:
                raise ValueError(f"joint {name!r} is both in joints and in locked; remove it from one")
        if self.fixed_base == is_floating(self.joints):
            raise ValueError("fixed_base must be true exactly if the first joint is not free")
        if self.simulator.solver == "featherstone":
            for joint in self.joints:
                if joint.friction:
                    raise ValueError(
                        f"joint {joint.name!r} has Coulomb friction, which featherstone ignores; use solver: mujoco"
                    )

    def _check_ranges(self) -> None:
        scalar = [joint.name for joint in self.joints if joint.scalar]
        objects = [joint.name for joint in self.joints[1:] if joint.kind == "free"]
        scalar += [f"{name}.{part}" for name in objects for part in OBJECT_PARTS]
        scalar += [f"{joint.name}.heading" for joint in self.joints[:1] if joint.kind == "free"]
        velocities = [name for joint in self.joints for name in joint.spec.qd_names]
        for what in ("sampling", "reset", "range"):
            ranges: Ranges = getattr(self, what)
            if ranges.control and what != "sampling":
                raise ValueError(f"{what}.control has no meaning; valid: {what}.q and {what}.qd")
            for field, valid in (("q", scalar), ("qd", velocities), ("control", list(self.actuated))):
                declared = getattr(ranges, field)
                _require_known(f"{what}.{field}", declared, valid)
                for name, interval in declared.items():
                    check_interval(f"{what}.{field} of {name!r}", interval)
            if ranges.rotation is not None and any(f"{joint.name}.heading" in ranges.q for joint in self.joints[:1]):
                raise ValueError(f"{what}.q gives the base a heading, and {what}.rotation turns it anyhow; remove one")
            if self.fixed_base and (ranges.height is not None or ranges.tilt or ranges.rotation is not None):
                raise ValueError(f"{what}: height, tilt and rotation are those of floating bases; remove them")
            if ranges.height is not None:
                check_interval(f"{what}.height", ranges.height)
            require(0 <= ranges.tilt <= math.pi, f"{what}.tilt", ranges.tilt, "between 0 and pi [rad]")
            if ranges.rotation is not None:
                require(0 <= ranges.rotation <= math.pi, f"{what}.rotation", ranges.rotation, "between 0 and pi [rad]")
                require(not ranges.tilt, f"{what}.tilt", ranges.tilt, "nothing beside `rotation`, which replaces it")

    def _check_grounds(self) -> None:
        if self.ground is not None and self.ground not in self.grounds:
            raise ValueError(f"ground names the unknown ground {self.ground!r}{among(self.ground, self.grounds)}")
        if self.ground_sampling is not None and self.ground_sampling.ground not in self.grounds:
            named = self.ground_sampling.ground
            raise ValueError(f"ground_sampling names the unknown ground {named!r}{among(named, self.grounds)}")
        if self.self_contacts and self.simulator.solver != "mujoco-c":
            raise ValueError(f"self_contacts is modelled by solver mujoco-c, not by {self.simulator.solver}; remove it")
        if self.simulator.solver == "featherstone" and any(scene.shapes for scene in self.grounds.values()):
            raise ValueError("featherstone has no contacts; use solver: mujoco for a robot with grounds")

    def _check_controller(self) -> None:
        scalar = {joint.name for joint in self.joints if joint.scalar}
        _require_known("nominal", self.nominal, scalar)
        if self.legs is not None:
            _require_known("legs: swing", self.legs.swing, scalar)
            require(not self.fixed_base, "legs", "given", "nothing beside a fixed base")
            for foot in self.legs.feet:
                require(foot in self.contacts, "legs: a foot", repr(foot), f"one of contacts: {choices(self.contacts)}")
        for name, value in self.nominal.items():
            require(math.isfinite(value), f"nominal of {name!r}", value, "a finite number")
        require_drives(self.drives, tuple(self.actuated), "drives")
        if self.gains is not None and not self.actuated:
            raise ValueError("gains drive the actuated joints, of which there are none; remove gains")
        if self.gains is not None and self.command == "command":
            raise ValueError("gains are those of torques at joints, and drives has actuators; remove gains")

    @property
    def command(self) -> Command:
        """Kind of the driven joints' commands: torques, or targets of their drives."""
        return require_drives(self.drives, tuple(self.actuated), "drives")

    @property
    def spec(self) -> StateSpec:
        """Names, order, units and time step of state and control."""
        return StateSpec(
            robot=self.name,
            joints=tuple(joint.spec for joint in self.joints),
            controls=tuple(self.actuated),
            dt=self.dt,
            control_kind=self.command,
        )

    @property
    def simulated_contact(self) -> str | None:
        """Contact model of the hybrid engine that matches the simulator; None if that has no contacts.

        Plain MuJoCo's always does: equalities, tendons and friction of the asset, and damping implicit in the step.
        """
        if self.simulator.solver == "featherstone":
            return None
        if self.simulator.solver == "mujoco-c":
            return "soft"
        constrained = any(joint.scalar and (joint.lower is not None or joint.friction) for joint in self.joints)
        return "soft" if self.contact_points is not None or constrained else None

    @property
    def holds(self) -> bool:
        """Whether commands can hold a pose: they are targets, or commands of the robot's own actuators."""
        return self.command in ("target", "command")

    def joint_efforts(self) -> dict[str, float]:
        """Return the maximum torque or force of each driven joint, by all its drives together [N m or N]."""
        efforts: dict[str, float] = {}
        for name, effort in self.actuated.items():
            for joint, factor in self._row(name).items():
                efforts[joint] = efforts.get(joint, 0.0) + abs(factor) * effort
        return efforts

    def without_drives(self) -> "Robot":
        """Return the robot with torques at its driven joints in place of the commands of drives."""
        if self.command != "command":
            return msgspec.structs.replace(self, drives={})
        sampling = msgspec.structs.replace(self.sampling, control={})
        return msgspec.structs.replace(self, drives={}, actuated=self.joint_efforts(), sampling=sampling)

    def hold_gains(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Return stiffness and damping by which targets of the driven joints are followed [N m/rad, N m s/rad].

        They are those of drives that take targets, or else `gains.hold`; None for a robot without either.
        """
        if self.command == "target":
            return pd_gains(self.drives, tuple(self.actuated))
        if self.gains is None:
            return None
        kp, kd = self.gains.hold
        return (kp,) * len(self.actuated), (kd,) * len(self.actuated)

    def with_longer_frames(self, times: int) -> "Robot":
        """Return the robot with frames so many times as long, and steps of its simulator of the same length."""
        simulator = msgspec.structs.replace(self.simulator, substeps=times * self.simulator.substeps)
        return msgspec.structs.replace(self, dt=times * self.dt, simulator=simulator)

    def with_frames(self, dt: float) -> "Robot":
        """Return the robot with frames of `dt` [s] if that is a multiple of its own; otherwise as it is."""
        times = round(dt / self.dt)
        return self if times < 2 or abs(times * self.dt - dt) > 1e-9 else self.with_longer_frames(times)

    def behind(self, drives: Mapping[str, Drive]) -> "Robot":
        """Return the robot behind the drives of a log, whose targets it then takes.

        Targets are sampled within the joints' limits. Arguments and errors: see
        `core.description.drive.combine_drives`.
        """
        limits = {
            joint.name: (joint.lower, joint.upper)
            for joint in self.joints
            if joint.name in self.actuated and joint.lower is not None and joint.upper is not None
        }
        return msgspec.structs.replace(
            self, drives=combine_drives(self.drives, drives, tuple(self.actuated)), gains=None,
            sampling=msgspec.structs.replace(self.sampling, control=limits),
        )  # fmt: skip

    @property
    def invariant_joints(self) -> tuple[str, ...]:
        """Joints whose absolute position affects nothing but their limits."""
        if self.invariant is not None:
            return self.invariant
        leading = takewhile(lambda joint: self.fixed_base and joint.kind == "prismatic", self.joints)
        return tuple(joint.name for joint in leading)

    @property
    def log_path(self) -> Path | None:
        """Path of the column map of logs."""
        return None if self.log is None else Path(self.folder) / self.log

    @property
    def rows_path(self) -> Path | None:
        """Path of the layout of headerless rows."""
        return None if self.rows is None else Path(self.folder) / self.rows

    def sampling_interval(self, field: Literal["q", "qd", "control"], name: str) -> Interval:
        """Return the sampling range of a coordinate for data.

        Undeclared ranges follow from the robot: joint limits, +-pi for a continuous joint, the range of an actuator's
        command or of a drive's target, or the effort; free and ball joints are at rest.

        Raises:
            InputError: The range is neither declared nor implied.
        """
        declared = getattr(self.sampling, field)
        if name in declared:
            return declared[name]
        if field == "control":
            return self._control_interval(name)
        joint = next((joint for joint in self.joints if joint.name == name), None)
        if field == "q" and joint is None and name.endswith(".heading"):
            return (-math.pi, math.pi)
        if joint is None and field == "qd":  # one coordinate of a free or ball joint
            return (0.0, 0.0)
        if field == "q" and joint is not None and joint.continuous:
            return (-math.pi, math.pi)
        if field == "q" and joint is not None and joint.lower is not None and joint.upper is not None:
            return (joint.lower, joint.upper)
        raise InputError(
            f"robot {self.name!r}: no range to draw {field} of joint {name!r} from; declare it as "
            f"sampling: {{{field}: {{{name}: [lower, upper]}}}}"
        )

    def _control_interval(self, name: str) -> Interval:
        """Return the range of commands that an actuator, the target of a drive, or else an effort implies."""
        drive = self.drives.get(name, Drive())
        if drive.command_range is not UNSET:
            return drive.command_range
        if self.command == "target" and name in self.drives:
            return self._reach(name) if DRIVE_KINDS[drive.kind].target == "position" else self._fastest(name)
        if self.command != "command" or name not in self.drives or drive.kind == "torque":
            return (-self.actuated[name], self.actuated[name])
        if drive.per_command is not UNSET and drive.per_command:
            most = self.actuated[name] / abs(drive.per_command)
            return (-most, most)
        if drive.kind in ("muscle", "pivot"):
            return (0.0, 1.0)
        row = self._row(name)
        if row and drive.kind in POSITION_DRIVES:
            ends = [
                (factor * low, factor * high) for joint, factor in row.items() for low, high in (self._reach(joint),)
            ]
            return (sum(map(min, ends)), sum(map(max, ends)))
        if drive.kp:  # the declaration does not know the length that it holds
            return (-self.actuated[name] / drive.kp, self.actuated[name] / drive.kp)
        return (-1.0, 1.0)

    def _reach(self, name: str) -> Interval:
        """Return the limits of a joint; without limits, half a turn or a metre to either side."""
        joint = next(joint for joint in self.joints if joint.name == name)
        if joint.lower is not None and joint.upper is not None:
            return (joint.lower, joint.upper)
        most = 1.0 if joint.kind == "prismatic" else math.pi
        return (-most, most)

    def _fastest(self, name: str) -> Interval:
        """Return the speeds to which the effort of a velocity servo brings its joint."""
        most = self.actuated[name] / (self.drives[name].kd or 1.0)
        return (-most, most)

    def object_intervals(self, name: str, *, reset: bool) -> tuple[Interval, ...]:
        """Return the ranges of a free body's position and heading (`OBJECT_PARTS`), for data or for initial states."""
        interval = self.reset_interval if reset else self.sampling_interval
        return tuple(interval("q", f"{name}.{part}") for part in OBJECT_PARTS)

    def control_intervals(self) -> tuple[Interval, ...]:
        """Return the ranges of the commands, in the order of the control vector; errors: see `sampling_interval`."""
        return tuple(self.sampling_interval("control", name) for name in self.actuated)

    def reset_interval(self, field: Literal["q", "qd"], name: str) -> Interval:
        """Return the range of a coordinate of initial states.

        Undeclared positions are drawn as for data; undeclared velocities are zero.
        """
        declared = getattr(self.reset, field)
        if name in declared:
            return declared[name]
        return self.sampling_interval("q", name) if field == "q" else (0.0, 0.0)

    def nominal_q(self) -> tuple[float, ...]:
        """Return the positions of the driven joints in the nominal pose [rad or m], shape [nu].

        For the robot's own actuators these are the commands with which servos rest there, within their ranges, and zero
        for actuators without stiffness.
        """
        return tuple(self._nominal_command(name) for name in self.actuated)

    def _row(self, name: str) -> dict[str, float]:
        """Return the factor of each joint in the length of a drive; empty for one that acts elsewhere."""
        drive = self.drives.get(name, Drive())
        if drive.acts_elsewhere:
            return {} if drive.transmission is UNSET else drive.transmission
        return {name: 1.0}

    def _nominal_command(self, name: str) -> float:
        drive = self.drives.get(name, Drive())
        if self.command != "command":
            return self.nominal.get(name, 0.0)
        row = self._row(name)
        value = sum(factor * self.nominal.get(joint, 0.0) for joint, factor in row.items()) if drive.kp else 0.0
        if drive.kp and drive.per_command is not UNSET and drive.per_command:
            value = (drive.kp * value - (drive.offset or 0.0)) / drive.per_command
        if drive.command_range is not UNSET:
            value = min(max(value, drive.command_range[0]), drive.command_range[1])
        return value

    def named_ground(self, name: str | None = None) -> Scene | None:
        """Return a declared ground; without a name the default one, which is None for free space.

        Raises:
            InputError: There is no ground of that name.
        """
        name = self.ground if name is None else name
        if name is None:
            return None
        if name not in self.grounds:
            raise InputError(f"robot {self.name!r} has no ground {name!r}{among(name, self.grounds)}")
        return self.grounds[name]

    def locate(self, folder: Path) -> "Robot":
        """Return this robot, and the file paths of its grounds, with the declaration's folder set."""
        grounds = {
            name: msgspec.structs.replace(scene, folder=str(folder))
            if any(isinstance(shape, Mesh | Heightfield) for shape in scene.shapes)
            else scene
            for name, scene in self.grounds.items()
        }
        return msgspec.structs.replace(self, folder=str(folder), grounds=grounds)


def _require_known(what: str, named: Iterable[str], joints: Iterable[str]) -> None:
    for name in named:
        if name not in joints:
            near = suggestion(name, joints)
            raise ValueError(f"{what} names the unknown joint {name!r}{near}; valid: {choices(joints)}")
